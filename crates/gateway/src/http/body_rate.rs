//! The lowest rate of request bodies (`limits.min_body_rate`): a visitor who sends a byte now and then is
//! never silent, and would hold what it has been given for hours.

use std::time::Duration;

/// Before the rate counts: a window of a slow line may open late. Apache's mod_reqtimeout has 20 s for it.
const GRACE: Duration = Duration::from_secs(10);

/// How much longer a visitor may be waited for who has sent `came` bytes and has been waited for as long as
/// `waited`. Time in which nobody wanted to read does not count. `rate` in bytes per second; 0: any.
pub(crate) fn time_left(came: u64, waited: Duration, rate: u64) -> Duration {
    came.checked_div(rate)
        .map_or(Duration::MAX, |earned_s| (GRACE + Duration::from_secs(earned_s)).saturating_sub(waited))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_earn_time_after_some_grace() {
        let s = Duration::from_secs;
        assert_eq!(time_left(0, s(0), 500), s(10));
        assert_eq!(time_left(0, s(9), 500), s(1));
        assert_eq!(time_left(499, s(10), 500), s(0));
        assert_eq!(time_left(5_000, s(12), 500), s(8));
        assert_eq!(time_left(0, s(1_000), 0), Duration::MAX, "no lowest rate");
    }
}
