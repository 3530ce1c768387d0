//! The schedule's hand: the instant of the promised schedule that is being admitted.
//!
//! WebQ's schedule runs on the wall clock: whoever is promised second `s` is let in at `s`, also when the origin has
//! become slower, and when visitors stay away the origin idles. This schedule runs on work. The hand `V` moves over the
//! promised seconds as fast as the origin can take what lies there, and a visitor's turn has come when `V` reaches
//! the ticket's due instant:
//!
//! ```text
//! work called in dt  =  (C - A) * dt * clamp(1 + g * (target - max(B, Q) / C), 0, 4)  /  show-up ratio
//! ```
//!
//! * `A` work per second admitted past the schedule (sessions by their pass), as measured.
//! * `B` virtual backlog: work admitted minus what capacity C has done since, never below minus one burst.
//! * `Q` work queued for the origin; `target` 50 ms, plus half an average visitor, since work comes in whole visitors.
//! * `g` 0.7/s, less where one visitor takes long: the loop cannot be faster than its grain.
//!
//! That is the law where a rate governs. Where an estimator governs by the in-flight limit, the queue at the gate is the truth
//! and B is not asked: the hand keeps a short queue there, with the work already called taken into account (`room/window.rs`):
//!
//! ```text
//! work called per second  =  (z - A + (Q* - Q + (z - A) * 0.5 s - P) / 1 s)  /  show-up ratio,      z = k * F
//! ```
//!
//! * `F` work per second that leaves the queue, as measured; `k` about 1, set right by the queue.
//! * `P` work called that is still on its way; `Q*` 0.1 s of work and a deviation of the number that comes in a second.
//!
//! The capacity C is then for places and waits only; the operator's ceiling bounds the hand by the first law.
//!
//! What follows without touching a ticket: capacity falls -> V slows, everybody keeps the order, nobody is refused
//! (re-slotting with seniority); no-shows, spare origin or more capacity -> V speeds up, and those of the waiting who
//! ask next are pulled forward, in order. V never goes back and never passes the last promise. Stretches where nothing is
//! promised cost no work, so V skips them. With nobody waiting V follows the clock.
//!
//! Rejected: dV/dt = clamp(C / L, 0, 4) per second of schedule. It idles in sparse stretches (a schedule made at a
//! tenth of today's capacity could only run four times as fast); budgeting work is the same law where L > 0 and needs
//! no limit. Rejected: new tickets at every change (a ticket in a closed laptop cannot be changed).

use std::time::Duration;

use crate::slots::position_to_work;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Cost, Rate, Timestamp};

/// Backlog aimed at, in seconds: enough that the origin never starves between two ticks.
pub(crate) const TARGET_S: f64 = 0.05;
/// Gain per second of backlog error: below 1 over the second or so that a called visitor needs to come.
const GAIN: f64 = 0.7;
/// Most work admitted, as a multiple of capacity.
const MAX_PACE: f64 = 4.0;

/// Where the hand stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HandValue {
    /// Instant of the schedule that is being admitted.
    pub at: Timestamp,
    /// Nobody waits: the hand moves with the clock.
    pub follows_clock: bool,
}

/// The hand: written by the control tick, read by every request.
pub(crate) struct Hand(AtomicU64);

impl Hand {
    pub(crate) fn new(value: HandValue) -> Self {
        Self(AtomicU64::new(pack(value)))
    }

    pub(crate) fn set(&self, value: HandValue) {
        self.0.store(pack(value), Ordering::Release);
    }

    pub(crate) fn value(&self) -> HandValue {
        let word = self.0.load(Ordering::Acquire);
        HandValue { at: Timestamp::from_micros(word >> 1), follows_clock: word & 1 == 1 }
    }

    /// Stands still from now on, if it went with the clock.
    pub(crate) fn stop(&self, now: Timestamp) {
        let seen = self.value();
        if seen.follows_clock {
            let stopped = HandValue { at: seen.at.max(now), follows_clock: false };
            // Whoever else has set it meanwhile knows as much.
            _ = self.0.compare_exchange(pack(seen), pack(stopped), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Where it stands at `now`.
    pub(crate) fn at(&self, now: Timestamp) -> Timestamp {
        let value = self.value();
        if value.follows_clock { value.at.max(now) } else { value.at }
    }
}

fn pack(value: HandValue) -> u64 {
    (value.at.as_micros() << 1) | u64::from(value.follows_clock)
}

/// Work to admit, as a multiple of capacity. `backlog_s` is the backlog and `grain_s` the average visitor, both as
/// seconds of work at capacity.
pub(crate) fn pace(backlog_s: f64, grain_s: f64) -> f64 {
    let gain = GAIN / (1.0 + grain_s);
    (1.0 + gain * (target_s(grain_s) - backlog_s)).clamp(0.0, MAX_PACE)
}

/// Backlog aimed at, in seconds.
pub(crate) fn target_s(grain_s: f64) -> f64 {
    TARGET_S + grain_s / 2.0
}

/// Moves from `from` towards `until`, over at most `work` hundredths of promises. `cell` tells what a second holds and how
/// densely, in hundredths. Stretches without promises are free, but not if there is no work to give at all. Also returns the
/// work that is left over.
pub(crate) fn advance(
    from: Timestamp,
    until: Timestamp,
    mut work: f64,
    cell: impl Fn(u64) -> (u64, u64),
) -> (Timestamp, f64) {
    let mut at = from;
    while at < until && work > 0.0 {
        let end = Timestamp::from_secs(at.second() + 1).min(until);
        let (cost, density) = cell(at.second());
        let start = position_to_work(at, density) as f64;
        let stop = if end.second() == at.second() { position_to_work(end, density) } else { density };
        let here = stop.min(cost) as f64 - start;
        if here <= work {
            work -= here.max(0.0);
            at = end;
        } else {
            let us = (work * 1e6 / density as f64).round() as u64;
            return (Timestamp::from_micros(at.as_micros() + us).min(end), 0.0);
        }
    }
    (at, work)
}

/// Work admitted but not yet done by an origin of the given capacity, as the instant when it will be done (GCRA's
/// theoretical arrival time): admitting is one addition, and the clock takes the work off.
pub(crate) struct Backlog {
    clear_ns: AtomicU64,
}

impl Backlog {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { clear_ns: AtomicU64::new(now.as_micros() * 1_000) }
    }

    pub(crate) fn add(&self, cost: Cost, capacity: Rate) {
        if capacity > Rate::ZERO {
            let ns = cost.units() / capacity.get() * 1e9;
            self.clear_ns.fetch_add(ns as u64, Ordering::Relaxed);
        }
    }

    /// Takes back what [`Backlog::add`] added: the work will not come.
    pub(crate) fn remove(&self, cost: Cost, capacity: Rate) {
        if capacity > Rate::ZERO {
            let ns = cost.units() / capacity.get() * 1e9;
            self.clear_ns.fetch_sub(ns as u64, Ordering::Relaxed);
        }
    }

    /// No more than `most` at capacity is believed, whatever was added.
    pub(crate) fn ceil(&self, now: Timestamp, most: Duration) {
        let most = (now + most).as_micros().saturating_mul(1_000);
        self.clear_ns.fetch_min(most, Ordering::Relaxed);
    }

    /// In seconds at capacity; negative if the origin had time to spare.
    pub(crate) fn seconds(&self, now: Timestamp) -> f64 {
        let clear = self.clear_ns.load(Ordering::Relaxed) as i64;
        (clear - (now.as_micros() * 1_000) as i64) as f64 / 1e9
    }

    /// Forgets spare time beyond `burst_s`: an origin cannot work in advance. Returns the seconds forgotten.
    pub(crate) fn floor(&self, now: Timestamp, burst_s: f64) -> f64 {
        let floor = (now.as_micros() * 1_000).saturating_sub((burst_s * 1e9) as u64);
        let clear = self.clear_ns.fetch_max(floor, Ordering::Relaxed);
        floor.saturating_sub(clear) as f64 / 1e9
    }

    /// The same work at another capacity.
    pub(crate) fn rescale(&self, now: Timestamp, from: Rate, to: Rate) {
        let ratio = if to > Rate::ZERO && from > Rate::ZERO { from.get() / to.get() } else { 0.0 };
        let seconds = (self.seconds(now) * ratio).clamp(-1.0, 3_600.0);
        let clear = (now.as_micros() * 1_000) as i64 + (seconds * 1e9) as i64;
        self.clear_ns.store(clear.max(0) as u64, Ordering::Relaxed);
    }
}

/// Spare time that tokengen's backlog has forgotten since tokencheck last reported (two-process form).
///
/// While reports are lost, tokengen sees nothing admitted and takes the origin for idle. The report that comes in the end
/// tells of work that the origin did in that very time: booked as if admitted this instant, `n` seconds without reports
/// would hold the hand for `n` seconds. Reports of one interval `d` each would have left, for work `w` admitted evenly over
/// `over`, what this books:
///
/// ```text
/// max(w - the spare work forgotten, in over - d at most,  w * d / over)
/// ```
///
/// The first is a backlog that stood all the time, the second an origin that was idle between any two reports. A report of
/// one interval is booked whole. Rejected: `w - C * (over - d)`, which takes the time off a second time where a backlog from
/// before the loss has used it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Spare {
    units: f64,
    seconds: f64,
    /// Whether there was a report before. The time before the first is not in the sums above: this process may have just
    /// started, in front of an origin that has been at work all along.
    is_measured: bool,
}

impl Spare {
    /// The backlog has forgotten `seconds` at `capacity`.
    pub(crate) fn forgot(&mut self, seconds: f64, capacity: Rate) {
        self.seconds += seconds;
        self.units += seconds * capacity.get();
    }

    /// What to book of work that was admitted over `over` and is reported now. `interval`: what a report covers that follows
    /// upon another.
    pub(crate) fn book(
        &mut self,
        admitted: Cost,
        over: Duration,
        interval: Duration,
        capacity: Rate,
    ) -> Cost {
        let spare = std::mem::replace(self, Self { is_measured: true, ..Self::default() });
        if over <= interval {
            return admitted;
        }
        let missed_s = (over - interval).as_secs_f64();
        let done = if !spare.is_measured {
            capacity.get() * missed_s
        } else if spare.seconds > missed_s {
            spare.units * missed_s / spare.seconds
        } else {
            spare.units
        };
        let units = admitted.units();
        let last = units * interval.as_secs_f64() / over.as_secs_f64();
        Cost::from_hundredths(((units - done).max(last) * 100.0).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hand_moves_with_the_work() {
        // Seconds 10.. hold, in hundredths, at a density of at least 1,000.
        let loads = [1_000, 1_000, 0, 0, 2_000, 500];
        let cell = |second: u64| {
            let load = loads.get(second.wrapping_sub(10) as usize).copied().unwrap_or(0);
            (load, load.max(1_000))
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
            let (at, left) = advance(Timestamp::from_millis(from), Timestamp::from_millis(until), work, cell);
            assert_eq!(at.as_millis(), expected, "from {from} until {until} with {work}");
            assert!(at.as_millis() >= until || left == 0.0, "{left} of {work} is left at {at:?}");
        }
    }

    #[test]
    fn the_pace_falls_with_the_backlog() {
        for (backlog_s, grain_s, expected) in [
            (0.05, 0.0, 1.0),
            (-0.2, 0.0, 1.175),
            (1.05, 0.0, 0.3),
            (1.6, 0.0, 0.0),
            (-100.0, 0.0, 4.0),
            (1.05, 2.0, 1.0),
        ] {
            let pace = pace(backlog_s, grain_s);
            assert!((pace - expected).abs() < 1e-9, "{backlog_s} {grain_s}: {pace}");
        }
    }

    #[test]
    fn what_the_origin_did_while_reports_were_lost_is_not_booked() {
        let interval = Duration::from_millis(500);
        // Capacity 100/s. (admitted, over ms, spare seconds forgotten, booked)
        let table = [
            (50, 500, 9.0, 50),
            (50, 0, 9.0, 50),
            (5_000, 500, 9.0, 5_000),
            // At capacity, and from a backlog that lasted half the time; all of it.
            (1_000, 10_000, 9.5, 50),
            (1_000, 10_000, 5.0, 500),
            (1_000, 10_000, 0.0, 1_000),
            // More than the capacity: what is beyond it; less: the last interval's part.
            (1_500, 10_000, 9.5, 550),
            (400, 10_000, 9.5, 20),
            (0, 10_000, 9.5, 0),
            // A report of less time than this room heard nothing of: no more than its own.
            (400, 2_000, 50.0, 250),
            // A sender's clock that is beyond belief: no more than was forgotten here.
            (5_000, u64::MAX, 9.5, 4_050),
        ];
        let capacity = Rate::per_second(100.0).unwrap_or_default();
        for (admitted, over_ms, seconds, expected) in table {
            let mut spare = Spare { is_measured: true, ..Spare::default() };
            spare.forgot(seconds, capacity);
            let over = Duration::from_millis(over_ms);
            let booked = spare.book(Cost::from_hundredths(admitted * 100), over, interval, capacity);
            assert_eq!(booked, Cost::from_hundredths(expected * 100), "{admitted} over {over_ms} ms");
            let again = spare.book(Cost::ONE, Duration::from_secs(60), interval, capacity);
            assert_eq!(again, Cost::ONE, "spare time is used once");
        }
        let first = Spare::default().book(capacity.over(over(20)), over(20), interval, capacity);
        assert_eq!(first, capacity.over(interval), "a tokengen that has just started");
        let closed = Spare::default().book(Cost::ONE, over(20), interval, Rate::ZERO);
        assert_eq!(closed, Cost::ONE);
    }

    fn over(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }
}
