//! Visits as scripts: what is answered, when, and what the visitor must do next.

use super::*;
use http::StatusCode;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn person() -> Person {
    Person {
        at: 10 * S,
        patience: 5 * S,
        pause: S,
        retries: 2,
        no_show: false,
        wait_limit: Duration::MAX,
        jitter: 0.5,
    }
}

fn room(after: Option<Duration>) -> Result<Answer, Failure> {
    Ok(Answer::Wait { status_path: Some("/news".into()), after, poll: Some(750 * MS) })
}

fn news(state: State, poll_ms: u64) -> Result<Answer, Failure> {
    Ok(Answer::News(News { state, poll_ms }))
}

fn refused() -> Result<Answer, Failure> {
    Ok(Answer::Refused(StatusCode::SERVICE_UNAVAILABLE))
}

/// Feeds outcomes, each so long after its request's intended time, and returns (what was asked, when it was sent)
/// for every request that followed, and the end.
fn play(
    person: Person,
    script: Vec<(Duration, Result<Answer, Failure>)>,
) -> (Vec<(Ask, Duration)>, Option<End>) {
    let mut visitor = Visitor::new(person);
    let (mut sent, mut at) = (Vec::new(), person.at);
    let last = script.len() - 1;
    for (step, (takes, outcome)) in script.into_iter().enumerate() {
        match visitor.receive(outcome, at + takes) {
            Next::Send(next) => {
                at = next;
                sent.push((visitor.ask(), at));
                let expected = if visitor.ask() == Ask::News { "/news" } else { "/page" };
                assert_eq!(visitor.path("/page"), expected);
            }
            Next::Leave(end) => {
                assert_eq!(step, last, "left before the script ended: {end:?}");
                return (sent, Some(end));
            }
        }
    }
    (sent, None)
}

#[test]
fn served_at_once() {
    let (sent, end) = play(person(), vec![(100 * MS, Ok(Answer::Served))]);
    assert!(sent.is_empty());
    assert_eq!(end, Some(End::Served { entered: 10 * S, response: 100 * MS, waited: None }));
}

#[test]
fn waits_polls_and_enters() {
    let script = vec![
        (2 * MS, room(Some(30 * S))),
        (2 * MS, news(State::Waiting, 4000)),
        (2 * MS, news(State::Waiting, 500)),
        (2 * MS, news(State::Ready, 2000)),
        (120 * MS, Ok(Answer::Served)),
    ];
    let (sent, end) = play(person(), script);
    let first = 10 * S + 2 * MS + 750 * MS;
    let second = first + 2 * MS + 4 * S;
    let third = second + 2 * MS + 500 * MS;
    let entered = third + 2 * MS;
    assert_eq!(sent, [(Ask::News, first), (Ask::News, second), (Ask::News, third), (Ask::Page, entered)]);
    assert_eq!(end, Some(End::Served { entered, response: 120 * MS, waited: Some(entered - 10 * S) }));
}

#[test]
fn a_lost_place_is_asked_for_again() {
    for (state, delay) in
        [(State::Expired, S), (State::Redeemed, S), (State::Other, S), (State::Full, 20 * S)]
    {
        let script = vec![
            (MS, room(Some(S / 2))),
            (MS, news(state, 20_000)),
            (MS, room(None)),
            (MS, news(State::Ready, 0)),
            (MS, Ok(Answer::Served)),
        ];
        let (sent, end) = play(person(), script);
        let asks: Vec<_> = sent.iter().map(|(ask, _)| *ask).collect();
        assert_eq!(asks, [Ask::News, Ask::Page, Ask::News, Ask::Page], "{state:?}");
        assert_eq!(sent[1].1 - sent[0].1, MS + delay, "{state:?}");
        let Some(End::Served { waited: Some(waited), .. }) = end else { panic!("{end:?}") };
        assert_eq!(waited, sent[3].1 - 10 * S, "counted from the arrival");
    }
}

#[test]
fn a_full_room_that_gives_no_place_is_tried_again_when_it_says() {
    let full = Ok(Answer::Wait { status_path: None, after: Some(60 * S), poll: None });
    let (sent, end) = play(person(), vec![(MS, full), (MS, Ok(Answer::Served))]);
    assert_eq!(sent, [(Ask::Page, 70 * S + MS)]);
    assert!(matches!(end, Some(End::Served { waited: Some(w), .. }) if w == 60 * S + MS), "{end:?}");
}

#[test]
fn a_no_show_never_comes_back() {
    let (sent, end) = play(Person { no_show: true, ..person() }, vec![(MS, room(None))]);
    assert_eq!((sent.len(), end), (0, Some(End::NoShow)));
    // Somebody who need not wait is no no-show.
    let (_, end) = play(Person { no_show: true, ..person() }, vec![(MS, Ok(Answer::Served))]);
    assert!(matches!(end, Some(End::Served { .. })), "{end:?}");
}

#[test]
fn tries_again_and_gives_up() {
    let script = vec![(MS, refused()), (5 * S, Err(Failure::Patience)), (MS, Err(Failure::Connect))];
    let (sent, end) = play(person(), script);
    let second = 11 * S + MS;
    assert_eq!(sent, [(Ask::Page, second), (Ask::Page, second + 6 * S)]);
    assert_eq!(end, Some(End::Failed(Failure::Connect)));
}

#[test]
fn response_time_is_that_of_the_request_that_was_served() {
    let (_, end) = play(person(), vec![(5 * S, Err(Failure::Patience)), (300 * MS, Ok(Answer::Served))]);
    assert_eq!(end, Some(End::Served { entered: 16 * S, response: 300 * MS, waited: None }));
}

#[test]
fn a_page_survives_a_gate_that_is_away_for_a_while() {
    let mut script = vec![(MS, room(None))];
    script.extend((0..MAX_MISSES).map(|_| (MS, Err(Failure::Connect))));
    script.push((MS, news(State::Waiting, 1000)));
    script.extend((0..MAX_MISSES).map(|_| (MS, refused())));
    let (sent, end) = play(person(), script.clone());
    assert_eq!((sent.len(), end), (script.len(), None));
    script.push((MS, Err(Failure::Broken)));
    assert_eq!(play(person(), script).1, Some(End::Failed(Failure::Broken)));
}

#[test]
fn a_wait_can_be_too_long() {
    let person = Person { wait_limit: 30 * S, ..person() };
    let script = vec![(MS, room(None)), (MS, news(State::Waiting, 29_500))];
    assert_eq!(play(person, script).1, Some(End::Tired));
}

#[test]
fn patience_is_for_the_page_not_for_its_polls() {
    let mut visitor = Visitor::new(person());
    assert_eq!(visitor.gives_up_at(), 15 * S);
    let Next::Send(at) = visitor.receive(room(None), 11 * S) else { panic!("waits") };
    assert_eq!(visitor.gives_up_at(), at + NEWS_TIMEOUT);
}

#[test]
fn being_told_to_wait_is_no_failure() {
    let cases = [
        (Ask::Page, Ok(Answer::Served), None),
        (Ask::Page, room(None), None),
        (Ask::Page, refused(), Some(Failure::Refused)),
        (Ask::Page, news(State::Ready, 0), Some(Failure::Refused)),
        (Ask::News, news(State::Full, 0), None),
        (Ask::News, Ok(Answer::Served), Some(Failure::Refused)),
        (Ask::News, room(None), Some(Failure::Refused)),
        (Ask::News, Err(Failure::Broken), Some(Failure::Broken)),
    ];
    for (ask, outcome, expected) in cases {
        assert_eq!(failure_of(ask, &outcome), expected, "{ask:?} {outcome:?}");
    }
}

#[test]
fn a_waiting_visitor_is_small() {
    // The struct, the slab's tag, an entry in the heap with its spare capacity, a ticket and a nonce in the jar, the
    // path of the status document: under half a kibibyte.
    let slot = size_of::<Option<Visitor>>();
    assert!(slot + 2 * 16 + 220 + 32 <= 512, "{slot} bytes");
}
