//! The figures, the table and the sentence.

use super::*;
use crate::visitor_events::{End, Failure, Noted};

const MS: Duration = Duration::from_millis(1);

fn fail(tally: &mut Tally) {
    tally.arrived(Duration::ZERO);
    tally.left(End::Failed(Failure::Refused), false, 9000 * MS);
}

/// A visitor who is answered 100 ms after it is let in.
fn serve(tally: &mut Tally, entered: Duration, waited: Option<Duration>) {
    tally.arrived(Duration::ZERO);
    let told = Noted::ToldToWait { wait: None, at: Duration::ZERO };
    if waited.is_some() {
        tally.noted(&told, false, true, Duration::ZERO);
    }
    let (response, now) = (100 * MS, entered + 100 * MS);
    let served = Noted::Served { step: 0, entered, response, waited, waited_since: Duration::ZERO };
    tally.noted(&served, waited.is_some(), false, now);
    tally.left(End::Done, false, now);
}

fn report() -> DemoReport {
    let mut alone = Tally::default();
    (0..400).for_each(|k| serve(&mut alone, k * 25 * MS, None));
    (0..3600).for_each(|_| fail(&mut alone));
    alone.failures.refused = 9_999;
    let mut gated = Tally::default();
    (0..4000).for_each(|k| serve(&mut gated, k * 10 * MS, (k >= 10).then_some(k * 9 * MS)));
    DemoReport {
        capacity_rps: 100.0,
        offered_rps: 1000.0,
        crowd_s: 4.0,
        found: Found { capacity_rps: 98.0, in_flight: Some(10), settled_s: Some(1.5) },
        unloaded_ms: 100.0,
        direct: Side::direct(&alone, &Stats { wasted: 77, ..Stats::default() }, Duration::from_secs(10)),
        gated: Gated::new(&gated, &Stats::default()),
    }
}

#[test]
fn figures_come_out_as_they_went_in() {
    let DemoReport { direct, gated, .. } = report();
    assert_eq!((direct.served, direct.failed, direct.goodput_rps, direct.wasted), (400, 3600, 40.0, 77));
    assert!((gated.side.goodput_rps - 99.75).abs() < 0.1, "{}", gated.side.goodput_rps);
    assert!((gated.side.response_ms.p99 - 100.0).abs() < 0.2);
    assert!((gated.wait_s.p50 - 18.0).abs() < 0.05 && (gated.wait_s.max - 36.0).abs() < 0.05);
}

#[test]
fn the_table_is_set_straight() {
    let table = report().table();
    let rows: Vec<_> = table.lines().skip_while(|l| !l.contains('─')).skip(1).take(12).collect();
    assert!(rows.iter().all(|row| row.chars().count() == rows[0].chars().count()), "{table}");
    assert!(rows.iter().any(|row| row.split_whitespace().eq(["failed", "3,600", "0"])), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 78 && line.trim_end() == line), "{table}");
}

#[test]
fn the_conclusion_does_not_flatter() {
    let mut report = report();
    let good = report.conclusion();
    assert!(good.contains("40 % of what it can do and 3,600 of 4,000 visitors left"), "{good}");
    assert!(good.contains("no request failed") && !good.contains("busy"), "{good}");
    assert!(
        good.contains("settled after 1.5 s and in the end let 98 requests a second, 10 at once"),
        "{good}"
    );
    report.found.settled_s = None;
    report.gated.side.failed = 5;
    report.gated.side.failed_requests = 12;
    report.gated.side.lag_ms.p99 = 31.0;
    report.direct.bench_failures = 1;
    let bad = report.conclusion();
    for part in [
        "still looking at the end, at 98",
        "12 requests failed",
        "5 of 4,000 visitors still failed",
        "31 ms late",
        "out of sockets",
    ] {
        assert!(bad.contains(part), "{part}: {bad}");
    }
}

#[test]
fn numbers_are_grouped() {
    for (n, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
        assert_eq!(count(n), expected);
    }
}

#[test]
fn the_reported_capacity_is_the_estimate_under_load() {
    let mut found = Found::default();
    let looks = [
        (20.0, false, true),
        (80.0, true, true),
        (97.0, true, true),
        (98.0, false, true),
        (5.0, true, false),
    ];
    for (k, (capacity_rps, is_settled, is_anybody_there)) in looks.into_iter().enumerate() {
        let estimate = GateEstimate { capacity_rps, in_flight: Some(10), is_settled };
        found.look(&estimate, is_anybody_there, k as u32 * 500 * MS);
    }
    assert_eq!(found, Found { capacity_rps: 98.0, in_flight: Some(10), settled_s: Some(0.5) });
}
