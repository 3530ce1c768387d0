//! From a request to its handler, and back.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::header::ALLOW;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::access::{self, Access, Rank};
use super::answer::{Answer, Outcome, Problem, empty};
use super::call::{Api, Call};
use super::route::{Body, Named, Pace, Param, Place, Route};
use super::routes::ROUTES;
use super::schema::{self, Mistake};
use crate::http::hygiene::content_length;
use tidegate_settings::did_you_mean;

/// Largest request body: a feedback report of a minute's seconds fits ten times.
const MAX_BODY_BYTES: usize = 64 << 10;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn answer(
    api: &Arc<Api>,
    peer: SocketAddr,
    aged: Arc<AtomicBool>,
    request: Request<Incoming>,
) -> Answer {
    let (parts, body) = request.into_parts();
    perform(api, peer, aged, &parts, body).await.unwrap_or_else(Answer::from)
}

async fn perform(
    api: &Arc<Api>,
    peer: SocketAddr,
    aged: Arc<AtomicBool>,
    parts: &request::Parts,
    body: Incoming,
) -> Outcome {
    let target = parts.uri.path();
    let here: Vec<(&Route, Named<'_>)> =
        ROUTES.iter().filter_map(|route| Some((route, route.matches(target)?))).collect();
    let is_open = !here.is_empty() && here.iter().all(|(route, _)| route.access == Access::Open);
    let live = api.control.shared().config.load_full();
    let (listen, link_token) = (&live.settings.listen, live.settings.role.link_token());
    let rank = if is_open {
        Rank::Local
    } else {
        access::of_no_foreign_page(listen, parts)?;
        access::rank(listen, link_token, &parts.headers)?
    };
    let Some((route, path)) = here.iter().find(|(route, _)| parts.method == route.verb.name()) else {
        return elsewhere(&parts.method, target, &here);
    };
    access::may(rank, route.access, !link_token.is_empty())?;
    let call = Call {
        api: api.clone(),
        who: format!("{}@{peer}", rank.name()),
        rank,
        aged,
        path: path.iter().map(|(name, value)| (*name, value.to_string())).collect(),
        query: query(route.params, parts.uri.query().unwrap_or_default())?,
        headers: parts.headers.clone(),
        body: match route.body {
            Some(wanted) => read(wanted, &parts.headers, body).await?,
            None => Value::Null,
        },
    };
    let ended = |_| Problem::unavailable("the gate ends");
    let handle = route.handler;
    match route.pace {
        Pace::Quick => handle(&call),
        Pace::Slow => {
            let permit = api.slow.clone().acquire_owned().await.map_err(ended)?;
            apart(permit, move || handle(&call)).await
        }
        Pace::Change => {
            let permit = api.next_change.clone().acquire_owned().await.map_err(ended)?;
            apart(permit, move || handle(&call)).await
        }
        Pace::Urgent => apart((), move || handle(&call)).await,
    }
}

/// Runs `work` on a thread of its own. If the client leaves, the work goes on and keeps its permit.
async fn apart<P: Send + 'static>(permit: P, work: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    done.await.unwrap_or_else(|e| Err(Problem::internal(format!("the answer was not finished: {e}"))))
}

/// The answer to a path or method that the table does not have.
fn elsewhere(method: &Method, target: &str, here: &[(&Route, Named<'_>)]) -> Outcome {
    if here.is_empty() {
        let hint = did_you_mean(target, ROUTES.iter().map(|route| route.path)).unwrap_or_default();
        let asked = tidegate_settings::tree::quoted(target);
        let detail = format!("there is no {asked}. {hint} `GET /v1/openapi.json` lists what there is.");
        return Err(Problem::not_found(detail.replace("  ", " ")));
    }
    let mut methods: Vec<&str> = here.iter().map(|(route, _)| route.verb.name()).collect();
    methods.push("OPTIONS");
    let allowed = methods.join(", ");
    if method != Method::OPTIONS {
        return Err(Problem::method(target, &allowed));
    }
    let mut answer = empty(StatusCode::NO_CONTENT);
    answer.headers_mut().extend(HeaderValue::from_str(&allowed).ok().map(|value| (ALLOW, value)));
    Ok(answer)
}

/// The query's parameters, typed as the table says. Unknown ones are mistakes: a misspelt one would be
/// ignored silently.
fn query(params: &'static [Param], text: &str) -> Result<Vec<(&'static str, Value)>, Problem> {
    let known = || params.iter().filter(|param| param.place == Place::Query);
    let (mut out, mut wrong) = (Vec::<(&str, Value)>::new(), Vec::new());
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        let Some(param) = known().find(|param| param.name == name) else {
            let names: Vec<String> = known().map(|param| format!("`{}`", param.name)).collect();
            let expected = match names.is_empty() {
                true => "no query here".into(),
                false => format!("one of {}", names.join(", ")),
            };
            let hint = did_you_mean(&name, known().map(|param| param.name));
            let name: String = name.chars().take(64).collect();
            wrong.push(schema::mistake(&name, &expected, "an unknown name", hint));
            continue;
        };
        let schema = (param.schema)();
        let value = match schema["type"].as_str() {
            Some("integer" | "number") => serde_json::from_str(&value).unwrap_or(Value::String(value)),
            _ => Value::String(value),
        };
        if out.iter().any(|(name, _)| *name == param.name) {
            wrong.push(schema::mistake(param.name, "one value", "another", None));
        }
        schema::check(&schema, &value, param.name, &mut wrong);
        out.push((param.name, value));
    }
    if wrong.is_empty() { Ok(out) } else { Err(misread("the query", wrong)) }
}

fn misread(what: &str, wrong: Vec<Mistake>) -> Problem {
    let Mistake { key, expected, got, hint } = &wrong[0];
    let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
    let hint = hint.as_ref().map_or(String::new(), |hint| format!(" {hint}"));
    Problem::bad_request(format!("{what}: {key}expected {expected}; got {got}.{hint}")).mistakes(wrong)
}

fn decoded(text: &str) -> Result<String, Problem> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| Problem::bad_request("the query is not UTF-8"))
}

/// The body, checked against its schema; `Null` if there is none and none is needed.
async fn read(wanted: Body, headers: &HeaderMap, body: Incoming) -> Result<Value, Problem> {
    let announced = content_length(headers).map_err(|e| Problem::bad_request(e.to_string()))?;
    if announced.is_some_and(|length| length > MAX_BODY_BYTES as u64) {
        return Err(Problem::too_large(MAX_BODY_BYTES));
    }
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect());
    let bytes = match collected.await.map_err(|_| Problem::late())? {
        Ok(collected) => collected.to_bytes(),
        Err(e) if e.is::<LengthLimitError>() => return Err(Problem::too_large(MAX_BODY_BYTES)),
        Err(e) => return Err(Problem::bad_request(format!("the body cannot be read: {e}"))),
    };
    if bytes.is_empty() && !wanted.is_required {
        return Ok(Value::Null);
    }
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|e| Problem::bad_request(format!("the body is not JSON: {e}")))?;
    let mut wrong = Vec::new();
    schema::check(&(wanted.schema)(), &value, "", &mut wrong);
    if wrong.is_empty() { Ok(value) } else { Err(misread("the body", wrong)) }
}
