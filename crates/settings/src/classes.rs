//! Classes as the core takes them: by id, the default class last.

use std::time::Duration;

use tidegate_core::bucket::BucketConfig;
use tidegate_core::gate::ClassConfig;
use tidegate_core::ingress::{IngressConfig, Refusal};
use tidegate_core::queue::{DisciplineKind, QueueConfig};
use tidegate_core::scheduler::Scheduling;
use tidegate_core::units::{Cost, Rate, Share};

use super::Settings;
use super::kinds::Named;
use super::sections::{Class, Match};

/// The class of requests that match none.
pub const DEFAULT: &str = "default";

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Switch {
    /// It has no effect.
    Off,
    /// It has.
    #[default]
    On,
}

impl Named for Switch {
    const NAMES: &'static [(&'static str, Self)] = &[("off", Self::Off), ("on", Self::On)];
}

impl Named for Scheduling {
    const NAMES: &'static [(&'static str, Self)] =
        &[("priority", Self::Priority), ("round-robin", Self::RoundRobin), ("deficit", Self::Deficit)];
}

impl Named for DisciplineKind {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("fifo", Self::Fifo),
        ("lifo", Self::Lifo),
        ("adaptive-lifo", Self::AdaptiveLifo),
        ("codel", Self::CoDel),
    ];
}

impl Named for Refusal {
    const NAMES: &'static [(&'static str, Self)] = &[("shed", Self::Shed), ("room", Self::Room)];
}

impl Settings {
    /// Every class by its id: those with a `match` in the order of the file, then the default class.
    pub fn classes(&self) -> Vec<Class> {
        let (default, mut all): (Vec<_>, Vec<_>) = self.class.iter().cloned().partition(Class::is_default);
        let none = || Class { name: DEFAULT.into(), ..Class::default() };
        all.push(default.into_iter().next().unwrap_or_else(none));
        all
    }
}

impl Class {
    /// Whether it configures the default class.
    pub(crate) fn is_default(&self) -> bool {
        self.name == DEFAULT && self.matches == Match::default()
    }

    /// Work of one request.
    pub fn work(&self) -> Cost {
        Cost::class_cost(self.cost).unwrap_or(Cost::ONE)
    }

    /// For tier 2.
    pub fn gate_config(&self) -> ClassConfig {
        let q = &self.queue;
        ClassConfig {
            priority: self.priority,
            weight: self.weight,
            guarantee: Share::from_fraction(self.guarantee).unwrap_or_default(),
            max_in_flight: bound(self.max_in_flight).map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
            queue: QueueConfig {
                discipline: q.discipline,
                max_length: bound(q.max_length),
                patience: Some(q.patience).filter(|patience| *patience > Duration::ZERO),
                target: q.target,
                interval: q.interval,
            },
            egress: releasing(bucket(self.egress.rate, self.egress.burst, self.work()), self.work()),
        }
    }

    /// For the door.
    pub fn ingress_config(&self) -> IngressConfig {
        IngressConfig {
            is_on: self.ingress.limit == Switch::On,
            bucket: bucket(self.ingress.rate, self.ingress.burst, self.work()),
            refusal: self.ingress.refuse,
        }
    }
}

/// What 0 stands for: no bound.
pub(crate) fn bound(most: usize) -> Option<usize> {
    Some(most).filter(|most| *most > 0)
}

/// How late those who wait for a bucket may be let go without loss: the timer counts in milliseconds, and shares its thread with
/// the control tick.
const RELEASED_WITHIN: Duration = Duration::from_millis(10);

/// A bucket that is emptied by a timer: it holds what comes in while the timer is late.
fn releasing(bucket: BucketConfig, one: Cost) -> BucketConfig {
    BucketConfig { burst: bucket.burst.max(one + bucket.rate.over(RELEASED_WITHIN)), ..bucket }
}

fn bucket(rate: f64, burst: f64, one: Cost) -> BucketConfig {
    let rate = Rate::per_second(rate).unwrap_or_default();
    let given = Cost::from_hundredths((burst * 100.0).round() as u64);
    let burst = if given > Cost::ZERO { given } else { rate.over(Duration::from_secs(1)).max(one) };
    BucketConfig { rate, burst }
}
