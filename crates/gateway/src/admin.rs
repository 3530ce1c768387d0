//! The admin API: health, metrics, state, capacity, reload. On loopback by default; elsewhere it asks for a
//! bearer token.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode, request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tidegate_core::units::Rate;
use tokio::net::TcpListener;

use crate::driver::Control;
use crate::metrics;

mod capacity;

/// Largest request body: a feedback report of a minute's seconds fits ten times.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Connections at once: people, a scraper, a peer; far below what could hurt the control thread.
const MAX_CONNECTIONS: usize = 64;
/// Longest life of a connection: whoever never reads an answer does not keep a place for ever. Scrapers reconnect.
const MAX_AGE: Duration = Duration::from_secs(300);
/// For the answer under way when that age is reached.
const LAST_ANSWER: Duration = Duration::from_secs(10);

type Answer = Response<Full<Bytes>>;

/// Serves the admin API until the control thread ends.
pub async fn serve(control: Arc<Control>, listener: TcpListener) {
    let places = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) => {
                tracing::debug!(error = %e, "admin: cannot accept");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let control = control.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let control = control.clone();
                async move { Ok::<_, Infallible>(answer(&control, request).await) }
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
            let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
            let ended = match tokio::time::timeout(MAX_AGE, served.as_mut()).await {
                Ok(ended) => ended,
                Err(_) => {
                    served.as_mut().graceful_shutdown();
                    tokio::time::timeout(LAST_ANSWER, served).await.unwrap_or(Ok(()))
                }
            };
            if let Err(e) = ended {
                tracing::debug!(error = %e, "admin connection ended");
            }
            drop(place);
        });
    }
}

async fn answer(control: &Arc<Control>, request: Request<Incoming>) -> Answer {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    // Health is for load balancers, which carry no tokens and have names of their own for this machine.
    let health = matches!(path, "/healthz" | "/readyz");
    if !health && let Err(why) = of_no_foreign_page(control, &parts) {
        return problem(StatusCode::FORBIDDEN, why);
    }
    if !health && !authorised(control, &parts.headers) {
        let mut answer =
            problem(StatusCode::UNAUTHORIZED, "the admin API asks for `Authorization: Bearer TOKEN`");
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return answer;
    }
    match (&parts.method, path) {
        (&Method::GET, "/healthz") => text("ok\n"),
        (&Method::GET, "/readyz") => ready(control),
        (&Method::GET, "/metrics") => metrics_text(control),
        (&Method::GET, "/v1/state") => json_answer(&metrics::state(control)),
        (&Method::GET, "/v1/capacity") => capacity::get(control),
        (&Method::PUT, "/v1/capacity") => match read_json(body).await {
            Ok(value) => capacity::put(control, &value),
            Err(refused) => refused,
        },
        (&Method::POST, "/v1/capacity/rediscover") => capacity::rediscover(control),
        (&Method::POST, "/v1/reload") => reload(control),
        (&Method::POST, "/v1/drain") => {
            control.drain();
            json_answer(&json!({ "draining": true }))
        }
        (&Method::POST, "/v1/feedback") => match read_json(body).await {
            Ok(value) => crate::feedback::receive(control, &value)
                .map_or_else(|e| problem(StatusCode::BAD_REQUEST, &e), |answer| json_answer(&answer)),
            Err(refused) => refused,
        },
        (method, path) => no_such(method, path),
    }
}

fn no_such(method: &Method, path: &str) -> Answer {
    let allowed = match path {
        "/healthz" | "/readyz" | "/metrics" | "/v1/state" => "GET, OPTIONS",
        "/v1/capacity" => "GET, PUT, OPTIONS",
        "/v1/capacity/rediscover" | "/v1/reload" | "/v1/drain" | "/v1/feedback" => "POST, OPTIONS",
        _ => return problem(StatusCode::NOT_FOUND, "no such resource"),
    };
    let mut answer = if method == Method::OPTIONS {
        let mut empty = Response::new(Full::default());
        *empty.status_mut() = StatusCode::NO_CONTENT;
        empty
    } else {
        problem(StatusCode::METHOD_NOT_ALLOWED, &format!("{path} takes {allowed}"))
    };
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// The operator's browser shows other people's pages too, and such a page can send requests to loopback: a form to
/// `/v1/drain`, or, once its name has been pointed at 127.0.0.1, anything. Browsers say where a request that
/// changes something comes from (Fetch, "append a request `Origin` header"); and pages cannot choose `Host`.
fn of_no_foreign_page(control: &Control, parts: &request::Parts) -> Result<(), &'static str> {
    let host = parts.headers.get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    if let Some(origin) = parts.headers.get(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        if origin.split_once("://").is_none_or(|(_, authority)| authority != host) {
            return Err("the admin API takes no requests from other sites' pages");
        }
    }
    // A token is what no foreign page knows; without one, the name must not be one that others can point here.
    let open = control.shared.live.load().settings.listen.admin_token.is_empty();
    if open && !is_local(host) {
        return Err(
            "without listen.admin_token, the admin API answers to IP addresses and names without a dot only",
        );
    }
    Ok(())
}

/// Whether nobody outside can make this `Host` lead here: an address, a name without a dot (`localhost`, a container's),
/// or none at all (HTTP/1.0).
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    !bare.contains('.') || bare.parse::<IpAddr>().is_ok()
}

fn authorised(control: &Control, headers: &http::HeaderMap) -> bool {
    let live = control.shared.live.load();
    let token = &live.settings.listen.admin_token;
    token.is_empty()
        || headers
            .get(AUTHORIZATION)
            .and_then(|v| v.as_bytes().strip_prefix(b"Bearer "))
            .is_some_and(|shown| shown.ct_eq(token.as_bytes()).into())
}

fn ready(control: &Control) -> Answer {
    let shared = &control.shared;
    if shared.is_draining() {
        problem(StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if !shared.has_somewhere_to_go(&shared.live.load().settings.role) {
        problem(StatusCode::SERVICE_UNAVAILABLE, "no replica of the origin is usable")
    } else {
        text("ready\n")
    }
}

fn metrics_text(control: &Control) -> Answer {
    let mut answer = text(metrics::prometheus(control));
    let form = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, form);
    answer
}

fn reload(control: &Control) -> Answer {
    match control.reload() {
        Ok(changes) => json_answer(&json!({
            "changed": changes.iter().map(|c| json!({
                "key": c.key, "old": c.old, "new": c.new, "needs_restart": c.restart,
            })).collect::<Vec<_>>(),
        })),
        Err(e) => problem(StatusCode::UNPROCESSABLE_ENTITY, &e.to_string()),
    }
}

async fn read_json(body: Incoming) -> Result<Value, Answer> {
    let bytes = tokio::time::timeout(Duration::from_secs(10), Limited::new(body, MAX_BODY_BYTES).collect())
        .await
        .map_err(|_| problem(StatusCode::REQUEST_TIMEOUT, "the body did not come"))?
        .map_err(|e| problem(StatusCode::BAD_REQUEST, &format!("the body cannot be read: {e}")))?
        .to_bytes();
    serde_json::from_slice(&bytes)
        .map_err(|e| problem(StatusCode::BAD_REQUEST, &format!("the body is not JSON: {e}")))
}

/// "Unlimited" is `null` in JSON.
pub(crate) fn finite(rate: Rate) -> Value {
    if rate < Rate::MAX { json!(rate.get()) } else { Value::Null }
}

fn text(text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

fn json_answer(value: &Value) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(format!("{value}\n"))));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn problem(status: StatusCode, detail: &str) -> Answer {
    let body = json!({ "title": status.canonical_reason(), "status": status.as_u16(), "detail": detail });
    let mut answer = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    answer
}
