//! What a real visitor carries between requests: cookies, the ticket in the URL, the path of the status document.

use http::HeaderMap;

use crate::answer::Reading;
use crate::visitor::Ask;

/// Names of cookies and paths of status documents, shared by the visitors of one thread.
#[derive(Clone, Debug, Default)]
pub struct Names {}

/// What one visitor carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Luggage {
    status: Option<Box<str>>,
}

/// What a request shows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Path and query to ask for.
    pub target: String,
    /// The `Cookie` field.
    pub cookies: Option<String>,
}

impl Luggage {
    /// What a request for `ask` shows; `page` is the path and query of the present step. `alter` picks the character
    /// of the ticket that is altered for [`Ask::Tampered`]. `None`: there is no ticket to attack with; see
    /// [`Visitor::skip_attack`](crate::visitor::Visitor::skip_attack).
    pub fn show(&self, _names: &Names, ask: Ask, page: &str, _alter: u32) -> Option<Shown> {
        let target = match (ask, &self.status) {
            (Ask::News, Some(path)) => path.as_ref(),
            (Ask::Page | Ask::News, _) => page,
            (Ask::Tampered | Ask::Replayed, _) => return None,
        };
        Some(Shown { target: target.into(), cookies: self.cookies(_names) })
    }

    /// The `Cookie` field, as for the next hop of a redirect.
    pub fn cookies(&self, _names: &Names) -> Option<String> {
        None
    }

    /// Takes in what the answer to `ask` sets and says. Answers to attacks leave no trace. `keeps_cookies`: see
    /// [`Kind::cookies`](crate::scenario::Kind::cookies).
    pub fn absorb(
        &mut self,
        _names: &mut Names,
        ask: Ask,
        _headers: &HeaderMap,
        reading: &Reading,
        _keeps_cookies: bool,
    ) {
        if matches!(ask, Ask::Page) {
            self.status = reading.status_path.as_deref().map(Into::into);
        }
    }

    /// Keeps a copy of the ticket that was just used, for [`Ask::Replayed`]. To be called when a visitor who was
    /// served asks for that next, before the answer is absorbed: it takes the ticket away.
    pub fn keep_used(&mut self) {}
}
