//! Requests that stay: long polls, and streams until the gate takes their place back. They hold a place in flight but no worker.
//!
//! ```text
//! s = Σ lingered + Σ (R − R̄) of those with R > 12 R̄, per second      (Little's law: how many of them are in flight)
//! ```
//!
//! What lingered is known: an answer's head had come, the gate waited whether it would end soon, and then gave its place back. It
//! is short beside any threshold, so only the gate can tell. The others are guessed at by their length.
//!
//! The curve, the meter and the knee are of n − s; the limit is the knee's plus s. What such a request took beyond an
//! ordinary response R̄ is the stay, the rest is work like any other. A few very long service times are treated so too, which is no
//! error: they take as much from n as from the knee.
//!
//! It is known only when they end, so it lags by their length.

/// From so many mean responses on, a request stays. Lost: 8 and 5, for stays of 20 responses in the mean that no gate tells of; the
/// capacity swings by a quarter more, and with 5 one seed in ten loses half the goodput.
const LONG: f64 = 12.0;
/// Seconds of averaging, and mean stays of averaging at least.
const MEMORY_S: f64 = 20.0;
const MEMORY_STAYS: f64 = 3.0;
/// Longest stay, in seconds, that makes the memory longer.
const LONGEST_S: f64 = 600.0;

/// How many stay.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LongLived {
    ended_s: f64,
    mean_stay_s: f64,
    level: f64,
    watched_s: f64,
}

impl LongLived {
    /// Splits a response into work and stay, in seconds; `usual_s` is an ordinary one.
    pub fn split(&mut self, count: f64, response_s: f64, usual_s: f64) -> f64 {
        if response_s <= LONG * usual_s {
            return response_s;
        }
        let stay = response_s - usual_s;
        // What was before the time that is remembered does not count.
        self.ended_s += count * stay.min(self.memory_s());
        self.mean_stay_s += 0.1 * (stay.min(LONGEST_S) - self.mean_stay_s);
        usual_s
    }

    /// `count` requests kept their places for so long after their work was done, in seconds.
    pub fn linger(&mut self, count: f64, lingered_s: f64) {
        self.ended_s += count * lingered_s.min(self.memory_s());
    }

    /// Time has passed, under load.
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
        MEMORY_S.max(MEMORY_STAYS * self.mean_stay_s)
    }

    /// Mean number of those in flight.
    pub fn level(&self) -> f64 {
        self.level
    }
}
