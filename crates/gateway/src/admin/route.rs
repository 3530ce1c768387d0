//! What an entry of the table of routes says of its route: method, path, access, parameters, answers, and the handler.

use std::borrow::Cow;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::access::Access;
use super::answer::Outcome;
use super::call::Call;
use super::schema;

/// A method of the API (`http::Method` cannot stand in a constant table).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Verb {
    Get,
    Put,
    Post,
    Patch,
    Delete,
}

impl Verb {
    /// As on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// Makes a schema: a function, for a `Value` cannot stand in a constant table.
pub(super) type Schema = fn() -> Value;

/// What the names of a template stand for.
pub(super) type Named<'p> = Vec<(&'static str, Cow<'p, str>)>;

/// A handler.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// Runs on the control thread, between two ticks: well below a millisecond.
    Quick(fn(&Call) -> Outcome),
    /// Runs on a thread of its own: whatever reads a disk.
    Slow(fn(&Call) -> Outcome),
    /// The same for what is recorded on a disk, one after another.
    Change(fn(&Call) -> Outcome),
    /// The same for what waits for no other.
    Urgent(fn(&Call) -> Outcome),
}

/// Where a parameter stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// `{name}` in the path.
    Path,
    /// After the `?`.
    Query,
    /// A field of the head.
    Header,
}

/// A parameter; those of the query and the head may be left out.
pub(super) struct Param {
    pub name: &'static str,
    pub place: Place,
    pub about: &'static str,
    pub schema: Schema,
}

/// One answer that a route gives, beside those that follow from the rest of its entry (400, 401, 403, 408, 413).
pub(super) struct Reply {
    pub status: StatusCode,
    pub about: &'static str,
    /// Media type and schema.
    pub content: Option<(&'static str, Schema)>,
}

impl Reply {
    /// A document.
    pub const fn json(status: StatusCode, about: &'static str, schema: Schema) -> Self {
        Self { status, about, content: Some(("application/json", schema)) }
    }

    /// A text of this type.
    pub const fn text(status: StatusCode, about: &'static str, media: &'static str) -> Self {
        Self { status, about, content: Some((media, words)) }
    }

    /// A problem.
    pub const fn problem(status: StatusCode, about: &'static str) -> Self {
        Self { status, about, content: Some(("application/problem+json", schema::problem)) }
    }
}

fn words() -> Value {
    serde_json::json!({ "type": "string" })
}

/// One method on one path.
pub(super) struct Route {
    pub verb: Verb,
    /// With `{name}` for a segment that may be anything.
    pub path: &'static str,
    pub access: Access,
    pub summary: &'static str,
    pub params: &'static [Param],
    /// Whether there must be a body, and what it has to be; `None`: it takes none.
    pub body: Option<(bool, Schema)>,
    pub replies: &'static [Reply],
    pub handler: Handler,
}

impl Route {
    pub const fn new(
        verb: Verb,
        path: &'static str,
        access: Access,
        summary: &'static str,
        handler: fn(&Call) -> Outcome,
    ) -> Self {
        let handler = Handler::Quick(handler);
        Self { verb, path, access, summary, params: &[], body: None, replies: &[], handler }
    }

    pub const fn params(self, params: &'static [Param]) -> Self {
        Self { params, ..self }
    }

    /// It reads a disk.
    pub const fn slow(self) -> Self {
        let handler = match self.handler {
            Handler::Quick(handler) => Handler::Slow(handler),
            other => other,
        };
        Self { handler, ..self }
    }

    /// It changes something, and waits for the disk that it is recorded on. One at a time.
    pub const fn change(self) -> Self {
        let handler = match self.handler {
            Handler::Quick(handler) => Handler::Change(handler),
            other => other,
        };
        Self { handler, ..self }
    }

    /// As [`Route::change`], but behind nobody.
    pub const fn urgent(self) -> Self {
        let handler = match self.handler {
            Handler::Quick(handler) => Handler::Urgent(handler),
            other => other,
        };
        Self { handler, ..self }
    }

    pub const fn body(self, schema: Schema) -> Self {
        Self { body: Some((true, schema)), ..self }
    }

    /// A body may say why.
    pub const fn why(self) -> Self {
        Self { body: Some((false, schema::reason)), ..self }
    }

    pub const fn replies(self, replies: &'static [Reply]) -> Self {
        Self { replies, ..self }
    }

    /// What the template's names stand for, if `path` is of this form.
    pub fn matches<'p>(&self, path: &'p str) -> Option<Named<'p>> {
        let (mut names, mut segments) = (Vec::new(), path.split('/'));
        for wanted in self.path.split('/') {
            let segment = segments.next()?;
            match wanted.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                Some(name) if !segment.is_empty() => {
                    names.push((name, percent_decode_str(segment).decode_utf8().ok()?));
                }
                None if wanted == segment => {}
                _ => return None,
            }
        }
        segments.next().is_none().then_some(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::answer::empty;

    #[test]
    fn a_path_is_matched_segment_by_segment() {
        let route = |path| Route {
            path,
            ..Route::new(Verb::Get, "", Access::Read, "", |_| Ok(empty(StatusCode::OK)))
        };
        let named = route("/v1/things/{name}");
        assert_eq!(named.matches("/v1/things/a.b").unwrap()[0], ("name", "a.b".into()));
        assert_eq!(named.matches("/v1/things/a%2Fb").unwrap()[0], ("name", "a/b".into()));
        for other in ["/v1/things", "/v1/things/", "/v1/things/a/b", "/v1/thing/a", "/v1/things/%ff", "", "*"]
        {
            assert!(named.matches(other).is_none(), "{other}");
        }
        assert!(route("/healthz").matches("/healthz").is_some());
        assert!(route("/healthz").matches("/healthz/").is_none());
    }
}
