//! The connections that are open, and the most there may be.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::measure::{Event, Shard};

use crate::shared::{Shared, Worker};

/// A connection among those open, of a visitor or of a TCP service. Held until its end, also if
/// it becomes a tunnel.
pub(super) struct Counted {
    shared: Arc<Shared>,
    shard: Arc<Shard>,
}

impl Counted {
    /// `None`: there are as many as `limits.max_connections` permits.
    pub(super) fn new(worker: &Worker) -> Option<Self> {
        let max = worker.config().settings.limits.max_connections;
        if worker.shared.connections.fetch_add(1, Ordering::Relaxed) >= max {
            worker.shared.connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self { shared: worker.shared.clone(), shard: worker.shard.clone() })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // A panic that ends the connection's task: in a body.
        if std::thread::panicking() {
            self.shard.count(Event::Panics);
        }
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
