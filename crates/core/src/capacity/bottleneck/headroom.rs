//! How many requests to hold in flight while the knee is uncertain: the best on average over likely knees.
//!
//! Too few in flight cost goodput at once, percent for percent. Too many cost response time only, unless
//! there is contention: then both cost goodput, depending on a. So L is that of the newsvendor problem:
//!
//! ```text
//! L = argmax Σ p(K, a) · ( r/m(r) − λ (m(r) − 1) ),   r = L/K    share of throughput, less the wait
//! ```
//!
//! Without contention that is the 1 − λ quantile of the knee: far above the likeliest knee after a few noisy
//! samples, near it after many even ones. p is the likelihood of the bins divided by the dispersion, with B
//! at its likeliest and a prior for no contention. The number in flight is whole, so the knee is not resolved
//! finer than half a request.
//!
//! Rejected: a constant plus a multiple of the dispersion (too much under contention once much is known, and
//! too little response time saved elsewhere); the knee's posterior mean (its upper tail is long).

use super::fit::{CONTENTIONS, Hinge, Point, UNSURE_NATS, least_sure_knee, likelihood, slowdown};

/// λ: the share of goodput that a wait of one unloaded response time is worth.
const PRICE: f64 = 0.1;
/// Nats by which each contention is less likely a priori than none. Less than the fit demands, because here
/// all contentions are weighed and none is chosen.
const PRIOR_NATS: f64 = 1.0;
/// Knees about the likeliest: how many on either side and how far apart in logarithms; and the levels tried.
const KNEES: i32 = 20;
const KNEE_STEP: f64 = 0.03;
const LEVELS: std::ops::RangeInclusive<i32> = -15..=25;
const LEVEL_STEP: f64 = 0.02;
/// Least uncertainty of a knee: the standard deviation of a uniform distribution over one request.
const WHOLE: f64 = 0.29;

#[derive(Clone, Copy, Default)]
struct Candidate {
    knee: f64,
    contention: f64,
    weight: f64,
}

const CANDIDATES: usize = CONTENTIONS.len() * (2 * KNEES as usize + 1);

/// The best level as a multiple of the fitted knee; 1 if the fit has no knee.
pub(super) fn best_level(points: &[Point], dispersion: f64, hinge: &Hinge) -> f64 {
    if hinge.gain <= 0.0 {
        return 1.0;
    }
    let (knee, sure) = (hinge.knee, least_sure_knee(points, dispersion).unwrap_or(hinge.knee));
    let mut all = [Candidate::default(); CANDIDATES];
    let mut used = 0;
    let mut smallest = f64::INFINITY;
    for contention in CONTENTIONS {
        let prior = if contention > 0.0 { PRIOR_NATS } else { 0.0 };
        for step in -KNEES..=KNEES {
            let knee = knee * (KNEE_STEP * f64::from(step)).exp();
            let unsure = if knee < sure { UNSURE_NATS } else { 0.0 };
            let nats = likelihood(points, knee.ln(), contention).loss / dispersion + prior + unsure;
            smallest = smallest.min(nats);
            all[used] = Candidate { knee, contention, weight: nats };
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
        let worth_at = |knee: f64, it: &Candidate| it.weight * worth(level / knee, it.contention);
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

/// Value of `r` knees in flight: the share of throughput, less the price of waiting.
fn worth(r: f64, contention: f64) -> f64 {
    let m = slowdown(r, contention);
    r / m - PRICE * (m - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The level for `count` samples at each of four levels around the knee of an origin with ten workers.
    fn level(contention: f64, count: f64, dispersion: f64) -> f64 {
        let at = |n: f64| Point { n, count, y: 0.1 * slowdown(n / 10.0, contention) };
        let hinge = Hinge { base_s: 0.1, knee: 10.0, contention, gain: 9.0, at_edge: false };
        best_level(&[6.0, 8.0, 12.0, 14.0].map(at), dispersion, &hinge)
    }

    #[test]
    fn few_samples_need_more_headroom_than_many() {
        let (few, many) = (level(0.0, 20.0, 1.0), level(0.0, 2000.0, 1.0));
        assert!(few > many + 0.05, "{few} {many}");
        assert!((1.0..1.1).contains(&many), "{many}");
    }

    #[test]
    fn noise_needs_more_headroom() {
        let (even, noisy) = (level(0.0, 50.0, 0.1), level(0.0, 50.0, 2.0));
        assert!(noisy > even + 0.05, "{noisy} {even}");
    }

    #[test]
    fn contention_allows_less_headroom() {
        let (none, some) = (level(0.0, 100.0, 1.0), level(1.0, 100.0, 1.0));
        assert!(some < none, "{some} {none}");
    }

    #[test]
    fn a_fit_without_a_knee_has_no_headroom() {
        let flat = Hinge { base_s: 0.1, knee: 14.0, contention: 0.0, gain: 0.0, at_edge: false };
        assert_eq!(best_level(&[], 1.0, &flat), 1.0);
    }
}
