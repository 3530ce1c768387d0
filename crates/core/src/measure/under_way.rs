//! How long the requests that are under way have been so.
//!
//! A ring of counters, one for each eighth of a second: a request counts in that of its arrival until it is
//! answered. So the ages of all requests are known without a list of them. Requests older than the ring are
//! counted together.
//!
//! Rejected: the number under way and the rate alone (Little's law), because it finds no single request that
//! hangs among many that do not.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::histogram::add;
use crate::units::Timestamp;

/// The width of a counter's time in microseconds, as a power of two: 131 ms.
const WIDTH_BITS: u32 = 17;
const SLOT_BITS: u32 = 9;
/// 67 seconds: longer than the default time-outs.
const SLOTS: usize = 1 << SLOT_BITS;

/// Requests under way that came at about the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cohort {
    /// How long they have been under way, at least.
    pub age: Duration,
    pub count: u64,
}

/// The counters of one class; only one thread changes them.
#[derive(Debug)]
pub(super) struct Cohorts {
    /// How often the ring had gone round (upper half), and the requests that came then (lower half).
    slots: [AtomicU64; SLOTS],
    /// Requests older than the ring.
    older: AtomicU64,
    /// All of them: lets a reader skip idle classes.
    count: AtomicU64,
}

impl Default for Cohorts {
    fn default() -> Self {
        let slots = [const { AtomicU64::new(0) }; SLOTS];
        Self { slots, older: AtomicU64::new(0), count: AtomicU64::new(0) }
    }
}

/// The slot of a time, and the round as the upper half of a counter.
fn slot_of(at: Timestamp) -> (usize, u64) {
    let index = at.as_micros() >> WIDTH_BITS;
    (index as usize % SLOTS, (index >> SLOT_BITS) << 32)
}

fn split(counter: &AtomicU64) -> (u64, u64) {
    let value = counter.load(Relaxed);
    (value & !u64::from(u32::MAX), value & u64::from(u32::MAX))
}

impl Cohorts {
    pub(super) fn enter(&self, since: Timestamp) {
        let (slot, round) = slot_of(since);
        let (held, count) = split(&self.slots[slot]);
        if held == round {
            add(&self.slots[slot], 1);
        } else {
            add(&self.older, count);
            self.slots[slot].store(round + 1, Relaxed);
        }
        add(&self.count, 1);
    }

    pub(super) fn leave(&self, since: Timestamp) {
        let (slot, round) = slot_of(since);
        let (held, count) = split(&self.slots[slot]);
        let counter = if held == round && count > 0 { &self.slots[slot] } else { &self.older };
        counter.store(counter.load(Relaxed).saturating_sub(1), Relaxed);
        self.count.store(self.count.load(Relaxed).saturating_sub(1), Relaxed);
    }

    pub(super) fn read(&self, now: Timestamp, into: &mut Vec<Cohort>) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let older = self.older.load(Relaxed);
        let span = Duration::from_micros((SLOTS as u64) << WIDTH_BITS);
        into.extend((older > 0).then_some(Cohort { age: span, count: older }));
        for (slot, counter) in self.slots.iter().enumerate() {
            let (round, count) = split(counter);
            if count > 0 {
                let index = (round >> 32 << SLOT_BITS) + slot as u64;
                let last = Timestamp::from_micros((index + 1) << WIDTH_BITS);
                into.push(Cohort { age: now.since(last), count });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ages(cohorts: &Cohorts, now: Timestamp) -> Vec<(u64, u64)> {
        let mut read = Vec::new();
        cohorts.read(now, &mut read);
        read.sort_by_key(|cohort| cohort.age);
        read.iter().map(|cohort| (cohort.age.as_secs(), cohort.count)).collect()
    }

    #[test]
    fn each_request_has_its_age_until_it_leaves() {
        let cohorts = Cohorts::default();
        let at = |s: u64| Timestamp::from_secs(1_800_000_000 + s);
        for s in [0, 0, 10, 30] {
            cohorts.enter(at(s));
        }
        assert_eq!(ages(&cohorts, at(30)), [(0, 1), (19, 1), (29, 2)]);
        cohorts.leave(at(0));
        assert_eq!(ages(&cohorts, at(40)), [(9, 1), (29, 1), (39, 1)]);
        cohorts.leave(at(10));
        cohorts.leave(at(30));
        cohorts.leave(at(0));
        assert_eq!(ages(&cohorts, at(50)), []);
    }

    #[test]
    fn those_older_than_the_ring_are_not_young_again() {
        let cohorts = Cohorts::default();
        let first = Timestamp::from_micros(1_800_000_000 << WIDTH_BITS);
        let round = Duration::from_micros((SLOTS as u64) << WIDTH_BITS);
        cohorts.enter(first);
        assert_eq!(ages(&cohorts, first + 3 * round), [(201, 1)], "as long as its counter is its own");
        cohorts.enter(first + 3 * round);
        assert_eq!(ages(&cohorts, first + 3 * round), [(0, 1), (67, 1)]);
        // Each leaves its own counter.
        cohorts.leave(first + 3 * round);
        assert_eq!(ages(&cohorts, first + 3 * round), [(67, 1)]);
        cohorts.leave(first);
        assert_eq!(ages(&cohorts, first + 3 * round), []);
    }
}
