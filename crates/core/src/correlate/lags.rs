//! The lag at which a figure follows the requests most closely (beyond the paper).
//!
//! ```text
//! r_l = pearson(count(t), figure(t + l)), l = 0..=L        p = min(1, (L + 1) p_l)
//! ```
//!
//! Work of a request that comes at the end of an interval is done in the next one, and figures such as a load
//! average come late.
//!
//! The lag is that of the largest r: only a positive one accuses a type, and a crowd's fall some seconds after
//! its rise must not hide it by a negative r that is larger. If all are negative it is the strongest.
//!
//! The best of L + 1 tries looks better than it is, therefore p is multiplied by their number (Bonferroni).
//! This is right however the tries depend on each other. Šidák's correction is sharper by at most a fortieth
//! where p is 0.05, and resampling would need randomness.

use super::MIN_INTERVALS;
use super::pearson::{Correlation, pearson};

/// The lag, and the correlation there with the corrected p. `None`: not enough data at any lag.
pub(super) fn strongest(counts: &[f64], figure: &[f64], max_lag: usize) -> Option<(usize, Correlation)> {
    let n = counts.len().min(figure.len());
    let mut tried = 0.0;
    let mut best: Option<(usize, Correlation)> = None;
    for lag in 0..=max_lag.min(n) {
        let Some(found) = pearson(&counts[..n - lag], &figure[lag..n]).filter(|c| c.n >= MIN_INTERVALS)
        else {
            continue;
        };
        tried += 1.0;
        let strength = |c: &Correlation| (c.r > 0.0, c.r.abs());
        if best.is_none_or(|(_, best)| strength(&found) > strength(&best)) {
            best = Some((lag, found));
        }
    }
    best.map(|(lag, found)| (lag, Correlation { p: (found.p * tried).min(1.0), ..found }))
}

#[cfg(test)]
mod tests {
    use super::strongest;

    /// A pulse every seven intervals.
    fn pulses(n: usize, late: usize) -> Vec<f64> {
        (0..n).map(|t| if t % 7 == late { 10.0 } else { 1.0 + (t % 3) as f64 }).collect()
    }

    #[test]
    fn a_figure_that_comes_late_is_found_at_its_lag() {
        for late in 0..=5 {
            let (lag, found) = strongest(&pulses(100, 0), &pulses(100, late), 5).expect("enough data");
            assert_eq!((lag, found.n), (late, 100 - late));
            assert!(found.r > 0.8, "{found:?}");
        }
    }

    #[test]
    fn a_positive_correlation_is_not_hidden_by_a_stronger_negative_one() {
        let figure: Vec<f64> = (0..100).map(|t| -pulses(100, 0)[t] + 0.5 * pulses(100, 2)[t]).collect();
        let (lag, found) = strongest(&pulses(100, 0), &figure, 3).expect("enough data");
        assert_eq!(lag, 2);
        assert!(found.r > 0.0);
    }

    #[test]
    fn each_lag_that_is_tried_makes_the_best_less_significant() {
        let (counts, figure) = (pulses(30, 0), pulses(30, 0));
        let noisy: Vec<f64> = figure.iter().enumerate().map(|(t, y)| y + 0.3 * (t * t % 31) as f64).collect();
        let p = |max_lag| strongest(&counts, &noisy, max_lag).expect("enough data").1.p;
        assert!((p(5) / p(0) - 6.0).abs() < 1e-12, "{} {}", p(0), p(5));
        assert!(p(40) <= 1.0, "more lags than intervals");
    }

    #[test]
    fn too_few_intervals_are_not_enough_data() {
        assert_eq!(strongest(&pulses(9, 0), &pulses(9, 0), 5), None);
        assert_eq!(strongest(&[], &[], 5), None);
    }
}
