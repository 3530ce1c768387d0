//! A room that holds nobody: what the waiting room would do, counted and not done (`enforcement.shadow`).
//!
//! Whom a room holds changes who comes next, so that what it would do cannot be known exactly without doing
//! it. This one takes all work that comes as if it were served in order at the capacity in force:
//!
//! ```text
//! busy until ← max (busy until, now − burst) + cost / capacity        wait = busy until − now, before that
//! ```
//!
//! A newcomer with a wait would have waited, and beyond the longest wait have been refused. The work of those
//! who would wait is taken at once, because here they are served at once. So the count is that of a crowd
//! whose visitors all wait, which is the most that there may be.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::units::{Cost, Rate, Timestamp};

/// What the room would do with a newcomer, the better first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fate {
    Enters,
    Waits,
    /// The wait would be longer than the longest one.
    IsRefused,
}

/// What a room is made of.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ShadowTerms {
    pub capacity: Rate,
    /// Work that may come in one instant, as the time in which the capacity serves it.
    pub burst: Duration,
    pub max_wait: Duration,
}

/// The room's only state: until when the capacity is used up, in µs.
#[derive(Default, Debug)]
pub struct ShadowRoom(AtomicU64);

impl ShadowRoom {
    /// A newcomer with this work.
    pub fn arrive(&self, cost: Cost, terms: &ShadowTerms, now: Timestamp) -> Fate {
        if terms.capacity >= Rate::MAX {
            return Fate::Enters;
        }
        let longest = (now + terms.max_wait).as_micros();
        self.take(cost, terms, now, |from, next| (from <= longest).then_some(next))
            .map_or(Fate::IsRefused, |from| if from <= now.as_micros() { Fate::Enters } else { Fate::Waits })
    }

    /// Work that does not meet the room: sessions, classes that never wait.
    pub fn charge(&self, cost: Cost, terms: &ShadowTerms, now: Timestamp) {
        if terms.capacity < Rate::MAX {
            let longest = (now + terms.max_wait).as_micros();
            _ = self.take(cost, terms, now, |_, next| Some(next.min(longest)));
        }
    }

    /// Takes work; `until` says until when the capacity is then used up. Returns since when this work is
    /// served.
    fn take(
        &self,
        cost: Cost,
        terms: &ShadowTerms,
        now: Timestamp,
        until: impl Fn(u64, u64) -> Option<u64>,
    ) -> Option<u64> {
        // Without a capacity the room is full: a year is beyond every wait.
        let seconds = cost.units() / terms.capacity.get();
        let span = if seconds.is_finite() { (seconds * 1e6) as u64 } else { 365 * 86_400 * 1_000_000 };
        let oldest = now.saturating_sub(terms.burst).as_micros();
        let mut seen = self.0.load(Relaxed);
        loop {
            let from = seen.max(oldest);
            let next = until(from, from.saturating_add(span))?;
            match self.0.compare_exchange_weak(seen, next, Relaxed, Relaxed) {
                Ok(_) => return Some(from),
                Err(other) => seen = other,
            }
        }
    }
}
