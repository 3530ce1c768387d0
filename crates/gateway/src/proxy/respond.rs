//! Makes HTTP answers of decisions. No other module does.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, LOCATION,
    REFERRER_POLICY, RETRY_AFTER, SET_COOKIE, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tidegate_core::gate::ShedReason;
use tidegate_core::ticket::Sealed;
use tidegate_core::units::ClassId;

use crate::config::page::{self, Kind, View};
use crate::config::{ClassTag, Config};
use crate::http::hygiene::Reject;
use crate::http::{target, wire};
use crate::upstream::body::BoxError;
use crate::upstream::dispatch::DispatchError;
use tidegate_settings::Role;

/// The answer over the connection cap, written before any HTTP is spoken.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n\
    Content-Type: text/plain\r\nContent-Length: 22\r\nConnection: close\r\n\r\nToo many connections.\n";

/// Where the status document of a waiting visitor is; the class is added.
pub const STATUS_PATH: &str = "/.tidegate/status";

pub const STATUS_FIELD: HeaderName = HeaderName::from_static("x-tidegate-status");

/// The longest a page without JavaScript shows old numbers, and the longest Retry-After of a waiting answer.
pub const MAX_REFRESH: Duration = Duration::from_secs(20);

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub struct AnswerRequest<'a> {
    pub class: ClassId,
    /// Path and query, without the gate's own parameter.
    pub target: &'a str,
    /// A browser's navigation; others get problem JSON.
    pub html: bool,
    pub language: Option<&'a str>,
    pub form: Option<&'a page::KeptForm>,
}

pub struct WaitingAnswer {
    pub kind: Kind,
    /// Time until the visitor's turn; for [`Kind::Full`], until asking again makes sense.
    pub wait: Duration,
    /// Visitors ahead.
    pub place: u64,
    pub waited: Duration,
    /// When the page should ask first.
    pub poll: Duration,
    /// For clients that keep no cookies: the ticket to carry in the URL.
    pub url_ticket: Option<Sealed>,
    /// At tokengen: the ticket as tokencheck takes it, for when tokengen itself does not answer any more.
    pub check_ticket: Option<Sealed>,
    pub cookies: Vec<HeaderValue>,
    /// The answer's status, if it is not that of its kind.
    pub status: Option<u16>,
}

impl WaitingAnswer {
    pub fn without_position(kind: Kind, wait: Duration) -> Self {
        let (place, waited) = (0, Duration::ZERO);
        Self {
            kind,
            wait,
            place,
            waited,
            poll: wait,
            url_ticket: None,
            check_ticket: None,
            cookies: Vec::new(),
            status: None,
        }
    }
}

pub fn waiting(live: &Config, asked: &AnswerRequest<'_>, w: WaitingAnswer) -> Response<Bytes> {
    let status_path = status_path(live.class(asked.class).mark);
    let given = w.status.and_then(|status| StatusCode::from_u16(status).ok());
    let status = given.unwrap_or_else(|| waiting_status(live, w.kind));
    let told = page::told_seconds(w.kind, w.wait).max(1);
    let refresh = match w.kind {
        // Who has no position is asked again when there may be one.
        Kind::Full => told,
        kind if kind.has_place() => page::reload_seconds(w.wait, w.poll),
        _ => told.min(MAX_REFRESH.as_secs()),
    };
    let check_url = check_url(live, asked.target, &w);
    let view = View {
        kind: w.kind,
        lang: live.pages.language(asked.language),
        status: status.as_u16(),
        poll: w.poll,
        wait: w.wait,
        place: w.place,
        waited: w.waited,
        target: asked.target,
        ticket: w.url_ticket.as_ref().map(|t| t.as_str()),
        status_path: &status_path,
        check_url: check_url.as_deref(),
        form: asked.form,
        refresh: (w.kind != Kind::Forbidden && asked.form.is_none()).then_some(Duration::from_secs(refresh)),
    };
    let mut out = Vec::new();
    let content_type = if asked.html {
        live.pages.waiting(&view, &mut out);
        HTML
    } else {
        live.pages.api(&view, &mut out);
        PROBLEM
    };
    let mut response = Response::new(Bytes::from(out));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(10 + w.cookies.len());
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, NO_STORE);
    if w.kind != Kind::Forbidden {
        headers.insert(RETRY_AFTER, told.into());
    }
    if w.kind.has_place()
        && let Ok(value) = HeaderValue::from_str(&with_ticket(status_path, &w))
    {
        headers.insert(STATUS_FIELD, value);
    }
    if asked.html {
        page_fields(headers, live.pages.policy(asked.form.is_some()));
    }
    headers.extend(w.cookies.into_iter().map(|cookie| (SET_COOKIE, cookie)));
    response
}

/// The same target at tokencheck, with the ticket.
fn check_url(live: &Config, target: &str, w: &WaitingAnswer) -> Option<String> {
    let (Role::TokenGen { check_url, .. }, Some(ticket)) = (&live.settings.role, &w.check_ticket) else {
        return None;
    };
    let uri = target.parse().ok().filter(target::is_local)?;
    Some(target::elsewhere(check_url, &uri, Some(ticket.as_str())))
}

/// When a page without JavaScript loads itself again.
pub fn refresh(wait: Duration) -> Duration {
    retry_after(wait.min(MAX_REFRESH))
}

/// When a program is asked to come again: whole seconds, not before its turn.
pub fn retry_after(wait: Duration) -> Duration {
    Duration::from_secs(page::retry_after(wait).max(1))
}

fn page_fields(headers: &mut HeaderMap, policy: &HeaderValue) {
    headers.insert(CONTENT_SECURITY_POLICY, policy.clone());
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Language, Cookie"));
}

fn status_path(class: ClassTag) -> String {
    let mut path = String::with_capacity(96);
    path.push_str(STATUS_PATH);
    path.push_str("?c=");
    path.push_str(itoa::Buffer::new().format(class.0));
    path
}

/// The path for programs, which have no page that adds the ticket.
fn with_ticket(mut path: String, w: &WaitingAnswer) -> String {
    if let Some(ticket) = &w.url_ticket {
        path.push_str("&tg=");
        path.push_str(ticket.as_str());
    }
    path
}

fn waiting_status(live: &Config, kind: Kind) -> StatusCode {
    match kind {
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::Replaced => StatusCode::CONFLICT,
        Kind::Unavailable | Kind::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        Kind::Waiting | Kind::Late | Kind::Full => {
            StatusCode::from_u16(live.settings.room.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
        }
    }
}

/// The tiny document that a waiting page polls.
pub fn status_document(
    live: &Config,
    state: page::State,
    wait: Duration,
    place: u64,
    poll: Duration,
    waited: Duration,
    ticket: Option<&str>,
) -> Response<Bytes> {
    let mut out = Vec::with_capacity(96);
    let [wait_ms, poll_ms, waited_ms] = [wait, poll, waited].map(|d| d.as_millis() as u64);
    live.pages.status(&page::Status { state, wait_ms, place, poll_ms, waited_ms, ticket }, &mut out);
    let mut response = Response::new(Bytes::from(out));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// Sends the visitor elsewhere (the two-process form).
pub fn redirect(url: &str, cookies: &[HeaderValue]) -> Response<Bytes> {
    let Ok(location) = HeaderValue::from_str(url) else {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "The redirect is not a URL.\n");
    };
    // 307: the method and the body stay what they were.
    let mut response = text(StatusCode::TEMPORARY_REDIRECT, "");
    response.headers_mut().insert(LOCATION, location);
    response.headers_mut().extend(cookies.iter().map(|cookie| (SET_COOKIE, cookie.clone())));
    response
}

/// Answers an authority's challenge (RFC 8555, 8.3).
pub fn challenge(answer: String) -> Response<Bytes> {
    text(StatusCode::OK, answer)
}

/// Sends the visitor to the same URL under TLS, for good: method and body stay what they were.
pub fn redirect_to_https(url: &str) -> Response<Bytes> {
    let mut response = redirect(url, &[]);
    if response.status() == StatusCode::TEMPORARY_REDIRECT {
        *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    }
    response
}

/// Lets the connection end with this answer. 101 says itself what becomes of the connection.
pub fn close<B>(response: &mut Response<B>) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// A request that breaks HTTP or the gate's limits.
pub fn reject(reject: Reject) -> Response<Bytes> {
    let status = StatusCode::from_u16(reject.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = text(status, format!("{reject}\n"));
    // After an ambiguous request the beginning of the next one is not certain.
    close(&mut response);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, METHODS);
    }
    response
}

/// A request that tier 2 refuses.
pub fn shed(reason: ShedReason) -> Response<Bytes> {
    let words = match reason {
        ShedReason::QueueFull => "The service is busy and its queue is full. Please try again shortly.\n",
        ShedReason::QueueTimeout | ShedReason::Patience => {
            "The service is busy and did not come to this request in time.\n"
        }
        ShedReason::CoDel => "The service is busy and too many wait for it. Please try again shortly.\n",
    };
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, words);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// A request that its class's ingress bucket refuses.
pub fn throttled(wait: Duration) -> Response<Bytes> {
    let words = "More of these requests come than are let in. Please try again shortly.\n";
    too_many(StatusCode::SERVICE_UNAVAILABLE, words, wait)
}

pub fn over_quota(wait: Duration) -> Response<Bytes> {
    let words = "More requests came from you than were agreed on. Please try again shortly.\n";
    too_many(StatusCode::TOO_MANY_REQUESTS, words, wait)
}

fn too_many(status: StatusCode, words: &'static str, wait: Duration) -> Response<Bytes> {
    let mut response = text(status, words);
    response.headers_mut().insert(RETRY_AFTER, retry_after(wait).as_secs().into());
    response
}

/// A request that a rule refuses: problem JSON (RFC 9457) that names the rule.
pub fn refused(status: u16, rule: &str, id: &str, wait: Duration) -> Response<Bytes> {
    refused_by("rule", rule, status, id, wait)
}

/// The same of a request that a throttle refuses, with the type of requests that it is for.
pub fn refused_by_throttle(of: &str, id: &str, wait: Duration) -> Response<Bytes> {
    refused_by("throttle", of, StatusCode::SERVICE_UNAVAILABLE.as_u16(), id, wait)
}

fn refused_by(what: &str, name: &str, status: u16, id: &str, wait: Duration) -> Response<Bytes> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let seconds = retry_after(wait).as_secs();
    let body = serde_json::json!({
        "type": "urn:tidegate:problem:refused", "title": "Refused to keep the service up for others",
        "status": status.as_u16(), what: name, "request_id": id, "retry_after": seconds,
    });
    let mut response = text(status, body.to_string());
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    response
}

/// Where a lighter version is. 302: for now.
pub fn lighter(uri: &http::Uri) -> Response<Bytes> {
    let Some(Ok(location)) = uri.path_and_query().map(|target| HeaderValue::from_str(target.as_str())) else {
        return not_found();
    };
    let mut response = text(StatusCode::FOUND, "");
    response.headers_mut().insert(LOCATION, location);
    response
}

/// Nothing: the wire sends none of it, and the connection ends. The status is for the log.
pub fn unsent() -> Response<Bytes> {
    /// As nginx logs a connection closed without an answer.
    const CLOSED: u16 = 444;
    let mut response = Response::default();
    *response.status_mut() = StatusCode::from_u16(CLOSED).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    close(&mut response);
    response
}

pub fn request_timeout() -> Response<Bytes> {
    text(StatusCode::GATEWAY_TIMEOUT, "The request took longer than it may.\n")
}

/// Something failed between the gate and the origin, or in the visitor's body.
pub fn failed(error: &DispatchError) -> Response<Bytes> {
    let (status, words) = match error {
        DispatchError::NoReplica => {
            (StatusCode::SERVICE_UNAVAILABLE, "No server of this service is available.\n")
        }
        DispatchError::ConnectTimeout => (StatusCode::GATEWAY_TIMEOUT, "The service cannot be reached.\n"),
        DispatchError::FirstByteTimeout => {
            (StatusCode::GATEWAY_TIMEOUT, "The service did not answer in time.\n")
        }
        DispatchError::ConnectFailed(_) => (StatusCode::BAD_GATEWAY, "The service cannot be reached.\n"),
        DispatchError::Reset(_) => (StatusCode::BAD_GATEWAY, "The service ended the connection.\n"),
        DispatchError::BadResponse(_) => {
            (StatusCode::BAD_GATEWAY, "The service's answer is not valid HTTP.\n")
        }
        DispatchError::RequestBody(error) => bad_body(error),
    };
    let mut response = text(status, words);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    }
    response
}

fn bad_body(error: &BoxError) -> (StatusCode, &'static str) {
    let status = wire::is_bad_body(&**error).map_or(400, |bad| bad.status());
    match status {
        413 => (StatusCode::PAYLOAD_TOO_LARGE, "The request's body is larger than this service takes.\n"),
        408 => (StatusCode::REQUEST_TIMEOUT, "The request's body did not come.\n"),
        _ => (StatusCode::BAD_REQUEST, "The request's body is not valid HTTP.\n"),
    }
}

/// A panic was caught: this request fails, the gate lives.
pub fn internal_error() -> Response<Bytes> {
    text(StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong in the gate.\n")
}

/// Answers of the gate's own paths and of methods it answers itself.
pub fn not_found() -> Response<Bytes> {
    text(StatusCode::NOT_FOUND, "There is nothing here.\n")
}

/// The gate answers OPTIONS itself when `Max-Forwards` says that it goes no further (RFC 9110 7.6.2).
pub fn last_recipient() -> Response<Bytes> {
    let mut response = text(StatusCode::NO_CONTENT, "");
    response.headers_mut().insert(ALLOW, METHODS);
    response
}

fn text(status: StatusCode, words: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(words.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    // Caches keep some of these statuses by default (404, 405, 414, 501; RFC 9110 15.1).
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}
