//! The demonstration's tally: counts, response times, waits, and goodput over time. `tally` takes its place when
//! `load` plays scenarios.
//!
//! Every visitor is counted once at its end: `offered == served + failed + no_shows + tired + waiting + asking`.
//! Times go to HDR histograms (three digits, fixed size), completions to bins of 10 ms, so that a run of hours
//! takes no more memory than it must and goodput can be asked of any window afterwards.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::visitor_old::{End, Failure};

/// Width of a completion bin: 0.25 % of a window of four seconds.
const BIN: Duration = Duration::from_millis(10);
/// Bins kept: a day. Later completions are counted in the totals only.
const MAX_BINS: usize = 24 * 3600 * 100;

/// Requests that failed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Answered with an error.
    pub refused: u64,
    /// No connection.
    pub connect: u64,
    /// Connection ended before the answer did.
    pub broken: u64,
    /// Given up by the visitor.
    pub patience: u64,
    /// The bench ran out of sockets.
    pub bench: u64,
}

impl Failures {
    /// All together.
    pub fn total(&self) -> u64 {
        self.refused + self.connect + self.broken + self.patience + self.bench
    }

    pub(crate) fn count(&mut self, failure: Failure) {
        *match failure {
            Failure::Refused => &mut self.refused,
            Failure::Connect => &mut self.connect,
            Failure::Broken => &mut self.broken,
            Failure::Patience => &mut self.patience,
            Failure::Bench => &mut self.bench,
        } += 1;
    }
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Visitors who came.
    pub offered: u64,
    /// Visitors who got what they came for.
    pub served: u64,
    /// Visitors who left without it because requests failed, or who were still there at the deadline.
    pub failed: u64,
    /// Visitors who never came back after being told to wait.
    pub no_shows: u64,
    /// Visitors who left the waiting room because it took too long.
    pub tired: u64,
    /// Visitors who were told to wait, whatever became of them.
    pub waited: u64,
    /// Visitors in a waiting room now.
    pub waiting: u64,
    /// Requests under way now.
    pub in_flight: u64,
    /// Requests sent, pages and news.
    pub requests: u64,
    /// Requests that failed.
    pub failures: Failures,
    /// Response times of the requests that were served, in microseconds from the intended send.
    pub response_us: Histogram<u64>,
    /// Waits of the visitors who waited and were served, in milliseconds from arrival to entry.
    pub wait_ms: Histogram<u64>,
    /// How late requests were sent, in microseconds after their intended time: the bench's own fault. It is part of
    /// the response time; if it is large, so is the error of everything else.
    pub lag_us: Histogram<u64>,
    /// When the first visitor was told to wait.
    pub first_told: Option<Duration>,
    /// When the last visitor who had waited sent the request that was served.
    pub last_entry: Option<Duration>,
    /// When the last visitor left.
    pub ended: Duration,
    bins: Vec<u32>,
}

impl Default for Tally {
    fn default() -> Self {
        // Up to an hour of response time, a day of waiting; what is beyond counts as that.
        let histogram = |most| Histogram::new_with_bounds(1, most, 3).expect("sensible bounds");
        Self {
            offered: 0,
            served: 0,
            failed: 0,
            no_shows: 0,
            tired: 0,
            waited: 0,
            waiting: 0,
            in_flight: 0,
            requests: 0,
            failures: Failures::default(),
            response_us: histogram(3_600_000_000),
            wait_ms: histogram(86_400_000),
            lag_us: histogram(3_600_000_000),
            first_told: None,
            last_entry: None,
            ended: Duration::ZERO,
            bins: Vec::new(),
        }
    }
}

impl Tally {
    /// Visitors who left, one way or another.
    pub fn left(&self) -> u64 {
        self.served + self.failed + self.no_shows + self.tired
    }

    /// Served per second while anyone waited: completions from the instant the first visitor was told to wait to
    /// the instant the last one who had waited was let in, over that time. Nothing is left out: neither the ramp
    /// at the start, nor stragglers at the end. `None` if nobody waited.
    pub fn goodput_while_waiting(&self) -> Option<f64> {
        let (from, to) = (self.first_told?, self.last_entry?);
        let span = to.checked_sub(from).filter(|span| !span.is_zero())?;
        let completions: u64 =
            self.bins.get(bin(from)..bin(to).min(self.bins.len()))?.iter().map(|n| u64::from(*n)).sum();
        Some(completions as f64 / span.as_secs_f64())
    }

    pub(crate) fn told_to_wait(&mut self, now: Duration) {
        self.waited += 1;
        self.waiting += 1;
        self.first_told.get_or_insert(now);
    }

    pub(crate) fn left_with(&mut self, end: End, was_waiting: bool, now: Duration) {
        self.ended = self.ended.max(now);
        self.waiting -= u64::from(was_waiting);
        match end {
            End::Served { entered, response, waited } => {
                self.served += 1;
                self.response_us.saturating_record(response.as_micros() as u64);
                if let Some(wait) = waited {
                    self.wait_ms.saturating_record(wait.as_millis() as u64);
                    self.last_entry = self.last_entry.max(Some(entered));
                }
                self.completed(now);
            }
            End::NoShow => self.no_shows += 1,
            End::Tired => self.tired += 1,
            End::Failed(_) => self.failed += 1,
        }
    }

    fn completed(&mut self, now: Duration) {
        let bin = bin(now);
        if bin < MAX_BINS {
            if self.bins.len() <= bin {
                self.bins.resize(bin + 1, 0);
            }
            self.bins[bin] += 1;
        }
    }
}

fn bin(at: Duration) -> usize {
    (at.as_micros() / BIN.as_micros()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn goodput_counts_the_window_in_which_somebody_waits() {
        let mut tally = Tally::default();
        assert_eq!(tally.goodput_while_waiting(), None);
        let mut serve = |at_ms: u32, waited: bool| {
            let entered = (at_ms - 100) * MS;
            let end = End::Served { entered, response: 100 * MS, waited: waited.then_some(entered) };
            tally.left_with(end, false, at_ms * MS);
        };
        // One completion every 10 ms up to 2 s; those told to wait from 500 ms on, the last enters at 1500 ms.
        for k in 10..200 {
            serve(10 * k, (60..=160).contains(&k));
        }
        tally.first_told = Some(500 * MS);
        assert_eq!(tally.last_entry, Some(1500 * MS));
        assert_eq!(tally.goodput_while_waiting(), Some(100.0));
        assert_eq!(tally.response_us.value_at_quantile(0.99) / 1000, 100);
        assert_eq!(tally.wait_ms.max() / 10, 150);
    }

    #[test]
    fn late_completions_are_counted_without_a_bin() {
        let mut tally = Tally::default();
        let end = End::Served { entered: Duration::ZERO, response: MS, waited: None };
        tally.left_with(end, false, Duration::MAX);
        assert_eq!((tally.served, tally.bins.len()), (1, 0));
    }
}
