//! Ends before their time, other levels, and the operator's view.

use super::entry::{Entry, State};
use super::sums::How;
use super::types::{Ender, SessionKey, SessionLine, SessionPage};
use super::{Part, SHARDS, Sessions, lock};
use crate::policies::TierId;
use crate::sync::Ordering;
use crate::units::Timestamp;

/// Places of a slab that are looked at while its shard is locked.
const STRETCH: usize = 1_024;
/// Sessions on a page.
const MAX_PAGE: usize = 1_000;

impl Sessions {
    /// Ends a session early. Its place is free at once; the key is known as ended until what shows it has run out, or forgotten
    /// ([`super::SessionConfig::remembers_ended`]). `false`: it was not open.
    pub fn end(&self, key: SessionKey, by: Ender, now: Timestamp) -> bool {
        self.end_in(&mut self.part(key), key, by, now)
    }

    pub(super) fn end_in(&self, part: &mut Part, key: SessionKey, by: Ender, now: Timestamp) -> bool {
        let lives = self.lives.get();
        let Some(entry) = part.shard.find(key) else { return false };
        if !entry.is_open() || entry.is_over(&lives, now) {
            return false;
        }
        if self.remembers_ended() {
            self.close(&mut part.sums, entry, How::Early(by), now);
            entry.end(now);
        } else {
            self.take_out(part, key, How::Early(by), now);
        }
        true
    }

    fn remembers_ended(&self) -> bool {
        self.remembers_ended.load(Ordering::Relaxed) == 1
    }

    /// Ends all that are open, by the operator; returns how many.
    pub fn end_all(&self, now: Timestamp) -> u64 {
        let mut ended = 0;
        for part in &self.shards {
            let mut from = 0;
            loop {
                let part = &mut *lock(part);
                let Some(stretch) = part.shard.stretch(from, STRETCH) else { break };
                let mut forgotten = Vec::new();
                for entry in stretch.iter_mut().filter(|entry| entry.is_open()) {
                    ended += 1;
                    if self.remembers_ended() {
                        self.close(&mut part.sums, entry, How::Early(Ender::Operator), now);
                        entry.end(now);
                    } else {
                        forgotten.push(entry.key());
                    }
                }
                for key in forgotten {
                    self.take_out(part, key, How::Early(Ender::Operator), now);
                }
                from += STRETCH;
            }
        }
        ended
    }

    /// What tells the session cannot come again (its connection is closed): it ends as if its time were over, and is forgotten.
    /// `false`: it was not open.
    pub fn leave(&self, key: SessionKey, now: Timestamp) -> bool {
        let part = &mut *self.part(key);
        self.expire_if_over(part, key, now);
        let is_open = part.shard.find(key).is_some_and(|entry| entry.is_open());
        if is_open {
            self.take_out(part, key, How::Left, now);
        }
        is_open
    }

    /// A reload has numbered the service levels anew: `level_now` tells what a level is now: everybody's where it is gone. Sessions
    /// keep their places, which are of the new number's pool from here on.
    pub fn renumber(&self, level_now: impl Fn(TierId) -> TierId) {
        for part in &self.shards {
            let part = &mut *lock(part);
            // A whole shard at once: of two looks at it the second would number anew who came between them.
            for entry in part.shard.stretch(0, usize::MAX).unwrap_or_default() {
                let level = level_now(entry.tier);
                if entry.state == State::Unused || level == entry.tier {
                    continue;
                }
                let before = entry.pool();
                entry.renumber(level);
                let pool = entry.pool();
                if entry.is_open() && pool != before {
                    self.pools[usize::from(before)].give();
                    self.pools[usize::from(pool)].force();
                }
            }
        }
    }

    /// A page of the sessions that are open, from where the last one ended; 0: the first. Who comes or goes meanwhile may be on it
    /// or not.
    pub fn list(&self, from: u64, limit: usize) -> SessionPage {
        let limit = limit.clamp(1, MAX_PAGE);
        let mut sessions = Vec::new();
        let (mut number, mut place) = ((from >> 32) as usize, (from & u64::from(u32::MAX)) as usize);
        while let Some(part) = self.shards.get(number) {
            let mut part = lock(part);
            let Some(stretch) = part.shard.stretch(place, STRETCH) else {
                (number, place) = (number + 1, 0);
                continue;
            };
            for entry in stretch {
                if sessions.len() == limit {
                    return SessionPage { sessions, next: Some((number as u64) << 32 | place as u64) };
                }
                place += 1;
                if entry.is_open() {
                    sessions.push(line(entry));
                }
            }
        }
        debug_assert!(number >= SHARDS);
        SessionPage { sessions, next: None }
    }
}

fn line(entry: &Entry) -> SessionLine {
    SessionLine {
        key: entry.key(),
        tier: entry.tier,
        begun: entry.begun(),
        last: entry.last(),
        requests: entry.requests,
        under_way: entry.under_way,
    }
}
