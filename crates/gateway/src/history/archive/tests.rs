//! Consolidation of seconds into archives, in virtual time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::metrics::find;
use super::*;

fn second(at: u64, goodput: f32) -> Second {
    let mut values = vec![f32::NAN; Scope::Class.metrics().len()];
    values[find("goodput").unwrap().1] = goodput;
    Second { at, series: vec![(Series::all(), values)] }
}

/// Average, minimum and maximum goodput, and seconds, of every row that a reader would find.
type Kept = BTreeMap<(usize, u64), (f32, f32, f32, u32)>;

fn keep(rows: &[Row], kept: &mut Kept) {
    for row in rows {
        let g = row.data.values[find("goodput").unwrap().1];
        kept.insert((row.archive, row.at), (g.average, g.min, g.max, row.data.seconds));
    }
}

fn play(seconds: impl IntoIterator<Item = (u64, f32)>) -> Kept {
    let (mut consolidator, mut kept) = (Consolidator::default(), Kept::new());
    for (at, goodput) in seconds {
        let mut rows = Vec::new();
        consolidator.push(&second(at, goodput), &mut rows);
        keep(&rows, &mut kept);
    }
    kept
}

#[test]
fn archives_tile_the_year() {
    for pair in ARCHIVES.windows(2) {
        assert_eq!(pair[1].step % pair[0].step, 0);
        assert!(pair[1].span() > pair[0].span());
        assert!(
            pair[0].span() >= pair[1].step,
            "an open interval can be put together again from the finer archive"
        );
    }
    let spans = ARCHIVES.map(|a| a.span());
    assert_eq!(spans, [15 * 60, 2 * 3600, 2 * 86_400, 30 * 86_400, 365 * 86_400]);
}

#[test]
fn an_hour_of_seconds_makes_one_row_of_an_hour() {
    let kept = play((7200..10_801).map(|at| (at, (at % 100) as f32)));
    assert_eq!(kept[&(4, 7200)], (49.5, 0.0, 99.0, 3600));
    assert_eq!(kept[&(1, 7200)], (2.0, 0.0, 4.0, 5));
    let count = |archive| kept.keys().filter(|(a, _)| *a == archive).count();
    assert_eq!([0, 1, 2, 3, 4].map(count), [3601, 720, 60, 6, 1]);
}

#[test]
fn intervals_without_a_second_are_not_written() {
    let kept = play((0..30).chain(4000..4010).map(|at| (at, 1.0)));
    assert_eq!(kept[&(2, 0)], (1.0, 1.0, 1.0, 30), "half a minute was measured");
    assert_eq!(kept[&(4, 0)].3, 30);
    assert!(!kept.keys().any(|(archive, at)| *archive > 0 && (60..3600).contains(at)), "{kept:?}");
}

#[test]
fn a_clock_that_jumps_back_overwrites() {
    let kept = play((100..120).map(|at| (at, 1.0)).chain((100..126).map(|at| (at, 3.0))));
    assert_eq!(kept[&(0, 110)], (3.0, 3.0, 3.0, 1));
    assert_eq!(kept[&(1, 110)], (3.0, 3.0, 3.0, 5));
}

#[test]
fn a_class_that_is_added_later_has_its_own_intervals() {
    let mut consolidator = Consolidator::default();
    let mut rows = Vec::new();
    for at in 0..121 {
        let mut one = second(at, 1.0);
        if at >= 90 {
            one.series.push((Series::class("new"), one.series[0].1.clone()));
        }
        consolidator.push(&one, &mut rows);
    }
    let minutes: Vec<_> = rows.iter().filter(|r| r.archive == 2).collect();
    let seconds: Vec<_> = minutes.iter().map(|r| (r.series.name(), r.at, r.data.seconds)).collect();
    assert_eq!(seconds, [("all", 0, 60), ("all", 60, 60), ("class:new", 60, 30)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For any sequence of seconds, an interval's bounds are those of its seconds, and none is counted twice.
    #[test]
    fn every_interval_is_the_aggregate_of_its_seconds(
        steps in prop::collection::vec((1u64..400, 0f32..100.0), 1..400),
    ) {
        let mut at = 1_000_000;
        let seconds: Vec<_> = steps.iter().map(|(step, value)| { at += step; (at, *value) }).collect();
        for ((archive, start), (average, min, max, n)) in play(seconds.iter().copied()) {
            let step = ARCHIVES[archive].step;
            let inside = seconds.iter().filter(|(at, _)| (start..start + step).contains(at));
            let inside: Vec<f32> = inside.map(|(_, v)| *v).collect();
            let mean = inside.iter().sum::<f32>() / inside.len() as f32;
            prop_assert_eq!(n as usize, inside.len());
            prop_assert_eq!(min, inside.iter().copied().fold(f32::INFINITY, f32::min));
            prop_assert_eq!(max, inside.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            prop_assert!((average - mean).abs() <= 1e-3 * mean.max(1.0), "{} {}", average, mean);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// A crash loses nothing of an open interval: rebuilt from the kept rows, it continues as without the
    /// crash.
    #[test]
    fn a_restart_continues_where_the_file_ends(
        until in 1u64..9_000,
        pause in 1u64..5_000,
        more in 1u64..4_000,
    ) {
        let before = (0..until).map(|at| (at, (at % 13) as f32));
        let after = (until + pause..until + pause + more).map(|at| (at, (at % 7) as f32));
        let whole = play(before.clone().chain(after.clone()));
        let mut kept = Kept::new();
        let (mut first, mut rows) = (Consolidator::default(), Vec::new());
        for (at, v) in before {
            first.push(&second(at, v), &mut rows);
        }
        keep(&rows, &mut kept);
        let (mut again, mut out) = (Consolidator::default(), Vec::new());
        let last = until - 1;
        for archive in 0..ARCHIVES.len() - 1 {
            let from = ARCHIVES[archive + 1].start(last);
            let open = rows.iter().filter(|r| r.archive == archive && r.at >= from);
            open.for_each(|r| again.restore(r, &mut out));
        }
        for (at, v) in after {
            again.push(&second(at, v), &mut out);
        }
        keep(&out, &mut kept);
        prop_assert_eq!(kept, whole);
    }
}
