//! How fast session slots become free, from which the announced waits follow.
//!
//! ```text
//! wait of the k-th  =  d + k L / N                            N  slots
//! d  =  (R + 1) / (E + 1) * time until the first idle session expires     R of E ended sessions expired
//! L  =  max(M, min(C, timeout + A))                           how long a slot is held
//! M  =  (their time + timeout) / (E + 1)                      of the E sessions that ended of late
//! C  =  (all time that slots were held + timeout) / (E + 1)   open sessions included
//! A                                                           mean age of open sessions
//! ```
//!
//! `M` alone is wrong at first: the sessions that end first are the short ones, and before any has ended `M`
//! says that all end after one timeout. `C` also counts the time of open sessions. It is the most likely
//! value for sessions that end with the same probability at every age (a censored sample of an exponential
//! distribution). Sessions do not: none expires before its timeout, so until the first ones end `C` is too
//! high by a factor of the number of slots. A visitor who sends a request now holds the slot for another
//! timeout, so open sessions last `timeout + A` at least; that bounds `C` until there is better evidence.
//! Once as many sessions have ended as there are slots, `M` and `C` agree.
//!
//! `d` is what no mean knows: a table that a crowd has filled gives no slot back for a timeout, and then
//! many. It counts in proportion to the sessions that expire, since the others are ended by the origin or a
//! logout. `E` has a memory of a hundred sessions.
//!
//! Rejected, with the ratio of real to announced waits of a crowd of five times the load at 60 slots
//! (`lab/tests/sim/sessions.toml`; with this formula: 0.78 to 0.88): `M` without `d` (1.24 to 1.39; at WAC's
//! server with 10 slots the first visitors waited 7.6 times as long as announced, here twice); `C` (0.05 to
//! 0.08: announced more than ten times too much); each visitor's wait from the sorted deadlines of all
//! sessions (a sort for every announced wait, and useless beyond one timeout).

use std::time::Duration;

use super::entry::{Entry, Lifetimes};
use super::forecast::activity;
use super::table::{SHARDS, Table};
use crate::decaying::DecayingRatio;
use crate::units::Timestamp;

/// Memory of the means, in sessions that ended.
const ENDED_MEMORY: f64 = 100.0;

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct TurnoverSample {
    /// Sessions that ended since the last tick.
    pub(super) ended: f64,
    /// Those of them that had not expired.
    pub(super) early: f64,
    /// Seconds that they held their slots.
    pub(super) held_s: f64,
    /// Seconds that slots were held by any session since the last tick.
    pub(super) open_s: f64,
    /// Work of the sessions that ended, in cost units.
    pub(super) work: f64,
    pub(super) open: OpenSessions,
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Turnover {
    /// Over sessions that ended: their seconds, their work, seconds of all sessions, and those not expired.
    pub(super) length: DecayingRatio,
    pub(super) work: DecayingRatio,
    held: DecayingRatio,
    early: DecayingRatio,
    open: OpenSessions,
}

impl Turnover {
    pub(super) fn learn(&mut self, seen: &TurnoverSample) {
        let keep = ENDED_MEMORY / (ENDED_MEMORY + seen.ended);
        self.length.decay_and_add(keep, seen.held_s, seen.ended);
        self.work.decay_and_add(keep, seen.work, seen.ended);
        self.held.decay_and_add(keep, seen.open_s, seen.ended);
        self.early.decay_and_add(keep, seen.early, seen.ended);
        self.open = seen.open;
    }

    /// Of so many slots, those that become free per second.
    pub(super) fn per_s(&self, slots: u32, timeout_s: f64) -> f64 {
        let ended = self.length.over + 1.0;
        let mean_s = (self.length.sum + timeout_s) / ended;
        let likely_s = (self.held.sum + timeout_s) / ended;
        let length_s = mean_s.max(likely_s.min(timeout_s + self.open.age_s));
        f64::from(slots) / length_s.max(1e-3)
    }

    /// Seconds before the first of them becomes free.
    pub(super) fn next_s(&self) -> f64 {
        let ended = self.early.over + 1.0;
        self.open.expires_in.as_secs_f64() * (ended - self.early.sum) / ended
    }
}

/// The open sessions at the last complete scan.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct OpenSessions {
    /// Until the first one expires if it sends nothing more; zero where none is open.
    pub(super) expires_in: Duration,
    pub(super) age_s: f64,
    /// Sessions that are active (`session/forecast.rs`), and those begun up to then.
    pub(super) active: f64,
    pub(super) begun: u64,
    /// `active` over what it would be with the mean pause of the scan before; 1 but at the end of a scan.
    pub(super) remeasured: f64,
}

const A_TICK: usize = 4_096;
/// Entries that are examined under one lock.
const A_LOCK: usize = 64;

/// Scans all entries, some thousands a tick and a few at a time under their shard's lock: a million take half
/// a minute. The result holds until the next scan: sessions' ends only move away, and new ones end later.
///
/// Rejected: the first bucket of the timer wheel: it is lazy, and has an entry up to a timeout too early.
#[derive(Default, Debug)]
pub(super) struct Scan {
    /// The next shard and entry.
    shard: usize,
    entry: usize,
    so_far: Sum,
    /// The last complete scan.
    complete: Sum,
    /// Mean pause by which this scan counts, and by which the last one did, in seconds.
    pause_s: f64,
    pause_before_s: f64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    first_end: Option<Timestamp>,
    open: u32,
    age_s: f64,
    active: f64,
    /// The same with the mean pause of the scan before.
    active_before: f64,
    begun: u64,
}

impl Scan {
    /// `pause_s`: mean pause of a session. `begun`: sessions begun so far.
    pub(super) fn tick(&mut self, table: &Table, pause_s: f64, begun: u64, now: Timestamp) -> OpenSessions {
        let lives = table.lifetimes.get();
        if (self.shard, self.entry) == (0, 0) {
            self.so_far.begun = begun;
            let before_s = std::mem::replace(&mut self.pause_s, pause_s);
            self.pause_before_s = if before_s > 0.0 { before_s } else { pause_s };
        }
        let pauses_s = [self.pause_s, self.pause_before_s];
        let mut left = A_TICK;
        while left > 0 && self.shard < SHARDS {
            let mut shard = table.lock_number(self.shard, now);
            let entries = shard.stretch(self.entry, A_LOCK).unwrap_or_default();
            entries.iter().for_each(|entry| self.so_far.add(entry, &lives, pauses_s, now));
            left = left.saturating_sub(entries.len().max(1));
            self.entry += entries.len();
            if entries.len() < A_LOCK {
                (self.shard, self.entry) = (self.shard + 1, 0);
            }
        }
        let mut remeasured = 1.0;
        if self.shard == SHARDS {
            self.shard = 0;
            self.complete = std::mem::take(&mut self.so_far);
            let Sum { active, active_before, .. } = self.complete;
            remeasured = if active_before > 0.0 { active / active_before } else { 1.0 };
        }
        OpenSessions {
            expires_in: self.complete.first_end.map_or(Duration::ZERO, |first| first.since(now)),
            age_s: self.complete.age_s / f64::from(self.complete.open.max(1)),
            active: self.complete.active,
            begun: self.complete.begun,
            remeasured,
        }
    }
}

impl Sum {
    fn add(&mut self, entry: &Entry, lives: &Lifetimes, [pause_s, before_s]: [f64; 2], now: Timestamp) {
        if entry.is_open() {
            let end = entry.due(lives, now);
            self.first_end = Some(self.first_end.map_or(end, |first| first.min(end)));
            self.open += 1;
            self.age_s += now.since(entry.begun()).as_secs_f64();
            self.active += activity(entry, pause_s, now);
            self.active_before += activity(entry, before_s, now);
        }
    }
}
