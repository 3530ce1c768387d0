//! The virtual clock: the instant of the promised schedule that is being admitted.
//!
//! WebQ's schedule runs on the wall clock: a visitor who was promised second `s` enters at `s`, also when the
//! origin has become slower, and when visitors do not come the origin idles. This schedule runs on work. The
//! virtual clock `V` moves over the promised seconds as fast as the origin can take what was promised there,
//! and a visitor's turn has come when `V` reaches the ticket's due time:
//!
//! ```text
//! work admitted in dt  =  (C - A) * dt * clamp(1 + g * (target - max(B, Q) / C), 0, 4)  /  show-up ratio
//! ```
//!
//! * `C` the capacity; `A` work per second of bypass traffic (sessions with a pass), as measured.
//! * `B` virtual backlog (`room/backlog.rs`): work admitted minus done at capacity, at least minus one burst.
//! * `Q` work queued for the origin; `target` 50 ms plus half an average visitor (work is whole visitors).
//! * `g` 0.7/s, less where one visitor takes long: the loop cannot be faster than the work of one visitor.
//!
//! Where the gate has an in-flight limit, `V` moves besides no faster than keeps a short queue there
//! (`room/queue_pacer.rs`): the slower of the two counts. Where an estimator sets that limit, `C` in the pace
//! above is not its estimate, which is for positions and waits only, but the operator's bound.
//!
//! No ticket has to be changed. When the capacity falls, `V` slows down: the order remains, and no one is
//! refused (re-slotting with seniority). When visitors do not come, the origin has spare time or the capacity
//! rises, `V` speeds up, and of the waiting those who ask next are pulled forward, in order. `V` never goes
//! back and never passes the last promise. Seconds in which nothing is promised cost no work, so `V` skips
//! them. While no one waits, `V` follows the wall clock.
//!
//! Rejected: dV/dt = clamp(C / L, 0, 4) per second of schedule, with L promised in that second. It idles
//! where little is promised (a schedule made at a tenth of today's capacity could only run four times as
//! fast). Budgeting work is the same where L > 0 and needs no limit. Rejected: new tickets at every change (a
//! ticket in a closed laptop cannot be changed).

use crate::slots::SlotWork;
use crate::sync::{AtomicU64, Ordering, Word};
use crate::units::Timestamp;

/// Backlog aimed at, in seconds: enough that the origin never starves between two ticks.
const TARGET_S: f64 = 0.05;
/// Gain per second of backlog error: below 1 over the second or so that an admitted visitor takes to come.
const GAIN: f64 = 0.7;
/// Most work admitted, as a multiple of the capacity.
const MAX_PACE: f64 = 4.0;

/// The virtual clock's position.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VirtualTime {
    /// Instant of the schedule that is being admitted.
    pub at: Timestamp,
    /// No one waits: it moves with the wall clock, from `at` on.
    pub follows_clock: bool,
}

/// `{at in microseconds: 63, follows_clock: 1}`.
impl Word for VirtualTime {
    fn to_word(self) -> u64 {
        (self.at.as_micros() << 1) | u64::from(self.follows_clock)
    }

    fn from_word(word: u64) -> Self {
        Self { at: Timestamp::from_micros(word >> 1), follows_clock: word & 1 == 1 }
    }
}

/// The virtual clock: written by the control tick, read by every request.
pub(crate) struct VirtualClock(AtomicU64);

impl VirtualClock {
    pub(crate) fn new(value: VirtualTime) -> Self {
        Self(AtomicU64::new(value.to_word()))
    }

    pub(crate) fn set(&self, value: VirtualTime) {
        self.0.store(value.to_word(), Ordering::Release);
    }

    pub(crate) fn value(&self) -> VirtualTime {
        VirtualTime::from_word(self.0.load(Ordering::Acquire))
    }

    /// Stops the clock if it follows the wall clock.
    pub(crate) fn stop(&self, now: Timestamp) {
        let seen = self.value();
        if seen.follows_clock {
            let stopped = VirtualTime { at: seen.at.max(now), follows_clock: false };
            // If another thread has set it meanwhile, its value is as good.
            _ = self.0.compare_exchange(
                seen.to_word(),
                stopped.to_word(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }

    /// The instant of the schedule that is being admitted at `now`.
    pub(crate) fn at(&self, now: Timestamp) -> Timestamp {
        let value = self.value();
        if value.follows_clock { value.at.max(now) } else { value.at }
    }
}

/// Work to admit, as a multiple of the capacity. `backlog_s` is the backlog and `mean_cost_s` the average
/// visitor, both as seconds of work at capacity.
pub(crate) fn pace(backlog_s: f64, mean_cost_s: f64) -> f64 {
    let gain = GAIN / (1.0 + mean_cost_s);
    (1.0 + gain * (target_s(mean_cost_s) - backlog_s)).clamp(0.0, MAX_PACE)
}

/// Backlog aimed at, in seconds of work at capacity.
pub(crate) fn target_s(mean_cost_s: f64) -> f64 {
    TARGET_S + mean_cost_s / 2.0
}

/// How far the schedule can be admitted with a given amount of work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Advance {
    /// The instant up to which it can be admitted.
    pub(crate) at: Timestamp,
    /// Work left over, in hundredths.
    pub(crate) left: f64,
}

/// Moves from `from` towards `until`, over at most `work` hundredths of promises. `promised` returns what a
/// second holds. Seconds without promises cost nothing, but are not entered without any work to give.
pub(crate) fn advance(
    from: Timestamp,
    until: Timestamp,
    mut work: f64,
    promised: impl Fn(u64) -> SlotWork,
) -> Advance {
    let mut at = from;
    while at < until && work > 0.0 {
        let end = Timestamp::from_secs(at.second() + 1).min(until);
        let slot = promised(at.second());
        let start = slot.before(at) as f64;
        let stop = if end.second() == at.second() { slot.before(end) } else { slot.density };
        let here = stop.min(slot.cost) as f64 - start;
        if here <= work {
            work -= here.max(0.0);
            at = end;
        } else {
            let us = (work * 1e6 / slot.density as f64).round() as u64;
            return Advance { at: Timestamp::from_micros(at.as_micros() + us).min(end), left: 0.0 };
        }
    }
    Advance { at, left: work }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_time_fits_one_word() {
        for follows_clock in [false, true] {
            let time = VirtualTime { at: Timestamp::from_micros((1 << 63) - 1), follows_clock };
            assert_eq!(VirtualTime::from_word(time.to_word()), time);
        }
    }

    #[test]
    fn it_stops_once_where_it_is() {
        let start = Timestamp::from_secs(100);
        let clock = VirtualClock::new(VirtualTime { at: start, follows_clock: true });
        assert_eq!(clock.at(Timestamp::from_secs(99)), start);
        assert_eq!(clock.at(Timestamp::from_secs(101)), Timestamp::from_secs(101));
        clock.stop(Timestamp::from_secs(102));
        clock.stop(Timestamp::from_secs(103));
        assert_eq!(clock.at(Timestamp::from_secs(104)), Timestamp::from_secs(102));
    }

    #[test]
    fn it_moves_with_the_work() {
        // Seconds from 10 on hold, in hundredths, at a density of at least 1,000.
        let costs = [1_000, 1_000, 0, 0, 2_000, 500];
        let promised = |second: u64| {
            let cost = costs.get(second.wrapping_sub(10) as usize).copied().unwrap_or(0);
            SlotWork { cost, density: cost.max(1_000) }
        };
        // (from ms, until ms, work, expected ms)
        let table = [
            (10_000, 16_000, 0.0, 10_000),
            (10_000, 16_000, 500.0, 10_500),
            (10_000, 10_400, 500.0, 10_400),
            (10_500, 16_000, 1_000.0, 11_500),
            (10_000, 16_000, 2_000.1, 14_000),
            (10_000, 16_000, 3_000.0, 14_500),
            (10_000, 16_000, 4_250.0, 15_250),
            (10_000, 16_000, 9_999.0, 16_000),
            (12_000, 14_000, 0.1, 14_000),
            (16_000, 15_000, 100.0, 16_000),
        ];
        for (from, until, work, expected) in table {
            let Advance { at, left } =
                advance(Timestamp::from_millis(from), Timestamp::from_millis(until), work, promised);
            assert_eq!(at.as_millis(), expected, "from {from} until {until} with {work}");
            assert!(at.as_millis() >= until || left == 0.0, "{left} of {work} is left at {at:?}");
        }
    }

    #[test]
    fn the_pace_falls_with_the_backlog() {
        for (backlog_s, mean_cost_s, expected) in [
            (0.05, 0.0, 1.0),
            (-0.2, 0.0, 1.175),
            (1.05, 0.0, 0.3),
            (1.6, 0.0, 0.0),
            (-100.0, 0.0, 4.0),
            (1.05, 2.0, 1.0),
        ] {
            let pace = pace(backlog_s, mean_cost_s);
            assert!((pace - expected).abs() < 1e-9, "{backlog_s} {mean_cost_s}: {pace}");
        }
    }
}
