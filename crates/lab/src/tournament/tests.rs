//! Figures of runs written by hand, truths that are known, and a small tournament.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::figures::{Figures, Known, figures};
use super::play::{Order, Played, play};
use super::stretch::{Stretch, alone, stretches};
use super::summary::{Standing, overall, verdicts};
use super::truth::{Effort, Truth, truth};
use super::*;
use crate::stats::percentile;
use tidegate_core::units::Cost;

use crate::experiment::{ScenarioText, catalog, seeds};
use crate::outcome::Second;
use crate::scenario::Scenario;
use crate::sim::record::{Answered, Believed, Record};

fn known(from: u64, to: u64, capacity: f64) -> Known {
    let (from, to) = (Duration::from_secs(from), Duration::from_secs(to));
    let truth = Truth {
        capacity,
        goodput_rps: capacity,
        limit: 10,
        response_ms: 100.0,
        unloaded_ms: 100.0,
        unloaded_p99_ms: 200.0,
    };
    (Stretch { from, to }, truth)
}

/// A run in which the gate believes `belief(t)` and the origin serves `served(t)` of 150 visitors in each
/// second, each in 150 ms.
fn run(seconds: u64, belief: impl Fn(f64) -> f64, served: impl Fn(u64) -> u64) -> (Record, Vec<Second>) {
    let mut record = Record::default();
    for tick in 0..seconds * 10 {
        let capacity = Some(belief(tick as f64 / 10.0));
        record.believed.push(Believed { at_us: tick * 100_000, capacity, limit: Some(10) });
    }
    let (mut series, mut waiting) = (Vec::new(), 0);
    for t in 0..seconds {
        let served = served(t);
        let answer =
            |k| Answered { at_us: t * 1_000_000 + k * 1_000_000 / served, took_us: 150_000, cost: Cost::ONE };
        record.answered.extend((0..served).map(answer));
        waiting += 150 - served;
        let (door, door_units) = (served, served as f64);
        series.push(Second {
            t,
            offered: 150,
            door,
            door_units,
            origin_served: served,
            waiting,
            ..Second::default()
        });
    }
    (record, series)
}

#[track_caller]
fn expect(figures: &Figures, name: &str, expected: f64) {
    let got = figures.get(name).copied().unwrap_or(f64::NAN);
    assert!((got - expected).abs() < 1e-9 || got == expected, "{name}: {got}, expected {expected}");
}

#[test]
fn a_perfect_estimate_has_no_error() {
    let (record, series) = run(60, |_| 100.0, |_| 100);
    let figures = figures(&record, &series, &[known(0, 60, 100.0)]);
    for (name, expected) in [
        ("settle_s", 0.0),
        ("error_pct", 0.0),
        ("error_1s_pct", 0.0),
        ("overshoot_pct", 0.0),
        ("oscillation_pct", 0.0),
        ("goodput_share", 1.0),
        ("mean_rt_ratio", 1.5),
        ("p99_ratio", 0.75),
        ("false_shed_pct", 0.0),
    ] {
        expect(&figures, name, expected);
    }
}

#[test]
fn a_slow_start_and_a_wrong_end_are_reported() {
    // 20 to the tenth second, then 10 % too much.
    let belief = |t: f64| if t < 10.0 { 20.0 } else { 110.0 };
    let (record, series) = run(60, belief, |t| if t < 10 { 20 } else { 100 });
    let stretch = [known(0, 60, 100.0)];
    let wrong = figures(&record, &series, &stretch);
    expect(&wrong, "settle_s", f64::INFINITY);
    for (name, expected) in [("error_pct", 10.0), ("error_5s_pct", 80.0), ("error_10s_pct", 35.0)] {
        expect(&wrong, name, expected);
    }
    expect(&wrong, "overshoot_pct", 10.0);
    expect(&wrong, "goodput_share", 5200.0 / 6000.0);
    // 75 short in each of nine seconds (in the first nobody has waited yet), less in those whose last five
    // are partly good.
    let after =
        (1..5).map(|t| 95.0 - (20.0 * (5 - t) as f64 + 100.0 * t as f64) / 5.0).filter(|short| *short > 0.0);
    expect(&wrong, "false_shed_pct", (9.0 * 75.0 + after.sum::<f64>()) / 9000.0 * 100.0);

    let (record, series) = run(60, |t| if t < 10.0 { 20.0 } else { 100.0 }, |_| 100);
    let right = figures(&record, &series, &stretch);
    // The mean of the five seconds from then on is within 5 % a little earlier: 80 * 3 ticks of 50 are 4.8.
    expect(&right, "settle_s", 9.7);
    // A belief that comes and goes never settles.
    let (record, series) = run(60, |t| if t % 14.0 < 7.0 { 100.0 } else { 80.0 }, |_| 100);
    let comes_and_goes = figures(&record, &series, &stretch);
    assert!(comes_and_goes["settle_s"] > 50.0, "only the end counts: {comes_and_goes:?}");
    assert!(comes_and_goes["oscillation_pct"] > 20.0);
}

#[test]
fn after_a_change_only_later_ticks_are_judged() {
    // 40 until 30 s, then 80; the law follows three seconds later.
    let belief = |t: f64| if t < 33.0 { 40.0 } else { 80.0 };
    let (record, series) = run(60, belief, |t| if t < 33 { 40 } else { 80 });
    let figures = figures(&record, &series, &[known(0, 30, 40.0), known(30, 60, 80.0)]);
    expect(&figures, "error_1s_pct", 50.0);
    expect(&figures, "error_5s_pct", 0.0);
    assert!(figures["settle_s"] > 2.0 && figures["settle_s"] <= 3.0, "{figures:?}");
    expect(&figures, "goodput_share", (33.0 * 40.0 + 27.0 * 80.0) / (30.0 * 40.0 + 30.0 * 80.0));
}

#[test]
fn without_a_queue_there_is_nothing_to_know() {
    let (record, mut series) = run(60, |_| 500.0, |_| 60);
    for second in &mut series {
        (second.offered, second.waiting) = (60, 0);
    }
    let figures = figures(&record, &series, &[known(0, 60, 100.0)]);
    assert_eq!(figures.get("settle_s"), None);
    assert_eq!(figures.get("error_pct"), None);
    expect(&figures, "goodput_share", 1.0);
    expect(&figures, "false_shed_pct", 0.0);
}

#[test]
fn a_refusal_while_nobody_waits_counts_as_needless() {
    let (record, mut series) = run(60, |_| 100.0, |t| if t < 30 { 100 } else { 0 });
    for second in &mut series {
        second.waiting = 0;
        second.full = if second.t < 30 { 50 } else { 150 };
    }
    let figures = figures(&record, &series, &[known(0, 60, 100.0)]);
    expect(&figures, "false_shed_pct", 50.0);
}

#[test]
fn runs_of_nothing_have_figures_of_nothing() {
    let stretch = [known(0, 60, 100.0)];
    let nothing = figures(&Record::default(), &[], &stretch);
    assert!(nothing.values().all(|value| value.is_finite()), "{nothing:?}");
    // It ended early: nobody was served, and nothing is believed.
    let (_, series) = run(3, |_| 1.0, |_| 1);
    let broken = figures(&Record::default(), &series, &stretch);
    expect(&broken, "goodput_share", 0.0);
    assert_eq!(percentile(&mut Vec::<u32>::new(), 0.5), None);
    assert_eq!(percentile(&mut [3, 1, 2], 0.5), Some(2));
    assert_eq!(percentile(&mut [3, 1, 2], 1.0), Some(3));
}

fn standing(estimator: &str, scenario: &str, share: f64, ratio: f64) -> Standing {
    let one =
        |settle| Figures::from([("goodput_share", share), ("mean_rt_ratio", ratio), ("settle_s", settle)]);
    Standing::new(estimator, scenario, &[one(1.0), one(f64::INFINITY), one(3.0)])
}

#[test]
fn the_winner_keeps_the_response_time() {
    let standings = [
        standing("vegas", "one", 1.00, 2.8),
        standing("aimd", "one", 0.97, 1.2),
        standing("bottleneck", "one", 0.96, 1.1),
        standing("fixed", "one", 1.1, 1.0),
        standing("vegas", "two", 0.99, 1.4),
        standing("bottleneck", "two", 0.96, 1.1),
        standing("vegas", "three", 0.5, 1.0),
        standing("bottleneck", "three", 0.9, 1.6),
    ];
    let all: Vec<_> = verdicts(&standings).into_iter().map(|v| (v.first, v.holds)).collect();
    assert_eq!(
        all,
        [
            (Some(("aimd".to_owned(), 0.97)), true),
            (Some(("vegas".to_owned(), 0.99)), false),
            (Some(("vegas".to_owned(), 0.5)), false),
        ]
    );
    let told = standings[2].told();
    let of =
        |name: &str| told.iter().find(|told| told.name == name).unwrap_or_else(|| panic!("{name}")).value;
    assert_eq!(of("bottleneck.one.settle_s"), Some(3.0));
    assert_eq!(of("bottleneck.one.settle_s_p90"), Some(f64::INFINITY));
    assert_eq!(of("bottleneck.one.settled_pct").map(f64::round), Some(67.0));
    assert_eq!(of("bottleneck.one.error_pct"), None);
    let means = overall(&standings);
    assert_eq!((means[0].name.as_str(), means[0].value), ("vegas.all.goodput_share", Some(2.49 / 3.0)));
}

/// Two scenarios that differ in one key, and one that changes.
const FILE: &str = r#"
deadline = "20s"
[[arrivals.phase]]
rate = 75
for = "10m"
mix = { a = 1, b = 1 }
[[visitor]]
name = "a"
patience = "never"
retries = 0
[[visitor]]
name = "b"
path = "/b"
patience = "never"
retries = 0
[origin]
workers = 5
service = "normal(100ms, 20ms)"
backlog = 10_000
contention = 0
[gate]
room.classes = ["all"]
[[gate.class]]
name = "all"
match = { path = "/**" }
[experiment]
paper = "Tidegate"
figure = "none"
about = "A test"
ways = ["sim"]
[experiment.tournament]
estimators = ["bottleneck", "power-ratio", "fixed"]
seeds = "11..12"
tune_seeds = "1..10"
truth_requests = 1000
[experiment.tournament.scenario.steady]
about = "Always the same"
[experiment.tournament.scenario.low]
about = "Few come"
set = { "arrivals.phase.0.rate" = 20 }
[experiment.tournament.scenario.falls]
about = "It becomes slower"
set = { "origin.change" = [{ at = "10s", speed = 0.5 }] }
"#;

const GATE: &str = r#"[gate]
room.classes = ["all"]
[[gate.class]]
name = "all"
match = { path = "/**" }
"#;

fn parse(text: &str) -> Result<(Tournament, ScenarioText), String> {
    let experiment = catalog::parse(text, "small", Path::new(""), &|_| None).map_err(|m| m.to_string())?;
    Ok((experiment.tournament.expect("a tournament"), experiment.source))
}

fn scenario(name: &str) -> Scenario {
    let (tournament, source) = parse(FILE).expect("an experiment");
    let setting = tournament.scenarios.iter().find(|setting| setting.name == name).expect("a scenario");
    setting.scenario(&source).expect("without mistakes")
}

#[test]
fn a_file_names_estimators_seeds_and_scenarios() {
    let (tournament, _) = parse(FILE).expect("an experiment");
    assert_eq!(tournament.estimators, ["bottleneck", "power-ratio", "fixed"]);
    assert_eq!((tournament.seeds, tournament.all_seeds), (11..=12, 11..=12));
    let names: Vec<&str> = tournament.scenarios.iter().map(|setting| setting.name.as_str()).collect();
    assert_eq!(names, ["steady", "low", "falls"], "in the order of the file");
    let everyone = FILE.replace("estimators = [\"bottleneck\", \"power-ratio\", \"fixed\"]\n", "");
    let (tournament, _) = parse(&everyone).expect("an experiment");
    assert!(tournament.estimators.len() >= 2 && !tournament.estimators.contains(&"fixed".to_owned()));
    for (from, to, expected) in [
        ("\"11..12\"", "\"12..11\"", "seeds A..B with A at most B"),
        ("\"11..12\"", "\"10..12\"", "other seeds than `tune_seeds`"),
        ("\"power-ratio\"", "\"power-ration\"", "Did you mean `power-ratio`?"),
        ("truth_requests = 1000", "truth_requests = 1", "a number from 100"),
        ("deadline = \"20s\"", "", "a deadline"),
        (GATE, "", "a [gate]"),
        ("ways = [\"sim\"]", "ways = [\"real\"]", "[\"sim\"] with a tournament"),
        ("arrivals.phase.0.rate", "arrivals.phase.0.rat", "arrivals.phase.0.rat"),
        ("scenario.steady]", "scenario.\"ste.ady\"]", "a name of letters, digits and \"-\""),
        (
            "[experiment.tournament]",
            "[experiment.run.one]\n[experiment.tournament]",
            "nothing beside a tournament",
        ),
    ] {
        assert!(FILE.contains(from), "{from}");
        let said = parse(&FILE.replacen(from, to, 1)).expect_err(to);
        assert!(said.contains(expected), "{to}: {said}");
    }
    assert_eq!((seeds("101..200"), seeds("7")), (Ok(101..=200), Ok(7..=7)));
    assert!(["", "a..b", "1..", "1..1000000"].iter().all(|text| seeds(text).is_err()));
}

#[test]
fn stretches_lie_between_changes() {
    let falls = scenario("falls");
    let [before, after] = stretches(&falls)[..] else { panic!("two stretches") };
    assert_eq!((before.to, after.from), (Duration::from_secs(10), Duration::from_secs(10)));
    assert_eq!(after.to, Duration::from_secs(20));
    let lasts = Duration::from_secs(5);
    assert!(alone(&falls, &before, 1.0, lasts).origin.changes.is_empty());
    let now = alone(&falls, &after, 1.0, lasts);
    assert_eq!(now.origin.changes.len(), 1);
    assert_eq!((now.origin.changes[0].at, now.origin.changes[0].speed), (Duration::ZERO, Some(0.5)));
    assert_eq!(now.deadline, Some(lasts));
    let mut mixed = FILE.replace("for = \"10m\"", "for = \"6s\"");
    mixed += "\n[[arrivals.phase]]\nrate = 75\nfor = \"10m\"\nmix = { b = 1 }\n[[fault]]\nat = \"12s\"\nfor = \"2s\"\nkind = \"slow\"\nfactor = 2\n";
    let mixed = Scenario::parse(&mixed, "mixed.toml", Path::new(""), &[]).expect("a scenario");
    let borders: Vec<u64> = stretches(&mixed).iter().map(|stretch| stretch.to.as_secs()).collect();
    assert_eq!(borders, [6, 12, 14, 20]);
    let last = alone(&mixed, &stretches(&mixed)[3], 1.0, lasts);
    assert!(last.faults.is_empty() && !alone(&mixed, &stretches(&mixed)[2], 1.0, lasts).faults.is_empty());
}

#[test]
fn the_oracle_finds_known_optima() {
    let stop = AtomicBool::new(false);
    let effort = Effort { requests: 1000, threads: 2, stop: &stop };
    let falls = scenario("falls");
    let of = |stretch: &Stretch| truth(&falls, stretch, &effort).expect("a truth");
    let [before, after] = [0, 1].map(|k| of(&stretches(&falls)[k]));
    assert!((before.capacity / 50.0 - 1.0).abs() < 0.02 && before.limit == 5, "{before:?}");
    assert!((after.capacity / 25.0 - 1.0).abs() < 0.02 && after.limit == 5, "{after:?}");
    assert!((before.unloaded_ms / 100.0 - 1.0).abs() < 0.03, "{before:?}");
    assert!((after.unloaded_ms / 200.0 - 1.0).abs() < 0.03, "{after:?}");
    assert!((before.unloaded_p99_ms / 146.5 - 1.0).abs() < 0.05, "mean + 2.33 deviations: {before:?}");
    // Ten connections behind forty workers: more in flight than connections, as the rest of the work takes
    // time too.
    let mut staged = falls.clone();
    staged.origin.changes.clear();
    staged.origin.workers = 40;
    staged.origin.stages[0].servers = 5;
    let staged = truth(&staged, &stretches(&falls)[0], &effort).expect("a truth");
    assert!((staged.capacity / 50.0 - 1.0).abs() < 0.02 && staged.response_ms < 1.5 * staged.unloaded_ms);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(truth(&falls, &stretches(&falls)[0], &effort), Err("interrupted".into()));
}

fn played(seeds: RangeInclusive<u64>, threads: usize) -> Played {
    let (tournament, source) = parse(FILE).expect("an experiment");
    let stop = AtomicBool::new(false);
    let mut lines = Vec::new();
    let order = Order { seeds, threads, stop: &stop };
    let played = play(&tournament, &source, &order, &mut |line| lines.push(line.to_owned()));
    assert_eq!(lines.len(), 3, "a line of progress per scenario: {lines:?}");
    assert!(played.missing.is_empty(), "{:?}", played.missing);
    played
}

#[test]
fn a_small_tournament_is_the_same_on_any_number_of_threads() {
    let (one, three) = (played(11..=12, 1), played(11..=12, 3));
    assert_eq!(one.standings, three.standings);
    assert_eq!(one.truths, three.truths);
    assert_eq!(one.plots, three.plots);
    assert_eq!((one.standings.len(), one.plots.len()), (9, 3));
    for standing in &one.standings {
        let share = standing.figure("goodput_share").expect("a share");
        assert!((0.0..1.2).contains(&share), "{standing:?}");
    }
    let of_fixed = |law: &str, scenario: &str| {
        let standing = one.standings.iter().find(|it| it.estimator == law && it.scenario == scenario);
        standing.and_then(|it| it.figure("of_fixed")).expect("a ratio")
    };
    // Two seeds: the median is the first of the two ratios in order.
    assert_eq!(of_fixed("fixed", "steady"), 1.0);
    assert!((0.5..1.0).contains(&of_fixed("bottleneck", "steady")), "it has to find the capacity first");
    let (_, plot) = &one.plots[0];
    let names: Vec<&str> = plot.lines.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(names, ["bottleneck", "power-ratio", "fixed", "truth"]);
    assert!(plot.lines.iter().all(|line| !line.points.is_empty()));
}
