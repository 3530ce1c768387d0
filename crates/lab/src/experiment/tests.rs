//! Experiment files and their mistakes, the project's own, and reports made from outcomes written by hand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::report::Played;
use super::report::{Figure, Report};
use super::*;
use crate::outcome::{Outcome, Second};

/// A whole experiment: the scenario's keys first, as in the project's own files.
const FILE: &str = r#"
name = "small"
deadline = "10s"
[arrivals]
phase = [{ rate = 5, for = "1s" }]
[gate]
capacity.rate = 80

[experiment]
paper = "WebQ"
figure = "Fig. 0"
about = "Nothing"
ways = ["real", "sim"]
[experiment.run.with]
set = { "arrivals.phase.0.rate" = 7, "origin.service" = "20ms" }
[experiment.run.steps]
gate = false
way = "sim"
sweep = { key = "arrivals.phase.0.rate", values = [1, 2.5] }
[experiment.quantity.zeta]
unit = "1"
paper = 0.5
of = "with.served_share"
[experiment.quantity.alpha]
unit = "req/s"
of = "max(steps.goodput_rps)"
[experiment.plot.door]
title = "Door"
x = "time (s)"
y = "req/s"
lines = { door = "with[door]" }
levels = { capacity = "with.origin_capacity_rps" }
"#;

fn parse(text: &str) -> Result<Experiment, Mistakes> {
    catalog::parse(text, "small", Path::new(""), &|name| (name == "other").then(|| FILE.to_owned()))
}

#[test]
fn a_file_says_what_is_played_and_computed() {
    let experiment = parse(FILE).expect("experiment");
    assert_eq!(
        (experiment.name_as(Way::Real), experiment.name_as(Way::Sim)),
        ("small".into(), "small-sim".into())
    );
    let [with, steps] = experiment.runs.as_slice() else { panic!("two runs") };
    assert_eq!((with.gate, with.way, with.values()), (true, None, vec![None]));
    assert_eq!((steps.gate, steps.way, steps.values()), (false, Some(Way::Sim), vec![Some(1.0), Some(2.5)]));
    // In the order of the file, not of the alphabet.
    let names: Vec<&str> = experiment.quantities.iter().map(|quantity| quantity.name.as_str()).collect();
    assert_eq!(names, ["zeta", "alpha"]);

    let scenario = experiment.scenario(with, None).expect("scenario");
    assert_eq!(known::gate_capacity_rps(&scenario), 80.0);
    assert_eq!(known::origin_capacity_rps(&scenario), 500.0);
    let scenario = experiment.scenario(steps, Some(2.5)).expect("scenario");
    assert!(scenario.gate.is_none());
    let crate::scenario::Arrivals::Phases { phases, .. } = scenario.arrivals else { panic!("phases") };
    assert_eq!(phases[0].rate, crate::scenario::Shape::Flat(2.5));
}

#[test]
fn runs_may_be_those_of_another_experiment() {
    let text = r#"
        [experiment]
        paper = "WebQ"
        figure = "Fig. 1"
        about = "The same runs, another figure"
        runs_of = "other"
        [experiment.run.model]
        way = "sim"
        [experiment.quantity.share]
        unit = "1"
        of = "with.served_share / model.served_share"
    "#;
    let experiment = parse(text).expect("experiment");
    assert_eq!(experiment.source.name, "other");
    let needed: Vec<&str> = experiment.needed_runs().iter().map(|run| run.name.as_str()).collect();
    assert_eq!(needed, ["with", "model"], "a run that nothing uses is not played");
    let mistakes = parse(&text.replace("\"other\"", "\"nowhere\"")).expect_err("no such experiment");
    assert!(mistakes.to_string().contains("expected the name of an experiment"), "{mistakes}");
    let mistakes =
        parse(&text.replace("run.model", "run.with").replace("model.", "with.")).expect_err("twice");
    assert!(mistakes.to_string().contains("expected runs of different names"), "{mistakes}");
}

#[test]
fn every_mistake_is_reported_with_its_line() {
    for (from, to, line, expected) in [
        ("paper = \"WebQ\"", "paper = 7", 10, "experiment.paper: expected a text; got 7"),
        ("figure = \"Fig. 0\"", "", 9, "experiment.figure: expected a text; got nothing"),
        ("ways = [", "weys = [", 13, "Did you mean `ways`?"),
        ("[\"real\", \"sim\"]", "[\"real\", \"dream\"]", 13, "got \"dream\""),
        ("gate = false", "gate = \"no\"", 17, "experiment.run.steps.gate: expected true or false"),
        ("way = \"sim\"", "way = \"simulated\"", 18, "expected \"real\" or \"sim\""),
        ("[1, 2.5]", "[1]", 19, "expected an array of 2 to 100 rising numbers"),
        ("[1, 2.5]", "[2.5, 1]", 19, "expected an array of 2 to 100 rising numbers"),
        ("of = \"with.served_share\"", "of = \"with.served_chare\"", 23, "Did you mean `served_share`?"),
        ("of = \"with.served_share\"", "of = \"with[door]\"", 23, "expected a number; got a curve"),
        ("of = \"with.served_share\"", "of = \"with.served_share +\"", 23, "expected a number, RUN.KEY"),
        ("lines = { door = \"with[door]\" }", "", 27, "experiment.plot.door.lines: expected a table"),
        ("max(steps.goodput_rps)", "with.goodput_rps", 16, "expected a run that a quantity or a plot uses"),
        ("rate = 5", "rat = 5", 5, "arrivals.phase.0.rat"),
        ("\"arrivals.phase.0.rate\" = 7", "\"arrivals.phase.0.rate\" = -7", 0, "arrivals.phase.0.rate"),
        ("deadline = \"10s\"", "", 0, "expected a deadline"),
        ("about = \"Nothing\"", "about = ", 12, "valid TOML"),
    ] {
        assert!(FILE.contains(from), "{from}");
        let text = FILE.replacen(from, to, 1);
        let said = parse(&text).expect_err(to).to_string();
        assert!(said.contains(expected), "{to}: {said}");
        if line > 0 {
            assert!(said.contains(&format!("small.toml:{line}:")), "{to}: {said}");
        }
    }
    let text = FILE.replace("paper = \"WebQ\"", "").replace("unit = \"1\"", "unit = 1");
    assert_eq!(parse(&text).expect_err("two").0.len(), 2, "all at once");
    let said = parse(&FILE.replace("max(steps.goodput_rps)", "max(steps.")).expect_err("no key");
    assert_eq!(said.0.len(), 1, "a formula that cannot be read leaves no run unused: {said}");
    let said = parse("seed = 1").expect_err("a plain scenario").to_string();
    assert!(said.contains("expected a section [experiment]; got none"), "{said}");
}

#[test]
fn the_projects_own_are_whole_and_embedded() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .expect("experiments/")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| path.file_stem().expect("stem").to_string_lossy().into_owned())
        .collect();
    let mut embedded: Vec<String> = catalog::EMBEDDED.iter().map(|(name, _)| (*name).to_owned()).collect();
    files.sort();
    embedded.sort();
    assert_eq!(files, embedded);
    for name in embedded {
        let experiment = catalog::embedded(&name).expect("known").unwrap_or_else(|m| panic!("{m}"));
        let written = if experiment.source.name == name { &experiment.source.text } else { "" };
        assert!(
            written.is_empty() || written.contains(&format!("name = \"{name}\"")),
            "{name} says its name"
        );
        assert!(!experiment.expectations.is_empty(), "{name} states no bound");
    }
    assert!(catalog::embedded("webq-fig99").is_none());
}

#[test]
fn mistakes_in_bounds_are_reported_with_their_line() {
    for (bounds, expected) in [
        ("zata = { min = 1 }", "zata: expected the name of a quantity; got \"zata\". Did you mean `zeta`?"),
        ("zeta = 1", "experiment.expect.zeta: expected a table; got 1"),
        ("zeta = {}", "experiment.expect.zeta: expected bounds like { min = 0.95 }"),
        ("zeta = { min = 2, max = 1 }", "expected bounds like { min = 0.95 }"),
        ("zeta = { min = \"1\" }", "experiment.expect.zeta.min: expected a number"),
        ("zeta = { mim = 1, max = 2 }", "Did you mean `min`?"),
        ("sim.zata = { min = 1 }", "experiment.expect.sim.zata: expected the name of a quantity"),
    ] {
        let said = parse(&format!("{FILE}[experiment.expect]\n{bounds}\n")).expect_err(bounds).to_string();
        assert!(said.contains(expected) && said.contains("small.toml:34:"), "{bounds}: {said}");
    }
    let text = format!("{FILE}[experiment.expect.sim]\nzeta = {{ min = 1 }}\n");
    let said = parse(&text.replace("[\"real\", \"sim\"]", "[\"real\"]")).expect_err("not played").to_string();
    assert!(said.contains("expected a mode that `ways` names; got \"sim\""), "{said}");
    let own = catalog::embedded("estimator-tournament").expect("known").unwrap_or_else(|m| panic!("{m}"));
    let said = catalog::parse(
        &own.source.text.replace("\"bottleneck.all.mean_rt_ratio\"", "\"bottleneck.all.mean_rt\""),
        "estimator-tournament",
        Path::new(""),
        &|_| None,
    );
    let said = said.expect_err("no such figure").to_string();
    assert!(said.contains("Did you mean `bottleneck.all.mean_rt_ratio`?"), "{said}");
}

#[test]
fn bounds_that_do_not_hold_are_named_with_their_values() {
    let broken = |bounds: &str| {
        let experiment = parse(&format!("{FILE}[experiment.expect]\n{bounds}\n")).expect("experiment");
        let shown = |breach: expect::Breach| breach.to_string();
        expect::breaches(&experiment, &report()).into_iter().map(shown).collect::<Vec<_>>()
    };
    // zeta is 0.25 and alpha is 9, played over real processes.
    let held = "zeta = { min = 0.25, max = 0.25 }\nalpha = { max = 9 }\nsim.alpha = { max = 1 }";
    assert_eq!(broken(held), Vec::<String>::new());
    assert_eq!(
        broken("alpha = { max = 8 }\nzeta = { min = 0.95 }\nreal.zeta = { min = 0.5, max = 3 }"),
        [
            "small: alpha: expected at most 8; got 9",
            "small: zeta: expected at least 0.95; got 0.25",
            "small: zeta: expected 0.5 to 3; got 0.25",
        ]
    );
    let mut empty = report();
    empty.figures[0].ours = None;
    let experiment =
        parse(&format!("{FILE}[experiment.expect]\nzeta = {{ max = 1 }}\n")).expect("experiment");
    let breaches = expect::breaches(&experiment, &empty);
    assert_eq!(breaches[0].to_string(), "small: zeta: expected at most 1; got no value");
}

fn outcome(figures: &[(&str, f64)], door: &[u64]) -> Outcome {
    Outcome {
        name: "hand".into(),
        way: Way::Real,
        seed: 1,
        started_us: Some(1_000_000_000_000_000),
        seconds: door.len() as f64,
        partial: None,
        summary: figures.iter().map(|(key, figure)| ((*key).to_owned(), *figure)).collect::<BTreeMap<_, _>>(),
        series: (0..).zip(door).map(|(t, door)| Second { t, door: *door, ..Second::default() }).collect(),
        times: BTreeMap::new(),
    }
}

fn played(name: &str, points: Vec<(Option<f64>, Outcome)>) -> Rc<Played> {
    Rc::new(Played { name: name.into(), points, missing: Vec::new() })
}

/// The experiment of [`FILE`], its outcomes written by hand.
fn report() -> Report {
    let with = outcome(&[("served_share", 0.25), ("origin_capacity_rps", 500.0)], &[3, 8, 1]);
    let step = |goodput| outcome(&[("goodput_rps", goodput)], &[]);
    let runs = vec![
        played("with", vec![(None, with)]),
        played("steps", vec![(Some(1.0), step(9.0)), (Some(2.5), step(4.0))]),
    ];
    Report::new(&parse(FILE).expect("experiment"), Way::Real, 12.5, runs)
}

#[test]
fn a_report_lays_ours_beside_the_papers() {
    let report = report();
    let [zeta, alpha] = report.figures.as_slice() else { panic!("two figures") };
    assert_eq!((zeta.ours, zeta.paper, zeta.ratio()), (Some(0.25), Some(0.5), Some(0.5)));
    assert_eq!((alpha.ours, alpha.paper, alpha.ratio()), (Some(9.0), None, None));
    let (name, plot) = &report.plots[0];
    assert_eq!((name.as_str(), &plot.lines[0].points), ("door", &vec![(0.0, 3.0), (1.0, 8.0), (2.0, 1.0)]));
    assert_eq!(plot.h_lines, [("capacity".to_owned(), 500.0)]);
    let expected = serde_json::json!({ "experiments": [{
        "name": "small", "paper": "WebQ", "figure": "Fig. 0", "mode": "real", "seconds": 12.5,
        "quantities": {
            "zeta": { "unit": "1", "paper": 0.5, "ours": 0.25 },
            "alpha": { "unit": "req/s", "paper": null, "ours": 9.0 },
        },
    }] });
    assert_eq!(output::json(&[report]), expected);
}

#[test]
fn missing_runs_are_marked_and_the_rest_is_kept() {
    let mut report = report();
    let mut with = Played::clone(&report.runs[0]);
    with.points.clear();
    with.missing.push("with: the origin ended".into());
    let runs = vec![Rc::new(with), Rc::clone(&report.runs[1])];
    report = Report::new(&parse(FILE).expect("experiment"), Way::Real, 1.0, runs);
    let json = report.json();
    assert_eq!(json["partial"], serde_json::json!(["with: the origin ended"]));
    assert_eq!(json["quantities"]["zeta"]["ours"], serde_json::Value::Null);
    assert_eq!(json["quantities"]["alpha"]["ours"], 9.0);
    assert!(output::table(&[report]).contains("PARTIAL: with: the origin ended"));
}

#[test]
fn tables_show_three_digits() {
    for (figure, text) in [
        (None, "-"),
        (Some(0.0), "0"),
        (Some(1.0), "1"),
        (Some(0.12345), "0.123"),
        (Some(0.000_012_34), "0.000012"),
        (Some(12.345), "12.3"),
        (Some(1234.5), "1234"),
        (Some(100_000.0), "100000"),
        (Some(-2.5), "-2.5"),
    ] {
        assert_eq!(crate::report::units::cell(figure), text);
    }
    let csv = output::results_csv(&[report()]);
    assert_eq!(csv.lines().nth(1), Some("small,real,zeta,1,0.5,0.25,0.5"));
    assert_eq!(csv.lines().nth(2), Some("small,real,alpha,req/s,,9,"));
    assert_eq!(output::run_csv(&report().runs[1]), "value,goodput_rps\n1,9\n2.5,4\n");
}

#[test]
fn a_folder_holds_everything() {
    let dir = std::env::temp_dir().join(format!("tidegate-output-{}", std::process::id()));
    let mut report = report();
    report.about = "<b>bold</b>".into();
    output::write(&[report], &dir).expect("written");
    let read = |file: &str| {
        std::fs::read_to_string(dir.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    let page = read("index.html");
    assert!(
        page.contains("&lt;b&gt;bold") && page.contains("<svg") && page.contains("<td>0.25</td>"),
        "{page}"
    );
    assert!(read("small/door.svg").starts_with("<svg"));
    assert!(read("small/with.csv").starts_with("t,offered"));
    let json: serde_json::Value = serde_json::from_str(&read("results.json")).expect("JSON");
    assert_eq!(json["experiments"][0]["name"], "small");
    std::fs::remove_dir_all(&dir).expect("removed");
}

#[test]
fn the_origins_seconds_are_laid_beside_the_loads() {
    // It began 2.3 s before the load did: its second 2 ends 0.7 s into the load.
    let origin: real::OriginSeries = serde_json::from_str(
        r#"{"started_us": 999999997700000, "seconds": [
            {"t":0,"arrived":1,"served":1,"refused":0,"wasted":0,"present":0},
            {"t":1,"arrived":0,"served":0,"refused":0,"wasted":0,"present":0},
            {"t":2,"arrived":5,"served":4,"refused":0,"wasted":0,"present":1},
            {"t":3,"arrived":7,"served":8,"refused":0,"wasted":0,"present":0},
            {"t":4,"arrived":0,"served":0,"refused":0,"wasted":0,"present":0},
            {"t":5,"arrived":0,"served":0,"refused":0,"wasted":0,"present":0}]}"#,
    )
    .expect("series");
    let mut outcome = outcome(&[], &[0, 0]);
    real::merge(&mut outcome, &origin);
    let door: Vec<(u64, u64, u64)> = outcome.series.iter().map(|s| (s.t, s.door, s.origin_present)).collect();
    assert_eq!(door, [(0, 5, 1), (1, 7, 0)], "what came before and after is left out");
    assert_eq!(outcome.figure("door_rps_max"), 7.0);
}

#[test]
fn the_estimate_of_a_gate_is_read() {
    use serde_json::json;

    let state =
        json!({ "response_ms": { "mean": 12.5, "p50": 1.0, "p99": 40.0 }, "capacity": { "rate": 1.0 } });
    let told = gate_watch::read(&json!({ "rate": 81.5, "max_in_flight": 12 }), &state);
    assert_eq!((told.capacity_rps, told.limit), (81.5, 12));
    assert_eq!((told.response_mean_ms, told.response_p99_ms), (12.5, 40.0));
    let nothing = gate_watch::read(&json!({ "rate": null }), &json!({ "response_ms": { "mean": null } }));
    assert_eq!(nothing, crate::outcome::GateSecond::default());
}

#[test]
fn a_tournament_is_reported_in_tables_and_by_name() {
    use crate::tournament::figures::Figures;
    use crate::tournament::play::Played;
    use crate::tournament::summary::Standing;

    let standing = |law: &str, share, ratio| {
        let figures = Figures::from([
            ("goodput_share", share),
            ("mean_rt_ratio", ratio),
            ("settle_s", f64::INFINITY),
            ("error_pct", 2.0),
        ]);
        Standing::new(law, "steady", &[figures])
    };
    let standings = vec![standing("vegas", 0.99, 2.5), standing("bottleneck", 0.98, 1.1)];
    let missing = vec!["vegas in steady, seed 7: panicked: oh".to_owned()];
    let plots = vec![("steady".to_owned(), crate::plot::Plot::default())];
    let played = Played { standings, plots, missing, truths: Vec::new() };
    let experiment =
        catalog::embedded("estimator-tournament").expect("known").unwrap_or_else(|m| panic!("{m}"));
    let report = standings::report(&experiment, Way::Sim, 1.0, "1..2", played);
    let json = report.json();
    let ours = |name: &str| &json["quantities"][name]["ours"];
    assert_eq!(
        (ours("vegas.steady.goodput_share"), ours("bottleneck.steady.error_pct")),
        (&0.99.into(), &2.0.into())
    );
    assert_eq!(ours("vegas.steady.settle_s"), &serde_json::Value::Null, "never is no number");
    assert_eq!(ours("bottleneck.all.goodput_share"), 0.98);
    assert_eq!(ours("bottleneck.all.near_first_pct"), 100.0);
    let verdict = &json["verdicts"]["steady"];
    assert_eq!(
        (&verdict["first"], &verdict["holds"]),
        (&"bottleneck".into(), &true.into()),
        "vegas is too slow"
    );
    assert_eq!(json["partial"][0], "vegas in steady, seed 7: panicked: oh");
    let table = output::table(std::slice::from_ref(&report));
    for text in ["(0.990 / 2.50)", "0.980 / 1.10", "never / 2.0 / -", "1 of 1", "PARTIAL: vegas in steady"] {
        assert!(table.contains(text), "{text}: {table}");
    }
    assert!(!table.contains("vegas.steady.goodput_share"), "hundreds of them: {table}");
    let page = page::page(&[report]);
    assert!(
        page.contains("<td>(0.990 / 2.50)</td>") && page.contains("vegas.steady.goodput_share"),
        "{page}"
    );
}

#[test]
fn ratios_of_nothing_are_left_out() {
    let figure =
        |paper, ours| Figure { name: String::new(), unit: String::new(), paper, ours, of: String::new() };
    assert_eq!(figure(Some(0.0), Some(1.0)).ratio(), None);
    assert_eq!(figure(Some(2.0), None).ratio(), None);
    assert_eq!(figure(Some(2.0), Some(1.0)).ratio(), Some(0.5));
}
