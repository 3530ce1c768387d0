//! Counters: WAC 3.1 (a), "the overall frequency of requests exceeds a threshold value"; (b), "the frequency
//! of a specific type of requests", where the type is a class; (e), "the number of simultaneously active
//! TCP/IP sessions"; and (f), "the number of concurrent (web)sessions".
//!
//! "The term 'request' can denote arriving IP packets, TCP/IP session set-up requests, or URL requests": here
//! URL requests or connections. Refused requests count too, otherwise the level would fall by its own effect.

use std::time::Duration;

use super::averages::keep;
use super::{Common, DetectorInputs, Judge, Judgement, Resource, Sampler, SessionCount, Weighted};
use crate::decaying::Ewma;
use crate::units::{ClassId, Timestamp};

/// What counts as a request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Counted {
    #[default]
    Requests,
    Connections,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Events {
    All(Counted),
    OfClass(ClassId),
}

/// (a) and (b): events per second.
pub(super) struct EventRate {
    events: Events,
    sampler: Sampler,
    weighted: Weighted,
    judge: Judge,
}

impl EventRate {
    pub fn new(events: Events, common: &Common) -> Self {
        Self {
            events,
            sampler: Sampler::new(common.sampling),
            weighted: Weighted::new(common.period),
            judge: Judge::new(&common.judge),
        }
    }
}

impl Resource for EventRate {
    fn update(&mut self, inputs: &DetectorInputs<'_>, now: Timestamp) {
        let count = match self.events {
            Events::All(Counted::Requests) => Some(inputs.arrivals()),
            Events::All(Counted::Connections) => Some(inputs.connections_made()),
            // A class that a reload added beyond the number of counters is not counted.
            Events::OfClass(class) => inputs.class(class).map(|totals| totals.arrivals),
        };
        let Some(count) = count else { return self.judge.take(None, now) };
        if let Some(since) = self.sampler.check(count, now) {
            self.weighted.add(since.events, since.span);
            self.judge.take(self.weighted.get(), now);
        }
    }

    fn retune(&mut self, common: &Common, now: Timestamp) {
        self.sampler.set_sampling(common.sampling);
        self.weighted.set_period(common.period);
        self.judge.retune(&common.judge, now);
    }

    fn verdict(&self) -> Judgement {
        self.judge.verdict()
    }

    fn checks(&self) -> u64 {
        self.sampler.checks()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Open {
    Connections,
    Sessions,
}

/// (e) and (f): the number open at once; unknown where sessions are not counted.
pub(super) struct OpenLevel {
    open: Open,
    sampler: Sampler,
    period: Duration,
    mean: Ewma,
    judge: Judge,
}

impl OpenLevel {
    pub fn new(open: Open, common: &Common) -> Self {
        Self {
            open,
            sampler: Sampler::new(common.sampling),
            period: common.period,
            mean: Ewma::default(),
            judge: Judge::new(&common.judge),
        }
    }
}

impl Resource for OpenLevel {
    fn update(&mut self, inputs: &DetectorInputs<'_>, now: Timestamp) {
        let (open, begun) = (inputs.open_connections, inputs.connections_made());
        let count = match self.open {
            Open::Connections => Some(SessionCount { open, begun }),
            Open::Sessions => inputs.sessions,
        };
        let Some(SessionCount { open, begun }) = count else {
            self.mean = Ewma::default();
            return self.judge.take(None, now);
        };
        if let Some(since) = self.sampler.check(begun, now) {
            self.mean.add(open as f64, keep(since.span, self.period));
            self.judge.take(self.mean.get(), now);
        }
    }

    fn retune(&mut self, common: &Common, now: Timestamp) {
        self.sampler.set_sampling(common.sampling);
        self.period = common.period;
        self.judge.retune(&common.judge, now);
    }

    fn verdict(&self) -> Judgement {
        self.judge.verdict()
    }

    fn checks(&self) -> u64 {
        self.sampler.checks()
    }
}
