//! How the gate is set up: limits, which class is next, and what each class may take. All of it may change while the gate
//! runs.

use std::time::Duration;

use crate::units::{ClassId, Cost, Rate, Share};

/// How the gate is set up. All of it may be changed while running: [`Gate::reconfigure`](super::Gate::reconfigure).
#[derive(Clone, PartialEq, Debug)]
pub struct GateConfig {
    /// Requests the origin works on at once; `None`: no limit, nobody queues for it.
    pub max_in_flight: Option<u32>,
    /// Requests that may wait, all classes together.
    pub max_queue: usize,
    /// Longest wait in the queue, for classes without a patience of their own.
    pub max_queue_wait: Duration,
    /// Which class is next.
    pub scheduler: Scheduling,
    /// Each class by its id. Classes beyond the end come last and are otherwise as [`ClassConfig::default`].
    pub classes: Vec<ClassConfig>,
}

impl Default for GateConfig {
    /// No limit in flight; otherwise what the settings' defaults say.
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
    /// What holds for a class, also for one that is not configured.
    pub fn class(&self, id: ClassId) -> ClassConfig {
        let unknown = ClassConfig { priority: u8::MAX, ..ClassConfig::default() };
        self.classes.get(id.index()).copied().unwrap_or(unknown)
    }
}

/// Which class is next when several wait.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Scheduling {
    /// Strict priority; within one priority first come, first served.
    #[default]
    Priority,
    /// One request of each class in turn, whatever the priorities.
    RoundRobin,
    /// Strict priority; within one priority deficit round-robin: work in proportion to the weights.
    Deficit,
}

/// What one class may take, and how it waits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClassConfig {
    /// Lower goes first.
    pub priority: u8,
    /// Share among classes of one priority under [`Scheduling::Deficit`], at least 1.
    pub weight: u32,
    /// Part of the work sent to the origin that the class gets in any case while somebody of it waits.
    pub guarantee: Share,
    /// Requests of the class at the origin at once; `None`: no limit of its own.
    pub max_in_flight: Option<u32>,
    /// Its queue.
    pub queue: QueueConfig,
    /// Work it may send to the origin.
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

/// A class's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueConfig {
    /// Who of those who wait is next, and who is given up.
    pub discipline: DisciplineKind,
    /// Requests that may wait; `None`: as many as [`GateConfig::max_queue`] allows.
    pub max_length: Option<usize>,
    /// Longest wait; `None`: [`GateConfig::max_queue_wait`].
    pub patience: Option<Duration>,
    /// Of CoDel: the wait that is aimed at. Of adaptive LIFO: the newest goes first once the oldest has waited longer.
    pub target: Duration,
    /// Of CoDel: how long the shortest wait may be above the target before somebody is refused.
    pub interval: Duration,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            discipline: DisciplineKind::Fifo,
            max_length: None,
            patience: None,
            target: DEFAULT_TARGET,
            interval: DEFAULT_INTERVAL,
        }
    }
}

/// Of CoDel for requests. RFC 8289 has 5 ms for packets; where a unit of service is a request, a standing queue of some
/// requests is no fault yet.
pub const DEFAULT_TARGET: Duration = Duration::from_millis(100);
/// Of CoDel: as in RFC 8289 section 4.2 long enough for several services, and twenty times shorter than the wait after which
/// people leave.
pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(500);

/// Who of those who wait is next.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DisciplineKind {
    /// First come, first served.
    #[default]
    Fifo,
    /// The newest first.
    Lifo,
    /// First come, first served until the oldest has waited for `target`; then the newest first.
    AdaptiveLifo,
    /// First come, first served, while the wait is kept near `target` by refusing some.
    CoDel,
}

/// A token bucket's two numbers.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct BucketConfig {
    /// Work per second; zero: no limit.
    pub rate: Rate,
    /// Work that may pass in one instant after a pause. A request that costs more passes when the bucket is full.
    pub burst: Cost,
}

impl BucketConfig {
    /// Whether it limits anything.
    pub fn is_limited(&self) -> bool {
        self.rate > Rate::ZERO
    }
}
