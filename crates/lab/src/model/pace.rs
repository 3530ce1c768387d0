//! How much work a server does in a time: the model's clock.
//!
//! Events are kept in nanoseconds of *work* of one server since the start, W(t) = ∫ speed dt. A change of
//! speed then moves every completion, also of what is in service, without touching one of them: only the
//! conversion to time changes. Finer than the microseconds of the interface, so that a chain of short demands
//! does not round up.

/// Nanoseconds of work in a microsecond at speed 1.
const NS_PER_US: u64 = 1000;
/// Work that never ends.
pub(super) const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub speed: f64,
    since_us: u64,
    since_work: u64,
}

impl Pace {
    pub fn new() -> Self {
        Self { speed: 1.0, since_us: 0, since_work: 0 }
    }

    /// Work done by a server that was busy from the start until `now_us`.
    pub fn work(&self, now_us: u64) -> u64 {
        let us = now_us.saturating_sub(self.since_us);
        let done = if self.speed == 1.0 {
            us.saturating_mul(NS_PER_US)
        } else {
            (us as f64 * NS_PER_US as f64 * self.speed) as u64
        };
        self.since_work.saturating_add(done)
    }

    /// The first whole microsecond by which `work` is done; `u64::MAX` if never.
    pub fn time(&self, work: u64) -> u64 {
        // Work of servers that stand still does not end, not even if nothing is left of it.
        if work == NEVER || self.speed == 0.0 {
            return u64::MAX;
        }
        let rest = work.saturating_sub(self.since_work);
        let us = if self.speed == 1.0 {
            rest.div_ceil(NS_PER_US)
        } else {
            (rest as f64 / (NS_PER_US as f64 * self.speed)).ceil() as u64
        };
        self.since_us.saturating_add(us)
    }

    /// Nanoseconds that an amount of work takes at the present speed. Servers that stand still do none.
    pub fn duration_ns(&self, work: u128) -> u128 {
        if self.speed == 1.0 || self.speed == 0.0 { work } else { (work as f64 / self.speed) as u128 }
    }

    /// From `now_us` on, servers work at `speed`; 0: they stand still.
    pub fn change(&mut self, speed: f64, now_us: u64) {
        *self = Self { speed, since_work: self.work(now_us), since_us: now_us };
    }
}
