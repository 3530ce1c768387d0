//! The schedule as the room uses it: the slots, the last promise, and how densely seconds are promised.
//!
//! A second may be promised `capacity x overbooking`. A fall of the capacity moves newcomers behind
//! everything promised (WebQ III-D: T' + 1), and what was promised before keeps its slots. A rise goes to the
//! waiting, in order: the virtual clock speeds up, and new promises are denser from the frontier on; with
//! `rise_to_newcomers` (WebQ's rule) newcomers are placed in the near seconds instead. While no one waits
//! there is no order to keep, and the schedule is made anew.
//!
//! Where sessions are admitted, most of the capacity goes to visitors who are in. A second is then promised
//! what first requests of newcomers get of it in the long run (`bypass.rs`). Otherwise it would hold the
//! newcomers of many seconds: all of them would be due within its first part, which the virtual clock takes
//! seconds to pass, and whether they came would be known only after that. (While nobody waits it is promised
//! all of the capacity, so that a burst that the origin can take enters at once.)
//!
//! Every fall leaves a seam in the schedule. So small changes of the estimate and of the overbooking leave it
//! as it is: the waits are computed with the capacity in force.

use std::time::Duration;

use super::settings::RoomConfig;
use crate::mutants::{self, Mutant};
use crate::ring::SlotLoad;
use crate::slots::Slots;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Cost, Rate, Timestamp};
use crate::virtual_clock::{Advance, advance};

/// Capacities that differ by less leave the schedule as it is, unless the ceiling changes as well.
const CAPACITY_STEP: f64 = 0.05;
/// Overbooking is changed in steps: every change leaves a seam of one second in the schedule.
const OVERBOOK_STEP: f64 = 0.02;
/// Most cost units promised per second where session slots decide who enters: the schedule is then only an
/// order, and tickets count milliseconds.
const MAX_IN_ORDER: f64 = 1_000.0;

/// How densely seconds are promised. Known to the tick.
pub(super) struct Density {
    /// Promises per second as a multiple of the capacity.
    pub(super) overbook: f64,
    overbook_max: f64,
    rise_to_newcomers: bool,
    /// Session slots decide who enters.
    pub(super) is_order_only: bool,
    /// Part of the capacity that goes to first requests in the long run: the rest is for visitors who are in.
    pub(super) newcomers_part: f64,
}

impl Density {
    pub(super) fn new(config: &RoomConfig) -> Self {
        let RoomConfig { overbook_max, rise_to_newcomers, .. } = *config;
        Self { overbook: 1.0, overbook_max, rise_to_newcomers, is_order_only: false, newcomers_part: 1.0 }
    }

    pub(super) fn configure(&mut self, config: &RoomConfig) {
        (self.overbook_max, self.rise_to_newcomers) = (config.overbook_max, config.rise_to_newcomers);
    }

    /// Cost units per second that first requests of newcomers get of a capacity in the long run.
    pub(super) fn of_newcomers(&self, capacity: Rate) -> Rate {
        Rate::per_second(capacity.get() * self.newcomers_part).unwrap_or_default()
    }

    pub(super) fn limit(&self, capacity: Rate) -> Cost {
        let most = if self.is_order_only { MAX_IN_ORDER } else { f64::MAX };
        limit((capacity.get() * self.newcomers_part).min(most), self.overbook)
    }
}

/// Not nothing, however little that is: a second that can take nothing is a closed room.
fn limit(per_s: f64, overbook: f64) -> Cost {
    Cost::from_hundredths(((per_s * overbook * 100.0) as u64).max(1))
}

pub(super) struct Schedule {
    pub(super) slots: Slots,
    /// Due time of the last promise to a visitor who waits, in microseconds.
    last_due: AtomicU64,
}

impl Schedule {
    /// Of as many seconds as the settings ask for.
    pub(super) fn new(config: &RoomConfig, capacity: Rate, now: Timestamp) -> Self {
        let slots = Slots::new(config.schedule_s(), config.max_wait, now);
        slots.set_limit(if capacity > Rate::ZERO { limit(capacity.get(), 1.0) } else { Cost::ZERO });
        Self { slots, last_due: AtomicU64::new(0) }
    }

    pub(super) fn last_due(&self) -> Timestamp {
        Timestamp::from_micros(self.last_due.load(Ordering::Acquire))
    }

    /// A visitor waits with a ticket that is due then.
    pub(super) fn note_promise(&self, due: Timestamp) {
        self.last_due.fetch_max(due.as_micros(), Ordering::AcqRel);
    }

    /// Whether anything is promised after `clock_at`, where the virtual clock is.
    pub(super) fn has_promises_after(&self, clock_at: Timestamp) -> bool {
        self.last_due() > clock_at
    }

    /// Moves from `from` towards `until`, over at most `work` hundredths of promises.
    pub(super) fn advance(&self, from: Timestamp, until: Timestamp, work: f64) -> Advance {
        advance(from, until, work, |second| self.slots.work_of(second))
    }

    /// The end of the part of its second that a visitor of `cost` has, due at `due`, its beginning. Not in
    /// the next second, which is another one's.
    pub(super) fn end_of_part(&self, due: Timestamp, cost: Cost) -> Timestamp {
        let part = cost.units() / self.slots.limit_at_frontier().units();
        let last = Timestamp::from_millis((due.second() + 1) * 1_000 - 1);
        due.max(last.min(due + Duration::from_secs_f64(part.min(1.0))))
    }

    /// Makes the schedule for `capacity` from now on. The virtual clock is at `clock_at`.
    pub(super) fn fit(&self, density: &Density, capacity: Rate, clock_at: Timestamp, now: Timestamp) {
        let new = density.limit(capacity);
        let second = clock_at.max(now).second();
        let has_waiting = self.has_promises_after(clock_at);
        if new < self.slots.limit() {
            if !has_waiting {
                self.slots.settle(second, new);
            } else if new <= self.slots.limit_at_frontier() {
                self.slots.lower_limit(new, now.second() + self.seconds_ahead(clock_at, now, new) + 1);
            } else {
                // A rise that the frontier has not reached is taken back in part: there it is still a rise.
                self.slots.set_limit_ahead(new);
            }
        } else if density.rise_to_newcomers || !has_waiting {
            self.slots.set_limit(new);
            self.open_from(second);
        } else if !self.lower_floor(new, clock_at, now) && new > self.slots.limit() {
            self.slots.set_limit_ahead(new);
        }
    }

    /// Seconds that everything promised takes at `limit` in each.
    fn seconds_ahead(&self, clock_at: Timestamp, now: Timestamp, limit: Cost) -> u64 {
        let ahead = self.slots.ahead_of(clock_at.min(now)).cost;
        ahead.hundredths().div_ceil(limit.hundredths().max(1))
    }

    /// Session slots decide from now on who enters, where all could before: the schedule is an order of
    /// `limit` per second. The present second stays promised up to the same instant. Made for a capacity
    /// without a bound, its expired room would count as a thousand visitors per millisecond, and the virtual
    /// clock would wait for session slots for all of them.
    pub(super) fn become_order(&self, limit: Cost, clock_at: Timestamp) {
        self.slots.settle(clock_at.second(), limit);
    }

    /// Lowers a floor that keeps newcomers out for longer than what is promised takes now: it was set when
    /// less capacity was known. Returns whether it did.
    fn lower_floor(&self, new: Cost, clock_at: Timestamp, now: Timestamp) -> bool {
        // Nor before anyone who waits.
        let end = (now.second() + self.seconds_ahead(clock_at, now, new)).max(self.last_due().second()) + 1;
        let is_too_late = self.slots.floor() > end;
        if is_too_late {
            self.slots.set_limit_from(end, new);
            self.open_from(end);
        }
        is_too_late
    }

    /// Has newcomers placed from `second` on.
    fn open_from(&self, second: u64) {
        self.slots.set_floor(second);
        self.slots.reopen(second);
    }

    /// Removes the floor once no one waits for newcomers to come after. Seconds may hold `limit` then.
    pub(super) fn forget_floor(&self, limit: Cost, clock_at: Timestamp, now: Timestamp) {
        let second = now.second();
        if !self.has_promises_after(clock_at) && self.slots.floor() > second + 1 {
            self.slots.settle(second, limit);
            self.open_from(second);
        }
    }

    /// Whether the schedule is as good as made for `capacity`.
    pub(super) fn is_near(&self, density: &Density, capacity: Rate) -> bool {
        let (new, old) = (density.limit(capacity).units(), self.slots.limit().units());
        (new / old - 1.0).abs() < CAPACITY_STEP
    }

    /// Overbooks new promises as far as a share of `show_up` of them comes, within the operator's bound.
    pub(super) fn overbook(&self, density: &mut Density, show_up: f64, capacity: Rate) {
        let is_bounded = !mutants::is(Mutant::OverbookingIsUnbounded);
        let most = if is_bounded { density.overbook_max.max(1.0) } else { f64::MAX };
        let overbook = (1.0 / show_up).clamp(1.0, most);
        if (overbook / density.overbook - 1.0).abs() > OVERBOOK_STEP && capacity > Rate::ZERO {
            density.overbook = overbook;
            self.slots.set_limit_ahead(density.limit(capacity));
        }
    }

    /// Enters promises of an earlier process: all before `due`, and one of `cost` for then. They fill the
    /// schedule from `known_until` on; `enter` is told what each second got. Newcomers go behind them.
    /// Returns the end of the last one's part.
    pub(super) fn adopt(
        &self,
        known_until: Timestamp,
        due: Timestamp,
        cost: Cost,
        enter: impl FnMut(u64, SlotLoad),
    ) -> Timestamp {
        self.slots.fill(known_until, due, cost, enter);
        self.slots.raise_floor(due.second());
        self.note_promise(due);
        self.end_of_part(due, cost)
    }

    /// After the saved seconds were put back into the slots.
    pub(super) fn restore(&self, last_due: Timestamp, floor: u64) {
        self.last_due.store(last_due.as_micros(), Ordering::Release);
        self.slots.set_floor(floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn rate(per_s: f64) -> Rate {
        Rate::per_second(per_s).unwrap_or_default()
    }

    /// With `promises` of cost one from [`START`] on.
    fn schedule(config: &RoomConfig, per_s: f64, promises: u64) -> Schedule {
        let schedule = Schedule::new(config, rate(per_s), START);
        for _ in 0..promises {
            let placed = schedule.slots.take(Cost::ONE, START, START).expect("room");
            schedule.note_promise(placed.due);
        }
        schedule
    }

    fn next(schedule: &Schedule) -> u64 {
        schedule.slots.take(Cost::ONE, START, START).expect("room").second - START.second()
    }

    #[test]
    fn a_fall_moves_newcomers_behind_all_promises() {
        let config = RoomConfig::default();
        let schedule = schedule(&config, 10.0, 100);
        schedule.fit(&Density::new(&config), rate(2.0), START, START);
        assert_eq!(next(&schedule), 51, "100 promises at 2/s, and a second");
        // It was wrong: the floor is lowered, but not before anyone who waits.
        schedule.fit(&Density::new(&config), rate(10.0), START, START);
        assert_eq!(next(&schedule), 12, "101 promises at 10/s, and a second");
    }

    #[test]
    fn a_rise_goes_to_whom_the_settings_say() {
        for (rise_to_newcomers, expected) in [(true, 0), (false, 10)] {
            let config = RoomConfig { rise_to_newcomers, ..RoomConfig::default() };
            let schedule = schedule(&config, 10.0, 100);
            schedule.fit(&Density::new(&config), rate(20.0), START, START);
            assert_eq!(next(&schedule), expected, "rise_to_newcomers = {rise_to_newcomers}");
        }
    }

    #[test]
    fn a_floor_is_forgotten_once_nobody_waits() {
        let config = RoomConfig::default();
        let (schedule, density) = (schedule(&config, 10.0, 100), Density::new(&config));
        schedule.fit(&density, rate(2.0), START, START);
        schedule.forget_floor(density.limit(rate(2.0)), START, START);
        assert_eq!(schedule.slots.floor(), START.second() + 51, "they wait");
        let idle = schedule.last_due();
        schedule.forget_floor(density.limit(rate(2.0)), idle, idle);
        assert_eq!(schedule.slots.floor(), idle.second());
    }

    #[test]
    fn overbooking_is_bounded_and_changes_in_steps() {
        let config = RoomConfig::default();
        let (schedule, mut density) = (schedule(&config, 10.0, 0), Density::new(&config));
        for (show_up, expected) in [(1.0, 1.0), (0.99, 1.0), (0.8, 1.25), (0.1, 1.5), (1.0, 1.0)] {
            schedule.overbook(&mut density, show_up, rate(10.0));
            assert_eq!(density.overbook, expected, "{show_up} come");
            assert_eq!(schedule.slots.limit(), limit(10.0, expected));
        }
    }

    #[test]
    fn a_second_holds_what_newcomers_get_of_the_capacity() {
        let config = RoomConfig::default();
        let (schedule, mut density) = (schedule(&config, 10.0, 0), Density::new(&config));
        assert!(schedule.is_near(&density, rate(10.0)));
        density.newcomers_part = 0.25;
        assert!(!schedule.is_near(&density, rate(10.0)));
        schedule.fit(&density, rate(10.0), START, START);
        assert_eq!(schedule.slots.limit(), limit(2.5, 1.0));
        assert!(schedule.is_near(&density, rate(10.0)));
    }

    #[test]
    fn where_the_schedule_is_only_an_order_each_visitor_has_a_millisecond() {
        let config = RoomConfig::default();
        let mut density = Density::new(&config);
        density.is_order_only = true;
        assert_eq!(density.limit(Rate::MAX), limit(1_000.0, 1.0));
        let schedule = schedule(&config, 1_000.0, 0);
        let end = schedule.end_of_part(START, Cost::ONE);
        assert_eq!(end.since(START), Duration::from_millis(1));
        let last = START + Duration::from_micros(999_500);
        assert_eq!(schedule.end_of_part(last, Cost::ONE), last, "not in the next second");
    }
}
