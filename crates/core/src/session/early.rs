//! Ends before their time, other names, and the operator's view.

use super::shard::{Entry, State};
use super::sums::How;
use super::words::{Ender, SessionKey, SessionLine, SessionPage};
use super::{EVERYBODY, SHARDS, Sessions, lock, own};
use crate::orders::TierId;
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
        let lives = self.lives.get();
        let part = &mut *self.part(key);
        let Some(entry) = part.shard.find(key) else { return false };
        if entry.state != State::Open || entry.is_over(&lives, now) {
            return false;
        }
        if self.remembers_ended() {
            self.close(&mut part.sums, entry, How::Early(by), now);
            entry.state = State::Ended;
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
                for entry in stretch.iter_mut().filter(|entry| entry.state == State::Open) {
                    ended += 1;
                    if self.remembers_ended() {
                        self.close(&mut part.sums, entry, How::Early(Ender::Operator), now);
                        entry.state = State::Ended;
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
        let is_open = part.shard.find(key).is_some_and(|entry| entry.state == State::Open);
        if is_open {
            self.take_out(part, key, How::Left, now);
        }
        is_open
    }

    /// The application calls an admitted session by another name from now on. If the new one is a session's already, the two are
    /// one; if that was ended early, so is this. `false`: nobody was admitted under the old one.
    pub fn rename(&self, from: SessionKey, to: SessionKey, now: Timestamp) -> bool {
        let lives = self.lives.get();
        let moved = {
            let part = &mut *self.part(from);
            self.expire_if_over(part, from, now);
            if part.shard.find(from).is_none_or(|entry| entry.state != State::Open) {
                return false;
            }
            if from == to {
                return true;
            }
            part.shard.remove(from)
        };
        let Some(moved) = moved else { return false };
        // Not both shards at once: two who rename crosswise would wait for each other.
        let part = &mut *self.part(to);
        self.expire_if_over(part, to, now);
        if part.shard.find(to).is_some() {
            self.entries.fetch_sub(1, Ordering::Relaxed);
            self.close(&mut part.sums, &moved, How::Left, now);
        } else {
            part.shard.insert(moved.under(to), &lives);
        }
        true
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
                let pool = if entry.pool == EVERYBODY { EVERYBODY } else { own(level) };
                if entry.state == State::Open && pool != entry.pool {
                    self.pools[usize::from(entry.pool)].give();
                    self.pools[usize::from(pool)].force();
                }
                (entry.tier, entry.pool) = (level, pool);
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
                if entry.state == State::Open {
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
    }
}
