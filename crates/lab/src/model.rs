//! The service as a model: one replica, pure, in virtual time. The real origin and the simulator drive the
//! same one.
//!
//! ```text
//!             ┌ backlog ┐   ┌ a worker holds the request through all its stages ──┐
//!  submit ──► │ bounded │ ─►│  line ─► app servers ─► line ─► db servers ─► ...   │ ─► Done
//!             └ refused ┘   └─────────────────────────────────────────────────────┘
//! ```
//!
//! What it is: a fixed pool of workers with a bounded first-come-first-served backlog. A worker takes its
//! request through stages, each with servers and a line of its own, and is held meanwhile: a layered queue,
//! as PHP-FPM and its database are. With one stage of as many servers as workers it is an M/G/c/K queue.
//! Service demand is drawn per request and stage; it grows with the requests present. With `w` workers,
//! demand `s0` and `n` requests present (in service and waiting, this one included) when a worker takes a
//! request:
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
//!   square is the coherency term of Gunther's Universal Scalability Law, N·(N−1): pairs get in each other's
//!   way. A linear term was rejected: it costs a service 2 % for a queue of two, which no real service shows,
//!   and spares it at a queue of a hundred, where real ones fall over. `a` = 0.01 gives 1.04·s0 at n = 3w
//!   and, with the default backlog full (n = 138), 2.6·s0: about 38 % of the capacity is left.
//! - **Wasted work.** A worker does not see that its visitor has left; it serves the request to the end.
//! - **A bounded backlog.** A request that finds it full is refused at once, and its visitor comes again.
//!
//! A demand is fixed when its service starts, the contention when a worker takes the request. A worker that
//! finds the next request waiting starts it at the instant the last one was due to end, not when somebody
//! looked, so that the granularity of a timer takes nothing of the capacity.
//!
//! A spec may add: stages whose servers are shared by all present instead of a line (`share.rs`), pauses and
//! neighbours (`disturbances.rs`), answers that go on without a worker and errors that cost none (`fate.rs`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::dist::Dist;
use crate::scenario::{OriginSpec, PathSpec};

mod disturbances;
mod fate;
mod flow;
mod pace;
mod paths;
mod share;
mod slab;
mod stage;
mod stats;

#[cfg(test)]
mod tests;

use disturbances::Disturbances;
use fate::Fates;
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

/// A request has been answered, or a part of the answer has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// As given to [`Model::submit`].
    pub id: u64,
    /// When, in microseconds, rounded up to a whole one.
    pub at_us: u64,
    pub wasted: bool,
    pub part: Part,
}

/// The part of an answer that has been sent. Where no path has a `stream` or `errors`, always
/// [`Part::Whole`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// The head: the request has been served and holds no worker any more, but the answer goes on until then
    /// (microseconds), and another [`Done`] says so.
    Head {
        /// When it ends, unless the visitor leaves before.
        ends_us: u64,
    },
    /// The rest of an answer whose head was reported before.
    Rest,
    Error,
}

/// Due events. Work of servers is ordered by work instants, finer than a microsecond; events bound to time
/// (the end of a stream, a disturbance) comes after the work due in the same microsecond, so that a pause
/// does not hold what was over when it began.
#[derive(Clone, Copy)]
enum Due {
    /// The first of `ends`: work instant and slot.
    Server(u64, u32),
    /// The first of those who share this stage.
    Shared(u32),
    /// The first of `streams`.
    Stream,
    Disturbance,
}

/// One replica. Time is in microseconds since any start and never runs backwards; what is due must be taken
/// with [`Model::advance`] before anything later is reported.
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
    /// When servers end, in work instants; at most one entry per worker. The number after it keeps those of
    /// one instant in the order they started; its overflow after 2³² starts could swap two of one nanosecond.
    ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
    starts: u32,
    /// Nothing but `ends` makes anything due: no sharing, no streams, no disturbances.
    plain: bool,
    sharing: Vec<u32>,
    /// When answers that go on end, in microseconds.
    streams: BinaryHeap<Reverse<(u64, u32, u32)>>,
    disturbances: Option<Disturbances>,
    fates: Fates,
    /// As it was set; disturbances slow it.
    speed: f64,
    pace: Pace,
    now_us: u64,
    rng: SmallRng,
    stats: Stats,
}

impl Model {
    /// An idle replica. Same spec, same seed, same calls: same answers.
    pub fn new(spec: &OriginSpec, seed: u64) -> Self {
        let route =
            |path: &PathSpec| path.demand.iter().map(|(stage, dist)| (*stage as u32, *dist)).collect();
        let stages: Vec<_> = spec.stages.iter().map(|stage| StageState::new(stage, spec.workers)).collect();
        let shared = (0u32..).zip(&stages).filter(|(_, stage)| stage.shared.is_some());
        let sharing: Vec<u32> = shared.map(|(index, _)| index).collect();
        let (fates, disturbances) = (Fates::new(spec, seed), Disturbances::new(spec, seed));
        Self {
            workers: spec.workers,
            backlog: spec.backlog,
            contention: spec.contention,
            notices_leavers: spec.notices_leavers,
            routes: spec.paths.iter().map(route).collect(),
            stages,
            jobs: Slab::default(),
            waiting: Line::default(),
            ends: BinaryHeap::new(),
            starts: 0,
            plain: sharing.is_empty() && !fates.may_stream && disturbances.is_none(),
            sharing,
            streams: BinaryHeap::new(),
            disturbances,
            fates,
            speed: 1.0,
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
        if self.fates.may_fail
            && let Some(demand) = self.fates.error(path)
        {
            return Ok(self.fail(id, path, demand, now_us));
        }
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
        self.stats.peak = self.stats.peak.max(self.present());
        Ok(Ticket { slot, generation: self.jobs.get(slot).generation })
    }

    /// The visitor has gone. Work goes on and is wasted, unless the spec says that leavers are noticed; an
    /// answer that goes on breaks off: who writes notices. Returns whether a [`Done`] for the request is
    /// still to come; a ticket of a request that is over changes nothing.
    pub fn leave(&mut self, ticket: Ticket, now_us: u64) -> bool {
        self.tell(now_us);
        let Some(job) = self.jobs.find(ticket.slot, ticket.generation) else { return false };
        job.gone = true;
        if !self.notices_leavers && job.place != Place::Streaming {
            return true;
        }
        self.stats.abandoned += 1;
        self.drop_out(ticket.slot, now_us);
        false
    }

    pub fn next_event(&self) -> Option<u64> {
        if !self.plain {
            return self.due().map(|(at_us, _)| at_us);
        }
        let Reverse((work, ..)) = self.ends.peek()?;
        Some(self.pace.time(*work)).filter(|time| *time < u64::MAX)
    }

    /// Does everything due until `now_us`, in order of time.
    pub fn advance(&mut self, now_us: u64, done: &mut impl FnMut(Done)) {
        if self.plain {
            self.advance_servers(now_us, done);
            return self.note(now_us);
        }
        while let Some((at_us, due)) = self.due().filter(|(at_us, _)| *at_us <= now_us) {
            match due {
                Due::Server(work, slot) => self.end_of_server(work, slot, at_us, done),
                Due::Shared(stage) => self.end_of_share(stage, at_us, done),
                Due::Stream => self.end_of_stream(at_us, done),
                Due::Disturbance => self.turn(at_us),
            }
        }
        self.note(now_us);
    }

    /// From now on every server works at `speed` (1.0: as the spec says), also on what it has under way.
    ///
    /// # Panics
    /// The speed is not above zero: callers check what they read.
    pub fn set_speed(&mut self, speed: f64, now_us: u64) {
        assert!(speed > 0.0 && speed.is_finite(), "speed {speed}");
        self.tell(now_us);
        self.speed = speed;
        self.repace(now_us);
    }

    /// Changes the number of workers. More of them start on the backlog at once; of fewer, those too many end
    /// what they have first. A stage with as many servers as workers keeps it so.
    pub fn set_workers(&mut self, workers: u32, now_us: u64) {
        self.tell(now_us);
        self.workers = workers;
        let work = self.pace.work(now_us);
        for index in 0..self.stages.len() {
            if self.stages[index].follows_workers {
                self.stages[index].flush(&self.pace, now_us);
                self.stages[index].resize(workers, work);
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

    /// From now on this share of all requests is answered with an error, whatever their paths say. Those
    /// present keep their fate.
    pub fn set_errors(&mut self, share: f64, now_us: u64) {
        self.tell(now_us);
        self.fates.set_errors(share);
    }

    /// The process dies and is back at once, empty. Returns the ids of all requests present: they are lost.
    pub fn crash(&mut self, now_us: u64) -> Vec<u64> {
        self.tell(now_us);
        let work = self.pace.work(now_us);
        let slots: Vec<u32> = self.jobs.slots().collect();
        let lost = slots.iter().map(|slot| self.jobs.get(*slot).id).collect();
        slots.iter().for_each(|slot| self.jobs.remove(*slot));
        self.ends.clear();
        self.streams.clear();
        self.waiting = Line::default();
        self.stages.iter_mut().for_each(|stage| stage.empty(work));
        self.stats.lost += slots.len() as u64;
        (self.stats.in_service, self.stats.failing, self.stats.streaming) = (0, 0, 0);
        lost
    }

    fn turn(&mut self, at_us: u64) {
        let Some(disturbances) = &mut self.disturbances else { return };
        disturbances.turn(at_us);
        self.repace(at_us);
    }

    /// When the next disturbance begins or ends; `u64::MAX`: never.
    fn disturbance_us(&self) -> u64 {
        self.disturbances.as_ref().map_or(u64::MAX, |disturbances| disturbances.next_us())
    }

    fn repace(&mut self, now_us: u64) {
        let speed = self.speed * self.disturbances.as_ref().map_or(1.0, |disturbances| disturbances.factor());
        for stage in &mut self.stages {
            stage.flush(&self.pace, now_us);
        }
        self.pace.change(speed, now_us);
    }

    /// The next due event, and its time in microseconds.
    fn due(&self) -> Option<(u64, Due)> {
        let mut work = NEVER;
        let mut due = Due::Disturbance;
        if let Some(&Reverse((ends, _, slot))) = self.ends.peek() {
            (work, due) = (ends, Due::Server(ends, slot));
        }
        for index in &self.sharing {
            let shared = self.stages[*index as usize].shared.as_ref().map_or(NEVER, |shared| shared.due);
            if shared < work {
                (work, due) = (shared, Due::Shared(*index));
            }
        }
        // Work that came while servers stood still may seem to be over before.
        let mut at_us = if work == NEVER { u64::MAX } else { self.pace.time(work).max(self.now_us) };
        if let Some(Reverse((ends_us, ..))) = self.streams.peek()
            && *ends_us < at_us
        {
            (at_us, due) = (*ends_us, Due::Stream);
        }
        // Without work that ends, a disturbance changes nothing.
        if work < NEVER && self.disturbance_us() < at_us {
            (at_us, due) = (self.disturbance_us(), Due::Disturbance);
        }
        (at_us < u64::MAX).then_some((at_us, due))
    }

    /// [`Model::advance`] where nothing but servers makes anything due.
    fn advance_servers(&mut self, now_us: u64, done: &mut impl FnMut(Done)) {
        while let Some(&Reverse((work, _, slot))) = self.ends.peek() {
            let at_us = self.pace.time(work);
            if at_us > now_us || at_us == u64::MAX {
                break;
            }
            self.end_of_server(work, slot, at_us, done);
        }
    }

    /// The figures, as of the last call with a time. Allocates nothing.
    pub fn stats(&self) -> Stats {
        Stats { queued: self.waiting.len() as usize, ..self.stats }
    }

    pub fn stages(&self) -> Vec<StageStats> {
        self.stages.iter().map(|stage| stage.stats(&self.pace, self.now_us)).collect()
    }

    pub fn workers(&self) -> u32 {
        self.workers
    }

    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// Speed in force as of the last request: nothing in a pause, less than was set beside a neighbour.
    pub fn pace(&self) -> f64 {
        self.pace.speed
    }

    #[inline]
    fn tell(&mut self, now_us: u64) {
        self.note(now_us);
        // While nobody is served, no disturbance is due: it is caught up with here.
        while !self.plain && self.disturbance_us() < now_us {
            self.turn(self.disturbance_us());
        }
    }

    #[inline]
    fn note(&mut self, now_us: u64) {
        debug_assert!(now_us >= self.now_us, "time ran backwards: {now_us} after {}", self.now_us);
        debug_assert!(
            self.next_event().is_none_or(|due| due >= now_us),
            "told of {now_us} before what was due was taken"
        );
        self.now_us = self.now_us.max(now_us);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER)
}

/// How many times longer a request takes that a worker takes while `present` are there, itself included.
pub fn contention_factor(contention: f64, workers: u32, present: u32) -> f64 {
    let beyond = f64::from(present.saturating_sub(workers)) / f64::from(workers.max(1));
    1.0 + contention * beyond * beyond
}
