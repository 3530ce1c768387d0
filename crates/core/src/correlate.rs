//! Which types of requests put load on a bottleneck (Porter & Katz, III-A).
//!
//! "For each interval, count the number of each request type. Form an n by m matrix … We then find the
//! correlation between columns of this matrix and the vector of CPU load."
//!
//! ```text
//! counts of a type per interval ─► lag, r, p (pearson, lags) ─► significant (false_discovery) ─┐
//! figure of the bottleneck ───────► cost per request of each type (costs) ─────────────────────┴─► culprit
//! ```
//!
//! A correlation alone names every type that rises and falls with the crowd. The joint estimate of the costs
//! tells those apart that only travel with a culprit: a culprit is significant and costs something.
//!
//! A figure that was not measured in an interval is NaN, and the interval is left out.

mod analysis;
mod auto;
mod confirmation;
mod costs;
mod false_discovery;
mod lags;
mod live;
mod pearson;
mod student;
pub mod suggestion;
pub mod templates;
mod type_name;
mod window;

pub use analysis::{Analysis, Columns, TypeAnalysis};
pub use auto::{AutoSettings, AutoThrottles, Judged};
pub use confirmation::{Confirmation, Phase, Verdict};
pub use live::{Live, MAX_FIGURES};
pub use pearson::{Correlation, pearson};
pub use type_name::{NoType, TypeName};
pub use window::{DEFAULT_INTERVALS, Window};

/// Fewest intervals for a finding. With fewer only an r above 0.63 is significant at α = 0.05, and a single
/// interval that stands out makes one.
pub const MIN_INTERVALS: usize = 10;

/// What is asked of [`analyse`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Level of significance; the paper's is 0.05.
    pub alpha: f64,
    /// Longest time, in intervals, by which the figure may follow the requests.
    pub max_lag: usize,
    /// Bounds the share of false discoveries among the types that are named, and not the probability of an
    /// error for each type alone (Benjamini-Hochberg). With one type both are the same.
    pub false_discovery: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { alpha: 0.05, max_lag: 0, false_discovery: true }
    }
}

/// What a request of a type adds to the figure, in units of the figure per request and interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    pub per_request: f64,
    /// Ends of the 95 % confidence interval.
    pub low: f64,
    pub high: f64,
}

/// What was found about a type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Finding {
    /// At the lag where it is strongest, p corrected for the lags tried. `None`: not enough data.
    pub correlation: Option<Correlation>,
    /// Intervals by which the figure follows the requests.
    pub lag: usize,
    /// Significant and positive.
    pub is_significant: bool,
    /// Of all requests, 0..=1.
    pub share: f64,
    /// `None`: not enough data, or not to be told from other types.
    pub cost: Option<Cost>,
    /// Significant, and not only because it travels with another type.
    pub is_culprit: bool,
}

/// What each type has to do with the figure: one finding per type, in order.
///
/// `counts` are the requests of each type per interval, `figure` is the bottleneck's in the same intervals.
pub fn analyse(counts: &[Vec<f64>], figure: &[f64], settings: &Settings) -> Vec<Finding> {
    let requests = |of_type: &[f64]| of_type.iter().filter(|count| count.is_finite()).sum::<f64>();
    let total: f64 = counts.iter().map(|of_type| requests(of_type)).sum();
    let mut findings: Vec<Finding> = counts
        .iter()
        .map(|of_type| {
            let strongest = lags::strongest(of_type, figure, settings.max_lag);
            Finding {
                correlation: strongest.map(|(_, correlation)| correlation),
                lag: strongest.map_or(0, |(lag, _)| lag),
                is_significant: false,
                share: if total > 0.0 { requests(of_type) / total } else { 0.0 },
                cost: None,
                is_culprit: false,
            }
        })
        .collect();

    let p = findings.iter().filter_map(|finding| Some(finding.correlation?.p));
    let threshold = settings.threshold(p);
    for finding in &mut findings {
        finding.is_significant = finding.correlation.is_some_and(|c| c.r > 0.0 && c.p <= threshold);
    }

    let estimates = costs::estimate(counts, figure, &findings);
    // Over all types: those that are significant by chance are likely to have a cost by the same chance.
    let threshold = settings.threshold(estimates.iter().flatten().map(|estimate| estimate.p));
    for (finding, estimate) in findings.iter_mut().zip(estimates) {
        let Some(estimate) = estimate else { continue };
        finding.cost = Some(estimate.cost);
        // The lower end is above zero at 95 %; the threshold is for other levels and for many types.
        finding.is_culprit = finding.is_significant && estimate.cost.low > 0.0 && estimate.p <= threshold;
    }
    findings
}

impl Settings {
    /// The largest p that is significant among these.
    fn threshold(&self, p: impl Iterator<Item = f64>) -> f64 {
        if self.false_discovery { false_discovery::threshold(p, self.alpha) } else { self.alpha }
    }
}
