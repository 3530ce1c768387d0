//! Long-lived requests (long polls, streams until the gate releases their slot) hold a slot but no worker.
//!
//! ```text
//! s = Σ lingered + Σ (R − R̄) of those with R > 12 R̄, per second    (number in flight, Little's law)
//! ```
//!
//! For streams the gate measures the time lingered: the answer's head had come, and the gate waited whether
//! the answer would end soon before it released the slot. It is short compared with any threshold, so only
//! the gate can tell. The others are recognised by their length.
//!
//! The curve, the meter and the knee are functions of n − s; the limit is the knee's level plus s. The time
//! of such a request beyond an ordinary response R̄ is idle, the rest is work like any other. A few very long
//! service times are treated alike, which is no error: they reduce n and the knee by the same amount.
//!
//! Limit: such requests are recognised only when they end, so s lags by their length.

/// A request is long-lived beyond so many ordinary response times. Rejected: 8 and 5: with long polls of 20
/// responses the capacity swings a quarter more, and with 5 one seed in ten loses half the goodput.
const LONG: f64 = 12.0;
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
    pub fn split(&mut self, count: f64, response_s: f64, usual_s: f64) -> f64 {
        if response_s <= LONG * usual_s {
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
