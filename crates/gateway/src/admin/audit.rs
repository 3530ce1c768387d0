//! `GET /v1/audit`: who changed what, the latest first.

use schemars::JsonSchema;
use serde::Serialize;

use super::answer::{Outcome, Problem, document};
use super::call::Call;
use super::route::{Param, Place};
use super::schema::{MOST_EXACT, whole_number};
use crate::base::audit::Record;

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
    let limit = call.limit(USUAL, MOST);
    let before = call.query_integer("before").unwrap_or(u64::MAX);
    let page = call.store().audit().page(before, limit);
    let page = page.map_err(|e| Problem::internal(format!("the record of changes cannot be read: {e}")))?;
    let next = page.last().filter(|_| page.len() == limit).map(|record| record.id);
    Ok(document(&Page { changes: page, next }))
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Page {
    /// The latest first.
    changes: Vec<Record>,
    /// `before` of the next page; null: there is none.
    next: Option<u64>,
}
