//! A browser of a closed loop: page after page, or session after session, until the end.
//!
//! For each page, or session, traits and think times are drawn anew, from a seed that follows from the last
//! page's. So a browser asks for the same pages and thinks for the same times however the service answers,
//! over sockets and in virtual time. Two runs of one scenario differ in the times of requests, not in their
//! kinds.

use std::time::Duration;

use super::draw::Salt;
use super::{End, Next, Noted, Reaction, RequestKind, SessionEnd, Visitor};
use crate::scenario::Kind;
use crate::times::micros_up;

impl Visitor {
    /// Adapts a reaction to the closed loop: nobody leaves before its end, and nobody asks after it.
    pub(super) fn in_the_round(&mut self, kind: &Kind, reaction: Reaction, now: Duration) -> Reaction {
        let Some(until) = kind.until else { return reaction };
        let session = self.session_after(kind, &reaction);
        let next = match reaction.next {
            Next::Leave(_) if now < until => self.next_round(kind, now),
            next => next,
        };
        let next = match next {
            Next::Send(at) if at >= until => Next::Leave(End::Done),
            Next::Leave(_) => Next::Leave(End::Done),
            next => next,
        };
        Reaction { next, session, ..reaction }
    }

    /// How the session ended, if it did: with the last step, or because the visitor would leave.
    fn session_after(&mut self, kind: &Kind, reaction: &Reaction) -> Option<SessionEnd> {
        let rounds = kind.sessions?;
        self.is_slow |= match reaction.noted {
            Noted::Served { response, .. } => response >= rounds.good_under,
            Noted::Failed(_) => self.ask == RequestKind::Page,
            _ => false,
        };
        match reaction.next {
            Next::Send(_) => None,
            Next::Leave(End::Done) if self.is_slow => Some(SessionEnd::Slow),
            Next::Leave(End::Done) => Some(SessionEnd::Good),
            Next::Leave(_) if self.step > 0 => Some(SessionEnd::Broken),
            Next::Leave(_) => Some(SessionEnd::TurnedAway),
        }
    }

    /// Thinks, and then asks for another page: by weight, or the next in order. After a session: pauses, and
    /// begins another.
    fn next_round(&mut self, kind: &Kind, now: Duration) -> Next {
        let pause = match &kind.sessions {
            Some(rounds) => self.sample(&rounds.pause, Salt::Rest, 0),
            None => self.sample(&kind.steps[usize::from(self.step)].think, Salt::Think, 0),
        };
        let at = now.saturating_add(pause);
        self.seed = self.next_seed();
        let in_order =
            if kind.sessions.is_some() { 0 } else { (usize::from(self.step) + 1) % kind.steps.len() };
        self.step = self.drawn_step(kind).unwrap_or(in_order as u8);
        self.is_slow = false;
        self.since_us = micros_up(at);
        (self.told_ms, self.wait_ms, self.resume_ms) = (0, 0, 0);
        (self.turn, self.failures, self.misses, self.flags) = (0, 0, 0, 0);
        self.send(RequestKind::Page, at)
    }

    /// The page asked for, where pages are drawn.
    pub(super) fn drawn_step(&self, kind: &Kind) -> Option<u8> {
        if kind.until.is_none() || kind.steps.iter().all(|step| step.weight.is_none()) {
            return None;
        }
        let all: f64 = kind.requests().map(|(weight, _)| weight).sum();
        let mut left = self.draw(Salt::Step, 0).unit() * all;
        let chosen = kind.requests().position(|(weight, _)| {
            left -= weight;
            left < 0.0
        });
        // Rounding may leave a small rest: it belongs to the last page that can be drawn.
        let last = || kind.requests().collect::<Vec<_>>().iter().rposition(|(weight, _)| *weight > 0.0);
        chosen.or_else(last).map(|step| step as u8)
    }

    fn next_seed(&self) -> u64 {
        rand::RngCore::next_u64(&mut self.draw(Salt::Round, 0))
    }
}
