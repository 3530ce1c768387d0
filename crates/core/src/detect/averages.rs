//! Figures over an exponentially weighted past, exact however irregularly they are sampled.
//!
//! WAC 3.1: "the frequency can be implemented as the (exponentially weighted) ratio between the time period and the event
//! interval". With n events in a stretch of Δ, and τ the period,
//!
//! ```text
//! k = e^(-Δ/τ)      R ← k R + (1 - k) n/Δ      W ← k W + (1 - k)      rate = R / W
//! ```
//!
//! This is the solution of τ dR/dt = n/Δ - R and not a step towards it: cut in two, a stretch gives what it gives in one. W is the
//! weight of what has been seen, 1 in the end; dividing by it, a rate does not start from a zero that nobody measured.
//!
//! Rejected: a fixed gain per sample (its period would be the number of samples, and a late tick would count as any other), and
//! windows that jump (a burst leaves them all at once, and a level with it).

use std::time::Duration;

/// Share of the period that must have been seen before there is a figure: one request in the first tick is no rate.
const ENOUGH: f64 = 0.5;

/// Share that is kept of a past `period` after a stretch of `span`.
pub(super) fn keep(span: Duration, period: Duration) -> f64 {
    if span.is_zero() {
        return 1.0;
    }
    // A period of zero: nothing is kept.
    (-span.as_secs_f64() / period.as_secs_f64()).exp()
}

/// Events per second.
#[derive(Clone, Copy, Debug)]
pub struct Weighted {
    period: Duration,
    rate: f64,
    weight: f64,
    /// Came while no time passed.
    pending: u64,
}

impl Weighted {
    /// Nothing seen yet.
    pub fn new(period: Duration) -> Self {
        Self { period, rate: 0.0, weight: 0.0, pending: 0 }
    }

    /// So many events came in the last `span`.
    pub fn add(&mut self, events: u64, span: Duration) {
        self.pending = self.pending.saturating_add(events);
        if span.is_zero() {
            return;
        }
        let keep = keep(span, self.period);
        let now = self.pending as f64 / span.as_secs_f64();
        self.rate = self.rate * keep + now * (1.0 - keep);
        self.weight = self.weight * keep + (1.0 - keep);
        self.pending = 0;
    }

    /// Events per second; `None` until half a period has been seen.
    pub fn get(&self) -> Option<f64> {
        (self.weight > 0.0 && self.weight >= 1.0 - (-ENOUGH).exp()).then(|| self.rate / self.weight)
    }
}

/// The mean of something that has a value at every time, like open connections.
#[derive(Clone, Copy, Debug)]
pub struct Mean {
    period: Duration,
    mean: Option<f64>,
}

impl Mean {
    /// Nothing seen yet.
    pub fn new(period: Duration) -> Self {
        Self { period, mean: None }
    }

    /// It had this value during the last `span`. The first one is taken as it is.
    pub fn add(&mut self, value: f64, span: Duration) {
        self.mean = Some(match self.mean {
            Some(mean) if !self.period.is_zero() => {
                let keep = keep(span, self.period);
                mean * keep + value * (1.0 - keep)
            }
            _ => value,
        });
    }

    /// `None` before the first.
    pub fn get(&self) -> Option<f64> {
        self.mean
    }

    /// As if nothing had been seen.
    pub fn forget(&mut self) {
        self.mean = None;
    }
}
