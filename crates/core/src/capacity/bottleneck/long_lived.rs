//! Long-lived requests (long polls, streams until the gate releases their slot) hold a slot but no worker.
//!
//! ```text
//! s = Σ lingered + Σ (R − R̄) of those whom 12 n others overtook, per second    (Little's law)
//! ```
//!
//! For streams the gate measures the time lingered: the answer's head had come, and the gate waited whether
//! the answer would end soon before it released the slot. It is short compared with any threshold, so only
//! the gate can tell. The others are recognised by how many requests end while they stay, n being those in
//! flight when they were sent. An ordinary request sees about n others end, whether they wait in a line or
//! share a processor, and however slow the origin is. A long poll sees many more.
//!
//! Rejected: more than 12 ordinary response times. An origin that contention slows down twelvefold then
//! seems to have nothing but long polls, and the limit grows by as many while the throughput collapses.
//!
//! The curve, the throughput and the knee are functions of n − s; the limit is the knee's level plus s. The
//! time of such a request beyond an ordinary response R̄ is idle, the rest is work like any other. A few very
//! long service times are treated alike, which is no error: they reduce n and the knee by the same amount.
//!
//! Limit: such requests are recognised only when they end, so s lags by their length.

use std::collections::VecDeque;

use crate::units::Timestamp;

/// A request is long-lived if so many others ended during its stay, per request in flight when it was
/// sent. In a steady state that is its length in ordinary responses, for which 8 and 5 were too few: with
/// long polls of 20 responses the capacity swung a quarter more, and with 5 one seed in ten lost half the
/// goodput.
pub(super) const LONG: f64 = 12.0;
/// Ticks for which completions are remembered. What stays longer saw at least as many end.
const TICKS: usize = 600;
/// Averaging time in seconds, and at least in mean idle times.
const MEMORY_S: f64 = 20.0;
const MEMORY_IDLE_TIMES: f64 = 3.0;
/// Longest idle time in seconds that extends the memory.
const LONGEST_S: f64 = 600.0;

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LongLived {
    /// Idle time of requests that ended in the present tick.
    ended_s: f64,
    mean_idle_s: f64,
    pub(super) level: f64,
    watched_s: f64,
}

impl LongLived {
    /// Returns the part of a response time that is work, given an ordinary one, and counts the rest as idle.
    /// `overtaken`: others that ended during its stay, per request in flight when it was sent.
    pub fn split(&mut self, count: f64, response_s: f64, usual_s: f64, overtaken: f64) -> f64 {
        if overtaken <= LONG || response_s <= usual_s {
            return response_s;
        }
        let idle = response_s - usual_s;
        // Time before the memory begins does not count.
        self.ended_s += count * idle.min(self.memory_s());
        self.mean_idle_s += 0.1 * (idle.min(LONGEST_S) - self.mean_idle_s);
        usual_s
    }

    /// `count` requests kept their slots for so long after their work was done.
    pub fn linger(&mut self, count: f64, lingered_s: f64) {
        self.ended_s += count * lingered_s.min(self.memory_s());
    }

    pub fn tick(&mut self, elapsed_s: f64) {
        if elapsed_s <= 0.0 {
            return;
        }
        self.watched_s = (self.watched_s + elapsed_s).min(self.memory_s());
        let weight = (elapsed_s / self.watched_s).min(1.0);
        self.level += weight * (self.ended_s / elapsed_s - self.level);
        self.ended_s = 0.0;
    }

    fn memory_s(&self) -> f64 {
        MEMORY_S.max(MEMORY_IDLE_TIMES * self.mean_idle_s)
    }
}

/// How many requests have ended by when.
#[derive(Clone, Default, Debug)]
pub(super) struct Completions {
    ended: f64,
    /// The same at the last ticks.
    at_ticks: VecDeque<(Timestamp, f64)>,
}

impl Completions {
    pub fn add(&mut self, count: f64) {
        self.ended += count;
    }

    pub fn tick(&mut self, now: Timestamp) {
        if self.at_ticks.len() == TICKS {
            self.at_ticks.pop_front();
        }
        self.at_ticks.push_back((now, self.ended));
    }

    /// How many have ended since `sent`, seen at `now`; between ticks in proportion to the time.
    pub fn since(&self, sent: Timestamp, now: Timestamp) -> f64 {
        let next = self.at_ticks.partition_point(|(at, _)| *at <= sent);
        let Some(&(from, before)) = next.checked_sub(1).and_then(|last| self.at_ticks.get(last)) else {
            return self.ended - self.at_ticks.front().map_or(0.0, |(_, ended)| *ended);
        };
        let (until, after) = self.at_ticks.get(next).copied().unwrap_or((now, self.ended));
        let length_s = until.since(from).as_secs_f64();
        let share = if length_s > 0.0 { (sent.since(from).as_secs_f64() / length_s).min(1.0) } else { 1.0 };
        self.ended - (before + share * (after - before))
    }
}
