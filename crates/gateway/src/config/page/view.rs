//! What a page shows about a visitor.

use std::time::Duration;

use super::{KeptForm, Lang};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Waiting,
    /// The room is full up to `max_wait`; `wait` is the time until another try.
    Full,
    /// The ticket was used before; this is a new position.
    Replaced,
    /// The turn had passed; this is a new position.
    Late,
    /// The origin does not answer; the position is kept.
    Unavailable,
    Forbidden,
    /// A rule refuses the request; `wait` is the time until another try.
    Overloaded,
}

impl Kind {
    /// Every kind, in the order of their indices.
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Full,
        Self::Replaced,
        Self::Late,
        Self::Unavailable,
        Self::Forbidden,
        Self::Overloaded,
    ];

    pub(crate) const fn has_place(self) -> bool {
        !matches!(self, Self::Full | Self::Forbidden | Self::Overloaded)
    }
}

/// What one visitor's page shows. Everything in it may come from outside; all of it is escaped.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub kind: Kind,
    pub lang: Lang,
    /// The HTTP status it is sent with: RFC 9457 repeats it in the body.
    pub status: u16,
    /// Time until the turn; for a full room, until another try.
    pub wait: Duration,
    /// People ahead.
    pub place: u64,
    pub waited: Duration,
    /// When the page asks for its status first: see [`super::poll_interval`].
    pub poll: Duration,
    /// Path and query to return to. One that leads elsewhere becomes `/`.
    pub target: &'a str,
    /// The ticket, only for clients without cookies: the page's URLs then carry it as `tg=`.
    pub ticket: Option<&'a str>,
    /// Path and query of the status document.
    pub status_path: &'a str,
    /// Of tokengen's pages: the target at tokencheck, with the ticket, which suffices there.
    pub check_url: Option<&'a str>,
    pub form: Option<&'a KeptForm>,
    /// How often the page reloads without JavaScript. Unused with a form, which a reload would lose. Send no
    /// `Refresh` header field beside it: that would reload the page of everybody who has JavaScript too.
    pub refresh: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Waiting,
    /// The turn has come: the page goes to its target.
    Ready,
    Expired,
    /// The ticket was used, in another tab perhaps.
    Redeemed,
    Full,
    /// The origin does not answer; the position is kept.
    Unavailable,
}

#[derive(Clone, Copy, Debug)]
pub struct Status<'a> {
    pub state: State,
    pub wait_ms: u64,
    pub place: u64,
    /// When to ask again: see [`super::poll_interval`].
    pub poll_ms: u64,
    pub waited_ms: u64,
    /// The ticket that replaces the old one, for clients without cookies; `None`: a cookie carries it.
    pub ticket: Option<&'a str>,
}
