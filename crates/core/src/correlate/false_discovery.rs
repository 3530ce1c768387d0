//! The threshold of p below which a type is named, when many types are tried (Benjamini & Hochberg, 1995).
//!
//! ```text
//! threshold = the largest p_(i) ≤ α i/m        p_(1) ≤ … ≤ p_(m): all p, in order
//! ```
//!
//! At α = 0.05 one of twenty innocent types would be named by chance. This procedure bounds the share of such
//! errors among the types that are named. Bonferroni's, which bounds the probability of a single error,
//! would miss types with a small effect, such as the paper's SearchItemsByRegion among hundreds of types.

/// The largest p that is still significant; below all of them if none is.
pub(super) fn threshold(p: impl Iterator<Item = f64>, alpha: f64) -> f64 {
    let mut sorted: Vec<f64> = p.collect();
    sorted.sort_by(f64::total_cmp);
    let tried = sorted.len() as f64;
    let significant = sorted.iter().enumerate().rev().find(|(i, p)| **p <= alpha * (*i as f64 + 1.0) / tried);
    significant.map_or(f64::NEG_INFINITY, |(_, p)| *p)
}

#[cfg(test)]
mod tests {
    use super::threshold;

    #[test]
    fn the_example_of_the_procedures_authors() {
        // Benjamini & Hochberg (1995), section 3.2: fifteen hypotheses, of which four are rejected.
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
            0.6528, 0.7590, 1.0000,
        ];
        assert_eq!(threshold(p.into_iter(), 0.05), 0.0095);
        assert_eq!(threshold(p.into_iter().rev(), 0.05), 0.0095, "in any order");
    }

    #[test]
    fn where_nothing_is_significant_no_p_is_below_the_threshold() {
        assert!(threshold([0.04, 0.9].into_iter(), 0.05) < 0.0);
        assert!(threshold(std::iter::empty(), 0.05) < 0.0);
    }
}
