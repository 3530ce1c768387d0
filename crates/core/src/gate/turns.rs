//! Whose turn it is: keeps the schedulers of both lanes, the patience and the buckets true to the queues.

use super::class::{Class, ClassState};
use super::{Gate, Lane};
use crate::queue::Waiting;
use crate::scheduler::{Head, Scheduler};
use crate::units::{ClassId, Cost, Timestamp};

impl Gate {
    /// Whether somebody waits who may go, and goes before one who comes in that lane.
    pub(super) fn is_anybody_ready(&self, lane: Lane) -> bool {
        self.admitted.is_anybody_ready() || lane == Lane::Ordinary && self.scheduler.is_anybody_ready()
    }

    /// The class that is next.
    pub(super) fn pick(&mut self) -> Option<ClassId> {
        if self.admitted.is_anybody_ready() { self.admitted.pick() } else { self.scheduler.pick() }
    }

    pub(super) fn forward(&mut self, class: ClassId, cost: Cost, lane: Lane) {
        self.classes[class.index()].in_flight += 1;
        self.totals.in_flight += 1;
        self.totals.in_flight_cost += cost;
        self.totals.forwarded += 1;
        self.totals.forwarded_cost += cost;
        match lane {
            Lane::Ordinary => self.scheduler.charge(class, cost),
            Lane::Admitted => {
                self.admitted.charge(class, cost);
                self.scheduler.charge_aside(class, cost);
            }
        }
    }

    pub(super) fn leave_queue(&mut self, waiting: &Waiting, now: Timestamp) {
        let class = waiting.class.index();
        self.totals.queued -= 1;
        self.totals.queued_cost = self.totals.queued_cost - waiting.cost;
        self.classes[class].left(waiting);
        if self.classes[class].queue.is_empty() {
            self.occupied[class / 64] &= !(1 << (class % 64));
        }
        self.refresh(waiting.class, now);
    }

    /// Those whose bucket lets them pass by now may go.
    pub(super) fn unblock(&mut self, now: Timestamp) {
        while let Some((class, at)) = self.egress.first()
            && at <= u128::from(now.as_micros())
        {
            self.refresh(ClassId(class as u8), now);
        }
    }

    /// Something about a class has changed.
    pub(super) fn refresh(&mut self, class: ClassId, now: Timestamp) {
        let here = &mut self.classes[class.index()];
        let (mut egress, mut goes) = (None, None);
        let (mut held, mut admitted) = ((here.queue.len(), here.queued_cost), (0, Cost::ZERO));
        match here.standing(now) {
            ClassState::Ready(lane, head) => {
                held = (0, Cost::ZERO);
                admitted = (here.queue.len_of(Lane::Admitted), here.admitted_cost);
                goes = Some((lane, head));
            }
            ClassState::Later(at) => egress = Some(u128::from(at.as_micros())),
            ClassState::Empty | ClassState::Full => {}
        }
        set_ready(&mut self.scheduler, Lane::Ordinary, goes, here);
        // Most classes have no sessions most of the time.
        let has_admitted = here.queue.len_of(Lane::Admitted) > 0;
        if std::mem::replace(&mut here.had_admitted, has_admitted) || has_admitted {
            set_ready(&mut self.admitted, Lane::Admitted, goes, here);
            let before = std::mem::replace(&mut here.admitted, admitted);
            self.totals.admitted = self.totals.admitted + admitted.0 - before.0;
            self.totals.admitted_cost = (self.totals.admitted_cost + admitted.1).saturating_sub(before.1);
        }
        self.egress.set(class.index(), egress);
        let ends = here.patience_ends();
        self.patience.set(class.index(), ends.map(|at| u128::from(at.as_micros())));
        let before = std::mem::replace(&mut here.held, held);
        self.totals.held = self.totals.held + held.0 - before.0;
        self.totals.held_cost = (self.totals.held_cost + held.1).saturating_sub(before.1);
    }
}

/// Tells a lane's scheduler whether somebody of the class may go there: `goes` is who may, in whichever lane.
fn set_ready(scheduler: &mut Scheduler, lane: Lane, goes: Option<(Lane, Head)>, here: &Class) {
    match goes.filter(|(of, _)| *of == lane) {
        Some((_, head)) => scheduler.ready(here.id, head),
        None if here.queue.len_of(lane) == 0 => scheduler.emptied(here.id),
        None => scheduler.blocked(here.id),
    }
}
