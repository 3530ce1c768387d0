//! Types that a visitor, its player (over sockets or in virtual time) and the tally share: requests, their
//! outcomes, how a visit ends.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    Page,
    Status,
    /// The page, with an altered ticket: an attack. Cookies that the answer sets are not kept.
    Tampered,
    /// The page, with the ticket that has just been used: an attack. A redirect in answer is not followed.
    Replayed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    Refused,
    Connect,
    Broken,
    Patience,
    /// The test bench ran out of sockets: says nothing about what is under test.
    Bench,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Done,
    /// Told to wait (or that the room is full), did not come back.
    NoShow,
    /// Left the waiting room: too long.
    Tired,
    /// A request failed once more than there were retries.
    Failed(Failure),
}

/// How a session of a closed loop ended ([`Rounds`](crate::scenario::Rounds)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// Every step was answered in time, at the first attempt.
    Good,
    /// Every step was answered, some too late or at a later attempt.
    Slow,
    /// Broken off after some step had been answered.
    Broken,
    /// Broken off before any was: turned away, or tired of waiting.
    TurnedAway,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// Nothing: a status document, the same position again, an attack whose outcome proves nothing.
    Nothing,
    Served {
        step: u8,
        /// When the request that was served was meant to be sent.
        entered: Duration,
        /// From then to the last byte.
        response: Duration,
        /// From the step's beginning to `entered`, if the visitor had to wait.
        waited: Option<Duration>,
        /// The step's beginning: when its first request was meant to be sent.
        waited_since: Duration,
    },
    ToldToWait {
        /// How long it will take, if the room says so.
        wait: Option<Duration>,
        /// The step's beginning, as in `Served`.
        at: Duration,
    },
    ToldFull,
    Failed(Failure),
    /// An attack was decided: answered by the page, or as waiting rooms answer.
    Attack {
        repelled: bool,
    },
}
