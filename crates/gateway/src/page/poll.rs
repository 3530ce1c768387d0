//! When a waiting page asks again.
//!
//! Far from its turn a page learns nothing by asking often, near to it every second counts: so the interval is an
//! eighth of the wait, between 1 s and the room's longest (20 s, down to 0.3 s while the capacity is being looked for), which makes about 20 questions in half an hour. Jitter of a fifth either
//! way keeps a crowd that came in one second from asking in one second. A fixed interval (the 20 s of other rooms)
//! was rejected: it lets places fall due unclaimed at the end and loads the gate at the beginning.

use std::time::Duration;

const SHORTEST: Duration = Duration::from_secs(1);

/// Time until a page with `wait` left should ask again; `within` is the room's longest
/// ([`Desk::ask_within`](tidegate_core::desk::Desk::ask_within)), `unit_random` is uniform in 0..1.
///
/// Never later than 0.1 to 0.3 s after the turn has come, and never sooner than 0.3 s, so that a room whose origin is
/// behind is not asked in a tight loop.
pub fn poll_interval(wait: Duration, within: Duration, unit_random: f64) -> Duration {
    let random = if unit_random.is_finite() { unit_random.clamp(0.0, 1.0) } else { 0.5 };
    let distance = (wait / 8).min(within).max(SHORTEST.min(within)).mul_f64(0.8 + 0.4 * random);
    let due = wait.saturating_add(Duration::from_secs_f64(0.1 + 0.2 * random));
    distance.min(due).max(Duration::from_millis(300))
}

#[cfg(test)]
mod tests {
    use tidegate_core::room::ASK_WITHIN;

    use super::*;

    #[test]
    fn the_interval_scales_with_the_distance() {
        let table = [
            (0, 0.0, 300),
            (0, 1.0, 300),
            (500, 0.5, 700),
            (800, 0.0, 800),
            (5_000, 0.5, 1_000),
            (8_000, 0.5, 1_000),
            (40_000, 0.5, 5_000),
            (40_000, 0.0, 4_000),
            (40_000, 1.0, 6_000),
            (1_800_000, 0.5, 20_000),
            (1_800_000, f64::NAN, 20_000),
        ];
        for (wait, random, expected) in table {
            let got = poll_interval(Duration::from_millis(wait), ASK_WITHIN, random);
            assert_eq!(got.as_millis(), expected, "wait {wait} ms, random {random}");
        }
        let sooner = poll_interval(Duration::from_secs(1_800), Duration::from_secs(2), 0.5);
        assert_eq!(sooner, Duration::from_secs(2), "while the capacity is looked for");
        let soonest = poll_interval(Duration::from_secs(1_800), Duration::ZERO, 0.5);
        assert_eq!(soonest, Duration::from_millis(300), "however short the room's longest");
        assert!(poll_interval(Duration::MAX, ASK_WITHIN, 1.0) <= Duration::from_secs(24));
    }

    proptest::proptest! {
        #[test]
        fn never_late_never_frantic(wait_ms in 0u64..4_000_000, within_ms in 0u64..20_000, random: f64) {
            let wait = Duration::from_millis(wait_ms);
            let interval = poll_interval(wait, Duration::from_millis(within_ms), random);
            proptest::prop_assert!(interval >= Duration::from_millis(300));
            proptest::prop_assert!(interval <= wait.saturating_add(Duration::from_millis(300)));
            proptest::prop_assert!(interval <= Duration::from_secs(24));
        }
    }
}
