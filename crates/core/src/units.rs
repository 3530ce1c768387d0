//! Numbers with units: values that cross a module border carry their unit in their type.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time: microseconds since the Unix epoch.
///
/// Tickets outlive a process and cross hosts, so this is wall time. The gateway's clock never runs backwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Timestamp(u64);

impl Timestamp {
    /// From microseconds since the Unix epoch.
    pub const fn from_micros(us: u64) -> Self {
        Self(us)
    }

    /// From milliseconds since the Unix epoch.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000)
    }

    /// From whole seconds since the Unix epoch.
    pub const fn from_secs(s: u64) -> Self {
        Self(s * 1_000_000)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Milliseconds since the Unix epoch, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// The whole second this point lies in, counted from the Unix epoch.
    pub const fn second(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time since `earlier`; zero if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// This point moved back by `d`, not beyond the epoch.
    pub const fn saturating_sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(d.as_micros() as u64))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.as_micros() as u64))
    }
}

/// Work in cost units: 1.0 is an average request (WebQ's "relative hardness").
///
/// Stored in hundredths, so that sums are exact.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Cost(u64);

impl Cost {
    pub const ZERO: Self = Self(0);
    /// One average request.
    pub const ONE: Self = Self(100);
    /// The least a class may cost: one hundredth.
    pub const MIN: Self = Self(1);
    /// The most a class may cost: 10,000 average requests. Bounded so that it fits the ticket and the ring.
    pub const MAX: Self = Self(1_000_000);

    /// From hundredths of a cost unit.
    pub const fn from_hundredths(h: u64) -> Self {
        Self(h)
    }

    /// Hundredths of a cost unit.
    pub const fn hundredths(self) -> u64 {
        self.0
    }

    /// From cost units, rounded to hundredths; `None` outside [`Cost::MIN`]..=[`Cost::MAX`] or if not finite.
    pub fn class_cost(units: f64) -> Option<Self> {
        let h = (units * 100.0).round();
        (h >= Self::MIN.0 as f64 && h <= Self::MAX.0 as f64).then_some(Self(h as u64))
    }

    /// Cost units.
    pub fn units(self) -> f64 {
        self.0 as f64 / 100.0
    }

    /// The difference, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Sums saturate, because a peer may send any number.
impl Add for Cost {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self(self.0.saturating_add(o.0))
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, o: Self) {
        *self = *self + o;
    }
}

impl Sub for Cost {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        Self(self.0 - o.0)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.units())
    }
}

/// A rate in cost units per second: finite and not negative.
#[derive(Clone, Copy, PartialEq, PartialOrd, Default, Debug)]
pub struct Rate(f64);

impl Rate {
    pub const ZERO: Self = Self(0.0);
    /// A rate that this program cannot reach: it means "unlimited" where a number is needed.
    pub const MAX: Self = Self(1_000_000.0);

    /// From cost units per second, clamped to 0..=[`Rate::MAX`]; `None` if not a number.
    pub fn per_second(units: f64) -> Option<Self> {
        (!units.is_nan()).then(|| Self(units.clamp(0.0, Self::MAX.0)))
    }

    /// Cost units per second.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Work done at this rate in `d`, rounded down to hundredths.
    pub fn over(self, d: Duration) -> Cost {
        Cost((self.0 * d.as_secs_f64() * 100.0) as u64)
    }
}

/// A share from 0 to 1. Stored in millionths, so that sums are exact.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Share(u32);

impl Share {
    pub const ZERO: Self = Self(0);
    pub const ALL: Self = Self(1_000_000);

    /// From a fraction, rounded to millionths; `None` outside 0..=1 or if not a number.
    pub fn from_fraction(fraction: f64) -> Option<Self> {
        (0.0..=1.0).contains(&fraction).then(|| Self((fraction * 1e6).round() as u32))
    }

    /// Millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// As a fraction.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

/// A request class: the index in the configuration's order of `[[class]]`; the default class comes last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ClassId(pub u8);

impl ClassId {
    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Most classes of a configuration, the default class included: a class id is one byte in the ticket.
pub const MAX_CLASSES: usize = 256;
