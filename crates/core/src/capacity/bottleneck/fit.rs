//! The fit: response time over requests in flight as a hinge, from the samples of each level.
//!
//! ```text
//! R(n) = B · m(n),   m(n) = r (1 + a (r − 1)²),   r = max(1, n/K)
//! ```
//!
//! n counts the requests in flight when the sample was sent, itself included. B is the response time per cost
//! unit of an origin with free workers, K the knee. Requests beyond the knee wait: the factor r, by Little's
//! law. They may also slow down those in service, pair by pair: a is the coherency of Gunther's Universal
//! Scalability Law, applied beyond the knee only. Samples lie in bins by n. Each bin counts with its mean
//! response time per unit, by a gamma likelihood, whose error is relative like that of service times:
//!
//! ```text
//! −ln L = Σ cᵢ ln μᵢ + tᵢ/μᵢ,   μᵢ = B m(nᵢ)      B has a closed form: Σ tᵢ/m(nᵢ) / Σ cᵢ
//! ```
//!
//! c requests have ended in a bin, and t is the time that all of it took, also that of those that are still
//! open: of a bin without an end it says that a response takes long there. Only K and a are searched for, on
//! a grid that is refined once.
//!
//! Rejected: least squares (a bin of slow samples counts most); a power (n/K)^p (its knee is too sharp for
//! contention and K comes out a tenth too low); the minimum response time for B (with noisy service it is a
//! tenth of the mean, and the limit that follows starves the origin).

use super::work::Work;

/// Levels with a bin each; above, bins grow.
const LINEAR: usize = 32;
/// Each further bin is wider by this factor: finer than the error of any fit.
const GROWTH: f64 = 1.03;
/// Number of bins: the last one begins at 32 · 1.03³⁰⁰, some 227,000 requests in flight.
const BINS: usize = LINEAR + 300;
/// Values of a that are tried: from none to a loss of half the throughput at twice the knee.
pub(super) const CONTENTIONS: [f64; 4] = [0.0, 0.1, 0.3, 1.0];
/// Contention from which exceeding the knee costs throughput.
const CONTENDS: f64 = 0.2;
/// Nats by which contention must be likelier than none, and processor sharing likelier than one line
/// (discipline.rs), per unit of dispersion.
pub(super) const FURTHER_NATS: f64 = 3.0;
/// Samples below which a bin has none: a rounding error.
const LEAST: f64 = 0.01;
/// Share of the knee up to which samples measure the base, whatever the error of the knee.
const CLEARLY_BELOW: f64 = 0.9;
/// Samples at a knee or below that are enough to believe in it, per unit of dispersion.
const ENOUGH_BELOW: f64 = 12.0;
/// Nats by which a knee without contention must be likelier, per unit of dispersion, if fewer samples lie at
/// it or below: the very first few may be short by chance. Exponential service at ten workers, eight seeds:
/// of the first 12 s 88 % are served with it, and 75 % without. With contention requests take dozens of
/// times as long two levels beyond the knee, which a few show: for it too, the worst drawn origin got .27
/// instead of .64.
const UNSURE_NATS: f64 = 3.0;
/// Samples that suffice for what is usual at the lowest levels: those of the first level of a ramp.
const FEW: f64 = 4.0;
/// Steps of the search for K: coarse over the whole range, then fine about the best.
const COARSE: f64 = 1.10;
const FINE: f64 = 1.015;

/// Sums over the samples at about one level; old samples fade.
#[derive(Clone, Copy, Default, Debug)]
struct Bin {
    count: f64,
    in_flight: f64,
    units: f64,
    response_s: f64,
    /// Time of open requests, in seconds.
    open_s: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub n: f64,
    /// Requests that ended.
    pub count: f64,
    /// Their time per unit, and that of open ones, in seconds.
    pub time_s: f64,
}

/// A fitted curve of response time over requests in flight.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Hinge {
    /// B: response time of one cost unit without a wait, in seconds.
    pub base_s: f64,
    /// K: requests in flight beyond which they wait.
    pub knee: f64,
    /// a: how much requests beyond the knee slow down the others.
    pub contention: f64,
    /// Nats by which the hinge is likelier than a constant response time, before division by the dispersion.
    pub gain: f64,
}

impl Hinge {
    /// m(n): response time among `n` requests over that without a wait.
    pub fn slowdown(&self, n: f64) -> f64 {
        slowdown(n / self.knee, self.contention)
    }
}

pub(super) struct Curve {
    bins: Vec<Bin>,
    /// The points of the last fit; kept so that a fit allocates nothing.
    points: Vec<Point>,
}

impl Curve {
    pub fn new() -> Self {
        Self { bins: vec![Bin::default(); BINS], points: Vec::with_capacity(BINS) }
    }

    /// `count` requests of `units` work each were sent among `n` and took `response_s` each.
    pub fn add(&mut self, n: f64, count: f64, units: f64, response_s: f64) {
        let bin = &mut self.bins[index(n)];
        bin.count += count;
        bin.in_flight += count * n;
        bin.units += count * units;
        bin.response_s += count * response_s;
    }

    /// `count` failed requests took `response_s` each among `n`. Their time counts without their work, so
    /// that the time per served unit obeys Little's law.
    pub fn add_failed(&mut self, n: f64, count: f64, response_s: f64) {
        self.bins[index(n)].response_s += count * response_s;
    }

    /// Requests sent among `n` have been open for so long in all, for the next fit.
    pub fn add_open(&mut self, n: f64, open_s: f64) {
        self.bins[index(n)].open_s += open_s;
    }

    pub fn clear_open(&mut self) {
        self.bins.iter_mut().for_each(|bin| bin.open_s = 0.0);
    }

    pub fn clear(&mut self) {
        self.bins.fill(Bin::default());
    }

    /// Forgets all samples with more than `n` in flight.
    pub fn clear_above(&mut self, n: f64) {
        let from = (index(n) + 1).min(BINS);
        self.bins[from..].fill(Bin::default());
    }

    /// Number of samples, with fading.
    pub fn samples(&self) -> f64 {
        self.bins.iter().map(|bin| bin.count).sum()
    }

    /// Fades the samples below the knee and those above it to at most `most` each. The sides are separate so
    /// that old samples fade only where new ones replace them.
    pub fn fade(&mut self, knee: f64, most: f64) {
        let (low, high) = self.bins.split_at_mut((index(CLEARLY_BELOW * knee) + 1).min(BINS));
        for side in [low, high] {
            let sum: f64 = side.iter().map(|bin| bin.count).sum();
            if sum > most {
                side.iter_mut().for_each(|bin| bin.scale(most / sum));
            }
        }
    }

    /// Work done between two levels, with its time per request in flight: its [`Work::rate`] is a throughput.
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

    /// Relative standard error of the response time without a wait, by the samples clearly below a knee.
    pub fn error_below(&self, knee: f64, dispersion: f64) -> f64 {
        (dispersion / self.clearly_below(knee)).sqrt()
    }

    /// The largest whole number of requests clearly below a knee, if too few samples lie there to believe in
    /// a lower knee; `None`: there are enough, or contention shows the knee.
    pub fn unsure_below(&self, hinge: &Hinge, dispersion: f64) -> Option<f64> {
        let is_sure = hinge.contention > CONTENDS || self.clearly_below(hinge.knee) >= enough(dispersion);
        (!is_sure).then(|| (CLEARLY_BELOW * hinge.knee).ceil() - 1.0)
    }

    /// Number of samples clearly below a knee.
    fn clearly_below(&self, knee: f64) -> f64 {
        let below = self.used().filter(|bin| bin.in_flight < CLEARLY_BELOW * knee * bin.count);
        below.map(|bin| bin.count).sum()
    }

    /// Mean response time per unit of the few samples at the lowest levels, in seconds; `None` without any.
    pub fn base_s(&self) -> Option<f64> {
        let (mut count, mut units, mut time_s) = (0.0, 0.0, 0.0);
        for bin in self.used() {
            (count, units, time_s) = (count + bin.count, units + bin.units, time_s + bin.response_s);
            if count >= FEW {
                break;
            }
        }
        (units > 0.0).then(|| time_s / units)
    }

    /// Pairs of requests in flight and response time per unit in seconds.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.used()
            .filter(|bin| bin.count >= 1.0)
            .map(|bin| (bin.in_flight / bin.count, bin.response_s / bin.units))
    }

    fn used(&self) -> impl Iterator<Item = &Bin> {
        self.bins.iter().filter(|bin| bin.count > LEAST && bin.units > 0.0 && bin.response_s > 0.0)
    }

    /// The likeliest hinge at a dispersion; `None` without samples.
    pub fn fit(&mut self, dispersion: f64) -> Option<Hinge> {
        self.collect_points();
        likeliest(&self.points, dispersion)
    }

    /// The points that the last fit was made to.
    pub fn fitted_points(&self) -> &[Point] {
        &self.points
    }

    /// A hinge with another knee, and the base that fits best with it.
    pub fn fit_at(&mut self, knee: f64, hinge: Hinge) -> Hinge {
        self.collect_points();
        let base_s = likelihood(&self.points, knee.ln(), hinge.contention).base_s;
        Hinge { knee, base_s, ..hinge }
    }

    fn collect_points(&mut self) {
        let mut points = std::mem::take(&mut self.points);
        points.clear();
        let (count, units) =
            self.bins.iter().fold((0.0, 0.0), |(count, units), bin| (count + bin.count, units + bin.units));
        let usual = units / count;
        points.extend((0..BINS).filter_map(|at| {
            let bin = &self.bins[at];
            let has_ended = bin.count > LEAST && bin.units > 0.0;
            let (n, count, per_request) = if has_ended {
                (bin.in_flight / bin.count, bin.count, bin.units / bin.count)
            } else {
                (middle(at), 0.0, usual)
            };
            let time_s = if has_ended { bin.response_s + bin.open_s } else { bin.open_s } / per_request;
            (time_s > 0.0).then_some(Point { n, count, time_s })
        }));
        self.points = points;
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

/// The level of a bin, about.
fn middle(at: usize) -> f64 {
    if at < LINEAR { (at + 1) as f64 } else { LINEAR as f64 * GROWTH.powf((at - LINEAR) as f64 + 0.5) }
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

/// How well a knee and a contention explain some points.
pub(super) struct Likelihood {
    /// −ln L, in nats.
    pub loss: f64,
    pub base_s: f64,
}

/// The likelihood of the points under a knee and a contention.
pub(super) fn likelihood(points: &[Point], ln_knee: f64, contention: f64) -> Likelihood {
    let knee = ln_knee.exp();
    let (mut samples, mut scaled, mut logs) = (0.0, 0.0, 0.0);
    for point in points {
        let m = slowdown(point.n / knee, contention);
        samples += point.count;
        scaled += point.time_s / m;
        if m > 1.0 {
            logs += point.count * m.ln();
        }
    }
    let base_s: f64 = scaled / samples;
    Likelihood { loss: samples * (base_s.ln() + 1.0) + logs, base_s }
}

/// Samples that are enough to believe in a knee at or above them.
pub(super) fn enough(dispersion: f64) -> f64 {
    ENOUGH_BELOW * dispersion.max(0.3)
}

/// The least knee with enough samples at it or below. A smaller one needs [`UNSURE_NATS`] more.
fn least_sure_knee(points: &[Point], dispersion: f64) -> Option<f64> {
    let mut below = 0.0;
    let enough = points.iter().find(|point| {
        below += point.count;
        below >= enough(dispersion)
    });
    enough.or(points.last()).map(|point| point.n)
}

fn likeliest(points: &[Point], dispersion: f64) -> Option<Hinge> {
    let sure = least_sure_knee(points, dispersion)?.ln();
    let (first, last) = (points.first()?.n.ln(), points.last()?.n.ln());
    let flat = likelihood(points, last, 0.0);
    let mut best = Hinge { base_s: flat.base_s, knee: last.exp(), contention: 0.0, gain: 0.0 };
    let mut least = flat.loss;
    for contention in CONTENTIONS {
        let prior = if contention > 0.0 { FURTHER_NATS * dispersion } else { 0.0 };
        let mut search = |from: f64, to: f64, step: f64, unsure: f64| {
            let mut at = from;
            let mut found = (f64::INFINITY, from);
            while at <= to {
                let Likelihood { loss, base_s } = likelihood(points, at, contention);
                let loss = loss + unsure;
                if loss < found.0 {
                    found = (loss, at);
                }
                if loss + prior < least {
                    least = loss + prior;
                    best = Hinge { base_s, knee: at.exp(), contention, gain: flat.loss - loss };
                }
                at += step;
            }
            found.1
        };
        let doubt = if contention > CONTENDS { 0.0 } else { UNSURE_NATS * dispersion };
        for (lowest, highest, unsure) in [(sure, last, 0.0), (first, sure - FINE.ln(), doubt)] {
            let near = search(lowest, highest, COARSE.ln(), unsure);
            search((near - COARSE.ln()).max(lowest), (near + COARSE.ln()).min(highest), FINE.ln(), unsure);
        }
    }
    (best.base_s.is_finite() && best.base_s > 0.0).then_some(best)
}
