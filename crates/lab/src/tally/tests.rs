//! Small runs with known figures.

use std::time::Duration;

use super::*;
use crate::outcome::Way;

const MS: Duration = Duration::from_millis(1);

/// Somebody comes at `at`, is served after `response` and leaves.
fn visit(tally: &mut Tally, at: Duration, response: Duration) {
    let now = at + response;
    let noted = Noted::Served { step: 0, entered: at, response, waited: None, waited_since: at };
    tally.arrived(at);
    tally.sent(Ask::Page, at, at);
    tally.ended(now);
    tally.noted(&noted, false, false, now);
    tally.left(End::Done, false, now);
}

#[test]
fn a_quiet_service() {
    let mut tally = Tally::default();
    for k in 0..10 {
        visit(&mut tally, k * 500 * MS, 100 * MS);
    }
    let outcome = tally.outcome("quiet", Way::Sim, 1, None);
    for (key, expected) in [
        ("offered", 10.0),
        ("done", 10.0),
        ("served_share", 1.0),
        ("goodput_rps", 10.0 / 4.6),
        ("response_mean_ms", 100.0),
        ("power_ratio", 10.0 / 4.6 / 0.1),
        ("wait_mean_s", 0.0),
        ("seconds", 4.6),
    ] {
        assert!((outcome.figure(key) - expected).abs() < 1e-9, "{key}: {}", outcome.figure(key));
    }
    assert_eq!(outcome.series.iter().map(|s| s.served).collect::<Vec<_>>(), [2; 5]);
}
