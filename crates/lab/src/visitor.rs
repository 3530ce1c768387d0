//! How one visitor behaves: a pure state machine. Answers and failures go in, the next request comes out.
//!
//! ```text
//!            ┌──────── refused, broken, too slow: pause, again (retries times a step) ──────┐
//!            ▼                                                                              ├─► leave
//!  arrive ─► ask for the page ─► served ─► (used ticket again) ─► think ─► next step ───────┤
//!            ▲  ▲   │                                                                       │
//!            │  │   └─► told to wait ─► (no-show: leave) ─► poll status ◄──┐                │
//!            │  └──── Refresh, Retry-After, reload ◄┘        │   │   │     │ waiting        │
//!            └── ready, expired, redeemed, full (later) ◄────┘   │   └─────┘                │
//!                                                                └── ten misses in a row ───┘
//! ```
//!
//! While a visitor waits, its page does what the script of the gate's page does, at the same times. A visitor
//! may leave that path once for a *detour*: ask for the page before its turn, or with an altered ticket;
//! unless that brings the page, the visitor then goes on waiting as planned.
//!
//! In a closed loop nobody leaves before the end: a visitor who is done with a page, or has lost patience
//! with it, thinks and asks for another (`round.rs`).
//!
//! The load generator plays a visitor over real sockets, the simulator in virtual time. Between requests it
//! is this struct, 48 bytes, and one timer: no task, no connection. Its traits (patience, no-show, ...) are
//! drawn from its seed each time they matter. Response time counts from the instant a request was meant to be
//! sent, so that a slow test bench shows as such.

use std::time::Duration;

use crate::answer::Answer;
use crate::crowd::{Person, VisitorMix};
use crate::dist::Dist;
use crate::scenario::Kind;
use crate::times::micros_up;

mod draw;
mod round;
mod waiting;

#[cfg(test)]
mod tests;

pub use crate::visitor_events::{End, Failure, Noted, RequestKind, SessionEnd};

use draw::{Draw, Salt};
use waiting::Told;

/// Time a page gives a request for the status document. The visitor does not look at it, so patience has no
/// part in it.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);
/// Values of `{n}` in a path.
const PATH_NUMBERS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Sends a request at this time, never before now.
    Send(Duration),
    Leave(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaction {
    pub noted: Noted,
    pub next: Next,
    /// In a closed loop of sessions: how the present one ended, if it did.
    pub session: Option<SessionEnd>,
}

impl Reaction {
    fn new(noted: Noted, next: Next) -> Self {
        Self { noted, next, session: None }
    }
}

/// One visitor. Times count from the start of the run, in whole microseconds, and in milliseconds from the
/// step's beginning where they are only plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visitor {
    seed: u64,
    /// When the request now under way, or to come, is meant to be sent.
    at_us: u64,
    since_us: u64,
    kind: u32,
    /// When the visitor first had to wait in this step.
    told_ms: u32,
    /// The announced wait; 0: none.
    wait_ms: u32,
    /// When to go on waiting after a detour.
    resume_ms: u32,
    /// Outcomes received, so that each draw of a pause differs.
    turn: u16,
    step: u8,
    failures: u8,
    misses: u8,
    flags: u8,
    ask: RequestKind,
    /// In a session of a closed loop: some answer was late, or some request failed.
    is_slow: bool,
}

const _: () = assert!(size_of::<Visitor>() <= 48, "a million of them wait at once");

/// Holds a position in a waiting room.
const IN_ROOM: u8 = 1;
/// Had to come later in this step.
const TOLD: u8 = 1 << 1;
/// The request for the page is the one before the visitor's turn.
const PREMATURE: u8 = 1 << 2;
/// After a detour comes a request for the status document, not for the page.
const RESUME_POLL: u8 = 1 << 3;
/// Each of these is done at most once a visit.
const WAS_EARLY: u8 = 1 << 4;
const WAS_LATE: u8 = 1 << 5;
const TAMPERED: u8 = 1 << 6;
const REPLAYED: u8 = 1 << 7;

impl Visitor {
    /// A visitor who arrives at `person.at` and then asks for the first step's page; in a closed loop whose
    /// steps are drawn, for any.
    pub fn new(person: Person, mix: &VisitorMix) -> Self {
        let at_us = micros_up(person.at);
        let mut visitor = Self {
            seed: person.seed,
            at_us,
            since_us: at_us,
            kind: person.kind,
            told_ms: 0,
            wait_ms: 0,
            resume_ms: 0,
            turn: 0,
            step: 0,
            failures: 0,
            misses: 0,
            flags: 0,
            ask: RequestKind::Page,
            is_slow: false,
        };
        visitor.step = visitor.drawn_step(visitor.kind_in(mix)).unwrap_or(0);
        visitor
    }

    pub fn kind(&self) -> u32 {
        self.kind
    }

    pub fn ask(&self) -> RequestKind {
        self.ask
    }

    /// Index of the step of the session, from 0.
    pub fn step(&self) -> u8 {
        self.step
    }

    /// When the request is meant to be sent.
    pub fn at(&self) -> Duration {
        Duration::from_micros(self.at_us)
    }

    /// Whether the visitor holds a position in a waiting room and has not been served yet.
    pub fn in_room(&self) -> bool {
        self.has(IN_ROOM)
    }

    pub fn gives_up_at(&self, mix: &VisitorMix) -> Duration {
        let patience = match self.ask {
            RequestKind::Status => STATUS_TIMEOUT,
            _ => self.sample(&self.kind_in(mix).patience, Salt::Patience, 0),
        };
        self.at().saturating_add(patience)
    }

    /// How long it waits at most, from the step's beginning.
    pub fn wait_limit(&self, mix: &VisitorMix) -> Duration {
        self.sample(&self.kind_in(mix).wait_limit, Salt::WaitLimit, 0)
    }

    /// The number that `{n}` in the step's path stands for, 0 to 999,999: the same in every request of the
    /// step. Also tells which character of a ticket is altered.
    pub fn path_number(&self) -> u32 {
        (rand::RngCore::next_u64(&mut self.draw(Salt::Path, u16::from(self.step))) % PATH_NUMBERS) as u32
    }

    pub fn receive(&mut self, mix: &VisitorMix, outcome: Result<Answer, Failure>, now: Duration) -> Reaction {
        let kind = self.kind_in(mix);
        if !self.has(PREMATURE) && matches!(self.ask, RequestKind::Page | RequestKind::Status) {
            // Detours and attacks change nothing else: not even when the page asks next.
            self.turn = self.turn.wrapping_add(1);
        }
        let reaction = match self.ask {
            RequestKind::Page => self.asked_for_the_page(kind, outcome, now),
            RequestKind::Status => match outcome {
                Ok(Answer::Status(status)) => {
                    Reaction::new(Noted::Nothing, self.told_status(kind, status, now))
                }
                Ok(_) => self.missed(kind, Failure::Refused, now),
                Err(failure) => self.missed(kind, failure, now),
            },
            RequestKind::Tampered | RequestKind::Replayed => {
                let noted = match outcome {
                    Ok(answer) => judge_attack(answer),
                    Err(failure) => Noted::Failed(failure),
                };
                Reaction::new(noted, self.after_attack(kind, now))
            }
        };
        self.in_the_round(kind, reaction, now)
    }

    /// The planned attack is not possible, since the visitor holds no ticket: plans the next request instead.
    pub fn skip_attack(&mut self, mix: &VisitorMix, now: Duration) -> Reaction {
        let kind = self.kind_in(mix);
        assert!(
            matches!(self.ask, RequestKind::Tampered | RequestKind::Replayed),
            "asked for {:?}",
            self.ask
        );
        let reaction = Reaction::new(Noted::Nothing, self.after_attack(kind, now));
        self.in_the_round(kind, reaction, now)
    }

    fn asked_for_the_page(
        &mut self,
        kind: &Kind,
        outcome: Result<Answer, Failure>,
        now: Duration,
    ) -> Reaction {
        let premature = self.has(PREMATURE);
        self.set(PREMATURE, false);
        let failure = match outcome {
            Ok(Answer::Served) => return self.served(kind, now),
            // The position is kept: the first tab goes on.
            Ok(Answer::Wait { .. } | Answer::TurnedAway { .. }) if premature => {
                return Reaction::new(Noted::Nothing, self.resume(kind, now));
            }
            Ok(Answer::Wait { has_status, after, refresh, poll, full }) => {
                let told = Told { has_status, after, refresh, poll, full };
                return self.told_to_wait(kind, told, now);
            }
            // A browser's page tries again by itself; a client of a closed loop has been refused its session.
            Ok(Answer::TurnedAway { after, refresh }) if kind.sessions.is_none() => {
                let told = Told { has_status: false, after, refresh, poll: None, full: true };
                return self.told_to_wait(kind, told, now);
            }
            Ok(Answer::Status(_) | Answer::Refused(_) | Answer::TurnedAway { .. }) => Failure::Refused,
            Err(failure) => failure,
        };
        let next = if premature { self.resume(kind, now) } else { self.failed(kind, failure, now) };
        Reaction::new(Noted::Failed(failure), next)
    }

    fn served(&mut self, kind: &Kind, now: Duration) -> Reaction {
        let (entered, since) = (self.at(), self.since());
        let noted = Noted::Served {
            step: self.step,
            entered,
            response: now.saturating_sub(entered),
            waited: self.has(TOLD).then(|| entered.saturating_sub(since)),
            waited_since: since,
        };
        let had_place = self.has(IN_ROOM);
        self.set(IN_ROOM | TOLD, false);
        let again = had_place && !self.has(REPLAYED) && self.draw(Salt::Replay, 0).chance(kind.replay);
        let next = if again {
            self.set(REPLAYED, true);
            self.send(RequestKind::Replayed, now)
        } else {
            self.next_step(kind, now)
        };
        Reaction::new(noted, next)
    }

    fn next_step(&mut self, kind: &Kind, now: Duration) -> Next {
        let think = kind.steps.get(usize::from(self.step)).map(|step| step.think);
        match self.step.checked_add(1) {
            Some(step) if usize::from(step) < kind.steps.len() && kind.has_next_step() => {
                let think = think.unwrap_or(Dist::Fixed(0.0));
                let at = now.saturating_add(self.sample(&think, Salt::Think, u16::from(self.step)));
                self.step = step;
                self.since_us = micros_up(at);
                (self.told_ms, self.wait_ms, self.failures, self.misses) = (0, 0, 0, 0);
                self.send(RequestKind::Page, at)
            }
            _ => Next::Leave(End::Done),
        }
    }

    fn failed(&mut self, kind: &Kind, failure: Failure, now: Duration) -> Next {
        if self.failures >= kind.retries {
            return Next::Leave(End::Failed(failure));
        }
        self.failures += 1;
        let at = now.saturating_add(self.sample(&kind.pause, Salt::Pause, self.turn));
        if self.is_too_long(kind, at) {
            return Next::Leave(End::Tired);
        }
        self.send(RequestKind::Page, at)
    }

    fn after_attack(&mut self, kind: &Kind, now: Duration) -> Next {
        if self.ask == RequestKind::Tampered { self.resume(kind, now) } else { self.next_step(kind, now) }
    }

    fn send(&mut self, ask: RequestKind, at: Duration) -> Next {
        self.ask = ask;
        self.at_us = micros_up(at);
        Next::Send(self.at())
    }

    fn since(&self) -> Duration {
        Duration::from_micros(self.since_us)
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn set(&mut self, flags: u8, on: bool) {
        if on { self.flags |= flags } else { self.flags &= !flags }
    }

    fn draw(&self, salt: Salt, turn: u16) -> Draw {
        Draw::new(self.seed, salt, turn)
    }

    fn sample(&self, dist: &Dist, salt: Salt, turn: u16) -> Duration {
        dist.sample(&mut self.draw(salt, turn))
    }

    /// Uniform in 0..1, another with every outcome.
    fn jitter(&self) -> f64 {
        self.draw(Salt::Jitter, self.turn).unit()
    }

    fn kind_in<'c>(&self, mix: &'c VisitorMix) -> &'c Kind {
        &mix.kinds[self.kind as usize]
    }
}

/// What the answer to an attack proves. The page itself proves that the attacker was let in. That a check was
/// missing, and not that nobody waited, follows because a gate in one process answers both kinds of ticket
/// with 403 and 409 even when nobody waits. Split into tokengen and tokencheck it sends a used ticket on with
/// a new one if there is room, and no visitor can tell whether others would have had to wait: a redirect
/// proves nothing.
fn judge_attack(answer: Answer) -> Noted {
    match answer {
        Answer::Served => Noted::Attack { repelled: false },
        Answer::Wait { .. } | Answer::TurnedAway { .. } | Answer::Refused(403 | 409 | 429) => {
            Noted::Attack { repelled: true }
        }
        Answer::Refused(300..=399) => Noted::Nothing,
        // An error of the service behind the gate, perhaps.
        Answer::Refused(_) | Answer::Status(_) => Noted::Failed(Failure::Refused),
    }
}

/// Whole milliseconds, rounded up; 49 days at most.
fn whole_millis(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}
