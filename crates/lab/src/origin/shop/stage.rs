//! A tier of the shop: threads that take jobs from one bounded queue, first come, first served.
//!
//! Busy time is *wall* time during which a server holds a job, less what the job spends in another tier. That is the
//! utilisation of queueing theory: at 1.0 the queue starts to grow, whatever else runs on the machine. CPU time was
//! rejected for it: on a shared processor a tier can be full at a CPU share of a half, and an operator who looks for
//! the bottleneck would look past it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::origin::Full;

/// Figures of one tier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageStats {
    /// `app` or `db`.
    pub name: &'static str,
    /// Jobs it works on at once.
    pub servers: usize,
    /// Server time spent on jobs since the start, in seconds, those under way included. At most `servers` times
    /// the time that has passed.
    pub busy_s: f64,
    /// Jobs taken by a server, those that it only sees through another tier included.
    pub in_service: usize,
    /// Jobs that wait for a server.
    pub queued: usize,
    /// Most jobs present at once so far.
    pub peak: usize,
}

/// One tier: its queue and its threads. Dropping it discards what waits and ends the threads.
pub(super) struct Stage<J> {
    shared: Arc<Shared<J>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<J> {
    name: &'static str,
    room: usize,
    queue: Mutex<Queue<J>>,
    ready: Condvar,
    meters: Vec<Meter>,
}

struct Queue<J> {
    waiting: VecDeque<J>,
    in_service: usize,
    peak: usize,
    open: bool,
}

/// How long one server has been busy.
#[derive(Default)]
pub(super) struct Meter(Mutex<Busy>);

#[derive(Default)]
struct Busy {
    total: Duration,
    since: Option<Instant>,
}

impl<J: Send + 'static> Stage<J> {
    /// Starts one thread per handler. At most `backlog` jobs wait.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start<H>(name: &'static str, backlog: usize, handlers: Vec<H>) -> io::Result<Self>
    where
        H: FnMut(J, &Meter) + Send + 'static,
    {
        let shared = Arc::new(Shared {
            name,
            room: handlers.len().saturating_add(backlog),
            queue: Mutex::new(Queue { waiting: VecDeque::new(), in_service: 0, peak: 0, open: true }),
            ready: Condvar::new(),
            meters: handlers.iter().map(|_| Meter::default()).collect(),
        });
        let mut stage = Self { shared, threads: Vec::with_capacity(handlers.len()) };
        for (server, mut handler) in handlers.into_iter().enumerate() {
            let shared = Arc::clone(&stage.shared);
            let thread = std::thread::Builder::new().name(format!("shop-{name}-{server}"));
            stage.threads.push(thread.spawn(move || shared.serve(server, &mut handler))?);
        }
        Ok(stage)
    }

    /// Hands a job in.
    ///
    /// # Errors
    /// [`Full`] when every server is busy and the backlog is full, or the tier is being closed.
    pub fn submit(&self, job: J) -> Result<(), Full> {
        let mut queue = lock(&self.shared.queue);
        let present = queue.waiting.len() + queue.in_service;
        if present >= self.shared.room || !queue.open {
            return Err(Full);
        }
        queue.waiting.push_back(job);
        queue.peak = queue.peak.max(present + 1);
        drop(queue);
        self.shared.ready.notify_one();
        Ok(())
    }
}

impl<J> Stage<J> {
    /// A snapshot.
    pub fn stats(&self) -> StageStats {
        let busy: Duration = self.shared.meters.iter().map(Meter::busy).sum();
        let queue = lock(&self.shared.queue);
        StageStats {
            name: self.shared.name,
            servers: self.shared.meters.len(),
            busy_s: busy.as_secs_f64(),
            in_service: queue.in_service,
            queued: queue.waiting.len(),
            peak: queue.peak,
        }
    }
}

impl<J> Drop for Stage<J> {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.open = false;
        let discarded = std::mem::take(&mut queue.waiting);
        drop(queue);
        // Outside the lock: whoever waits for their answers may ask this tier again.
        drop(discarded);
        self.shared.ready.notify_all();
        for thread in self.threads.drain(..) {
            // A panic was reported when it happened; there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

impl<J> Shared<J> {
    fn serve(&self, server: usize, handler: &mut impl FnMut(J, &Meter)) {
        let meter = &self.meters[server];
        loop {
            let mut queue = lock(&self.queue);
            let job = loop {
                if let Some(job) = queue.waiting.pop_front() {
                    break job;
                }
                if !queue.open {
                    return;
                }
                queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            queue.in_service += 1;
            drop(queue);
            meter.resume();
            handler(job, meter);
            meter.pause();
            lock(&self.queue).in_service -= 1;
        }
    }
}

impl Meter {
    /// Runs `elsewhere`, whose time is another tier's.
    pub fn away<T>(&self, elsewhere: impl FnOnce() -> T) -> T {
        self.pause();
        let value = elsewhere();
        self.resume();
        value
    }

    fn resume(&self) {
        lock(&self.0).since = Some(Instant::now());
    }

    fn pause(&self) {
        let mut busy = lock(&self.0);
        if let Some(since) = busy.since.take() {
            busy.total += since.elapsed();
        }
    }

    fn busy(&self) -> Duration {
        let busy = lock(&self.0);
        busy.total + busy.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// No code that can panic runs under these locks; a poisoned one still holds consistent figures.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
