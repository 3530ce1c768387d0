//! The reply of a pool of workers to a request.

use tokio::sync::oneshot;
use tokio::time::Instant;

/// A request that a pool has taken. Dropped before its end: the visitor has left.
pub(super) struct Taken {
    pub reply: oneshot::Receiver<Reply>,
    /// Tells a pool that cannot see it by itself.
    pub leaving: Option<Leaving>,
}

pub(super) enum Reply {
    Whole,
    /// It has been served, and the answer takes until then.
    Until(Instant),
    Error,
}

/// Tells the pool, when dropped, that a visitor has left.
pub(super) struct Leaving(Box<dyn Fn() + Send + Sync>);

impl Leaving {
    pub fn new(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Box::new(tell))
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        (self.0)();
    }
}
