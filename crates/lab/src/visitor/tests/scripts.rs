//! Answers, and the visitor's reactions.

use super::*;

#[test]
fn served_at_once() {
    let log = play(kind(), 1, &[(100 * MS, Ok(Answer::Served))]);
    assert_eq!(log.end, Some(End::Done));
    let served =
        Noted::Served { step: 0, entered: CAME, response: 100 * MS, waited: None, waited_since: CAME };
    assert_eq!((log.sent.len(), log.noted), (0, vec![served]));
}

#[test]
fn waits_polls_and_enters() {
    let script = [
        (2 * MS, place(30 * S, 750 * MS)),
        (2 * MS, status(State::Waiting, 4 * S, 29 * S)),
        (2 * MS, status(State::Unavailable, S, 28 * S)),
        (2 * MS, status(State::Ready, 2 * S, Duration::ZERO)),
        (120 * MS, Ok(Answer::Served)),
    ];
    let log = play(kind(), 1, &script);
    assert_eq!(
        log.asks(),
        [RequestKind::Status, RequestKind::Status, RequestKind::Status, RequestKind::Page]
    );
    let at: Vec<_> = log.sent.iter().map(|(_, at)| *at).collect();
    assert_eq!(at[0], CAME + 752 * MS, "when the page says");
    for (gap, poll) in [(at[1] - at[0], 4 * S), (at[2] - at[1], S)] {
        let jitter = (gap - 2 * MS).as_secs_f64() / poll.as_secs_f64();
        assert!((0.95..=1.05).contains(&jitter), "{gap:?} for {poll:?}");
    }
    assert_eq!(at[3], at[2] + 2 * MS, "at once");
    let waited = Some(at[3] - CAME);
    let entered = at[3];
    let told = Noted::ToldToWait { wait: Some(30 * S), at: CAME };
    let served = Noted::Served { step: 0, entered, response: 120 * MS, waited, waited_since: CAME };
    assert_eq!(log.noted, [told, Noted::Nothing, Noted::Nothing, Noted::Nothing, served]);
    assert_eq!(log.end, Some(End::Done));
}

/// What each kind of visitor follows, and its default.
#[test]
fn told_to_wait() {
    let wait = |has_status, after: Option<u32>, refresh: Option<u32>, poll: Option<u32>| {
        let [after, refresh, poll] = [after, refresh, poll].map(|ms| ms.map(|ms| ms * MS));
        Ok(Answer::Wait { has_status, after, refresh, poll, full: false })
    };
    let all = |has_status| wait(has_status, Some(30_400), Some(20_000), Some(700));
    let (page, refresh, retry, nothing) =
        (Follow::Page, Follow::Refresh, Follow::RetryAfter, Follow::Nothing);
    for (follow, answer, ask, delay) in [
        (page, all(true), RequestKind::Status, 700 * MS),
        (page, wait(true, Some(30_400), None, None), RequestKind::Status, 30 * S),
        (page, wait(true, None, None, None), RequestKind::Status, S),
        (page, all(false), RequestKind::Page, 20 * S),
        (page, wait(false, Some(30_400), None, None), RequestKind::Page, 31 * S),
        (page, wait(false, None, None, None), RequestKind::Page, 5 * S),
        (refresh, all(true), RequestKind::Page, 20 * S),
        (refresh, wait(true, Some(30_400), None, None), RequestKind::Page, 30 * S),
        (refresh, wait(true, None, None, Some(700)), RequestKind::Page, 5 * S),
        (retry, all(true), RequestKind::Page, 30 * S),
        (retry, wait(true, Some(0), None, None), RequestKind::Page, S),
        (retry, wait(true, None, Some(7_000), None), RequestKind::Page, 7 * S),
        (retry, wait(true, None, None, None), RequestKind::Page, 5 * S),
        (nothing, all(true), RequestKind::Page, S),
    ] {
        let log = play(Kind { follow, ..kind() }, 1, &[(MS, answer)]);
        assert_eq!(log.sent, [(ask, CAME + MS + delay)], "{follow:?} {answer:?}");
    }
}

#[test]
fn a_page_asks_by_itself_for_a_lost_position() {
    for state in [State::Expired, State::Redeemed, State::Other, State::Full] {
        let script = [
            (MS, place(9 * S, S / 2)),
            (MS, status(state, 20 * S, Duration::ZERO)),
            (MS, place(9 * S, S / 2)),
            (MS, status(State::Ready, S, Duration::ZERO)),
            (MS, Ok(Answer::Served)),
        ];
        let delays: Vec<_> = (0..50)
            .map(|seed| {
                let log = play(kind(), seed, &script);
                assert_eq!(
                    log.asks(),
                    [RequestKind::Status, RequestKind::Page, RequestKind::Status, RequestKind::Page],
                    "{state:?}"
                );
                let told = log.noted.iter().filter(|noted| matches!(noted, Noted::ToldToWait { .. }));
                assert_eq!(told.count(), 1, "{state:?}: it is one wait");
                let Some(Noted::Served { waited: Some(waited), .. }) = log.noted.last() else {
                    panic!("{log:?}")
                };
                assert_eq!(*waited, log.sent[3].1 - CAME, "counted from the arrival");
                log.sent[1].1 - log.sent[0].1 - MS
            })
            .collect();
        assert!(delays.iter().all(|delay| *delay <= 2 * S), "{state:?}");
        assert!(
            delays.iter().max() > Some(&(3 * S / 2)) && delays.iter().min() < Some(&(S / 2)),
            "{state:?}"
        );
    }
}

#[test]
fn a_full_room_is_tried_again_when_it_says() {
    for (follow, from, to) in [
        (Follow::Page, 60 * S, 63 * S),
        (Follow::Refresh, 60 * S, 60 * S),
        (Follow::RetryAfter, 60 * S, 60 * S),
        (Follow::Nothing, S, S),
    ] {
        let kind = Kind { follow, late: 1.0, ..kind() };
        let log = play(kind, 1, &[(MS, full(60 * S)), (MS, full(60 * S)), (MS, Ok(Answer::Served))]);
        assert_eq!(log.asks(), [RequestKind::Page, RequestKind::Page]);
        let delay = log.sent[0].1 - CAME - MS;
        assert!((from..=to).contains(&delay), "{follow:?}: {delay:?}");
        assert_eq!(log.noted[..2], [Noted::ToldFull, Noted::ToldFull]);
        let waited = Some(log.sent[1].1 - CAME);
        assert!(matches!(log.noted[2], Noted::Served { waited: w, .. } if w == waited), "{follow:?}");
    }
}

#[test]
fn a_visitor_who_finds_the_room_full_has_no_position() {
    let mix = mix(kind());
    let mut visitor = Visitor::new(person(1), &mix);
    let mut feed = |outcome| {
        let reaction = visitor.receive(&mix, outcome, visitor.at() + MS);
        (visitor.in_room(), reaction.noted)
    };
    let told = Noted::ToldToWait { wait: Some(9 * S), at: CAME };
    assert_eq!(feed(full(S)), (false, Noted::ToldFull));
    assert_eq!(feed(place(9 * S, S)), (true, told));
    assert_eq!(
        feed(status(State::Expired, S, Duration::ZERO)),
        (true, Noted::Nothing),
        "the page does not know yet"
    );
    assert_eq!(feed(full(S)), (false, Noted::ToldFull));
    assert!(matches!(feed(Ok(Answer::Served)), (false, Noted::Served { waited: Some(_), .. })));
}

#[test]
fn a_no_show_never_comes_back() {
    let kind = Kind { no_show: 1.0, ..kind() };
    for told in [place(9 * S, S), full(9 * S)] {
        assert_eq!(play(kind.clone(), 1, &[(MS, told)]).end, Some(End::NoShow));
    }
    // A visitor who need not wait is no no-show, and one who has been served may be one later.
    let served = [(MS, Ok(Answer::Served))];
    assert_eq!(play(kind.clone(), 1, &served).end, Some(End::Done));
    let log = play(
        Kind { steps: steps(&[0.0, 0.0]), ..kind },
        1,
        &[(MS, refused()), served[0], (MS, place(9 * S, S))],
    );
    assert_eq!((log.served(), log.end), (1, Some(End::NoShow)));
}

#[test]
fn tries_again_and_gives_up() {
    let script = [(MS, refused()), (5 * S, Err(Failure::Patience)), (MS, Err(Failure::Connect))];
    let log = play(kind(), 1, &script);
    let second = CAME + S + MS;
    assert_eq!(log.sent, [(RequestKind::Page, second), (RequestKind::Page, second + 6 * S)]);
    let failures = [Failure::Refused, Failure::Patience, Failure::Connect];
    assert_eq!(log.noted, failures.map(Noted::Failed));
    assert_eq!(log.end, Some(End::Failed(Failure::Connect)));
    assert_eq!(play(Kind { retries: 0, ..kind() }, 1, &script[..1]).end, Some(End::Failed(Failure::Refused)));
}

#[test]
fn a_senseless_answer_is_a_failure() {
    let log =
        play(kind(), 1, &[(MS, status(State::Ready, S, S)), (MS, place(9 * S, S)), (MS, Ok(Answer::Served))]);
    assert_eq!(
        (log.noted[0], log.noted[2]),
        (Noted::Failed(Failure::Refused), Noted::Failed(Failure::Refused))
    );
    assert_eq!(log.asks(), [RequestKind::Page, RequestKind::Status, RequestKind::Status]);
}

#[test]
fn response_time_is_that_of_the_request_that_was_served() {
    let log = play(kind(), 1, &[(5 * S, Err(Failure::Patience)), (300 * MS, Ok(Answer::Served))]);
    let (entered, response) = (CAME + 6 * S, 300 * MS);
    let served = Noted::Served { step: 0, entered, response, waited: None, waited_since: CAME };
    assert_eq!(log.noted[1], served);
}

#[test]
fn a_session_is_served_step_by_step() {
    let kind = Kind { steps: steps(&[2.0, 3.0, 9.0]), retries: 1, ..kind() };
    let script = [
        (MS, refused()),
        (MS, Ok(Answer::Served)),
        (MS, place(9 * S, S)),
        (MS, status(State::Ready, S, Duration::ZERO)),
        (MS, refused()),
        (MS, Ok(Answer::Served)),
        (MS, refused()),
        (MS, Ok(Answer::Served)),
    ];
    let log = play(kind.clone(), 1, &script);
    let second = CAME + S + 2 * MS + 2 * S;
    let entered = second + MS + S + MS + S + MS;
    let third = entered + MS + 3 * S;
    let served = |step, entered, waited, waited_since| Noted::Served {
        step,
        entered,
        response: MS,
        waited,
        waited_since,
    };
    let expected = [
        served(0, CAME + S + MS, None, CAME),
        served(1, entered, Some(entered - second), second),
        served(2, third + S + MS, None, third),
    ];
    let noted: Vec<_> = log.noted.into_iter().filter(|n| matches!(n, Noted::Served { .. })).collect();
    assert_eq!(noted, expected, "each step may fail once; each wait is its step's");
    assert_eq!(log.end, Some(End::Done));
    // The second failure of one step is the end of the session.
    let log = play(kind, 1, &[script[1], script[0], script[0]]);
    assert_eq!(log.end, Some(End::Failed(Failure::Refused)));
}

#[test]
fn a_session_of_more_steps_than_are_counted_ends() {
    let kind = Kind { steps: steps(&[0.0; 300]), ..kind() };
    let log = Room::of(Duration::ZERO).visit(&mix(kind), person(1));
    assert_eq!((log.served(), log.end), (256, Some(End::Done)));
}

#[test]
fn a_page_survives_a_gate_that_is_away_for_a_while() {
    let misses = |n: usize, outcome| std::iter::repeat_n((MS, outcome), n);
    let mut script = vec![(MS, place(900 * S, S))];
    script.extend(misses(10, Err(Failure::Connect)));
    script.push((MS, status(State::Waiting, S, 9 * S)));
    script.extend(misses(10, refused()));
    let log = play(kind(), 1, &script);
    assert_eq!((log.sent.len(), log.end), (script.len(), None));
    // Pauses double from one second to thirty, give or take half.
    for (n, pair) in log.sent[..11].windows(2).enumerate() {
        let share = (pair[1].1 - pair[0].1 - MS).as_secs_f64() / f64::from(1 << n).min(30.0);
        assert!((0.5..=1.5).contains(&share), "after {} misses: {share}", n + 1);
    }
    script.push((MS, Err(Failure::Broken)));
    assert_eq!(play(kind(), 1, &script).end, Some(End::Failed(Failure::Broken)));
}

#[test]
fn a_wait_can_be_too_long() {
    let kind = Kind { wait_limit: Dist::Fixed(30.0), retries: 9, pause: Dist::Fixed(40.0), ..kind() };
    let place = |poll| (MS, place(600 * S, poll));
    let ready = (MS, status(State::Ready, S, Duration::ZERO));
    for (script, end) in [
        (vec![place(31 * S)], Some(End::Tired)),
        (vec![place(29 * S)], None),
        (vec![place(20 * S), (MS, status(State::Waiting, 20 * S, S))], Some(End::Tired)),
        // A visitor whose turn comes in time goes in.
        (vec![place(29 * S), (2 * S, ready.1), (MS, Ok(Answer::Served))], Some(End::Done)),
        (vec![place(S), ready, (MS, refused())], Some(End::Tired)),
        (vec![(MS, full(31 * S))], Some(End::Tired)),
        // Without a room there is nothing to be tired of.
        (vec![(MS, refused()), (MS, refused()), (MS, Ok(Answer::Served))], Some(End::Done)),
    ] {
        assert_eq!(play(kind.clone(), 1, &script).end, end, "{script:?}");
    }
}

#[test]
fn patience_is_for_the_page_not_for_its_polls() {
    let mix = mix(kind());
    let mut visitor = Visitor::new(person(1), &mix);
    assert_eq!(visitor.gives_up_at(&mix), CAME + 5 * S);
    let Next::Send(at) = visitor.receive(&mix, place(9 * S, S), CAME + S).next else { panic!("waits") };
    assert_eq!(visitor.gives_up_at(&mix), at + STATUS_TIMEOUT);
    let patient = Kind { patience: Dist::Never, ..kind() };
    let patient = super::mix(patient);
    assert_eq!(Visitor::new(person(1), &patient).gives_up_at(&patient), Duration::MAX);
}

#[test]
fn people_differ_and_stay_as_they_are() {
    let mix = mix(Kind { patience: Dist::Uniform(0.0, 10.0), ..Kind::default() });
    let patience = |seed| {
        let visitor = Visitor::new(person(seed), &mix);
        assert_eq!(visitor.gives_up_at(&mix), visitor.gives_up_at(&mix));
        (visitor.gives_up_at(&mix) - CAME).as_secs_f64()
    };
    let n = 2_000;
    let drawn: Vec<f64> = (0..n).map(patience).collect();
    let mean = drawn.iter().sum::<f64>() / n as f64;
    let below = drawn.iter().filter(|p| **p < 1.0).count() as f64 / n as f64;
    assert!((mean - 5.0).abs() < 0.3, "{mean}");
    assert!((below - 0.1).abs() < 0.03, "{below}");
}

#[test]
fn each_step_has_a_number_for_its_path() {
    let mix = mix(Kind { steps: steps(&[0.0, 0.0]), ..kind() });
    let mut high = 0;
    for seed in 0..100 {
        let mut visitor = Visitor::new(person(seed), &mix);
        let first = visitor.path_number();
        visitor.receive(&mix, refused(), visitor.at());
        assert_eq!(visitor.path_number(), first, "the same request again");
        visitor.receive(&mix, Ok(Answer::Served), visitor.at());
        assert_ne!(visitor.path_number(), first);
        assert!(first < 1_000_000);
        high += u32::from(first >= 500_000);
    }
    assert!((30..=70).contains(&high), "{high}");
}

#[test]
fn a_storm_presses_reload_until_it_is_served() {
    let kind = Kind { follow: Follow::Nothing, pause: Dist::Uniform(0.5, 1.5), retries: 0, ..kind() };
    let log = Room::of(60 * S).visit(&mix(kind.clone()), person(1));
    assert_eq!((log.served(), log.end), (1, Some(End::Done)));
    assert!((45..=75).contains(&log.sent.len()), "{} requests", log.sent.len());
    assert!(log.asks().iter().all(|ask| *ask == RequestKind::Page));
    let gaps: Vec<_> = log.sent.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    assert!(gaps.iter().all(|gap| (S / 2..=3 * S / 2).contains(gap)));
    assert!(gaps.iter().max() > Some(&(S + S / 5)) && gaps.iter().min() < Some(&(S - S / 5)), "each its own");
    let kind = Kind { wait_limit: Dist::Fixed(20.0), ..kind };
    assert_eq!(Room::of(60 * S).visit(&mix(kind), person(1)).end, Some(End::Tired));
}
