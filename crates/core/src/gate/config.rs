//! The gate's configuration: limits, scheduler and classes. All of it may change while the gate runs.

use std::time::Duration;

use crate::bucket::BucketConfig;
use crate::queue::QueueConfig;
use crate::scheduler::{Precedence, Scheduling};
use crate::units::{ClassId, Share};

/// The gate's configuration. It may change while the gate runs:
/// [`Gate::reconfigure`](super::Gate::reconfigure).
#[derive(Clone, PartialEq, Debug)]
pub struct GateConfig {
    /// Requests in flight at the origin; `None`: no limit, no request queues for it.
    pub max_in_flight: Option<u32>,
    /// Requests that may wait, all classes together.
    pub max_queue: usize,
    /// Longest wait in the queue, for classes without a patience of their own.
    pub max_queue_wait: Duration,
    pub scheduler: Scheduling,
    /// Each class by its id. Classes beyond the end come last and otherwise follow [`ClassConfig::default`].
    pub classes: Vec<ClassConfig>,
}

impl Default for GateConfig {
    /// No in-flight limit; otherwise the defaults of the settings.
    fn default() -> Self {
        Self {
            max_in_flight: None,
            max_queue: 10_000,
            max_queue_wait: Duration::from_secs(30),
            scheduler: Scheduling::default(),
            classes: Vec::new(),
        }
    }
}

impl GateConfig {
    /// The configuration of a class, also of one that is not in the list.
    pub fn class(&self, id: ClassId) -> ClassConfig {
        let unknown = ClassConfig { priority: u8::MAX, ..ClassConfig::default() };
        self.classes.get(id.index()).copied().unwrap_or(unknown)
    }
}

/// The configuration of one class.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClassConfig {
    /// Lower goes first.
    pub priority: u8,
    /// Share among classes of one priority under [`Scheduling::Deficit`], at least 1.
    pub weight: u32,
    /// Part of the work sent to the origin that the class gets in any case while one of its requests may go.
    pub guarantee: Share,
    /// Requests of the class in flight at the origin; `None`: no limit of its own.
    pub max_in_flight: Option<u32>,
    pub queue: QueueConfig,
    /// Token bucket for its work sent to the origin.
    pub egress: BucketConfig,
}

impl Default for ClassConfig {
    fn default() -> Self {
        Self {
            priority: 1,
            weight: 1,
            guarantee: Share::ZERO,
            max_in_flight: None,
            queue: QueueConfig::default(),
            egress: BucketConfig::default(),
        }
    }
}

impl ClassConfig {
    pub(super) fn precedence(&self) -> Precedence {
        Precedence { priority: self.priority, weight: self.weight, guarantee: self.guarantee }
    }
}
