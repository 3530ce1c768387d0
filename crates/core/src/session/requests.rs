//! Requests under way: while there is one, its session does not end for inactivity.
//!
//! ```text
//! touch, admit, readmit ─► UnderWay ─┬─ finish   inactivity counts from here on
//!                                    └─ void     it never reached the origin
//! rename       the key it was counted under is another's: a note is left there for each of the others, `Moved`
//! ```
//!
//! An entry counts those under way. Whose count it is, is told by the key and by `born`, which no two entries of a key have in common:
//! what was begun in a session that has ended since changes nothing of the one that has begun under its key.
//!
//! **Renamed.** The request whose answer renames a session has the new key at once. The others know the old one only, and find a note
//! there that takes them on. Each takes it once, and with the last it is gone: there are never more notes than requests under way.
//!
//! **Beyond** 65,535 at once a request is not counted, and so does not keep its session alive when all the others are over.
//!
//! Rejected: a cell that requests and table share (an allocation a request); a count of its own by key (what was begun in a session
//! that has ended would keep the next one alive); following notes by the key alone (a session that comes by its old key again
//! would find its own).

use std::sync::MutexGuard;

use super::entry::Entry;
use super::sums::How;
use super::types::{Ender, SessionKey};
use super::{Part, Sessions, lock, shard_of};
use crate::sync::Ordering;
use crate::units::Timestamp;

/// A request of an admitted session, from its arrival (also while it waits at the gate) until the last of its answer is gone, or of
/// the tunnel that it has become. Ends once, by [`Sessions::finish`] or [`Sessions::void`].
#[must_use = "its session does not end for inactivity before it does"]
#[derive(PartialEq, Eq, Debug)]
pub struct SessionRequest {
    key: SessionKey,
    born: u64,
    is_counted: bool,
}

impl SessionRequest {
    pub(super) fn new(key: SessionKey, born: u64, is_counted: bool) -> Self {
        Self { key, born, is_counted }
    }

    /// Its session's, as far as it knows.
    pub fn key(&self) -> SessionKey {
        self.key
    }
}

/// Where a session has gone to, for so many requests that know its old key.
#[derive(Debug)]
pub(super) struct Moved {
    to: SessionKey,
    born: u64,
    left: u16,
}

impl Part {
    /// Its session, if that is open and here.
    fn session_of(&mut self, under_way: &SessionRequest) -> Option<&mut Entry> {
        let entry = self.shard.find(under_way.key)?;
        (entry.born == under_way.born && entry.is_open()).then_some(entry)
    }

    /// Takes it on to where its session has gone. `false`: there is no note for it.
    fn takes_on(&mut self, under_way: &mut SessionRequest) -> bool {
        if !under_way.is_counted || self.moved.is_empty() {
            return false;
        }
        let old = (under_way.key, under_way.born);
        let Some(note) = self.moved.get_mut(&old) else { return false };
        (under_way.key, under_way.born) = (note.to, note.born);
        note.left -= 1;
        if note.left == 0 {
            self.moved.remove(&old);
        }
        true
    }
}

/// The shards of two keys, which may be one.
struct Two<'s> {
    from: MutexGuard<'s, Part>,
    to: Option<MutexGuard<'s, Part>>,
}

impl Two<'_> {
    fn to(&mut self) -> &mut Part {
        match &mut self.to {
            Some(to) => to,
            None => &mut self.from,
        }
    }
}

impl Sessions {
    /// A request is over: the last of its answer is gone, or its visitor is. Its session's inactivity counts from here on, unless there
    /// are others.
    pub fn finish(&self, mut under_way: SessionRequest, now: Timestamp) {
        let part = &mut *self.part_of(&mut under_way);
        self.expire_if_over(part, under_way.key, now);
        if let Some(entry) = part.session_of(&under_way) {
            entry.finish(under_way.is_counted, now);
        }
    }

    /// A request never reached the origin. If it was its session's only one, the place is free at once and nothing is learned of it.
    pub fn void(&self, mut under_way: SessionRequest, now: Timestamp) {
        let part = &mut *self.part_of(&mut under_way);
        self.expire_if_over(part, under_way.key, now);
        let Some(entry) = part.session_of(&under_way) else { return };
        if entry.requests > 1 {
            entry.requests -= 1;
            return entry.finish(under_way.is_counted, now);
        }
        self.take_out(part, under_way.key, How::Void, now);
    }

    /// The origin's answer to a request ends its session, and no other that may have begun under its key since. `false`: it was not
    /// open any more.
    pub fn end_of(&self, under_way: &mut SessionRequest, by: Ender, now: Timestamp) -> bool {
        let part = &mut *self.part_of(under_way);
        part.session_of(under_way).is_some() && self.end_in(part, under_way.key, by, now)
    }

    fn part_of(&self, under_way: &mut SessionRequest) -> MutexGuard<'_, Part> {
        loop {
            let mut part = self.part(under_way.key);
            if !part.takes_on(under_way) {
                return part;
            }
        }
    }

    /// The application calls the request's session by another name from now on, and all of its requests under way go along. If the new
    /// one is a session's already, the two are one; if that was ended early, so is this. `false`: its session is not open any more.
    pub fn rename(&self, under_way: &mut SessionRequest, to: SessionKey, now: Timestamp) -> bool {
        loop {
            let mut two = self.two(under_way.key, to);
            if two.from.takes_on(under_way) {
                continue;
            }
            self.expire_if_over(&mut two.from, under_way.key, now);
            if two.from.session_of(under_way).is_none() {
                return false;
            }
            if under_way.key != to {
                self.move_on(&mut two, under_way, to, now);
            }
            return true;
        }
    }

    /// In the order of their numbers, as everybody locks them: two who rename crosswise do not wait for each other.
    fn two(&self, from: SessionKey, to: SessionKey) -> Two<'_> {
        let (from, to) = (shard_of(from), shard_of(to));
        if from == to {
            return Two { from: lock(&self.shards[from]), to: None };
        }
        let first = lock(&self.shards[from.min(to)]);
        let second = lock(&self.shards[from.max(to)]);
        let (from, to) = if from < to { (first, second) } else { (second, first) };
        Two { from, to: Some(to) }
    }

    fn move_on(&self, two: &mut Two<'_>, under_way: &mut SessionRequest, to: SessionKey, now: Timestamp) {
        let lives = self.lives.get();
        let old = (under_way.key, under_way.born);
        let Some(moved) = two.from.shard.remove(under_way.key) else { return };
        let part = two.to();
        self.expire_if_over(part, to, now);
        let goes_on = match part.shard.find(to) {
            Some(entry) => {
                let goes_on = entry.take_over(&moved);
                under_way.born = entry.born;
                self.entries.fetch_sub(1, Ordering::Relaxed);
                self.close(&mut part.sums, &moved, How::Left, now);
                goes_on
            }
            None => {
                let entry = moved.under(to, part.shard.number());
                under_way.born = entry.born;
                part.shard.insert(entry, &lives, now);
                moved.under_way
            }
        };
        under_way.key = to;
        // Its own before the others'.
        under_way.is_counted &= goes_on > 0;
        let left = goes_on - u16::from(under_way.is_counted);
        if left > 0 {
            two.from.moved.insert(old, Moved { to, born: under_way.born, left });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::TierId;
    use crate::session::{SessionConfig, shard_of};
    use crate::units::Cost;

    #[test]
    fn notes_are_gone_with_those_they_are_for() {
        let now = Timestamp::from_secs(1_800_000_000);
        let sessions = Sessions::new(&SessionConfig::default(), now);
        let notes = || sessions.shards.iter().map(|part| lock(part).moved.len()).sum::<usize>();
        // In shards of their own and in one.
        let keys = [1, 2, 3, 65].map(SessionKey);
        assert_eq!(shard_of(keys[0]), shard_of(keys[3]));
        let begin = |key| sessions.touch(key, Cost::ONE, now).1.expect("it is open");
        let admit = |key| sessions.admit(key, TierId(0), Cost::ONE, now).expect("a place");
        let mut login = admit(keys[0]);
        let [stream, poll, left] = [0; 3].map(|_| begin(keys[0]));
        assert_eq!(notes(), 0);
        for (n, to) in [1, 3, 0, 2].into_iter().enumerate() {
            assert!(sessions.rename(&mut login, keys[to], now));
            assert_eq!(notes(), n + 1);
        }
        // One takes all of them on its way and leaves them to the others; the last leaves none, nor one whose session has ended.
        sessions.finish(stream, now);
        assert_eq!(notes(), 4);
        // Two become one, and that ends.
        let other = admit(keys[1]);
        assert!(sessions.rename(&mut login, keys[1], now));
        assert_eq!(notes(), 5);
        sessions.finish(poll, now);
        assert!(sessions.end_of(&mut login, Ender::Origin, now));
        assert_eq!(notes(), 5);
        sessions.void(left, now);
        assert_eq!(notes(), 0);
        [login, other].into_iter().for_each(|request| sessions.finish(request, now));
        assert_eq!((notes(), sessions.count().open), (0, 0));
    }
}
