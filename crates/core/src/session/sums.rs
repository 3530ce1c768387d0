//! What a shard counts beside its sessions, under the same lock: sums that only grow, but for what is taken back.

use super::entry::Entry;
use super::lifetimes::Lifetimes;
use super::types::{Ender, Endings};
use crate::units::Timestamp;

/// How a session came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// By its timeout or its age.
    Over,
    Early(Ender),
    Left,
    Void,
}

/// Sums since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Sums {
    /// Work of all requests of sessions, in hundredths.
    pub(super) work: u64,
    pub(super) endings: Endings,
    /// Of sessions that ended and tell something: how many, the milliseconds that they held a place, and their work.
    pub(super) whole: u64,
    pub(super) held_ms: u64,
    pub(super) whole_work: u64,
}

impl Sums {
    pub(super) fn close(&mut self, entry: &Entry, how: How, lives: &Lifetimes, now: Timestamp) {
        let is_old = entry.begun() + lives.max_age <= entry.deadline(lives);
        let endings = &mut self.endings;
        *match how {
            How::Over if is_old => &mut endings.age,
            How::Over => &mut endings.idle,
            How::Early(Ender::Origin) => &mut endings.origin,
            How::Early(Ender::Operator) => &mut endings.operator,
            How::Left => &mut endings.left,
            How::Void => &mut endings.void,
        } += 1;
        if how == How::Void {
            self.work = self.work.saturating_sub(u64::from(entry.work));
            return;
        }
        self.whole += 1;
        self.held_ms += now.since(entry.begun()).as_millis() as u64;
        self.whole_work += u64::from(entry.work);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.work += other.work;
        let (sum, more) = (&mut self.endings, &other.endings);
        sum.idle += more.idle;
        sum.age += more.age;
        sum.origin += more.origin;
        sum.operator += more.operator;
        sum.left += more.left;
        sum.void += more.void;
        self.whole += other.whole;
        self.held_ms += other.held_ms;
        self.whole_work += other.whole_work;
    }
}
