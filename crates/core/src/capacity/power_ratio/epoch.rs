//! One epoch: the sums from which g_i and r_i follow.

use std::time::Duration;

use crate::capacity::{GateLoad, Sample};
use crate::units::Timestamp;

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
    present: u32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Epoch {
    /// g: cost units served per second.
    pub goodput: f64,
    /// r: mean response time of what was served, seconds; `None` if nothing was.
    pub response: Option<f64>,
    pub served: u64,
    pub failed: u64,
    /// Whether visitors waited most of the time, so that the goodput was not limited by arrivals.
    pub waited: bool,
    /// Requests at the service at its end.
    pub present: u32,
    /// It was ended early, because requests piled up at the service.
    pub broken_off: bool,
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

    /// A control tick: returns the epoch if it is over, and begins the next.
    ///
    /// An epoch in which the clock went back or ticks were missing for longer than that (a suspended host),
    /// is discarded: its load is unknown. One with more than `crowd` requests present is over at once.
    pub fn tick(&mut self, load: &GateLoad, length: Duration, crowd: f64, now: Timestamp) -> Option<Epoch> {
        self.ticks = self.ticks.saturating_add(1);
        self.waiting_ticks = self.waiting_ticks.saturating_add(u32::from(load.backlog()));
        self.present = load.in_flight;
        let Some(began) = self.began.filter(|began| *began <= now) else {
            *self = Self { began: Some(now), ..Self::default() };
            return None;
        };
        let lasted = now.since(began);
        let broken_off = f64::from(load.in_flight) > crowd && !lasted.is_zero();
        if lasted < length && !broken_off {
            return None;
        }
        let over = std::mem::replace(self, Self { began: Some(now), ..Self::default() });
        (lasted < 2 * length).then(|| over.close(lasted, broken_off))
    }

    /// Discards the sums; the next epoch begins with the next tick.
    pub fn restart(&mut self) {
        *self = Self::default();
    }

    fn close(&self, lasted: Duration, broken_off: bool) -> Epoch {
        let goodput = self.work as f64 / 100.0 / lasted.as_secs_f64();
        let mean = (self.served > 0).then(|| self.response_ns as f64 / 1e9 / self.served as f64);
        // Requests that ended came first; those still present will take as long as Little's law says.
        let per_second = self.served as f64 / lasted.as_secs_f64();
        let little = f64::from(self.present) / per_second;
        Epoch {
            goodput,
            response: mean.map(|mean| if broken_off { mean.max(little) } else { mean }),
            served: self.served,
            failed: self.failed,
            waited: 2 * self.waiting_ticks >= self.ticks,
            present: self.present,
            broken_off,
        }
    }
}
