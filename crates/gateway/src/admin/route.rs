//! An entry of the table of routes: method, path, access, parameters, answers and handler.

use std::borrow::Cow;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde_json::Value;

use super::access::Access;
use super::answer::Outcome;
use super::call::Call;
use super::schema;

/// A method (`http::Method` cannot be used in a constant table).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Verb {
    Get,
    Put,
    Post,
    Patch,
    Delete,
}

impl Verb {
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

/// Makes a schema (a `Value` cannot be used in a constant table).
pub(super) type Schema = fn() -> Value;

pub(super) type Named<'p> = Vec<(&'static str, Cow<'p, str>)>;

/// Where and when a handler runs.
#[derive(Clone, Copy)]
pub(super) enum Pace {
    /// On the control thread between two ticks, for well below a millisecond.
    Quick,
    /// Reads a disk: on a thread of its own.
    Slow,
    /// Makes a change that is recorded on a disk: on a thread of its own, one at a time.
    Change,
    /// The same, but waits for no other change.
    Urgent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Path,
    /// After the `?`.
    Query,
    Header,
}

/// A parameter. Those of the query and the headers are optional.
pub(super) struct Param {
    pub name: &'static str,
    pub place: Place,
    pub about: &'static str,
    pub schema: Schema,
}

#[derive(Clone, Copy)]
pub(super) struct Body {
    pub is_required: bool,
    pub schema: Schema,
}

/// An answer of a route, beside those that the dispatch gives (400, 401, 403, 408, 413).
pub(super) struct Reply {
    pub status: StatusCode,
    pub about: &'static str,
    pub media: &'static str,
    pub schema: Schema,
}

impl Reply {
    pub const fn ok<T: JsonSchema>(about: &'static str) -> Self {
        Self::json::<T>(StatusCode::OK, about)
    }

    pub const fn json<T: JsonSchema>(status: StatusCode, about: &'static str) -> Self {
        Self { status, about, media: "application/json", schema: schema::schema_for::<T> }
    }

    pub const fn text(status: StatusCode, about: &'static str, media: &'static str) -> Self {
        Self { status, about, media, schema: words }
    }

    pub const fn problem(status: StatusCode, about: &'static str) -> Self {
        Self { status, about, media: "application/problem+json", schema: schema::problem }
    }
}

fn words() -> Value {
    serde_json::json!({ "type": "string" })
}

pub(super) struct Route {
    pub verb: Verb,
    /// `{name}` stands for any one segment.
    pub path: &'static str,
    pub access: Access,
    pub summary: &'static str,
    pub params: &'static [Param],
    pub body: Option<Body>,
    pub replies: &'static [Reply],
    pub handler: fn(&Call) -> Outcome,
    pub pace: Pace,
}

impl Route {
    /// A token that may only read is enough for `GET`, and for nothing else.
    pub const fn new(
        verb: Verb,
        path: &'static str,
        summary: &'static str,
        handler: fn(&Call) -> Outcome,
    ) -> Self {
        let access = if let Verb::Get = verb { Access::Read } else { Access::Write };
        Self {
            verb,
            path,
            access,
            summary,
            params: &[],
            body: None,
            replies: &[],
            handler,
            pace: Pace::Quick,
        }
    }

    pub const fn open(self) -> Self {
        Self { access: Access::Open, ..self }
    }

    pub const fn link(self) -> Self {
        Self { access: Access::Link, ..self }
    }

    pub const fn params(self, params: &'static [Param]) -> Self {
        Self { params, ..self }
    }

    pub const fn slow(self) -> Self {
        Self { pace: Pace::Slow, ..self }
    }

    /// Makes a change, and waits for the disk of its audit record. One at a time.
    pub const fn change(self) -> Self {
        Self { pace: Pace::Change, ..self }
    }

    /// As [`Route::change`], but waits for no other change.
    pub const fn urgent(self) -> Self {
        Self { pace: Pace::Urgent, ..self }
    }

    pub const fn body(self, schema: Schema) -> Self {
        Self { body: Some(Body { is_required: true, schema }), ..self }
    }

    pub const fn why(self) -> Self {
        Self { body: Some(Body { is_required: false, schema: schema::reason }), ..self }
    }

    pub const fn replies(self, replies: &'static [Reply]) -> Self {
        Self { replies, ..self }
    }

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
        let route = |path| Route { path, ..Route::new(Verb::Get, "", "", |_| Ok(empty(StatusCode::OK))) };
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
