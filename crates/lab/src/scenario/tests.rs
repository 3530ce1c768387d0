//! The language: what it means, what it refuses and how it says so.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::crowd::Crowd;

mod closed;
mod service;

/// A scenario that is complete but for what a test adds.
const LEAST: &str = "[[arrivals.phase]]\nrate = 10\nfor = \"1s\"\n";

fn parse(text: &str) -> Result<Scenario, Mistakes> {
    Scenario::parse(text, "some/flash.toml", Path::new("some"), &[])
}

fn with(overrides: &[(&str, &str)], text: &str) -> Result<Scenario, Mistakes> {
    let overrides: Vec<_> = overrides.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    Scenario::parse(text, "flash.toml", Path::new(""), &overrides)
}

#[test]
fn least_of_all_scenarios_has_the_defaults() {
    let scenario = parse(LEAST).unwrap();
    assert_eq!((scenario.name.as_str(), scenario.about.as_str(), scenario.seed), ("flash", "", 1));
    assert_eq!((scenario.deadline, scenario.target, scenario.gate.is_none()), (None, None, true));
    assert_eq!(scenario.visitors, [Kind::default()]);
    assert_eq!(scenario.origin, OriginSpec::default());
    assert_eq!(scenario.faults, []);
    let phase = Phase { rate: Shape::Flat(10.0), lasts: Duration::from_secs(1), mix: Vec::new() };
    let arrivals = Arrivals::Phases { process: Process::Poisson, phases: vec![phase], repeat: 1 };
    assert_eq!(scenario.arrivals, arrivals);
}

/// Each text is refused with exactly these mistakes: position, key and the beginning of the expectation.
#[test]
fn mistakes_say_where_and_what() {
    let cases: &[(&str, &[&str])] = &[
        (
            "[arrivals]\n",
            &[
                "some/flash.toml:1:2: arrivals: expected [[arrivals.phase]], [arrivals.closed] or `replay`; got neither",
            ],
        ),
        ("[arrivals]\nphase = []\n", &["some/flash.toml:2:9: arrivals.phase: expected at least one phase"]),
        ("[arrivals\n", &["some/flash.toml:1:10: expected valid TOML"]),
    ];
    for (text, expected) in cases {
        said(text, expected);
    }
}

/// Lines added to a scenario that is fine, and what is said about them.
// Long because: it is a table.
#[test]
fn silly_values_are_refused() {
    let cases: &[(&str, &str)] = &[
        (
            "nme = 1",
            "1:1: nme: expected a section or a key of a scenario; got the unknown name \"nme\". Did you mean `name`?",
        ),
        ("name = \"a/b\"", "1:8: name: expected a name of 1 to 64 letters"),
        (
            "seed = -1",
            "1:8: seed: expected a whole number from 0 to 9223372036854775807; got -1 (an integer)",
        ),
        (
            "seed = \"7\"",
            "1:8: seed: expected a whole number from 0 to 9223372036854775807; got \"7\". Write 7 without quotes.",
        ),
        (
            "deadline = 300",
            "1:12: deadline: expected a time like \"250ms\", \"4s\" or \"1h30m\", more than 0; got 300 (an integer). Write \"300s\"?",
        ),
        ("deadline = \"0s\"", "1:12: deadline: expected a time"),
        (
            "target = \"http://a/\"",
            "1:10: target: expected a table of keys, like [target]; got \"http://a/\".",
        ),
        (
            "target.url = \"https://a/\"",
            "1:14: target.url: expected a URL like \"http://127.0.0.1:8080/\"; got \"https://a/\". Only http:// is spoken",
        ),
        (
            "target.url = \"127.0.0.1:80\"",
            "1:14: target.url: expected a URL like \"http://127.0.0.1:8080/\"; got \"127.0.0.1:80\". Write \"http://127.0.0.1:80\"?",
        ),
        ("target.url = \"ftp://a/\"", "1:14: target.url"),
        ("target.url = \"http://\"", "1:14: target.url"),
        ("target.url = \"http://user@a/\"", "1:14: target.url"),
        ("target.url = \"http://a:0/\"", "1:14: target.url"),
        ("target.url = \"http://a:99999/\"", "1:14: target.url"),
        ("target.url = \"http://a/#b\"", "1:14: target.url"),
        (
            "target.rate = 5",
            "1:8: target.rate: expected a key of [target]; got the unknown name \"rate\". `rate` exists in [arrivals.phase].",
        ),
        (
            "[visitor]\nname = \"a\"",
            "1:1: visitor: expected an array of tables; got a table. Write [[visitor]] with double brackets, once for each.",
        ),
        (
            "visitor = []\n[arrivals]\nrepeat = 0",
            "3:10: arrivals.repeat: expected a whole number from 1 to 1000000",
        ),
        (
            "arrivals.process = \"poison\"",
            "1:20: arrivals.process: expected \"poisson\" or \"constant\"; got \"poison\". Did you mean `poisson`?",
        ),
        (
            "arrivals.speed = 2",
            "1:18: arrivals.speed: expected `replay` with it; got a speed that has no effect",
        ),
        ("[[visitor]]\nweight = 0", "1:1: visitor: expected a weight above 0 for some visitor"),
        ("[[visitor]]\nweight = -1", "2:10: visitor.0.weight: expected a number from 0 to 1000000"),
        ("[[visitor]]\nweight = nan", "2:10: visitor.0.weight: expected a number from 0 to 1000000; got NaN"),
        (
            "[[visitor]]\nname = \"a\"\n[[visitor]]\nname = \"a\"",
            "4:8: visitor.a.name: expected names that differ; got \"a\" again",
        ),
        (
            "[[visitor]]\npath = \"search\"",
            "2:8: visitor.0.path: expected a path like \"/search?q={n}\", up to 8192 visible characters; got \"search\". Write \"/search\"?",
        ),
        ("[[visitor]]\npath = \"/a b\"", "2:8: visitor.0.path"),
        (
            "[[visitor]]\npath = \"/\"\nstep = [{}]",
            "2:8: visitor.0.path: expected `path` or [[visitor.step]]; got both",
        ),
        ("[[visitor]]\nstep = []", "2:8: visitor.0.step: expected at least one step"),
        (
            "[[visitor]]\nname = \"a\"\n[[visitor.step]]\nmethod = \"G T\"",
            "4:10: visitor.a.step.0.method: expected a method like \"GET\"",
        ),
        (
            "[[visitor]]\nstep = [{ method = \"get\" }]",
            "2:20: visitor.0.step.0.method: expected a method like \"GET\"; got \"get\". Write \"GET\"?",
        ),
        (
            "[[visitor]]\nstep = [{ method = \"CONNECT\" }]",
            "2:20: visitor.0.step.0.method: expected a method that asks for a path",
        ),
        (
            "[[visitor]]\nstep = [{ method = \"GET\", form = \"a=b\" }]",
            "2:20: visitor.0.step.0.method: expected a method that sends a form",
        ),
        ("[[visitor]]\nstep = [{ form = \"a b\" }]", "2:18: visitor.0.step.0.form: expected a form"),
        ("[[visitor]]\nstep = [{ think = \"never\" }]", "2:19: visitor.0.step.0.think: expected a time"),
        (
            "[[visitor]]\nno_show = 1.5",
            "2:11: visitor.0.no_show: expected a share from 0 to 1, or a percentage like \"20%\"; got 1.5 (a number). Write \"1.5%\"?",
        ),
        ("[[visitor]]\nretries = 256", "2:11: visitor.0.retries: expected a whole number from 0 to 255"),
        ("[[visitor]]\npatience = \"uniform(3s, 1s)\"", "2:12: visitor.0.patience: expected a time like"),
        ("[[visitor]]\npause = \"never\"", "2:9: visitor.0.pause: expected a time like"),
        (
            "[[visitor]]\nfollow = \"retry\"",
            "2:10: visitor.0.follow: expected \"page\", \"refresh\", \"retry-after\" or \"nothing\"",
        ),
        ("[origin]\nworkers = 0", "2:11: origin.workers: expected a whole number from 1 to 1000000"),
        ("[origin]\ncontention = inf", "2:14: origin.contention: expected a number from 0 to 1000; got inf"),
        ("[origin]\nmode = \"shop\"", "2:8: origin.mode: expected \"sleep\" or \"spin\""),
        ("[origin]\nreplicas = 0", "2:12: origin.replicas"),
        (
            "[origin]\nstage = [{ name = \"a\", servers = 0 }]",
            "2:34: origin.stage.a.servers: expected a whole number from 1 to 1000000",
        ),
        (
            "[origin]\nstage = [{ name = \"a\" }, { name = \"a\" }]",
            "2:35: origin.stage.a.name: expected names that differ; got \"a\" again",
        ),
        ("[origin]\nstage = [{}]", "2:10: origin.stage.0.name: expected a name of 1 to 64"),
        (
            "[origin]\npath = [{ path = \"/a\", demand = { ap = \"1s\" } }]",
            "2:35: origin.path.0.demand.ap: expected the name of a stage: \"app\"; got \"ap\". Did you mean `app`?",
        ),
        (
            "[origin]\npath = [{ path = \"/a\" }]",
            "2:9: origin.path.0.demand: expected a table of stages and times",
        ),
        ("[origin]\npath = [{ demand = {} }]", "2:9: origin.path.0.path: expected a path glob"),
        (
            "[origin]\npath = [{ path = \"**\", demand = {} }, { path = \"/a\", demand = {} }]",
            "2:48: origin.path.1.path: expected nothing after a path that matches everything",
        ),
        (
            "[origin]\nservice = \"1s\"\npath = [{ path = \"**\", demand = {} }]",
            "2:11: origin.service: expected `service` or a path that matches everything",
        ),
        (
            "[origin]\nchange = [{ at = \"1s\" }]",
            "2:18: origin.change.0.at: expected `replicas`, `workers`, `speed` or `errors` beside it",
        ),
        (
            "[origin]\nchange = [{ at = \"1s\", speed = 0 }]",
            "2:32: origin.change.0.speed: expected a number from 0.001 to 1000",
        ),
        (
            "[gate]\nroom.max_wiat = 5",
            "2:6: gate.room.max_wiat: expected a key of [room]; got the unknown name \"max_wiat\". Did you mean `max_wait`?",
        ),
        (
            "[gate]\nroom.classes = [\"a\"]",
            "2:17: gate.room.classes: expected the name of a [[class]]: \"default\"; got \"a\"",
        ),
        ("[gate]\nsplit = 1", "2:9: gate.split: expected true or false"),
        ("[gate]\norigin = 3", "2:10: gate.origin: expected a table of keys"),
        (
            "fault = [{ at = \"1s\", kind = \"crash\", replica = 1 }]",
            "1:49: fault.0.replica: expected a replica from 0 to 0; got 1",
        ),
        (
            "fault = [{ at = \"1s\", kind = \"crash\", factor = 2 }]",
            "1:48: fault.0.factor: expected no `factor` for kind \"crash\"",
        ),
        (
            "fault = [{ at = \"1s\", kind = \"slow\" }]",
            "1:10: fault.0.factor: expected a number (kind \"slow\" needs it)",
        ),
        ("fault = [{ kind = \"crash\" }]", "1:10: fault.0.at: expected a time"),
        ("fault = [{ at = \"1s\" }]", "1:10: fault.0.kind: expected \"crash\", \"slow\""),
        (
            "fault = [{ at = \"1s\", kind = \"restart\" }]",
            "1:30: fault.0.kind: expected a [gate] that can restart",
        ),
        (
            "fault = [{ at = \"1s\", kind = \"no-feedback\" }]",
            "1:30: fault.0.kind: expected a gate in two halves",
        ),
    ];
    let wrong: String = cases
        .iter()
        .map(|(lines, expected)| {
            unlike(&format!("{lines}\n{LEAST}"), &[&format!("some/flash.toml:{expected}")])
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong}");
}

/// Phases instead of the usual one.
// Long because: it is a table.
#[test]
fn silly_phases_are_refused() {
    let cases: &[(&str, &str)] = &[
        (
            "rate = -1\nfor = \"1s\"",
            "2:8: arrivals.phase.0.rate: expected a number from 0 to 10000000; got -1 (an integer)",
        ),
        (
            "rate = inf\nfor = \"1s\"",
            "2:8: arrivals.phase.0.rate: expected a number from 0 to 10000000; got inf",
        ),
        (
            "rate = 1e8\nfor = \"1s\"",
            "2:8: arrivals.phase.0.rate: expected a number from 0 to 10000000; got 100000000",
        ),
        (
            "rate = 5\nfor = \"0s\"",
            "3:7: arrivals.phase.0.for: expected a time like \"250ms\", \"4s\" or \"1h30m\", more than 0, or \"forever\"",
        ),
        ("rate = 5", "1:1: arrivals.phase.0.for: expected a time like"),
        (
            "for = \"1s\"",
            "1:1: arrivals.phase.0.rate: expected one of `rate`, `ramp` and `diurnal`; got none",
        ),
        (
            "rate = 5\nramp = [0, 5]\nfor = \"1s\"",
            "2:8: arrivals.phase.0.rate: expected one of `rate`, `ramp` and `diurnal`; got `rate` and `ramp`",
        ),
        (
            "ramp = [0]\nfor = \"1s\"",
            "2:8: arrivals.phase.0.ramp: expected two rates per second like [0, 600]",
        ),
        ("ramp = [0, -5]\nfor = \"1s\"", "2:12: arrivals.phase.0.ramp: expected a number from 0 to 10000000"),
        ("ramp = [0, 5]\nfor = \"forever\"", "3:7: arrivals.phase.0.for: expected a time: a ramp has an end"),
        (
            "diurnal = { low = 5, high = 1, period = \"1h\" }\nfor = \"1s\"",
            "2:19: arrivals.phase.0.diurnal.low: expected at most `high`; got 5 above 1",
        ),
        (
            "diurnal = { low = 5, high = 9, period = \"0s\" }\nfor = \"1s\"",
            "2:41: arrivals.phase.0.diurnal.period: expected a time",
        ),
        (
            "rate = 5\nfor = \"1s\"\nmix = { vistor = 1 }",
            "4:9: arrivals.phase.0.mix.vistor: expected the name of a [[visitor]]: \"visitor\"; got \"vistor\". Did you mean `visitor`?",
        ),
        (
            "rate = 5\nfor = \"1s\"\nmix = { visitor = 0 }",
            "4:7: arrivals.phase.0.mix: expected a share above 0 for some visitor",
        ),
        (
            "rate = 5\nfor = \"1s\"\nmix = 3",
            "4:7: arrivals.phase.0.mix: expected a table of visitors' names and shares",
        ),
        (
            "rate = 5\nfor = \"forever\"\n[[arrivals.phase]]\nrate = 5\nfor = \"1s\"",
            "3:7: arrivals.phase.0.for: expected a time: only the last phase may last forever",
        ),
        (
            "rate = 5\nfor = \"forever\"\n[arrivals]\nrepeat = 2",
            "3:7: arrivals.phase.0.for: expected a time: what never ends cannot be repeated",
        ),
        (
            "rate = 5\nfor = \"1s\"\n[arrivals]\nreplay = \"a.log\"",
            "1:1: arrivals.phase: expected no such key beside `replay`",
        ),
    ];
    let wrong: String = cases
        .iter()
        .map(|(phase, expected)| {
            unlike(&format!("[[arrivals.phase]]\n{phase}\n"), &[&format!("some/flash.toml:{expected}")])
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_replays_visitors_have_one_manner() {
    let replay = "[arrivals]\nreplay = \"a.log\"\n";
    let scenario = parse(&format!("{replay}speed = 2\n[[visitor]]\nretries = 7\n")).unwrap();
    assert_eq!(scenario.arrivals, Arrivals::Replay { log: "some/a.log".into(), speed: 2.0 });
    said(
        &format!("{replay}[[visitor]]\nname = \"a\"\n[[visitor]]\nname = \"b\"\n"),
        &["some/flash.toml:3:1: visitor: expected at most one [[visitor]] with `arrivals.replay`"],
    );
    said(
        &format!("{replay}[[visitor]]\npath = \"/x\"\n"),
        &["some/flash.toml:3:1: visitor: expected no `path` and no [[visitor.step]] with `arrivals.replay`"],
    );
}

fn said(text: &str, expected: &[&str]) {
    let wrong = unlike(text, expected);
    assert!(wrong.is_empty(), "{wrong}");
}

/// How the mistakes of a text differ from these; empty: not at all.
fn unlike(text: &str, expected: &[&str]) -> String {
    let Err(mistakes) = parse(text) else { return format!("{text}\nis accepted\n") };
    let said: Vec<String> = mistakes.0.iter().map(|mistake| mistake.to_string()).collect();
    let fits = said.len() == expected.len()
        && expected.iter().all(|start| said.iter().any(|line| line.starts_with(start)));
    if fits { String::new() } else { format!("{text}\nexpected {expected:#?}\n{mistakes}\n") }
}

#[test]
fn a_service_alone_has_no_visitors() {
    let nobody = |text: &str| Crowd::of(&parse(text).unwrap()).unwrap_err().to_string();
    for text in [
        "",
        "[[arrivals.phase]]\nrate = 0\nfor = \"1s\"\n",
        "arrivals.phase = [{ ramp = [0, 0], for = \"9s\" }]",
    ] {
        assert_eq!(
            nobody(text),
            "arrivals: expected a phase with a rate above 0 or a log to replay; got none: nobody would come"
        );
    }
}

#[test]
fn overrides_count_over_the_text() {
    let scenario = with(&[("arrivals.phase.0.rate", "600"), ("seed", "7"), ("about", "x y")], LEAST).unwrap();
    assert_eq!((scenario.seed, scenario.about.as_str()), (7, "x y"));
    let Arrivals::Phases { phases, .. } = scenario.arrivals else { panic!("{:?}", scenario.arrivals) };
    assert_eq!(phases[0].rate, Shape::Flat(600.0));
}

#[test]
fn a_gates_text_is_a_gates_file() {
    let scenario = parse(&format!(
        "{LEAST}[gate]\ncapacity.rate = 100\nroom.max_wait='10m'\nroom.classes=['a']\nsplit = true\n\
         [[gate.class]]\nname='a'\nmatch={{path='/x', header={{x-y='a \"b\" \\c'}}}}\n"
    ))
    .unwrap();
    let gate = scenario.gate.unwrap();
    assert!(gate.split);
    assert_eq!(Settings::parse(&gate.text, "gate.toml").unwrap(), gate.settings);
    assert_eq!(gate.settings.capacity.rate, 100.0);
    assert_eq!(gate.settings.origin.replicas, ["replica-0.invalid:80"]);
}
