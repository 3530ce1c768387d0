//! What a request of each type adds to the figure, estimated for all types together (beyond the paper).
//!
//! ```text
//! figure(t) = base + Σ_k cost_k × count_k(t - lag_k) + rest(t)        cost_k ≥ 0
//! ```
//!
//! A type whose requests come together with a culprit's is correlated with the figure like the culprit. The
//! joint estimate asks what it explains that the others do not.
//!
//! **Estimate.** Non-negative least squares with a free base, by coordinate descent: no request makes an
//! origin less loaded, and without the bound two types that travel together would get large costs of opposite
//! sign. The rounds are bounded.
//!
//! **Interval.** That of ordinary least squares with all types, by Student's t, where it reaches below zero
//! cut off there, and widened to include the estimate. An interval around only those types that the bound has
//! not set to zero would be too narrow: it would hide that a type at zero may be the cause as well.
//! The variance is the larger of two. The textbook's assumes that what remains is independent noise. The other
//! allows it to depend on the counts and on what was just before (Newey & West, 1987), as in a queue that
//! outlasts an interval; with few intervals it comes out too small.
//!
//! **Limits.** The law is linear: a figure that stands at its limit (a processor at 100 %) no longer tells
//! what requests cost, and costs come out too small. Load that is not in the counts is taken for noise, or
//! for a cost of the type that it travels with. Types that always come in the same proportion cannot be told
//! apart by any method: they have no cost here. With many types only those most correlated take part.

use super::student;
use super::{Cost, Finding};

/// Intervals for each type in the model. Fewer would leave too little to tell noise from costs.
const INTERVALS_PER_TYPE: usize = 4;

/// Rounds of coordinate descent: enough for types whose counts are correlated by 0.999.
const MAX_ROUNDS: usize = 10_000;

/// Relative change per round at which the estimate is final.
const FINAL: f64 = 1e-13;

/// Part of a type's variation that the other types must leave unexplained: with less it cannot be told apart.
const OWN_VARIATION: f64 = 1e-6;

/// Keeps the matrix invertible where types cannot be told apart; far below [`OWN_VARIATION`].
const RIDGE: f64 = 1e-10;

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
    let products: Vec<Vec<f64>> =
        data.columns.iter().map(|x| data.columns.iter().map(|y| dot(x, y)).collect()).collect();
    let with_figure: Vec<f64> = data.columns.iter().map(|x| dot(x, &data.figure)).collect();
    let costs = non_negative(&products, &with_figure);
    let inverse = inverse(&products);
    let unbounded: Vec<f64> = inverse.iter().map(|row| dot(row, &with_figure)).collect();

    let mut rest = data.figure.clone();
    for (column, cost) in data.columns.iter().zip(&unbounded) {
        rest.iter_mut().zip(column).for_each(|(rest, x)| *rest -= cost * x);
    }
    let noise = dot(&rest, &rest) / freedom as f64;
    let reach = student::critical(OUTSIDE, freedom);
    for (k, &(index, scale)) in data.types.iter().enumerate() {
        let mut influence = vec![0.0; rows];
        for (column, weight) in data.columns.iter().zip(&inverse[k]) {
            influence.iter_mut().zip(column).for_each(|(sum, x)| *sum += weight * x);
        }
        influence.iter_mut().zip(&rest).for_each(|(x, rest)| *x *= rest);
        let dependent = long_run_variance(&influence) * rows as f64 / freedom as f64;
        let deviation = (noise * inverse[k][k]).max(dependent).sqrt();
        // Absurd figures overflow.
        let is_finite = (costs[k] + unbounded[k] + deviation).is_finite();
        if !is_finite || 1.0 / inverse[k][k] < OWN_VARIATION {
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

/// Coordinate descent: each cost in turn takes the value that is best beside the others, at least zero.
fn non_negative(products: &[Vec<f64>], with_figure: &[f64]) -> Vec<f64> {
    let mut costs = vec![0.0; with_figure.len()];
    // What the figure still has in common with each type.
    let mut gradient = with_figure.to_vec();
    for _ in 0..MAX_ROUNDS {
        let mut change: f64 = 0.0;
        let mut largest: f64 = 0.0;
        for (k, row) in products.iter().enumerate() {
            let new = (costs[k] + gradient[k] / row[k]).max(0.0);
            let step = new - costs[k];
            costs[k] = new;
            if step != 0.0 {
                gradient.iter_mut().zip(row).for_each(|(gradient, product)| *gradient -= step * product);
            }
            change = change.max(step.abs());
            largest = largest.max(new);
        }
        if change <= FINAL * largest {
            break;
        }
    }
    costs
}

/// The inverse of a matrix of correlations, by Gauss-Jordan. It is positive definite by its ridge.
fn inverse(products: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let size = products.len();
    let mut left = products.to_vec();
    let mut right = vec![vec![0.0; size]; size];
    for k in 0..size {
        left[k][k] += RIDGE;
        right[k][k] = 1.0;
    }
    for k in 0..size {
        let pivot = left[k][k];
        left[k].iter_mut().chain(&mut right[k]).for_each(|x| *x /= pivot);
        let (left_row, right_row) = (left[k].clone(), right[k].clone());
        for i in (0..size).filter(|i| *i != k) {
            let factor = left[i][k];
            left[i].iter_mut().zip(&left_row).for_each(|(x, y)| *x -= factor * y);
            right[i].iter_mut().zip(&right_row).for_each(|(x, y)| *x -= factor * y);
        }
    }
    right
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
