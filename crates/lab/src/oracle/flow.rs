//! How far admitted work may run ahead of the capacity.
//!
//! The account is a bucket that leaks at the capacity in force: every entry the room permits adds its work,
//! time takes it off, and what is left is the *lead*. Work let in during any interval of length T is then at
//! most `C T + lead`. The bound on the lead, in seconds of capacity, follows from the core's own rules
//! (`room/ticket_admission.rs`, `virtual_clock.rs`, `room.rs`):
//!
//! ```text
//!   2 s                  a ticket on time is let in while the backlog is at most BEHIND_S
//! + mean                 and one average visitor
//! + floor                the backlog counts spare time, down to one burst (tokencheck: a second)
//! + 2 bursts             newcomers enter whatever the backlog is, within a burst either side of the virtual
//!                        clock
//! + 1 s * overbooking    and at most a second's promises before the next tick has slowed that clock
//!   (1.5 s)              tokengen: it hears of entries half a second late
//! + the dearest visitor  which is let in whole
//! ```
//!
//! Tier 2 may have to absorb that much when all visitors who were expected to stay away come at once. Where
//! nobody stays away, is late or bypasses the room, nothing goes wrong and the capacity has not fallen, only
//! the bursts and the control loop's swing are left: `CALM_S` instead of the first and the fifth line.
//!
//! Where an estimator's in-flight limit decides what the origin does, the capacity bounds nothing: all this
//! holds of the ceiling, which is then the operator's, if there is one. Visitors of the room may not fill the
//! gate's queue beyond
//!
//! ```text
//!   2 s                  of what the origin takes: the capacity in force, or what it was seen to take in
//!                        one of the last ten seconds, times `PEAK`
//! + target               the queue aimed at (`queue_target.rs`): 0.1 s, a deviation of a second's visitors,
//!                        half of one
//! + 2 bursts             newcomers who enter at once
//! + the dearest visitor
//! ```
//!
//! as it was when they entered, without bypass traffic.
//!
//! Tier 2 may send to the origin in one second what it held back before. So in any second at most `C * 1 s +
//! lead bound + what was queued when it began` may pass.

use std::time::Duration;

use tidegate_core::units::{Cost, Rate};

use super::{Entry, Finding, require};
use crate::dist::Dist;
use crate::scenario::{Arrivals, Follow, Kind, Scenario};
use crate::sim::process::GateProcess;

/// `BEHIND_S` of the core's ticket admission.
const BEHIND_S: f64 = 2.0;
/// Swing of the virtual clock's control loop where everybody comes at the announced time: pages ask within
/// 0.3 s of their turn, the loop's gain is 0.7/s and it acts ten times a second.
const CALM_S: f64 = 0.5;
/// The gate's exponential average of what the origin takes, with a memory of 2 s, over the most that it takes
/// in a second: if each second's work `w` leaves at once, the average is `w / 2 s` after it and decays by
/// `exp(-1/2)` until the next, so its peak is `w / 2 / (1 - exp(-1/2))`.
const PEAK: f64 = 1.271;
/// Tokencheck reports this often.
const REPORTS_S: f64 = 0.5;

#[derive(Default)]
pub(super) struct Flow {
    lead: f64,
    at_us: u64,
    /// Largest lead, in seconds.
    highest_s: f64,
    bound_s: f64,
    /// Work sent to the origin in this second, the highest capacity in force during it, and the work queued
    /// when it began.
    door: Cost,
    most: Rate,
    capacity: Rate,
    queued: Cost,
    /// The dearest class.
    largest: f64,
    is_calm_by_nature: bool,
    burst_s: f64,
    overbook: f64,
    last: usize,
    /// Work sent to the origin in each of the last seconds.
    seen: [f64; 10],
    /// Bypass traffic of the last seconds.
    unasked: [f64; 3],
}

impl Flow {
    pub(super) fn new(scenario: &Scenario, processes: &[GateProcess]) -> Self {
        let nothing = Self { capacity: Rate::MAX, overbook: 1.0, ..Self::default() };
        let Some(last) = processes.last() else { return nothing };
        let comes_when_told = |kind: &Kind| {
            let prompt = kind.no_show == 0.0 && kind.late == 0.0 && kind.tamper == 0.0 && kind.replay == 0.0;
            prompt && kind.wait_limit == Dist::Never && kind.follow == Follow::Page
        };
        let phases = matches!(scenario.arrivals, Arrivals::Phases { .. });
        let settings = &last.config.settings;
        Self {
            most: ceiling(last),
            capacity: ceiling(last),
            largest: last.dearest().units(),
            is_calm_by_nature: phases
                && processes.len() == 1
                && scenario.faults.is_empty()
                && scenario.origin.changes.is_empty()
                && scenario.visitors.iter().all(comes_when_told),
            burst_s: settings.room.burst.as_secs_f64(),
            overbook: settings.room.overbook_max.max(1.0),
            last: processes.len() - 1,
            ..nothing
        }
    }

    pub(super) fn lead(&self) -> (f64, f64) {
        (self.highest_s, self.bound_s)
    }

    /// The bound, in seconds of `capacity`. The burst is as the room has it: ten visitors at least, a second
    /// at most.
    fn bound_s(&self, capacity: f64, is_split: bool) -> f64 {
        let burst_s = self.burst_s.max((10.0 / capacity).min(1.0)).min(1.0);
        let one_s = self.largest / capacity;
        let floor_s = if is_split { 1.0 } else { burst_s };
        let blind_s = if is_split { 1.0 + REPORTS_S } else { 1.0 };
        let rest_s = if self.is_calm_by_nature { CALM_S } else { BEHIND_S + one_s + self.overbook * blind_s };
        rest_s + floor_s + 2.0 * burst_s + one_s
    }

    fn leak(&mut self, capacity: f64, now_us: u64) {
        let seconds = (now_us - self.at_us) as f64 / 1e6;
        self.lead = (self.lead - capacity * seconds).max(0.0);
        self.at_us = now_us;
    }

    pub(super) fn entered(&mut self, entry: &Entry, processes: &[GateProcess], now_us: u64) -> Finding {
        let Some(process) = processes.last() else { return Ok(()) };
        let capacity = ceiling(process);
        let cost = match entry {
            Entry::Ticket { ticket, .. } => ticket.cost,
            Entry::AtOnce { cost } => *cost,
            // Bypass traffic: the room did not decide it.
            Entry::Unasked { cost } => {
                self.queued += *cost;
                self.unasked[0] += cost.units();
                return Ok(());
            }
        };
        self.follow(process, now_us);
        self.queue(process)?;
        if capacity >= Rate::MAX || capacity == Rate::ZERO {
            self.lead = 0.0;
            return Ok(());
        }
        let capacity = capacity.get();
        self.leak(capacity, now_us);
        self.lead += cost.units();
        let lead_s = self.lead / capacity;
        self.highest_s = self.highest_s.max(lead_s);
        self.bound_s = self.bound_s(capacity, processes.len() == 2);
        let (lead, bound_s) = (self.lead, self.bound_s);
        if lead_s > bound_s {
            self.lead = 0.0;
        }
        require(lead_s <= bound_s, "capacity", || {
            format!(
                "{lead:.1} cost units were let in beyond {capacity} a second: {lead_s:.3} s, expected at \
                 most {bound_s:.3} s"
            )
        })
    }

    /// A visitor enters: the gate's queue must not be longer than the room allows.
    fn queue(&self, process: &GateProcess) -> Finding {
        let known = process.capacity().get().max(self.door.units());
        let takes = self.seen.iter().fold(known, |most, seen| most.max(PEAK * seen));
        let queued = process.gate.totals().queued_cost.units();
        let target = 0.1 * takes + (takes * self.largest).sqrt() + self.largest / 2.0;
        let bursts = 2.0 * takes * self.burst_s.max((10.0 / takes).min(1.0)).min(1.0);
        let most = BEHIND_S * takes + target + bursts + self.largest + self.unasked.iter().sum::<f64>();
        let phase = process.estimate.phase.name();
        require(queued <= most, "capacity", || {
            format!(
                "a visitor is let in although {queued:.1} cost units queue, expected at most {most:.1} \
                 ({phase})"
            )
        })
    }

    /// Admitted work never reached the origin, and may come again.
    pub(super) fn gave_back(&mut self, cost: Cost) {
        self.lead = (self.lead - cost.units()).max(0.0);
    }

    pub(super) fn sent(&mut self, cost: Cost) {
        self.door += cost;
    }

    pub(super) fn ticked(&mut self, process: usize, state: &GateProcess, now_us: u64) {
        if process == self.last {
            self.follow(state, now_us);
        }
    }

    /// The admitting process has another ceiling than before.
    fn follow(&mut self, state: &GateProcess, now_us: u64) {
        let capacity = ceiling(state);
        if self.capacity >= Rate::MAX {
            self.lead = 0.0;
            self.at_us = now_us;
        } else if capacity != self.capacity && self.capacity > Rate::ZERO {
            // The lead is kept in seconds when the capacity falls, and in work when it rises.
            self.leak(self.capacity.get(), now_us);
            self.lead *= (capacity.get() / self.capacity.get()).min(1.0);
            // Visitors admitted at the higher one are still in transit.
            self.is_calm_by_nature &= capacity > self.capacity;
        }
        self.largest = self.largest.max(state.dearest().units());
        self.capacity = capacity;
        self.most = if capacity > self.most { capacity } else { self.most };
    }

    pub(super) fn restarted(&mut self, now_us: u64) {
        self.lead = 0.0;
        self.at_us = now_us;
    }

    pub(super) fn second(&mut self, processes: &[GateProcess], is_calm: bool, now_us: u64) -> Finding {
        let Some(process) = processes.last() else { return Ok(()) };
        let door = std::mem::take(&mut self.door);
        self.seen.rotate_right(1);
        self.seen[0] = door.units();
        self.unasked = [0.0, self.unasked[0], self.unasked[1]];
        let queued = std::mem::replace(&mut self.queued, process.gate.totals().queued_cost);
        // An estimator may have lowered it within the second: what had passed by then, passed at the one
        // before.
        let last = ceiling(process);
        let most = std::mem::replace(&mut self.most, last);
        let capacity = if most > last { most } else { last };
        if capacity >= Rate::MAX || capacity == Rate::ZERO || !is_calm {
            return Ok(());
        }
        let bound_s = self.bound_s(capacity.get(), processes.len() == 2);
        let most = capacity.over(Duration::from_secs(1)).units() + bound_s * capacity.get() + queued.units();
        require(door.units() <= most, "capacity", || {
            let second = now_us / 1_000_000 - 1;
            format!(
                "{door} cost units reached the origin in second {second}, expected at most {most:.1} \
                 ({capacity:?}, queued {queued})"
            )
        })
    }
}

/// The bound on admitted work.
fn ceiling(process: &GateProcess) -> Rate {
    process.admission.targets().ceiling
}
