//! `[origin]`: what may come over a service, and what is said about slips.

use super::*;

#[test]
fn a_hard_service_is_read() {
    let text = "[origin]\nservice = \"lognormal(20ms, cv 1)\"\npause = { every = \"2s\", lasts = \"100ms\" }\n\
                neighbour = { every = \"exponential(9s)\", lasts = \"3s\", speed = 0.6 }\n\
                stage = [{ name = \"app\", servers = 8, discipline = \"sharing\" }]\n\
                path = [{ path = \"/a\", demand = {}, stream = \"5s\", errors = \"30%\", error_demand = \"2ms\", error_status = 503 }]\n\
                change = [{ at = \"9s\", errors = 0.5 }]\n";
    let origin = parse(text).unwrap().origin;
    assert_eq!(origin.stages, [Stage { discipline: Discipline::Sharing, ..Stage::new("app", 8) }]);
    let pause = Spell { every: Dist::Fixed(2.0), lasts: Dist::Fixed(0.1), speed: 0.0 };
    let neighbour = Spell { every: Dist::Exponential(9.0), lasts: Dist::Fixed(3.0), speed: 0.6 };
    assert_eq!((origin.pause, origin.neighbour), (Some(pause), Some(neighbour)));
    let errors = Errors { share: 0.3, demand: Dist::Fixed(0.002), status: 503 };
    assert_eq!((origin.paths[0].stream, origin.paths[0].errors), (Some(Dist::Fixed(5.0)), errors));
    assert_eq!((origin.paths[1].stream, origin.paths[1].errors), (None, Errors::default()));
    assert_eq!(origin.paths[1].demand, [(0, Dist::lognormal(0.02, 1.0))]);
    let change = Change { at: Duration::from_secs(9), errors: Some(0.5), ..Change::default() };
    assert_eq!(origin.changes, [change]);
    assert!((origin.availability() - 0.95 * (1.0 - 0.4 / 3.0)).abs() < 1e-12);
}

#[test]
fn stalls_of_the_machine_are_read() {
    let stall = parse("stall = { every = \"exponential(5s)\", lasts = \"100ms\" }\n").unwrap().stall;
    let expected = Spell { every: Dist::Exponential(5.0), lasts: Dist::Fixed(0.1), speed: 0.0 };
    assert_eq!(stall, Some(expected));
    let mistakes = parse("stall = { every = \"1s\", lasts = \"2s\" }\n").unwrap_err().to_string();
    let expected = "stall.lasts: expected a time shorter than `every` in the mean; got \"2s\" every \"1s\"";
    assert!(mistakes.contains(expected), "{mistakes}");
}

#[test]
fn silly_services_are_refused() {
    let cases: &[(&str, &str)] = &[
        (
            "stage = [{ name = \"a\", discipline = \"ps\" }]",
            "2:37: origin.stage.a.discipline: expected \"fifo\" or \"sharing\"; got \"ps\"",
        ),
        (
            "mode = \"spin\"\nstage = [{ name = \"a\", discipline = \"sharing\" }]",
            "3:37: origin.stage.a.discipline: expected mode \"sleep\" with `discipline`; got mode \"spin\"",
        ),
        (
            "mode = \"spin\"\npause = { every = \"1s\", lasts = \"9ms\" }",
            "3:9: origin.pause: expected mode \"sleep\" with `pause`",
        ),
        ("pause = { lasts = \"1s\" }", "2:1: origin.pause.every: expected a time like"),
        (
            "pause = { every = \"exponential(1s)\", lasts = \"uniform(1s, 3s)\" }",
            "2:46: origin.pause.lasts: expected a time shorter than `every` in the mean; got \"uniform(1s, 3s)\" every \"exponential(1s)\"",
        ),
        (
            "pause = { every = \"uniform(0, 1ms)\", lasts = \"0\" }",
            "2:19: origin.pause.every: expected a time of 1 ms or more in the mean; got \"uniform(0s, 0.001s)\"",
        ),
        (
            "pause = { every = \"1s\", lasts = \"9ms\", speed = 0.5 }",
            "2:40: origin.pause.speed: expected a key of [origin.pause]; got the unknown name \"speed\"",
        ),
        (
            "neighbour = { every = \"9s\", lasts = \"3s\" }",
            "2:1: origin.neighbour.speed: expected a number from 0.001 to 1; got nothing",
        ),
        (
            "path = [{ path = \"/a\", demand = {}, stream = \"never\" }]",
            "2:46: origin.path.0.stream: expected a time like",
        ),
        (
            "path = [{ path = \"/a\", demand = {}, errors = 2 }]",
            "2:46: origin.path.0.errors: expected a share from 0 to 1",
        ),
        (
            "path = [{ path = \"/a\", demand = {}, error_status = 404 }]",
            "2:52: origin.path.0.error_status: expected a whole number from 500 to 599; got 404",
        ),
        (
            "mode = \"spin\"\nchange = [{ at = \"1s\", errors = 0.1 }]",
            "3:33: origin.change.0.errors: expected mode \"sleep\" with `errors`",
        ),
        ("service = \"bimodal(1ms, 2ms, 1.5)\"", "2:11: origin.service: expected a time like \"100ms\", "),
    ];
    let wrong: String = cases
        .iter()
        .map(|(lines, expected)| {
            unlike(&format!("[origin]\n{lines}\n{LEAST}"), &[&format!("some/flash.toml:{expected}")])
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong}");
}
