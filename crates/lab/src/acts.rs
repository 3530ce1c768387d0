//! The words between a visitor, whoever plays it (over sockets or in virtual time), and the tally: what is asked,
//! what became of it, how a visit ends.

use std::time::Duration;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// What the visitor came for.
    Page,
    /// The status document of the waiting room.
    News,
    /// The page, with an altered ticket.
    Tampered,
    /// The page, with the ticket already used.
    Replayed,
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

/// How a visit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every step of the session served.
    Done,
    /// Told to wait, did not come back.
    NoShow,
    /// Left the waiting room: too long.
    Tired,
    /// Without it.
    Failed(Failure),
}

/// What an answer, or its absence, meant. Times count from the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// Nothing that is counted: news, a place kept.
    Nothing,
    /// A step of the session was served.
    Served {
        /// Which; 0 is the first.
        step: u8,
        /// When the request that was served was meant to be sent.
        entered: Duration,
        /// From then to the last byte.
        response: Duration,
        /// From `waited_since` to `entered`, if the visitor had been told to wait.
        waited: Option<Duration>,
        /// When the visitor came for this step.
        waited_since: Duration,
    },
    /// Sent to the waiting room.
    ToldToWait {
        /// For how long, if the room said so.
        wait: Option<Duration>,
        /// When the visitor came for this step.
        at: Duration,
    },
    /// Told that the room is full.
    ToldFull,
    /// The request failed.
    Failed(Failure),
    /// An altered or used ticket was shown.
    Attack {
        /// Whether it was refused.
        repelled: bool,
    },
}
