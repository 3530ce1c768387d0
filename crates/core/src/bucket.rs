//! Token buckets: how much work may pass, over any stretch of time.
//!
//! *Generic cell rate algorithm* (ITU-T I.371 (2004) annex A, virtual scheduling), in work instead of cells.
//! A bucket of rate r and burst b is one number, the theoretical arrival time T at which it would be full
//! again. Work c that arrives at t
//!
//! ```text
//! passes  if  max(T, t) + c/r <= t + b/r,    then  T := max(T, t) + c/r
//! ```
//!
//! so that over every stretch [s, t] at most `b + r (t - s)` passes, and a stream within that bound is never
//! refused. Work beyond the burst would never pass, so it passes when the bucket is full.
//!
//! **Exact.** r is a fraction p/q of hundredths of work per microsecond. T is counted in units of 1/p
//! microseconds, in which a hundredth of work takes q: all numbers are whole, so nothing is rounded and
//! nothing drifts. Rates like 35, 0.25 or 1234.56 per second are such fractions. Others are replaced by one
//! that differs by less than a two-thousandth, mostly by less than a millionth ([`Gcra::rate`]).
//!
//! [`Bucket`] has one owner; all workers share a [`SharedBucket`] with one compare-and-swap per request.
//! Rejected: a count of tokens filled on a tick (bursts at every tick), tokens as `f64` (rounding errors, and
//! they do not fit one atomic word with their time).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};
use crate::units::{Cost, Rate, Timestamp};

/// Largest p: the microseconds from 1970 to 2112 fit 64 bits with it.
const MAX_P: u128 = 1 << 12;
/// Largest q: one hundredth of work in 12 days.
const MAX_Q: u128 = 1 << 40;
/// The state of a bucket that has a successor. No bucket reaches it by time before the year 2112.
const CLOSED: u64 = u64::MAX;

/// The configuration of a token bucket.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct BucketConfig {
    /// Work per second; zero: no limit.
    pub rate: Rate,
    /// Work that may pass at once after a pause. A request that costs more passes when the bucket is full.
    pub burst: Cost,
}

impl BucketConfig {
    /// Whether it limits anything.
    pub fn is_limited(&self) -> bool {
        self.rate > Rate::ZERO
    }
}

/// A rate and a burst as whole numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gcra {
    /// Units per microsecond.
    p: u64,
    /// Units of a hundredth of work.
    q: u64,
    /// Depth, in hundredths.
    burst: u64,
}

impl Gcra {
    /// `None`: no limit.
    pub fn new(config: &BucketConfig) -> Option<Self> {
        let (p, q) = fraction(config.rate)?;
        Some(Self { p, q, burst: config.burst.hundredths() })
    }

    /// The rate in force.
    pub fn rate(&self) -> Rate {
        Rate::per_second(self.p as f64 / self.q as f64 * 1e4).unwrap_or_default()
    }

    fn at(&self, now: Timestamp) -> u128 {
        u128::from(now.as_micros()) * u128::from(self.p)
    }

    fn takes(&self, hundredths: u64) -> u128 {
        u128::from(hundredths) * u128::from(self.q)
    }

    /// The state after `cost` has passed at `now`; the error is how long until it may.
    fn pass(&self, full_at: u64, cost: Cost, now: Timestamp) -> Result<u64, Duration> {
        let after = self.charge(full_at, cost, now);
        let allowed = self.at(now) + self.takes(self.burst.max(cost.hundredths()));
        match after.checked_sub(allowed) {
            None | Some(0) => Ok(whole(after)),
            Some(over) => {
                Err(Duration::from_micros(u64::try_from(over.div_ceil(self.p.into())).unwrap_or(u64::MAX)))
            }
        }
    }

    fn charge(&self, full_at: u64, cost: Cost, now: Timestamp) -> u128 {
        u128::from(full_at).max(self.at(now)) + self.takes(cost.hundredths())
    }

    /// The state after a change of rate and burst: what could pass at `now` still can, up to the new burst.
    fn follow(&self, old: &Self, full_at: u64, now: Timestamp) -> u64 {
        // Converted to units of the new rate, rounded up.
        let missing = u128::from(full_at).saturating_sub(old.at(now)) * u128::from(self.q);
        let missing = missing.div_ceil(old.q.into());
        let (before, after) = (self.takes(old.burst), self.takes(self.burst));
        let (left, debt) = (before.saturating_sub(missing), missing.saturating_sub(before));
        whole(self.at(now) + after.saturating_sub(left) + debt)
    }
}

fn whole(units: u128) -> u64 {
    u64::try_from(units).unwrap_or(CLOSED).min(CLOSED - 1)
}

/// p/q hundredths per microsecond: the rate or the last convergent of its continued fraction within bounds.
fn fraction(rate: Rate) -> Option<(u64, u64)> {
    if rate <= Rate::ZERO {
        return None;
    }
    // In picounits per second, so that decimals in a configuration are exact.
    let (mut n, mut d) = ((rate.get() * 1e12).round() as u128, 10u128.pow(16));
    let ((mut p, mut q), (mut p0, mut q0)) = ((1u128, 0u128), (0u128, 1u128));
    while d > 0 {
        let a = n / d;
        let (p1, q1) = (a * p + p0, a * q + q0);
        if p1 > MAX_P || q1 > MAX_Q {
            break;
        }
        ((p, q), (p0, q0)) = ((p1, q1), (p, q));
        (n, d) = (d, n % d);
    }
    // Rates below the least become the least.
    if p == 0 { Some((1, MAX_Q as u64)) } else { Some((p as u64, q as u64)) }
}

/// A bucket with one owner. Full at first.
#[derive(Clone, Debug, Default)]
pub struct Bucket {
    gcra: Option<Gcra>,
    full_at: u64,
}

impl Bucket {
    /// A full bucket.
    pub fn new(config: &BucketConfig) -> Self {
        Self { gcra: Gcra::new(config), full_at: 0 }
    }

    /// Lets `cost` pass now.
    ///
    /// # Errors
    /// How long until it may pass. Nothing is taken.
    pub fn take(&mut self, cost: Cost, now: Timestamp) -> Result<(), Duration> {
        if let Some(gcra) = &self.gcra {
            self.full_at = gcra.pass(self.full_at, cost, now)?;
        }
        Ok(())
    }

    /// How long until `cost` may pass; zero: now.
    pub fn wait(&self, cost: Cost, now: Timestamp) -> Duration {
        let passes = self.gcra.map(|gcra| gcra.pass(self.full_at, cost, now));
        passes.and_then(Result::err).unwrap_or_default()
    }

    /// Changes rate and burst: work that could pass at `now` still can, up to the new burst.
    pub fn reconfigure(&mut self, config: &BucketConfig, now: Timestamp) {
        let new = Gcra::new(config);
        self.full_at = match (&self.gcra, &new) {
            (Some(old), Some(new)) if old != new => new.follow(old, self.full_at, now),
            (Some(_), Some(_)) => self.full_at,
            _ => 0,
        };
        self.gcra = new;
    }
}

/// A bucket that all workers take from, full at first. Its rate and burst never change:
/// [`SharedBucket::succeed`] makes another bucket that continues from its state.
#[derive(Debug)]
pub struct SharedBucket {
    gcra: Gcra,
    full_at: AtomicU64,
    /// The successor: set before `full_at` closes this one.
    next: OnceLock<Arc<Self>>,
}

impl SharedBucket {
    /// A full bucket; `None`: no limit.
    pub fn new(config: &BucketConfig) -> Option<Arc<Self>> {
        Gcra::new(config).map(|gcra| Arc::new(Self::full(gcra)))
    }

    fn full(gcra: Gcra) -> Self {
        Self { gcra, full_at: AtomicU64::new(0), next: OnceLock::new() }
    }

    /// Its rate and burst.
    pub fn gcra(&self) -> &Gcra {
        &self.gcra
    }

    /// As [`Bucket::take`].
    ///
    /// # Errors
    /// How long until `cost` may pass. Nothing is taken.
    pub fn take(&self, cost: Cost, now: Timestamp) -> Result<(), Duration> {
        self.update(|gcra, full_at| gcra.pass(full_at, cost, now).map(|after| (after, ())))
    }

    /// Takes `cost` in advance and returns when it may pass, at most `within` from now.
    ///
    /// # Errors
    /// The wait, if it is longer. Nothing is taken.
    pub fn reserve(&self, cost: Cost, within: Duration, now: Timestamp) -> Result<Timestamp, Duration> {
        self.update(|gcra, full_at| {
            let wait = gcra.pass(full_at, cost, now).err().unwrap_or_default();
            if wait > within { Err(wait) } else { Ok((whole(gcra.charge(full_at, cost, now)), now + wait)) }
        })
    }

    /// Gives back work that was taken and did not pass after all.
    pub fn give_back(&self, cost: Cost) {
        let given: Result<(), ()> = self.update(|gcra, full_at| {
            let units = u64::try_from(gcra.takes(cost.hundredths())).unwrap_or(u64::MAX);
            Ok((full_at.saturating_sub(units), ()))
        });
        debug_assert!(given.is_ok());
    }

    /// A bucket with another rate and burst that continues from this one's state; users of this one take from
    /// the new one. `self` if nothing differs, `None` if there is no limit. One caller at a time.
    pub fn succeed(self: &Arc<Self>, config: &BucketConfig, now: Timestamp) -> Option<Arc<Self>> {
        let gcra = Gcra::new(config)?;
        if gcra == self.gcra {
            return Some(self.clone());
        }
        // A second successor succeeds the first.
        if let Some(next) = self.next.get() {
            return next.succeed(config, now);
        }
        let next = Arc::new(Self::full(gcra));
        let mut seen = self.full_at.load(Ordering::Acquire);
        next.full_at.store(gcra.follow(&self.gcra, seen, now), Ordering::Release);
        _ = self.next.set(next.clone());
        while let Err(other) =
            self.full_at.compare_exchange(seen, CLOSED, Ordering::AcqRel, Ordering::Acquire)
        {
            seen = other;
            // The successor is not used before this one is closed.
            next.full_at.store(gcra.follow(&self.gcra, seen, now), Ordering::Release);
        }
        Some(next)
    }

    fn update<T, E>(&self, change: impl Fn(&Gcra, u64) -> Result<(u64, T), E>) -> Result<T, E> {
        let mut bucket = self;
        let mut seen = bucket.full_at.load(Ordering::Acquire);
        loop {
            if seen == CLOSED {
                let Some(next) = bucket.next.get() else { unreachable!("set before it is closed") };
                bucket = next;
                seen = bucket.full_at.load(Ordering::Acquire);
                continue;
            }
            let (after, answer) = change(&bucket.gcra, seen)?;
            match bucket.full_at.compare_exchange_weak(seen, after, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(answer),
                Err(other) => seen = other,
            }
        }
    }
}
