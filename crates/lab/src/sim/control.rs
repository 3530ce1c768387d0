//! The control side: ticks, reports between the processes, faults.

use std::time::Duration;

use tidegate_core::admission::Admission;
use tidegate_core::control::TICK;
use tidegate_core::gate::Woken;
use tidegate_core::room::{Feedback, REPORT_EVERY};
use tidegate_core::units::Rate;
use tidegate_gateway::upstream::balance::Replicas;
use tidegate_gateway::upstream::dispatch::budget::Budget;

use super::SimError;
use super::trace::What;
use super::world::{Item, World};
use crate::scenario::FaultKind;
use crate::times::micros_up;
use crate::visitor_events::Failure;

impl World<'_> {
    pub(crate) fn tick(&mut self, process: usize) {
        self.agenda.push(self.now_us + micros_up(TICK), Item::Tick(process as u8));
        if self.gate_is_down() {
            return;
        }
        self.trace.step(self.now_us, What::Tick, 0, process as u64);
        let usable = !self.processes[process].forwards() || self.replicas.any_usable_at(|| self.now_us);
        let most_in_flight = self.replicas.in_flight_limit_at(|| self.now_us);
        let late = self.processes[process].tick(self.now_us, usable, most_in_flight);
        self.oracle.ticked(process, &self.processes[process], self.now_us);
        for (Woken { id, .. }, reason) in late {
            self.refused_in_queue(id, reason);
        }
        self.tally_capacity();
        if process + 1 == self.processes.len() {
            self.silent_too_long();
            self.wake();
        }
    }

    /// Passes the estimate of the estimating process, and the limits of the forwarding process, to the tally.
    pub(crate) fn tally_capacity(&mut self) {
        if let (Some(first), Some(last)) = (self.processes.first(), self.processes.last()) {
            let believed = first.believed;
            let known = if believed < Rate::MAX { believed.get() } else { 0.0 };
            self.tally.capacity(Duration::from_micros(self.now_us), known, last.gate.limit());
            if let Some(record) = &mut self.record {
                record.believes(self.now_us, believed, last.gate.limit());
                if let Some(sessions) = &last.sessions {
                    record.sessions(self.now_us, &sessions.state(), &last.gate.totals());
                }
            }
        }
    }

    /// Tokencheck reports to tokengen, which answers with a control update.
    pub(crate) fn report(&mut self) {
        self.agenda.push(self.now_us + micros_up(REPORT_EVERY), Item::Feedback);
        let [generator, checker] = &self.processes[..] else { return };
        if self.gate_is_down() {
            return;
        }
        let now = checker.now(self.now_us);
        let (Some(room), Admission::Checker { checker: tickets, capacity }) =
            (generator.admission.room(), &checker.admission)
        else {
            return;
        };
        self.unsent.merge(tickets.report(&checker.gate.totals(), now));
        self.trace.step(self.now_us, What::Feedback, 0, u64::from(!self.reports_lost));
        self.oracle.reported(!self.reports_lost);
        if self.reports_lost {
            return;
        }
        let update = room.feedback(&std::mem::take(&mut self.unsent));
        tickets.follow(update, now);
        tickets.follow_costs(room.costs().learned());
        *capacity.lock().unwrap_or_else(|e| e.into_inner()) = update.capacity;
    }

    pub(crate) fn fault(&mut self, i: u16) -> Result<(), SimError> {
        let fault = self.scenario.faults[usize::from(i)];
        self.trace.step(self.now_us, What::Fault, 0, u64::from(i));
        self.disturbed(fault.what);
        match fault.what {
            FaultKind::Crash { replica } => {
                for id in self.pool.crash(replica as usize, self.now_us) {
                    self.lost(id);
                }
            }
            FaultKind::Slow { replica, factor } => self.pool.slow(replica as usize, factor, self.now_us),
            FaultKind::Drift { seconds } => self.drift(seconds)?,
            FaultKind::NoFeedback => self.reports_lost = true,
            FaultKind::Restart => self.killed(),
        }
        if fault.lasts < Duration::MAX {
            self.agenda.push(self.now_us.saturating_add(micros_up(fault.lasts)), Item::Mend(i));
        } else if matches!(fault.what, FaultKind::Restart) {
            self.mend(i)?;
        }
        Ok(())
    }

    fn disturbed(&mut self, what: FaultKind) {
        match what {
            FaultKind::NoFeedback => self.oracle.link_changed(self.now_us),
            _ => self.oracle.disturbed(self.now_us),
        }
    }

    pub(crate) fn mend(&mut self, i: u16) -> Result<(), SimError> {
        self.trace.step(self.now_us, What::Mended, 0, u64::from(i));
        let what = self.scenario.faults[usize::from(i)].what;
        self.disturbed(what);
        match what {
            FaultKind::Crash { replica } => self.pool.revive(replica as usize),
            FaultKind::Slow { replica, .. } => self.pool.slow(replica as usize, 1.0, self.now_us),
            FaultKind::Drift { .. } => self.drift(0.0)?,
            FaultKind::NoFeedback => self.reports_lost = false,
            FaultKind::Restart => {
                self.restarts -= 1;
                if self.gate_is_down() {
                    return Ok(());
                }
                let mut clock_jump = Duration::ZERO;
                for process in &mut self.processes {
                    clock_jump = clock_jump.max(process.restart(&self.key, self.now_us)?);
                }
                let origin =
                    self.processes.last().map(|h| h.config.settings.origin.clone()).unwrap_or_default();
                self.replicas = Replicas::new(&origin);
                self.budget = Budget::new(origin.retry_budget, self.began);
                self.unsent = Feedback::default();
                self.oracle.restarted(clock_jump, self.now_us);
            }
        }
        Ok(())
    }

    /// Tokencheck's host has a wrong clock. One that is wrong from the start is believed; later the gateway's
    /// clock follows slowly.
    fn drift(&mut self, seconds: f64) -> Result<(), SimError> {
        if let [_, checker] = &mut self.processes[..] {
            checker.clock.drift(seconds);
            if self.now_us == 0 {
                checker.restart(&self.key, 0)?;
            }
        }
        Ok(())
    }

    /// The gate's processes are killed: connections break, the origin is left with what it has.
    pub(crate) fn killed(&mut self) {
        self.restarts += 1;
        for at in self.requests.numbers() {
            self.leave_origin(at);
            let Some(request) = self.requests.remove(at) else { continue };
            if !request.is_part && !request.has_left {
                self.reply(request.client, Err(Failure::Broken));
            }
        }
        self.sent.clear();
        self.egress_us = None;
        self.streaming = 0;
        self.oracle.killed();
    }
}
