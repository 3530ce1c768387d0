//! A finer record of a run, kept if asked for: a figure such as the settle time of an estimator needs more
//! than a row per second.

use tidegate_core::gate::Totals;
use tidegate_core::session::SessionsState;
use tidegate_core::units::{Cost, Rate};

/// The gate's estimate and limits from a tick on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Believed {
    pub at_us: u64,
    /// The origin's capacity, in cost units per second; `None`: unknown.
    pub capacity: Option<f64>,
    /// Requests at the origin at once; `None`: no limit.
    pub limit: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    pub at_us: u64,
    pub took_us: u32,
    /// Its cost, in the gate's units.
    pub cost: Cost,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionsAt {
    pub at_us: u64,
    /// Everybody's session slots that are taken.
    pub open: u32,
    /// Everybody's session slots; `None`: no bound.
    pub cap: Option<u32>,
    /// No slot is given at present.
    pub is_held: bool,
    /// The cap as a multiple of Little's law.
    pub correction: f64,
    /// Sessions turned away since the start.
    pub refused: u64,
    /// Work of admitted sessions that waits at the gate.
    pub queued: Cost,
}

/// All of it, in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// At the start and on every control tick.
    pub believed: Vec<Believed>,
    pub answered: Vec<Answered>,
    /// On every control tick, where sessions are counted.
    pub sessions: Vec<SessionsAt>,
}

impl Record {
    pub(super) fn believes(&mut self, at_us: u64, capacity: Rate, limit: Option<u32>) {
        let capacity = (capacity < Rate::MAX).then_some(capacity.get());
        self.believed.push(Believed { at_us, capacity, limit });
    }

    pub(super) fn sessions(&mut self, at_us: u64, state: &SessionsState, gate: &Totals) {
        let Some(everybody) = state.pools.first() else { return };
        let (open, cap, queued) = (everybody.open, everybody.cap, gate.admitted_cost);
        let SessionsState { is_held, correction, refused, .. } = *state;
        self.sessions.push(SessionsAt { at_us, open, cap, is_held, correction, refused, queued });
    }

    pub(super) fn answered(&mut self, at_us: u64, took_us: u64, cost: Cost) {
        let took_us = u32::try_from(took_us).unwrap_or(u32::MAX);
        self.answered.push(Answered { at_us, took_us, cost });
    }
}
