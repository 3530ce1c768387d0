//! What a request costs the origin: by class ([`Costs`]), and on average over the present mix ([`Mix`]).
//!
//! In an origin with K workers a request of cost w takes B·w, and all wait alike: B·w̄·(m(n) − 1). So
//!
//! ```text
//! w = mean of R/B − w̄·(m(n) − 1)
//! ```
//!
//! starting from a prior of some samples at the *reference* cost, and within bounds. The reference is the
//! operator's number, or 1 where the cost is to be learned: never what is charged, so that learning does not
//! feed back on itself. Only ratios can be learned, because a slower origin and costlier requests look alike.
//! So learning must not move the mean cost over the traffic, which is the reference at first; so earlier
//! measurements stay valid.
//!
//! Learned costs distinguish a slower origin from a harder mix. They are charged too where the operator has
//! given no number ([`Costs::known`]). There they are in the unit of the operator's numbers: times
//!
//! ```text
//! u = 1 / mean of (w / number)      over the samples of classes that have a number; 1 without any
//! ```
//!
//! **Confidence.** w is a weighted mean of samples and prior. A sample that stands for c requests has the
//! weight c/(n + prior) at first, and every later sample takes its own share from all weights before. Its
//! relative standard error e (no unit) follows from the relative variance v of a request, and from the
//! standard error d of the wait that is subtracted from each sample:
//!
//! ```text
//! e² = v · Σ weight²/c / (1 − weight of the prior)²  +  (d/w)²        the first is v/n while n is small
//! v  = mean of c (mean of a batch / w − 1)²     batches from anchor to anchor, same weights, 1 as prior
//! d  = w̄ · m · sqrt(dispersion / samples of the fit)                  the same for all classes
//! ```
//!
//! Batch means (Law and Kelton), since the waits of neighbours are alike. d counts because an error of the
//! fit adds the same wait to requests of all classes, which matters most to the light ones. Over 20 runs with
//! exponential service at ten workers, the logarithm of a ratio of 5 had a standard deviation of 0.08. The
//! error of both classes is 0.04 without d and 0.08 with it. The error of u is added to e.

use super::work::Work;
use crate::capacity::LearnedCost;
use crate::units::{ClassId, MAX_CLASSES};

/// Samples that the reference cost counts for.
const PRIOR: f64 = 12.0;
const MEMORY: f64 = 1000.0;
const TRAFFIC: f64 = 2000.0;
/// Bounds of a learned cost, relative to the reference.
const LEAST: f64 = 0.02;
const MOST: f64 = 50.0;
/// A number of zero counts as the smallest cost there is: the origin works on such requests too, a ratio to
/// zero is undefined, and a learned cost could not follow a change of the number.
const FREE: f64 = 0.01;
/// One response counts as at most so many times the expected one.
const CUT: f64 = 12.0;

/// Rounds of the estimator in which requests may end that came before the kind of a cost changed: those that
/// were in flight, and those that waited at the gate, which may be more than a round's. With three rounds one
/// of 20 runs ended at a cost of 0.6 instead of 2.1.
const UNSCALED_ROUNDS: u32 = 6;

/// The reference of a class whose cost is learned.
const OF_LEARNED: f64 = 1.0;

#[derive(Clone, Copy, Debug)]
struct ClassCost {
    /// The reference, as of the last sample.
    reference: f64,
    /// Rounds for which another reference does not scale the learned cost: its kind has changed, and requests
    /// that came before carry the cost of that time.
    unscaled_rounds: u32,
    learned: f64,
    /// The learned cost at the last [`Costs::anchor`].
    anchored: f64,
    samples: f64,
    /// Relative variance of a request's work about the learned cost, by batch means.
    variance: f64,
    /// Requests since the last anchor, and the sum of what they took.
    batch: (f64, f64),
    /// Sum of the squared weights of the samples, each over its requests.
    squared_weights: f64,
    prior_weight: f64,
    /// Share of the traffic, in samples; those of all classes fade alike.
    traffic: f64,
    /// There were samples since the last anchor.
    came: bool,
}

impl ClassCost {
    fn new(reference: f64) -> Self {
        Self {
            reference,
            unscaled_rounds: 0,
            learned: reference,
            anchored: reference,
            samples: 0.0,
            variance: 1.0,
            batch: (0.0, 0.0),
            squared_weights: 0.0,
            prior_weight: 1.0,
            traffic: 0.0,
            came: false,
        }
    }

    /// `count` requests took `alone` each.
    fn add(&mut self, count: f64, alone: f64) {
        self.samples = (self.samples + count).min(MEMORY);
        let weight = (count / (self.samples + PRIOR)).min(1.0);
        self.batch.0 += count;
        self.batch.1 += count * alone;
        let rest = 1.0 - weight;
        self.squared_weights = rest * rest * self.squared_weights + weight * weight / count;
        self.prior_weight *= rest;
        self.learned += weight * (alone - self.learned);
        self.bound();
    }

    /// The batch is over, in which all costs but for chance were `factor` times too small.
    fn close_batch(&mut self, factor: f64) {
        let (count, sum) = std::mem::take(&mut self.batch);
        if count > 0.0 {
            let deviation = factor * sum / count / self.anchored - 1.0;
            let weight = (count / (self.samples + PRIOR)).min(1.0);
            self.variance += weight * (count * deviation * deviation - self.variance);
        }
    }

    fn bound(&mut self) {
        self.learned = self.learned.clamp(LEAST * self.reference, MOST * self.reference);
    }

    /// Relative variance of the learned cost; infinite without samples.
    fn uncertainty(&self, wait_error: f64) -> f64 {
        let of_samples = 1.0 - self.prior_weight;
        if of_samples > 0.0 {
            let of_mean = self.variance * self.squared_weights / (of_samples * of_samples);
            of_mean + (wait_error / self.anchored).powi(2)
        } else {
            f64::INFINITY
        }
    }
}

pub(super) struct Costs {
    classes: Vec<Option<ClassCost>>,
    /// What a request of a class is charged whose cost is to be learned; `None`: the class has a number.
    charged: Vec<Option<f64>>,
    seen: usize,
    traffic: f64,
}

/// The factor from learned cost units to those of the operator's numbers, and its relative variance.
struct Unit {
    factor: f64,
    uncertainty: f64,
}

/// Bounds of the ratio of learned to reference cost over the classes.
pub(super) struct CostRange {
    pub least: f64,
    pub greatest: f64,
}

impl Costs {
    pub fn new() -> Self {
        Self { classes: vec![None; MAX_CLASSES], charged: vec![None; MAX_CLASSES], seen: 0, traffic: 0.0 }
    }

    /// What a request of `class` is charged now, whose sample says `cost`.
    pub fn charged(&self, class: ClassId, cost: f64) -> f64 {
        self.charged[class.index()].unwrap_or(cost)
    }

    /// Changes what requests of `class` are charged; `None`: the operator's number. Returns the factor by
    /// which that changes the mean charge of the present traffic.
    pub fn charge(&mut self, class: ClassId, charged: Option<f64>) -> f64 {
        let before = self.mean_charge();
        let other_kind = self.charged[class.index()].is_some() != charged.is_some();
        self.charged[class.index()] = charged;
        if other_kind && let Some(known) = &mut self.classes[class.index()] {
            known.unscaled_rounds = UNSCALED_ROUNDS;
        }
        let factor = self.mean_charge() / before;
        if factor.is_finite() && factor > 0.0 { factor } else { 1.0 }
    }

    /// Cost units charged for the traffic of late, in samples times cost.
    fn mean_charge(&self) -> f64 {
        let known = self.classes.iter().zip(&self.charged);
        known
            .filter_map(|(class, charged)| {
                let class = class.as_ref()?;
                Some(class.traffic * charged.unwrap_or(class.reference))
            })
            .sum()
    }

    /// Learned cost of a request of `class`, whose sample says `cost`.
    pub fn units(&mut self, class: ClassId, cost: f64) -> f64 {
        let is_learned = self.charged[class.index()].is_some();
        let reference = if is_learned { OF_LEARNED } else { cost.max(FREE) };
        let known = self.classes[class.index()].get_or_insert_with(|| {
            self.seen += 1;
            ClassCost::new(reference)
        });
        if known.reference != reference {
            // An infinite ratio cannot scale a learned cost: the class starts from the reference.
            let factor = if known.unscaled_rounds > 0 { 1.0 } else { reference / known.reference };
            let scaled = |cost: f64| if factor.is_finite() { cost * factor } else { reference };
            (known.learned, known.anchored) = (scaled(known.learned), scaled(known.anchored));
            known.reference = reference;
        }
        known.learned
    }

    /// The id belongs to another class from now on.
    pub fn forget(&mut self, class: ClassId) {
        if let Some(gone) = self.classes[class.index()].take() {
            self.seen -= 1;
            self.traffic = (self.traffic - gone.traffic).max(0.0);
        }
    }

    /// `count` requests of `class` took `alone` cost units each, without the estimated wait.
    pub fn learn(&mut self, class: ClassId, count: f64, alone: f64) {
        let several = self.seen > 1;
        let Some(known) = &mut self.classes[class.index()] else { return };
        known.traffic += count;
        known.came = true;
        self.traffic += count;
        if !several {
            return;
        }
        known.add(count, alone.clamp(0.0, CUT * known.learned));
    }

    /// Restores the mean cost of the traffic: a common factor is a change of the origin or noise.
    pub fn anchor(&mut self) {
        let (mut before, mut now) = (0.0, 0.0);
        for class in self.classes.iter().flatten() {
            before += class.traffic * class.anchored;
            now += class.traffic * class.learned;
        }
        let factor = if self.seen > 1 && before > 0.0 && now > 0.0 { before / now } else { 1.0 };
        let fade = if self.traffic > TRAFFIC { TRAFFIC / self.traffic } else { 1.0 };
        self.traffic *= fade;
        for class in self.classes.iter_mut().flatten() {
            // A class without samples has not moved with the others.
            if std::mem::take(&mut class.came) {
                class.close_batch(factor);
                class.learned *= factor;
                class.bound();
            }
            class.anchored = class.learned;
            class.unscaled_rounds = class.unscaled_rounds.saturating_sub(1);
            class.traffic *= fade;
        }
    }

    /// What is known of the cost of `class`: as of the last anchor, since a common factor that came later is
    /// not one of costs.
    /// `wait_error`: standard error of the wait that was subtracted from each sample, in learned cost units.
    pub fn known(&self, class: ClassId, wait_error: f64) -> LearnedCost {
        let Some(known) = self.classes[class.index()].filter(|known| known.samples > 0.0) else {
            return LearnedCost::UNKNOWN;
        };
        let unit = self.unit(wait_error);
        LearnedCost {
            units: known.anchored * unit.factor,
            error: (known.uncertainty(wait_error) + unit.uncertainty).sqrt(),
            samples: known.samples,
        }
    }

    /// The unit of the operator's numbers, in learned cost units.
    fn unit(&self, wait_error: f64) -> Unit {
        let (mut samples, mut ratios, mut uncertainty) = (0.0, 0.0, 0.0);
        for (class, charged) in self.classes.iter().zip(&self.charged) {
            let Some(class) = class.filter(|class| charged.is_none() && class.samples > 0.0) else {
                continue;
            };
            samples += class.samples;
            ratios += class.samples * class.anchored / class.reference;
            uncertainty += class.samples * class.samples * class.uncertainty(wait_error);
        }
        if samples > 0.0 {
            Unit { factor: samples / ratios, uncertainty: uncertainty / (samples * samples) }
        } else {
            Unit { factor: 1.0, uncertainty: 0.0 }
        }
    }

    /// Learned costs relative to the reference.
    pub fn ratios(&self) -> impl Iterator<Item = (ClassId, f64)> {
        let known = (0..=u8::MAX).zip(&self.classes).filter_map(|(id, class)| Some((id, class.as_ref()?)));
        known.map(|(id, class)| (ClassId(id), class.learned / class.reference))
    }

    /// Begins from a cost that an earlier process has learned, as if from so many samples.
    pub fn restore(&mut self, class: ClassId, ratio: f64, samples: f64) {
        if !(LEAST..=MOST).contains(&ratio) {
            return;
        }
        // The first sample brings the reference, and scales the learned cost.
        let known = ClassCost {
            learned: ratio,
            anchored: ratio,
            samples,
            squared_weights: 1.0 / samples,
            prior_weight: 0.0,
            ..ClassCost::new(OF_LEARNED)
        };
        if self.classes[class.index()].replace(known).is_none() {
            self.seen += 1;
        }
    }

    /// Least and greatest ratio of learned to reference cost; 1 and 1 if there are no classes.
    pub fn range(&self) -> CostRange {
        let ratios = || self.classes.iter().flatten().map(|class| class.learned / class.reference);
        CostRange {
            least: ratios().reduce(f64::min).unwrap_or(1.0),
            greatest: ratios().reduce(f64::max).unwrap_or(1.0),
        }
    }
}

/// Standard deviations of drift that are no shift; the sum that proves one, by chance once in 20,000 samples.
const DRIFT: f64 = 0.5;
const SHIFT: f64 = 10.0;
const MIX_MEMORY: f64 = 3000.0;
/// Before so many samples nothing is tested.
const MIX_LEAST: f64 = 60.0;

/// One side of the test for a shift: the sum, and the work since it was last zero.
#[derive(Clone, Copy, Default, Debug)]
struct Shift {
    sum: f64,
    since: Work,
}

impl Shift {
    fn add(&mut self, deviation: f64, work: &Work) {
        self.sum = (self.sum + deviation - DRIFT).max(0.0);
        self.since.add(work);
        if self.sum == 0.0 {
            self.since = Work::default();
        }
    }
}

/// The present mix: mean cost of a request as charged and as learned, since the mix last shifted.
///
/// The capacity is learned in learned units and published in charged ones, so it is multiplied by the ratio
/// of charged to learned cost of the present mix. That mix must span many samples, because its noise
/// enters the capacity; and it must be recent, because a shift changes the capacity at once. A two-sided
/// CUSUM on the learned cost (Page 1954) detects the end of the old mix.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Mix {
    all: Work,
    squares: f64,
    up: Shift,
    down: Shift,
}

impl Mix {
    /// `count` requests of `units` learned and `cost` charged each. Returns whether the mix has shifted.
    pub fn add(&mut self, count: f64, units: f64, cost: f64) -> bool {
        let work = Work { count, units: count * units, cost: count * cost, time_s: 0.0 };
        let shifted = self.test(units, &work);
        self.all.add(&work);
        self.squares += count * units * units;
        if self.all.count > MIX_MEMORY {
            let keep = 0.8;
            self.all.scale(keep);
            self.squares *= keep;
        }
        shifted
    }

    fn test(&mut self, units: f64, work: &Work) -> bool {
        if self.all.count < MIX_LEAST {
            return false;
        }
        let mean = self.units_per_request();
        let variance = self.squares / self.all.count - mean * mean;
        if variance < 1e-6 * mean * mean {
            return false;
        }
        let z = ((units - mean) / variance.sqrt()).clamp(-4.0, 4.0);
        self.up.add(z, work);
        self.down.add(-z, work);
        let most = if self.up.sum > self.down.sum { self.up } else { self.down };
        if most.sum <= SHIFT || most.since.count < 10.0 {
            return false;
        }
        let spread = self.squares / self.all.count;
        *self = Self { all: most.since, squares: spread * most.since.count, ..Self::default() };
        true
    }

    /// The mean charge of the present mix has changed by this factor.
    pub fn recharge(&mut self, factor: f64) {
        for work in [&mut self.all, &mut self.up.since, &mut self.down.since] {
            work.cost *= factor;
        }
    }

    /// The mix that an earlier process has seen last, as if from so many samples.
    pub fn restore(&mut self, count: f64, units: f64, cost_per_unit: f64) {
        let all = Work { count, units: count * units, cost: count * units * cost_per_unit, time_s: 0.0 };
        // It is not tested against before its spread is known.
        *self = Self { all, squares: count * units * units, ..Self::default() };
    }

    pub fn units_per_request(&self) -> f64 {
        if self.all.count > 0.0 && self.all.units > 0.0 { self.all.units / self.all.count } else { 1.0 }
    }

    pub fn cost_per_unit(&self) -> f64 {
        if self.all.units > 0.0 { self.all.cost / self.all.units } else { 1.0 }
    }
}

#[cfg(test)]
mod tests;
