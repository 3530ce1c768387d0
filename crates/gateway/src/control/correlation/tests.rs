//! What a second's counts and figures become.

use super::*;

fn second(at: u64, classes: &[(&str, u64)], figures: &[(&str, f64)]) -> Second {
    Second {
        at: Timestamp::from_millis(at * 1000),
        classes: classes.iter().map(|(name, forwarded)| ((*name).into(), *forwarded)).collect(),
        figures: figures.iter().map(|(name, value)| FigureNow::of_gate(name, Some(*value))).collect(),
    }
}

fn settings(types: RequestTypes) -> Correlate {
    Correlate { types, ..Correlate::default() }
}

/// The requests of each type per interval, by name.
fn counts(counted: &Counted, figure: &str) -> Vec<(String, Vec<f64>)> {
    let columns = counted.live.columns(figure).expect("a figure");
    let mut all: Vec<_> = columns.types.into_iter().map(|(name, of)| (name.to_string(), of)).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}

#[test]
fn classes_are_counted_by_what_their_counters_grow() {
    for (types, expected) in [
        (RequestTypes::Auto, vec![("class:search".to_owned(), vec![3.0, 0.0])]),
        (
            RequestTypes::Class,
            vec![("class:default".to_owned(), vec![5.0, 6.0]), ("class:search".to_owned(), vec![3.0, 0.0])],
        ),
        (RequestTypes::Path, vec![]),
    ] {
        let mut counted = Counted::new(&settings(types));
        for (at, search, other) in [(10, 7, 20), (11, 10, 25), (12, 10, 31)] {
            let classes = [("search", search), ("default", other)];
            let has_ended = counted.end_second(second(at, &classes, &[("cpu", 0.5)]));
            assert_eq!(has_ended, at > 10, "the first second has nothing to be compared with");
        }
        assert_eq!(counts(&counted, "cpu"), expected, "{types:?}");
    }
}

#[test]
fn a_class_that_a_reload_removes_is_forgotten() {
    let mut counted = Counted::new(&settings(RequestTypes::Auto));
    for (at, class) in [(10, "old"), (11, "old"), (12, "new"), (13, "new")] {
        counted.end_second(second(at, &[(class, at)], &[("cpu", 0.5)]));
    }
    assert_eq!(counts(&counted, "cpu"), [("class:new".to_owned(), vec![0.0, 0.0, 1.0])]);
    assert_eq!(counted.classes.len(), 1);
}

#[test]
fn a_late_tick_counts_for_its_seconds_and_a_machine_that_slept_for_none() {
    let mut counted = Counted::new(&settings(RequestTypes::Class));
    for (at, forwarded, has_ended) in [(10, 0, false), (13, 9, true), (30, 50, false), (31, 52, true)] {
        assert_eq!(counted.end_second(second(at, &[("a", forwarded)], &[("cpu", 0.5)])), has_ended, "{at}");
    }
    assert_eq!(counts(&counted, "cpu"), [("class:a".to_owned(), vec![3.0, 3.0, 3.0, 2.0])]);
}

#[test]
fn the_name_of_a_detector_counts_before_that_of_a_figure_of_the_gate() {
    let mut counted = Counted::new(&settings(RequestTypes::Class));
    for at in 10..12 {
        counted.end_second(second(at, &[], &[("response_time", 1.0), ("response_time", 9.0)]));
    }
    assert_eq!(counted.figures.len(), 1);
    assert_eq!(counted.live.columns("response_time").expect("it").values, [1.0]);
}
