//! The virtual clock's pace where the gate has an in-flight limit: a short queue is kept there.
//!
//! The limit decides what the origin does. The room's part is that the gate never runs dry while people wait,
//! and that they wait in the room, not at the gate. The estimated capacity does not help: too low, it is
//! never tested; too high, it would flood the queue. What counts is the queue and the work in transit to it.
//!
//! Requests of sessions under way do not count in it. They go before newcomers, and come in bursts: the parts
//! of a page. If they did, newcomers would not be admitted while such a burst waits, and one response time
//! later the gate, which admits pages evenly (`gate/pages.rs`), would have none to let through.
//!
//! ```text
//! v  = k F - A                   promised work per second that keeps the queue as it is
//! u  = (v + (Q* - Q + v T - P) / 1 s) / show-up ratio
//!                                promises admitted per second, 0 <= u <= 4 max(F, outflow)
//! P                              work in transit (`decaying.rs`)
//! F' = (D - F) / 1 s             while the origin is at its limit; else towards max(D, F, outflow)
//! k' = k r                       r = 0.05/s * clamp((Q* - Q) / Q*, -3, 1);
//!                                0.3/s while the origin could take more; 0 while that is tried out
//! Q*                             the queue to keep: `s` times that of `queue_target.rs`
//! s' = -0.01/s s                 the share of it that is needed: at least 1/2, and 1 after a tick in which
//!                                the origin had free slots and nobody queued
//! ```
//!
//! * `Q` work in the gate's queue, `D` work per second that left it for the origin, `A` of it bypass traffic;
//!   all three without requests of sessions under way. What the visitors in transit will ask for when they
//!   are sessions is in `A`.
//! * `T` 0.5 s: an admitted visitor comes within a second or so (a page asks, a connection is made).
//! * `s`: how unevenly visitors come is seen by the queue that runs dry. Pages are answered in their turn and
//!   come at once: half the queue is enough for them, and they wait half as long in it. Where visitors come
//!   late, the queue runs dry, and is kept whole for a while.
//! * `k` takes in what the show-up ratio does not know yet: between 1/2 and 4. While the capacity is searched
//!   for, the limit grows faster than visitors can come, and an origin that lacks them shows nothing about
//!   `k`: it went up to 3, and kept a queue three times too long for ten seconds after.
//!
//! Without `P` the loop is an integrator behind a delay of up to 1 s and must be slow (gain 0.4/s). With it
//! the gain margin at 1/s is 6 for a delay of 1 s and 1.4 for 2 s, so that late pages do no harm.
//!
//! Rejected: pacing at a multiple of the capacity (dry or full as soon as it is wrong); a base stock, which
//! admits one visitor for each that leaves (unstable as soon as visitors take longer than `T`); an integral
//! over the queue alone (14 s to notice that the capacity was estimated at half).

use crate::decaying::{InTransit, keep};
use crate::gate::Totals;
use crate::origin_flow::Sent;
use crate::queue_target::{SessionLoad, newcomers_target};
use crate::units::Cost;

/// Mean time from being admitted to being here (`T`), in seconds.
pub(super) const IN_TRANSIT_S: f64 = 0.5;
/// Time after which visitors come again who were asked to, in seconds.
const AGAIN_S: f64 = 1.0;
/// Time in which a wrong queue is set right, in seconds.
const SETTLE_S: f64 = 1.0;
/// Memory of the work per second that leaves the queue, in seconds.
const FLOW_MEMORY_S: f64 = 1.0;
/// Least share of the queue target that is kept, and its decay per second.
const LEAST_SHARE: f64 = 0.5;
const SHARE_DECAY: f64 = 0.01;
/// How fast the correction follows the queue, per second; and while the origin could take more.
const CORRECTION: f64 = 0.05;
const CORRECTION_STARVED: f64 = 0.3;
/// How far it may go: half, where far more come than are known to; four times, where a quarter of them do.
const CORRECTION_RANGE: std::ops::RangeInclusive<f64> = 0.5..=4.0;
/// Most work admitted per second, as a multiple of what is known to be possible.
const MAX_PACE: f64 = 4.0;

/// Inputs of a tick. Rates in cost units per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacingInputs {
    /// The rate to start from, without requests of sessions.
    pub(super) outflow: f64,
    pub(super) bypass: f64,
    /// Work of sessions under way, and of a newcomer's first page over that of its first request.
    pub(super) sessions: f64,
    pub(super) first_page_ratio: f64,
    /// The capacity is searched for, or the origin is probed with more.
    pub(super) is_searching: bool,
    /// Work of an average visitor, in cost units.
    pub(super) mean_cost: f64,
    pub(super) max_queued: f64,
    pub(super) show_up: f64,
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct QueuePacer {
    /// `F`.
    flow: f64,
    /// `k`.
    correction: f64,
    /// `s`.
    share: f64,
    /// `Q`, extrapolated from the last observation.
    queued: f64,
    /// Requests at the origin.
    in_flight: u32,
    /// `P`.
    in_transit: InTransit,
    /// Work that was asked to come again and has not yet.
    asked_again: InTransit,
    /// No one is admitted: the queue is too long, which shows nothing about `k`.
    has_stopped: bool,
    /// Some of those admitted were asked to come again: an idle origin does not lack admissions.
    is_deferring: bool,
    /// Session slots admit fewer than this controller would: the queue shows nothing about `k`.
    pub(super) is_overruled: bool,
}

impl QueuePacer {
    pub(super) fn new() -> Self {
        Self { correction: 1.0, share: LEAST_SHARE, ..Self::default() }
    }

    /// No one waits: what was learned does not apply to the next crowd.
    pub(super) fn reset(&mut self, outflow: f64) {
        self.flow = outflow;
        self.correction = 1.0;
    }

    /// Lets `dt_s` pass: visitors in transit come, and the origin takes.
    pub(super) fn pass(&mut self, dt_s: f64) {
        let came = self.in_transit.pass(dt_s, IN_TRANSIT_S);
        self.asked_again.pass(dt_s, AGAIN_S);
        self.queued = (self.queued + came - self.flow * dt_s).max(0.0);
    }

    /// The queue at the gate, while nobody waits.
    pub(super) fn see_queue(&mut self, gate: &Totals) {
        self.queued = gate.entering_cost.units();
    }

    /// Observes the gate, and what has left it since the last observation.
    pub(super) fn observe(&mut self, gate: &Totals, sent: &Sent, inputs: &PacingInputs) {
        (self.queued, self.in_flight) = (gate.entering_cost.units(), gate.in_flight);
        if self.flow == 0.0 {
            // The first observation of all, and a crowd was there before it.
            self.flow = inputs.outflow;
            return;
        }
        let Sent { entering, over_s, .. } = *sent;
        if over_s <= 0.0 {
            return;
        }
        // The origin could take more, and nobody waits at the gate for anything else.
        let is_starved = gate.has_room() && gate.queued == 0;
        let left = entering / over_s;
        let goal = if is_starved { left.max(self.flow).max(inputs.outflow) } else { left };
        self.flow += (goal - self.flow) * (1.0 - keep(over_s, FLOW_MEMORY_S));
        let lacks_queue = is_starved && !self.is_deferring && !self.is_overruled && !inputs.is_searching;
        self.share =
            if lacks_queue { 1.0 } else { self.share * (-SHARE_DECAY * over_s).exp() }.max(LEAST_SHARE);
        let rate = if self.is_overruled || inputs.is_searching {
            0.0
        } else if is_starved && !self.is_deferring {
            CORRECTION_STARVED
        } else if self.has_stopped {
            0.0
        } else {
            let target = self.queue_target(inputs);
            CORRECTION * ((target - self.queued) / target).clamp(-3.0, 1.0)
        };
        let (least, most) = (*CORRECTION_RANGE.start(), *CORRECTION_RANGE.end());
        self.correction = (self.correction * (rate * over_s).exp()).clamp(least, most);
    }

    fn queue_target(&self, inputs: &PacingInputs) -> f64 {
        let PacingInputs { sessions, first_page_ratio, mean_cost, max_queued, .. } = *inputs;
        let at_origin = f64::from(self.in_flight) * mean_cost;
        let load = SessionLoad { sessions, first_page_ratio, at_origin };
        self.share * newcomers_target(self.flow, &load, mean_cost, max_queued)
    }

    /// Promised work to admit per second (`u`).
    pub(super) fn pace(&mut self, inputs: &PacingInputs) -> f64 {
        let own = (self.correction * self.flow - inputs.bypass).max(0.0);
        let missing = self.queue_target(inputs) - self.queued;
        let pace = own + (missing + own * IN_TRANSIT_S - self.in_transit.get()) / SETTLE_S;
        let most = MAX_PACE * self.flow.max(inputs.outflow);
        self.has_stopped = pace <= 0.0;
        pace.min(most).max(0.0) / inputs.show_up
    }

    /// Work that was admitted and is not here yet (`P`), in cost units.
    pub(super) fn in_transit(&self) -> f64 {
        self.in_transit.get()
    }

    /// Work whose turn has come, and which was asked to come again: newcomers wait behind it.
    pub(super) fn asked_again(&self) -> Cost {
        Cost::from_hundredths((self.asked_again.get() * 100.0) as u64)
    }

    /// So much of the promised work has been admitted.
    pub(super) fn admitted(&mut self, work: f64, inputs: &PacingInputs) {
        self.in_transit.add(work * inputs.show_up);
    }

    /// Work that came and was asked to come again in a second is in transit once more, for longer than `T`.
    pub(super) fn deferred(&mut self, work: f64) {
        self.in_transit.add(work * AGAIN_S / IN_TRANSIT_S);
        self.asked_again.add(work);
        self.is_deferring = work > 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUTS: PacingInputs = PacingInputs {
        outflow: 1_000.0,
        bypass: 0.0,
        sessions: 0.0,
        first_page_ratio: 1.0,
        is_searching: false,
        mean_cost: 1.0,
        max_queued: f64::MAX,
        show_up: 1.0,
    };

    fn gate(queued: u64) -> Totals {
        let (entering_cost, limit) = (Cost::from_hundredths(queued * 100), Some(u32::from(queued == 0)));
        Totals { entering_cost, limit, ..Totals::default() }
    }

    fn sent(entering: f64, over_s: f64) -> Sent {
        Sent { work: entering, entering, over_s }
    }

    #[test]
    fn a_crowd_that_was_there_before_the_first_observation_is_admitted_at_the_outflow() {
        let mut pacer = QueuePacer::new();
        pacer.observe(&gate(0), &sent(0.0, 0.0), &INPUTS);
        assert!(pacer.pace(&INPUTS) >= 1_000.0);
        // Later observations count, not the outflow.
        let known = pacer.flow;
        pacer.observe(&gate(0), &sent(0.0, 0.0), &PacingInputs { outflow: 9_000.0, ..INPUTS });
        assert_eq!(pacer.flow, known);
    }

    #[test]
    fn the_queue_kept_is_as_long_as_it_must_be_for_the_origin_not_to_lack_requests() {
        let mut pacer = QueuePacer::new();
        let mut pass = |queued: u64, ticks: u64, inputs: &PacingInputs| {
            for _ in 0..ticks {
                pacer.observe(&gate(queued), &sent(100.0, 0.1), inputs);
            }
            pacer.share
        };
        assert_eq!(pass(50, 10, &INPUTS), LEAST_SHARE);
        assert_eq!(pass(0, 1, &INPUTS), 1.0, "nobody queued");
        assert!((pass(50, 100, &INPUTS) - 0.905).abs() < 0.01, "ten seconds");
        assert_eq!(pass(50, 700, &INPUTS), LEAST_SHARE);
        let searching = PacingInputs { is_searching: true, ..INPUTS };
        assert_eq!(pass(0, 10, &searching), LEAST_SHARE, "the limit grows faster than visitors can come");
    }

    #[test]
    fn an_origin_that_lacks_requests_while_the_capacity_is_searched_shows_nothing_about_who_comes() {
        let correction = |is_searching| {
            let (mut pacer, inputs) = (QueuePacer::new(), PacingInputs { is_searching, ..INPUTS });
            (0..5).for_each(|_| pacer.observe(&gate(0), &sent(100.0, 1.0), &inputs));
            pacer.correction
        };
        assert_eq!(correction(true), 1.0);
        assert!(correction(false) > 3.0, "{}", correction(false));
    }

    #[test]
    fn requests_of_sessions_under_way_are_not_in_the_queue_that_is_kept() {
        let mut pacer = QueuePacer::new();
        let queued_cost = Cost::from_hundredths(95_000);
        let gate = Totals { queued: 950, queued_cost, ..gate(50) };
        let sent = Sent { work: 1_000.0, ..sent(100.0, 1.0) };
        (0..20).for_each(|_| pacer.observe(&gate, &sent, &INPUTS));
        assert_eq!(pacer.queued, 50.0);
        assert!((pacer.flow - 100.0).abs() < 1e-3, "{pacer:?}");
    }

    #[test]
    fn work_that_was_asked_to_come_again_is_there_for_a_second() {
        let mut pacer = QueuePacer::new();
        pacer.deferred(3.0);
        assert_eq!(pacer.asked_again(), Cost::from_hundredths(300));
        pacer.pass(AGAIN_S);
        assert_eq!(pacer.asked_again(), Cost::from_hundredths(110));
        // Three units a second, over and over, are three units at any time.
        (0..100).for_each(|_| {
            pacer.deferred(0.3);
            pacer.pass(0.1);
        });
        assert!((pacer.asked_again().units() - 3.0).abs() < 0.2, "{pacer:?}");
    }

    #[test]
    fn queued_work_and_work_in_transit_are_not_admitted_twice() {
        let mut pacer = QueuePacer::new();
        pacer.reset(1_000.0);
        let wanted = pacer.pace(&INPUTS);
        pacer.admitted(100.0, &INPUTS);
        assert!((wanted - pacer.pace(&INPUTS) - 100.0).abs() < 1e-9);
        pacer.admitted(1e6, &INPUTS);
        assert_eq!(pacer.pace(&INPUTS), 0.0);
        // They come, and the origin works them off.
        pacer.pass(60.0);
        pacer.pass(1_000.0);
        assert!((pacer.pace(&INPUTS) - wanted).abs() < 1e-6, "{pacer:?}");
    }
}
