//! Rates: WAC 3.1 (a), "the overall frequency of requests exceeds a threshold value", and (b), "the frequency
//! of a specific type of requests exceeds a threshold value", where the type is a class.
//!
//! "The term 'request' can denote arriving IP packets, TCP/IP session set-up requests, or URL requests": here
//! URL requests or connections. Refused requests count too, otherwise the level would fall by its own effect.

use super::{Common, DetectorInputs, Judge, Judgement, Resource, Sampler, Weighted};
use crate::units::{ClassId, Timestamp};

/// What counts as a request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Counted {
    /// An HTTP request.
    #[default]
    Requests,
    /// An accepted TCP connection.
    Connections,
}

/// (a) Requests or connections per second.
#[derive(Debug)]
pub struct RequestRate {
    counted: Counted,
    rate: Rate,
}

impl RequestRate {
    /// A detector without data.
    pub fn new(counted: Counted, common: &Common) -> Self {
        Self { counted, rate: Rate::new(common) }
    }
}

impl Resource for RequestRate {
    fn update(&mut self, inputs: &DetectorInputs<'_>, now: Timestamp) {
        let count = match self.counted {
            Counted::Requests => inputs.arrivals(),
            Counted::Connections => inputs.connections_made(),
        };
        self.rate.update(Some(count), now);
    }

    fn verdict(&self) -> Judgement {
        self.rate.judge.verdict()
    }

    fn checks(&self) -> u64 {
        self.rate.sampler.checks()
    }
}

/// (b) Requests of a class per second.
#[derive(Debug)]
pub struct ClassRate {
    class: ClassId,
    rate: Rate,
}

impl ClassRate {
    /// A detector without data.
    pub fn new(class: ClassId, common: &Common) -> Self {
        Self { class, rate: Rate::new(common) }
    }
}

impl Resource for ClassRate {
    fn update(&mut self, inputs: &DetectorInputs<'_>, now: Timestamp) {
        // A class that a reload added beyond the number of counters is not counted.
        self.rate.update(inputs.class(self.class).map(|totals| totals.arrivals), now);
    }

    fn verdict(&self) -> Judgement {
        self.rate.judge.verdict()
    }

    fn checks(&self) -> u64 {
        self.rate.sampler.checks()
    }
}

/// The judged rate of a counter.
#[derive(Debug)]
struct Rate {
    sampler: Sampler,
    weighted: Weighted,
    judge: Judge,
}

impl Rate {
    fn new(common: &Common) -> Self {
        Self {
            sampler: Sampler::new(common.sampling),
            weighted: Weighted::new(common.period),
            judge: Judge::new(&common.judge),
        }
    }

    /// `None`: there is no counter.
    fn update(&mut self, count: Option<u64>, now: Timestamp) {
        let Some(count) = count else { return self.judge.take(None, now) };
        if let Some(since) = self.sampler.check(count, now) {
            self.weighted.add(since.events, since.span);
            self.judge.take(self.weighted.get(), now);
        }
    }
}
