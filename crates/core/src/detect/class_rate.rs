//! WAC 3.1 (b): "the frequency of a specific type of requests exceeds a threshold value", the type being a class.

use super::request_rate::Rate;
use super::{Common, DetectorInputs, Judgement, Resource};
use crate::units::{ClassId, Timestamp};

/// Requests of a class per second.
#[derive(Debug)]
pub struct ClassRate {
    class: ClassId,
    rate: Rate,
}

impl ClassRate {
    /// See [`Common`].
    pub fn new(class: ClassId, common: &Common) -> Self {
        Self { class, rate: Rate::new(common) }
    }
}

impl Resource for ClassRate {
    fn update(&mut self, seen: &DetectorInputs<'_>, now: Timestamp) {
        // A class that a reload added beyond the counters' places is counted nowhere.
        self.rate.update(seen.class(self.class).map(|totals| totals.arrivals), now);
    }

    fn verdict(&self) -> Judgement {
        self.rate.judge.verdict()
    }

    fn checks(&self) -> u64 {
        self.rate.sampler.checks()
    }
}
