//! What is ahead of the origin, and whether it is so far behind that admitted visitors must come again.
//!
//! There are two measures. Where a rate governs, the virtual backlog counts: work admitted minus what the
//! capacity has done. Where the in-flight limit governs, a short queue is kept at the gate
//! (`queue_target.rs`) and its length counts; the virtual backlog is then that of the operator's ceiling.

use std::sync::Mutex;

use super::backlog::Backlog;
use super::lateness::Punctuality;
use super::mean_cost::MeanCost;
use super::types::RoomTargets;
use crate::decaying::{Ewma, keep};
use crate::gate::Totals;
use crate::origin_flow::{OriginFlow, Sent};
use crate::queue_target::queue_target;
use crate::sync::{Atomic, AtomicF64, lock};
use crate::units::{Cost, Rate, Timestamp};
use crate::virtual_clock::target_s;

/// Backlog in seconds at capacity that tier 2 absorbs: beyond it visitors on time are asked to come again.
const BEHIND_S: f64 = 2.0;
/// Backlog up to which late visitors are let in, beyond the one aimed at. At this backlog the virtual clock
/// has slowed to 0.3: the late may take 70 % of the origin before one of them is asked to come again. With
/// 0.2 they could take 14 %, and starved when more were late.
const SPARE_S: f64 = 1.0;
/// Memory of the work sent to the origin, in seconds: two processes may tick and report out of step.
const FLOW_MEMORY_S: f64 = 2.0;
/// Part of the gate's queue for visitors whose turn has come; the rest is for requests that never wait.
const FILL: f64 = 0.75;
/// Queued work that represents "there is no origin": no one enters.
pub(super) const ORIGIN_GONE: Cost = Cost::from_hundredths(u64::MAX / 4);

/// Work per second that the gate sends to the origin, as of late.
struct Flow {
    per_s: AtomicF64,
    forwarded: Mutex<OriginFlow>,
    observed_at: Atomic<Timestamp>,
}

impl Flow {
    fn new(now: Timestamp) -> Self {
        let (per_s, forwarded) = (AtomicF64::new(0.0), Mutex::new(OriginFlow::from(now)));
        Self { per_s, forwarded, observed_at: Atomic::new(now) }
    }

    fn observe(&self, gate: &Totals, now: Timestamp) -> Sent {
        self.observed_at.store(now);
        let sent = lock(&self.forwarded).observe(gate, now);
        if sent.over_s > 0.0 {
            let mut per_s = Ewma::from(self.per_s.load());
            per_s.add(sent.work / sent.over_s, keep(sent.over_s, FLOW_MEMORY_S));
            self.per_s.store(per_s.get().unwrap_or_default());
        }
        sent
    }

    /// Hundredths forwarded since the last observation, as far as it goes on like that.
    fn since_observed(&self, now: Timestamp) -> f64 {
        self.per_s.load() * now.since(self.observed_at.load()).as_secs_f64() * 100.0
    }
}

pub(super) struct OriginLoad {
    /// What waits are computed with.
    capacity: Atomic<Rate>,
    /// What the virtual backlog is worked off at.
    drain: Atomic<Rate>,
    pub(super) backlog: Backlog,
    /// Work queued for the origin as of the last tick, and where a queue is kept, what entered since.
    queued: Atomic<Cost>,
    /// Most work in the gate's queue that visitors whose turn has come may join; `None`: no queue is kept.
    max_queued: Atomic<Option<Cost>>,
    flow: Flow,
    pub(super) mean_cost: MeanCost,
}

impl OriginLoad {
    pub(super) fn new(capacity: Rate, now: Timestamp) -> Self {
        Self {
            capacity: Atomic::new(capacity),
            drain: Atomic::new(capacity),
            backlog: Backlog::new(now),
            queued: Atomic::new(Cost::ZERO),
            max_queued: Atomic::new(None),
            flow: Flow::new(now),
            mean_cost: MeanCost::new(),
        }
    }

    pub(super) fn set_targets(&self, targets: &RoomTargets, now: Timestamp) {
        let drain = if targets.keeps_queue { targets.ceiling } else { targets.outflow };
        self.backlog.rescale(now, self.drain(), drain);
        self.drain.store(drain);
        self.capacity.store(targets.capacity);
        if targets.keeps_queue != self.keeps_queue() {
            // Until the gate is observed, any amount may join.
            self.max_queued.store(targets.keeps_queue.then(|| Cost::from_hundredths(u64::MAX)));
        }
    }

    pub(super) fn capacity(&self) -> Rate {
        self.capacity.load()
    }

    pub(super) fn drain(&self) -> Rate {
        self.drain.load()
    }

    fn keeps_queue(&self) -> bool {
        self.max_queued.load().is_some()
    }

    pub(super) fn admit(&self, cost: Cost) {
        self.backlog.add(cost, self.drain());
        if self.keeps_queue() {
            // Until the next tick: visitors who enter now are in the gate's queue or pass through it.
            self.queued.add(cost);
        }
        self.mean_cost.count(cost);
    }

    /// Work that was admitted will not come. It remains in [`MeanCost::work`]: tokencheck's reports are
    /// differences of a sum that only grows.
    pub(super) fn cancel(&self, cost: Cost) {
        self.backlog.remove(cost, self.drain());
    }

    pub(super) fn set_queued(&self, queued: Cost) {
        self.queued.store(queued);
    }

    /// On a tick: the gate's queue, and how much it may hold. Returns what went to the origin since the last.
    pub(super) fn observe(&self, gate: &Totals, now: Timestamp) -> Sent {
        // Requests that only their class's own limits hold back are no burden on the origin.
        self.set_queued(gate.backlog_cost());
        let sent = self.flow.observe(gate, now);
        if self.keeps_queue() {
            // Some of those who come until the next tick go straight to the origin.
            let free = gate.limit.map_or(f64::MAX, |limit| f64::from(limit.saturating_sub(gate.in_flight)));
            let most = self.queue_bound(gate) * FILL + free * self.mean_cost().units();
            self.max_queued.store(Some(Cost::from_hundredths((most * 100.0) as u64)));
        }
        sent
    }

    /// Work that the gate's queue can hold without refusing anybody, in cost units: as many average visitors
    /// as it has positions, and what the origin takes in the longest wait there.
    pub(super) fn queue_bound(&self, gate: &Totals) -> f64 {
        let positions = gate.max_queue as f64 * self.mean_cost().units();
        positions.min(self.known_flow() * gate.max_queue_wait.as_secs_f64())
    }

    /// Work per second that the origin takes: the capacity, or what it was seen to take if that is more.
    fn known_flow(&self) -> f64 {
        self.capacity().get().max(self.flow.per_s.load())
    }

    pub(super) fn mean_cost(&self) -> Cost {
        self.mean_cost.get()
    }

    /// The average visitor, as seconds of work at capacity.
    pub(super) fn mean_cost_s(&self) -> f64 {
        self.seconds_of(self.mean_cost())
    }

    /// The backlog aimed at, in seconds of work at capacity.
    pub(super) fn target_s(&self) -> f64 {
        let capacity = self.capacity().get();
        if self.keeps_queue() && capacity > 0.0 {
            queue_target(capacity, self.mean_cost().units(), f64::MAX) / capacity
        } else {
            target_s(self.mean_cost_s())
        }
    }

    /// Work ahead of the origin, in seconds at capacity: admitted or really queued, whichever is more.
    pub(super) fn backlog_s(&self, now: Timestamp) -> f64 {
        let queued = self.queued.load();
        let queued_s = if queued == Cost::ZERO { f64::MIN } else { self.seconds_of(queued) };
        self.backlog.seconds(now).max(queued_s)
    }

    fn seconds_of(&self, work: Cost) -> f64 {
        let capacity = self.capacity().get();
        if capacity > 0.0 { work.units() / capacity } else { 0.0 }
    }

    /// Whether a kept queue is so long that newcomers wait in the room, even if they are the first there.
    pub(super) fn is_crowded(&self, now: Timestamp) -> bool {
        self.keeps_queue() && self.is_behind(Punctuality::OnTime, now)
    }

    /// Whether a kept queue is longer than it should be.
    pub(super) fn is_queue_long(&self) -> bool {
        let target = queue_target(self.known_flow(), self.mean_cost().units(), f64::MAX);
        self.keeps_queue() && self.queued.load().units() > target
    }

    /// Whether the origin is so far behind that visitors whose turn has come are asked to come again.
    pub(super) fn is_behind(&self, punctuality: Punctuality, now: Timestamp) -> bool {
        let is_on_time = punctuality == Punctuality::OnTime;
        let mean_cost_s = self.mean_cost_s();
        let Some(most) = self.max_queued.load() else {
            let bound = if is_on_time { BEHIND_S + mean_cost_s } else { SPARE_S + target_s(mean_cost_s) };
            return self.backlog_s(now) > bound;
        };
        let (queued, flow) = (self.queued.load(), self.known_flow());
        let target = queue_target(flow, self.mean_cost().units(), f64::MAX);
        let bound = target + flow * if is_on_time { BEHIND_S } else { SPARE_S };
        self.is_full(queued, most, now)
            || queued.units() > bound
            || self.backlog.seconds(now) > BEHIND_S + mean_cost_s
    }

    /// Whether a kept queue has no positions left but those for requests that never wait in the room.
    fn is_full(&self, queued: Cost, most: Cost, now: Timestamp) -> bool {
        // Since it was observed the origin has gone on.
        queued > most && queued.hundredths() as f64 - self.flow.since_observed(now) > most.hundredths() as f64
    }

    /// Whether no visitor is let in before its turn.
    pub(super) fn is_closed(&self, now: Timestamp) -> bool {
        self.capacity() == Rate::ZERO || self.is_behind(Punctuality::OnTime, now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn load(keeps_queue: bool) -> OriginLoad {
        let capacity = Rate::per_second(10.0).unwrap_or_default();
        let load = OriginLoad::new(capacity, START);
        load.set_targets(&RoomTargets { keeps_queue, ..capacity.into() }, START);
        load
    }

    fn units(units: u64) -> Cost {
        Cost::from_hundredths(units * 100)
    }

    #[test]
    fn late_visitors_give_way_before_those_on_time() {
        let load = load(false);
        load.admit(units(15));
        assert!(load.is_behind(Punctuality::Late, START) && !load.is_behind(Punctuality::OnTime, START));
        load.admit(units(7));
        assert!(load.is_behind(Punctuality::OnTime, START));
        assert!(!load.is_behind(Punctuality::OnTime, START + Duration::from_secs(1)), "worked off");
        load.cancel(units(7));
        assert!(!load.is_behind(Punctuality::OnTime, START));
        // What is really queued counts, if that is more.
        load.set_queued(units(30));
        assert_eq!(load.backlog_s(START), 3.0);
        assert!(load.is_closed(START));
    }

    #[test]
    fn a_kept_queue_is_long_above_its_target_long_before_it_is_crowded() {
        let load = load(true);
        load.observe(
            &Totals { max_queue: 1_000, max_queue_wait: Duration::from_secs(60), ..Totals::default() },
            START,
        );
        let target = queue_target(load.known_flow(), load.mean_cost().units(), f64::MAX) as u64;
        load.admit(units(target));
        assert!(!load.is_queue_long());
        load.admit(units(2));
        assert!(load.is_queue_long() && !load.is_crowded(START));
    }

    #[test]
    fn a_kept_queue_takes_what_it_can_hold_from_those_in_turn() {
        let load = load(true);
        let (max_queue, max_queue_wait) = (8, Duration::from_secs(60));
        let gate = Totals { limit: Some(4), in_flight: 4, max_queue, max_queue_wait, ..Totals::default() };
        load.observe(&gate, START);
        assert_eq!(load.queue_bound(&gate), 8.0);
        load.admit(units(6));
        assert!(!load.is_crowded(START));
        load.admit(Cost::ONE);
        assert!(load.is_crowded(START), "three quarters of the queue");
        // An origin that takes ten a second has gone on.
        let later = START + Duration::from_secs(60);
        load.observe(&Totals { forwarded_cost: units(600), queued_cost: units(7), ..gate }, later);
        assert!(load.is_crowded(later) && !load.is_crowded(later + Duration::from_millis(200)));
    }

    #[test]
    fn a_rate_that_governs_again_leaves_no_bound_of_the_queue() {
        let load = load(true);
        load.observe(&Totals { limit: Some(0), ..Totals::default() }, START);
        load.set_queued(Cost::ONE);
        assert!(load.is_crowded(START));
        load.set_targets(&Rate::per_second(10.0).unwrap_or_default().into(), START);
        assert!(!load.is_crowded(START) && !load.is_behind(Punctuality::OnTime, START));
    }
}
