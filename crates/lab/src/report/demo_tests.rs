//! The figures, the table and the sentence.

use super::*;
use crate::visitor_old::{End, Failure};

const MS: Duration = Duration::from_millis(1);

fn report() -> DemoReport {
    let served = |k: u32, waited| End::Served { entered: k * 10 * MS, response: 100 * MS, waited };
    let mut alone = Tally::default();
    alone.offered = 4000;
    (0..400).for_each(|k| alone.left_with(served(k, None), false, k * 25 * MS));
    (0..3600).for_each(|_| alone.left_with(End::Failed(Failure::Refused), false, 9000 * MS));
    alone.failures.refused = 9_999;
    let mut gated = Tally::default();
    gated.offered = 4000;
    gated.first_told = Some(Duration::ZERO);
    gated.waited = 3990;
    (0..4000).for_each(|k| gated.left_with(served(k, Some(k * 9 * MS)), false, k * 10 * MS + 100 * MS));
    DemoReport {
        capacity_rps: 100.0,
        offered_rps: 1000.0,
        crowd_s: 4.0,
        gate_rps: 98.0,
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
    assert!(rows.iter().all(|row| row.chars().count() == 58), "{table}");
    assert!(table.contains("  failed                           3,600                 0\n"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 78 && line.trim_end() == line), "{table}");
}

#[test]
fn the_conclusion_does_not_flatter() {
    let mut report = report();
    let good = report.conclusion();
    assert!(good.contains("40 % of what it can do and 3,600 of 4,000 visitors left"), "{good}");
    assert!(good.contains("no request failed") && !good.contains("busy"), "{good}");
    report.gated.side.failed = 5;
    report.gated.side.failed_requests = 12;
    report.gated.side.lag_ms.p99 = 31.0;
    report.direct.bench_failures = 1;
    let bad = report.conclusion();
    for part in ["12 requests failed", "5 of 4,000 visitors still failed", "31 ms late", "out of sockets"] {
        assert!(bad.contains(part), "{part}: {bad}");
    }
}
