//! Connections accepted, and those that wait to be, by priority (docs/kernel.md): of visitors and of TCP
//! services.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_settings::MAX_PRIORITIES;

use crate::shared::listening::Listening;
use crate::shared::tcp::TcpServices;

/// Counters of all workers. Each worker has its own, so that no connection writes what another core writes.
pub struct Accepts {
    workers: Box<[OfWorker]>,
    priorities: usize,
    /// Where visitors come.
    visitors: Vec<Arc<Listening>>,
    tcp: Arc<TcpServices>,
}

/// A cache line, or more.
#[repr(align(64))]
#[derive(Default)]
struct OfWorker([AtomicU64; MAX_PRIORITIES]);

impl Accepts {
    pub fn new(
        workers: usize,
        priorities: usize,
        visitors: Vec<Arc<Listening>>,
        tcp: Arc<TcpServices>,
    ) -> Self {
        let workers = (0..workers).map(|_| OfWorker::default()).collect();
        Self { workers, priorities: priorities.clamp(1, MAX_PRIORITIES), visitors, tcp }
    }

    /// Only the worker itself calls it: there is one writer, so a load and a store suffice.
    pub fn count(&self, worker: usize, priority: usize) {
        let counter = &self.workers[worker].0[priority];
        counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// By priority, the highest (0) first.
    pub fn by_priority(&self) -> Vec<u64> {
        let of = |priority: usize| self.workers.iter().map(move |worker| worker.0[priority].load(Relaxed));
        (0..self.priorities).map(|priority| of(priority).fold(0, u64::wrapping_add)).collect()
    }

    /// Connections that wait in the kernel to be accepted, by priority. A system call for each socket.
    pub fn waiting(&self) -> Vec<u64> {
        let mut all = vec![0; self.priorities];
        for listening in self.visitors.iter().cloned().chain(self.tcp.listening()) {
            all.iter_mut().zip(listening.waiting()).for_each(|(sum, of)| *sum += of);
        }
        all
    }

    /// Priorities in which connections are accepted, at least 1.
    pub fn priorities(&self) -> usize {
        self.priorities
    }
}
