//! Visits as scripts (what is answered, when, and what the visitor must do next), and visits to a small room
//! that answers by itself.

use proptest::prelude::*;

use super::*;
use crate::answer::{RoomStatus, State};
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

fn mix(kind: Kind) -> VisitorMix {
    VisitorMix { kinds: vec![Kind { name: "nobody".into(), retries: 77, ..Kind::default() }, kind] }
}

fn person(seed: u64) -> Person {
    Person { at: CAME, seed, kind: 1 }
}

fn steps(think_s: &[f64]) -> Vec<Step> {
    think_s.iter().map(|think| Step { think: Dist::Fixed(*think), ..Step::default() }).collect()
}

/// A position in the gate's room, as its page shows it.
fn place(after: Duration, poll: Duration) -> Outcome {
    let refresh = Some(after.min(20 * S));
    Ok(Answer::Wait { has_status: true, after: Some(after), refresh, poll: Some(poll), full: false })
}

fn full(after: Duration) -> Outcome {
    Ok(Answer::Wait { has_status: false, after: Some(after), refresh: None, poll: None, full: true })
}

fn status(state: State, poll: Duration, wait: Duration) -> Outcome {
    Ok(Answer::Status(RoomStatus { state, poll, wait }))
}

fn refused() -> Outcome {
    Ok(Answer::Refused(503))
}

/// The result of a visit.
#[derive(Debug, Default)]
struct Log {
    /// Requests after the first: what was asked, and when.
    sent: Vec<(RequestKind, Duration)>,
    noted: Vec<Noted>,
    end: Option<End>,
}

impl Log {
    fn asks(&self) -> Vec<RequestKind> {
        self.sent.iter().map(|(ask, _)| *ask).collect()
    }

    fn times(&self, wanted: RequestKind) -> Vec<Duration> {
        self.sent.iter().filter(|(ask, _)| *ask == wanted).map(|(_, at)| *at).collect()
    }

    fn served(&self) -> usize {
        self.noted.iter().filter(|noted| matches!(noted, Noted::Served { .. })).count()
    }
}

/// Feeds outcomes, each so long after its request's intended time.
fn play(kind: Kind, seed: u64, script: &[(Duration, Outcome)]) -> Log {
    let mix = mix(kind);
    let mut visitor = Visitor::new(person(seed), &mix);
    let mut log = Log::default();
    for (step, (takes, outcome)) in script.iter().enumerate() {
        let reaction = visitor.receive(&mix, *outcome, visitor.at() + *takes);
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
    /// The answers to attacks.
    to_attacks: Outcome,
}

impl Room {
    const fn of(wait: Duration) -> Self {
        Self { wait, to_attacks: Ok(Answer::Refused(403)) }
    }

    fn answer(self, ask: RequestKind, now: Duration, since: Duration) -> Outcome {
        let left = (since + self.wait).saturating_sub(now);
        let poll = (left / 8).clamp(S, 20 * S).min(left + 100 * MS).max(300 * MS);
        match ask {
            RequestKind::Tampered | RequestKind::Replayed => self.to_attacks,
            RequestKind::Page if left.is_zero() => Ok(Answer::Served),
            RequestKind::Page => place(left, poll),
            RequestKind::Status if left.is_zero() => status(State::Ready, poll, left),
            RequestKind::Status => status(State::Waiting, poll, left),
        }
    }

    /// A visit to its end.
    fn visit(self, mix: &VisitorMix, person: Person) -> Log {
        let mut visitor = Visitor::new(person, mix);
        let mut log = Log::default();
        let (mut since, mut step) = (person.at, 0);
        while log.end.is_none() {
            let now = visitor.at();
            if visitor.step() != step {
                (since, step) = (now, visitor.step());
            }
            let reaction = visitor.receive(mix, self.answer(visitor.ask(), now, since), now);
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
