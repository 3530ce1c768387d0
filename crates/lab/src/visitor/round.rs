//! A browser of a closed loop: page after page until the end.
//!
//! Each page is a life of its own: what the visitor is like and thinks is drawn anew, from a seed that follows from the last
//! page's. So a browser asks for the same pages and thinks for the same times whatever the service makes of it, over
//! sockets and in virtual time: two runs of one scenario differ in when, not in what.

use std::time::Duration;

use super::draw::Salt;
use super::{Ask, End, Next, Reaction, Visitor, micros};
use crate::scenario::Kind;

impl Visitor {
    /// What a reaction is in a closed loop: nobody leaves before its end, and nobody asks after it.
    pub(super) fn in_the_round(&mut self, kind: &Kind, reaction: Reaction, now: Duration) -> Reaction {
        let Some(until) = kind.until else { return reaction };
        let next = match reaction.next {
            Next::Leave(_) if now < until => self.next_round(kind, now),
            next => next,
        };
        let next = match next {
            Next::Send(at) if at >= until => Next::Leave(End::Done),
            Next::Leave(_) => Next::Leave(End::Done),
            next => next,
        };
        Reaction { next, ..reaction }
    }

    /// Thinks, and then asks for another page: by weight, or the next in order.
    fn next_round(&mut self, kind: &Kind, now: Duration) -> Next {
        let think = self.sample(&kind.steps[usize::from(self.step)].think, Salt::Think, 0);
        let at = now.saturating_add(think);
        self.seed = self.next_seed();
        let in_order = (usize::from(self.step) + 1) % kind.steps.len();
        self.step = self.drawn_step(kind).unwrap_or(in_order as u8);
        self.since_us = micros(at);
        (self.told_ms, self.wait_ms, self.resume_ms) = (0, 0, 0);
        (self.turn, self.failures, self.misses, self.flags) = (0, 0, 0, 0);
        self.send(Ask::Page, at)
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
        // Rounding may leave a hair: it is the last's that is drawn at all.
        let last = || kind.requests().collect::<Vec<_>>().iter().rposition(|(weight, _)| *weight > 0.0);
        chosen.or_else(last).map(|step| step as u8)
    }

    fn next_seed(&self) -> u64 {
        rand::RngCore::next_u64(&mut self.draw(Salt::Round, 0))
    }
}
