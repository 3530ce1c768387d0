//! Browsers of a closed loop: they stay, think, and ask for what is drawn.

use super::*;
use crate::scenario::Rounds;

/// Until then the loop goes on.
const UNTIL: Duration = Duration::from_secs(100_000);

fn browser(weights: &[Option<f64>]) -> Kind {
    let step =
        |weight: &Option<f64>| Step { weight: *weight, think: Dist::Exponential(7.0), ..Step::default() };
    Kind { steps: weights.iter().map(step).collect(), until: Some(UNTIL), ..kind() }
}

/// Feeds the same outcome until the visitor leaves: the steps asked for, each with when.
fn goes_round(kind: Kind, seed: u64, outcome: Outcome) -> Vec<(u8, Duration)> {
    let mix = mix(kind);
    let mut visitor = Visitor::new(person(seed), &mix);
    let mut asked = vec![(visitor.step(), visitor.at())];
    while let Next::Send(at) = visitor.receive(&mix, outcome, visitor.at() + MS).next {
        assert!(at < UNTIL, "{at:?}");
        asked.push((visitor.step(), at));
    }
    asked
}

#[test]
fn pages_come_as_their_weights_say_and_thoughts_as_long() {
    let asked = goes_round(browser(&[Some(29.0), Some(0.0), Some(11.0)]), 1, Ok(Answer::Served));
    // 100,000 s of 7 s each: some 14,000 pages, of which 29 in 40 are the first.
    assert!(asked.len() > 13_000 && asked.len() < 15_600, "{}", asked.len());
    let share =
        |wanted: u8| asked.iter().filter(|(step, _)| *step == wanted).count() as f64 / asked.len() as f64;
    assert_eq!(share(1), 0.0);
    // Five standard deviations are 0.02.
    assert!((share(0) - 29.0 / 40.0).abs() < 0.02, "{}", share(0));
    let thoughts: Vec<f64> = asked.windows(2).map(|pair| (pair[1].1 - pair[0].1).as_secs_f64()).collect();
    let mean = thoughts.iter().sum::<f64>() / thoughts.len() as f64;
    let spread = (thoughts.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / thoughts.len() as f64).sqrt();
    assert!((mean - 7.0).abs() < 0.3 && (spread / mean - 1.0).abs() < 0.05, "{mean} {spread}");
}

#[test]
fn steps_without_weights_come_in_their_order() {
    let asked = goes_round(browser(&[None, None, None]), 2, Ok(Answer::Served));
    assert!(asked.iter().enumerate().all(|(i, (step, _))| usize::from(*step) == i % 3));
}

#[test]
fn the_answers_do_not_change_the_pages_asked_for() {
    let served = goes_round(browser(&[Some(1.0), Some(1.0)]), 3, Ok(Answer::Served));
    let kind = Kind { retries: 0, ..browser(&[Some(1.0), Some(1.0)]) };
    let refused = goes_round(kind, 3, refused());
    assert_eq!(served, refused, "each page once, served or given up for good");
}

#[test]
fn no_visitor_leaves_before_the_end_for_any_outcomes() {
    let full = || full(S);
    for (name, kind, outcome) in [
        ("tired", Kind { wait_limit: Dist::Fixed(0.0), ..browser(&[None]) }, place(9 * S, S)),
        ("no show", Kind { no_show: 1.0, ..browser(&[None]) }, place(9 * S, S)),
        ("out of retries", Kind { retries: 2, ..browser(&[None]) }, refused()),
        ("out of patience", browser(&[None]), Err(Failure::Patience)),
        ("room full", browser(&[None]), full()),
    ] {
        let asked = goes_round(kind, 4, outcome);
        assert!(asked.last().is_some_and(|(_, at)| *at > UNTIL - 200 * S), "{name}: {:?}", asked.last());
        assert!(asked.len() > 5_000, "{name}: {}", asked.len());
    }
}

#[test]
fn a_page_is_asked_for_again_until_retries_end() {
    let mix = mix(Kind { retries: 2, ..browser(&[Some(1.0), Some(1.0), Some(1.0), Some(1.0)]) });
    let mut visitor = Visitor::new(person(5), &mix);
    let (step, number) = (visitor.step(), visitor.path_number());
    for _ in 0..2 {
        visitor.receive(&mix, refused(), visitor.at() + MS);
        assert_eq!((visitor.step(), visitor.path_number()), (step, number), "the same page");
    }
    visitor.receive(&mix, refused(), visitor.at() + MS);
    assert_ne!(visitor.path_number(), number, "another page");
}

/// Sessions of three steps that think 3 s, 30 s apart; an answer of a second is late.
fn shopper(retries: u8) -> Kind {
    let sessions = Some(Rounds { pause: Dist::Fixed(30.0), good_under: S });
    Kind { steps: steps(&[3.0, 3.0, 3.0]), retries, sessions, until: Some(UNTIL), ..kind() }
}

/// Feeds outcomes, each after so long: the step asked for next and the time until then, and how the session
/// ended.
fn shops(kind: Kind, script: &[(Duration, Outcome)]) -> Vec<(u8, Duration, Option<SessionEnd>)> {
    let mix = mix(kind);
    let mut visitor = Visitor::new(person(6), &mix);
    let mut log = Vec::new();
    for (takes, outcome) in script {
        let now = visitor.at() + *takes;
        let reaction = visitor.receive(&mix, *outcome, now);
        log.push((visitor.step(), visitor.at() - now, reaction.session));
    }
    log
}

#[test]
fn a_session_is_its_steps_in_order_and_then_a_pause() {
    let (served, late) = ((MS, Ok(Answer::Served)), (S, Ok(Answer::Served)));
    let (good, slow) = (Some(SessionEnd::Good), Some(SessionEnd::Slow));
    let (think, pause) = (3 * S, 30 * S);
    assert_eq!(
        shops(shopper(0), &[served, served, served, served, late, served, served]),
        [
            (1, think, None),
            (2, think, None),
            (0, pause, good),
            (1, think, None),
            (2, think, None),
            (0, pause, slow),
            (1, think, None)
        ]
    );
}

#[test]
fn a_session_that_is_refused_ends_and_another_begins_after_the_pause() {
    let (served, refused) = ((MS, Ok(Answer::Served)), (MS, refused()));
    let (away, broken, good) = (SessionEnd::TurnedAway, SessionEnd::Broken, SessionEnd::Good);
    let (think, pause) = (3 * S, 30 * S);
    assert_eq!(
        shops(shopper(0), &[refused, served, refused, served, served, served]),
        [
            (0, pause, Some(away)),
            (1, think, None),
            (0, pause, Some(broken)),
            (1, think, None),
            (2, think, None),
            (0, pause, Some(good))
        ]
    );
    let again = shops(shopper(1), &[served, refused, served, served]);
    assert_eq!(again[1], (1, S, None), "the same step, after the pause before a retry");
    assert_eq!(again[3].2, Some(SessionEnd::Slow), "a step that took two attempts");
}

/// A gate's refusal says when to come again, and a browser's page does; a visitor who follows the paper rests
/// and begins anew.
#[test]
fn a_session_that_a_gate_turns_away_is_not_tried_again_before_the_pause() {
    let away = (MS, Ok(Answer::TurnedAway { after: Some(2 * S), refresh: Some(2 * S) }));
    let pause = 30 * S;
    let log = shops(shopper(0), &[away, (MS, Ok(Answer::Served))]);
    assert_eq!(log[0], (0, pause, Some(SessionEnd::TurnedAway)));
    let open = play(kind(), 1, &[away, (MS, Ok(Answer::Served))]);
    assert_eq!(open.end, Some(End::Done), "in the open it comes again: {:?}", open.noted);
    assert!(matches!(open.noted[..], [Noted::ToldFull, Noted::Served { .. }]), "{:?}", open.noted);
}

#[test]
fn a_visitor_who_waits_and_is_served_has_a_good_session() {
    let (served, wait) = ((MS, Ok(Answer::Served)), (MS, place(9 * S, S)));
    let (status, ready) =
        ((MS, status(State::Waiting, S, 8 * S)), (MS, status(State::Ready, S, Duration::ZERO)));
    let log = shops(shopper(0), &[wait, status, ready, served, served, served]);
    assert_eq!(log[5].2, Some(SessionEnd::Good));
    assert!(log[..5].iter().all(|(.., end)| end.is_none()));
}
