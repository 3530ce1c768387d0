//! Exponential averages of figures that are read once an interval (paper, section 5), in which the figures of
//! the last n intervals count most.
//!
//! ```text
//! average = (1 - alpha) * average + alpha * figure,    alpha = 2 / (n + 1)
//! ```
//!
//! With this alpha its figures are as old on average as those of a plain mean of n. Rejected: the plain
//! mean. It needs n figures for each rule, and falls again when the spike of n intervals ago leaves it.

/// What an average over `intervals` keeps when a figure of `elapsed` intervals comes: 1 - alpha for one.
pub fn keep(intervals: u32, elapsed: f64) -> f64 {
    (1.0 - alpha(intervals)).powf(elapsed)
}

/// The weight of one interval in an average over `intervals`.
pub fn alpha(intervals: u32) -> f64 {
    2.0 / (f64::from(intervals) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decaying::Ewma;

    #[test]
    fn the_first_figure_counts_whole_and_later_ones_by_alpha() {
        let mut average = Ewma::default();
        assert_eq!(average.get(), None);
        average.add(10.0, keep(3, 1.0));
        assert_eq!(average.get(), Some(10.0));
        average.add(20.0, keep(3, 1.0));
        assert_eq!(average.get(), Some(15.0), "alpha is a half");
        average.add(7.0, keep(1, 1.0));
        assert_eq!(average.get(), Some(7.0), "an average over one interval is its figure");
    }

    #[test]
    fn a_figure_of_two_intervals_counts_as_two_of_one() {
        let (mut once, mut twice) = (Ewma::default(), Ewma::default());
        once.add(0.0, 0.0);
        twice.add(0.0, 0.0);
        once.add(8.0, keep(5, 2.0));
        twice.add(8.0, keep(5, 1.0));
        twice.add(8.0, keep(5, 1.0));
        let difference = once.get().unwrap_or_default() - twice.get().unwrap_or_default();
        assert!(difference.abs() < 1e-12, "{difference}");
    }
}
