//! Figures from outside: WAC 3.1 (g), "the server's CPU utilisation exceeds a threshold value", or any other
//! figure of a host, and (h), "another 'application' triggers activation of admission control".
//!
//! A signal (h) is a command, not a measurement: it holds from its arrival until it is withdrawn or expires,
//! and is neither smoothed nor sampled.

use std::time::Duration;

use super::averages::keep;
use super::{Common, DetectorInputs, Judge, Judgement, Reading, Resource, Sampler, SourceId, plausible};
use crate::decaying::Ewma;
use crate::units::Timestamp;

/// (g) A figure of a host, averaged over the period.
pub(super) struct HostFigure {
    source: SourceId,
    readings: Readings,
    period: Duration,
    mean: Ewma,
    sampler: Sampler,
    judge: Judge,
}

impl HostFigure {
    pub fn new(source: SourceId, common: &Common) -> Self {
        Self {
            source,
            readings: Readings::new(common.time_to_live),
            period: common.period,
            mean: Ewma::default(),
            sampler: Sampler::new(common.sampling),
            judge: Judge::new(&common.judge),
        }
    }
}

impl Resource for HostFigure {
    fn update(&mut self, inputs: &DetectorInputs<'_>, now: Timestamp) {
        self.readings.update(inputs.reading(self.source), now);
        let Some(value) = self.readings.value(now) else {
            // The first reading after a gap is not averaged with those before.
            self.mean = Ewma::default();
            return self.judge.take(None, now);
        };
        let is_first = self.mean.get().is_none();
        let checked = self.sampler.check(self.readings.count, now);
        if let Some(since) = checked.or(is_first.then(Default::default)) {
            self.mean.add(value, keep(since.span, self.period));
            self.judge.take(self.mean.get(), now);
        }
    }

    fn retune(&mut self, common: &Common, now: Timestamp) {
        self.readings.time_to_live = common.time_to_live;
        self.sampler.set_sampling(common.sampling);
        self.period = common.period;
        self.judge.retune(&common.judge, now);
    }

    fn verdict(&self) -> Judgement {
        self.judge.verdict()
    }

    fn reading(&self, now: Timestamp) -> Option<f64> {
        self.readings.value(now)
    }

    fn checks(&self) -> u64 {
        self.sampler.checks()
    }
}

/// (h) The signal of another application.
pub(super) struct Signal {
    source: SourceId,
    readings: Readings,
    judge: Judge,
    checks: u64,
}

impl Signal {
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
    fn update(&mut self, inputs: &DetectorInputs<'_>, now: Timestamp) {
        self.readings.update(inputs.reading(self.source), now);
        self.judge.take(self.readings.value(now), now);
        self.checks += 1;
    }

    fn retune(&mut self, common: &Common, now: Timestamp) {
        self.readings.time_to_live = common.time_to_live;
        self.judge.retune(&common.judge, now);
    }

    fn verdict(&self) -> Judgement {
        self.judge.verdict()
    }

    fn reading(&self, now: Timestamp) -> Option<f64> {
        self.readings.value(now)
    }

    fn checks(&self) -> u64 {
        self.checks
    }
}

/// The last plausible reading of a source, for as long as it is valid.
struct Readings {
    time_to_live: Duration,
    valid: Option<Valid>,
    /// Number of the last reading, plausible or not.
    number: Option<u64>,
    count: u64,
}

#[derive(Clone, Copy)]
struct Valid {
    value: f64,
    until: Timestamp,
}

impl Readings {
    fn new(time_to_live: Duration) -> Self {
        Self { time_to_live, valid: None, number: None, count: 0 }
    }

    /// Takes a new reading. An implausible one is ignored: the one before stays valid for its time.
    fn update(&mut self, reading: Option<&Reading>, now: Timestamp) {
        let Some(reading) = reading.filter(|reading| Some(reading.number) != self.number) else { return };
        self.number = Some(reading.number);
        let Some(value) = plausible(reading.value) else { return };
        self.count += 1;
        // A time in the future counts as now.
        let until = reading.at.min(now) + reading.good_for.min(self.time_to_live);
        self.valid = Some(Valid { value, until });
    }

    fn value(&self, now: Timestamp) -> Option<f64> {
        self.valid.filter(|valid| now < valid.until).map(|valid| valid.value)
    }
}
