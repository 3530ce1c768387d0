//! What a request costs the origin: by class ([`Costs`]), and on average over the present mix ([`Mix`]).
//!
//! In an origin with K workers a request of cost w takes B·w, and all wait alike: B·w̄·(m(n) − 1). So
//!
//! ```text
//! w = mean of R/B − w̄·(m(n) − 1)
//! ```
//!
//! starting from a prior of some samples at the configured cost, and within bounds. Only ratios can be
//! learned, because a slower origin and costlier requests look alike. So learning must not move the mean cost
//! over the traffic, which is the configured one at first; so earlier measurements stay valid.
//!
//! Learned costs distinguish a slower origin from a harder mix. The room still charges configured costs.

use super::meter::Work;
use crate::units::{ClassId, MAX_CLASSES};

/// Samples that the configured cost counts for.
const PRIOR: f64 = 12.0;
const MEMORY: f64 = 1000.0;
const TRAFFIC: f64 = 2000.0;
/// Bounds of a learned cost, relative to the configured one.
const LEAST: f64 = 0.02;
const MOST: f64 = 50.0;
/// A configured cost of zero counts as the smallest cost there is: the origin works on such requests too, a
/// ratio to zero is undefined, and a learned cost could not follow a change of the configured one.
const FREE: f64 = 0.01;
/// One response counts as at most so many times the expected one.
const CUT: f64 = 12.0;

#[derive(Clone, Copy, Default, Debug)]
struct ClassCost {
    /// As configured, in the last sample.
    configured: f64,
    learned: f64,
    /// The learned cost at the last [`Costs::anchor`].
    anchored: f64,
    samples: f64,
    /// Share of the traffic, in samples; those of all classes fade alike.
    traffic: f64,
    /// There were samples since the last anchor.
    came: bool,
}

pub(super) struct Costs {
    classes: Vec<Option<ClassCost>>,
    seen: usize,
    traffic: f64,
}

/// Bounds of the ratio of learned to configured cost over the classes.
pub(super) struct CostRange {
    pub least: f64,
    pub greatest: f64,
}

impl Costs {
    pub fn new() -> Self {
        Self { classes: vec![None; MAX_CLASSES], seen: 0, traffic: 0.0 }
    }

    /// Learned cost of a request of `class`, which is configured to cost `configured`.
    pub fn units(&mut self, class: ClassId, configured: f64) -> f64 {
        let configured = configured.max(FREE);
        let known = self.classes[class.index()].get_or_insert_with(|| {
            self.seen += 1;
            ClassCost { configured, learned: configured, anchored: configured, ..ClassCost::default() }
        });
        if known.configured != configured {
            // An infinite ratio cannot scale a learned cost: the class starts from the configured one.
            let factor = configured / known.configured;
            let scaled = |cost: f64| if factor.is_finite() { cost * factor } else { configured };
            (known.learned, known.anchored) = (scaled(known.learned), scaled(known.anchored));
            known.configured = configured;
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
        known.samples = (known.samples + count).min(MEMORY);
        let alone = alone.clamp(0.0, CUT * known.learned);
        known.learned += count / (known.samples + PRIOR) * (alone - known.learned);
        known.learned = known.learned.clamp(LEAST * known.configured, MOST * known.configured);
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
                class.learned =
                    (class.learned * factor).clamp(LEAST * class.configured, MOST * class.configured);
            }
            class.anchored = class.learned;
            class.traffic *= fade;
        }
    }

    /// Learned costs relative to the configured ones.
    pub fn ratios(&self) -> impl Iterator<Item = (ClassId, f64)> {
        let known = (0..=u8::MAX).zip(&self.classes).filter_map(|(id, class)| Some((id, class.as_ref()?)));
        known.map(|(id, class)| (ClassId(id), class.learned / class.configured))
    }

    /// Begins from a cost that an earlier process has learned, as if from so many samples.
    pub fn restore(&mut self, class: ClassId, ratio: f64, samples: f64) {
        if !(LEAST..=MOST).contains(&ratio) {
            return;
        }
        // The first sample brings the configured cost, and scales the learned one.
        let known =
            ClassCost { configured: 1.0, learned: ratio, anchored: ratio, samples, ..ClassCost::default() };
        if self.classes[class.index()].replace(known).is_none() {
            self.seen += 1;
        }
    }

    /// Least and greatest ratio of learned to configured cost; 1 and 1 if there are no classes.
    pub fn range(&self) -> CostRange {
        let ratios = || self.classes.iter().flatten().map(|class| class.learned / class.configured);
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

/// The present mix: mean cost of a request as configured and as learned, since the mix last shifted.
///
/// The capacity is learned in learned units and published in configured ones, so it is multiplied by the
/// ratio of configured to learned cost of the present mix. That mix must span many samples, because its noise
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
    /// `count` requests of `units` learned and `cost` configured each. Returns whether the mix has shifted.
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
