//! What the origin's replicas send: answers, heads of long answers, errors.
//!
//! A long answer gives its in-flight slot at the gate back a while after its head, as in the gateway. Its
//! response time at the origin is the time to its head.

use std::time::Duration;

use tidegate_core::gate::{STREAM_AFTER, Served};
use tidegate_core::measure::Outcome;

use super::request::{generation, identity, slot};
use super::trace::What;
use super::world::{Item, World};
use crate::answer::Answer;
use crate::model::{Done, Part};
use crate::times::micros_up;

impl World<'_> {
    pub(crate) fn served(&mut self, replica: usize, done: Done) {
        let now = Duration::from_micros(self.now_us);
        let request = self.requests.get_mut(slot(done.id)).filter(|r| r.generation == generation(done.id));
        let (Some(request), false) = (request, done.wasted) else {
            self.trace.step(self.now_us, What::Wasted, slot(done.id), replica as u64);
            return self.tally.origin_lost(now);
        };
        let what = match done.part {
            Part::Whole | Part::Rest => What::Done,
            Part::Head { .. } => What::Head,
            Part::Error => What::Error,
        };
        self.trace.step(self.now_us, what, request.client, replica as u64);
        if request.has_left {
            return self.answered_nobody(done.id, done.part != Part::Error);
        }
        if request.head_us.is_none()
            && let Some(process) = self.processes.last()
        {
            process.shard.leaves(request.class, request.arrived);
        }
        let head_us = *request.head_us.get_or_insert(self.now_us);
        let (took_us, path, cost) = (head_us - request.sent_us, request.path as usize, request.cost);
        if done.part != Part::Rest
            && let Some(flight) = request.at.as_ref().and_then(|at| at.flight.as_ref())
        {
            self.replicas.succeeded(flight.replica());
        }
        match done.part {
            Part::Head { .. } => {
                let (slot, generation) = (slot(done.id), generation(done.id));
                self.agenda.push(self.now_us + micros_up(STREAM_AFTER), Item::Stream { slot, generation });
            }
            Part::Whole | Part::Rest => {
                self.tally.origin_served(now, Duration::from_micros(took_us));
                if let Some(record) = &mut self.record {
                    record.answered(self.now_us, took_us, cost);
                }
                self.ended_at_origin(done.id, Outcome::Served, Ok(Answer::Served));
            }
            Part::Error => {
                self.tally.origin_lost(now);
                let status = self.scenario.origin.paths[path].errors.status;
                self.ended_at_origin(done.id, Outcome::OriginError, Ok(Answer::Refused(status)));
            }
        }
    }
    /// An answer is still under way long after its head.
    pub(crate) fn goes_on_streaming(&mut self, at: u32, generation: u32) {
        let request = self.requests.get_mut(at).filter(|r| r.generation == generation && r.at.is_some());
        let (Some(request), Some(process)) = (request, self.processes.last_mut()) else { return };
        let Some(head_us) = request.head_us.filter(|_| !request.streams) else { return };
        request.streams = true;
        self.streaming += 1;
        let (sent, in_flight) = (process.now(request.sent_us), request.in_flight);
        let served = Served { sent, in_flight, ok: true };
        let (head, now) = (process.now(head_us), process.now(self.now_us));
        process.gate.answered(request.lane, now);
        process.gate.stream(request.class, request.cost, &served, head, now);
        self.oracle.finished(identity(at, generation));
        self.wake();
    }
}
