//! Mode `spin`: the model's pool and backlog, but its workers are threads that burn the CPU time a request
//! demands.
//!
//! What the model computes happens here: a machine with fewer cores than busy workers makes them wait for one
//! another, and a stage with fewer servers than workers is where threads queue. The contention law applies on
//! top, if the spec asks for it. Utilisation is CPU time burnt.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::reply::{Reply, Taken};
use super::servers::Servers;
use super::{Full, Stats, Visit};
use crate::dist::Dist;
use crate::model::{StageStats, contention_factor};
use crate::scenario::OriginSpec;

/// Most workers of a replica here: more threads than any machine has cores for, fewer than any system
/// refuses.
const MAX_THREADS: u32 = 4096;

pub(super) struct SpinPool {
    backlog: u32,
    contention: f64,
    notices_leavers: bool,
    routes: Vec<Vec<(usize, Dist)>>,
    stages: Vec<Servers>,
    state: Mutex<State>,
    /// A request waits, or the number of workers has fallen, or the pool stops.
    news: Condvar,
    stopping: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct State {
    waiting: VecDeque<Job>,
    workers: u32,
    /// Threads alive; more than `workers` for as long as those too many have something to end.
    alive: u32,
    speed: f64,
    rng: SmallRng,
    stats: Stats,
}

struct Job {
    path: usize,
    reply: oneshot::Sender<Reply>,
    visit: Visit,
}

impl SpinPool {
    pub fn start(spec: &OriginSpec, seed: u64) -> io::Result<Arc<Self>> {
        let now = Instant::now();
        let servers = |stage: &crate::scenario::Stage| {
            Servers::new(stage.name.clone(), stage.servers, stage.servers == spec.workers, now)
        };
        let state = State {
            waiting: VecDeque::new(),
            workers: 0,
            alive: 0,
            speed: 1.0,
            rng: SmallRng::seed_from_u64(seed),
            stats: Stats::default(),
        };
        let pool = Arc::new(Self {
            backlog: spec.backlog,
            contention: spec.contention,
            notices_leavers: spec.notices_leavers,
            routes: spec.paths.iter().map(|path| path.demand.clone()).collect(),
            stages: spec.stages.iter().map(servers).collect(),
            state: Mutex::new(state),
            news: Condvar::new(),
            stopping: AtomicBool::new(false),
            threads: Mutex::default(),
        });
        if let Err(error) = pool.change(Some(spec.workers), None) {
            pool.stop();
            return Err(error);
        }
        Ok(pool)
    }

    pub fn submit(&self, path: usize, visit: Visit) -> Result<Taken, Full> {
        let mut state = self.state.lock();
        state.stats.submitted += 1;
        if self.is_full(&state) && self.notices_leavers {
            self.forget_leavers(&mut state);
        }
        if self.is_full(&state) {
            state.stats.refused += 1;
            visit.refused();
            return Err(Full);
        }
        let (reply, taken) = oneshot::channel();
        state.waiting.push_back(Job { path, reply, visit });
        let present = state.stats.in_service + state.waiting.len();
        state.stats.peak = state.stats.peak.max(present);
        self.news.notify_one();
        Ok(Taken { reply: taken, leaving: None })
    }

    /// A request for which a worker is free does not count as waiting, though its thread may not have woken
    /// yet.
    fn is_full(&self, state: &State) -> bool {
        let free = (state.workers as usize).saturating_sub(state.stats.in_service);
        state.waiting.len() >= self.backlog as usize + free
    }

    fn forget_leavers(&self, state: &mut State) {
        let before = state.waiting.len();
        state.waiting.retain(|job| !job.reply.is_closed());
        state.stats.abandoned += (before - state.waiting.len()) as u64;
    }

    pub fn stats(&self) -> Stats {
        let state = self.state.lock();
        Stats { queued: state.waiting.len(), ..state.stats }
    }

    pub fn stages(&self) -> Vec<StageStats> {
        self.stages.iter().map(Servers::stats).collect()
    }

    /// # Errors
    /// More workers than [`MAX_THREADS`]; or the system gives no thread: the number of workers is then what
    /// it gave.
    pub fn change(self: &Arc<Self>, workers: Option<u32>, speed: Option<f64>) -> io::Result<()> {
        if let Some(workers) = workers.filter(|workers| *workers > MAX_THREADS) {
            let what =
                format!("workers: expected at most {MAX_THREADS} where each is a thread; got {workers}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut state = self.state.lock();
        if let Some(speed) = speed {
            state.speed = speed;
        }
        let Some(workers) = workers else { return Ok(()) };
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        let mut outcome = Ok(());
        while state.alive < workers && outcome.is_ok() {
            let pool = Arc::clone(self);
            let thread = std::thread::Builder::new().name("worker".into()).spawn(move || pool.work());
            outcome = thread.map(|thread| {
                threads.push(thread);
                state.alive += 1;
            });
        }
        state.workers = workers.min(state.alive);
        self.stages.iter().for_each(|stage| stage.follow(state.workers));
        self.news.notify_all();
        outcome
    }

    /// Ends the threads; what they work on is given up.
    pub fn stop(&self) {
        {
            // Under the lock: a thread that has just looked and goes to sleep must not miss it.
            let _state = self.state.lock();
            self.stopping.store(true, Relaxed);
            self.news.notify_all();
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A worker that panicked has said so on standard error.
            let _ = thread.join();
        }
    }

    fn work(&self) {
        let mut demands = Vec::new();
        while let Some(job) = self.next(&mut demands) {
            let given_up = || self.stopping.load(Relaxed) || (self.notices_leavers && job.reply.is_closed());
            for (stage, demand) in &demands {
                self.stages[*stage].serve(*demand, given_up);
            }
            self.finish(job);
        }
    }

    /// The next request, and what it demands; `None`: this worker is one too many.
    fn next(&self, demands: &mut Vec<(usize, Duration)>) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if self.stopping.load(Relaxed) || state.alive > state.workers {
                state.alive -= 1;
                return None;
            }
            if let Some(job) = state.waiting.pop_front() {
                state.stats.in_service += 1;
                let present = (state.stats.in_service + state.waiting.len()) as u32;
                let factor = contention_factor(self.contention, state.workers, present) / state.speed;
                demands.clear();
                for (stage, dist) in &self.routes[job.path] {
                    let drawn = dist.sample(&mut state.rng).as_secs_f64() * factor;
                    demands.push((*stage, Duration::try_from_secs_f64(drawn).unwrap_or(Duration::MAX)));
                }
                return Some(job);
            }
            self.news.wait(&mut state);
        }
    }

    fn finish(&self, job: Job) {
        let mut state = self.state.lock();
        state.stats.in_service -= 1;
        let Job { reply, visit, .. } = job;
        if self.stopping.load(Relaxed) {
            state.stats.lost += 1;
        } else if !reply.is_closed() {
            state.stats.served += 1;
            visit.served();
            // A failed send means that the visitor has left; the request was served all the same.
            let _ = reply.send(Reply::Whole);
        } else if self.notices_leavers {
            state.stats.abandoned += 1;
        } else {
            state.stats.wasted += 1;
        }
    }
}
