//! Visits as scripts (what is answered, when, and what the visitor must do next), and visits to a small room that
//! answers by itself.

use proptest::prelude::*;

use super::*;
use crate::answer::{News, State};
use crate::dist::MAX_TIME;
use crate::scenario::{Follow, Step};

mod always;
mod detours;
mod rounds;
mod scripts;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// When the visitors of these tests arrive.
const CAME: Duration = Duration::from_secs(10);

type Outcome = Result<Answer, Failure>;

fn kind() -> Kind {
    Kind { patience: Dist::Fixed(5.0), pause: Dist::Fixed(1.0), ..Kind::default() }
}

fn cast(kind: Kind) -> VisitorMix {
    VisitorMix { kinds: vec![Kind { name: "nobody".into(), retries: 77, ..Kind::default() }, kind] }
}

fn person(seed: u64) -> Person {
    Person { at: CAME, seed, kind: 1 }
}

fn steps(think_s: &[f64]) -> Vec<Step> {
    think_s.iter().map(|think| Step { think: Dist::Fixed(*think), ..Step::default() }).collect()
}

/// A place in the gate's room, as its page says it.
fn place(after: Duration, poll: Duration) -> Outcome {
    let refresh = Some(after.min(20 * S));
    Ok(Answer::Wait { news: true, after: Some(after), refresh, poll: Some(poll), full: false })
}

fn full(after: Duration) -> Outcome {
    Ok(Answer::Wait { news: false, after: Some(after), refresh: None, poll: None, full: true })
}

fn news(state: State, poll: Duration, wait: Duration) -> Outcome {
    Ok(Answer::News(News { state, poll, wait }))
}

fn refused() -> Outcome {
    Ok(Answer::Refused(503))
}

/// What came of a visit.
#[derive(Debug, Default)]
struct Log {
    /// Requests after the first: what was asked, and when.
    sent: Vec<(Ask, Duration)>,
    /// One for each outcome.
    noted: Vec<Noted>,
    end: Option<End>,
}

impl Log {
    fn asks(&self) -> Vec<Ask> {
        self.sent.iter().map(|(ask, _)| *ask).collect()
    }

    fn times(&self, wanted: Ask) -> Vec<Duration> {
        self.sent.iter().filter(|(ask, _)| *ask == wanted).map(|(_, at)| *at).collect()
    }

    fn served(&self) -> usize {
        self.noted.iter().filter(|noted| matches!(noted, Noted::Served { .. })).count()
    }
}

/// Feeds outcomes, each so long after its request's intended time.
fn play(kind: Kind, seed: u64, script: &[(Duration, Outcome)]) -> Log {
    let cast = cast(kind);
    let mut visitor = Visitor::new(person(seed), &cast);
    let mut log = Log::default();
    for (step, (takes, outcome)) in script.iter().enumerate() {
        let reaction = visitor.receive(&cast, *outcome, visitor.at() + *takes);
        log.noted.push(reaction.noted);
        match reaction.next {
            Next::Send(at) => {
                assert_eq!(at, visitor.at());
                log.sent.push((visitor.ask(), at));
            }
            Next::Leave(end) => {
                assert_eq!(step, script.len() - 1, "left before the script ended: {end:?}");
                log.end = Some(end);
            }
        }
    }
    log
}

/// A room whose turns come `wait` after each step's first request, and that answers at once.
#[derive(Clone, Copy)]
struct Room {
    wait: Duration,
    /// What attacks are answered with.
    to_attacks: Outcome,
}

impl Room {
    const fn of(wait: Duration) -> Self {
        Self { wait, to_attacks: Ok(Answer::Refused(403)) }
    }

    fn answer(self, ask: Ask, now: Duration, since: Duration) -> Outcome {
        let left = (since + self.wait).saturating_sub(now);
        let poll = (left / 8).clamp(S, 20 * S).min(left + 100 * MS).max(300 * MS);
        match ask {
            Ask::Tampered | Ask::Replayed => self.to_attacks,
            Ask::Page if left.is_zero() => Ok(Answer::Served),
            Ask::Page => place(left, poll),
            Ask::News if left.is_zero() => news(State::Ready, poll, left),
            Ask::News => news(State::Waiting, poll, left),
        }
    }

    /// A visit to its end.
    fn visit(self, cast: &VisitorMix, person: Person) -> Log {
        let mut visitor = Visitor::new(person, cast);
        let mut log = Log::default();
        let (mut since, mut step) = (person.at, 0);
        while log.end.is_none() {
            let now = visitor.at();
            if visitor.step() != step {
                (since, step) = (now, visitor.step());
            }
            let reaction = visitor.receive(cast, self.answer(visitor.ask(), now, since), now);
            log.noted.push(reaction.noted);
            match reaction.next {
                Next::Send(at) => log.sent.push((visitor.ask(), at)),
                Next::Leave(end) => log.end = Some(end),
            }
            assert!(log.noted.len() < 10_000, "never leaves");
        }
        log
    }
}
