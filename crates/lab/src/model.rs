//! The service as a model: one replica, pure, in virtual time. The real origin and the simulator drive the same one.
//!
//! ```text
//!             ┌ backlog ┐   ┌ a worker holds the request through all its stages ──┐
//!  submit ──► │ bounded │ ─►│  line ─► app servers ─► line ─► db servers ─► ...   │ ─► Done
//!             └ refused ┘   └─────────────────────────────────────────────────────┘
//! ```
//!
//! What it is: a fixed pool of workers with a bounded first-come-first-served backlog. A worker takes its request
//! through stages, each with servers and a line of its own, and is held meanwhile: a layered queue, as PHP-FPM and its
//! database are. With one stage of as many servers as workers it is an M/G/c/K queue. Service demand is drawn per
//! request and stage; it grows with the requests present. With `w` workers, demand `s0` and `n` requests present (in
//! service and waiting, this one included) when a worker takes a request:
//!
//! ```text
//! s(n) = s0                             n <= w
//! s(n) = s0 · (1 + a · ((n − w) / w)²)  n >  w
//! ```
//!
//! Capacity, unloaded, is `w / s0`. Nothing is scripted to fail; overload hurts by three things only, each of
//! which worker-pool services (PHP-FPM, Tomcat, Gunicorn, an application's database pool) are known for:
//!
//! - **Contention.** Each waiting request holds memory, locks and connections that those in service need. The
//!   square is the coherency term of Gunther's Universal Scalability Law, N·(N−1): pairs get in each other's way.
//!   A linear term was rejected: it costs a service 2 % for a queue of two, which no real service shows, and
//!   spares it at a queue of a hundred, where real ones fall over. `a` = 0.01 gives 1.04·s0 at n = 3w and, with
//!   the default backlog full (n = 138), 2.6·s0: about 38 % of the capacity is left.
//! - **Wasted work.** A worker does not see that its visitor has left; it serves the request to the end.
//! - **A bounded backlog.** Who finds it full is refused at once, and comes again, as people do.
//!
//! A demand is fixed when its service starts, the contention when a worker takes the request. A worker that finds the
//! next request waiting starts it at the instant the last one was due to end, not when somebody looked, so that the
//! granularity of a timer takes nothing of the capacity.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::dist::Dist;
use crate::scenario::{OriginSpec, PathSpec, Stage};

mod law;
mod pace;
mod paths;
mod slab;
mod stage;
mod stats;

#[cfg(test)]
mod queueing_tests;
#[cfg(test)]
mod tests;

pub use law::contention_factor;
use pace::{NEVER, Pace};
pub use paths::{Paths, path_index};
use slab::{Line, Place, Slab};
use stage::StageState;
pub use stage::StageStats;
pub use stats::{Full, Stats};

/// Names a request present in a [`Model`], for [`Model::leave`]. Outlives its request harmlessly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    slot: u32,
    generation: u32,
}

/// A request has been served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// As given to [`Model::submit`].
    pub id: u64,
    /// When, in microseconds, rounded up to a whole one.
    pub at_us: u64,
    /// The visitor had left.
    pub wasted: bool,
}

/// One replica. Time is in microseconds since any start and never runs backwards; what is due must be taken with
/// [`Model::advance`] before anything later is told.
pub struct Model {
    workers: u32,
    backlog: u32,
    contention: f64,
    notices_leavers: bool,
    /// Demands of each path: stage and distribution.
    routes: Vec<Box<[(u32, Dist)]>>,
    stages: Vec<StageState>,
    jobs: Slab,
    waiting: Line,
    /// When servers end, in work instants; at most one entry per worker. The number after it keeps those of one
    /// instant in the order they started; its overflow after 2³² starts could swap two of one nanosecond.
    ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
    starts: u32,
    pace: Pace,
    now_us: u64,
    rng: SmallRng,
    stats: Stats,
}

impl Model {
    /// An idle replica. Same spec, same seed, same calls: same answers.
    pub fn new(spec: &OriginSpec, seed: u64) -> Self {
        let stage =
            |stage: &Stage| StageState::new(stage.name.clone(), stage.servers, stage.servers == spec.workers);
        let route =
            |path: &PathSpec| path.demand.iter().map(|(stage, dist)| (*stage as u32, *dist)).collect();
        Self {
            workers: spec.workers,
            backlog: spec.backlog,
            contention: spec.contention,
            notices_leavers: spec.notices_leavers,
            routes: spec.paths.iter().map(route).collect(),
            stages: spec.stages.iter().map(stage).collect(),
            jobs: Slab::default(),
            waiting: Line::default(),
            ends: BinaryHeap::new(),
            starts: 0,
            pace: Pace::new(),
            now_us: 0,
            rng: SmallRng::seed_from_u64(seed),
            stats: Stats::default(),
        }
    }

    /// Hands a request in. `path` is an index into the spec's paths, as [`Paths::index`] gives it.
    ///
    /// # Errors
    /// [`Full`] when all workers are busy and the backlog is full.
    pub fn submit(&mut self, id: u64, path: usize, now_us: u64) -> Result<Ticket, Full> {
        self.tell(now_us);
        self.stats.submitted += 1;
        let idle = self.in_service() < self.workers;
        if !idle && self.waiting.len() >= self.backlog {
            self.stats.refused += 1;
            return Err(Full);
        }
        debug_assert!(path < self.routes.len(), "path {path} of {}", self.routes.len());
        let slot = self.jobs.insert(id, path as u32);
        if idle {
            self.stats.in_service += 1;
            self.begin(slot, self.pace.work(now_us));
        } else {
            self.waiting.push(&mut self.jobs, slot);
        }
        let present = self.stats.in_service + self.waiting.len() as usize;
        self.stats.peak = self.stats.peak.max(present);
        Ok(Ticket { slot, generation: self.jobs.get(slot).generation })
    }

    /// The visitor has gone. Work goes on and is wasted, unless the spec says that leavers are noticed. Returns whether
    /// a [`Done`] for the request is still to come; a ticket of a request that is over changes nothing.
    pub fn leave(&mut self, ticket: Ticket, now_us: u64) -> bool {
        self.tell(now_us);
        let Some(job) = self.jobs.find(ticket.slot, ticket.generation) else { return false };
        job.gone = true;
        if !self.notices_leavers {
            return true;
        }
        self.stats.abandoned += 1;
        let (slot, work) = (ticket.slot, self.pace.work(now_us));
        let (place, path, step) = (job.place, job.path as usize, job.step as usize);
        let stage = self.routes[path].get(step).map(|(stage, _)| *stage as usize);
        match (place, stage) {
            (Place::Backlog | Place::Nowhere, _) => self.waiting.remove(&mut self.jobs, slot),
            (Place::Line, Some(stage)) => self.stages[stage].line.remove(&mut self.jobs, slot),
            (Place::Server | Place::Line, stage) => {
                self.ends.retain(|Reverse((_, _, other))| *other != slot);
                if let Some(stage) = stage {
                    self.free_server(stage, work);
                }
            }
        }
        self.jobs.remove(slot);
        if place != Place::Backlog {
            self.free_worker(work);
        }
        false
    }

    /// When [`Model::advance`] has something to do next.
    pub fn next_event(&self) -> Option<u64> {
        let Reverse((work, ..)) = self.ends.peek()?;
        Some(self.pace.time(*work)).filter(|time| *time < u64::MAX)
    }

    /// Does everything due until `now_us`, in order of time.
    pub fn advance(&mut self, now_us: u64, done: &mut impl FnMut(Done)) {
        while let Some(&Reverse((work, _, slot))) = self.ends.peek() {
            let at_us = self.pace.time(work);
            if at_us > now_us || at_us == u64::MAX {
                break;
            }
            self.ends.pop();
            self.end_of_stage(slot, work, at_us, done);
        }
        self.tell(now_us);
    }

    /// From now on every server works at `speed` (1.0: as the spec says), also on what it has under way.
    ///
    /// # Panics
    /// The speed is not above zero: callers check what they read.
    pub fn set_speed(&mut self, speed: f64, now_us: u64) {
        assert!(speed > 0.0 && speed.is_finite(), "speed {speed}");
        self.tell(now_us);
        for stage in &mut self.stages {
            stage.flush(&self.pace, now_us);
        }
        self.pace.change(speed, now_us);
    }

    /// Changes the number of workers. More of them start on the backlog at once; of fewer, those too many end what they
    /// have first. A stage with as many servers as workers keeps it so.
    pub fn set_workers(&mut self, workers: u32, now_us: u64) {
        self.tell(now_us);
        self.workers = workers;
        let work = self.pace.work(now_us);
        for index in 0..self.stages.len() {
            if self.stages[index].follows_workers {
                self.stages[index].flush(&self.pace, now_us);
                self.stages[index].resize(workers);
                self.feed_servers(index, work);
            }
        }
        while self.in_service() < self.workers
            && let Some(slot) = self.waiting.pop(&mut self.jobs)
        {
            self.stats.in_service += 1;
            self.begin(slot, work);
        }
    }

    /// The process dies and is back at once, empty. Returns the ids of all requests present: they are lost.
    pub fn crash(&mut self, now_us: u64) -> Vec<u64> {
        self.tell(now_us);
        let work = self.pace.work(now_us);
        let slots: Vec<u32> = self.jobs.slots().collect();
        let lost = slots.iter().map(|slot| self.jobs.get(*slot).id).collect();
        slots.iter().for_each(|slot| self.jobs.remove(*slot));
        self.ends.clear();
        self.waiting = Line::default();
        for stage in &mut self.stages {
            stage.line = Line::default();
            while stage.busy > 0 {
                stage.release(work);
            }
        }
        self.stats.lost += slots.len() as u64;
        self.stats.in_service = 0;
        lost
    }

    /// The figures, as of the last time told. Allocates nothing.
    pub fn stats(&self) -> Stats {
        Stats { queued: self.waiting.len() as usize, ..self.stats }
    }

    /// The stages' figures, as of the last time told.
    pub fn stages(&self) -> Vec<StageStats> {
        self.stages.iter().map(|stage| stage.stats(&self.pace, self.now_us)).collect()
    }

    /// Workers there are now.
    pub fn workers(&self) -> u32 {
        self.workers
    }

    /// Speed in force.
    pub fn speed(&self) -> f64 {
        self.pace.speed()
    }

    fn tell(&mut self, now_us: u64) {
        debug_assert!(now_us >= self.now_us, "time ran backwards: {now_us} after {}", self.now_us);
        debug_assert!(
            self.next_event().is_none_or(|due| due >= now_us),
            "told of {now_us} before what was due was taken"
        );
        self.now_us = self.now_us.max(now_us);
    }

    fn in_service(&self) -> u32 {
        self.stats.in_service as u32
    }

    /// A worker, already counted in service, takes a request.
    fn begin(&mut self, slot: u32, work: u64) {
        let present = self.in_service() + self.waiting.len();
        if present > self.workers {
            self.jobs.get_mut(slot).factor = contention_factor(self.contention, self.workers, present);
        }
        self.enter(slot, work);
    }

    /// A request comes to the stage its step names.
    fn enter(&mut self, slot: u32, work: u64) {
        let job = self.jobs.get_mut(slot);
        let Some(&(index, _)) = self.routes[job.path as usize].get(job.step as usize) else {
            // A path that demands nothing: over at once, but not before somebody asks.
            return self.schedule(slot, work);
        };
        let stage = &mut self.stages[index as usize];
        if stage.busy < stage.servers {
            stage.occupy(work);
            self.serve(slot, work);
        } else {
            job.place = Place::Line;
            stage.line.push(&mut self.jobs, slot);
        }
    }

    /// A server, already counted busy, starts on a request.
    fn serve(&mut self, slot: u32, work: u64) {
        let job = self.jobs.get(slot);
        let (_, dist) = self.routes[job.path as usize][job.step as usize];
        let drawn = nanoseconds(dist.sample(&mut self.rng));
        let demand = if job.factor == 1.0 { drawn } else { (drawn as f64 * job.factor).round() as u64 };
        self.schedule(slot, work.saturating_add(demand));
    }

    fn schedule(&mut self, slot: u32, end: u64) {
        self.jobs.get_mut(slot).place = Place::Server;
        self.starts = self.starts.wrapping_add(1);
        self.ends.push(Reverse((end, self.starts, slot)));
    }

    fn end_of_stage(&mut self, slot: u32, work: u64, at_us: u64, done: &mut impl FnMut(Done)) {
        let job = self.jobs.get_mut(slot);
        let route = &self.routes[job.path as usize];
        let stage = route.get(job.step as usize).map(|(stage, _)| *stage as usize);
        job.step += 1;
        let last = job.step as usize >= route.len();
        let (id, wasted) = (job.id, job.gone);
        if let Some(stage) = stage {
            self.free_server(stage, work);
        }
        if !last {
            return self.enter(slot, work);
        }
        self.jobs.remove(slot);
        *(if wasted { &mut self.stats.wasted } else { &mut self.stats.served }) += 1;
        self.free_worker(work);
        done(Done { id, at_us, wasted });
    }

    fn free_server(&mut self, stage: usize, work: u64) {
        self.stages[stage].release(work);
        self.feed_servers(stage, work);
    }

    /// Idle servers start on those in line.
    fn feed_servers(&mut self, index: usize, work: u64) {
        loop {
            let stage = &mut self.stages[index];
            if stage.busy >= stage.servers {
                return;
            }
            let Some(slot) = stage.line.pop(&mut self.jobs) else { return };
            stage.occupy(work);
            self.serve(slot, work);
        }
    }

    /// A worker has ended; it takes the next of the backlog unless there are too many workers.
    fn free_worker(&mut self, work: u64) {
        self.stats.in_service -= 1;
        if self.in_service() < self.workers
            && let Some(slot) = self.waiting.pop(&mut self.jobs)
        {
            self.stats.in_service += 1;
            self.begin(slot, work);
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER)
}
