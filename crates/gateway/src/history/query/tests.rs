//! The choice of the archive, and gaps.

use std::sync::Arc;

use super::super::archive::Second;
use super::super::metrics::{Scope, find};
use super::*;

const NOW: u64 = 1_700_000_123;
const DAY: u64 = 86_400;

#[test]
fn the_finest_archive_that_reaches_back_answers() {
    for (ago, step, expected) in [
        (60, None, 1),
        (15 * 60, None, 1),
        (16 * 60, None, 5),
        (2 * 3600, None, 5),
        (3 * 3600, None, 60),
        (2 * DAY, None, 60),
        (30 * DAY, None, 600),
        (365 * DAY, None, 3600),
        (3650 * DAY, None, 3600),
        // MASTH's examples.
        (600, Some(5), 5),
        (3600, Some(120), 120),
        (3600, Some(7), 10),
        (600, Some(7), 7),
        (DAY, Some(1), 60),
        (DAY, Some(7200), 7200),
        (365 * DAY, Some(DAY), DAY),
    ] {
        let plan = plan(NOW - ago, NOW, step, NOW).unwrap();
        assert_eq!(plan.step, expected, "{ago} s ago by {step:?}: {plan:?}");
        assert_eq!(
            (plan.from % plan.step, plan.to % plan.step, plan.step % ARCHIVES[plan.archive].step),
            (0, 0, 0)
        );
        assert!((plan.to - plan.from) / plan.step <= 8_762, "{plan:?}");
    }
}

#[test]
fn invalid_ranges_and_steps_are_refused() {
    assert_eq!(plan(NOW, NOW, None, NOW), Err(QueryError::Empty));
    assert_eq!(plan(NOW + 5, NOW + 10, None, NOW), Err(QueryError::Empty));
    assert_eq!(plan(10, 5, None, NOW), Err(QueryError::Empty));
    assert_eq!(plan(NOW - 60, NOW, Some(0), NOW), Err(QueryError::Step));
    assert_eq!(plan(NOW - 60, NOW, Some(61), NOW), Err(QueryError::Step));
    assert!(plan(0, u64::MAX, None, NOW).is_ok());
}

fn goodput(at: u64, goodput: f32, response: f32) -> Arc<Second> {
    let mut values = vec![f32::NAN; Scope::Class.metrics().len()];
    values[find("goodput").unwrap().1] = goodput;
    values[find("response_mean").unwrap().1] = response;
    Arc::new(Second { at, series: vec![(Series::all(), values)] })
}

fn ask(memory: &Memory, metric: &str, from: u64, to: u64, step: Option<u64>) -> Points {
    let query = Query { metric: metric.into(), series: Series::all(), from, to, step };
    answer(&query, None, memory, NOW).unwrap().unwrap()
}

#[test]
fn a_gap_has_no_value_and_is_not_zero() {
    let mut memory = Memory::default();
    for at in (NOW - 100..NOW).filter(|at| !(NOW - 50..NOW - 40).contains(at)) {
        memory.push(goodput(at, 2.0, 1.0));
    }
    let points = ask(&memory, "goodput", NOW - 60, NOW - 30, None);
    assert_eq!(points.points.len(), 30);
    let nothing: Vec<u64> = points.points.iter().filter(|p| p.value.is_nothing()).map(|p| p.at).collect();
    assert_eq!(nothing, Vec::from_iter(NOW - 50..NOW - 40));
    assert_eq!(points.whole, Some(Spread::one(2.0)));
    let none = ask(&memory, "wait_p99", NOW - 60, NOW, None);
    assert!(none.whole.is_none() && none.points.iter().all(|p| p.value.is_nothing()));
}

#[test]
fn steps_are_weighted_like_intervals_of_the_file() {
    let mut memory = Memory::default();
    memory.push(goodput(NOW - 30, f32::NAN, f32::NAN));
    memory.push(goodput(NOW - 20, 90.0, 10.0));
    memory.push(goodput(NOW - 19, 10.0, 20.0));
    let points = ask(&memory, "response_mean", NOW - 25, NOW, Some(25));
    let whole = Spread { average: 11.0, min: 10.0, max: 20.0 };
    assert_eq!(points.whole, Some(whole));
    assert_eq!(points.points.iter().filter(|p| p.value == whole).count(), 1);
}

#[test]
fn an_interval_that_has_just_begun_is_no_gap() {
    let mut memory = Memory::default();
    memory.push(goodput(NOW - 10, 1.0, 1.0));
    memory.push(goodput(NOW - 4, 1.0, 1.0));
    // NOW is 3 s into its interval of five, which has no second yet.
    let points = ask(&memory, "goodput", NOW - 3_000, NOW, None);
    assert_eq!((points.step, points.points.last().unwrap().at), (5, (NOW - 4) / 5 * 5));
}

#[test]
fn an_unknown_figure_is_named() {
    let query = Query { metric: "gootput".into(), series: Series::all(), from: 0, to: 5, step: None };
    let answer = answer(&query, None, &Memory::default(), NOW).unwrap();
    assert_eq!(answer, Err(QueryError::Metric("gootput".into())));
}

/// Its rows are as long as its own figures.
#[test]
fn a_detector_has_the_figures_of_detectors_and_nothing_else_has() {
    let mut memory = Memory::default();
    let values = |scope: Scope| vec![7.0; scope.metrics().len()];
    let series = [Series::all(), Series::gate(), Series::detector("cpu")];
    let series = series.map(|series| (series.clone(), values(series.scope()))).into();
    memory.push(Arc::new(Second { at: NOW - 10, series }));
    let ask = |metric: &str, series: Series| {
        let query = Query { metric: metric.into(), series, from: NOW - 20, to: NOW, step: None };
        answer(&query, None, &memory, NOW).unwrap().map(|points| points.whole)
    };
    let known = Ok(Some(Spread::one(7.0)));
    for metric in Scope::Detector.metrics() {
        assert_eq!(ask(metric.name, Series::detector("cpu")), known, "{}", metric.name);
        assert_eq!(ask(metric.name, Series::detector("disk")), Ok(None));
        for other in [Series::all(), Series::tier("gold")] {
            assert_eq!(ask(metric.name, other), Err(QueryError::NoDetector(metric.name.into())));
        }
    }
    for metric in Scope::Class.metrics() {
        let refused = Err(QueryError::Detector(metric.name.into()));
        assert_eq!(ask(metric.name, Series::detector("cpu")), refused);
    }
    assert_eq!(ask("capacity", Series::detector("cpu")), known, "of the gate, whatever the series");
}

/// The file lacks an interval that is in progress, and memory its beginning: a day's peak still includes the
/// present minute, and a year's the present hour.
#[test]
fn the_interval_in_progress_counts_however_coarse_it_is() {
    let mut memory = Memory::default();
    for ago in (1..=40).rev() {
        memory.push(goodput(NOW - ago, if ago == 20 { 90.0 } else { 10.0 }, 1.0));
    }
    for span in [60, DAY, 20 * DAY, 300 * DAY] {
        let whole = ask(&memory, "goodput", NOW - span, NOW, None).whole.expect("something");
        assert_eq!(whole.max, 90.0, "over {span} s");
    }
}
