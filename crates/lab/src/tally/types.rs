//! Figures by type of request: how many were served and how fast, apart for each, and together for the types
//! that the scenario calls costly and for the others.
//!
//! Of a closed loop only the measured part counts: figures of types are compared between runs, and how long a
//! run took to settle must have no part in them.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::{MAX_RESPONSE_US, times_key, type_key};
use crate::stats::ratio;
use crate::visitor_events::Noted;

/// The types of a scenario, and which step asks for which.
#[derive(Clone, Debug, Default)]
pub struct TypePlan {
    /// Name, and whether it is costly.
    pub types: Vec<(String, bool)>,
    /// By kind of visitor and step: an index into `types`.
    pub of_step: Vec<Vec<Option<usize>>>,
}

#[derive(Clone, Debug)]
pub(super) struct Types {
    from_to: (Duration, Duration),
    plan: TypePlan,
    counts: Vec<Count>,
}

#[derive(Clone, Debug)]
struct Count {
    /// Of two digits: there is one of these for each type.
    response_us: Histogram<u64>,
    sum_us: u64,
    failed: u64,
}

impl Count {
    fn new() -> Self {
        let response_us = Histogram::new_with_bounds(1, MAX_RESPONSE_US, 2).expect("sensible bounds");
        Self { response_us, sum_us: 0, failed: 0 }
    }

    fn add(&mut self, other: &Self) {
        self.response_us.add(&other.response_us).expect("histograms of the same bounds");
        self.sum_us += other.sum_us;
        self.failed += other.failed;
    }

    fn figures(&self) -> [(&'static str, f64); 6] {
        let (served, max_ms) = (self.response_us.len() as f64, self.response_us.max() as f64 / 1000.0);
        let ms = |q| (self.response_us.value_at_quantile(q) as f64 / 1000.0).min(max_ms);
        [
            ("served", served),
            ("failed", self.failed as f64),
            ("mean_ms", ratio(self.sum_us as f64 / 1000.0, served)),
            ("p50_ms", ms(0.5)),
            ("p99_ms", ms(0.99)),
            ("max_ms", max_ms),
        ]
    }
}

impl Types {
    /// `None`: the scenario names no types.
    pub fn new(plan: TypePlan, from_to: Option<(Duration, Duration)>) -> Option<Box<Self>> {
        let counts = plan.types.iter().map(|_| Count::new()).collect();
        let from_to = from_to.unwrap_or((Duration::ZERO, Duration::MAX));
        (!plan.types.is_empty()).then(|| Box::new(Self { from_to, plan, counts }))
    }

    /// What became of a request for this step.
    pub fn noted(&mut self, kind: u32, step: u8, noted: &Noted, now: Duration) {
        let steps = self.plan.of_step.get(kind as usize);
        let Some(at) = steps.and_then(|steps| *steps.get(usize::from(step))?) else { return };
        if !(self.from_to.0..self.from_to.1).contains(&now) {
            return;
        }
        let count = &mut self.counts[at];
        match noted {
            Noted::Served { response, .. } => {
                let us = crate::times::micros(*response);
                count.response_us.saturating_record(us);
                count.sum_us += us;
            }
            Noted::Failed(_) | Noted::ToldFull => count.failed += 1,
            _ => {}
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| mine.add(theirs));
    }

    /// For each type, the response time at every percent of its requests.
    pub fn distributions(&self) -> impl Iterator<Item = (String, Vec<(f64, f64)>)> {
        self.plan.types.iter().zip(&self.counts).map(|((name, _), count)| {
            let ms = |percent: u32| {
                count.response_us.value_at_quantile(f64::from(percent) / 100.0) as f64 / 1000.0
            };
            let points = if count.response_us.is_empty() { 0..0 } else { 0..101 };
            (times_key(name), points.map(|percent| (f64::from(percent), ms(percent))).collect())
        })
    }

    pub fn figures(&self) -> Vec<(String, f64)> {
        let (mut costly, mut others) = (Count::new(), Count::new());
        let mut figures = Vec::new();
        for ((name, is_costly), count) in self.plan.types.iter().zip(&self.counts) {
            if *is_costly { &mut costly } else { &mut others }.add(count);
            figures.extend(count.figures().map(|(figure, value)| (type_key(name, figure), value)));
        }
        let groups = [("costly", costly), ("others", others)];
        for (group, count) in groups {
            figures.extend(count.figures().map(|(figure, value)| (format!("{group}_{figure}"), value)));
        }
        figures
    }
}
