//! Averages over an exponentially weighted past, exact however irregular the samples are.
//!
//! WAC 3.1: "the frequency can be implemented as the (exponentially weighted) ratio between the time period
//! and the event interval". With n events in an interval Δ, and the period τ,
//!
//! ```text
//! k = e^(-Δ/τ)      R ← k R + (1 - k) n/Δ      W ← k W + (1 - k)      rate = R / W
//! ```
//!
//! This is the exact solution of τ dR/dt = n/Δ - R: an interval cut in two gives the same result. W is the
//! weight of the past seen so far, which tends to 1. Dividing by it keeps a rate from starting at zero.
//!
//! Rejected: a fixed gain per sample (its period would be a number of samples, and a late tick would count
//! like any other), and windows that jump (a burst leaves them all at once, and the level jumps with it).

use std::time::Duration;

use crate::decaying::{self, DecayingRatio};

/// Share of the period after which there is a figure: one request in the first tick is no rate.
const ENOUGH: f64 = 0.5;

/// Weight that the past keeps after `span`, at an averaging time of `period`.
pub(super) fn keep(span: Duration, period: Duration) -> f64 {
    // At a period of zero it is zero.
    if span.is_zero() { 1.0 } else { decaying::keep(span.as_secs_f64(), period.as_secs_f64()) }
}

/// Events per second.
#[derive(Clone, Copy, Debug)]
pub struct Weighted {
    period: Duration,
    /// `R` over `W`.
    rate: DecayingRatio,
    /// Events counted while no time has passed.
    pending: u64,
}

impl Weighted {
    /// An average without data.
    pub fn new(period: Duration) -> Self {
        Self { period, rate: DecayingRatio::default(), pending: 0 }
    }

    /// Goes over to another period; the past keeps its weight.
    pub fn set_period(&mut self, period: Duration) {
        self.period = period;
    }

    /// Adds events of the last `span`.
    pub fn add(&mut self, events: u64, span: Duration) {
        self.pending = self.pending.saturating_add(events);
        if span.is_zero() {
            return;
        }
        let keep = keep(span, self.period);
        let now = self.pending as f64 / span.as_secs_f64();
        self.rate.decay_and_add(keep, now * (1.0 - keep), 1.0 - keep);
        self.pending = 0;
    }

    /// Events per second; `None` until half a period has been seen.
    pub fn get(&self) -> Option<f64> {
        self.rate.get().filter(|_| self.rate.over >= 1.0 - (-ENOUGH).exp())
    }
}
