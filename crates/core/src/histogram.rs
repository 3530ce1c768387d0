//! Histograms of times in constant memory, which are written without locks and may be read meanwhile.
//!
//! Log-linear buckets as in Tene's HdrHistogram: every power of two of microseconds is cut into 32 equal
//! buckets, so that a bucket is at most 1/32 of its lower edge wide. Quantiles name a bucket's middle and are
//! off by at most 1/64 (1.6 %), well within the 3 % this project promises; below 64 µs they are exact. The
//! range is 0 µs to 2³² - 1 µs (71 minutes); longer times count as the longest.
//!
//! Rejected: t-digest and similar sketches (they must sort and merge while writing); fixed Prometheus buckets
//! (a quantile of them may be off by half).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

mod fading;

pub use fading::Fading;

/// Buckets per power of two, as a power of two.
const SUB_BITS: u32 = 5;
const SUB: u64 = 1 << SUB_BITS;
/// Longest time with a bucket of its own, in microseconds.
const MAX_US: u64 = u32::MAX as u64;
/// The first 32 values have a bucket each, and every further power of two up to 2³² has 32.
const BUCKETS: usize = (SUB * (1 + 32 - SUB_BITS as u64)) as usize;

/// Upper bounds of the buckets of response times and waits at the gate, as they are shown to Prometheus.
pub const PROMETHEUS_BOUNDS: [Duration; 16] =
    millis([1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000]);
/// Upper bounds of the buckets of waits in the room, which last minutes.
pub const WAIT_BOUNDS: [Duration; 12] = millis([
    100, 1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 2_400_000, 3_600_000,
]);

const fn millis<const N: usize>(ms: [u64; N]) -> [Duration; N] {
    let (mut bounds, mut at) = ([Duration::ZERO; N], 0);
    while at < N {
        bounds[at] = Duration::from_millis(ms[at]);
        at += 1;
    }
    bounds
}

fn bucket(us: u64) -> usize {
    let us = us.min(MAX_US);
    if us < SUB {
        return us as usize;
    }
    let shift = us.ilog2() - SUB_BITS;
    (u64::from(shift) * SUB + (us >> shift)) as usize
}

/// First and last microsecond of a bucket.
fn edges(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    if bucket < 2 * SUB {
        return (bucket, bucket);
    }
    let shift = bucket / SUB - 1;
    let low = (bucket - shift * SUB) << shift;
    (low, low + (1 << shift) - 1)
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX).min(MAX_US)
}

/// A histogram with one writer, which any thread may read at any time.
///
/// The writer's updates are plain loads and stores (relaxed, not read-modify-write): no bus lock on the
/// request path. A reader may see one recording half done: the bucket but not yet the sum.
#[derive(Debug)]
pub struct Recorder {
    /// Not boxed, so that the owner decides which cache lines recorders share.
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
    /// Lets a reader skip the histograms of idle classes.
    count: AtomicU64,
}

impl Default for Recorder {
    fn default() -> Self {
        let buckets = [const { AtomicU64::new(0) }; BUCKETS];
        Self { buckets, sum_us: AtomicU64::new(0), count: AtomicU64::new(0) }
    }
}

impl Recorder {
    /// Counts one time. Only one thread may call it.
    pub fn record(&self, time: Duration) {
        let us = micros(time);
        add(&self.buckets[bucket(us)], 1);
        add(&self.sum_us, us);
        add(&self.count, 1);
    }
}

/// Adds to a counter that only this thread writes.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// A snapshot of recorders, or the difference of two snapshots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    sum_us: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS].into(), count: 0, sum_us: 0 }
    }
}

impl Histogram {
    /// Adds what a recorder holds now.
    pub fn absorb(&mut self, recorder: &Recorder) {
        if recorder.count.load(Relaxed) == 0 {
            return;
        }
        self.sum_us = self.sum_us.saturating_add(recorder.sum_us.load(Relaxed));
        for (mine, theirs) in self.buckets.iter_mut().zip(&recorder.buckets) {
            let n = theirs.load(Relaxed);
            *mine += n;
            self.count += n;
        }
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }

    /// The times counted since `earlier`, an older snapshot of the same recorders.
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        let buckets: Box<[u64]> = pairs.map(|(now, then)| now.saturating_sub(*then)).collect();
        let count = buckets.iter().sum();
        Self { buckets, count, sum_us: self.sum_us.saturating_sub(earlier.sum_us) }
    }

    /// Times counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of all times, exact.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us)
    }

    /// Mean, exact; `None` if nothing was counted.
    pub fn mean(&self) -> Option<Duration> {
        self.sum_us.checked_div(self.count).map(Duration::from_micros)
    }

    /// The quantile `q` (0..=1), within 1.6 %; `None` if nothing was counted.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        let at = self.buckets.iter().position(|&n| {
            seen += n;
            seen >= rank
        })?;
        let (low, high) = edges(at);
        Some(Duration::from_micros(low + (high - low) / 2))
    }

    /// Number of times of at most `bound`, without the bucket that contains it (within 3 %).
    pub fn at_most(&self, bound: Duration) -> u64 {
        let Ok(us) = u64::try_from(bound.as_micros()) else { return self.count };
        if us >= MAX_US {
            return self.count;
        }
        let whole = if edges(bucket(us)).1 == us { bucket(us) + 1 } else { bucket(us) };
        self.buckets[..whole].iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_the_range_and_are_narrow() {
        let mut next = 0;
        for b in 0..BUCKETS {
            let (low, high) = edges(b);
            assert_eq!(low, next, "bucket {b} starts where the one before ended");
            assert!(high >= low);
            assert_eq!((bucket(low), bucket(high)), (b, b));
            assert!((high - low) * SUB < low.max(1), "bucket {b}: {low}..={high} is wider than 1/32");
            next = high + 1;
        }
        assert_eq!(next, MAX_US + 1);
    }
}
