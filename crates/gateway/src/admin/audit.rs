//! `GET /v1/audit`: who changed what, the latest first.

use serde_json::{Value, json};

use super::answer::{Outcome, Problem, document};
use super::call::Call;
use super::route::{Param, Place};
use super::schema::{MOST_EXACT, a, list, maybe, object, whole_number};

/// Records of one answer, if nobody says otherwise.
const USUAL: usize = 100;
/// Most records of one answer: some 200 kB.
const MOST: usize = 1000;

pub(super) const LIMIT: Param = Param {
    name: "limit",
    place: Place::Query,
    about: "How many; 100 if not given.",
    schema: || whole_number(1, MOST as u64, "Records."),
};

pub(super) const BEFORE: Param = Param {
    name: "before",
    place: Place::Query,
    about: "Only older ones than that of this id: the last answer's `next`.",
    schema: || whole_number(0, MOST_EXACT, "An id."),
};

pub(super) fn get(call: &Call) -> Outcome {
    let limit = call
        .query_integer("limit")
        .map_or(USUAL, |limit| usize::try_from(limit).unwrap_or(MOST).clamp(1, MOST));
    let before = call.query_integer("before").unwrap_or(u64::MAX);
    let page = call.store().audit().page(before, limit);
    let page = page.map_err(|e| Problem::internal(format!("the record of changes cannot be read: {e}")))?;
    let next = if page.len() == limit { page.last().map(|record| record["id"].clone()) } else { None };
    Ok(document(&json!({ "changes": page, "next": next })))
}

/// Of [`get`].
pub(super) fn schema() -> Value {
    let any = |about: &str| json!({ "description": about });
    let record = object(&[
        ("id", a("integer", "Counts up, over restarts too.")),
        ("at_ms", a("integer", "When, in milliseconds since 1970.")),
        ("who", a("string", "The token's name and the peer's address, a tuner's name, or \"signal\".")),
        ("why", a("string", "In their own words; may be empty.")),
        (
            "action",
            a("string", "tune, reload, capacity, rediscover, drain, signal, end-session or end-sessions."),
        ),
        ("key", maybe("string", "What changed, if one key did.")),
        ("old", any("Its value before.")),
        ("new", any("Its value now.")),
    ]);
    object(&[
        ("changes", list(record, "The latest first.")),
        ("next", maybe("integer", "`before` of the next page; null: there is none.")),
    ])
}
