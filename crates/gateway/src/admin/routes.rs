//! The table of routes, from which come the dispatch, `405` with `Allow`, `OPTIONS`, who may, and `/v1/openapi.json`. A
//! route is one entry here and one function.

use std::borrow::Cow;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::access::Access::{self, Open, Read, Write};
use super::answer::Outcome;
use super::dispatch::Call;
use super::{
    audit, capacity, events, explain, history, openapi, schema, sessions, signals, state, tunables, tuners,
};

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
        Self { status, about, content: Some(("application/problem+json", openapi::problem)) }
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
    const fn new(
        verb: Verb,
        path: &'static str,
        access: Access,
        summary: &'static str,
        handler: fn(&Call) -> Outcome,
    ) -> Self {
        let handler = Handler::Quick(handler);
        Self { verb, path, access, summary, params: &[], body: None, replies: &[], handler }
    }

    const fn params(self, params: &'static [Param]) -> Self {
        Self { params, ..self }
    }

    /// It reads a disk.
    const fn slow(self) -> Self {
        let handler = match self.handler {
            Handler::Quick(handler) => Handler::Slow(handler),
            other => other,
        };
        Self { handler, ..self }
    }

    /// It changes something, and waits for the disk that it is recorded on. One at a time.
    const fn change(self) -> Self {
        let handler = match self.handler {
            Handler::Quick(handler) => Handler::Change(handler),
            other => other,
        };
        Self { handler, ..self }
    }

    /// As [`Route::change`], but behind nobody.
    const fn urgent(self) -> Self {
        let handler = match self.handler {
            Handler::Quick(handler) => Handler::Urgent(handler),
            other => other,
        };
        Self { handler, ..self }
    }

    const fn body(self, schema: Schema) -> Self {
        Self { body: Some((true, schema)), ..self }
    }

    /// A body may say why.
    const fn why(self) -> Self {
        Self { body: Some((false, schema::reason)), ..self }
    }

    const fn replies(self, replies: &'static [Reply]) -> Self {
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

const OK: StatusCode = StatusCode::OK;
const PLAIN: &str = "text/plain; charset=utf-8";

/// Everything the admin API does.
pub(super) static ROUTES: &[Route] = &[
    Route::new(Verb::Get, "/healthz", Open, "Whether the process lives", state::healthz)
        .replies(&[Reply::text(OK, "It does.", PLAIN)]),
    Route::new(Verb::Get, "/readyz", Open, "Whether visitors are served", state::readyz).replies(&[
        Reply::text(OK, "They are.", PLAIN),
        Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "Draining, or no replica of the origin is usable."),
    ]),
    Route::new(Verb::Get, "/metrics", Read, "All figures, for Prometheus", state::metrics)
        .replies(&[Reply::text(OK, "Text format 0.0.4.", state::PROMETHEUS)]),
    Route::new(Verb::Get, "/v1/openapi.json", Read, "This document", openapi::get).replies(&[Reply::json(
        OK,
        "OpenAPI 3.1.",
        openapi::schema,
    )]),
    Route::new(Verb::Get, "/v1/state", Read, "Everything at a glance, of the last second", state::state)
        .replies(&[Reply::json(OK, "The state.", state::schema)]),
    Route::new(Verb::Get, "/v1/capacity", Read, "The capacity, and how it was found", capacity::get)
        .replies(&[Reply::json(OK, "The capacity.", capacity::schema)]),
    Route::new(
        Verb::Put,
        "/v1/capacity",
        Write,
        "Sets the capacity, within the operator's bounds",
        capacity::put,
    )
    .change()
    .body(capacity::wanted)
    .replies(&[
        Reply::json(OK, "The capacity now.", capacity::schema),
        Reply::problem(StatusCode::CONFLICT, "The capacity is kept by another process."),
    ]),
    Route::new(
        Verb::Post,
        "/v1/capacity/rediscover",
        Write,
        "Forgets what is believed of the capacity and looks anew",
        capacity::rediscover,
    )
    .change()
    .why()
    .replies(&[
        Reply::json(StatusCode::ACCEPTED, "It is looked for.", capacity::schema),
        Reply::problem(StatusCode::CONFLICT, "The capacity is given, or kept by another process."),
    ]),
    Route::new(Verb::Get, "/v1/tunables", Read, "Every key that may change while running", tunables::get_all)
        .replies(&[Reply::json(OK, "All of them; the ETag is of the settings.", tunables::schema_of_all)]),
    Route::new(
        Verb::Patch,
        "/v1/tunables",
        Write,
        "Changes several keys at once: all, or none",
        tunables::patch,
    )
    .change()
    .params(&[tunables::UNCHANGED])
    .body(tunables::changes)
    .replies(&[Reply::json(OK, "In force.", tunables::changed), tunables::STALE, tunables::REFUSED]),
    Route::new(Verb::Get, "/v1/tunables/{name}", Read, "One key", tunables::get)
        .params(&[tunables::NAME])
        .replies(&[
            Reply::json(OK, "The key; the ETag is of the settings.", tunables::schema),
            tunables::UNKNOWN,
        ]),
    Route::new(Verb::Put, "/v1/tunables/{name}", Write, "Changes one key", tunables::put)
        .change()
        .params(&[tunables::NAME, tunables::UNCHANGED])
        .body(tunables::wanted)
        .replies(&[
            Reply::json(OK, "In force.", tunables::schema),
            tunables::UNKNOWN,
            tunables::STALE,
            tunables::REFUSED,
        ]),
    Route::new(Verb::Delete, "/v1/tunables/{name}", Write, "Back to what the file says", tunables::delete)
        .change()
        .params(&[tunables::NAME, tunables::UNCHANGED])
        .why()
        .replies(&[
            Reply::json(OK, "In force.", tunables::schema),
            tunables::UNKNOWN,
            tunables::STALE,
            tunables::REFUSED,
        ]),
    Route::new(Verb::Get, "/v1/tuners", Read, "The scripts that run, and how they do", tuners::get)
        .replies(&[Reply::json(OK, "Every tuner.", tuners::schema)]),
    Route::new(
        Verb::Get,
        "/v1/sessions",
        Read,
        "Admitted sessions: how many, how many more, and who",
        sessions::get,
    )
    .params(&[sessions::LIMIT, sessions::AFTER])
    .replies(&[
        Reply::json(OK, "The state, and a page of sessions.", sessions::schema),
        sessions::NOT_COUNTED,
    ]),
    Route::new(Verb::Delete, "/v1/sessions", Write, "Ends every session", sessions::delete_all)
        .urgent()
        .why()
        .replies(&[Reply::json(OK, "Their places are free.", sessions::ended), sessions::NOT_COUNTED]),
    Route::new(Verb::Delete, "/v1/sessions/{key}", Write, "Ends one session", sessions::delete)
        .urgent()
        .params(&[sessions::KEY])
        .why()
        .replies(&[
            Reply::json(OK, "Its place is free.", sessions::ended),
            sessions::UNKNOWN,
            sessions::NOT_COUNTED,
        ]),
    Route::new(Verb::Get, "/v1/explain/{id}", Read, "Why a request was refused", explain::get)
        .params(&[explain::ID])
        .slow()
        .replies(&[Reply::json(OK, "The refusal.", explain::schema), explain::UNKNOWN]),
    Route::new(
        Verb::Put,
        "/v1/signals/{name}",
        Write,
        "What another application says (WAC 3.1 h)",
        signals::put,
    )
    .params(&[signals::NAME])
    .urgent()
    .body(signals::said)
    .replies(&[Reply::json(OK, "Heard; in force from the next tick on.", signals::schema), signals::UNKNOWN]),
    Route::new(Verb::Delete, "/v1/signals/{name}", Write, "It says nothing any more", signals::delete)
        .params(&[signals::NAME])
        .urgent()
        .why()
        .replies(&[
            Reply::json(OK, "Its level is unknown from the next tick on.", signals::schema),
            signals::UNKNOWN,
        ]),
    Route::new(Verb::Get, "/v1/history", Read, "What was measured, over any stretch of a year", history::get)
        .params(history::PARAMS)
        .slow()
        .replies(&[
            Reply::json(OK, "The figure, or all there are.", history::schema),
            Reply::text(OK, "The figure.", "text/csv"),
            Reply::problem(StatusCode::NOT_FOUND, "No history is kept."),
        ]),
    Route::new(Verb::Get, "/v1/audit", Read, "Who changed what, the latest first", audit::get)
        .params(&[audit::LIMIT, audit::BEFORE])
        .slow()
        .replies(&[
            Reply::json(OK, "A page of changes.", audit::schema),
            Reply::problem(StatusCode::INTERNAL_SERVER_ERROR, "The record cannot be read."),
        ]),
    Route::new(Verb::Get, "/v1/events", Read, "The state of every second, as it passes", events::get)
        .params(&[events::EVERY])
        .replies(&[
            Reply::text(OK, "Server-sent events named `state`; `end` before a drain.", events::STREAM),
            Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "Too many listen, or the gate drains."),
        ]),
    Route::new(Verb::Post, "/v1/reload", Write, "Reads the configuration again, as SIGHUP", state::reload)
        .change()
        .why()
        .replies(&[
            Reply::json(OK, "What changed.", state::reloaded),
            Reply::problem(
                StatusCode::UNPROCESSABLE_ENTITY,
                "The new configuration is wrong; the old one stays.",
            ),
        ]),
    Route::new(Verb::Post, "/v1/drain", Write, "Ends the process in good order, as SIGTERM", state::drain)
        .urgent()
        .why()
        .replies(&[Reply::json(OK, "It has begun.", state::draining)]),
    Route::new(Verb::Post, "/v1/feedback", Write, "What a tokencheck process has seen", state::feedback)
        .body(state::report)
        .replies(&[Reply::json(OK, "What to go by.", state::orders)]),
];

#[cfg(test)]
mod tests;
