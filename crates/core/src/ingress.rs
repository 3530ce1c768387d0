//! Ingress of each class (MASTH 2.3): a token bucket before waiting room and gate, shared by all workers.
//!
//! A request that the bucket refuses is either shed, with the time after which it would pass, or sent to the
//! waiting room. For the latter its work is taken from the bucket in advance, and its ticket is due when the
//! bucket lets the work pass. Visitors who wait keep to the rate too, and do not pay again with the ticket.
//!
//! MASTH's operators switch throttling on and off as well as setting its rate; a bucket that is off fills up.

use std::sync::Arc;
use std::time::Duration;

use crate::bucket::{BucketConfig, SharedBucket};
use crate::units::{ClassId, Cost, Timestamp};

/// Greatest debt of a bucket by [`Ingress::charge`], as time at its rate.
const MOST_DEBT: Duration = Duration::from_secs(10);

/// What happens to a request that the bucket refuses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Refusal {
    /// It is refused with a time to try again.
    #[default]
    Shed,
    Room,
}

/// The configuration of one class.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct IngressConfig {
    pub is_on: bool,
    pub bucket: BucketConfig,
    pub refusal: Refusal,
}

/// The decision of a class's ingress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passage {
    Passes,
    /// Refused; it would pass after `retry_after`.
    Shed {
        retry_after: Duration,
    },
    /// It goes to the waiting room until `due`; its work is taken from the bucket already.
    Room {
        due: Timestamp,
    },
}

/// The ingress of all classes.
#[derive(Debug, Default)]
pub struct Ingress {
    /// By class id; `None`: no limit.
    classes: Vec<Option<ClassIngress>>,
}

#[derive(Clone, Debug)]
struct ClassIngress {
    is_on: bool,
    refusal: Refusal,
    bucket: Arc<SharedBucket>,
}

impl Ingress {
    /// An ingress with full buckets.
    pub fn new(classes: &[IngressConfig]) -> Self {
        Self { classes: classes.iter().map(|c| ClassIngress::new(c, None, Timestamp::default())).collect() }
    }

    /// The ingress of another configuration: buckets keep their state. `before` has each class's old id.
    #[must_use]
    pub fn succeed(&self, classes: &[IngressConfig], before: &[Option<ClassId>], now: Timestamp) -> Self {
        let of = |i: usize| self.of((*before.get(i)?)?);
        Self { classes: classes.iter().enumerate().map(|(i, c)| ClassIngress::new(c, of(i), now)).collect() }
    }

    /// A request arrives. In the waiting room it would have to wait at most `within`; `None`: it cannot wait.
    pub fn pass(&self, class: ClassId, cost: Cost, within: Option<Duration>, now: Timestamp) -> Passage {
        let Some(ingress) = self.of(class).filter(|g| g.is_on) else { return Passage::Passes };
        let Err(retry_after) = ingress.bucket.take(cost, now) else { return Passage::Passes };
        let Some(within) = within.filter(|_| ingress.refusal == Refusal::Room) else {
            return Passage::Shed { retry_after };
        };
        match ingress.bucket.reserve(cost, within, now) {
            Ok(due) => Passage::Room { due },
            Err(retry_after) => Passage::Shed { retry_after },
        }
    }

    /// As [`Ingress::pass`] for a request that cannot wait.
    ///
    /// # Errors
    /// How long until it would pass. Nothing is taken.
    pub fn take(&self, class: ClassId, cost: Cost, now: Timestamp) -> Result<(), Duration> {
        self.of(class).filter(|g| g.is_on).map_or(Ok(()), |g| g.bucket.take(cost, now))
    }

    /// Charges work that always passes, that of admitted sessions: later requests of the class wait longer.
    pub fn charge(&self, class: ClassId, cost: Cost, now: Timestamp) {
        if let Some(ingress) = self.of(class).filter(|g| g.is_on) {
            // More debt would only close the bucket after the load has ended.
            _ = ingress.bucket.reserve(cost, MOST_DEBT, now);
        }
    }

    /// The waiting room had no position for a request that was sent there.
    pub fn give_back(&self, class: ClassId, cost: Cost) {
        if let Some(ingress) = self.of(class) {
            ingress.bucket.give_back(cost);
        }
    }

    /// Whether requests of the class may be refused.
    pub fn limits(&self, class: ClassId) -> bool {
        self.of(class).is_some_and(|g| g.is_on)
    }

    /// Whether tickets of the class may wait for the bucket: they are not admitted before they are due.
    pub fn holds(&self, class: ClassId) -> bool {
        self.of(class).is_some_and(|g| g.is_on && g.refusal == Refusal::Room)
    }

    fn of(&self, class: ClassId) -> Option<&ClassIngress> {
        self.classes.get(class.index())?.as_ref()
    }
}

impl ClassIngress {
    fn new(config: &IngressConfig, before: Option<&Self>, now: Timestamp) -> Option<Self> {
        let bucket = match before {
            Some(before) => before.bucket.succeed(&config.bucket, now)?,
            None => SharedBucket::new(&config.bucket)?,
        };
        Some(Self { is_on: config.is_on, refusal: config.refusal, bucket })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::units::Rate;

    #[test]
    fn charged_work_always_passes_and_later_requests_wait_for_it() {
        let rate = Rate::per_second(10.0).unwrap_or_default();
        let bucket = BucketConfig { rate, burst: Cost::ONE };
        let ingress = Ingress::new(&[IngressConfig { is_on: true, bucket, refusal: Refusal::Shed }]);
        let now = Timestamp::from_secs(1_800_000_000);
        (0..5).for_each(|_| ingress.charge(ClassId(0), Cost::ONE, now));
        let wait = ingress.take(ClassId(0), Cost::ONE, now);
        assert_eq!(wait, Err(Duration::from_millis(500)));
        // The debt is bounded.
        (0..10_000).for_each(|_| ingress.charge(ClassId(0), Cost::ONE, now));
        let wait = ingress.take(ClassId(0), Cost::ONE, now);
        assert!(wait.is_err_and(|wait| wait <= MOST_DEBT + Duration::from_millis(200)), "{wait:?}");
        ingress.charge(ClassId(7), Cost::ONE, now);
    }
}
