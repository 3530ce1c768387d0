//! Visitors who come early, late, or with an altered or a used ticket.

use super::*;

const WAIT: Duration = Duration::from_secs(200);
const FOLLOWS: [Follow; 4] = [Follow::Page, Follow::Refresh, Follow::RetryAfter, Follow::Nothing];

/// When the one request of a detour is sent, as a share of the wait, for many seeds; all else must be as it
/// is for those who make none, but for the millisecond to which a plan is kept.
fn detours(plain: &Kind, kind: &Kind, ask: RequestKind) -> Vec<f64> {
    let (plain, mix) = (mix(plain.clone()), mix(kind.clone()));
    let same =
        |a: &(RequestKind, Duration), b: &(RequestKind, Duration)| a.0 == b.0 && a.1.abs_diff(b.1) <= MS;
    let shares: Vec<f64> = (0..200)
        .map(|seed| {
            let without = Room::of(WAIT).visit(&plain, person(seed));
            let mut with = Room::of(WAIT).visit(&mix, person(seed));
            let all = with.sent.iter().zip(&without.sent);
            let at = all.take_while(|(a, b)| same(a, b)).count();
            let (asked, when) = with.sent.remove(at);
            assert_eq!((asked, with.sent.len(), with.end), (ask, without.sent.len(), without.end));
            for (a, b) in with.sent.iter().zip(&without.sent) {
                assert!(same(a, b), "seed {seed}: {a:?} instead of {b:?}");
            }
            (when - CAME).as_secs_f64() / WAIT.as_secs_f64()
        })
        .collect();
    assert!(shares.iter().all(|share| (0.0..1.0).contains(share)));
    shares
}

#[test]
fn early_comers_ask_once_before_their_turn_and_go_on_as_before() {
    for follow in FOLLOWS {
        let plain = Kind { follow, ..kind() };
        let shares = detours(&plain, &Kind { early: 1.0, ..plain.clone() }, RequestKind::Page);
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        assert!((mean - 0.5).abs() < 0.07, "{follow:?}: {mean}");
    }
}

#[test]
fn tampering_happens_once_before_the_turn_and_changes_nothing_else() {
    for follow in FOLLOWS {
        let plain = Kind { follow, ..kind() };
        let shares = detours(&plain, &Kind { tamper: 1.0, ..plain.clone() }, RequestKind::Tampered);
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        assert!((mean - 0.5).abs() < 0.07, "{follow:?}: {mean}");
    }
}

#[test]
fn both_detours_in_either_order() {
    let mix = mix(Kind { early: 1.0, tamper: 1.0, ..kind() });
    let mut early_first = 0;
    for seed in 0..100 {
        let log = Room::of(WAIT).visit(&mix, person(seed));
        let (tampered, pages) = (log.times(RequestKind::Tampered), log.times(RequestKind::Page));
        assert_eq!((tampered.len(), pages.len()), (1, 2), "seed {seed}: {log:?}");
        early_first += u32::from(pages[0] < tampered[0]);
    }
    assert!((30..=70).contains(&early_first), "{early_first}");
}

#[test]
fn a_wait_missing_from_the_page_is_taken_from_the_status() {
    let told = Ok(Answer::Wait { has_status: true, after: None, refresh: None, poll: Some(S), full: false });
    let script = [(MS, told), (MS, status(State::Waiting, 150 * S, 100 * S))];
    let times: Vec<_> = (0..50)
        .map(|seed| {
            let log = play(Kind { early: 1.0, ..kind() }, seed, &script[..1]);
            // Within the first second, or else not before the status.
            let log = if log.asks() == [RequestKind::Status] {
                play(Kind { early: 1.0, ..kind() }, seed, &script)
            } else {
                log
            };
            log.times(RequestKind::Page).first().copied()
        })
        .collect();
    assert!(times.iter().all(Option::is_some), "{times:?}");
}

#[test]
fn coming_early_may_be_in_time_or_in_vain() {
    let kind = Kind { early: 1.0, retries: 0, ..kind() };
    for (outcome, noted, end) in [
        (Ok(Answer::Served), None, Some(End::Done)),
        (place(30 * S, S), Some(Noted::Nothing), None),
        (full(30 * S), Some(Noted::Nothing), None),
        (refused(), Some(Noted::Failed(Failure::Refused)), None),
        (Err(Failure::Patience), Some(Noted::Failed(Failure::Patience)), None),
    ] {
        let log = play(kind.clone(), 1, &[(MS, place(40 * S, 40 * S)), (MS, outcome)]);
        assert_eq!(log.end, end, "{outcome:?}");
        assert_eq!(log.asks()[0], RequestKind::Page);
        match noted {
            None => assert!(matches!(log.noted[1], Noted::Served { waited: Some(_), .. })),
            Some(noted) => {
                assert_eq!(log.noted[1], noted);
                assert_eq!(log.sent[1], (RequestKind::Status, CAME + MS + 40 * S), "{outcome:?}");
            }
        }
    }
}

#[test]
fn late_comers_miss_their_turn_once() {
    for follow in [Follow::Page, Follow::Refresh, Follow::RetryAfter] {
        let plain = Kind { follow, ..kind() };
        let late = Kind { late: 1.0, late_by: Dist::Fixed(7.0), ..plain.clone() };
        let room = Room::of(WAIT);
        let (plain, late) = (room.visit(&mix(plain), person(3)), room.visit(&mix(late), person(3)));
        let mut expected = plain.sent.clone();
        expected.last_mut().expect("comes").1 += 7 * S;
        assert_eq!((late.sent, late.end), (expected, plain.end), "{follow:?}");
    }
    // A visitor who lost the position by it is in time for the next.
    let ready = (MS, status(State::Ready, S, Duration::ZERO));
    let script = [(MS, place(9 * S, S)), ready, (MS, place(9 * S, S)), ready, (MS, Ok(Answer::Served))];
    let log = play(Kind { late: 1.0, late_by: Dist::Fixed(7.0), ..kind() }, 1, &script);
    assert_eq!(log.sent[1].1 - log.sent[0].1, 7 * S + MS);
    assert_eq!(log.sent[3].1 - log.sent[2].1, MS);
}

#[test]
fn the_answer_to_an_attack_decides_whether_it_succeeded() {
    let (in_, out) = (Noted::Attack { repelled: false }, Noted::Attack { repelled: true });
    let cases = [
        (Ok(Answer::Served), in_),
        (Ok(Answer::Refused(403)), out),
        (Ok(Answer::Refused(409)), out),
        (Ok(Answer::Refused(429)), out),
        (place(9 * S, S), out),
        (full(9 * S), out),
        (Ok(Answer::Refused(307)), Noted::Nothing),
        (Ok(Answer::Refused(404)), Noted::Failed(Failure::Refused)),
        (refused(), Noted::Failed(Failure::Refused)),
        (status(State::Ready, S, S), Noted::Failed(Failure::Refused)),
        (Err(Failure::Broken), Noted::Failed(Failure::Broken)),
    ];
    for (outcome, noted) in cases {
        let kind = Kind { tamper: 1.0, replay: 1.0, retries: 0, ..kind() };
        let script = [
            (MS, place(40 * S, 40 * S)),
            (MS, outcome),
            (MS, status(State::Ready, S, Duration::ZERO)),
            (MS, Ok(Answer::Served)),
            (MS, outcome),
        ];
        let log = play(kind, 1, &script);
        assert_eq!(
            log.asks(),
            [RequestKind::Tampered, RequestKind::Status, RequestKind::Page, RequestKind::Replayed],
            "{outcome:?}"
        );
        assert_eq!((log.noted[1], log.noted[4]), (noted, noted), "{outcome:?}");
        assert_eq!((log.served(), log.end), (1, Some(End::Done)), "{outcome:?}");
    }
}

#[test]
fn a_used_ticket_is_shown_once_after_a_wait() {
    let kind = Kind { replay: 1.0, steps: steps(&[2.0, 2.0, 2.0]), ..kind() };
    let log = Room { to_attacks: place(9 * S, S), ..Room::of(S) }.visit(&mix(kind.clone()), person(1));
    let [replayed] = log.times(RequestKind::Replayed)[..] else { panic!("{log:?}") };
    let entered = log.times(RequestKind::Page)[0];
    assert_eq!(replayed, entered, "at once, as the room answers at once");
    assert_eq!(log.times(RequestKind::Page)[1], replayed + 2 * S, "and then the session goes on");
    assert_eq!((log.served(), log.end), (3, Some(End::Done)));
    // A visitor who did not wait has no ticket to show again.
    let log = Room::of(Duration::ZERO).visit(&mix(kind), person(1));
    assert_eq!((log.times(RequestKind::Replayed).len(), log.served()), (0, 3));
}

#[test]
fn an_attack_without_a_ticket_is_left_out() {
    let mix = mix(Kind { tamper: 1.0, replay: 1.0, ..kind() });
    let mut visitor = Visitor::new(person(1), &mix);
    let skip = |visitor: &mut Visitor, ask| {
        assert_eq!(visitor.ask(), ask);
        let reaction = visitor.skip_attack(&mix, visitor.at());
        assert_eq!(reaction.noted, Noted::Nothing);
        reaction.next
    };
    visitor.receive(&mix, place(40 * S, 40 * S), CAME);
    assert_eq!(skip(&mut visitor, RequestKind::Tampered), Next::Send(CAME + 40 * S));
    assert_eq!(visitor.ask(), RequestKind::Status);
    visitor.receive(&mix, status(State::Ready, S, Duration::ZERO), visitor.at());
    visitor.receive(&mix, Ok(Answer::Served), visitor.at());
    assert_eq!(skip(&mut visitor, RequestKind::Replayed), Next::Leave(End::Done));
}

#[test]
fn shares_are_shares_and_have_nothing_to_do_with_each_other() {
    let kind = Kind { early: 0.3, late: 0.3, tamper: 0.3, replay: 0.3, no_show: 0.3, ..kind() };
    let mix = mix(Kind { late_by: Dist::Fixed(7.0), ..kind });
    let n = 2_000;
    let mut counts = [0_u32; 5];
    let mut all_of_those_who_come = 0;
    for seed in 0..n {
        let log = Room::of(WAIT).visit(&mix, person(seed));
        if log.end == Some(End::NoShow) {
            counts[0] += 1;
            assert_eq!(log.sent.len(), 0);
            continue;
        }
        let entered = log.noted.iter().find_map(|noted| match noted {
            Noted::Served { entered, .. } => Some(*entered),
            _ => None,
        });
        let traits = [
            log.times(RequestKind::Page).len() == 2,
            entered.is_some_and(|entered| entered >= CAME + WAIT + 7 * S),
            log.times(RequestKind::Tampered).len() == 1,
            log.times(RequestKind::Replayed).len() == 1,
        ];
        for (count, has) in counts[1..].iter_mut().zip(traits) {
            *count += u32::from(has);
        }
        all_of_those_who_come += u32::from(traits.iter().all(|has| *has));
    }
    let share = |count: u32| f64::from(count) / n as f64;
    assert!((share(counts[0]) - 0.3).abs() < 0.04, "{counts:?}");
    for count in &counts[1..] {
        assert!((share(*count) - 0.3 * 0.7).abs() < 0.04, "{counts:?}");
    }
    let expected = 0.7 * 0.3_f64.powi(4);
    assert!((share(all_of_those_who_come) - expected).abs() < 0.006, "{all_of_those_who_come}");
}
