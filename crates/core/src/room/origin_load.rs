//! What is ahead of the origin, and whether it is so far behind that admitted visitors must come again.
//!
//! There are two measures, each with its own target, and the one that is further beyond it counts. The
//! virtual backlog is the work admitted minus what the ceiling has done since: a configured capacity, or
//! where an estimator's in-flight limit decides what the origin does, the operator's bound. There is a queue
//! at the gate (`queue_target.rs`) where that has an in-flight limit.

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

pub(super) struct OriginLoad {
    /// What waits are computed with.
    capacity: Atomic<Rate>,
    /// What the virtual backlog is worked off at.
    ceiling: Atomic<Rate>,
    pub(super) backlog: Backlog,
    /// Work queued for the origin as of the last tick, and where the gate has a limit, what entered since.
    queued: Atomic<Cost>,
    /// Most work in the gate's queue that visitors whose turn has come may join; `None`: it has no limit.
    max_queued: Atomic<Option<Cost>>,
    /// Work per second that goes to the origin, as of late, and what it was computed from.
    flow_per_s: AtomicF64,
    forwarded: Mutex<OriginFlow>,
    observed_at: Atomic<Timestamp>,
    pub(super) mean_cost: MeanCost,
}

impl OriginLoad {
    pub(super) fn new(capacity: Rate, now: Timestamp) -> Self {
        Self {
            capacity: Atomic::new(capacity),
            ceiling: Atomic::new(capacity),
            backlog: Backlog::new(now),
            queued: Atomic::new(Cost::ZERO),
            max_queued: Atomic::new(None),
            flow_per_s: AtomicF64::new(0.0),
            forwarded: Mutex::new(OriginFlow::from(now)),
            observed_at: Atomic::new(now),
            mean_cost: MeanCost::new(),
        }
    }

    pub(super) fn set_targets(&self, targets: &RoomTargets, now: Timestamp) {
        self.backlog.rescale(now, self.ceiling(), targets.ceiling);
        self.ceiling.store(targets.ceiling);
        self.capacity.store(targets.capacity);
    }

    pub(super) fn capacity(&self) -> Rate {
        self.capacity.load()
    }

    pub(super) fn ceiling(&self) -> Rate {
        self.ceiling.load()
    }

    /// Whether the gate has an in-flight limit.
    pub(super) fn has_queue(&self) -> bool {
        self.max_queued.load().is_some()
    }

    pub(super) fn admit(&self, cost: Cost) {
        self.backlog.add(cost, self.ceiling());
        if self.has_queue() {
            // Until the next tick: visitors who enter now are in the gate's queue or pass through it.
            self.queued.add(cost);
        }
        self.mean_cost.count(cost);
    }

    /// Work that was admitted will not come. It remains in [`MeanCost::work`]: tokencheck's reports are
    /// differences of a sum that only grows.
    pub(super) fn cancel(&self, cost: Cost) {
        self.backlog.remove(cost, self.ceiling());
    }

    pub(super) fn set_queued(&self, queued: Cost) {
        self.queued.store(queued);
    }

    /// On a tick: the gate's queue, and how much it may hold. Returns what went to the origin since the last.
    pub(super) fn observe(&self, gate: &Totals, now: Timestamp) -> Sent {
        // Requests that only their class's own limits hold back are no burden on the origin.
        self.set_queued(gate.backlog_cost());
        self.observed_at.store(now);
        let sent = lock(&self.forwarded).observe(gate, now);
        if sent.over_s > 0.0 {
            let mut per_s = Ewma::from(self.flow_per_s.load());
            per_s.add(sent.work / sent.over_s, keep(sent.over_s, FLOW_MEMORY_S));
            self.flow_per_s.store(per_s.get().unwrap_or_default());
        }
        let max_queued = gate.limit.map(|limit| {
            // Some of those who come until the next tick go straight to the origin.
            let free = f64::from(limit.saturating_sub(gate.in_flight));
            let most = self.queue_bound(gate) * FILL + free * self.mean_cost().units();
            Cost::from_hundredths((most * 100.0) as u64)
        });
        self.max_queued.store(max_queued);
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
        self.capacity().get().max(self.flow_per_s.load())
    }

    pub(super) fn mean_cost(&self) -> Cost {
        self.mean_cost.get()
    }

    /// The average visitor, as seconds of work at capacity.
    pub(super) fn mean_cost_s(&self) -> f64 {
        self.seconds_of(self.mean_cost())
    }

    /// Seconds of work at capacity by which what is ahead of the origin exceeds what is aimed at.
    pub(super) fn excess_s(&self, now: Timestamp) -> f64 {
        let (queued, mean_cost) = (self.queued.load().units(), self.mean_cost().units());
        let capacity = self.capacity().get();
        let of_queue = queued - queue_target(capacity, mean_cost, f64::MAX);
        (self.backlog.seconds(now) - target_s(self.mean_cost_s())).max(of_queue / capacity)
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

    /// The queue to aim at for what the origin takes, in cost units.
    fn queue_target(&self) -> f64 {
        queue_target(self.known_flow(), self.mean_cost().units(), f64::MAX)
    }

    /// Whether the gate's queue is longer than it should be.
    pub(super) fn is_queue_long(&self) -> bool {
        self.has_queue() && self.queued.load().units() > self.queue_target()
    }

    /// Whether the gate's queue is so long that newcomers wait in the room, even if they are the first there.
    pub(super) fn is_crowded(&self, now: Timestamp) -> bool {
        self.has_queue() && self.is_behind(Punctuality::OnTime, now)
    }

    /// Whether the origin is so far behind that visitors whose turn has come are asked to come again.
    pub(super) fn is_behind(&self, punctuality: Punctuality, now: Timestamp) -> bool {
        let mean_cost_s = self.mean_cost_s();
        let (beyond_s, backlog_s) = match punctuality {
            Punctuality::OnTime => (BEHIND_S, BEHIND_S + mean_cost_s),
            Punctuality::Late => (SPARE_S, SPARE_S + target_s(mean_cost_s)),
        };
        let longest = self.queue_target() + self.known_flow() * beyond_s;
        self.backlog.seconds(now) > backlog_s || self.queued.load().units() > longest || self.is_full(now)
    }

    /// Whether the gate's queue has no positions left but those for requests that never wait in the room.
    fn is_full(&self, now: Timestamp) -> bool {
        let Some(most) = self.max_queued.load() else { return false };
        let queued = self.queued.load();
        // Since it was observed the origin has gone on.
        let done = self.flow_per_s.load() * now.since(self.observed_at.load()).as_secs_f64() * 100.0;
        queued > most && queued.hundredths() as f64 - done > most.hundredths() as f64
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

    fn load(ceiling: Rate) -> OriginLoad {
        let capacity = Rate::per_second(10.0).unwrap_or_default();
        let load = OriginLoad::new(capacity, START);
        load.set_targets(&RoomTargets { ceiling, ..capacity.into() }, START);
        load
    }

    fn units(units: u64) -> Cost {
        Cost::from_hundredths(units * 100)
    }

    #[test]
    fn late_visitors_give_way_before_those_on_time() {
        let load = load(Rate::per_second(10.0).unwrap_or_default());
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
        let load = load(Rate::MAX);
        let (limit, max_queue_wait) = (Some(0), Duration::from_secs(60));
        load.observe(&Totals { limit, max_queue: 1_000, max_queue_wait, ..Totals::default() }, START);
        let target = queue_target(load.known_flow(), load.mean_cost().units(), f64::MAX) as u64;
        load.admit(units(target));
        assert!(!load.is_queue_long());
        load.admit(units(2));
        assert!(load.is_queue_long() && !load.is_crowded(START));
    }

    #[test]
    fn a_kept_queue_takes_what_it_can_hold_from_those_in_turn() {
        let load = load(Rate::MAX);
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
    fn the_bound_of_the_queue_goes_with_the_limit() {
        let load = load(Rate::MAX);
        load.observe(&Totals { limit: Some(0), ..Totals::default() }, START);
        load.set_queued(Cost::ONE);
        assert!(load.is_crowded(START));
        load.observe(&Totals { limit: None, ..Totals::default() }, START);
        load.set_queued(Cost::ONE);
        assert!(!load.is_crowded(START));
    }
}
