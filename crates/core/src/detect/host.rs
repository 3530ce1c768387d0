//! WAC 3.1 (g): "the server's CPU utilisation exceeds a threshold value", or any other figure of a host.

use std::time::Duration;

use super::{
    Common, DetectorInputs, Judge, Judgement, Mean, Reading, Resource, Sampler, SourceId, plausible,
};
use crate::units::Timestamp;

/// What a source says of a host, its readings weighted over the period.
#[derive(Debug)]
pub struct HostFigure {
    source: SourceId,
    readings: Readings,
    mean: Mean,
    sampler: Sampler,
    judge: Judge,
}

impl HostFigure {
    /// See [`Common`].
    pub fn new(source: SourceId, common: &Common) -> Self {
        Self {
            source,
            readings: Readings::new(common.time_to_live),
            mean: Mean::new(common.period),
            sampler: Sampler::new(common.sampling),
            judge: Judge::new(&common.judge),
        }
    }
}

impl Resource for HostFigure {
    fn update(&mut self, seen: &DetectorInputs<'_>, now: Timestamp) {
        self.readings.hear(seen.reading(self.source), now);
        let Some(value) = self.readings.value(now) else {
            // What comes after a silence stands for itself.
            self.mean.forget();
            return self.judge.take(None, now);
        };
        let is_first = self.mean.get().is_none();
        let checked = self.sampler.check(self.readings.count, now);
        if let Some(since) = checked.or(is_first.then(Default::default)) {
            self.mean.add(value, since.span);
            self.judge.take(self.mean.get(), now);
        }
    }

    fn verdict(&self) -> Judgement {
        self.judge.verdict()
    }

    fn checks(&self) -> u64 {
        self.sampler.checks()
    }
}

/// What a source has said that can be true, and for how long it is: what (g) and (h) share.
#[derive(Debug)]
pub(super) struct Readings {
    time_to_live: Duration,
    /// The last good one, and when it ends to be.
    good: Option<(f64, Timestamp)>,
    /// The last one's number, good or not.
    number: Option<u64>,
    /// Good ones.
    pub count: u64,
}

impl Readings {
    pub fn new(time_to_live: Duration) -> Self {
        Self { time_to_live, good: None, number: None, count: 0 }
    }

    /// Takes in what is new. What cannot be a figure was not said: what was said before holds for its time.
    pub fn hear(&mut self, reading: Option<&Reading>, now: Timestamp) {
        let Some(reading) = reading.filter(|reading| Some(reading.number) != self.number) else { return };
        self.number = Some(reading.number);
        let Some(value) = plausible(reading.value) else { return };
        self.count += 1;
        // What was said in the future was said now.
        self.good = Some((value, reading.at.min(now) + reading.good_for.min(self.time_to_live)));
    }

    /// What holds now.
    pub fn value(&self, now: Timestamp) -> Option<f64> {
        self.good.filter(|(_, ends)| now < *ends).map(|(value, _)| value)
    }
}
