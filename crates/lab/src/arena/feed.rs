//! When the next request wants in, and what it is.

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Exp1};

use super::Feed;

pub(super) fn exponential(rng: &mut SmallRng) -> f64 {
    Exp1.sample(rng)
}

/// The time after `from_us` at which the next one arrives; `None`: nobody comes any more, or the feed has no
/// times.
///
/// Lewis and Shedler's thinning: arrivals at the highest rate, of which as many are dropped as the present
/// rate is lower.
pub(super) fn next_arrival(feed: &Feed, from_us: f64, until_us: f64, rng: &mut SmallRng) -> Option<f64> {
    let Feed::Arrivals(points) = feed else { return None };
    let most = points.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let mut at_us = from_us;
    loop {
        at_us += exponential(rng) / most * 1e6;
        if at_us > until_us {
            return None;
        }
        if rng.random::<f64>() * most < rate(points, at_us / 1e6) {
            return Some(at_us);
        }
    }
}

/// Requests per second at a time in seconds.
pub(super) fn rate(points: &[(Duration, f64)], at_s: f64) -> f64 {
    let after = points.partition_point(|(t, _)| t.as_secs_f64() <= at_s);
    match (after.checked_sub(1).map(|i| points[i]), points.get(after)) {
        (None, None) => 0.0,
        (Some((_, rate)), None) => rate,
        (None, Some((_, rate))) => *rate,
        (Some((t0, from)), Some((t1, to))) => {
            let (t0, t1) = (t0.as_secs_f64(), t1.as_secs_f64());
            from + (to - from) * (at_s - t0) / (t1 - t0)
        }
    }
}

pub(super) struct Dice {
    /// Sums of the weights up to each kind.
    up_to: Vec<f64>,
}

impl Dice {
    pub(super) fn new(weights: &[f64]) -> Self {
        let mut sum = 0.0;
        let add = |weight: &f64| {
            sum += weight;
            sum
        };
        Self { up_to: weights.iter().map(add).collect() }
    }

    pub(super) fn throw(&self, rng: &mut SmallRng) -> usize {
        let [.., all] = self.up_to[..] else { return 0 };
        if self.up_to.len() == 1 {
            return 0;
        }
        let at = rng.random::<f64>() * all;
        self.up_to.partition_point(|sum| *sum <= at).min(self.up_to.len() - 1)
    }
}
