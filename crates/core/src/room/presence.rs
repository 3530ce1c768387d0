//! Which waiting visitors are still there: those whose page has asked lately and is about to ask again.
//!
//! Whoever leaves stops asking. So every answer to a waiting page says until when the page will have asked
//! again, and until then its visitor counts as present in the second of the schedule that its ticket is due
//! in. This sees who has left long before the turn comes, and where: after a crowd of which half left within
//! seconds come visitors of whom all stay, and a share learned from those whose turn came would be wrong for
//! all who wait behind them.
//!
//! Most who leave do so at once. So visitors who have arrived and not asked since are kept apart until their
//! page should have asked: of them the share comes that came of all so far.
//!
//! The room keeps nothing per visitor: a few words per second of the schedule, and the ends of the intervals,
//! summed by the tenth of a second they end in. Whole seconds are too coarse: before their turn pages ask
//! every second, and half of them would be missing at one moment and counted twice at the next. An end is
//! rounded up, for the way to the gateway.
//!
//! It is an estimate. Programs that sleep until their turn ask nothing, browsers slow down the timers of
//! pages in the background, and a page that asks twice counts twice. What visitors who are not heard of are
//! worth is learned (`attendance.rs`).

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::ring::{Ring, SlotLoad};
use crate::sync::{AtomicU64, Ordering, lock};
use crate::ticket::Ticket;
use crate::units::Timestamp;

const TENTH: u64 = 100_000;
/// Tenths of a second ahead in which intervals may end; longer intervals are cut. Pages ask at least every
/// 20 s unless very many wait: a million visitors ask every three minutes.
const ENDS: u64 = 2_048;

/// Tenths of a second since the epoch.
fn tenth(at: Timestamp) -> u64 {
    at.as_micros() / TENTH
}

/// Who is there, by the second their tickets are due in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Heard {
    /// Has just been told to wait.
    Arriving,
    /// Has asked again since.
    Asking,
}

/// Visitors whose interval ends at one time, with the second their tickets are due in.
type Ends = HashMap<(Heard, u64), SlotLoad>;

pub(super) struct Presence {
    arriving: Ring,
    asking: Ring,
    /// By the tenth of a second in which the interval ends.
    ends: Box<[Mutex<Ends>]>,
    /// Intervals that end before this tenth of a second have been taken off.
    ended_until: AtomicU64,
    /// Visitors due in this second were let in at the last tick. Seconds up to it are no longer changed:
    /// their visitors come instead of asking.
    passed: AtomicU64,
}

/// Work of present visitors, in cost units.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct PresentWork {
    pub(super) arriving: f64,
    pub(super) asking: f64,
}

impl Presence {
    pub(super) fn new(seconds: u64, now: Timestamp) -> Self {
        Self {
            arriving: Ring::new(seconds, now.second()),
            asking: Ring::new(seconds, now.second()),
            ends: (0..ENDS).map(|_| Mutex::default()).collect(),
            ended_until: AtomicU64::new(tenth(now)),
            passed: AtomicU64::new(now.second()),
        }
    }

    fn ring(&self, heard: Heard) -> &Ring {
        match heard {
            Heard::Arriving => &self.arriving,
            Heard::Asking => &self.asking,
        }
    }

    /// The page with this ticket asks again `after` from now.
    pub(super) fn expect(&self, ticket: &Ticket, heard: Heard, after: Duration, now: Timestamp) {
        let second = ticket.due().second();
        let end = (tenth(now + after) + 1).min(tenth(now) + ENDS - 1);
        let mut ends = lock(&self.ends[(end % ENDS) as usize]);
        // Read with the lock held: what comes after the tick has taken the ends would stay for a round.
        let has_ended = end < self.ended_until.load(Ordering::Acquire);
        if has_ended || second <= self.passed.load(Ordering::Acquire) {
            return;
        }
        let visitor = SlotLoad { visitors: 1, cost: ticket.cost };
        let sum = ends.entry((heard, second)).or_default();
        *sum = SlotLoad { visitors: sum.visitors + visitor.visitors, cost: sum.cost + visitor.cost };
        self.ring(heard).add(second, visitor);
    }

    /// On a tick, when visitors due at `let_in` may come: takes off what has ended.
    pub(super) fn tick(&self, let_in: Timestamp, now: Timestamp) {
        let until = tenth(now) + 1;
        let from = self.ended_until.fetch_max(until, Ordering::AcqRel);
        let passed = self.passed.load(Ordering::Acquire);
        for end in from..until.min(from.saturating_add(ENDS)) {
            let ended = std::mem::take(&mut *lock(&self.ends[(end % ENDS) as usize]));
            for ((heard, second), ended) in ended.into_iter().filter(|((_, second), _)| *second > passed) {
                self.ring(heard).update(second, |load| {
                    let visitors = load.visitors.saturating_sub(ended.visitors);
                    Some((SlotLoad { visitors, cost: load.cost.saturating_sub(ended.cost) }, ()))
                });
            }
        }
        self.passed.store(let_in.second(), Ordering::Release);
    }

    /// Visitors of whole seconds after `clock_at`.
    pub(super) fn visitors_after(&self, clock_at: Timestamp, last_due: Timestamp) -> u64 {
        let (from, to) = (clock_at.second() + 1, last_due.second() + 1);
        self.arriving.sum(from, to).visitors + self.asking.sum(from, to).visitors
    }

    /// Of the tickets due in the seconds `from..to`, for which so much work is promised.
    pub(super) fn work(&self, from: u64, to: u64, promised: f64) -> PresentWork {
        // A page that asks twice is not two visitors.
        let asking = self.asking.sum(from, to).cost.units().min(promised);
        PresentWork { arriving: self.arriving.sum(from, to).cost.units().min(promised - asking), asking }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{ClassId, Cost};

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);
    const DUE: u64 = START.second() + 1_000;

    fn at(ms: u64) -> Timestamp {
        START + Duration::from_millis(ms)
    }

    fn ticket(nonce: u64) -> Ticket {
        let (class, cost, wait) = (ClassId(0), Cost::ONE, Duration::from_secs(DUE - START.second()));
        Ticket { class, cost, issued: START, wait, arrived: START, nonce }
    }

    /// Visitors of [`DUE`] who have asked again.
    fn asking(presence: &Presence) -> f64 {
        presence.work(DUE, DUE + 1, f64::MAX).asking
    }

    #[test]
    fn visitors_are_present_until_their_page_should_have_asked() {
        let presence = Presence::new(2_048, START);
        for after_s in [3, 3, 9, 2_000] {
            presence.expect(&ticket(0), Heard::Asking, Duration::from_secs(after_s), START);
        }
        let seen = [2_900, 3_000, 3_100, 9_000, 9_100, 204_600, 204_700].map(|ms| {
            presence.tick(START, at(ms));
            asking(&presence)
        });
        assert_eq!(seen, [4.0, 4.0, 2.0, 2.0, 1.0, 1.0, 0.0], "the longest interval is cut");
    }

    #[test]
    fn pages_that_ask_often_count_once() {
        for interval_ms in [300, 1_000, 2_500, 20_000] {
            let presence = Presence::new(2_048, START);
            let interval = Duration::from_millis(interval_ms);
            let (mut sum, mut looks) = (0.0, 0.0);
            for ms in (0..60_000).step_by(10) {
                if ms % 100 == 0 {
                    presence.tick(START, at(ms));
                }
                for _ in (0..1_000).filter(|visitor| (ms + visitor * 370) % interval_ms < 10) {
                    presence.expect(&ticket(0), Heard::Asking, interval, at(ms));
                }
                if ms >= 20_000 {
                    (sum, looks) = (sum + asking(&presence), looks + 1.0);
                }
            }
            // An end is rounded up to a tenth of a second.
            let too_long_ms = (sum / looks / 1_000.0 - 1.0) * interval_ms as f64;
            assert!(
                (0.0..=100.0).contains(&too_long_ms),
                "every {interval_ms} ms: {too_long_ms} ms too long"
            );
        }
    }

    #[test]
    fn seconds_that_the_virtual_clock_has_passed_stay_as_they_were() {
        let presence = Presence::new(2_048, START);
        let expect = |now| presence.expect(&ticket(0), Heard::Asking, Duration::from_secs(5), now);
        expect(START);
        presence.tick(Timestamp::from_secs(DUE), at(1_000));
        expect(at(1_000));
        presence.tick(Timestamp::from_secs(DUE), at(20_000));
        assert_eq!(asking(&presence), 1.0);
    }

    #[test]
    fn what_is_expected_before_a_past_tick_is_not_counted() {
        let presence = Presence::new(2_048, START);
        presence.tick(START, at(9_000));
        presence.expect(&ticket(0), Heard::Asking, Duration::from_secs(5), at(1_000));
        assert_eq!(asking(&presence), 0.0);
    }

    #[test]
    fn those_who_have_just_arrived_are_apart_from_those_who_have_asked() {
        let presence = Presence::new(2_048, START);
        presence.expect(&ticket(0), Heard::Arriving, Duration::from_secs(5), START);
        presence.expect(&ticket(1), Heard::Asking, Duration::from_secs(9), START);
        let work = |promised| presence.work(DUE, DUE + 1, promised);
        assert_eq!(work(9.0), PresentWork { arriving: 1.0, asking: 1.0 });
        assert_eq!(work(1.5), PresentWork { arriving: 0.5, asking: 1.0 }, "no more than is promised");
        presence.tick(START, at(6_000));
        assert_eq!(work(9.0), PresentWork { arriving: 0.0, asking: 1.0 });
    }
}
