//! Pearson's correlation coefficient (Porter & Katz, III-A).
//!
//! ```text
//! r = Σ (x - x̄)(y - ȳ) / √(Σ (x - x̄)² Σ (y - ȳ)²)
//! ```
//!
//! The paper chose it "because it is efficient and simple to calculate". The means are computed first: the
//! textbook's Σxy - n x̄ȳ loses all digits where the mean is large against the variation.

use super::student;

/// A linear correlation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Correlation {
    /// Pearson's coefficient, -1..=1.
    pub r: f64,
    /// Probability of a coefficient at least as far from zero, if the two had nothing to do with each other.
    /// By Student's t with n - 2 degrees of freedom.
    pub p: f64,
    /// Pairs it was computed from.
    pub n: usize,
}

/// Fewest pairs: through two points there is always a line.
const MIN_PAIRS: usize = 3;

/// Variation, relative to the mean, below which a column is constant but for rounding.
const ROUNDING: f64 = 1e-13;

/// The correlation of two columns. Pairs of which one is not finite are left out, and so is what the longer
/// column has more. `None`: fewer than three pairs, or a column is constant.
pub fn pearson(x: &[f64], y: &[f64]) -> Option<Correlation> {
    let pairs = || x.iter().zip(y).map(|(&x, &y)| (x, y)).filter(|(x, y)| x.is_finite() && y.is_finite());
    let n = pairs().count();
    if n < MIN_PAIRS {
        return None;
    }
    let (sum_x, sum_y) = pairs().fold((0.0, 0.0), |(sum_x, sum_y), (x, y)| (sum_x + x, sum_y + y));
    let (mean_x, mean_y) = (sum_x / n as f64, sum_y / n as f64);
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in pairs() {
        let (dx, dy) = (x - mean_x, y - mean_y);
        xx += dx * dx;
        yy += dy * dy;
        xy += dx * dy;
    }
    correlation(n, (mean_x, xx), (mean_y, yy), xy)
}

/// From the mean and the sum of squared deviations of each column, and the sum of the deviations' products.
pub(super) fn correlation(n: usize, x: (f64, f64), y: (f64, f64), xy: f64) -> Option<Correlation> {
    if n < MIN_PAIRS || is_constant(x) || is_constant(y) {
        return None;
    }
    let r = (xy / x.1.sqrt() / y.1.sqrt()).clamp(-1.0, 1.0);
    r.is_finite().then(|| Correlation { r, p: student::p_of_correlation(r, n), n })
}

/// Whether a column with this mean and this sum of squared deviations does not vary.
pub(super) fn is_constant((mean, squares): (f64, f64)) -> bool {
    squares.sqrt() <= ROUNDING * mean.abs()
}
