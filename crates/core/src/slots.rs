//! The schedule: work promised for every second to come (WebQ III-D), lock-free.
//!
//! `L[i]` is the work promised for the second `i`, `limit` what a second can take (capacity x 1 s x
//! overbooking). A visitor of cost `k` starts in the first second with room and is due at `second + L /
//! limit`, where L is what the second held before. Work that does not fit into that second is charged to the
//! next ones, so `L[i] <= limit` always holds.
//!
//! The paper takes the smallest `i` with `L[i] < C` for requests of one size; for costs this becomes "some
//! room", not "room for all of k". Rejected: the smallest `i` with `L[i] + k <= C`. It wastes the rest of
//! every second (C = 1.9 and k = 1 promises 53 % of the origin; C = 0.3 and k = 1 nothing at all), lets a
//! cheap visitor overtake a dear one, and needs a search per cost. With work charged to the next seconds,
//! every second before the first one with room is full for every cost: one frontier makes first fit O(1)
//! amortised, and the schedule is first come, first served for all costs.
//!
//! **The frontier** is a hint: no second before it has room. Only the exact word that a search started from
//! may be moved forward. Every operation that makes room behind it raises its generation, so that no search
//! in progress hides that room.
//!
//! **Limits.** When the limit changes, the second at the frontier is half full by the old one. Read by a
//! higher limit, its next visitor would be due before the previous one; by a lower one, room that had expired
//! would pass for promised work. So a limit has the second it holds from; earlier ones keep theirs.
//!
//! A thread that read the limit just before it changed may still fill a second to the old one: `L[i]` is
//! bounded by the largest limit in force during the call. A limit of zero means closed: nothing fits.

use std::time::Duration;

use crate::mutants::{self, Mutant};
use crate::ring::{MAX_VISITORS, Ring, SlotLoad};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Cost, Timestamp};

mod limits;

use limits::Limits;

/// Seconds since the epoch fit 36 bits until the year 4147.
const SECOND_BITS: u32 = 36;
const SECOND_MASK: u64 = (1 << SECOND_BITS) - 1;
const MICROS: u64 = 1_000_000;
/// Most seconds that [`Slots::settle`] changes: beyond are only charges for the dearest visitor who entered.
const MAX_SETTLED_S: u64 = 64;

/// A slot found for a visitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    pub second: u64,
    /// Work promised for that second before this visitor, the room that had expired included.
    pub before: Cost,
    /// Visitors promised for that second before this one.
    pub visitors_before: u64,
    /// When the visitor is due: `second + before / limit`.
    pub due: Timestamp,
}

/// The work of one second, in hundredths: side by side from the second's start, as densely as promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotWork {
    pub(crate) cost: u64,
    /// What a whole second holds at that density; at least 1.
    pub(crate) density: u64,
}

impl SlotWork {
    /// Work that lies before `at`, an instant of the second.
    pub(crate) fn before(self, at: Timestamp) -> u64 {
        work_before(at, self.density)
    }
}

/// Work that lies before `at` in its second, if the second holds `density`.
fn work_before(at: Timestamp, density: u64) -> u64 {
    (at.as_micros() % MICROS) * density / MICROS
}

/// `{generation: 28, second: 36}`.
#[derive(Clone, Copy)]
struct Frontier(u64);

impl Frontier {
    fn second(self) -> u64 {
        self.0 & SECOND_MASK
    }

    /// At `second`, of the same generation.
    fn moved_to(self, second: u64) -> Self {
        Self((self.0 & !SECOND_MASK) | second)
    }

    /// Not after `second`, of the next generation.
    fn reopened_at(self, second: u64) -> Self {
        let generation = (self.0 >> SECOND_BITS).wrapping_add(1) << SECOND_BITS;
        Self(generation | self.second().min(second))
    }
}

/// The ring of promised seconds.
pub struct Slots {
    ring: Ring,
    limits: Limits,
    /// A [`Frontier`].
    frontier: AtomicU64,
    /// No new visitor is placed before this second (WebQ III-D: T' + 1 after a fall of capacity).
    floor: AtomicU64,
    /// Oldest second that must not be overwritten.
    oldest: AtomicU64,
    /// Longest wait for which a slot is given, in seconds.
    max_wait_s: AtomicU64,
}

impl Slots {
    /// A schedule of at least `seconds` seconds for use from `now` on, nothing promised, closed (limit zero).
    pub fn new(seconds: u64, max_wait: Duration, now: Timestamp) -> Self {
        let slots = Self {
            ring: Ring::new(seconds, now.second()),
            limits: Limits::new(),
            frontier: AtomicU64::new(now.second() & SECOND_MASK),
            floor: AtomicU64::new(0),
            oldest: AtomicU64::new(now.second()),
            max_wait_s: AtomicU64::new(0),
        };
        slots.set_max_wait(max_wait);
        slots
    }

    /// How many seconds the ring holds.
    pub fn seconds(&self) -> u64 {
        self.ring.len()
    }

    /// Sets the longest wait for which a slot is given, rounded down to seconds.
    pub fn set_max_wait(&self, max_wait: Duration) {
        self.max_wait_s.store(max_wait.as_secs(), Ordering::Release);
    }

    /// Takes the first room at or after `not_before`; `None` if there is none within the longest wait.
    ///
    /// In the second of `not_before` the room of the part before it has expired. `not_before` must not run
    /// backwards: room that one caller skipped as expired is expired for all.
    pub fn take(&self, cost: Cost, now: Timestamp, not_before: Timestamp) -> Option<Placed> {
        let seen = Frontier(self.frontier.load(Ordering::Acquire));
        let last = self.last_usable();
        let horizon = (now.second() + self.max_wait_s.load(Ordering::Acquire)).min(last);
        let mut second = not_before.second().max(self.floor.load(Ordering::Acquire)).max(seen.second());
        let mut found = None;
        while found.is_none() && second <= horizon {
            found = self.start_in(second, cost, not_before);
            second += u64::from(found.is_none());
        }
        if second > seen.second() {
            // Losing this race is fine: the winner knew at least as much.
            let moved = seen.moved_to(second + u64::from(mutants::is(Mutant::FrontierSkips))).0;
            let _ = self.frontier.compare_exchange(seen.0, moved, Ordering::AcqRel, Ordering::Relaxed);
        }
        let (placed, taken) = found?;
        match self.spill(second, cost - taken, last) {
            Ok(()) => Some(placed),
            Err(missing) => {
                self.withdraw(second, taken, cost - missing);
                None
            }
        }
    }

    /// Takes what room `second` has, up to `cost`; returns how much that was.
    fn start_in(&self, second: u64, cost: Cost, not_before: Timestamp) -> Option<(Placed, Cost)> {
        self.ring.update(second, |load| {
            // Read after the load: of a second that was settled anew, the limit it was settled for.
            let limit = self.limits.of(second);
            let expired = if second == not_before.second() { work_before(not_before, limit) } else { 0 };
            let before = load.cost.hundredths().max(expired);
            if before >= limit || load.visitors >= MAX_VISITORS {
                return None;
            }
            let taken = cost.hundredths().min(limit - before);
            let due_in = second + u64::from(mutants::is(Mutant::FirstFitOffByOne));
            let due = Timestamp::from_micros(due_in * MICROS + before * MICROS / limit);
            let placed =
                Placed { second, before: Cost::from_hundredths(before), visitors_before: load.visitors, due };
            let after = SlotLoad { visitors: load.visitors + 1, cost: Cost::from_hundredths(before + taken) };
            Some((after, (placed, Cost::from_hundredths(taken))))
        })
    }

    /// Charges `rest` to the seconds after `second`; the part that found no room up to `last` is the error.
    fn spill(&self, mut second: u64, mut rest: Cost, last: u64) -> Result<(), Cost> {
        while rest > Cost::ZERO {
            second += 1;
            if second > last {
                return Err(rest);
            }
            let taken = self.ring.update(second, |load| {
                let limit = self.limits.of(second);
                let room = limit.saturating_sub(load.cost.hundredths()).min(rest.hundredths());
                let taken = Cost::from_hundredths(room);
                (room > 0).then(|| (SlotLoad { cost: load.cost + taken, ..load }, taken))
            });
            rest = rest - taken.unwrap_or_default();
        }
        Ok(())
    }

    /// Takes back a promise of `cost` that started in `second`. What that second no longer holds is taken
    /// from the next ones, where it was charged; seconds that the ring has left behind do not change.
    pub fn give_back(&self, second: u64, cost: Cost) {
        self.withdraw(second, cost, cost);
    }

    /// Takes back `cost`, at most `here` of it from `second`.
    fn withdraw(&self, second: u64, here: Cost, cost: Cost) {
        let mut rest = cost;
        let mut at = second;
        let mut visitor = 1;
        let last = self.last_usable();
        while (rest > Cost::ZERO || visitor > 0) && at <= last {
            let taken = self.ring.update(at, |load| {
                let most = if at == second { here.min(rest) } else { rest };
                let part = load.cost.min(most);
                let visitors = load.visitors.saturating_sub(visitor);
                Some((SlotLoad { visitors, cost: load.cost - part }, part))
            });
            rest = rest - taken.unwrap_or_default();
            visitor = 0;
            at += 1;
        }
        self.reopen(second);
    }

    /// Makes searches start at `second` again.
    pub fn reopen(&self, second: u64) {
        let reopened = |seen| Some(Frontier(seen).reopened_at(second).0);
        _ = self.frontier.fetch_update(Ordering::AcqRel, Ordering::Acquire, reopened);
    }

    /// Sets what a second can take, for all seconds. One caller at a time.
    pub fn set_limit(&self, limit: Cost) {
        self.set_limit_from(0, limit);
    }

    /// Sets what a second can take, from `second` on: earlier ones keep their limits. One caller at a time.
    pub fn set_limit_from(&self, second: u64, limit: Cost) {
        self.limits.set_from(second, limit);
        self.reopen(u64::MAX);
    }

    /// Sets what seconds after the frontier can take: promises made keep their order. One caller at a time.
    pub fn set_limit_ahead(&self, limit: Cost) {
        self.set_limit_from(self.ahead(), limit);
    }

    /// The first second in which nothing is promised yet.
    fn ahead(&self) -> u64 {
        // One second more than the frontier needs, because searches in progress move it.
        let (ahead, current) = (self.frontier() + 2, self.limits.last_from());
        if ahead > current + 1 { ahead } else { current }
    }

    /// The limit falls while visitors wait: promises and the limits of their seconds are kept, and new
    /// visitors are placed neither in those seconds nor before `floor`. One caller at a time.
    pub fn lower_limit(&self, limit: Cost, floor: u64) {
        // Also before a rise that no new visitor has reached yet, which is taken back.
        let from = floor.max(self.frontier() + 2);
        self.raise_floor(from);
        self.set_limit_from(from, limit);
    }

    /// Sets what a second can take, for all seconds, when no visitor waits, or for the first of them only: a
    /// second that is taken in part, by visitors or by time, remains taken up to the same instant. One caller
    /// at a time.
    pub fn settle(&self, second: u64, limit: Cost) {
        let last = self.frontier().min(second + MAX_SETTLED_S);
        let before: Vec<_> = (second..=last).map(|s| (s, self.limits.of(s))).collect();
        self.set_limit(limit);
        let new = self.limits.last();
        for (second, old) in before.into_iter().filter(|(_, old)| *old > new) {
            self.ring.update(second, |load| {
                let cost = (load.cost.hundredths().min(old) * new).div_ceil(old);
                Some((SlotLoad { cost: Cost::from_hundredths(cost), ..load }, ()))
            });
        }
        self.reopen(second);
    }

    /// What seconds from now on will be able to take.
    pub fn limit(&self) -> Cost {
        Cost::from_hundredths(self.limits.last())
    }

    /// What the second at the frontier can take: less than [`Slots::limit`] until a rise has reached it.
    pub(crate) fn limit_at_frontier(&self) -> Cost {
        Cost::from_hundredths(self.limits.of(self.frontier()))
    }

    /// First second that may have room.
    pub fn frontier(&self) -> u64 {
        Frontier(self.frontier.load(Ordering::Acquire)).second().max(self.floor())
    }

    /// When the first second that may have room comes within the longest wait.
    pub(crate) fn opens_at(&self) -> Timestamp {
        Timestamp::from_secs(self.frontier().saturating_sub(self.max_wait_s.load(Ordering::Acquire)))
    }

    /// No new visitor is placed before this second.
    pub fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }

    /// Places new visitors at `second` at the earliest.
    pub fn set_floor(&self, second: u64) {
        self.floor.store(second & SECOND_MASK, Ordering::Release);
    }

    /// As [`Slots::set_floor`], but never before the floor that is set.
    pub(crate) fn raise_floor(&self, second: u64) {
        self.floor.fetch_max(second & SECOND_MASK, Ordering::AcqRel);
    }

    /// Lets seconds before this one be overwritten; does not go back.
    pub fn forget_before(&self, second: u64) {
        self.oldest.fetch_max(second, Ordering::AcqRel);
    }

    /// Keeps seconds from `second` on, even if they were given up before. For a restored schedule.
    pub(crate) fn keep_from(&self, second: u64) {
        self.oldest.store(second, Ordering::Release);
    }

    fn last_usable(&self) -> u64 {
        self.oldest.load(Ordering::Acquire) + self.ring.len() - 1
    }

    /// What is promised for `second`.
    pub fn promised(&self, second: u64) -> SlotLoad {
        self.ring.load(second)
    }

    /// Whether `second` is in the part of the schedule that is kept.
    pub(crate) fn covers(&self, second: u64) -> bool {
        (self.oldest.load(Ordering::Acquire)..=self.last_usable()).contains(&second)
    }

    pub(crate) fn restore(&self, second: u64, load: SlotLoad) {
        self.ring.add(second, load);
    }

    /// Promises what is free from the second of `from` up to `due`, and the work of a visitor of `cost` after
    /// it. `enter` is told what each second got, in visitors of that cost.
    pub(crate) fn fill(
        &self,
        from: Timestamp,
        due: Timestamp,
        cost: Cost,
        mut enter: impl FnMut(u64, SlotLoad),
    ) {
        let last = self.last_usable();
        // A visitor counts in the second in which its work begins.
        let begun = |work: u64| work.div_ceil(cost.hundredths().max(1));
        let mut filled = 0;
        let (mut second, mut rest) = (from.second().max(self.oldest.load(Ordering::Acquire)), None);
        while second <= last && rest != Some(0) {
            let limit = self.limits.of(second);
            // From the second of `due` on: what is before it there, and the visitor.
            let before = (second == due.second()).then(|| work_before(due, limit));
            rest = rest.or(before.map(|before| before + cost.hundredths()));
            let wanted = rest.unwrap_or(limit).min(limit);
            let added = self.ring.update(second, |load| {
                let added = Cost::from_hundredths(wanted.saturating_sub(load.cost.hundredths()));
                let visitors = begun(filled + added.hundredths()) - begun(filled);
                let visitors = visitors.min(MAX_VISITORS.saturating_sub(load.visitors));
                let after = SlotLoad { visitors: load.visitors + visitors, cost: load.cost + added };
                (added > Cost::ZERO).then_some((after, SlotLoad { visitors, cost: added }))
            });
            if let Some(added) = added {
                filled += added.cost.hundredths();
                enter(second, added);
            }
            // A closed schedule (limit zero) has no room for the rest.
            rest = rest.map(|rest| if limit == 0 { 0 } else { rest - wanted });
            second += 1;
        }
    }

    /// Everything promised from `second` on.
    pub fn sum(&self, second: u64) -> SlotLoad {
        self.ring.sum(second, self.last_usable() + 1)
    }

    /// Everything promised that is due at `from` or later, charges for it included.
    pub fn ahead_of(&self, from: Timestamp) -> SlotLoad {
        self.between(from, Timestamp::from_secs(self.last_usable() + 1))
    }

    /// The work of `second`, by the limit it was promised under.
    pub(crate) fn work_of(&self, second: u64) -> SlotWork {
        self.as_work(second, self.promised(second))
    }

    fn as_work(&self, second: u64, load: SlotLoad) -> SlotWork {
        let cost = load.cost.hundredths();
        SlotWork { cost, density: self.limits.of(second).max(cost).max(1) }
    }

    /// What is promised between two instants: what must be admitted before a visitor due at `to` is next, if
    /// the schedule has been admitted up to `from`.
    pub fn between(&self, from: Timestamp, to: Timestamp) -> SlotLoad {
        if to <= from {
            return SlotLoad::default();
        }
        let (first, last) = (from.second(), to.second());
        let mut sum = self.ring.sum(first + 1, last.min(self.last_usable() + 1));
        // The seconds at both ends count in part.
        let ends = if first == last { [Some(first), None] } else { [Some(first), Some(last)] };
        for second in ends.into_iter().flatten() {
            let load = self.promised(second);
            let work = self.as_work(second, load);
            let start = if second == first { work.before(from).min(work.cost) } else { 0 };
            let end = if second == last { work.before(to).min(work.cost) } else { work.cost };
            let part = end.saturating_sub(start);
            sum.cost += Cost::from_hundredths(part);
            sum.visitors += if work.cost == 0 { 0 } else { (load.visitors * part).div_ceil(work.cost) };
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reopened_frontier_is_another_word() {
        let frontier = Frontier(1_800_000_000);
        assert_eq!(frontier.moved_to(1_800_000_007).second(), 1_800_000_007);
        let reopened = frontier.moved_to(1_800_000_007).reopened_at(1_800_000_000);
        assert_eq!(reopened.second(), frontier.second());
        assert_ne!(reopened.0, frontier.0);
        assert_eq!(reopened.reopened_at(u64::MAX).second(), frontier.second(), "never forward");
        let last = Frontier(u64::MAX).reopened_at(SECOND_MASK);
        assert_eq!((last.0 >> SECOND_BITS, last.second()), (0, SECOND_MASK), "generations wrap");
    }
}
