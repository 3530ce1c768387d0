//! Tuners: control loops that read what was measured and say which tunables are to change (MASTH, section 2: the
//! `TuningThread` that is extended, Figure 2(b)).
//!
//! A tuner is pure: figures in, changes out. Who runs it says when, and puts the changes in force all together or not
//! at all, so that a tuner that fails half way has done nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::units::{Rate, Timestamp};

/// The name under which a [`View`] has the figures of all requests together.
pub const ALL: &str = "all";

/// What a tuner sees.
pub trait View {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// A figure of the last second, of a class or of [`ALL`]: rates in requests per second, times in milliseconds. `None`:
    /// nothing was measured.
    ///
    /// # Errors
    /// There is no such figure or class: why, in words.
    fn figure(&self, metric: &str, class: &str) -> Result<Option<f64>, String>;

    /// The greatest one-second value of a figure in the last `span`.
    ///
    /// # Errors
    /// As [`View::figure`].
    fn peak(&self, metric: &str, class: &str, span: Duration) -> Result<Option<f64>, String>;

    /// The average of a figure over the last `span`.
    ///
    /// # Errors
    /// As [`View::figure`].
    fn mean(&self, metric: &str, class: &str, span: Duration) -> Result<Option<f64>, String>;

    /// Capacity in force; `None`: unlimited.
    fn capacity(&self) -> Option<Rate>;

    /// As [`Overload`] defines it.
    fn is_overloaded(&self) -> bool;

    /// A tunable's value, as TOML; `None`: there is none of this name.
    fn get(&self, name: &str) -> Option<String>;
}

/// A view, shared with whatever the tuner's language makes of it.
pub type Seen = Arc<dyn View + Send + Sync>;

/// A tunable and the value it is to have, as TOML.
pub type Change = (String, String);

/// Why a run changed nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{what}", .at.map(|(line, column)| format!("line {line}, column {column}: ")).unwrap_or_default())]
pub struct TunerError {
    /// What went wrong.
    pub what: String,
    /// Where in the tuner's text, if it has one: line and column, from 1.
    pub at: Option<(usize, usize)>,
}

/// A control loop.
pub trait Tuner {
    /// One run: what is to change now. All of it, or nothing.
    ///
    /// # Errors
    /// The run did not end well; nothing is to change.
    fn tune(&mut self, view: &Seen) -> Result<Vec<Change>, TunerError>;
}

/// Whether the gate is overloaded: work arrived at more than 95 % of the capacity in force, or visitors waited in the
/// room, or requests waited for the origin, in each of three seconds in a row; and it stays so until five seconds in a row
/// without any of these.
///
/// Work that is refused has arrived too: a tuner that sheds does not thereby end the overload that it sheds for. It goes
/// on sooner than it goes off, so that what a tuner switches by it does not flap; one second's burst is no overload.
#[derive(Clone, Debug, Default)]
pub struct Overload {
    is_on: bool,
    /// Seconds in a row that spoke against `is_on`.
    against: u32,
}

/// What one second says of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    /// Work that arrived per second, whatever became of it.
    pub offered: Rate,
    /// Capacity in force; [`Rate::MAX`]: unlimited.
    pub capacity: Rate,
    /// Visitors in the room.
    pub waiting: u64,
    /// Requests that wait for the origin alone.
    pub queued: usize,
}

impl Overload {
    /// Of the capacity: what is offered above it is too much.
    pub const SHARE: f64 = 0.95;
    /// Seconds in a row until it is on.
    pub const SECONDS_ON: u32 = 3;
    /// Seconds in a row until it is off again.
    pub const SECONDS_OFF: u32 = 5;

    /// Takes in one second; whether there is an overload now.
    pub fn observe(&mut self, second: &Demand) -> bool {
        let needed = if self.is_on { Self::SECONDS_OFF } else { Self::SECONDS_ON };
        self.against = if second.is_too_much() == self.is_on { 0 } else { self.against + 1 };
        if self.against == needed {
            *self = Self { is_on: !self.is_on, against: 0 };
        }
        self.is_on
    }

    /// What the last [`Overload::observe`] said.
    pub fn is_on(&self) -> bool {
        self.is_on
    }
}

impl Demand {
    fn is_too_much(&self) -> bool {
        let is_above =
            self.capacity < Rate::MAX && self.offered.get() > Overload::SHARE * self.capacity.get();
        is_above || self.waiting > 0 || self.queued > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Demand = Demand { offered: Rate::ZERO, capacity: Rate::MAX, waiting: 0, queued: 0 };

    fn offered(offered: f64, capacity: f64) -> Demand {
        let rate = |r| Rate::per_second(r).unwrap();
        Demand { offered: rate(offered), capacity: rate(capacity), ..CALM }
    }

    /// `x`: a second of too much, `.`: one without; what is said after each.
    fn course(seconds: &str, too_much: &Demand) -> String {
        let mut overload = Overload::default();
        let mut said = String::new();
        for second in seconds.chars() {
            let is_on = overload.observe(if second == 'x' { too_much } else { &CALM });
            assert_eq!(is_on, overload.is_on());
            said.push(if is_on { 'x' } else { '.' });
        }
        said
    }

    #[test]
    fn it_takes_three_seconds_in_a_row_to_begin_and_five_to_end() {
        for too_much in [offered(96.0, 100.0), Demand { waiting: 1, ..CALM }, Demand { queued: 1, ..CALM }] {
            for (seconds, said) in [
                ("xx.xx.xx.", "........."),
                ("xxx", "..x"),
                ("xxx.....", "..xxxxx."),
                ("xxx....x....x", "..xxxxxxxxxxx"),
                ("xxx.....xx.xxx", "..xxxxx......x"),
            ] {
                assert_eq!(course(seconds, &too_much), said, "{too_much:?}");
            }
        }
    }

    #[test]
    fn what_fits_is_no_overload_and_nothing_is_too_much_without_a_limit() {
        let unlimited = Demand { offered: Rate::MAX, ..CALM };
        for calm in [offered(95.0, 100.0), offered(0.0, 0.0), unlimited, CALM] {
            assert!(!calm.is_too_much(), "{calm:?}");
        }
        for too_much in [offered(95.1, 100.0), offered(0.1, 0.0)] {
            assert!(too_much.is_too_much(), "{too_much:?}");
        }
    }

    #[test]
    fn an_error_says_where() {
        let error = TunerError { what: "no".into(), at: Some((3, 7)) };
        assert_eq!(error.to_string(), "line 3, column 7: no");
        assert_eq!(TunerError { at: None, ..error }.to_string(), "no");
    }
}
