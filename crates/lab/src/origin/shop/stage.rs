//! A tier of the shop: threads that take jobs from one bounded queue, first come, first served.
//!
//! Busy time is *wall* time during which a server holds a job, less what the job spends in another tier. That
//! is the utilisation of queueing theory: at 1.0 the queue starts to grow, whatever else runs on the machine.
//! CPU time was rejected for it: on a shared processor a tier can be full at a CPU share of a half, and an
//! operator who looks for the bottleneck would look past it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

use super::load::Load;
use crate::model::StageStats;
use crate::times::micros;

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
    load: Arc<Load>,
    started: Instant,
}

struct Queue<J> {
    waiting: VecDeque<J>,
    in_service: usize,
    open: bool,
}

pub(super) struct Meter {
    busy: Mutex<Busy>,
    /// The whole tier's.
    load: Arc<Load>,
}

#[derive(Default)]
struct Busy {
    total: Duration,
    since: Option<Instant>,
}

impl<J: Send + 'static> Stage<J> {
    /// Starts one thread per handler. At most `backlog` jobs wait.
    pub fn start<H>(name: &'static str, backlog: usize, handlers: Vec<H>) -> io::Result<Self>
    where
        H: FnMut(J, &Meter) + Send + 'static,
    {
        let load = Arc::new(Load::new());
        let meter = || Meter { busy: Mutex::default(), load: Arc::clone(&load) };
        let shared = Arc::new(Shared {
            name,
            room: handlers.len().saturating_add(backlog),
            queue: Mutex::new(Queue { waiting: VecDeque::new(), in_service: 0, open: true }),
            ready: Condvar::new(),
            meters: handlers.iter().map(|_| meter()).collect(),
            load: Arc::clone(&load),
            started: Instant::now(),
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
    /// The job, when every server is busy and the backlog is full, or the tier is being closed.
    pub fn submit(&self, job: J) -> Result<(), J> {
        let mut queue = self.shared.queue.lock();
        let present = queue.waiting.len() + queue.in_service;
        if present >= self.shared.room || !queue.open {
            return Err(job);
        }
        queue.waiting.push_back(job);
        self.shared.load.add();
        drop(queue);
        self.shared.ready.notify_one();
        Ok(())
    }
}

impl<J> Stage<J> {
    /// A snapshot. Servers that wait for another tier count as idle, though they take no other job.
    pub fn stats(&self) -> StageStats {
        let existed = self.shared.started.elapsed();
        let seen: Vec<_> = self.shared.meters.iter().map(Meter::read).collect();
        let (load, load_us) = self.shared.load.read();
        StageStats {
            name: self.shared.name.to_owned(),
            servers: seen.len() as u32,
            busy: seen.iter().filter(|(at_work, _)| *at_work).count() as u32,
            queued: self.shared.queue.lock().waiting.len() as u32,
            load,
            load_us,
            busy_us: seen.iter().map(|(_, busy)| micros(*busy)).collect(),
            idle_us: seen.iter().map(|(_, busy)| micros(existed.saturating_sub(*busy))).collect(),
        }
    }
}

impl<J> Drop for Stage<J> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.open = false;
        let discarded = std::mem::take(&mut queue.waiting);
        drop(queue);
        // Outside the lock: the receivers of their answers may ask this tier again.
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
            let mut queue = self.queue.lock();
            let job = loop {
                if let Some(job) = queue.waiting.pop_front() {
                    break job;
                }
                if !queue.open {
                    return;
                }
                self.ready.wait(&mut queue);
            };
            queue.in_service += 1;
            drop(queue);
            meter.resume();
            handler(job, meter);
            meter.pause();
            self.load.remove();
            self.queue.lock().in_service -= 1;
        }
    }
}

impl Meter {
    /// Runs `elsewhere`, whose time and load are another tier's.
    pub fn away<T>(&self, elsewhere: impl FnOnce() -> T) -> T {
        self.pause();
        self.load.remove();
        let value = elsewhere();
        self.load.add();
        self.resume();
        value
    }

    fn resume(&self) {
        self.busy.lock().since = Some(Instant::now());
    }

    fn pause(&self) {
        let mut busy = self.busy.lock();
        if let Some(since) = busy.since.take() {
            busy.total += since.elapsed();
        }
    }

    /// Whether it is busy now, and for how long it has been in all.
    fn read(&self) -> (bool, Duration) {
        let busy = self.busy.lock();
        let now = busy.since.map_or(Duration::ZERO, |since| since.elapsed());
        (busy.since.is_some(), busy.total + now)
    }
}
