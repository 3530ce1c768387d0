//! The line shows the last seconds.

use super::*;
use crate::visitor_events::{End, Failure, Noted, RequestKind};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn visit(tally: &mut Tally, at: Duration, response: Duration) {
    let now = at + response;
    tally.arrived(at);
    tally.sent(RequestKind::Page, at, at);
    tally.ended(now);
    let served = Noted::Served { step: 0, entered: at, response, waited: None, waited_since: at };
    tally.noted(&served, false, false, now);
    tally.left(End::Done, false, now);
}

#[test]
fn old_seconds_are_no_longer_shown() {
    let (mut tally, mut window) = (Tally::default(), Window::default());
    assert_eq!(window.line(&tally, Duration::ZERO), "0.0 s  waiting 0  in flight 0  errors 0");
    // A slow minute at one a second, then ten seconds at twenty.
    for second in 0..60 {
        window.mark(&tally, second * SECOND);
        visit(&mut tally, second * SECOND, 2000 * MS);
    }
    let slow = window.line(&tally, 60 * SECOND);
    assert!(slow.starts_with("60.0 s  offered 1.0 /s  served 1.0 /s  waiting 0"), "{slow}");
    assert!(slow.contains("p50 2.0 s  p99 2.0 s"), "{slow}");
    for tick in 0..200 {
        let now = 60 * SECOND + tick * 50 * MS;
        window.mark(&tally, now);
        visit(&mut tally, now, 100 * MS);
    }
    tally.failures.refused = 1234;
    tally.arrived(70 * SECOND);
    tally.noted(&Noted::ToldToWait { wait: None, at: 70 * SECOND }, false, true, 70 * SECOND);
    tally.noted(&Noted::Failed(Failure::Broken), true, true, 70 * SECOND);
    let fast = window.line(&tally, 70 * SECOND);
    assert!(fast.starts_with("70.0 s  offered 20.2 /s  served 20.0 /s  waiting 1  in flight 0"), "{fast}");
    assert!(fast.ends_with("errors 1,235  p50 100 ms  p99 100 ms"), "{fast}");
}

#[test]
fn a_window_holds_few_marks() {
    let (tally, mut window) = (Tally::default(), Window::default());
    (0..100_000).for_each(|tick| window.mark(&tally, tick * 10 * MS));
    assert!((5..=7).contains(&window.0.len()), "{}", window.0.len());
}
