//! WAC 3.1 (h): "another 'application' triggers activation of admission control".
//!
//! Its word is a command and not a measurement: it holds from the moment it comes until it is taken back or its time is over. It
//! is neither smoothed nor sampled.

use super::host::Readings;
use super::{Common, DetectorInputs, Judge, Judgement, Resource, SourceId};
use crate::units::Timestamp;

/// What another application says.
#[derive(Debug)]
pub struct Signal {
    source: SourceId,
    readings: Readings,
    judge: Judge,
    checks: u64,
}

impl Signal {
    /// See [`Common`].
    pub fn new(source: SourceId, common: &Common) -> Self {
        Self {
            source,
            readings: Readings::new(common.time_to_live),
            judge: Judge::new(&common.judge),
            checks: 0,
        }
    }
}

impl Resource for Signal {
    fn update(&mut self, seen: &DetectorInputs<'_>, now: Timestamp) {
        self.readings.hear(seen.reading(self.source), now);
        self.judge.take(self.readings.value(now), now);
        self.checks += 1;
    }

    fn verdict(&self) -> Judgement {
        self.judge.verdict()
    }

    fn checks(&self) -> u64 {
        self.checks
    }
}
