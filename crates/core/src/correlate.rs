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

mod pearson;
mod student;

pub use pearson::{Correlation, pearson};

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
    let total: f64 = counts.iter().flatten().sum();
    counts
        .iter()
        .map(|of_type| {
            let correlation = pearson(of_type, figure);
            let is_significant = correlation.is_some_and(|c| c.r > 0.0 && c.p <= settings.alpha);
            let share = if total > 0.0 { of_type.iter().sum::<f64>() / total } else { 0.0 };
            Finding { correlation, lag: 0, is_significant, share, cost: None, is_culprit: false }
        })
        .collect()
}
