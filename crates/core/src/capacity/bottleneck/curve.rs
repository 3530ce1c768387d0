//! How response time grows with the requests in flight: a hinge, fitted to what was seen at each level.
//!
//! ```text
//! R(n) = B · m(n),   m(n) = r (1 + a (r − 1)²),   r = max(1, n/K)      n requests in flight when sent, itself included
//! ```
//!
//! B is the response time per cost unit of an origin with workers to spare, K the knee. Those beyond it wait: r, by Little's law; and
//! they may get in the way of those in service, pair by pair: a, the coherency of Gunther's Universal Scalability Law, taken
//! beyond the knee only. Samples lie in bins by n; each bin counts for its mean response time per
//! unit by the likelihood of a gamma law, whose error is relative, as that of service times is:
//!
//! ```text
//! −ln L = Σ cᵢ (ln μᵢ + yᵢ/μᵢ),   μᵢ = B m(nᵢ)      B has a closed form: Σ cᵢ yᵢ/m(nᵢ) / Σ cᵢ
//! ```
//!
//! so that only K and a are searched for, on a grid that is refined once. Rejected: least squares (a bin of slow ones
//! counts most), a power (n/K)^p, whose knee is too sharp for contention and pulls K down by a tenth, and the minimum response time for B (with noisy service it is a tenth of the mean, and the limit
//! that follows starves the origin).
//!
//! It cannot see a knee that it has no samples on both sides of: [`Hinge::at_edge`] tells, and none is sought below the first few.

use super::headroom::headroom;
use super::meter::Work;

/// Levels with a bin of their own; above, bins grow.
const LINEAR: usize = 32;
/// Each further bin is this much wider: finer than any fit.
const GROWTH: f64 = 1.03;
/// Bins in all: the last one begins at 32 · 1.03³⁰⁰, some 227,000 requests in flight.
const BINS: usize = LINEAR + 300;
/// Contentions that are tried: none, some, and half of the throughput gone at twice the knee.
pub(super) const CONTENTIONS: [f64; 4] = [0.0, 0.1, 0.3, 1.0];
/// Nats by which contention must be likelier than none, per unit of dispersion.
const CONTENTION_GAIN: f64 = 3.0;
/// Share of the knee up to which samples tell of the base, whatever the error of the knee; and how many must, per unit of dispersion.
const CLEARLY_BELOW: f64 = 0.9;
const ENOUGH_BELOW: f64 = 12.0;
/// Steps of the search for K: coarse over the whole range, then fine about the best.
const COARSE: f64 = 1.10;
const FINE: f64 = 1.015;

/// Samples at about one level, with forgetting: sums.
#[derive(Clone, Copy, Default, Debug)]
struct Bin {
    count: f64,
    in_flight: f64,
    units: f64,
    response_s: f64,
}

/// A bin's means as the fit needs them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub n: f64,
    pub count: f64,
    /// Mean response per unit.
    pub y: f64,
}

/// What was fitted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Hinge {
    /// Response time of one cost unit where nobody waits, in seconds.
    pub base_s: f64,
    /// Requests in flight from which on they wait.
    pub knee: f64,
    /// How much those beyond the knee get in the way of the others.
    pub contention: f64,
    /// Nats by which the hinge is likelier than a response time that does not depend on n, before dispersion.
    pub gain: f64,
    /// Samples below the knee are too few to place it: it may be lower.
    pub at_edge: bool,
    /// Best level over the knee, as far as the knee is known.
    pub headroom: f64,
}

impl Hinge {
    /// How many times longer than alone a request takes among `n`.
    pub fn slowdown(&self, n: f64) -> f64 {
        slowdown(n / self.knee, self.contention)
    }

    /// Whether more in flight than the knee costs throughput.
    pub fn contends(&self) -> bool {
        self.contention > 0.2
    }
}

/// The bins.
pub(super) struct Curve {
    bins: Vec<Bin>,
    /// Kept so that a fit allocates nothing.
    points: Vec<Point>,
}

impl Curve {
    pub fn new() -> Self {
        Self { bins: vec![Bin::default(); BINS], points: Vec::with_capacity(BINS) }
    }

    /// `count` requests of `units` work each, sent among `n`, took `response_s`.
    pub fn add(&mut self, n: f64, count: f64, units: f64, response_s: f64) {
        let bin = &mut self.bins[index(n)];
        bin.count += count;
        bin.in_flight += count * n;
        bin.units += count * units;
        bin.response_s += count * response_s;
    }

    /// Requests that came to nothing took this, among `n`: with it the time per unit that was served obeys Little's law.
    pub fn add_failed(&mut self, n: f64, count: f64, response_s: f64) {
        self.bins[index(n)].response_s += count * response_s;
    }

    pub fn clear(&mut self) {
        self.bins.fill(Bin::default());
    }

    /// All that was seen takes so many times as long.
    pub fn scale_times(&mut self, ratio: f64) {
        self.bins.iter_mut().for_each(|bin| bin.response_s *= ratio);
    }

    /// Forgets all samples of more than `n` in flight.
    pub fn clear_above(&mut self, n: f64) {
        let from = (index(n) + 1).min(BINS);
        self.bins[from..].fill(Bin::default());
    }

    /// Samples in all.
    pub fn samples(&self) -> f64 {
        self.bins.iter().map(|bin| bin.count).sum()
    }

    /// Forgets so much that below the knee and above it no more than these samples count: old ones fade as new ones come,
    /// and only on the side where new ones come.
    pub fn fade(&mut self, knee: f64, below: f64, above: f64) {
        let (low, high) = self.bins.split_at_mut((index(CLEARLY_BELOW * knee) + 1).min(BINS));
        for (side, most) in [(low, below), (high, above)] {
            let sum: f64 = side.iter().map(|bin| bin.count).sum();
            if sum > most {
                side.iter_mut().for_each(|bin| bin.scale(most / sum));
            }
        }
    }

    /// Work done between two levels, with its time per request in flight: their quotient is a throughput.
    pub fn work_between(&self, low: f64, high: f64) -> Work {
        let mut seen = Work::default();
        for bin in self.used() {
            let n = bin.in_flight / bin.count;
            if n >= low && n <= high {
                let (units, time_s) = (bin.units, bin.response_s / n);
                seen.add(&Work { count: bin.count, units, cost: 0.0, time_s });
            }
        }
        seen
    }

    /// What was seen: (requests in flight, response time per unit in seconds).
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.used()
            .filter(|bin| bin.count >= 1.0)
            .map(|bin| (bin.in_flight / bin.count, bin.response_s / bin.units))
    }

    fn used(&self) -> impl Iterator<Item = &Bin> {
        self.bins.iter().filter(|bin| bin.count > 0.01 && bin.units > 0.0 && bin.response_s > 0.0)
    }

    /// The likeliest hinge at a dispersion; `None` without samples.
    pub fn fit(&mut self, dispersion: f64) -> Option<Hinge> {
        let points = self.take_points();
        let hinge = likeliest(&points, dispersion);
        self.points = points;
        hinge
    }

    /// A hinge with its knee moved, and the base that then fits best.
    pub fn fit_at(&mut self, knee: f64, hinge: Hinge) -> Hinge {
        let points = self.take_points();
        let (_, base_s) = loss(&points, knee.ln(), hinge.contention);
        self.points = points;
        Hinge { knee, base_s, ..hinge }
    }

    fn take_points(&mut self) -> Vec<Point> {
        let mut points = std::mem::take(&mut self.points);
        points.clear();
        points.extend(self.used().map(|bin| Point {
            n: bin.in_flight / bin.count,
            count: bin.count,
            y: bin.response_s / bin.units,
        }));
        points
    }
}

impl Bin {
    fn scale(&mut self, factor: f64) {
        self.count *= factor;
        self.in_flight *= factor;
        self.units *= factor;
        self.response_s *= factor;
    }
}

fn index(n: f64) -> usize {
    if n <= LINEAR as f64 {
        return (n.max(1.0).round() as usize).min(LINEAR) - 1;
    }
    let beyond = (n / LINEAR as f64).ln() / GROWTH.ln();
    (LINEAR - 1 + beyond.ceil() as usize).min(BINS - 1)
}

pub(super) fn slowdown(r: f64, contention: f64) -> f64 {
    let r = r.max(1.0);
    r * (1.0 + contention * (r - 1.0) * (r - 1.0))
}

/// The negative log-likelihood of the points under a knee and a contention, and the base that fits best.
pub(super) fn loss(points: &[Point], ln_knee: f64, contention: f64) -> (f64, f64) {
    let knee = ln_knee.exp();
    let (mut samples, mut scaled, mut logs) = (0.0, 0.0, 0.0);
    for point in points {
        let m = slowdown(point.n / knee, contention);
        samples += point.count;
        scaled += point.count * point.y / m;
        if m > 1.0 {
            logs += point.count * m.ln();
        }
    }
    let base = scaled / samples;
    (samples * (base.ln() + 1.0) + logs, base)
}

/// The least knee that can be told of: there are some samples at or below it. Else the very first few, each alone at its level,
/// would be the base, and a ramp could end at a tenth of the knee.
fn least_knee(points: &[Point], dispersion: f64) -> Option<f64> {
    let mut below = 0.0;
    let enough = points.iter().find(|point| {
        below += point.count;
        below >= ENOUGH_BELOW * dispersion.max(0.3)
    });
    enough.or(points.last()).map(|point| point.n)
}

fn likeliest(points: &[Point], dispersion: f64) -> Option<Hinge> {
    let lowest = least_knee(points, dispersion)?;
    let (first, last) = (lowest.ln(), points.last()?.n.ln());
    let (flat, flat_base) = loss(points, last, 0.0);
    let mut best = Hinge {
        base_s: flat_base,
        knee: last.exp(),
        contention: 0.0,
        gain: 0.0,
        at_edge: false,
        headroom: 1.0,
    };
    let mut least = flat;
    for contention in CONTENTIONS {
        let handicap = if contention > 0.0 { CONTENTION_GAIN * dispersion } else { 0.0 };
        let mut search = |from: f64, to: f64, step: f64| {
            let mut at = from;
            let mut found = (f64::INFINITY, from);
            while at <= to {
                let (loss, base_s) = loss(points, at, contention);
                if loss < found.0 {
                    found = (loss, at);
                }
                if loss + handicap < least {
                    least = loss + handicap;
                    best = Hinge { base_s, knee: at.exp(), contention, gain: flat - loss, ..best };
                }
                at += step;
            }
            found.1
        };
        let near = search(first, last, COARSE.ln());
        search((near - COARSE.ln()).max(first), (near + COARSE.ln()).min(last), FINE.ln());
    }
    let clearly_below = points.iter().filter(|point| point.n < CLEARLY_BELOW * best.knee);
    let samples: f64 = clearly_below.map(|point| point.count).sum();
    best.at_edge = best.gain > 0.0 && samples < ENOUGH_BELOW * dispersion.max(0.3);
    if best.gain > 0.0 {
        best.headroom = headroom(points, dispersion, best.knee, lowest);
    }
    (best.base_s.is_finite() && best.base_s > 0.0).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_short_responses_do_not_make_a_knee_of_one() {
        let mut curve = Curve::new();
        // The first three came back at once; ten workers, contention beyond.
        for (n, count, response_s) in
            [(1.0, 1.0, 0.002), (2.0, 1.0, 0.02), (3.0, 1.0, 0.03), (4.0, 10.0, 0.05), (8.0, 14.0, 0.08)]
        {
            curve.add(n, count, 1.0, response_s);
        }
        for n in 12..=21 {
            curve.add(f64::from(n), 3.0, 1.0, 0.1 * slowdown(f64::from(n) / 10.0, 0.3));
        }
        let hinge = curve.fit(1.0).unwrap();
        assert!(hinge.knee >= 4.0, "{hinge:?}");
    }
}
