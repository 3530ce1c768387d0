//! The model behind the origin: a fixed pool of workers, a bounded first-come-first-served backlog, contention.
//!
//! What it is: an M/D/c/K queue whose service time grows with the requests present. With `w` workers, service
//! time `s0` and `n` requests present (in service and waiting, this one included) when a worker takes a request:
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
//! A service time is fixed when service starts (deterministic service, as in WebQ's set-up: the same integer
//! loop for every request). A worker that finds the next request waiting starts it at the instant the last one
//! was due to end, not when the timer happened to fire, so that timer granularity takes nothing of the capacity.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// The law of the pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// Requests served at once (w).
    pub workers: usize,
    /// Service time of a request when nobody waits (s0).
    pub service: Duration,
    /// Requests that may wait; further ones are refused. 128: the accept queue that `listen(2)` programs
    /// most often ask for.
    pub backlog: usize,
    /// Strength of contention (a); 0: none.
    pub contention: f64,
}

impl Default for Law {
    fn default() -> Self {
        Self { workers: 10, service: Duration::from_millis(100), backlog: 128, contention: 0.01 }
    }
}

impl Law {
    /// Requests per second that the pool serves while nobody has to wait: w / s0.
    pub fn capacity(&self) -> f64 {
        self.workers as f64 / self.service.as_secs_f64()
    }

    /// Service time of a request that is taken while `present` requests are there, itself included.
    pub fn service_at(&self, present: usize) -> Duration {
        let beyond = present.saturating_sub(self.workers) as f64 / self.workers.max(1) as f64;
        self.service.mul_f64(1.0 + self.contention.max(0.0) * beyond * beyond)
    }
}

/// What the pool has done and is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct Stats {
    /// Requests served to visitors who still waited for the answer.
    pub served: u64,
    /// Requests refused because the backlog was full.
    pub refused: u64,
    /// Requests served to the end although the visitor had left.
    pub wasted: u64,
    /// Requests in service now.
    pub in_service: usize,
    /// Requests waiting now.
    pub queued: usize,
    /// Most requests present at once so far.
    pub peak: usize,
}

impl Stats {
    /// Requests present now: in service and waiting.
    pub fn present(&self) -> usize {
        self.in_service + self.queued
    }
}

/// The backlog was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the origin's backlog is full")]
pub struct Full;

/// The pool itself; cheap to share.
pub struct Pool {
    law: Law,
    state: Mutex<State>,
    served: AtomicU64,
    refused: AtomicU64,
    wasted: AtomicU64,
    peak: AtomicUsize,
}

#[derive(Default)]
struct State {
    busy: usize,
    backlog: VecDeque<oneshot::Sender<()>>,
}

impl Pool {
    /// An idle pool. Its workers are tasks of the tokio runtime that calls [`Pool::submit`].
    pub fn new(law: Law) -> Arc<Self> {
        Arc::new(Self {
            law,
            state: Mutex::default(),
            served: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            wasted: AtomicU64::new(0),
            peak: AtomicUsize::new(0),
        })
    }

    /// Hands a request in. The receiver resolves when the request has been served; dropping it is how a visitor
    /// leaves, which the worker does not notice.
    ///
    /// # Errors
    /// [`Full`] when all workers are busy and the backlog is full.
    pub fn submit(self: &Arc<Self>) -> Result<oneshot::Receiver<()>, Full> {
        let (reply, served) = oneshot::channel();
        let mut state = self.lock();
        if state.busy < self.law.workers {
            state.busy += 1;
            self.note_peak(&state);
            let service = self.law.service_at(state.busy + state.backlog.len());
            drop(state);
            tokio::spawn(Arc::clone(self).work(reply, Instant::now() + service));
        } else if state.backlog.len() < self.law.backlog {
            state.backlog.push_back(reply);
            self.note_peak(&state);
        } else {
            self.refused.fetch_add(1, Relaxed);
            return Err(Full);
        }
        Ok(served)
    }

    /// A snapshot of the figures.
    pub fn stats(&self) -> Stats {
        let state = self.lock();
        Stats {
            served: self.served.load(Relaxed),
            refused: self.refused.load(Relaxed),
            wasted: self.wasted.load(Relaxed),
            in_service: state.busy,
            queued: state.backlog.len(),
            peak: self.peak.load(Relaxed),
        }
    }

    /// One worker, from the request that found it idle until nobody waits.
    async fn work(self: Arc<Self>, first: oneshot::Sender<()>, first_end: Instant) {
        let (mut reply, mut end) = (first, first_end);
        loop {
            sleep_until(end).await;
            let counter = if reply.send(()).is_ok() { &self.served } else { &self.wasted };
            counter.fetch_add(1, Relaxed);
            let mut state = self.lock();
            let present = state.busy + state.backlog.len() - 1;
            let Some(next) = state.backlog.pop_front() else {
                state.busy -= 1;
                return;
            };
            drop(state);
            (reply, end) = (next, end + self.law.service_at(present));
        }
    }

    fn note_peak(&self, state: &State) {
        self.peak.fetch_max(state.busy + state.backlog.len(), Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock; a poisoned one still holds consistent counts.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
