//! WAC 3.1 (c) and (d): "the overall response time of requests", or "the response time of a specific type of
//! requests, exceeds a threshold value"; "'response time' can denote the average response time, or variation
//! in response time, etc."
//!
//! Only complete answers count. An origin that hangs completes none, and the level becomes unknown after the
//! time to live; the number of requests at the origin and in the queue shows such a state at once.

use std::time::Duration;

use super::averages::keep;
use super::{Common, DetectorInputs, Judge, Judgement, Resource, Sampler};
use crate::histogram::Fading;
use crate::units::{ClassId, Timestamp};

/// The statistic of the response times that is judged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Statistic {
    Mean,
    /// A quantile, 0..=1.
    Quantile(f64),
    Deviation,
}

/// Response times of all requests or of a class, in seconds.
pub(super) struct ResponseTime {
    class: Option<ClassId>,
    statistic: Statistic,
    period: Duration,
    time_to_live: Duration,
    sampler: Sampler,
    judge: Judge,
    times: Option<Fading>,
    updated_at: Timestamp,
}

impl ResponseTime {
    pub fn new(class: Option<ClassId>, statistic: Statistic, common: &Common) -> Self {
        Self {
            class,
            statistic,
            period: common.period,
            time_to_live: common.time_to_live,
            sampler: Sampler::new(common.sampling),
            judge: Judge::new(&common.judge),
            times: None,
            updated_at: Timestamp::default(),
        }
    }
}

impl Resource for ResponseTime {
    fn update(&mut self, inputs: &DetectorInputs<'_>, now: Timestamp) {
        let Some(all) = inputs.response(self.class) else { return self.judge.take(None, now) };
        let Some(since) = self.sampler.check(all.count(), now) else { return };
        let Some(times) = &mut self.times else {
            self.times = Some(Fading::new(all));
            return;
        };
        // Without new times the old ones keep their relative weights.
        if since.events > 0 {
            times.take_in(all, keep(since.span, self.period));
            self.updated_at = now;
        } else if now.since(self.updated_at) >= self.time_to_live {
            self.times = Some(Fading::new(all));
            return self.judge.take(None, now);
        }
        let figure = match self.statistic {
            Statistic::Mean => times.mean(),
            Statistic::Quantile(q) => times.quantile(q),
            Statistic::Deviation => times.deviation(),
        };
        self.judge.take(figure.map(|time| time.as_secs_f64()), now);
    }

    fn verdict(&self) -> Judgement {
        self.judge.verdict()
    }

    fn checks(&self) -> u64 {
        self.sampler.checks()
    }
}
