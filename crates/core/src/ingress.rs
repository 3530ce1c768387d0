//! The ingress of each class (MASTH 2.3): a token bucket at the door, before the room and the gate, shared by all workers.
//!
//! What a bucket refuses is either shed, with the time after which it would have passed, or sent to the waiting room: there the
//! work is taken from the bucket in advance, and the ticket is for the instant from which the bucket lets it pass. So a
//! rate is kept to by those who wait for it, too, and who comes back with such a ticket pays nothing a second time.
//!
//! MASTH's operators switch throttling on and off beside setting its rate; a bucket that is off fills up meanwhile.

use std::sync::Arc;
use std::time::Duration;

use crate::bucket::{BucketConfig, SharedBucket};
use crate::units::{ClassId, Cost, Timestamp};

/// Debt of a bucket for those it is not asked about, at most, as time at its rate.
const MOST_DEBT: Duration = Duration::from_secs(10);

/// What becomes of a request that the bucket refuses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Refusal {
    /// An answer that says when to come again.
    #[default]
    Shed,
    /// A place in the waiting room.
    Room,
}

/// One class's.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct IngressConfig {
    /// Off: everything passes.
    pub is_on: bool,
    /// Rate and burst.
    pub bucket: BucketConfig,
    /// What becomes of what does not pass.
    pub refusal: Refusal,
}

/// What a class's ingress says of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passage {
    /// On.
    Passes,
    /// Refuse it.
    Shed {
        /// When it would pass.
        retry_after: Duration,
    },
    /// It waits in the room. Taken from the bucket already.
    Room {
        /// Until then.
        due: Timestamp,
    },
}

/// Every class's ingress.
#[derive(Debug, Default)]
pub struct Ingress {
    /// By class id; `None`: no limit.
    classes: Vec<Option<Gateway>>,
}

#[derive(Clone, Debug)]
struct Gateway {
    is_on: bool,
    refusal: Refusal,
    bucket: Arc<SharedBucket>,
}

impl Ingress {
    /// Full buckets.
    pub fn new(classes: &[IngressConfig]) -> Self {
        Self {
            classes: classes.iter().map(|config| Gateway::new(config, None, Timestamp::default())).collect(),
        }
    }

    /// The same for another set-up: the buckets go on where they stood. `before` tells for each class which one it was.
    #[must_use]
    pub fn succeed(&self, classes: &[IngressConfig], before: &[Option<ClassId>], now: Timestamp) -> Self {
        let of = |i: usize| self.of((*before.get(i)?)?);
        Self { classes: classes.iter().enumerate().map(|(i, c)| Gateway::new(c, of(i), now)).collect() }
    }

    /// A request at the door. Sent to the room, it would have to wait at most `within`; `None`: nobody would come back for its
    /// place.
    pub fn pass(&self, class: ClassId, cost: Cost, within: Option<Duration>, now: Timestamp) -> Passage {
        let Some(gateway) = self.of(class).filter(|g| g.is_on) else { return Passage::Passes };
        let Err(retry_after) = gateway.bucket.take(cost, now) else { return Passage::Passes };
        let Some(within) = within.filter(|_| gateway.refusal == Refusal::Room) else {
            return Passage::Shed { retry_after };
        };
        match gateway.bucket.reserve(cost, within, now) {
            Ok(due) => Passage::Room { due },
            Err(retry_after) => Passage::Shed { retry_after },
        }
    }

    /// As [`Ingress::pass`] where nobody could wait.
    ///
    /// # Errors
    /// When it would pass; nothing is taken.
    pub fn take(&self, class: ClassId, cost: Cost, now: Timestamp) -> Result<(), Duration> {
        self.of(class).filter(|g| g.is_on).map_or(Ok(()), |g| g.bucket.take(cost, now))
    }

    /// Work of the class that nobody is asked about: an admitted session's. What comes after it waits the longer for the bucket.
    pub fn charge(&self, class: ClassId, cost: Cost, now: Timestamp) {
        if let Some(gateway) = self.of(class).filter(|g| g.is_on) {
            // More debt would only keep it shut when nobody comes any more.
            _ = gateway.bucket.reserve(cost, MOST_DEBT, now);
        }
    }

    /// The room had no place for one that was to wait there.
    pub fn give_back(&self, class: ClassId, cost: Cost) {
        if let Some(gateway) = self.of(class) {
            gateway.bucket.give_back(cost);
        }
    }

    /// Whether anything of the class is ever refused.
    pub fn limits(&self, class: ClassId) -> bool {
        self.of(class).is_some_and(|g| g.is_on)
    }

    /// Whether tickets of the class may be for the bucket: they are not let in before they are due, even where the origin has
    /// room.
    pub fn holds(&self, class: ClassId) -> bool {
        self.of(class).is_some_and(|g| g.is_on && g.refusal == Refusal::Room)
    }

    fn of(&self, class: ClassId) -> Option<&Gateway> {
        self.classes.get(class.index())?.as_ref()
    }
}

impl Gateway {
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
    fn what_is_charged_is_never_asked_about_and_others_wait_for_it() {
        let rate = Rate::per_second(10.0).unwrap_or_default();
        let bucket = BucketConfig { rate, burst: Cost::ONE };
        let ingress = Ingress::new(&[IngressConfig { is_on: true, bucket, refusal: Refusal::Shed }]);
        let now = Timestamp::from_secs(1_800_000_000);
        (0..5).for_each(|_| ingress.charge(ClassId(0), Cost::ONE, now));
        let wait = ingress.take(ClassId(0), Cost::ONE, now);
        assert_eq!(wait, Err(Duration::from_millis(500)));
        // However much it is, nobody waits for longer than that after the last of them.
        (0..10_000).for_each(|_| ingress.charge(ClassId(0), Cost::ONE, now));
        let wait = ingress.take(ClassId(0), Cost::ONE, now);
        assert!(wait.is_err_and(|wait| wait <= MOST_DEBT + Duration::from_millis(200)), "{wait:?}");
        ingress.charge(ClassId(7), Cost::ONE, now);
    }
}
