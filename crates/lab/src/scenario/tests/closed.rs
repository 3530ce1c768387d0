//! `[arrivals.closed]` and steps with weights: what they come to, and what is said about slips.

use super::*;

const LOOP: &str = "[arrivals.closed]\nbrowsers = 2500\njoin = 50\nsettle = \"20s\"\nfor = \"30s\"\n";

#[test]
fn a_closed_loop_is_read() {
    let text = format!(
        "{LOOP}[[visitor]]\n[[visitor.step]]\npath = \"/a\"\nweight = 29\n[[visitor.step]]\npath = \"/b\"\nweight = 0.5\n"
    );
    let scenario = parse(&text).unwrap();
    let closed = scenario.closed().expect("a closed loop");
    assert_eq!((closed.browsers, closed.join, closed.lasts), (2500, 50.0, Duration::from_secs(30)));
    assert_eq!(closed.measured_from(), Duration::from_secs(70));
    assert_eq!(closed.ends(), Duration::from_secs(100));
    let weights: Vec<_> = scenario.visitors[0].steps.iter().map(|step| step.weight).collect();
    assert_eq!(weights, [Some(29.0), Some(0.5)]);
    let (mix, crowd) = Crowd::of(&scenario).unwrap();
    assert_eq!(mix.kinds[0].until, Some(Duration::from_secs(100)));
    assert_eq!((crowd.size_hint_visitors(), crowd.count()), (Some(2500.0), 2500));
    // Without a closed loop nobody stays.
    assert_eq!(Crowd::of(&parse(LEAST).unwrap()).unwrap().0.kinds[0].until, None);
}

#[test]
fn a_closed_loop_of_sessions_is_read() {
    let steps = "[[visitor]]\n[[visitor.step]]\npath = \"/a\"\n[[visitor.step]]\npath = \"/b\"\n";
    let scenario =
        parse(&format!("{LOOP}pause = \"uniform(16s, 40s)\"\ngood_under = \"5s\"\n{steps}")).unwrap();
    let rounds = Rounds { pause: Dist::Uniform(16.0, 40.0), good_under: Duration::from_secs(5) };
    assert_eq!(scenario.closed().and_then(|closed| closed.sessions), Some(rounds));
    assert_eq!(Crowd::of(&scenario).unwrap().0.kinds[0].sessions, Some(rounds));
    let scenario = parse(&format!("{LOOP}pause = \"30s\"\n{steps}")).unwrap();
    let rounds = scenario.closed().and_then(|closed| closed.sessions).expect("sessions");
    assert_eq!(rounds.good_under, Duration::MAX, "any answer will do");
    assert_eq!(Crowd::of(&parse(LOOP).unwrap()).unwrap().0.kinds[0].sessions, None);
}

// Long because: a table of mistakes with the words for each.
#[test]
fn mistakes_in_a_closed_loop_are_reported() {
    let file = "some/flash.toml";
    let cases: &[(String, &[&str])] = &[
        (
            "[arrivals.closed]\n".into(),
            &[
                ":1:11: arrivals.closed.browsers: expected a whole number from 1 to 1000000; got nothing",
                ":1:11: arrivals.closed.for: expected a time like \"250ms\"",
            ],
        ),
        (
            LOOP.replace("2500", "0"),
            &[":2:12: arrivals.closed.browsers: expected a whole number from 1 to 1000000; got 0"],
        ),
        (
            LOOP.replace("2500", "2.5"),
            &[":2:12: arrivals.closed.browsers: expected a whole number from 1 to 1000000; got 2.5"],
        ),
        (
            LOOP.replace("= 50", "= 0"),
            &[":3:8: arrivals.closed.join: expected a number from 0.001 to 1000000; got 0"],
        ),
        (LOOP.replace("\"30s\"", "\"0s\""), &[":5:7: arrivals.closed.for: expected a time like"]),
        (
            LOOP.replace("for", "fro"),
            &[":5:1: arrivals.closed.fro: expected a key of", ":1:11: arrivals.closed.for: expected a time"],
        ),
        (
            format!("[[arrivals.phase]]\nrate = 1\nfor = \"1s\"\n{LOOP}"),
            &[":1:1: arrivals.phase: expected no such key beside [arrivals.closed]"],
        ),
        (
            format!("[arrivals]\nprocess = \"constant\"\nreplay = \"a.log\"\n{LOOP}"),
            &[
                ":2:11: arrivals.process: expected no such key beside `replay`",
                ":2:11: arrivals.process: expected no such key beside [arrivals.closed]",
                ":3:10: arrivals.replay: expected no such key beside [arrivals.closed]",
            ],
        ),
        (
            format!("{LOOP}[[visitor]]\nstep = [{{ path = \"/a\", weight = 1 }}, {{ path = \"/b\" }}]\n"),
            &[":7:8: visitor.0.step: expected a weight in every step or in none; got 1 of 2"],
        ),
        (
            format!(
                "{LOOP}[[visitor]]\nstep = [{{ path = \"/a\", weight = 0 }}, {{ path = \"/b\", weight = 0 }}]\n"
            ),
            &[":7:8: visitor.0.step: expected a weight above 0 in some step; got none"],
        ),
        (
            format!("{LEAST}[[visitor]]\nname = \"walker\"\nstep = [{{ path = \"/a\", weight = 1 }}]\n"),
            &[":4:1: visitor: expected [arrivals.closed] with steps drawn by weight"],
        ),
        (
            format!("{LOOP}[[visitor]]\nname = \"thief\"\nreplay = 0.1\n"),
            &[":6:1: visitor: expected no `tamper` or `replay` in a closed loop"],
        ),
    ];
    let sessions: &[(String, &[&str])] = &[
        (
            format!("{LOOP}good_under = \"5s\"\n"),
            &[":6:14: arrivals.closed.good_under: expected `pause` with it"],
        ),
        (format!("{LOOP}pause = \"never\"\n"), &[":6:9: arrivals.closed.pause: expected a time like"]),
        (
            format!("{LOOP}pause = \"3s\"\n[[visitor]]\nstep = [{{ path = \"/a\", weight = 1 }}]\n"),
            &[":7:1: visitor: expected steps without weights beside `arrivals.closed.pause`"],
        ),
    ];
    let mut wrong = String::new();
    for (text, expected) in cases.iter().chain(sessions) {
        let expected: Vec<String> = expected.iter().map(|rest| format!("{file}{rest}")).collect();
        wrong += &unlike(text, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }
    assert!(wrong.is_empty(), "{wrong}");
}
