//! Which waiting visitors came in their turn: promised and redeemed work by second of the schedule.
//!
//! **No-shows.** Some time after the virtual clock has passed a second (`judging.rs`), it is judged: what was
//! redeemed of its promises goes into the show-up ratio (`show_up.rs`). Work redeemed later is added when it
//! comes.
//!
//! **Expected** is the work of visitors whose pages ask (`presence.rs`), and of all others the share that is
//! learned when their seconds are judged, for those who have just arrived and for those of whom nothing is
//! heard:
//!
//! ```text
//! expected  =  asking  +  show-up ratio * arriving  +  silent ratio * (promised - asking - arriving)
//! ```
//!
//! It is known for each part of the schedule, where the show-up ratio is that of those whose turn has come.
//! The ratio is used unless more are expected: too short a wait is worse than too long a one, and what is
//! known of the silent is of those whose turn has come.
//!
//! **In transit** is work that was admitted and has not come, though it is expected to: its turn is now or
//! past, but the visitor has not asked since.
//!
//! ```text
//! P  =  share expected * promises admitted  -  what of them was redeemed
//! ```
//!
//! over the seconds of the schedule from the first that is not judged to the virtual clock. A visitor whose
//! wait is announced now waits for all of it, too. With pages that ask every second `P` is half a second's
//! work. But visitors who sleep until the instant that was announced first, as RFC 9110's Retry-After has it,
//! do not see that the virtual clock went ahead meanwhile, and for as long as they stay away it goes on to
//! others: `P` is then as much as the virtual clock is ahead of the wall clock, tens of seconds of work that
//! a wait counted from the virtual clock on would leave out.
//!
//! Summed up before it is compared: second by second, work that came beyond the ratio would be lost, and `P`
//! be too much. Where the gate has a queue, `queue_pacer.rs` has its own account of it.

use super::presence::{Presence, PresentWork};
use super::show_up::ShowUps;
use crate::ring::{Ring, SlotLoad};
use crate::slots::SlotWork;
use crate::sync::{Atomic, AtomicF64, AtomicU64, Ordering};
use crate::units::{Cost, Rate, Timestamp};

/// What is expected of those who wait counts where it is more than the learned ratio by this. The ratio is
/// smoother, and waits that sway by a few percent have visitors come late: where a fifth leave and the others
/// come by whole seconds, the origin is sent 0.5 to 1 % less without it.
const SAME_SHARE: f64 = 0.05;

pub(super) struct Attendance {
    /// Promised to visitors who wait, by slot second; without those who entered at once.
    promised: Ring,
    /// Redeemed of it, by slot second.
    redeemed: Ring,
    /// Redeemed after its second was judged, since the last tick.
    redeemed_late: Atomic<Cost>,
    /// Which of the visitors who wait are still there.
    pub(super) presence: Presence,
    /// Seconds before this one have been judged.
    judged: AtomicU64,
    /// Share of promised work that comes, as learned, and its upper estimate for announced waits.
    pub(super) show_up: AtomicF64,
    pub(super) show_up_upper: AtomicF64,
    /// Upper estimate of the share that comes of work whose visitors are not heard of.
    silent_upper: AtomicF64,
    /// Work of visitors whose turn has come and who have not: all of them, or where the gate has a queue
    /// those who were asked to come again.
    pub(super) in_transit: Atomic<Cost>,
}

impl Attendance {
    pub(super) fn new(seconds: u64, now: Timestamp) -> Self {
        Self {
            promised: Ring::new(seconds, now.second()),
            redeemed: Ring::new(seconds, now.second()),
            redeemed_late: Atomic::new(Cost::ZERO),
            presence: Presence::new(seconds, now),
            judged: AtomicU64::new(now.second()),
            show_up: AtomicF64::new(1.0),
            show_up_upper: AtomicF64::new(1.0),
            silent_upper: AtomicF64::new(1.0),
            in_transit: Atomic::new(Cost::ZERO),
        }
    }

    /// A visitor is given a ticket that is due in `second`.
    pub(super) fn promise(&self, second: u64, cost: Cost) {
        self.promised.add(second, SlotLoad { visitors: 1, cost });
    }

    /// Promised work of `second` was redeemed.
    pub(super) fn redeem(&self, second: u64, cost: Cost) {
        if second < self.judged() {
            self.redeemed_late.add(cost);
        } else {
            self.redeemed.add(second, SlotLoad { visitors: 1, cost });
        }
    }

    pub(super) fn promised(&self, second: u64) -> SlotLoad {
        self.promised.load(second)
    }

    pub(super) fn redeemed(&self, second: u64) -> SlotLoad {
        self.redeemed.load(second)
    }

    pub(super) fn judged(&self) -> u64 {
        self.judged.load(Ordering::Acquire)
    }

    pub(super) fn judge(&self, until: u64, show_ups: &mut ShowUps, capacity: Rate) {
        let from = self.judged();
        let until = until.max(from);
        self.judged.store(until, Ordering::Release);
        for second in from.max(until.saturating_sub(self.promised.len()))..until {
            let promised = self.promised(second).cost;
            let shown = self.redeemed(second).cost.min(promised).units();
            let promised = promised.units();
            let present = self.presence.work(second, second + 1, promised);
            show_ups.record(promised, present, shown, capacity);
        }
        show_ups.record_late(self.redeemed_late.take().units(), capacity);
    }

    pub(super) fn publish(&self, show_ups: &ShowUps, capacity: Rate, mean_cost: Cost) {
        self.show_up.store(show_ups.of_all.ratio(capacity));
        self.show_up_upper.store(show_ups.of_all.upper_ratio(capacity, mean_cost));
        self.silent_upper.store(show_ups.silent_ratio(capacity, mean_cost));
    }

    /// Share that is expected to come of the work promised for the seconds `from..=last`.
    pub(super) fn expected_share(&self, from: u64, last: u64) -> f64 {
        let show_up = self.show_up_upper.load();
        let promised = self.promised.sum(from, last + 1).cost.units();
        if promised == 0.0 {
            return show_up;
        }
        let PresentWork { arriving, asking } = self.presence.work(from, last + 1, promised);
        let silent = promised - asking - arriving;
        let expected = (asking + show_up * arriving + self.silent_upper.load() * silent) / promised;
        show_up.max(expected - SAME_SHARE)
    }

    /// Computes the work in transit. The virtual clock is at `clock_at`, in a second that holds `slot`.
    pub(super) fn update_in_transit(&self, clock_at: Timestamp, slot: SlotWork) {
        let (first, last) = (self.judged(), clock_at.second());
        let in_transit = if last < first {
            0.0
        } else {
            let (whole, redeemed) = (self.promised.sum(first, last), self.redeemed.sum(first, last + 1));
            // Of the clock's own second, the part before the clock has been admitted. Visitors who wait come
            // last in it, after expired time, charges for the dear and those who entered at once.
            let to_come = slot.cost.saturating_sub(slot.before(clock_at));
            let part = self.promised(last).cost.saturating_sub(Cost::from_hundredths(to_come)).units();
            (self.expected_share(first, last) * (whole.cost.units() + part) - redeemed.cost.units()).max(0.0)
        };
        self.in_transit.store(Cost::from_hundredths((in_transit * 100.0) as u64));
    }

    /// Visitors in transit, or absent from seconds that are not judged yet.
    pub(super) fn visitors_in_transit(&self, clock_at: Timestamp) -> u64 {
        let (first, end) = (self.judged(), clock_at.second() + 1);
        let (promised, redeemed) = (self.promised.sum(first, end), self.redeemed.sum(first, end));
        promised.visitors.saturating_sub(redeemed.visitors)
    }

    /// Visitors of whole seconds after `clock_at` who have not come before their turn.
    pub(super) fn waiting(&self, clock_at: Timestamp, last_due: Timestamp) -> u64 {
        (clock_at.second() + 1..=last_due.second())
            .map(|second| self.promised(second).visitors.saturating_sub(self.redeemed(second).visitors))
            .sum()
    }

    /// Cost of the average visitor due from `from` to `last_due`, in hundredths.
    pub(super) fn mean_cost_waiting(&self, from: Timestamp, last_due: Timestamp) -> f64 {
        match self.promised.sum(from.second(), last_due.second() + 1) {
            SlotLoad { visitors: 0, .. } => Cost::ONE.hundredths() as f64,
            SlotLoad { visitors, cost } => cost.hundredths() as f64 / visitors as f64,
        }
    }

    pub(super) fn restore(&self, second: u64, promised: SlotLoad, redeemed: Cost) {
        self.promised.add(second, promised);
        self.redeemed.add(second, SlotLoad { visitors: 0, cost: redeemed });
    }

    pub(super) fn restore_judged(&self, second: u64) {
        self.judged.store(second, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);

    /// Ten visitors due in each of the seconds from the start on.
    fn attendance(seconds: u64) -> Attendance {
        let attendance = Attendance::new(64, START);
        for second in 0..seconds {
            (0..10).for_each(|_| attendance.promise(START.second() + second, Cost::ONE));
        }
        attendance
    }

    fn slot(cost: u64) -> SlotWork {
        SlotWork { cost, density: 1_000 }
    }

    #[test]
    fn seconds_are_judged_once_and_the_late_count_when_they_come() {
        let (attendance, mut show_ups) = (attendance(9), ShowUps::default());
        let capacity = Rate::per_second(10.0).unwrap_or_default();
        (0..5).for_each(|_| attendance.redeem(START.second(), Cost::ONE));
        // More than was promised to those who wait.
        (0..12).for_each(|_| attendance.redeem(START.second() + 1, Cost::ONE));
        attendance.judge(START.second() + 2, &mut show_ups, capacity);
        assert_eq!((show_ups.of_all.average().over, show_ups.of_all.average().sum), (20.0, 15.0));
        attendance.judge(START.second(), &mut show_ups, capacity);
        assert_eq!((attendance.judged(), show_ups.of_all.average().over), (START.second() + 2, 20.0));
        attendance.redeem(START.second(), Cost::ONE);
        attendance.judge(0, &mut show_ups, capacity);
        assert_eq!((show_ups.of_all.average().over, show_ups.of_all.average().sum), (20.0, 16.0));
    }

    #[test]
    fn admitted_visitors_who_have_not_come_are_in_transit() {
        let attendance = attendance(9);
        let in_transit = |half_seconds: u32| {
            let clock_at = START + Duration::from_millis(500) * half_seconds;
            attendance.update_in_transit(clock_at, slot(1_000));
            (attendance.in_transit.load(), attendance.visitors_in_transit(clock_at))
        };
        assert_eq!(in_transit(3), (Cost::from_hundredths(1_500), 20));
        (0..5).for_each(|_| attendance.redeem(START.second(), Cost::ONE));
        assert_eq!(in_transit(3), (Cost::from_hundredths(1_000), 15));
        // They have come, some of them before their turn.
        (0..15).for_each(|_| attendance.redeem(START.second() + 1, Cost::ONE));
        assert_eq!(in_transit(3), (Cost::ZERO, 0));
        // What is judged is not in transit.
        attendance.judge(START.second() + 4, &mut ShowUps::default(), Rate::ZERO);
        assert_eq!(in_transit(4), (Cost::ZERO, 0));
    }

    #[test]
    fn the_waiting_are_those_after_the_virtual_clock() {
        let attendance = attendance(9);
        let last = START + Duration::from_secs(8);
        assert_eq!(attendance.waiting(START, last), 80);
        attendance.redeem(START.second() + 5, Cost::ONE);
        assert_eq!(attendance.waiting(START, last), 79);
        assert_eq!(attendance.mean_cost_waiting(START, last), 100.0);
        attendance.promise(START.second() + 8, Cost::from_hundredths(1_010));
        assert_eq!(attendance.mean_cost_waiting(last, last), 2_010.0 / 11.0);
        assert_eq!(attendance.mean_cost_waiting(last + Duration::from_secs(9), last), 100.0, "no one waits");
    }
}
