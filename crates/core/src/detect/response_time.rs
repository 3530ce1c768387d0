//! WAC 3.1 (c) and (d): "the overall response time of requests", or "the response time of a specific type of
//! requests, exceeds a threshold value"; "'response time' can denote the average response time, or variation
//! in response time, etc."
//!
//! The time is that of the visitor: from the arrival of the request to the end of its answer, the wait at the
//! gate included. The figure is the largest of
//!
//! ```text
//! served     the statistic over the requests that were served
//! all        the same over these, those that failed, and those under way, each with its age until now
//! silence    how long nothing has been served although requests were under way or failed
//! ```
//!
//! An origin that hangs serves nothing, and all failures may be late, so `served` alone would be silent when
//! it matters most. `all` alone would be too low: requests under way are young for the most part, and an
//! origin that fails at once would look fast. `silence` is for visitors who give up before they are slow.

use std::time::Duration;

use super::averages::keep;
use super::{Common, DetectorInputs, Judge, Judgement, Resource, Sampler, Times};
use crate::histogram::{Fading, Histogram};
use crate::units::{ClassId, Timestamp};

/// Requests that fail come this often, or they are no silence but an idle service with a failure.
const PAUSE: Duration = Duration::from_secs(2);

/// The statistic of the response times that is judged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Statistic {
    Mean,
    /// A quantile, 0..=1.
    Quantile(f64),
    Deviation,
}

impl Statistic {
    fn of(self, times: &Fading) -> Option<Duration> {
        match self {
            Self::Mean => times.mean(),
            Self::Quantile(q) => times.quantile(q),
            Self::Deviation => times.deviation(),
        }
    }
}

/// Response times of all requests or of a class, in seconds.
pub(super) struct ResponseTime {
    class: Option<ClassId>,
    statistic: Statistic,
    period: Duration,
    time_to_live: Duration,
    sampler: Sampler,
    judge: Judge,
    served: Option<Recent>,
    ended: Option<Recent>,
    silence: Silence,
}

/// Times, and when the last one came.
struct Recent {
    times: Fading,
    /// How many have come since the start.
    count: u64,
    at: Timestamp,
}

/// One check.
#[derive(Clone, Copy)]
struct Step {
    /// Weight that the past keeps.
    keep: f64,
    time_to_live: Duration,
    now: Timestamp,
}

impl Recent {
    /// Takes in the times counted by now. Without new ones the old keep their relative weights, unless
    /// `fades`, until they are `time_to_live` old.
    fn update<'a>(recent: &'a mut Option<Self>, all: &Histogram, fades: bool, step: Step) -> &'a Fading {
        let Step { keep, time_to_live, now } = step;
        let new = || Self { times: Fading::new(all), count: all.count(), at: now };
        let recent = recent.get_or_insert_with(new);
        let is_new = all.count() != recent.count;
        if is_new || fades {
            recent.times.take_in(all, keep);
        }
        if is_new {
            (recent.count, recent.at) = (all.count(), now);
        } else if now.since(recent.at) >= time_to_live {
            recent.times = Fading::new(all);
        }
        &recent.times
    }
}

/// A time in which nothing is served.
#[derive(Default)]
struct Silence {
    /// From the first request that was not served to the last.
    span: Option<(Timestamp, Timestamp)>,
    served: u64,
    ended: u64,
}

impl Silence {
    fn update(&mut self, times: &Times, now: Timestamp) {
        let (served, ended) = (times.served.count(), times.ended.count());
        let is_asked = !times.under_way.is_empty() || ended != self.ended;
        if served != self.served || self.span.is_some_and(|(_, last)| now.since(last) > PAUSE) {
            self.span = None;
        } else if is_asked {
            self.span = Some((self.span.map_or(now, |(first, _)| first), now));
        }
        (self.served, self.ended) = (served, ended);
    }

    fn get(&self) -> Option<Duration> {
        self.span.map(|(first, last)| last.since(first))
    }
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
            served: None,
            ended: None,
            silence: Silence::default(),
        }
    }

    fn figure(&mut self, seen: &Times, keep: f64, now: Timestamp) -> Option<Duration> {
        let step = Step { keep, time_to_live: self.time_to_live, now };
        let ages = seen.under_way.iter().map(|cohort| (cohort.age, cohort.count));
        let served = Recent::update(&mut self.served, &seen.served, false, step);
        let ended = Recent::update(&mut self.ended, &seen.ended, ages.len() > 0, step).with(ages);
        let statistic = self.statistic;
        statistic.of(served).max(statistic.of(&ended)).max(self.silence.get())
    }
}

impl Resource for ResponseTime {
    fn update(&mut self, inputs: &DetectorInputs<'_>, now: Timestamp) {
        let Some(seen) = inputs.times(self.class) else { return self.judge.take(None, now) };
        self.silence.update(&seen, now);
        let Some(since) = self.sampler.check(seen.ended.count(), now) else { return };
        let figure = self.figure(&seen, keep(since.span, self.period), now);
        self.judge.take(figure.map(|time| time.as_secs_f64()), now);
    }

    fn retune(&mut self, common: &Common, now: Timestamp) {
        (self.period, self.time_to_live) = (common.period, common.time_to_live);
        self.sampler.set_sampling(common.sampling);
        self.judge.retune(&common.judge, now);
    }

    fn verdict(&self) -> Judgement {
        self.judge.verdict()
    }

    fn checks(&self) -> u64 {
        self.sampler.checks()
    }
}
