//! How long sessions live: read by every request, changed by a reload.

use std::time::Duration;

use super::types::SessionConfig;
use crate::sync::{AtomicU64, Ordering};

/// An entry counts its last request in 32 bits of milliseconds after the first: 49.7 days.
const LONGEST: Duration = Duration::from_secs(49 * 24 * 3600);

/// The two ends of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lifetimes {
    pub(super) timeout: Duration,
    pub(super) max_age: Duration,
}

/// The same, shared. A request that meets one of two new numbers only is as one that came before or after the reload.
#[derive(Debug)]
pub(super) struct SharedLifetimes {
    timeout_ms: AtomicU64,
    max_age_ms: AtomicU64,
}

impl SharedLifetimes {
    pub(super) fn new(config: &SessionConfig) -> Self {
        let shared = Self { timeout_ms: AtomicU64::new(0), max_age_ms: AtomicU64::new(0) };
        shared.set(config);
        shared
    }

    pub(super) fn set(&self, config: &SessionConfig) {
        let ms = |span: Duration| span.clamp(Duration::from_millis(1), LONGEST).as_millis() as u64;
        self.timeout_ms.store(ms(config.timeout), Ordering::Relaxed);
        self.max_age_ms.store(ms(config.max_age), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Lifetimes {
        Lifetimes {
            timeout: Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed)),
            max_age: Duration::from_millis(self.max_age_ms.load(Ordering::Relaxed)),
        }
    }
}
