//! How one visitor behaves: a pure state machine. Answers and failures go in, the next request comes out.
//!
//! ```text
//!            ┌─────────── refused, broken, too slow: pause, again (retries times) ──────────┐
//!            ▼                                                                              │
//!  arrive ─► ask for the page ─► served ─► leave                                            ├─► leave
//!            ▲  ▲   │                                                                       │
//!            │  │   └─► told to wait ─► (no-show: leave) ─► ask for news ◄─┐                │
//!            │  └────── plain Retry-After or Refresh ◄┘      │   │   │     │ waiting        │
//!            └── ready, expired, redeemed, full (later) ◄────┘   │   └─────┘                │
//!                                                                └── ten misses in a row ───┘
//! ```
//!
//! What a page does while its visitor waits, and when, is what the script of the gate's page does.
//!
//! Between requests a visitor is this struct and one entry in a timer heap: no task, no connection. Response time
//! counts from the instant the request was meant to be sent, so that a slow test bench shows as such.

use std::time::Duration;

use crate::answer_old::{Answer, Jar, News, State};
use crate::crowd::old::Person;

#[cfg(test)]
mod tests;

/// Misses in a row after which a page gives its place up: three minutes without the gate.
const MAX_MISSES: u8 = 10;
/// Pause after a miss, before asking for news again; doubled with every miss in a row up to the second value.
const MISS_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// First request for news at a room whose page does not say when.
const FIRST_NEWS: Duration = Duration::from_secs(1);
/// A page whose place is no more reloads itself within this time.
const RELOAD: Duration = Duration::from_secs(2);
/// When to come back if a room does not say.
const DEFAULT_AFTER: Duration = Duration::from_secs(5);
/// Time a page gives a request for news. The visitor does not look at it, so patience has no part in it.
const NEWS_TIMEOUT: Duration = Duration::from_secs(10);

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// What the visitor came for.
    Page,
    /// The status document of the waiting room.
    News,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Answered with an error, or with something that made no sense.
    Refused,
    /// No connection.
    Connect,
    /// The connection ended before the answer did.
    Broken,
    /// Given up by the visitor.
    Patience,
    /// The test bench ran out of sockets: says nothing about what is under test.
    Bench,
}

/// What the visitor does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Sends a request at this time.
    Send(Duration),
    /// Leaves.
    Leave(End),
}

/// How a visit ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// With what the visitor came for.
    Served {
        /// When the request that was served was meant to be sent.
        entered: Duration,
        /// From then to the last byte.
        response: Duration,
        /// From arrival to `entered`, if the visitor had been told to wait.
        waited: Option<Duration>,
    },
    /// Told to wait, did not come back.
    NoShow,
    /// Left the waiting room: too long.
    Tired,
    /// Without it.
    Failed(Failure),
}

/// One visitor. Times count from the start of the run.
#[derive(Clone, Debug)]
pub struct Visitor {
    person: Person,
    jar: Jar,
    status_path: Option<Box<str>>,
    ask: Ask,
    /// When the request now under way, or to come, is meant to be sent.
    at: Duration,
    retries: u8,
    misses: u8,
    in_room: bool,
}

impl Visitor {
    /// Somebody who arrives at `person.at` and then asks for the page.
    pub fn new(person: Person) -> Self {
        Self {
            at: person.at,
            retries: person.retries,
            person,
            jar: Jar::default(),
            status_path: None,
            ask: Ask::Page,
            misses: 0,
            in_room: false,
        }
    }

    /// What the request under way, or to come, asks for.
    pub fn ask(&self) -> Ask {
        self.ask
    }

    /// Where to send it, given the path the visitor came for.
    pub fn path<'v>(&'v self, page: &'v str) -> &'v str {
        match (self.ask, &self.status_path) {
            (Ask::News, Some(path)) => path,
            _ => page,
        }
    }

    /// When it is meant to be sent.
    pub fn at(&self) -> Duration {
        self.at
    }

    /// When it is given up.
    pub fn gives_up_at(&self) -> Duration {
        let patience = match self.ask {
            Ask::Page => self.person.patience,
            Ask::News => NEWS_TIMEOUT,
        };
        self.at.saturating_add(patience)
    }

    /// The visitor's cookies.
    pub fn jar(&self) -> &Jar {
        &self.jar
    }

    /// The visitor's cookies, to take in what an answer sets.
    pub fn jar_mut(&mut self) -> &mut Jar {
        &mut self.jar
    }

    /// Whether the visitor has been told to wait and has not been served yet.
    pub fn in_room(&self) -> bool {
        self.in_room
    }

    /// The outcome of the request under way.
    pub fn receive(&mut self, outcome: Result<Answer, Failure>, now: Duration) -> Next {
        let next = match (self.ask, outcome) {
            (Ask::Page, Ok(Answer::Served)) => Next::Leave(self.served(now)),
            (Ask::Page, Ok(Answer::Wait { status_path, after, poll })) => {
                let first = poll.or(after).unwrap_or(FIRST_NEWS);
                self.told_to_wait(status_path, after, first, now)
            }
            (Ask::Page, Ok(Answer::News(_) | Answer::Refused(_))) => self.failed(Failure::Refused, now),
            (Ask::Page, Err(failure)) => self.failed(failure, now),
            (Ask::News, Ok(Answer::News(news))) => self.told_news(news, now),
            (Ask::News, Ok(_)) => self.missed(Failure::Refused, now),
            (Ask::News, Err(failure)) => self.missed(failure, now),
        };
        match next {
            Next::Send(at) if self.in_room && at > self.person.at.saturating_add(self.person.wait_limit) => {
                Next::Leave(End::Tired)
            }
            Next::Send(at) => {
                self.at = at;
                next
            }
            Next::Leave(_) => next,
        }
    }

    fn served(&self, now: Duration) -> End {
        End::Served {
            entered: self.at,
            response: now.saturating_sub(self.at),
            waited: self.in_room.then(|| self.at - self.person.at),
        }
    }

    fn told_to_wait(
        &mut self,
        path: Option<Box<str>>,
        after: Option<Duration>,
        first_news: Duration,
        now: Duration,
    ) -> Next {
        self.in_room = true;
        if self.person.no_show {
            return Next::Leave(End::NoShow);
        }
        self.misses = 0;
        let delay = if path.is_some() {
            self.ask = Ask::News;
            first_news
        } else {
            after.unwrap_or(DEFAULT_AFTER)
        };
        self.status_path = path;
        Next::Send(now + delay)
    }

    fn told_news(&mut self, news: News, now: Duration) -> Next {
        self.misses = 0;
        match news.state {
            // Give or take a twentieth, as the page's script does.
            State::Waiting | State::Unavailable => {
                Next::Send(now + news.poll().mul_f32(0.95 + self.person.jitter / 10.0))
            }
            State::Ready => {
                self.ask = Ask::Page;
                Next::Send(now)
            }
            State::Expired | State::Redeemed | State::Other => {
                self.ask = Ask::Page;
                Next::Send(now + RELOAD.mul_f32(self.person.jitter))
            }
            State::Full => {
                self.ask = Ask::Page;
                Next::Send(now + news.poll())
            }
        }
    }

    fn failed(&mut self, failure: Failure, now: Duration) -> Next {
        if self.retries == 0 {
            return Next::Leave(End::Failed(failure));
        }
        self.retries -= 1;
        Next::Send(now + self.person.pause)
    }

    fn missed(&mut self, failure: Failure, now: Duration) -> Next {
        self.misses += 1;
        if self.misses > MAX_MISSES {
            return Next::Leave(End::Failed(failure));
        }
        let (first, most) = MISS_PAUSE;
        let pause = first.saturating_mul(1 << (self.misses - 1).min(31)).min(most);
        Next::Send(now + pause.mul_f32(0.5 + self.person.jitter))
    }
}

/// Whether an outcome is a failed request, and why. Being told to wait is no failure.
pub fn failure_of(ask: Ask, outcome: &Result<Answer, Failure>) -> Option<Failure> {
    match (ask, outcome) {
        (_, Err(failure)) => Some(*failure),
        (_, Ok(Answer::Refused(_))) | (Ask::Page, Ok(Answer::News(_))) => Some(Failure::Refused),
        (Ask::News, Ok(Answer::News(_))) | (Ask::Page, Ok(Answer::Served | Answer::Wait { .. })) => None,
        (Ask::News, Ok(Answer::Served | Answer::Wait { .. })) => Some(Failure::Refused),
    }
}
