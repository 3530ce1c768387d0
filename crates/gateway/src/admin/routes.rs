//! The table of routes. The dispatch, `405` with `Allow`, `OPTIONS`, access control and `/v1/openapi.json`
//! all follow from it: a route is one entry here and one handler.

use std::sync::LazyLock;

use bytes::Bytes;
use http::StatusCode;

use super::answer::{Outcome, whole};
use super::call::Call;
use super::route::Verb::{Delete, Get, Patch, Post, Put};
use super::route::{Reply, Route};
use super::{
    audit, capacity, claims, correlation, dashboard, explain, history, kernel, openapi, sessions, signals,
    state, throttles, tunables, tuners,
};
use crate::control::feedback::UpdateMessage;
use crate::control::peers::ClaimAnswers;
use crate::shared::policies::refusals::Explanation;

const OK: StatusCode = StatusCode::OK;
const PLAIN: &str = "text/plain; charset=utf-8";

pub(super) static ROUTES: &[Route] = &[
    Route::new(Get, "/healthz", "Whether the process lives", state::healthz)
        .open()
        .replies(&[Reply::text(OK, "It does.", PLAIN)]),
    Route::new(Get, "/readyz", "Whether visitors are served", state::readyz).open().replies(&[
        Reply::text(OK, "They are.", PLAIN),
        Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "Draining, or no replica of the origin is usable."),
    ]),
    Route::new(Get, "/", "The dashboard", dashboard::page).open().replies(&[Reply::text(
        OK,
        "A page that asks for the rest.",
        dashboard::HTML,
    )]),
    Route::new(Get, "/dashboard/{file}", "A file of the dashboard", dashboard::file)
        .open()
        .params(&[dashboard::FILE])
        .replies(&[
            Reply::text(OK, "The file, of the type its name says.", "*/*"),
            Reply::problem(StatusCode::NOT_FOUND, "There is no such file."),
        ]),
    Route::new(Get, "/v1/access", "What the token shown may do", dashboard::access).replies(&[Reply::ok::<
        dashboard::Access,
    >(
        "The name of the token, and whether it may make changes.",
    )]),
    Route::new(Get, "/metrics", "All figures, for Prometheus", state::metrics).replies(&[Reply::text(
        OK,
        "Text format 0.0.4.",
        state::PROMETHEUS,
    )]),
    Route::new(Get, "/v1/openapi.json", "This document", openapi_document)
        .replies(&[Reply { schema: openapi::schema, ..Reply::ok::<()>("OpenAPI 3.1.") }]),
    Route::new(Get, "/v1/state", "Everything at a glance, of the last second", state::state)
        .replies(&[Reply::ok::<state::State>("The state.")]),
    Route::new(Get, "/v1/capacity", "The capacity, and how it was found", capacity::get)
        .replies(&[Reply::ok::<capacity::Capacity>("The capacity.")]),
    Route::new(Put, "/v1/capacity", "Sets the capacity, within the operator's bounds", capacity::put)
        .change()
        .body(capacity::wanted)
        .replies(&[
            Reply::ok::<capacity::Capacity>("The capacity now."),
            Reply::problem(StatusCode::CONFLICT, "The capacity is kept by another process."),
        ]),
    Route::new(
        Post,
        "/v1/capacity/rediscover",
        "Forgets what is believed of the capacity and looks anew",
        capacity::rediscover,
    )
    .change()
    .why()
    .replies(&[
        Reply::json::<capacity::Capacity>(StatusCode::ACCEPTED, "It is looked for."),
        Reply::problem(StatusCode::CONFLICT, "The capacity is given, or kept by another process."),
    ]),
    Route::new(Get, "/v1/tunables", "Every key that may change while running", tunables::get_all)
        .replies(&[Reply::ok::<tunables::All>("All of them; the ETag is of the settings.")]),
    Route::new(Patch, "/v1/tunables", "Changes several keys at once: all, or none", tunables::patch)
        .change()
        .params(&[tunables::UNCHANGED])
        .body(tunables::changes)
        .replies(&[Reply::ok::<tunables::Changed>("In force."), tunables::STALE, tunables::REFUSED]),
    Route::new(Get, "/v1/tunables/{name}", "One key", tunables::get).params(&[tunables::NAME]).replies(&[
        Reply::ok::<tunables::TunableShown>("The key; the ETag is of the settings."),
        tunables::UNKNOWN,
    ]),
    Route::new(Put, "/v1/tunables/{name}", "Changes one key", tunables::put)
        .change()
        .params(&[tunables::NAME, tunables::UNCHANGED])
        .body(tunables::wanted)
        .replies(&[
            Reply::ok::<tunables::TunableShown>("In force."),
            tunables::UNKNOWN,
            tunables::STALE,
            tunables::REFUSED,
        ]),
    Route::new(Delete, "/v1/tunables/{name}", "Back to what the file says", tunables::delete)
        .change()
        .params(&[tunables::NAME, tunables::UNCHANGED])
        .why()
        .replies(&[
            Reply::ok::<tunables::TunableShown>("In force."),
            tunables::UNKNOWN,
            tunables::STALE,
            tunables::REFUSED,
        ]),
    Route::new(Get, "/v1/tuners", "The scripts that run, and how they do", tuners::get)
        .replies(&[Reply::ok::<tuners::Tuners>("Every tuner.")]),
    Route::new(Get, "/v1/sessions", "Admitted sessions: how many, how many more, and who", sessions::get)
        .params(&[sessions::LIMIT, sessions::AFTER])
        .replies(&[Reply::ok::<sessions::Page>("The state, and a page of sessions."), sessions::NOT_COUNTED]),
    Route::new(Delete, "/v1/sessions", "Ends every session", sessions::delete_all)
        .urgent()
        .why()
        .replies(&[Reply::ok::<sessions::Ended>("Their places are free."), sessions::NOT_COUNTED]),
    Route::new(Delete, "/v1/sessions/{key}", "Ends one session", sessions::delete)
        .urgent()
        .params(&[sessions::KEY])
        .why()
        .replies(&[
            Reply::ok::<sessions::Ended>("Its place is free."),
            sessions::UNKNOWN,
            sessions::NOT_COUNTED,
        ]),
    Route::new(Get, "/v1/explain/{id}", "Why a request was refused", explain::get)
        .params(&[explain::ID])
        .slow()
        .replies(&[Reply::ok::<Explanation>("The refusal."), explain::UNKNOWN]),
    Route::new(Get, "/v1/throttles", "The throttles of request types in force", throttles::get)
        .replies(&[Reply::ok::<throttles::Throttles>("Every throttle.")]),
    Route::new(Post, "/v1/throttles", "Throttles a type of requests", throttles::post)
        .urgent()
        .body(throttles::wanted)
        .replies(&[
            Reply::json::<throttles::ThrottleShown>(
                StatusCode::CREATED,
                "In force for the next request, instead of one of the same type.",
            ),
            throttles::WRONG,
            throttles::TOO_MANY,
        ]),
    Route::new(Delete, "/v1/throttles/{id}", "Ends a throttle", throttles::delete)
        .urgent()
        .params(&[throttles::ID])
        .why()
        .replies(&[Reply::ok::<throttles::ThrottleShown>("As it was."), throttles::UNKNOWN]),
    Route::new(Put, "/v1/signals/{name}", "What another application says (WAC 3.1 h)", signals::put)
        .params(&[signals::NAME])
        .urgent()
        .body(signals::said)
        .replies(&[Reply::ok::<signals::Signal>("Heard; in force from the next tick on."), signals::UNKNOWN]),
    Route::new(Delete, "/v1/signals/{name}", "It says nothing any more", signals::delete)
        .params(&[signals::NAME])
        .urgent()
        .why()
        .replies(&[
            Reply::ok::<signals::Signal>("Its level is unknown from the next tick on."),
            signals::UNKNOWN,
        ]),
    Route::new(Get, "/v1/correlation", "Which types of requests load which figure", correlation::get)
        .params(&[correlation::FIGURE, correlation::RECENT])
        .slow()
        .replies(&[Reply::ok::<correlation::Correlation>("What was found."), correlation::UNKNOWN]),
    Route::new(
        Post,
        "/v1/correlation/confirmation",
        "Holds a suspect for some seconds, to see whether the figure falls",
        correlation::confirm,
    )
    .change()
    .body(correlation::suspicion)
    .replies(&[
        Reply::json::<correlation::ConfirmationShown>(StatusCode::CREATED, "It has begun."),
        correlation::NO_SUSPECT,
        correlation::NOT_NOW,
    ]),
    Route::new(
        Delete,
        "/v1/correlation/confirmation",
        "Ends the confirmation, and forgets it",
        correlation::end_confirmation,
    )
    .change()
    .why()
    .replies(&[
        Reply::ok::<correlation::ConfirmationShown>("It has ended; as it was last."),
        correlation::NONE,
    ]),
    Route::new(
        Get,
        "/v1/kernel",
        "What the kernel does with connections before they are accepted",
        kernel::get,
    )
    .slow()
    .replies(&[Reply::ok::<kernel::Kernel>("Policing, priorities, and every rule for SYNs.")]),
    Route::new(
        Put,
        "/v1/kernel/rules/{name}",
        "Makes a rule for SYNs, or replaces one that was made so",
        kernel::put,
    )
    .urgent()
    .params(&[kernel::NAME])
    .body(kernel::wanted)
    .replies(&[Reply::ok::<kernel::RuleShown>("In force."), kernel::WRONG, kernel::OTHERWISE]),
    Route::new(Patch, "/v1/kernel/rules/{name}", "Changes single values of a rule for SYNs", kernel::patch)
        .urgent()
        .params(&[kernel::NAME])
        .body(kernel::wanted)
        .replies(&[
            Reply::ok::<kernel::RuleShown>("In force."),
            kernel::UNKNOWN,
            kernel::WRONG,
            kernel::OTHERWISE,
        ]),
    Route::new(
        Delete,
        "/v1/kernel/rules/{name}",
        "Removes a rule for SYNs that was made here",
        kernel::delete,
    )
    .urgent()
    .params(&[kernel::NAME])
    .why()
    .replies(&[
        Reply::ok::<kernel::Gone>("It is gone."),
        kernel::UNKNOWN,
        kernel::WRONG,
        kernel::OTHERWISE,
    ]),
    Route::new(Get, "/v1/history", "What was measured, over any stretch of a year", history::get)
        .params(history::PARAMS)
        .slow()
        .replies(&[
            Reply::ok::<history::Answer>("The figure, or all there are."),
            Reply::text(OK, "The figure.", "text/csv"),
            Reply::problem(StatusCode::NOT_FOUND, "No history is kept."),
        ]),
    Route::new(Get, "/v1/audit", "Who changed what, the latest first", audit::get)
        .params(&[audit::LIMIT, audit::BEFORE])
        .slow()
        .replies(&[
            Reply::ok::<audit::Page>("A page of changes."),
            Reply::problem(StatusCode::INTERNAL_SERVER_ERROR, "The record cannot be read."),
        ]),
    Route::new(Get, "/v1/events", "The state of every second, as it passes", state::events)
        .params(&[state::EVERY])
        .replies(&[
            Reply::text(OK, "Server-sent events named `state`; `end` before a drain.", state::EVENT_STREAM),
            Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "Too many listen, or the gate drains."),
        ]),
    Route::new(Post, "/v1/reload", "Reads the configuration again, as SIGHUP", state::reload)
        .change()
        .why()
        .replies(&[
            Reply::ok::<state::Reloaded>("What changed."),
            Reply::problem(
                StatusCode::UNPROCESSABLE_ENTITY,
                "The new configuration is wrong; the old one stays.",
            ),
        ]),
    Route::new(Post, "/v1/drain", "Ends the process in good order, as SIGTERM", state::drain)
        .urgent()
        .why()
        .replies(&[Reply::ok::<state::Draining>("It has begun.")]),
    Route::new(Post, "/v1/feedback", "What a tokencheck process has seen", state::take_feedback)
        .link()
        .body(state::report)
        .replies(&[Reply::ok::<UpdateMessage>("What to go by.")]),
    Route::new(Post, "/v1/claims", "What another tokencheck asks of this one's tickets", claims::take)
        .link()
        .body(claims::message)
        .replies(&[Reply::ok::<ClaimAnswers>("What became of the claims.")]),
];

/// `GET /v1/openapi.json`. Made once: nothing in it changes while the process lives.
fn openapi_document(_: &Call) -> Outcome {
    static DOCUMENT: LazyLock<Bytes> =
        LazyLock::new(|| Bytes::from(format!("{:#}\n", openapi::document(ROUTES))));
    Ok(whole("application/json", DOCUMENT.clone()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::admin::access::Access::{Link, Write};
    use crate::admin::route::{Pace, Place};

    #[test]
    fn every_route_stands_once_and_is_described() {
        let mut seen = HashSet::new();
        for route in ROUTES {
            let name = format!("{} {}", route.verb.name(), route.path);
            assert!(seen.insert((route.verb, route.path)), "{name} twice");
            assert!(!route.summary.is_empty() && !route.replies.is_empty(), "{name}");
            let ends_in_a_slash = route.path.len() > 1 && route.path.ends_with('/');
            assert!(route.path.starts_with('/') && !ends_in_a_slash, "{name}");
            assert_eq!(
                route.verb == Get,
                !matches!(route.access, Write | Link),
                "{name}: a read-only token reads"
            );
            // What is recorded waits for a disk.
            assert_eq!(route.access == Write, matches!(route.pace, Pace::Change | Pace::Urgent), "{name}");
            for param in route.params.iter().filter(|param| param.place == Place::Path) {
                assert!(route.path.contains(&format!("{{{}}}", param.name)), "{name}: {}", param.name);
            }
        }
    }

    #[test]
    fn the_document_names_every_route_and_every_answer_is_described() {
        let document = openapi::document(ROUTES);
        assert_eq!(document["openapi"], "3.1.0");
        let mut ids = HashSet::new();
        for route in ROUTES {
            let operation = &document["paths"][route.path][route.verb.name().to_lowercase()];
            assert_eq!(operation["summary"], route.summary, "{} {}", route.verb.name(), route.path);
            assert!(ids.insert(operation["operationId"].to_string()), "{operation}");
            let replies = operation["responses"].as_object().unwrap();
            assert!(replies.values().all(|reply| reply["description"].is_string()), "{replies:?}");
            assert!(replies.keys().any(|status| status.starts_with('2')), "{replies:?}");
        }
    }
}
