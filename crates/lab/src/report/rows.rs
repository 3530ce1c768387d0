//! Which figures of an outcome people are shown, in which order, under which names: the same on a terminal
//! and on a page.

use super::units;
use crate::outcome::Outcome;

#[derive(Clone, Copy)]
enum Unit {
    Count,
    Share,
    PerSecond,
    Millis,
    FineMillis,
    Seconds,
    Span,
    Plain,
}

#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Always,
    IfAny,
}

use Shown::{Always, IfAny};
use Unit::{Count, FineMillis, Millis, PerSecond, Plain, Seconds, Share, Span};

type Row = (&'static str, &'static str, Unit, Shown);

const GROUPS: [(&str, &[Row]); 6] = [
    (
        "Visitors",
        &[
            ("came", "offered", Count, Always),
            ("got everything they came for", "done", Count, Always),
            ("failed", "failed", Count, Always),
            ("tired of waiting", "tired", Count, IfAny),
            ("did not come back", "no_shows", Count, IfAny),
            ("still there at the end", "present", Count, IfAny),
            ("share served", "served_share", Share, Always),
        ],
    ),
    (
        "Requests",
        &[
            ("sent", "requests", Count, Always),
            ("  for the status of the wait", "polls", Count, IfAny),
            ("served", "served", Count, Always),
            ("goodput", "goodput_rps", PerSecond, Always),
            ("  while anyone waited", "goodput_while_waiting_rps", PerSecond, IfAny),
            ("power ratio", "power_ratio", Plain, Always),
            ("failed", "failed_requests", Count, Always),
            ("  refused", "failures_refused", Count, IfAny),
            ("  no connection", "failures_connect", Count, IfAny),
            ("  broken off", "failures_broken", Count, IfAny),
            ("  given up", "failures_patience", Count, IfAny),
            ("  by the bench itself", "failures_bench", Count, IfAny),
            ("most at once", "peak_in_flight", Count, Always),
        ],
    ),
    (
        "Response time",
        &[
            ("mean", "response_mean_ms", Millis, Always),
            ("  given-up ones counted", "response_or_given_up_mean_ms", Millis, IfAny),
            ("p50", "response_p50_ms", Millis, Always),
            ("p90", "response_p90_ms", Millis, Always),
            ("p99", "response_p99_ms", Millis, Always),
            ("longest", "response_max_ms", Millis, Always),
            ("worst second's mean", "response_worst_second_ms", Millis, Always),
        ],
    ),
    (
        "Waiting",
        &[
            ("told to wait", "told_to_wait", Count, IfAny),
            ("told that the room is full", "full", Count, IfAny),
            ("most waiting at once", "peak_waiting", Count, IfAny),
            ("wait, mean", "wait_mean_s", Seconds, IfAny),
            ("wait, p50", "wait_p50_s", Seconds, IfAny),
            ("wait, p99", "wait_p99_s", Seconds, IfAny),
            ("wait, longest", "wait_max_s", Seconds, IfAny),
        ],
    ),
    (
        "Arrived at the origin",
        &[
            ("mean", "door_rps_mean", PerSecond, IfAny),
            ("busiest second", "door_rps_max", PerSecond, IfAny),
            ("attacks sent", "attacks_sent", Count, IfAny),
            ("attacks let in", "attacks_let_in", Count, IfAny),
        ],
    ),
    (
        "Run",
        &[
            ("length", "seconds", Span, Always),
            ("sent late by, p99", "lag_p99_ms", FineMillis, IfAny),
            ("events", "events", Count, IfAny),
            ("events per second of computing", "events_per_s", PerSecond, IfAny),
            ("violations", "violations", Count, IfAny),
        ],
    ),
];

/// A group of rows: its name, and each row's label and cells, one per outcome.
pub(crate) struct Group {
    pub name: &'static str,
    pub rows: Vec<(&'static str, Vec<String>)>,
}

/// What to show of these outcomes; groups with nothing to say are left out.
pub(crate) fn groups(outcomes: &[&Outcome]) -> Vec<Group> {
    let groups = GROUPS.iter().map(|(name, rows)| {
        let rows = rows.iter().filter(|row| is_shown(row, outcomes));
        let rows = rows.map(|(label, key, unit, _)| {
            (*label, outcomes.iter().map(|outcome| cell(outcome, key, *unit)).collect())
        });
        Group { name, rows: rows.collect() }
    });
    groups.filter(|group| !group.rows.is_empty()).collect()
}

fn is_shown(row: &Row, outcomes: &[&Outcome]) -> bool {
    let (_, key, _, shown) = row;
    let any = |key| outcomes.iter().any(|outcome| outcome.figure(key) != 0.0);
    match (*shown, *key) {
        (Always, _) => true,
        // Without a wait it says what the row above says; without given-up requests likewise.
        (IfAny, "goodput_while_waiting_rps") => any("told_to_wait"),
        (IfAny, "response_or_given_up_mean_ms") => any("given_up"),
        (IfAny, "attacks_let_in") => any("attacks_sent"),
        // In a checked simulation a zero is worth showing: no rule was broken.
        (IfAny, "violations") => outcomes.iter().any(|outcome| outcome.summary.contains_key("violations")),
        (IfAny, key) => any(key),
    }
}

fn cell(outcome: &Outcome, key: &str, unit: Unit) -> String {
    let of_waits = key.starts_with("wait_") || key == "goodput_while_waiting_rps";
    let nobody = of_waits && outcome.figure("told_to_wait") == 0.0;
    let Some(value) = outcome.summary.get(key).copied().filter(|_| !nobody) else { return "–".into() };
    match unit {
        Count => units::count(value.round() as u64),
        Share => units::fine_percent(value),
        PerSecond => units::per_second(value),
        Millis => units::millis(value),
        FineMillis => units::fine_millis(value),
        Seconds => units::seconds(value),
        Span => units::span(value),
        Plain if value < 1000.0 => format!("{value:.1}"),
        Plain => units::count(value.round() as u64),
    }
}
