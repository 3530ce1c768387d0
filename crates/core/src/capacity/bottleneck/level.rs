//! How many requests to hold in flight while the knee is uncertain: the best on average over likely knees.
//!
//! Too few in flight cost goodput at once, percent for percent. Too many cost response time only, unless
//! there is contention: then both cost goodput, depending on a. So L is that of the newsvendor problem:
//!
//! ```text
//! L = argmax Σ p(K, a) · ( r/m(r) − λ (m(r) − 1) ),   r = L/K    share of throughput, less the wait
//! λ = 0.15 · R / max(R, 50 ms)                                   R: response time without a wait
//! ```
//!
//! Without contention that is the 1 − λ quantile of the knee: far above the likeliest knee after a few noisy
//! samples, near it after many even ones. p is the likelihood of the bins divided by the dispersion, with B
//! at its likeliest and a prior for no contention.
//!
//! L is whole, as the number in flight is: two limits in turn are worth the mean of what each is worth, which
//! is never more than the better one. This matters where the knee is below three: a worker that idles for
//! 0.3 ms between two requests of 2 ms has a knee of 1.15, and one request at a time leaves an eighth of it
//! unused.
//!
//! A visitor does not notice a few milliseconds, so that where requests take less than 50 ms a wait costs the
//! less the shorter it is, and the goodput decides. There the knee is not sharp either: while one answer is
//! on its way to the gate and the next request on its way back, the origin's process falls asleep and is
//! woken, and with a chain of processes some are idle in turn.
//!
//! Rejected: one or two requests more than this where they wait for at most 5 ms, and λ = 0.15 for all
//! (drawn origins .9587 and 1.580, with this .9577 and 1.541); a wait up to there as free of charge (2.3
//! times the response time at 10,000 requests per second, and no more goodput); a constant plus a multiple of
//! the dispersion (too much under contention once much is known, and too little response time saved
//! elsewhere); the knee's posterior mean (its upper tail is long); a fractional L, as two limits in turn:
//! 94 % instead of 99 % of the best at that worker.

use super::fit::{CONTENTIONS, Hinge, Point, likelihood, slowdown};

/// The share of goodput that a wait as long as the unloaded response time is worth. Goodput and response time
/// of the drawn origins 1 to 40 with 0.1, 0.15, 0.2 and 0.3: .940 and 1.37, .941 and 1.35, .941 and 1.34,
/// .938 and 1.32; of the worker above 1.145, 1.145, 1.10 and 1.03 of what one request at a time gives.
const PRICE: f64 = 0.15;
/// Wait in seconds that costs as much where responses are shorter: half of the 0.1 s up to which an answer
/// seems to be immediate (Miller 1968, Nielsen 1993). Goodput and response time of 280 drawn origins with
/// 20 ms: .9570 and 1.555, with 50 ms .9577 and 1.541.
const NOTICED_S: f64 = 0.05;
/// Nats by which each contention is less likely a priori than none. Less than the fit demands, because here
/// all contentions are weighed and none is chosen.
const PRIOR_NATS: f64 = 1.0;
/// Knees about the likeliest: how many on either side and how far apart in logarithms.
const KNEES: i32 = 20;
const KNEE_STEP: f64 = 0.03;
/// Levels tried: from and to so many knees, and so far apart where that is more than one.
const LEVELS: (f64, f64) = (0.75, 2.0);
const LEVEL_STEP: f64 = 0.02;

#[derive(Clone, Copy, Default)]
struct Candidate {
    knee: f64,
    contention: f64,
    weight: f64,
}

const CANDIDATES: usize = CONTENTIONS.len() * (2 * KNEES as usize + 1);

/// The best number of requests in flight, which is whole; the knee's if the fit is as good without one.
///
/// `response_s`: mean response time without a wait, in seconds.
pub(super) fn best(points: &[Point], dispersion: f64, hinge: &Hinge, response_s: f64) -> f64 {
    let knee = hinge.knee;
    if hinge.gain <= 0.0 {
        return knee.round().max(1.0);
    }
    let mut all = [Candidate::default(); CANDIDATES];
    let mut used = 0;
    let mut smallest = f64::INFINITY;
    for contention in CONTENTIONS {
        let prior = if contention > 0.0 { PRIOR_NATS } else { 0.0 };
        for step in -KNEES..=KNEES {
            let knee = knee * (KNEE_STEP * f64::from(step)).exp();
            let nats = likelihood(points, knee.ln(), contention).loss / dispersion + prior;
            smallest = smallest.min(nats);
            all[used] = Candidate { knee, contention, weight: nats };
            used += 1;
        }
    }
    let all = &mut all[..used];
    all.iter_mut().for_each(|it| it.weight = (smallest - it.weight).exp());
    let price = PRICE * response_s / response_s.max(NOTICED_S);
    let worth = |level: f64| -> f64 {
        all.iter().map(|it| it.weight * worth(level / it.knee, it.contention, price)).sum()
    };
    let least = (LEVELS.0 * knee).floor().max(1.0);
    let step = (LEVEL_STEP * knee).floor().max(1.0);
    let mut best = (f64::NEG_INFINITY, least);
    for i in 0..=((LEVELS.1 * knee - least) / step).ceil() as u32 {
        let level = least + step * f64::from(i);
        let worth = worth(level);
        if worth > best.0 {
            best = (worth, level);
        }
    }
    best.1
}

/// Value of `r` knees in flight: the share of throughput, less the price of waiting.
fn worth(r: f64, contention: f64, price: f64) -> f64 {
    let m = slowdown(r, contention);
    r / m - price * (m - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The level for `count` samples at each of four levels around the knee of an origin with ten workers.
    fn level(contention: f64, count: f64, dispersion: f64) -> f64 {
        let at = |n: f64| Point { n, count, time_s: 0.1 * count * slowdown(n / 10.0, contention) };
        let hinge = Hinge { base_s: 0.1, knee: 10.0, contention, gain: 9.0 };
        best(&[6.0, 8.0, 12.0, 14.0].map(at), dispersion, &hinge, 0.1)
    }

    #[test]
    fn few_samples_need_more_headroom_than_many() {
        let (few, many) = (level(0.0, 20.0, 1.0), level(0.0, 2000.0, 1.0));
        assert!(few > many, "{few} {many}");
        assert_eq!(many, 10.0);
    }

    #[test]
    fn noise_needs_more_headroom() {
        let (even, noisy) = (level(0.0, 50.0, 0.1), level(0.0, 50.0, 2.0));
        assert!(noisy > even, "{noisy} {even}");
    }

    #[test]
    fn contention_allows_less_headroom() {
        let (none, some) = (level(0.0, 100.0, 1.0), level(1.0, 100.0, 1.0));
        assert!(some < none, "{some} {none}");
    }

    #[test]
    fn a_fit_without_a_knee_has_no_headroom() {
        let flat = Hinge { base_s: 0.1, knee: 14.0, contention: 0.0, gain: 0.0 };
        assert_eq!(best(&[], 1.0, &flat, 0.1), 14.0);
    }

    /// One worker that idles for a share of the service time between two requests: its knee is 1 + that.
    fn lone_worker(service_s: f64, idles: f64, contention: f64) -> f64 {
        let knee = 1.0 + idles;
        let at =
            |n: f64| Point { n, count: 500.0, time_s: 500.0 * service_s * slowdown(n / knee, contention) };
        let hinge = Hinge { base_s: service_s, knee, contention, gain: 9.0 };
        best(&[1.0, 2.0, 3.0].map(at), 0.1, &hinge, service_s)
    }

    #[test]
    fn a_worker_that_idles_between_requests_gets_two_at_once() {
        assert_eq!([0.0, 0.05, 0.15, 0.3].map(|idles| lone_worker(0.1, idles, 0.0)), [1.0, 1.0, 2.0, 2.0]);
    }

    #[test]
    fn a_wait_of_milliseconds_costs_less_than_an_idle_worker() {
        assert_eq!([0.002, 0.01, 0.02, 0.05].map(|s| lone_worker(s, 0.05, 0.0)), [2.0, 2.0, 1.0, 1.0]);
        assert_eq!(lone_worker(0.002, 0.05, 1.0), 1.0, "contention costs throughput");
    }
}
