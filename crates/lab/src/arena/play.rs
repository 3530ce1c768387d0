//! The loop: the next thing in time, until the end.

use std::collections::VecDeque;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tidegate_core::capacity::{Estimator, GateLoad, Sample};
use tidegate_core::gate::{Gate, GateConfig, Leaving, QueueDecision, Request, Served};
use tidegate_core::units::Timestamp;

use super::feed::{Dice, exponential, next_arrival};
use super::trace::{Scribe, Trace};
use super::{ArenaSpec, Feed, Kind, REFUSAL_US};
use crate::model::{Done, Part};
use crate::scenario::Process;
use crate::sim::replica_pool::ReplicaPool;
use crate::slab::Slab;
use crate::times::micros;

/// The clock's reading at the start of a run: any, but not the epoch, which is no time a gate ever sees.
const START: Timestamp = Timestamp::from_secs(1_000_000);
/// Requests kept waiting at the gate where there are always more: enough for any estimator to see that some
/// wait.
const STANDING: usize = 32;
const NEVER: u64 = u64::MAX;
/// A request at no replica, because there was none.
const NOWHERE: u32 = u32::MAX;

struct Job {
    kind: u32,
    replica: u32,
    in_flight: u32,
    sent_us: u64,
}

pub(super) struct Play<'a> {
    spec: &'a ArenaSpec,
    estimator: &'a mut dyn Estimator,
    gate: Gate,
    pool: ReplicaPool,
    busy: Vec<u32>,
    jobs: Slab<Job>,
    /// Between gate and origin, by the time they are there.
    on_the_way: VecDeque<(u64, u32)>,
    /// Failed, by the time that is known.
    refused: VecDeque<(u64, u32)>,
    /// Wait to be released, by kind, where the estimator sets a rate only.
    room: VecDeque<u32>,
    limit: Option<u32>,
    outflow: f64,
    now_us: u64,
    release_us: f64,
    arrival_us: Option<f64>,
    tick_us: u64,
    second_us: u64,
    changes: usize,
    mixes: usize,
    dice: Dice,
    rng: SmallRng,
    scribe: Scribe,
    done: Vec<(usize, Done)>,
    samples: Vec<Sample>,
}

impl<'a> Play<'a> {
    pub(super) fn new(spec: &'a ArenaSpec, estimator: &'a mut dyn Estimator) -> Self {
        let config = GateConfig {
            max_in_flight: None,
            max_queue: usize::MAX,
            max_queue_wait: Duration::MAX,
            ..GateConfig::default()
        };
        let pool = ReplicaPool::new(&spec.origin, spec.seed);
        let mut rng = SmallRng::seed_from_u64(spec.seed ^ 0xA5A5_5A5A_0F0F_F0F0);
        let arrival_us = next_arrival(&spec.feed, 0.0, micros(spec.lasts) as f64, &mut rng);
        Self {
            spec,
            estimator,
            gate: Gate::new(&config),
            busy: vec![0; pool.len()],
            pool,
            jobs: Slab::default(),
            on_the_way: VecDeque::new(),
            refused: VecDeque::new(),
            room: VecDeque::new(),
            limit: None,
            outflow: 0.0,
            now_us: 0,
            release_us: 0.0,
            arrival_us,
            tick_us: 0,
            second_us: 1_000_000,
            changes: 0,
            mixes: 0,
            dice: Dice::new(&[1.0]),
            rng,
            scribe: Scribe::new(spec.tick, spec.feed == Feed::Backlog),
            done: Vec::new(),
            samples: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Trace {
        let end_us = micros(self.spec.lasts);
        loop {
            let next_us = self.next_us();
            while self.second_us <= next_us.min(end_us) {
                self.scribe.turn(self.gate.totals().queued + self.room.len());
                self.second_us += 1_000_000;
            }
            if next_us >= end_us {
                return self.scribe.finish();
            }
            self.now_us = next_us;
            self.step();
        }
    }

    fn next_us(&self) -> u64 {
        let front = |line: &VecDeque<(u64, u32)>| line.front().map_or(NEVER, |(at, _)| *at);
        let change = self.spec.origin.changes.get(self.changes).map_or(NEVER, |c| micros(c.at));
        let mix = self.spec.mix.get(self.mixes).map_or(NEVER, |(at, _)| micros(*at));
        let arrival = self.arrival_us.map_or(NEVER, |at| at as u64);
        let release = if self.may_release() { self.release_us as u64 } else { NEVER };
        let times = [front(&self.on_the_way), front(&self.refused), change, mix, arrival, release];
        let first = times.into_iter().fold(self.tick_us, u64::min);
        // What became possible in the past is due now.
        first.min(self.pool.next_event().unwrap_or(NEVER)).max(self.now_us)
    }

    fn may_release(&self) -> bool {
        self.limit.is_none() && self.outflow > 0.0 && (self.is_endless() || !self.room.is_empty())
    }

    fn is_endless(&self) -> bool {
        self.spec.feed == Feed::Backlog
    }

    fn step(&mut self) {
        self.take_done();
        self.change();
        while let Some(at) = due(&mut self.on_the_way, self.now_us) {
            self.submit(at);
        }
        while let Some(job) = due(&mut self.refused, self.now_us) {
            self.end(job, false);
        }
        if self.arrival_us.is_some_and(|at| at as u64 <= self.now_us) {
            self.arrive();
        }
        if self.may_release() && self.release_us as u64 <= self.now_us {
            self.release();
        }
        self.admit();
        if self.tick_us <= self.now_us {
            self.tick();
        }
    }

    fn take_done(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.pool.advance(self.now_us, &mut done);
        for (_, done) in done.drain(..) {
            match done.part {
                Part::Whole | Part::Rest => self.end(done.id as u32, true),
                Part::Error => self.end(done.id as u32, false),
                // For the gate a request is at the origin until the last of its answer.
                Part::Head { .. } => {}
            }
        }
        self.done = done;
    }

    /// The origin and the mix become what they are from now on.
    fn change(&mut self) {
        while let Some((at, weights)) = self.spec.mix.get(self.mixes)
            && micros(*at) <= self.now_us
        {
            self.dice = Dice::new(weights);
            self.mixes += 1;
        }
        while let Some(change) = self.spec.origin.changes.get(self.changes)
            && micros(change.at) <= self.now_us
        {
            self.pool.change(change, self.now_us);
            self.changes += 1;
        }
    }

    fn arrive(&mut self) {
        let kind = self.dice.throw(&mut self.rng);
        let cost = self.spec.kinds[kind].cost;
        self.scribe.arrived(cost);
        if self.limit.is_some() {
            self.enqueue(kind);
        } else {
            self.room.push_back(kind as u32);
        }
        let (at, end) = (self.arrival_us.unwrap_or(0.0), micros(self.spec.lasts) as f64);
        self.arrival_us = next_arrival(&self.spec.feed, at, end, &mut self.rng);
    }

    /// The next one is let in, and the one after it may not be before the work of this one has flown out.
    fn release(&mut self) {
        let kind = match self.room.pop_front() {
            Some(kind) => kind as usize,
            None => self.dice.throw(&mut self.rng),
        };
        let gap = match self.spec.release {
            Process::Poisson => exponential(&mut self.rng),
            Process::Constant => 1.0,
        };
        let from = if self.is_endless() { self.release_us } else { self.release_us.max(self.now_us as f64) };
        self.release_us = from + gap * self.spec.kinds[kind].cost.units() / self.outflow * 1e6;
        self.enqueue(kind);
    }

    fn enqueue(&mut self, kind: usize) {
        let Kind { class, cost, .. } = self.spec.kinds[kind];
        let job = Job { kind: kind as u32, replica: NOWHERE, in_flight: 0, sent_us: 0 };
        let id = self.jobs.insert(job);
        match self.gate.arrive(Request { id: u64::from(id), class, cost }, self.now()) {
            QueueDecision::Forward => self.forward(id),
            QueueDecision::Queued(_) => {}
            QueueDecision::Shed(reason) => unreachable!("a queue without bound: {reason:?}"),
        }
    }

    /// All who may go to the origin go; where there are always more, others take their positions in the
    /// queue.
    fn admit(&mut self) {
        loop {
            while self.is_endless() && self.limit.is_some() && self.gate.totals().queued < STANDING {
                let kind = self.dice.throw(&mut self.rng);
                self.enqueue(kind);
            }
            let Some(Leaving::Forward(woken)) = self.gate.next(self.now()) else { return };
            self.forward(woken.id as u32);
        }
    }

    fn forward(&mut self, id: u32) {
        let job = self.jobs.held(id);
        job.sent_us = self.now_us;
        job.in_flight = self.gate.in_flight_now();
        if self.spec.delay.is_zero() {
            self.submit(id);
        } else {
            self.on_the_way.push_back((self.now_us + micros(self.spec.delay), id));
        }
    }

    /// To the replica with the fewest in flight; of equals the next after the one last chosen does not matter
    /// to a model.
    fn submit(&mut self, id: u32) {
        let up = (0..self.busy.len()).filter(|r| self.pool.is_up(*r));
        let job = self.jobs.held(id);
        let path = self.spec.kinds[job.kind as usize].path;
        if let Some(replica) = up.min_by_key(|r| self.busy[*r]) {
            job.replica = replica as u32;
            self.busy[replica] += 1;
            if self.pool.submit(replica, u64::from(id), path, self.now_us).is_ok() {
                return;
            }
        }
        self.refused.push_back((self.now_us + REFUSAL_US, id));
    }

    fn end(&mut self, id: u32, ok: bool) {
        let Some(job) = self.jobs.remove(id) else { return };
        if let Some(busy) = self.busy.get_mut(job.replica as usize) {
            *busy -= 1;
        }
        let Kind { class, cost, .. } = self.spec.kinds[job.kind as usize];
        let sent = START + Duration::from_micros(job.sent_us);
        let served = Served { sent, in_flight: job.in_flight, ok };
        self.gate.complete(class, cost, &served, self.now());
        self.scribe.ended(cost, self.now_us - job.sent_us, ok);
        self.admit();
    }

    fn tick(&mut self) {
        let totals = self.gate.totals();
        // Work already at the gate is not the room's; with a limit there is no room.
        let room_waits = self.is_endless() || !self.room.is_empty();
        let (queued, in_flight) = (totals.queued, totals.in_flight);
        let load = GateLoad { room_waits, queued, in_flight, ..GateLoad::default() };
        self.gate.take_samples(&mut self.samples);
        for sample in self.samples.drain(..) {
            self.estimator.observe(&sample);
        }
        let estimate = self.estimator.tick(&load, START + Duration::from_micros(self.now_us));
        self.limit = estimate.max_in_flight.map(|limit| limit.clamp(1, self.spec.max_in_flight));
        self.gate.set_limit(self.limit.or(Some(self.spec.max_in_flight)));
        self.set_outflow(estimate.capacity.get() * estimate.gain.max(1.0));
        while self.limit.is_some()
            && let Some(kind) = self.room.pop_front()
        {
            self.enqueue(kind as usize);
        }
        self.scribe.ticked(&estimate, self.limit);
        self.tick_us += micros(self.spec.tick).max(1);
        self.admit();
    }

    /// An arrival that had half its time left at the old rate has half its time left at the new one.
    fn set_outflow(&mut self, outflow: f64) {
        let now = self.now_us as f64;
        if self.outflow > 0.0 && outflow > 0.0 && self.release_us > now {
            self.release_us = now + (self.release_us - now) * self.outflow / outflow;
        }
        if self.outflow <= 0.0 || self.limit.is_some() {
            self.release_us = now;
        }
        self.outflow = outflow;
    }

    fn now(&self) -> Timestamp {
        START + Duration::from_micros(self.now_us)
    }
}

fn due(line: &mut VecDeque<(u64, u32)>, now_us: u64) -> Option<u32> {
    let at = line.front().filter(|(at, _)| *at <= now_us)?.1;
    line.pop_front();
    Some(at)
}
