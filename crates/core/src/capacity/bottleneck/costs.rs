//! What a request of each class costs the origin, learned from response times.
//!
//! In an origin with K workers a request of cost w takes B·w, and everybody waits alike: B·w̄·(m(n) − 1). So
//!
//! ```text
//! w = mean of R/B − w̄·(m(n) − 1)
//! ```
//!
//! from a prior of some samples at the configured cost, and within bounds. Only ratios can be learned, since a slower origin and
//! costlier requests look alike: so learning must not move the mean cost over the traffic, at first the configured
//! one. What was recorded in units before stays right then.
//!
//! Learned costs are used to tell "the origin is slower" from "the mix is harder"; what the room charges stays the configured cost.

use crate::units::{ClassId, MAX_CLASSES};

/// Samples that the configured cost counts as.
const PRIOR: f64 = 12.0;
/// Samples of a class remembered.
const MEMORY: f64 = 1000.0;
/// Samples of traffic remembered.
const TRAFFIC: f64 = 2000.0;
/// Bounds of a learned cost, relative to the configured one.
const LEAST: f64 = 0.02;
const MOST: f64 = 50.0;
/// What the room lets in for nothing the origin works on all the same: at least the smallest cost there is. A ratio to nothing
/// is no number, and what was learned could not follow a change of the configured cost.
const FREE: f64 = 0.01;
/// One response counts as at most so many times the expected one.
const CUT: f64 = 12.0;

#[derive(Clone, Copy, Debug)]
struct ClassCost {
    /// As configured, of the last sample.
    configured: f64,
    learned: f64,
    /// As learned when the scale was last seen to.
    anchored: f64,
    samples: f64,
    /// Share of the traffic: samples of all classes fade alike.
    traffic: f64,
    /// Somebody came since the last anchor.
    came: bool,
}

/// All classes'.
pub(super) struct Costs {
    classes: Vec<Option<ClassCost>>,
    seen: usize,
    traffic: f64,
}

impl Costs {
    pub fn new() -> Self {
        Self { classes: vec![None; MAX_CLASSES], seen: 0, traffic: 0.0 }
    }

    /// Work of a request of `class`, configured to cost `configured`.
    pub fn units(&mut self, class: ClassId, configured: f64) -> f64 {
        let configured = configured.max(FREE);
        let known = self.classes[class.index()].get_or_insert_with(|| {
            self.seen += 1;
            ClassCost {
                configured,
                learned: configured,
                anchored: configured,
                samples: 0.0,
                traffic: 0.0,
                came: false,
            }
        });
        if known.configured != configured {
            // From a cost of nothing no ratio leads on: what was learned of it is nothing too.
            let factor = configured / known.configured;
            let scaled = |cost: f64| if factor.is_finite() { cost * factor } else { configured };
            (known.learned, known.anchored) = (scaled(known.learned), scaled(known.anchored));
            known.configured = configured;
        }
        known.learned
    }

    /// The id is another class's from now on.
    pub fn forget(&mut self, class: ClassId) {
        if let Some(gone) = self.classes[class.index()].take() {
            self.seen -= 1;
            self.traffic = (self.traffic - gone.traffic).max(0.0);
        }
    }

    /// A request of `class` took `alone` cost units, as far as one can tell; what it waited is taken off.
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

    /// Keeps the scale: what all classes have in common since the last time is the origin's, or the noise's, not theirs.
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
            // One of which nobody came has not moved with the others.
            if std::mem::take(&mut class.came) {
                class.learned =
                    (class.learned * factor).clamp(LEAST * class.configured, MOST * class.configured);
            }
            class.anchored = class.learned;
            class.traffic *= fade;
        }
    }

    /// The least and the greatest ratio of learned to configured cost among the classes seen; 1 and 1 if there is none.
    pub fn range(&self) -> (f64, f64) {
        let costing = self.classes.iter().flatten().filter(|class| class.configured > 0.0);
        let ratios = costing.map(|class| class.learned / class.configured);
        ratios
            .fold(None, |range: Option<(f64, f64)>, r| {
                Some(range.map_or((r, r), |(a, b)| (a.min(r), b.max(r))))
            })
            .unwrap_or((1.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_takes_over_an_id_starts_from_its_own_cost() {
        let mut costs = Costs::new();
        let (dear, other) = (ClassId(0), ClassId(1));
        for _ in 0..500 {
            costs.units(other, 1.0);
            costs.learn(other, 1.0, 1.0);
            costs.units(dear, 1.0);
            costs.learn(dear, 1.0, 6.0);
        }
        assert!(costs.units(dear, 1.0) > 4.0);
        let kept = costs.units(other, 1.0);
        costs.forget(dear);
        costs.forget(ClassId(9));
        assert_eq!((costs.units(dear, 2.0), costs.units(other, 1.0)), (2.0, kept));
        costs.forget(dear);
        costs.forget(other);
        costs.anchor();
        assert_eq!(costs.range(), (1.0, 1.0));
    }
}
