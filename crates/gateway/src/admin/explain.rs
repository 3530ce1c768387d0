//! Why a request was refused.

use serde_json::{Value, json};

use super::answer::{Outcome, Problem, document};
use super::call::Call;
use super::route::{Param, Place, Reply};
use super::schema::{a, maybe, object};
use crate::shared::policies::refusals::KEPT;

/// The request's id.
pub(super) const ID: Param = Param {
    name: "id",
    place: Place::Path,
    about: "The request's id: `X-Request-Id` at the origin and in the log, `id` in `Tidegate-Decision`.",
    schema: || json!({ "type": "string" }),
};

/// Not among the last refusals.
pub(super) const UNKNOWN: Reply =
    Reply::problem(http::StatusCode::NOT_FOUND, "The request is not among the last refused.");

pub(super) fn get(call: &Call) -> Outcome {
    let shared = call.shared();
    match shared.policies.refusals.find(call.path("id")) {
        Some(refusal) => Ok(document(&refusal.json(&shared.config.load()))),
        None => {
            let what = "of this id, or before the last refused";
            Err(Problem::not_found(format!("no request {what} {KEPT}, or one that was not refused")))
        }
    }
}

/// Of [`get`].
pub(super) fn schema() -> Value {
    object(&[
        ("id", a("string", "The request's id, at most 64 bytes of it.")),
        ("at_ms", a("integer", "When, in milliseconds since 1970.")),
        ("path", a("string", "Its path, at most 96 bytes of it.")),
        ("class", a("string", "Its class.")),
        ("tier", a("string", "Its service level.")),
        ("by", a("string", "`rule`, `quota`, or the name of the counter: `queue_full`, `ingress_shed`.")),
        ("rule", maybe("string", "The rule.")),
        ("action", maybe("string", "What became of the request.")),
        ("level", maybe("string", "How congested what the rule goes by was.")),
        ("figures", maybe("string", "The figures that the rule went by.")),
        (
            "retry_after_s",
            a("integer", "When the visitor was told to come again, in seconds; 0: not at all."),
        ),
    ])
}
