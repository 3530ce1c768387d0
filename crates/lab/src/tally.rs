//! The tally of a run: counts, times, and a row per second.
//!
//! One type for `load`, over real sockets, and for `sim`, in virtual time: two runs of one scenario are
//! counted by the same code, so that a difference between them is a difference in what happened. The
//! simulator calls it millions of times a second; every method is an addition or a few, at an index, and
//! allocates only when a new second begins.
//!
//! Every visitor is counted once, at its end: `offered == done + failed + no_shows + tired + present`. Levels
//! (waiting, in flight) are kept per second as changes, not as values: the sum of two threads' changes is the
//! change of both, so that [`Tally::merge`] is exact. Times go to HDR histograms of three digits and fixed
//! size. `docs/figures.md` explains each figure.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::stats::add_fields;
use crate::times::micros;
use crate::visitor_events::{End, Failure, Noted, RequestKind, SessionEnd};

mod measured;
mod origin;
mod rows;
mod summary;
#[cfg(test)]
pub(crate) mod tests;
mod types;

use measured::Measured;
use origin::Answers;
use rows::{Bins, Row, Rows};
pub use types::TypePlan;
use types::Types;

/// Longest response time and lag that is recorded: an hour. Longer ones count as that.
const MAX_RESPONSE_US: u64 = 3_600_000_000;
/// Longest wait that is recorded: a day.
const MAX_WAIT_MS: u64 = 86_400_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    pub refused: u64,
    pub connect: u64,
    pub broken: u64,
    pub patience: u64,
    /// The bench ran out of sockets.
    pub bench: u64,
}

impl Failures {
    pub fn total(&self) -> u64 {
        self.refused + self.connect + self.broken + self.patience + self.bench
    }

    fn add(&mut self, other: &Self) {
        add_fields!(self, other; refused, connect, broken, patience, bench);
    }

    fn count(&mut self, failure: Failure) {
        *match failure {
            Failure::Refused => &mut self.refused,
            Failure::Connect => &mut self.connect,
            Failure::Broken => &mut self.broken,
            Failure::Patience => &mut self.patience,
            Failure::Bench => &mut self.bench,
        } += 1;
    }
}

#[derive(Clone, Debug)]
pub struct Tally {
    pub offered: u64,
    /// Visitors who got everything they came for.
    pub done: u64,
    /// Visitors who left without it because requests failed, or who were still there at the deadline.
    pub failed: u64,
    /// Visitors who never came back after they had to wait.
    pub no_shows: u64,
    /// Visitors who left the waiting room because it took too long.
    pub tired: u64,
    /// Waits begun: visitors sent to a waiting room, once for each stay.
    pub told: u64,
    pub waiting: u64,
    pub in_flight: u64,
    /// Requests sent, of every kind.
    pub requests: u64,
    /// Requests among them for the status document.
    pub polls: u64,
    /// Requests that were served: one for each step of each session.
    pub served: u64,
    /// Answers that said the waiting room is full.
    pub full: u64,
    /// Requests with an altered or a used ticket.
    pub attacks_sent: u64,
    /// Those that were let in.
    pub attacks_let_in: u64,
    pub failures: Failures,
    /// Requests for a page given up by their visitors ([`Tally::gave_up`]).
    pub given_up: u64,
    /// Requests that reached the origin ([`Tally::door`]).
    pub door: u64,
    /// Response times of the requests that were served, in microseconds from the intended send.
    pub response_us: Histogram<u64>,
    /// Waits of the visitors who had to wait and were served, in milliseconds from arrival to the intended
    /// send of the request that was served.
    pub wait_ms: Histogram<u64>,
    /// How late requests were sent, in microseconds after their intended time: the bench's own fault. It is
    /// part of the response time; if it is large, so is the error of everything else.
    pub lag_us: Histogram<u64>,
    /// When something last happened: an arrival, the end of a request or of a visit.
    pub lasted: Duration,
    present: u64,
    sums: Sums,
    rows: Rows,
    bins: Bins,
    /// The origin's of the second under way.
    answers: Answers,
    /// The measured part; `None`: there is none.
    measured: Option<Box<Measured>>,
    kinds: Kinds,
    /// Figures by type; `None`: there are no types.
    types: Option<Box<Types>>,
}

/// Exact sums and extremes, where a histogram's would be off by its resolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    response_us: u64,
    given_up_us: u64,
    wait_us: u64,
    response_max_us: u64,
    wait_max_us: u64,
    /// First steps served without a wait.
    at_once: u64,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        add_fields!(self, other; response_us, given_up_us, wait_us, at_once;
            max response_max_us, wait_max_us);
    }
}

/// Requests served of each kind of visitor, in the scenario's order, by key: shares between classes are
/// computed by it. The kinds of a replayed log, of which there may be very many, are not among them.
#[derive(Clone, Debug, Default)]
struct Kinds(Vec<(String, u64)>);

impl Kinds {
    /// For these names; of a single kind the total tells all.
    fn new<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> Self {
        Self(if names.len() < 2 { Vec::new() } else { names.map(|name| (served_key(name), 0)).collect() })
    }

    #[inline]
    fn served(&mut self, kind: u32) {
        if let Some((_, served)) = self.0.get_mut(kind as usize) {
            *served += 1;
        }
    }

    fn merge(&mut self, other: &Self) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
            return;
        }
        self.0.iter_mut().zip(&other.0).for_each(|((_, mine), (_, theirs))| *mine += theirs);
    }

    fn figures(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(key, served)| (key.as_str(), *served as f64))
    }
}

/// Under which a kind's figure is kept: what formulas can name.
pub(crate) fn served_key(name: &str) -> String {
    format!("served_{}", plain(name))
}

/// Under which a type's figure is kept.
pub(crate) fn type_key(name: &str, figure: &str) -> String {
    format!("type_{}_{figure}", plain(name))
}

/// Under which the distribution of a type's response times is kept.
pub(crate) fn times_key(name: &str) -> String {
    format!("times_{}", plain(name))
}

fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

impl Default for Tally {
    fn default() -> Self {
        let histogram = |most| Histogram::new_with_bounds(1, most, 3).expect("sensible bounds");
        Self {
            offered: 0,
            done: 0,
            failed: 0,
            no_shows: 0,
            tired: 0,
            told: 0,
            waiting: 0,
            in_flight: 0,
            requests: 0,
            polls: 0,
            served: 0,
            full: 0,
            attacks_sent: 0,
            attacks_let_in: 0,
            failures: Failures::default(),
            given_up: 0,
            door: 0,
            response_us: histogram(MAX_RESPONSE_US),
            wait_ms: histogram(MAX_WAIT_MS),
            lag_us: histogram(MAX_RESPONSE_US),
            lasted: Duration::ZERO,
            present: 0,
            sums: Sums::default(),
            rows: Rows::default(),
            bins: Bins::default(),
            answers: Answers::default(),
            measured: None,
            kinds: Kinds::default(),
            types: None,
        }
    }
}

impl Tally {
    /// An empty one for kinds of these names. Counts apart what is served from one time to another, if they
    /// are given: the time that a closed loop is measured.
    pub fn of<'n>(
        names: impl ExactSizeIterator<Item = &'n str>,
        from_to: Option<(Duration, Duration)>,
    ) -> Self {
        let measured = from_to.map(|(from, to)| Box::new(Measured::new(from, to)));
        Self { kinds: Kinds::new(names), measured, ..Self::default() }
    }

    /// The same, with figures by type of request.
    pub fn with_types(self, plan: TypePlan) -> Self {
        let types = Types::new(plan, self.measured.as_ref().map(|measured| measured.span()));
        Self { types, ..self }
    }

    #[inline]
    pub fn arrived(&mut self, at: Duration) {
        self.offered += 1;
        self.present += 1;
        self.lasted = self.lasted.max(at);
        self.row(at, |row| row.offered += 1);
    }

    /// A request that was to be sent at `intended` is put under way at `now`.
    #[inline]
    pub fn sent(&mut self, ask: RequestKind, intended: Duration, now: Duration) {
        let polls = u32::from(ask == RequestKind::Status);
        self.requests += 1;
        self.in_flight += 1;
        self.polls += u64::from(polls);
        self.attacks_sent += u64::from(matches!(ask, RequestKind::Tampered | RequestKind::Replayed));
        self.lag_us.saturating_record(micros(now.saturating_sub(intended)));
        self.row(now, |row| {
            row.requests += 1;
            row.polls += polls;
            row.in_flight += 1;
        });
    }

    /// A request is over, however. For one that its visitor gives up: [`Tally::gave_up`] instead.
    #[inline]
    pub fn ended(&mut self, now: Duration) {
        debug_assert!(self.in_flight > 0, "a request ended that was not sent");
        self.in_flight = self.in_flight.saturating_sub(1);
        self.lasted = self.lasted.max(now);
        self.row(now, |row| row.in_flight -= 1);
    }

    /// A request for a page that was to be sent at `intended` is given up by its visitor, and so is over:
    /// counts with the time until then in the response times per second. Left out, the requests that fared
    /// worst would leave the mean, and a service would look the better the more of its visitors despair. The
    /// caller does not call [`Tally::ended`] for the same request; [`Tally::noted`] still follows.
    #[inline]
    pub fn gave_up(&mut self, intended: Duration, now: Duration) {
        self.ended(now);
        let after = micros(now.saturating_sub(intended));
        self.given_up += 1;
        self.sums.given_up_us += after;
        self.row(now, |row| {
            row.given_up += 1;
            row.given_up_us += after;
            row.response_max_us = row.response_max_us.max(after);
        });
    }

    /// What became of a request. `was_in_room` and `now_in_room`: whether its visitor was waiting before and
    /// is after.
    #[inline]
    pub fn noted(&mut self, noted: &Noted, was_in_room: bool, now_in_room: bool, now: Duration) {
        match *noted {
            Noted::Nothing => {}
            Noted::Served { step, entered: _, response, waited, waited_since } => {
                self.note_served(response, now);
                self.note_wait(step, waited, waited_since);
            }
            Noted::ToldToWait { wait, at } => {
                if let Some(wait) = wait.filter(|_| !was_in_room) {
                    self.row(at, |row| {
                        row.told += 1;
                        row.told_us += micros(wait);
                    });
                }
            }
            Noted::ToldFull => {
                self.full += 1;
                self.row(now, |row| row.full += 1);
            }
            Noted::Failed(failure) => {
                self.failures.count(failure);
                self.row(now, |row| row.failed += 1);
            }
            Noted::Attack { repelled } => self.attacks_let_in += u64::from(!repelled),
        }
        if was_in_room != now_in_room {
            self.moved(now_in_room, now);
        }
    }

    /// What became of a request of a visitor of this kind for this step: for the figures by kind and by type,
    /// beside [`Tally::noted`].
    #[inline]
    pub fn noted_of(&mut self, kind: u32, step: u8, noted: &Noted, now: Duration) {
        if matches!(noted, Noted::Served { .. }) {
            self.kinds.served(kind);
        }
        if let Some(types) = &mut self.types {
            types.noted(kind, step, noted, now);
        }
    }

    pub fn session(&mut self, end: SessionEnd, now: Duration) {
        if let Some(measured) = &mut self.measured {
            measured.session(end, now);
        }
    }

    /// A visitor leaves. `was_in_room`: whether it is still counted as waiting, which is what the last was
    /// passed to [`Tally::noted`] as `now_in_room`.
    #[inline]
    pub fn left(&mut self, end: End, was_in_room: bool, now: Duration) {
        debug_assert!(self.present > 0, "a visitor left who had not come");
        self.present = self.present.saturating_sub(1);
        self.lasted = self.lasted.max(now);
        if was_in_room {
            self.moved(false, now);
        }
        *match end {
            End::Done => &mut self.done,
            End::NoShow => &mut self.no_shows,
            End::Tired => &mut self.tired,
            End::Failed(_) => &mut self.failed,
        } += 1;
        debug_assert!(self.adds_up(), "{self:?}");
    }

    pub fn present(&self) -> u64 {
        self.present
    }

    pub fn gone(&self) -> u64 {
        self.done + self.failed + self.no_shows + self.tired
    }

    /// Whether every visitor is counted exactly once.
    pub fn adds_up(&self) -> bool {
        self.offered == self.gone() + self.present && self.waiting <= self.present
    }

    /// Requests served per second while anyone waited, over all stretches of time in which any did, to 10 ms
    /// at their ends. Nothing else is left out: neither the ramp at the start of a stretch, nor stragglers at
    /// its end. `None` if nobody waited.
    pub fn goodput_while_waiting(&self) -> Option<f64> {
        let (served, seconds) = self.bins.while_waiting();
        (seconds > 0.0).then(|| served as f64 / seconds)
    }

    /// Adds the figures of another part of the same run, its times counting from the same start: the threads
    /// of one load. Exactly what one tally of both would hold.
    pub fn merge(&mut self, other: &Self) {
        add_fields!(self, other; offered, done, failed, no_shows, tired, told);
        add_fields!(self, other; waiting, in_flight, requests, polls);
        add_fields!(self, other; served, full, attacks_sent, attacks_let_in, given_up, door, present);
        self.failures.add(&other.failures);
        for (mine, theirs) in [
            (&mut self.response_us, &other.response_us),
            (&mut self.wait_ms, &other.wait_ms),
            (&mut self.lag_us, &other.lag_us),
        ] {
            mine.add(theirs).expect("histograms of the same bounds");
        }
        self.lasted = self.lasted.max(other.lasted);
        self.sums.add(&other.sums);
        self.rows.merge(&other.rows);
        self.bins.merge(&other.bins);
        self.answers.merge(&other.answers);
        self.kinds.merge(&other.kinds);
        match (&mut self.measured, &other.measured) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (None, theirs) => self.measured = theirs.clone(),
            (Some(_), None) => {}
        }
        match (&mut self.types, &other.types) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (None, theirs) => self.types = theirs.clone(),
            (Some(_), None) => {}
        }
    }

    #[inline]
    fn note_served(&mut self, response: Duration, now: Duration) {
        let us = micros(response);
        self.served += 1;
        self.sums.response_us += us;
        self.sums.response_max_us = self.sums.response_max_us.max(us);
        self.response_us.saturating_record(us);
        if let Some(measured) = &mut self.measured {
            measured.served(us, now);
        }
        self.bins.served(now);
        self.row(now, |row| {
            row.served += 1;
            row.response_us += us;
            row.response_max_us = row.response_max_us.max(us);
        });
    }

    #[inline]
    fn note_wait(&mut self, step: u8, waited: Option<Duration>, since: Duration) {
        let us = match waited {
            Some(wait) => {
                let us = micros(wait);
                self.sums.wait_us += us;
                self.sums.wait_max_us = self.sums.wait_max_us.max(us);
                self.wait_ms.saturating_record(us / 1000);
                us
            }
            // Only the first step is a visitor who comes; the later ones of a session have been let in
            // already.
            None if step == 0 => {
                self.sums.at_once += 1;
                0
            }
            None => return,
        };
        self.row(since, |row| {
            row.waits += 1;
            row.wait_us += us;
            row.wait_max_us = row.wait_max_us.max(us);
        });
    }

    #[inline]
    fn moved(&mut self, into: bool, now: Duration) {
        if into {
            self.told += 1;
            self.waiting += 1;
        } else {
            debug_assert!(self.waiting > 0, "a visitor left the room who was not in it");
            self.waiting = self.waiting.saturating_sub(1);
        }
        let change = if into { 1 } else { -1 };
        self.bins.waiting(now, change);
        self.row(now, |row| row.waiting += change);
    }

    #[inline]
    fn row(&mut self, at: Duration, change: impl FnOnce(&mut Row)) {
        if let Some(row) = self.rows.at(at) {
            change(row);
        }
    }
}
