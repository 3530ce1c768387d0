//! What a request of each type adds to the figure, estimated for all types together (beyond the paper).
//!
//! ```text
//! figure(t) = base + Σ_k cost_k × count_k(t - lag_k) + rest(t)        cost_k ≥ 0
//! ```
//!
//! A type whose requests come together with a culprit's is correlated with the figure like the culprit. The
//! joint estimate asks what it explains that the others do not.
//!
//! **Estimate.** Non-negative least squares with a free base (Lawson & Hanson, 1974): no request makes an
//! origin less loaded, and without the bound two types that travel together would get large costs of
//! opposite sign. The rounds are bounded.
//!
//! **Interval.** That of ordinary least squares with all types, by Student's t, where it reaches below zero
//! cut off there, and widened to include the estimate. An interval around only those types that the bound
//! has not set to zero would be too narrow: it would hide that a type at zero may be the cause as well. The
//! variance is the larger of two. The textbook's assumes that what remains is independent noise. The other
//! allows it to depend on the counts and on what was just before (Newey & West, 1987), as in a queue that
//! outlasts an interval; with few intervals it comes out too small.
//!
//! **Limits.** The law is linear: a figure that stands at its limit (a processor at 100 %) no longer tells
//! what requests cost, and costs come out too small. Load that is not in the counts is taken for noise, or
//! for a cost of the type that it travels with. Types that always come in the same proportion cannot be told
//! apart by any method: they have no cost here. With many types only those most correlated take part. A lag
//! that was searched for counts as known, so that the intervals hold the cost in 87 to 90 of 100 cases then;
//! and waves much longer than the few intervals that the variance looks back still make them too narrow.

use super::student;
use super::{Cost, Finding};

/// Intervals for each type in the model. Fewer would leave too little to tell noise from costs.
const INTERVALS_PER_TYPE: usize = 4;

/// Rounds per type in the search for costs that are not negative. It usually needs less than two.
const MAX_ROUNDS: usize = 10;

/// What a type has in common with the figure, relative to the most that one has, below which it is rounding.
const NEGLIGIBLE: f64 = 1e-13;

/// Part of a type's variation that the other types must leave unexplained. With less it cannot be told apart:
/// its interval would be a hundred times as wide as that of a type of its own.
const OWN_VARIATION: f64 = 1e-4;

/// Keeps the equations solvable where types cannot be told apart; far below [`OWN_VARIATION`].
const RIDGE: f64 = 1e-12;

/// 1 - the level of the intervals.
const OUTSIDE: f64 = 0.05;

/// A cost, and the probability of one as far from zero if there were none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    pub cost: Cost,
    pub p: f64,
}

/// Columns that vary around zero, with a sum of squares of one.
struct Columns {
    /// Index of the type, and the root of the sum of squares its column had.
    types: Vec<(usize, f64)>,
    columns: Vec<Vec<f64>>,
    figure: Vec<f64>,
}

/// The cost of each type, at the lags that were found. `None`: not in the model, or not to be told apart.
pub(super) fn estimate(counts: &[Vec<f64>], figure: &[f64], findings: &[Finding]) -> Vec<Option<Estimate>> {
    let mut estimates = vec![None; counts.len()];
    let data = Columns::new(counts, figure, findings);
    let (rows, types) = (data.figure.len(), data.types.len());
    if types == 0 || rows < types + 2 {
        return estimates;
    }
    let freedom = rows - types - 1;
    let mut equations = Equations::new(&data.columns, &data.figure);
    let costs = equations.clone().non_negative();
    (0..types).for_each(|k| equations.sweep(k));
    let unbounded: Vec<f64> = (0..types).map(|k| equations.solution(k)).collect();

    let mut rest = data.figure.clone();
    for (column, cost) in data.columns.iter().zip(&unbounded) {
        rest.iter_mut().zip(column).for_each(|(rest, x)| *rest -= cost * x);
    }
    let noise = dot(&rest, &rest) / freedom as f64;
    let reach = student::critical(OUTSIDE, freedom);
    for (k, &(index, scale)) in data.types.iter().enumerate() {
        let inverse = &equations.rows[k];
        let mut influence = vec![0.0; rows];
        for (column, weight) in data.columns.iter().zip(inverse) {
            influence.iter_mut().zip(column).for_each(|(sum, x)| *sum += weight * x);
        }
        influence.iter_mut().zip(&rest).for_each(|(x, rest)| *x *= rest);
        let dependent = long_run_variance(&influence) * rows as f64 / freedom as f64;
        let deviation = (noise * inverse[k]).max(dependent).sqrt();
        // Absurd figures overflow.
        let is_finite = (costs[k] + unbounded[k] + deviation).is_finite();
        if !is_finite || 1.0 / inverse[k] < OWN_VARIATION {
            continue;
        }
        let cost = Cost {
            per_request: costs[k] / scale,
            low: (unbounded[k] - reach * deviation).clamp(0.0, costs[k]) / scale,
            high: (unbounded[k] + reach * deviation).max(costs[k]) / scale,
        };
        estimates[index] = Some(Estimate { cost, p: student::p_of_ratio(unbounded[k], deviation, freedom) });
    }
    estimates
}

impl Columns {
    fn new(counts: &[Vec<f64>], figure: &[f64], findings: &[Finding]) -> Self {
        // A type without a correlation is constant: it is part of the base.
        let mut chosen: Vec<(usize, f64)> = findings
            .iter()
            .enumerate()
            .filter_map(|(index, finding)| Some((index, finding.correlation?.r)))
            .collect();
        chosen.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        chosen.truncate(figure.len() / INTERVALS_PER_TYPE);
        chosen.sort_by_key(|(index, _)| *index);

        let at = |index: usize, t: usize| -> Option<f64> {
            counts[index].get(t.checked_sub(findings[index].lag)?).copied().filter(|count| count.is_finite())
        };
        let rows: Vec<usize> = (0..figure.len())
            .filter(|&t| figure[t].is_finite() && chosen.iter().all(|&(index, _)| at(index, t).is_some()))
            .collect();
        let mut data = Self {
            types: Vec::new(),
            columns: Vec::new(),
            figure: centred(rows.iter().map(|&t| figure[t]).collect()),
        };
        for (index, _) in chosen {
            let mut column = centred(rows.iter().filter_map(|&t| at(index, t)).collect());
            let scale = dot(&column, &column).sqrt();
            // The type may be constant in the rows that are left.
            if scale > 0.0 && scale.is_finite() {
                column.iter_mut().for_each(|x| *x /= scale);
                data.types.push((index, scale));
                data.columns.push(column);
            }
        }
        data
    }
}

fn centred(mut column: Vec<f64>) -> Vec<f64> {
    let mean = column.iter().sum::<f64>() / column.len() as f64;
    column.iter_mut().for_each(|x| *x -= mean);
    column
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The normal equations of least squares, solved for some of the types: those that were swept in.
///
/// Each row holds a type's products with all types, then that with the figure. After a sweep of some types,
/// the last column holds their costs in a model of these types alone, and for each other type what the
/// figure still has in common with it. The square of the swept types holds the inverse of their products
/// (Goodnight, 1979).
#[derive(Clone)]
struct Equations {
    rows: Vec<Vec<f64>>,
}

impl Equations {
    fn new(columns: &[Vec<f64>], figure: &[f64]) -> Self {
        let rows = columns.iter().enumerate().map(|(k, x)| {
            let mut row: Vec<f64> = columns.iter().map(|y| dot(x, y)).collect();
            row[k] += RIDGE;
            row.push(dot(x, figure));
            row
        });
        Self { rows: rows.collect() }
    }

    /// Takes a type into the model, or out of it again.
    fn sweep(&mut self, k: usize) {
        let mut row = std::mem::take(&mut self.rows[k]);
        let pivot = std::mem::replace(&mut row[k], 1.0);
        row.iter_mut().for_each(|x| *x /= pivot);
        for other in self.rows.iter_mut().filter(|other| !other.is_empty()) {
            let factor = std::mem::take(&mut other[k]);
            other.iter_mut().zip(&row).for_each(|(x, y)| *x -= factor * y);
        }
        self.rows[k] = row;
    }

    fn solution(&self, k: usize) -> f64 {
        self.rows[k].last().copied().unwrap_or_default()
    }

    /// The costs that fit best, none of them negative (Lawson & Hanson, 1974).
    fn non_negative(mut self) -> Vec<f64> {
        let types = self.rows.len();
        let mut costs = vec![0.0; types];
        let mut model: Vec<usize> = Vec::new();
        let negligible = NEGLIGIBLE * (0..types).map(|k| self.solution(k)).fold(0.0, f64::max);
        for _ in 0..MAX_ROUNDS * types {
            // The type that has most in common with what the model leaves.
            let outside = (0..types).filter(|k| !model.contains(k));
            let Some(entering) = outside
                .max_by(|a, b| self.solution(*a).total_cmp(&self.solution(*b)))
                .filter(|k| self.solution(*k) > negligible)
            else {
                break;
            };
            self.sweep(entering);
            model.push(entering);
            // As far towards the solution as no cost becomes negative; the one that reaches zero leaves.
            let step_to_zero = |equations: &Self, cost: f64, k: usize| {
                if cost > 0.0 { cost / (cost - equations.solution(k)) } else { 0.0 }
            };
            while let Some((step, leaving)) = model
                .iter()
                .filter(|k| self.solution(**k) <= 0.0)
                .map(|&k| (step_to_zero(&self, costs[k], k), k))
                .min_by(|(a, _), (b, _)| a.total_cmp(b))
            {
                model.iter().for_each(|&k| costs[k] += step * (self.solution(k) - costs[k]));
                self.sweep(leaving);
                costs[leaving] = 0.0;
                model.retain(|k| *k != leaving);
            }
            model.iter().for_each(|&k| costs[k] = self.solution(k));
        }
        costs
    }
}

/// Variance of the sum of a series whose values depend on those shortly before (Newey & West, 1987).
fn long_run_variance(series: &[f64]) -> f64 {
    // The usual rule for how far back the dependence is looked for.
    let reach = (4.0 * (series.len() as f64 / 100.0).powf(2.0 / 9.0)) as usize;
    let dependence: f64 = (1..=reach.min(series.len().saturating_sub(1)))
        .map(|back| 2.0 * (1.0 - back as f64 / (reach as f64 + 1.0)) * dot(&series[back..], series))
        .sum();
    dot(series, series) + dependence
}
