//! What a visitor does from the room's answer until its turn.
//!
//! With [`Follow::Page`] it does what the script of the gate's page does (page.js), to its back-off and
//! jitter. The wait limit counts from the beginning of the step; a visitor whose next request would come
//! after it leaves at once, which changes nothing but the tally.

use std::time::Duration;

use tidegate_core::room::told_seconds;
use tidegate_gateway::config::page;

use super::draw::Salt;
use super::{
    End, Failure, IN_ROOM, Next, Noted, PREMATURE, RESUME_POLL, Reaction, RequestKind, TAMPERED, TOLD,
    Visitor, WAS_EARLY, WAS_LATE, millis, whole_millis,
};
use crate::answer::{RoomStatus, State};
use crate::dist::MAX_TIME;
use crate::scenario::{Follow, Kind};

/// Misses in a row after which a page gives its position up: three minutes without the gate.
const MAX_MISSES: u8 = 10;
/// Pause after a miss, before the next poll; doubled with every miss in a row up to the second value.
const MISS_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// First poll at a room whose page does not say when.
const FIRST_POLL: Duration = Duration::from_secs(1);
/// A page that has lost its position reloads itself within this time.
const RELOAD: Duration = Duration::from_secs(2);
/// The page of a full room reloads itself within this time after the wait it names.
const RELOAD_FULL: Duration = Duration::from_secs(3);
/// When to come back if a room does not say.
const DEFAULT_AFTER: Duration = Duration::from_secs(5);

/// The parts of [`Answer::Wait`](crate::answer::Answer::Wait).
#[derive(Clone, Copy)]
pub(super) struct Told {
    pub has_status: bool,
    pub after: Option<Duration>,
    pub refresh: Option<Duration>,
    pub poll: Option<Duration>,
    pub full: bool,
}

impl Visitor {
    pub(super) fn told_to_wait(&mut self, kind: &Kind, told: Told, now: Duration) -> Reaction {
        let noted = match (told.full, self.has(IN_ROOM)) {
            (true, _) => Noted::ToldFull,
            (false, true) => Noted::Nothing,
            (false, false) => Noted::ToldToWait { wait: told.after, at: self.since() },
        };
        self.set(IN_ROOM, !told.full);
        self.set(TOLD, true);
        self.misses = 0;
        if self.draw(Salt::NoShow, 0).chance(kind.no_show) {
            return Reaction::new(noted, Next::Leave(End::NoShow));
        }
        let (ask, mut delay) = self.obey(kind, told);
        // Visitors who poll learn when their turn has come; the others come at the end of the announced wait.
        if ask == RequestKind::Page && !told.full && told.after.is_none_or(|after| delay >= after) {
            delay = delay.saturating_add(self.late(kind));
        }
        if !told.full {
            self.note_wait(told.after.unwrap_or(delay), now);
        }
        let next = self.wait(kind, ask, now.saturating_add(delay), now);
        Reaction::new(noted, next)
    }

    /// The next request of a visitor who must come again, and its delay.
    fn obey(&self, kind: &Kind, told: Told) -> (RequestKind, Duration) {
        let Told { has_status, after, refresh, poll, full } = told;
        // As the field says it: rounded up to whole seconds, so that nobody comes too early.
        // Whoever has a position and is early is held.
        let whole = if has_status { told_seconds } else { page::retry_after };
        let retry_after = after.map(|after| Duration::from_secs(whole(after).max(1)));
        match kind.follow {
            Follow::Page if full => {
                let after = after.or(refresh).unwrap_or(DEFAULT_AFTER);
                (RequestKind::Page, after.saturating_add(RELOAD_FULL.mul_f64(self.jitter())))
            }
            Follow::Page if has_status => (RequestKind::Status, poll.or(retry_after).unwrap_or(FIRST_POLL)),
            Follow::Page | Follow::Refresh => {
                (RequestKind::Page, refresh.or(retry_after).unwrap_or(DEFAULT_AFTER))
            }
            Follow::RetryAfter => (RequestKind::Page, retry_after.or(refresh).unwrap_or(DEFAULT_AFTER)),
            Follow::Nothing => (RequestKind::Page, self.sample(&kind.pause, Salt::Pause, self.turn)),
        }
    }

    pub(super) fn told_status(&mut self, kind: &Kind, status: RoomStatus, now: Duration) -> Next {
        self.misses = 0;
        match status.state {
            State::Waiting | State::Unavailable => {
                self.note_wait(status.wait, now);
                // Give or take a twentieth, as the page's script does.
                let delay = status.poll.min(MAX_TIME).mul_f64(0.95 + self.jitter() / 10.0);
                self.wait(kind, RequestKind::Status, now.saturating_add(delay), now)
            }
            State::Ready => {
                let late = self.late(kind);
                self.send(RequestKind::Page, now.saturating_add(late))
            }
            State::Expired | State::Redeemed | State::Full | State::Other => {
                let delay = RELOAD.mul_f64(self.jitter());
                self.wait(kind, RequestKind::Page, now.saturating_add(delay), now)
            }
        }
    }

    pub(super) fn missed(&mut self, kind: &Kind, failure: Failure, now: Duration) -> Reaction {
        self.misses += 1;
        let next = if self.misses > MAX_MISSES {
            Next::Leave(End::Failed(failure))
        } else {
            let (first, most) = MISS_PAUSE;
            let pause = first.saturating_mul(1 << (self.misses - 1)).min(most);
            self.wait(kind, RequestKind::Status, now.saturating_add(pause.mul_f64(0.5 + self.jitter())), now)
        };
        Reaction::new(Noted::Failed(failure), next)
    }

    pub(super) fn resume(&mut self, kind: &Kind, now: Duration) -> Next {
        let ask = if self.has(RESUME_POLL) { RequestKind::Status } else { RequestKind::Page };
        let at = self.since().saturating_add(millis(self.resume_ms)).max(now);
        self.wait(kind, ask, at, now)
    }

    /// Waits until `at` and then asks, unless a detour comes first or the wait gets too long.
    fn wait(&mut self, kind: &Kind, ask: RequestKind, at: Duration, now: Duration) -> Next {
        if self.is_too_long(kind, at) {
            return Next::Leave(End::Tired);
        }
        let Some((flag, detour, when)) = self.detour(kind).filter(|(_, _, when)| *when < at) else {
            return self.send(ask, at);
        };
        self.set(flag, true);
        self.set(PREMATURE, detour == RequestKind::Page);
        self.set(RESUME_POLL, ask == RequestKind::Status);
        self.resume_ms = whole_millis(at.saturating_sub(self.since()));
        self.send(detour, when.max(now))
    }

    fn detour(&self, kind: &Kind) -> Option<(u8, RequestKind, Duration)> {
        let plan = |flag, ask, share, (whether, when)| {
            if !self.has(IN_ROOM) || self.has(flag) || !self.draw(whether, 0).chance(share) {
                return None;
            }
            let into = millis(self.wait_ms).mul_f64(self.draw(when, 0).unit());
            Some((flag, ask, self.since() + millis(self.told_ms) + into))
        };
        let early = plan(WAS_EARLY, RequestKind::Page, kind.early, (Salt::Early, Salt::EarlyAt));
        let tamper = plan(TAMPERED, RequestKind::Tampered, kind.tamper, (Salt::Tamper, Salt::TamperAt));
        early.into_iter().chain(tamper).min_by_key(|(_, _, when)| *when)
    }

    /// By how much the visitor misses its turn, the first time.
    fn late(&mut self, kind: &Kind) -> Duration {
        if self.has(WAS_LATE) || !self.draw(Salt::Late, 0).chance(kind.late) {
            return Duration::ZERO;
        }
        self.set(WAS_LATE, true);
        self.sample(&kind.late_by, Salt::LateBy, 0)
    }

    /// Keeps the first wait announced in a step: detours are planned by it.
    fn note_wait(&mut self, wait: Duration, now: Duration) {
        if self.wait_ms == 0 {
            self.told_ms = whole_millis(now.saturating_sub(self.since()));
            self.wait_ms = whole_millis(wait);
        }
    }

    pub(super) fn is_too_long(&self, kind: &Kind, at: Duration) -> bool {
        let limit = self.sample(&kind.wait_limit, Salt::WaitLimit, 0);
        self.has(TOLD) && at > self.since().saturating_add(limit)
    }
}
