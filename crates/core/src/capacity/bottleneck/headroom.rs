//! How many to hold in flight while the knee is not known for certain: what is best in the mean over all knees that may be.
//!
//! Too few in flight cost goodput at once, one percent for each percent; too many cost response time only, unless the origin
//! suffers from contention: then both sides cost, and how much depends on a. So L is chosen as a newsvendor chooses his stock:
//!
//! ```text
//! L = argmax Σ p(K, a) · ( r/m(r) − λ (m(r) − 1) ),   r = L/K      share of the throughput, less the price of waiting
//! ```
//!
//! Without contention that is the knee's quantile of 1 − λ: far above the likeliest knee after a few noisy samples, near it after
//! many even ones. p is the likelihood of the bins over dispersion, B at its likeliest, with a prior
//! for none of the contentions. The number in flight is whole, and so the knee is not told finer than half a request.
//!
//! Rejected: a constant plus a multiple of the dispersion (under contention too much when much is known, and too little response
//! time saved elsewhere); the mean of the posterior for the knee itself (its tail towards many is long).

use super::curve::{CONTENTIONS, Point, loss, slowdown};

/// λ: goodput that one unloaded response time of waiting is worth.
const PRICE: f64 = 0.1;
/// Nats by which each contention is less likely beforehand than none. Fewer than the fit demands: here nothing is decided.
const PRIOR_NATS: f64 = 1.0;
/// Knees about the likeliest: so many to either side, so far apart in logarithms; and levels, from least to most.
const KNEES: i32 = 20;
const KNEE_STEP: f64 = 0.03;
const LEVELS: std::ops::RangeInclusive<i32> = -15..=25;
const LEVEL_STEP: f64 = 0.02;
/// Half of a request: the least uncertainty of a knee, as a uniform law's standard deviation.
const WHOLE: f64 = 0.29;

/// What may be: a knee, a contention, and how likely.
#[derive(Clone, Copy, Default)]
struct Possible {
    knee: f64,
    contention: f64,
    weight: f64,
}

const POSSIBLE: usize = CONTENTIONS.len() * (2 * KNEES as usize + 1);

/// The best level over the likeliest knee; `least` is the least knee that can be told of.
pub(super) fn headroom(points: &[Point], dispersion: f64, knee: f64, least: f64) -> f64 {
    let mut all = [Possible::default(); POSSIBLE];
    let mut used = 0;
    let mut smallest = f64::INFINITY;
    for contention in CONTENTIONS {
        let prior = if contention > 0.0 { PRIOR_NATS } else { 0.0 };
        for step in -KNEES..=KNEES {
            let knee = knee * (KNEE_STEP * f64::from(step)).exp();
            if knee < least {
                continue;
            }
            let nats = loss(points, knee.ln(), contention).0 / dispersion + prior;
            smallest = smallest.min(nats);
            all[used] = Possible { knee, contention, weight: nats };
            used += 1;
        }
    }
    let all = &mut all[..used];
    all.iter_mut().for_each(|it| it.weight = (smallest - it.weight).exp());
    let whole = WHOLE / knee;
    let mut best = (f64::NEG_INFINITY, 1.0);
    for step in LEVELS {
        let over = (LEVEL_STEP * f64::from(step)).exp();
        let level = knee * over;
        let worth_at = |knee: f64, it: &Possible| it.weight * worth(level / knee, it.contention);
        let worth: f64 = all
            .iter()
            .map(|it| worth_at(it.knee * (1.0 + whole), it) + worth_at(it.knee * (1.0 - whole).max(0.1), it))
            .sum();
        if worth > best.0 {
            best = (worth, over);
        }
    }
    best.1
}

/// Of `r` knees in flight: the share of the throughput that is had, less the price of waiting.
fn worth(r: f64, contention: f64) -> f64 {
    let m = slowdown(r, contention);
    r / m - PRICE * (m - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` samples at each of these levels, as an origin with ten workers answers in the mean.
    fn points(contention: f64, count: f64) -> Vec<Point> {
        let at = |n: f64| Point { n, count, y: 0.1 * slowdown(n / 10.0, contention) };
        [6.0, 8.0, 12.0, 14.0].map(at).to_vec()
    }

    #[test]
    fn little_knowledge_takes_more_room_than_much() {
        let few = headroom(&points(0.0, 20.0), 1.0, 10.0, 1.0);
        let many = headroom(&points(0.0, 2000.0), 1.0, 10.0, 1.0);
        assert!(few > many + 0.05, "{few} {many}");
        assert!((1.0..1.1).contains(&many), "{many}");
    }

    #[test]
    fn noise_takes_more_room() {
        let even = headroom(&points(0.0, 50.0), 0.1, 10.0, 1.0);
        let noisy = headroom(&points(0.0, 50.0), 2.0, 10.0, 1.0);
        assert!(noisy > even + 0.05, "{noisy} {even}");
    }

    #[test]
    fn contention_takes_less() {
        let none = headroom(&points(0.0, 100.0), 1.0, 10.0, 1.0);
        let some = headroom(&points(1.0, 100.0), 1.0, 10.0, 1.0);
        assert!(some < none, "{some} {none}");
    }
}
