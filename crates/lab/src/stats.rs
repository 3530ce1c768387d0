//! Ratios and percentiles of measured figures.

/// Adds fields of one struct to those of another; of fields after `max`, the larger one stays.
macro_rules! add_fields {
    ($to:expr, $from:expr; $($field:ident),+ $(; max $($most:ident),+)?) => {
        $($to.$field += $from.$field;)+
        $($($to.$most = $to.$most.max($from.$most);)+)?
    };
}
pub(crate) use add_fields;

/// `of / to`, and 0 of nothing.
pub(crate) fn ratio(of: f64, to: f64) -> f64 {
    if to > 0.0 { of / to } else { 0.0 }
}

/// The least value that this share of all does not exceed (nearest rank); `None` of no values. Reorders them.
pub(crate) fn percentile<T: Copy + PartialOrd>(values: &mut [T], share: f64) -> Option<T> {
    let rank = ((share * values.len() as f64).ceil() as usize).max(1);
    if rank > values.len() {
        return None;
    }
    let order = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal);
    let (_, value, _) = values.select_nth_unstable_by(rank - 1, order);
    Some(*value)
}
