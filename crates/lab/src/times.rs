//! Times in whole microseconds, as timers and figures count them; beyond the range, the last one.

use std::time::Duration;

/// Without the fraction. `Duration::as_micros` counts in 128 bits, which costs more than all the rest of what
/// the tally does for a request.
#[inline]
pub(crate) fn micros(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(time.subsec_micros()))
}

/// Rounded up, so that nothing happens before its time.
pub(crate) fn micros_up(time: Duration) -> u64 {
    let whole = time.as_secs().saturating_mul(1_000_000);
    whole.saturating_add(u64::from(time.subsec_nanos().div_ceil(1_000)))
}
