//! What a replica has to do next, and when.
//!
//! Work of servers is ordered by work instants, finer than a microsecond; what is bound to time (the end of a stream, the
//! weather) comes after the work due in the same microsecond, so that a pause does not hold what was over when it began.

use std::cmp::Reverse;

use super::share::Shared;
use super::{Done, Model, NEVER};

/// What is due.
#[derive(Clone, Copy)]
pub(super) enum Due {
    /// The first of `ends`: work instant and slot.
    Server(u64, u32),
    /// The first of those who share this stage.
    Shared(u32),
    /// The first of `streams`.
    Stream,
    /// A spell begins or ends.
    Weather,
}

impl Model {
    /// What is due next, and when, in microseconds.
    pub(super) fn due(&self) -> Option<(u64, Due)> {
        let mut work = NEVER;
        let mut due = Due::Weather;
        if let Some(&Reverse((ends, _, slot))) = self.ends.peek() {
            (work, due) = (ends, Due::Server(ends, slot));
        }
        for index in &self.sharing {
            let shared = self.stages[*index as usize].shared.as_ref().map_or(NEVER, Shared::due);
            if shared < work {
                (work, due) = (shared, Due::Shared(*index));
            }
        }
        // What came while servers stood still may seem to be over before.
        let mut at_us = if work == NEVER { u64::MAX } else { self.pace.time(work).max(self.now_us) };
        if let Some(Reverse((ends_us, ..))) = self.streams.peek()
            && *ends_us < at_us
        {
            (at_us, due) = (*ends_us, Due::Stream);
        }
        // Without work that ends, the weather is nobody's business.
        if work < NEVER && self.weather_us() < at_us {
            (at_us, due) = (self.weather_us(), Due::Weather);
        }
        (at_us < u64::MAX).then_some((at_us, due))
    }

    /// [`Model::advance`] where nothing but servers makes anything due.
    pub(super) fn advance_servers(&mut self, now_us: u64, done: &mut impl FnMut(Done)) {
        while let Some(&Reverse((work, _, slot))) = self.ends.peek() {
            let at_us = self.pace.time(work);
            if at_us > now_us || at_us == u64::MAX {
                break;
            }
            self.end_of_server(work, slot, at_us, done);
        }
    }
}
