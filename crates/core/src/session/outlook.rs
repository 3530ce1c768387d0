//! What open sessions say of the places that become free next: when the first of them runs out, if it asks for nothing more, and how
//! old they are.
//!
//! All entries are looked at, so many a tick and a few at a time under their shard's lock: some thousands at every tick, a million in half a minute. What was
//! seen is good until the next look is through: a session's end only moves away, and whoever begins later has a later one.
//!
//! Rejected: the timer wheel's first bucket (it is lazy: a session stands where it ended when it was filed, a timeout too early).

use std::sync::Mutex;
use std::time::Duration;

use super::lifetimes::Lifetimes;
use super::{Part, lock};
use crate::units::Timestamp;

/// Entries that a tick looks at.
const A_TICK: usize = 4_096;
/// And under one lock.
const A_LOCK: usize = 64;

/// What was seen.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct View {
    /// Until the first runs out; zero where none is open.
    pub(super) next: Duration,
    /// Mean age, in seconds.
    pub(super) age_s: f64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    first: Option<Timestamp>,
    open: u32,
    age_s: f64,
}

/// The look at all of them.
#[derive(Default, Debug)]
pub(super) struct Outlook {
    /// Where it goes on.
    shard: usize,
    entry: usize,
    so_far: Sum,
    /// Of the last one that came to its end.
    whole: Sum,
}

impl Outlook {
    /// Looks on.
    pub(super) fn look(&mut self, shards: &[Mutex<Part>], lives: &Lifetimes, now: Timestamp) -> View {
        let mut left = A_TICK;
        while left > 0 && self.shard < shards.len() {
            let seen = self.so_far.add(&shards[self.shard], self.entry, lives, now);
            left = left.saturating_sub(seen.max(1));
            self.entry += seen;
            if seen < A_LOCK {
                (self.shard, self.entry) = (self.shard + 1, 0);
            }
        }
        if self.shard == shards.len() {
            self.shard = 0;
            self.whole = std::mem::take(&mut self.so_far);
        }
        View {
            next: self.whole.first.map_or(Duration::ZERO, |first| first.since(now)),
            age_s: self.whole.age_s / f64::from(self.whole.open.max(1)),
        }
    }
}

impl Sum {
    /// Adds some entries of a shard; returns how many there were, unused ones too.
    fn add(&mut self, part: &Mutex<Part>, from: usize, lives: &Lifetimes, now: Timestamp) -> usize {
        let mut part = lock(part);
        let Some(entries) = part.shard.stretch(from, A_LOCK) else { return 0 };
        for entry in entries.iter().filter(|entry| entry.is_open()) {
            let end = entry.due(lives, now);
            self.first = Some(self.first.map_or(end, |first| first.min(end)));
            self.open += 1;
            self.age_s += now.since(entry.begun()).as_secs_f64();
        }
        entries.len()
    }
}
