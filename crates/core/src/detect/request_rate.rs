//! WAC 3.1 (a): "the overall frequency of requests exceeds a threshold value".
//!
//! "The term 'request' can denote arriving IP packets, TCP/IP session set-up requests, or URL requests": URL requests, or
//! connections. What is refused has arrived too, or the level would fall by what it leads to.

use super::{Common, DetectorInputs, Judge, Judgement, Resource, Sampler, Weighted};
use crate::units::Timestamp;

/// What counts as a request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Counted {
    /// An HTTP request.
    #[default]
    Requests,
    /// A TCP connection that was accepted.
    Connections,
}

/// Requests per second.
#[derive(Debug)]
pub struct RequestRate {
    counted: Counted,
    rate: Rate,
}

impl RequestRate {
    /// See [`Common`].
    pub fn new(counted: Counted, common: &Common) -> Self {
        Self { counted, rate: Rate::new(common) }
    }
}

impl Resource for RequestRate {
    fn update(&mut self, seen: &DetectorInputs<'_>, now: Timestamp) {
        let count = match self.counted {
            Counted::Requests => seen.arrivals(),
            Counted::Connections => seen.connections_made(),
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

/// A counter's rate, judged: what (a) and (b) share.
#[derive(Debug)]
pub(super) struct Rate {
    pub sampler: Sampler,
    weighted: Weighted,
    pub judge: Judge,
}

impl Rate {
    pub fn new(common: &Common) -> Self {
        Self {
            sampler: Sampler::new(common.sampling),
            weighted: Weighted::new(common.period),
            judge: Judge::new(&common.judge),
        }
    }

    /// `None`: nobody counts.
    pub fn update(&mut self, count: Option<u64>, now: Timestamp) {
        let Some(count) = count else { return self.judge.take(None, now) };
        if let Some(since) = self.sampler.check(count, now) {
            self.weighted.add(since.events, since.span);
            self.judge.take(self.weighted.get(), now);
        }
    }
}
