//! Makes HTTP answers of decisions. No other module does.

use std::time::Duration;

use http::StatusCode;
use tidegate_core::gate::ShedReason;
use tidegate_core::ticket::Sealed;
use tidegate_core::units::ClassId;
use tidegate_http::{Fields, Name, Refusal, ResponseHead, is_text, name};

use crate::base::scratch::Scratch;
use crate::config::page::{self, Kind, Pieces, View};
use crate::config::{ClassTag, Config};
use crate::http::hygiene::Reject;
use crate::http::{http1, target};
use crate::proxy::cookies::SetCookies;
use crate::upstream::body::BoxError;
use crate::upstream::dispatch::DispatchError;
use tidegate_settings::Role;

/// The answer over the connection cap, written before any HTTP is spoken.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n\
    Content-Type: text/plain\r\nContent-Length: 22\r\nConnection: close\r\n\r\nToo many connections.\n";

/// Where the status document of a waiting visitor is; the class is added.
pub const STATUS_PATH: &str = "/.tidegate/status";

pub const STATUS_FIELD: &str = "x-tidegate-status";

/// The longest a page without JavaScript shows old numbers, and the longest Retry-After of a waiting answer.
pub const MAX_REFRESH: Duration = Duration::from_secs(20);

/// `Retry-After` where nothing better is known, in seconds.
const SOON_S: u64 = 5;

const METHODS: &[u8] = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
const NO_STORE: &[u8] = b"no-store";
const HTML: &[u8] = b"text/html; charset=utf-8";
const JSON: &[u8] = b"application/json";
const PROBLEM: &[u8] = b"application/problem+json";
const TEXT: &[u8] = b"text/plain; charset=utf-8";

const CONTENT_SECURITY_POLICY: Name<'static> = Name::Other("content-security-policy");
const REFERRER_POLICY: Name<'static> = Name::Other("referrer-policy");

/// An answer of the gate's own.
pub struct OwnAnswer {
    pub head: ResponseHead,
    pub body: Pieces,
}

impl OwnAnswer {
    /// With what every one has: a type, and that it is not kept. Caches keep some statuses by default (404,
    /// 405, 414, 501; RFC 9110 15.1).
    fn new(status: StatusCode, content_type: &[u8], body: impl Into<Pieces>) -> Self {
        let mut head = ResponseHead::new(status);
        head.fields.append(name::CONTENT_TYPE, content_type);
        head.fields.append(name::CACHE_CONTROL, NO_STORE);
        Self { head, body: body.into() }
    }

    fn retry_after(mut self, seconds: u64) -> Self {
        self.head.fields.append(name::RETRY_AFTER, itoa::Buffer::new().format(seconds).as_bytes());
        self
    }

    /// Nothing is sent to where `location` is no field value.
    fn location(mut self, location: &str) -> Option<Self> {
        is_text(location.as_bytes()).then(|| {
            self.head.fields.append(name::LOCATION, location.as_bytes());
            self
        })
    }
}

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
    pub cookies: SetCookies,
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
            cookies: SetCookies::default(),
            status: None,
        }
    }
}

pub fn waiting(live: &Config, asked: &AnswerRequest<'_>, w: WaitingAnswer) -> OwnAnswer {
    let mut status_path = Scratch::new();
    write_status_path(&mut status_path, live.class(asked.class).mark);
    let status_path = std::str::from_utf8(&status_path).unwrap_or_default();
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
    let url_ticket = w.url_ticket.as_ref().map(Sealed::as_str);
    let view = View {
        kind: w.kind,
        lang: live.pages.language(asked.language),
        status: status.as_u16(),
        poll: w.poll,
        wait: w.wait,
        place: w.place,
        waited: w.waited,
        target: asked.target,
        ticket: url_ticket,
        status_path,
        check_url: check_url.as_deref(),
        form: asked.form,
        refresh: (w.kind != Kind::Forbidden && asked.form.is_none()).then_some(Duration::from_secs(refresh)),
    };
    let (content_type, body) = if asked.html {
        (HTML, live.pages.pieces(&view))
    } else {
        let mut out = Scratch::new();
        live.pages.api(&view, &mut out);
        (PROBLEM, Pieces::copy_of(&out))
    };
    let mut answer = OwnAnswer::new(status, content_type, body);
    if w.kind != Kind::Forbidden {
        answer = answer.retry_after(told);
    }
    let fields = &mut answer.head.fields;
    if w.kind.has_place() {
        // Programs have no page that adds the ticket.
        fields.append_with(Name::Other(STATUS_FIELD), |line| {
            line.extend_from_slice(status_path.as_bytes());
            if let Some(ticket) = url_ticket {
                line.extend_from_slice(b"&tg=");
                line.extend_from_slice(ticket.as_bytes());
            }
        });
    }
    if asked.html {
        page_fields(fields, live.pages.policy(asked.form.is_some()));
    }
    w.cookies.add_to(fields);
    answer
}

/// The same target at tokencheck, with the ticket.
fn check_url(live: &Config, target: &str, w: &WaitingAnswer) -> Option<String> {
    let (Role::TokenGen { check_url, .. }, Some(ticket)) = (&live.settings.role, &w.check_ticket) else {
        return None;
    };
    target::is_local(target).then(|| target::elsewhere(check_url, target, Some(ticket.as_str())))
}

/// When a page without JavaScript loads itself again.
pub fn refresh(wait: Duration) -> Duration {
    retry_after(wait.min(MAX_REFRESH))
}

/// When a program is asked to come again: whole seconds, not before its turn.
pub fn retry_after(wait: Duration) -> Duration {
    Duration::from_secs(page::retry_after(wait).max(1))
}

fn page_fields(fields: &mut Fields, policy: &str) {
    fields.append(CONTENT_SECURITY_POLICY, policy.as_bytes());
    fields.append(REFERRER_POLICY, b"no-referrer");
    fields.append(name::X_CONTENT_TYPE_OPTIONS, b"nosniff");
    fields.append(name::VARY, b"Accept, Accept-Language, Cookie");
}

fn write_status_path(out: &mut Scratch, class: ClassTag) {
    out.text(STATUS_PATH);
    out.text("?c=");
    out.number(class.0.into());
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
) -> OwnAnswer {
    let mut out = Scratch::new();
    let [wait_ms, poll_ms, waited_ms] = [wait, poll, waited].map(|d| d.as_millis() as u64);
    live.pages.status(&page::Status { state, wait_ms, place, poll_ms, waited_ms, ticket }, &mut out);
    OwnAnswer::new(StatusCode::OK, JSON, Pieces::copy_of(&out))
}

/// Sends the visitor elsewhere (the two-process form).
pub fn redirect(url: &str, cookies: &SetCookies) -> OwnAnswer {
    // 307: the method and the body stay what they were.
    let Some(mut answer) = text(StatusCode::TEMPORARY_REDIRECT, "").location(url) else {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "The redirect is not a URL.\n");
    };
    cookies.add_to(&mut answer.head.fields);
    answer
}

/// Answers an authority's challenge (RFC 8555, 8.3).
pub fn challenge(answer: String) -> OwnAnswer {
    text(StatusCode::OK, answer)
}

/// Sends the visitor to the same URL under TLS, for good: method and body stay what they were.
pub fn redirect_to_https(url: &str) -> OwnAnswer {
    let mut answer = redirect(url, &SetCookies::default());
    if answer.head.status() == StatusCode::TEMPORARY_REDIRECT {
        answer.head.set_status(StatusCode::PERMANENT_REDIRECT);
    }
    answer
}

/// Lets the connection end with this answer. 101 says itself what becomes of the connection.
pub fn close(head: &mut ResponseHead) {
    if head.status() != StatusCode::SWITCHING_PROTOCOLS {
        head.fields.set(name::CONNECTION, b"close");
    }
}

/// A request that breaks HTTP or the gate's limits.
pub fn reject(reject: Reject) -> OwnAnswer {
    let status = StatusCode::from_u16(reject.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let mut answer = text(status, format!("{reject}\n"));
    // After an ambiguous request the beginning of the next one is not certain.
    close(&mut answer.head);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        answer.head.fields.append(name::ALLOW, METHODS);
    }
    answer
}

/// A head of HTTP/2 that breaks the rules or the gate's limits. Those of HTTP/1.1 its connection answers.
pub fn refused_head(refusal: Refusal) -> OwnAnswer {
    let status = StatusCode::from_u16(refusal.status().0).unwrap_or(StatusCode::BAD_REQUEST);
    text(status, format!("{refusal}\n"))
}

/// An extended CONNECT for something that the gate cannot carry (RFC 9220 3).
pub fn unknown_protocol() -> OwnAnswer {
    text(StatusCode::NOT_IMPLEMENTED, "This protocol is not supported.\n")
}

/// A request that tier 2 refuses.
pub fn shed(reason: ShedReason) -> OwnAnswer {
    let words = match reason {
        ShedReason::QueueFull => "The service is busy and its queue is full. Please try again shortly.\n",
        ShedReason::QueueTimeout | ShedReason::Patience => {
            "The service is busy and did not come to this request in time.\n"
        }
        ShedReason::CoDel => "The service is busy and too many wait for it. Please try again shortly.\n",
    };
    text(StatusCode::SERVICE_UNAVAILABLE, words).retry_after(SOON_S)
}

/// A request that its class's ingress bucket refuses.
pub fn throttled(wait: Duration) -> OwnAnswer {
    let words = "More of these requests come than are let in. Please try again shortly.\n";
    too_many(StatusCode::SERVICE_UNAVAILABLE, words, wait)
}

pub fn over_quota(wait: Duration) -> OwnAnswer {
    let words = "More requests came from you than were agreed on. Please try again shortly.\n";
    too_many(StatusCode::TOO_MANY_REQUESTS, words, wait)
}

fn too_many(status: StatusCode, words: &'static str, wait: Duration) -> OwnAnswer {
    text(status, words).retry_after(retry_after(wait).as_secs())
}

/// A request that a rule refuses: problem JSON (RFC 9457) that names the rule.
pub fn refused(status: u16, rule: &str, id: &str, wait: Duration) -> OwnAnswer {
    refused_by("rule", rule, status, id, wait)
}

/// The same of a request that a throttle refuses, with the type of requests that it is for.
pub fn refused_by_throttle(of: &str, id: &str, wait: Duration) -> OwnAnswer {
    refused_by("throttle", of, StatusCode::SERVICE_UNAVAILABLE.as_u16(), id, wait)
}

fn refused_by(what: &str, name: &str, status: u16, id: &str, wait: Duration) -> OwnAnswer {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let seconds = retry_after(wait).as_secs();
    let body = serde_json::json!({
        "type": "urn:tidegate:problem:refused", "title": "Refused to keep the service up for others",
        "status": status.as_u16(), what: name, "request_id": id, "retry_after": seconds,
    });
    OwnAnswer::new(status, PROBLEM, body.to_string()).retry_after(seconds)
}

/// Where a lighter version is. 302: for now.
pub fn lighter(target: &str) -> OwnAnswer {
    text(StatusCode::FOUND, "").location(target).unwrap_or_else(not_found)
}

/// Nothing: none of it is sent, and the connection ends. The status is for the log.
pub fn unsent() -> OwnAnswer {
    /// As nginx logs a connection closed without an answer.
    const CLOSED: u16 = 444;
    let mut head = ResponseHead::new(StatusCode::from_u16(CLOSED).unwrap_or(StatusCode::SERVICE_UNAVAILABLE));
    close(&mut head);
    OwnAnswer { head, body: Pieces::default() }
}

pub fn request_timeout() -> OwnAnswer {
    text(StatusCode::GATEWAY_TIMEOUT, "The request took longer than it may.\n")
}

/// Something failed between the gate and the origin, or in the visitor's body.
pub fn failed(error: &DispatchError) -> OwnAnswer {
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
        DispatchError::NoWebSocket => {
            (StatusCode::BAD_GATEWAY, "The service does not speak WebSocket by HTTP/2 (RFC 8441).\n")
        }
        DispatchError::RequestBody(error) => bad_body(error),
    };
    let answer = text(status, words);
    if status == StatusCode::SERVICE_UNAVAILABLE { answer.retry_after(SOON_S) } else { answer }
}

fn bad_body(error: &BoxError) -> (StatusCode, &'static str) {
    let status = http1::is_bad_body(&**error).map_or(400, |bad| bad.status());
    match status {
        413 => (StatusCode::PAYLOAD_TOO_LARGE, "The request's body is larger than this service takes.\n"),
        408 => (StatusCode::REQUEST_TIMEOUT, "The request's body did not come.\n"),
        _ => (StatusCode::BAD_REQUEST, "The request's body is not valid HTTP.\n"),
    }
}

/// A panic was caught: this request fails, the gate lives.
pub fn internal_error() -> OwnAnswer {
    text(StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong in the gate.\n")
}

/// Answers of the gate's own paths and of methods it answers itself.
pub fn not_found() -> OwnAnswer {
    text(StatusCode::NOT_FOUND, "There is nothing here.\n")
}

/// The gate answers OPTIONS itself when `Max-Forwards` says that it goes no further (RFC 9110 7.6.2).
pub fn last_recipient() -> OwnAnswer {
    let mut answer = text(StatusCode::NO_CONTENT, "");
    answer.head.fields.append(name::ALLOW, METHODS);
    answer
}

fn text(status: StatusCode, words: impl Into<Pieces>) -> OwnAnswer {
    OwnAnswer::new(status, TEXT, words)
}
