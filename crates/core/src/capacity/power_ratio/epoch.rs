//! What one epoch saw: the sums behind g_i and r_i.

use std::time::Duration;

use crate::capacity::{Load, Sample};
use crate::units::Timestamp;

/// Sums since an epoch began.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sums {
    began: Option<Timestamp>,
    served: u64,
    failed: u64,
    /// Hundredths of cost units served.
    work: u128,
    response_ns: u128,
    ticks: u32,
    waiting_ticks: u32,
}

/// An epoch, over.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Epoch {
    /// g: cost units served per second.
    pub goodput: f64,
    /// r: mean response time of what was served, seconds; `None` if nothing was.
    pub response: Option<f64>,
    /// Requests served.
    pub served: u64,
    /// Requests that the origin failed to serve.
    pub failed: u64,
    /// Whether visitors waited most of the time, so that the goodput could have been the load.
    pub waited: bool,
}

impl Epoch {
    /// γ = g / r; `None` where nothing was served, or in no time.
    pub fn power(&self) -> Option<f64> {
        self.response.filter(|r| *r > 0.0).map(|r| self.goodput / r)
    }

    /// Whether the goodput is that of the load: |g - c| / g < ε.
    pub fn is_close(&self, load: f64, closeness: f64) -> bool {
        (self.goodput - load).abs() < closeness * self.goodput
    }
}

impl Sums {
    pub fn observe(&mut self, sample: &Sample) {
        if !sample.ok {
            self.failed = self.failed.saturating_add(sample.count);
            return;
        }
        let count = u128::from(sample.count);
        self.served = self.served.saturating_add(sample.count);
        self.work = self.work.saturating_add(u128::from(sample.cost.hundredths()) * count);
        self.response_ns = self.response_ns.saturating_add(sample.response.as_nanos().saturating_mul(count));
    }

    /// A tick of the control side: the epoch, if it is over, and the next one has begun.
    ///
    /// An epoch in which the clock went back, or in which ticks were missing for longer than it lasts (a suspended host),
    /// is thrown away: nobody knows what load it saw.
    pub fn tick(&mut self, load: &Load, length: Duration, now: Timestamp) -> Option<Epoch> {
        self.ticks = self.ticks.saturating_add(1);
        self.waiting_ticks = self.waiting_ticks.saturating_add(u32::from(load.backlog()));
        let Some(began) = self.began.filter(|began| *began <= now) else {
            *self = Self { began: Some(now), ..Self::default() };
            return None;
        };
        let lasted = now.since(began);
        if lasted < length {
            return None;
        }
        let over = std::mem::replace(self, Self { began: Some(now), ..Self::default() });
        (lasted < 2 * length).then(|| over.close(lasted))
    }

    /// Throws away what was seen; the next epoch begins with the next tick.
    pub fn restart(&mut self) {
        *self = Self::default();
    }

    fn close(&self, lasted: Duration) -> Epoch {
        let response_s = self.response_ns as f64 / 1e9;
        Epoch {
            goodput: self.work as f64 / 100.0 / lasted.as_secs_f64(),
            response: (self.served > 0).then(|| response_s / self.served as f64),
            served: self.served,
            failed: self.failed,
            waited: 2 * self.waiting_ticks >= self.ticks,
        }
    }
}
