//! `POST /v1/claims`: another tokencheck asks whether a ticket may be used.

use serde_json::{Value, json};

use super::answer::{Outcome, Problem, document};
use super::call::Call;
use crate::control::peers;

pub(super) fn take(call: &Call) -> Outcome {
    match peers::receive(call.shared(), &call.body) {
        Ok(answers) => Ok(document(&answers)),
        Err(e) => Err(Problem::bad_request(e)),
    }
}

/// Its reader checks the rows.
pub(super) fn message() -> Value {
    let number = |about| json!({ "type": "integer", "description": about });
    let rows = |about| json!({ "type": "array", "description": about });
    json!({
        "type": "object",
        "description": "As written by another tokencheck.",
        "required": ["count", "to", "from", "claims", "releases"],
        "properties": {
            "count": number("How many tokenchecks there are."),
            "to": number("The number of this one."),
            "from": number("The number of the one that asks."),
            "claims": rows("Tickets it wants to let in: [DUE_MS, ARRIVED_MS, NONCE, CLAIM]."),
            "releases": rows("Tickets granted to it that it did not let in; the same."),
        },
    })
}
