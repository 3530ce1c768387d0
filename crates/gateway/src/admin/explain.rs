//! `GET /v1/explain/{id}`: why a request was refused.

use serde_json::json;

use super::answer::{Outcome, Problem, document};
use super::call::Call;
use super::route::{Param, Place, Reply};
use crate::shared::policies::refusals::KEPT;

pub(super) const ID: Param = Param {
    name: "id",
    place: Place::Path,
    about: "The request's id: `X-Request-Id` at the origin and in the log, `id` in `Tidegate-Decision`.",
    schema: || json!({ "type": "string" }),
};

pub(super) const UNKNOWN: Reply =
    Reply::problem(http::StatusCode::NOT_FOUND, "The request is not among the last refused.");

pub(super) fn get(call: &Call) -> Outcome {
    let shared = call.shared();
    match shared.policies.refusals.find(call.path("id")) {
        Some(refusal) => Ok(document(&refusal.explain(&shared.config.load()))),
        None => {
            let what = "of this id, or before the last refused";
            Err(Problem::not_found(format!("no request {what} {KEPT}, or one that was not refused")))
        }
    }
}
