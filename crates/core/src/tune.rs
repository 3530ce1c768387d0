//! Tuners: control loops that read measurements and change tunables (MASTH, section 2: `TuningThread`).
//!
//! A tuner is pure: figures in, changes out. The caller decides when it runs, and applies all of its changes
//! or none, so a tuner that fails half way has no effect.

use std::sync::Arc;
use std::time::Duration;

use crate::units::{Rate, Timestamp};

/// The class name for which a [`View`] returns the figures of all requests.
pub const ALL: &str = "all";

/// The measurements that a tuner reads.
pub trait View {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// A figure of the last second for a class or [`ALL`]: rates in requests per second, times in
    /// milliseconds. `None` without a measurement.
    ///
    /// # Errors
    /// There is no such figure or class.
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

    /// What the requests of a type, like "class:search" or "path:/item/{n}", have to do with a figure.
    /// `None`: not known, or the type had no requests.
    ///
    /// # Errors
    /// There is no such type or figure.
    fn correlation(&self, of_type: &str, figure: &str) -> Result<Option<Correlated>, String>;

    /// A tunable's value as TOML; `None` if there is none of this name.
    fn get(&self, name: &str) -> Option<String>;
}

/// What was found about a type of requests and a figure, as of the last analysis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Correlated {
    /// Pearson's coefficient and its p; `None`: not enough data.
    pub r: Option<f64>,
    pub p: Option<f64>,
    /// Whether it loads the figure, and not only by travelling with another type.
    pub is_culprit: bool,
    /// Of all requests.
    pub share: f64,
    /// What one request adds to the figure, in its unit; `None`: not known.
    pub cost: Option<f64>,
}

/// A view that is shared with the tuner's interpreter.
pub type Seen = Arc<dyn View + Send + Sync>;

/// A tunable and its new value as TOML.
pub type Change = (String, String);

/// Why a run changed nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{what}", .at.map(|(line, column)| format!("line {line}, column {column}: ")).unwrap_or_default())]
pub struct TunerError {
    pub what: String,
    /// Line and column in the tuner's source, from 1, if it has one.
    pub at: Option<(usize, usize)>,
}

/// A control loop.
pub trait Tuner {
    /// One run. Returns the changes, which apply all together.
    ///
    /// # Errors
    /// The run failed; nothing changes.
    fn tune(&mut self, view: &Seen) -> Result<Vec<Change>, TunerError>;
}

/// Whether the gate is overloaded. Overload begins after three seconds in a row in which work arrived at more
/// than 95 % of the capacity in force, or visitors waited in the room, or requests waited for the origin. It
/// ends after five seconds in a row without any of these.
///
/// Refused work counts as arrived: otherwise a tuner that sheds would end the overload that it sheds for.
/// Overload begins sooner than it ends, so that a tuner that depends on it does not oscillate.
#[derive(Clone, Debug, Default)]
pub struct Overload {
    is_on: bool,
    /// Seconds in a row that contradict `is_on`.
    against: u32,
}

/// The demand of one second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    /// Work that arrived per second, whatever its outcome.
    pub offered: Rate,
    /// Capacity in force; [`Rate::MAX`]: unlimited.
    pub capacity: Rate,
    pub waiting: u64,
    /// Requests that wait only for the origin.
    pub queued: usize,
}

impl Overload {
    /// Share of the capacity above which the offered work is too much.
    pub const SHARE: f64 = 0.95;
    /// Seconds in a row until overload begins.
    pub const SECONDS_ON: u32 = 3;
    /// Seconds in a row until it ends.
    pub const SECONDS_OFF: u32 = 5;

    /// Adds one second; returns whether the gate is overloaded.
    pub fn observe(&mut self, second: &Demand) -> bool {
        let needed = if self.is_on { Self::SECONDS_OFF } else { Self::SECONDS_ON };
        self.against = if second.is_too_much() == self.is_on { 0 } else { self.against + 1 };
        if self.against == needed {
            *self = Self { is_on: !self.is_on, against: 0 };
        }
        self.is_on
    }

    /// The result of the last [`Overload::observe`].
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

    /// Plays seconds with too much demand (`x`) or without (`.`); returns the overload after each.
    fn course(seconds: &str, too_much: &Demand) -> String {
        let mut overload = Overload::default();
        let mut seen = String::new();
        for second in seconds.chars() {
            let is_on = overload.observe(if second == 'x' { too_much } else { &CALM });
            assert_eq!(is_on, overload.is_on());
            seen.push(if is_on { 'x' } else { '.' });
        }
        seen
    }

    #[test]
    fn overload_begins_after_three_seconds_in_a_row_and_ends_after_five() {
        for too_much in [offered(96.0, 100.0), Demand { waiting: 1, ..CALM }, Demand { queued: 1, ..CALM }] {
            for (seconds, seen) in [
                ("xx.xx.xx.", "........."),
                ("xxx", "..x"),
                ("xxx.....", "..xxxxx."),
                ("xxx....x....x", "..xxxxxxxxxxx"),
                ("xxx.....xx.xxx", "..xxxxx......x"),
            ] {
                assert_eq!(course(seconds, &too_much), seen, "{too_much:?}");
            }
        }
    }

    #[test]
    fn demand_within_the_capacity_is_no_overload_nor_is_any_without_a_limit() {
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
