//! The trace of a run, second by second.

use std::time::Duration;

use tidegate_core::capacity::Estimate;
use tidegate_core::units::Cost;

use crate::stats::percentile;

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Second {
    pub t: f64,
    /// Mean of the estimated capacity, in cost units per second.
    pub capacity: f64,
    /// Mean of the in-flight limit; `None`: there was none.
    pub limit: Option<f64>,
    pub served: u64,
    /// Cost units served well.
    pub goodput: f64,
    pub failed: u64,
    /// Cost units that arrived; `None`: there were always more.
    pub offered: Option<f64>,
    /// Sum of the response times of those served well, in seconds.
    pub response_s: f64,
    /// 99th percentile of the response times of those served well, in seconds; 0 if there were none.
    pub p99_s: f64,
    /// Waiting at the gate, or to be released, at its end.
    pub queued: usize,
    pub phase: &'static str,
}

impl Second {
    /// Mean response time of those served well, in seconds; not a number if there were none.
    pub fn mean_response_s(&self) -> f64 {
        self.response_s / self.served as f64
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    pub tick: Duration,
    /// The estimated capacity after every tick, the first at the start, in cost units per second.
    pub capacity: Vec<f64>,
    pub seconds: Vec<Second>,
    /// Response times in microseconds of all served well, in order of their ends.
    pub responses_us: Vec<u32>,
}

impl Trace {
    /// Response times of those served in these seconds, in microseconds, in order of their ends.
    pub fn responses_us(&self, from_s: usize, to_s: usize) -> &[u32] {
        let sum = |until: usize| self.seconds.iter().take(until).map(|s| s.served as usize).sum::<usize>();
        &self.responses_us[sum(from_s)..sum(to_s)]
    }
}

pub(super) struct Scribe {
    trace: Trace,
    now: Second,
    limits: (f64, u32),
    beliefs: (f64, u32),
    first_response: usize,
    endless: bool,
}

impl Scribe {
    /// `endless`: the feed is a backlog.
    pub(super) fn new(tick: Duration, endless: bool) -> Self {
        let trace = Trace { tick, capacity: Vec::new(), seconds: Vec::new(), responses_us: Vec::new() };
        let (limits, beliefs, first_response) = ((0.0, 0), (0.0, 0), 0);
        Self { trace, now: blank(0.0, endless), limits, beliefs, first_response, endless }
    }

    pub(super) fn arrived(&mut self, cost: Cost) {
        if let Some(offered) = &mut self.now.offered {
            *offered += cost.units();
        }
    }

    pub(super) fn ended(&mut self, cost: Cost, response_us: u64, ok: bool) {
        if !ok {
            self.now.failed += 1;
            return;
        }
        self.now.served += 1;
        self.now.goodput += cost.units();
        self.now.response_s += response_us as f64 / 1e6;
        self.trace.responses_us.push(u32::try_from(response_us).unwrap_or(u32::MAX));
    }

    pub(super) fn ticked(&mut self, estimate: &Estimate, limit: Option<u32>) {
        let capacity = estimate.capacity.get();
        self.trace.capacity.push(capacity);
        self.beliefs = (self.beliefs.0 + capacity, self.beliefs.1 + 1);
        if let Some(limit) = limit {
            self.limits = (self.limits.0 + f64::from(limit), self.limits.1 + 1);
        }
        self.now.phase = estimate.phase.name();
    }

    pub(super) fn turn(&mut self, queued: usize) {
        let mean = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
        let before = self.trace.seconds.last().map_or(0.0, |s| s.capacity);
        let next = blank(self.now.t + 1.0, self.endless);
        let phase = self.now.phase;
        let mut second = std::mem::replace(&mut self.now, next);
        second.capacity = mean(std::mem::take(&mut self.beliefs)).unwrap_or(before);
        second.limit = mean(std::mem::take(&mut self.limits));
        second.queued = queued;
        let responses = &self.trace.responses_us[self.first_response..];
        second.p99_s = p99_s(responses).unwrap_or(0.0);
        self.first_response = self.trace.responses_us.len();
        self.now.phase = phase;
        self.trace.seconds.push(second);
    }

    pub(super) fn finish(self) -> Trace {
        self.trace
    }
}

fn blank(t: f64, endless: bool) -> Second {
    Second { t, offered: (!endless).then_some(0.0), ..Second::default() }
}

/// 99th percentile of these times in microseconds, in seconds.
pub(super) fn p99_s(times_us: &[u32]) -> Option<f64> {
    percentile(&mut times_us.to_vec(), 0.99).map(|us| f64::from(us) / 1e6)
}
