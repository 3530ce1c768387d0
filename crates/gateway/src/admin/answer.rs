//! Answers of the admin API: documents, texts, streams, and problems (RFC 9457).

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use tokio::sync::mpsc;

use super::schema::Mistake;

pub(super) type Answer = Response<Content>;

pub(super) type Outcome = Result<Answer, Problem>;

pub(super) enum Content {
    Whole(Full<Bytes>),
    /// Goes on until the sender is dropped.
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(whole) => Pin::new(whole).poll_frame(cx),
            Self::Stream(parts) => parts.poll_recv(cx).map(|part| part.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// A problem document. `docs/api.md` lists the kinds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Problem {
    /// The kind, for programs: urn:tidegate:problem:KIND.
    #[serde(rename = "type")]
    kind: String,
    /// The kind, for people.
    title: &'static str,
    /// As in the head.
    #[serde(serialize_with = "code")]
    #[schemars(with = "u16")]
    status: StatusCode,
    /// What it is in this case.
    detail: String,
    /// Every single mistake, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mistakes: Vec<Mistake>,
    #[serde(skip)]
    field: Option<Box<(HeaderName, HeaderValue)>>,
}

fn code<S: Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}

/// Makes a function for each kind of problem that needs nothing but a detail.
macro_rules! problems {
    ($($name:ident: $status:ident, $kind:literal, $title:literal;)+) => {
        $(pub fn $name(detail: impl Into<String>) -> Self {
            Self::new(StatusCode::$status, $kind, $title, detail.into())
        })+
    };
}

impl Problem {
    problems! {
        bad_request: BAD_REQUEST, "bad-request", "The request cannot be understood";
        forbidden: FORBIDDEN, "forbidden", "Not permitted";
        not_found: NOT_FOUND, "not-found", "No such resource";
        conflict: CONFLICT, "conflict", "Not possible here";
        precondition: PRECONDITION_FAILED, "precondition-failed", "Changed in the meantime";
        refused: UNPROCESSABLE_ENTITY, "refused", "A value is wrong";
        internal: INTERNAL_SERVER_ERROR, "internal", "Something broke";
        unavailable: SERVICE_UNAVAILABLE, "unavailable", "Not now";
    }

    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: String) -> Self {
        let kind = format!("urn:tidegate:problem:{kind}");
        Self { status, kind, title, detail, mistakes: Vec::new(), field: None }
    }

    pub fn unauthorized() -> Self {
        let detail = "the admin API asks for `Authorization: Bearer TOKEN`".into();
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "No valid token", detail)
            .with(http::header::WWW_AUTHENTICATE, "Bearer")
    }

    pub fn method(path: &str, allowed: &str) -> Self {
        let detail = format!("{path} takes {allowed}");
        let title = "The resource does not take this method";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", title, detail)
            .with(http::header::ALLOW, allowed)
    }

    pub fn late() -> Self {
        let detail = "the body did not come in time".into();
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", "Too slow", detail)
    }

    pub fn too_large(limit: usize) -> Self {
        let detail = format!("a body may have at most {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The body is too large", detail)
    }

    pub fn mistakes(mut self, mistakes: Vec<Mistake>) -> Self {
        self.mistakes = mistakes;
        self
    }

    pub fn with(mut self, name: HeaderName, value: &str) -> Self {
        self.field = HeaderValue::from_str(value).ok().map(|value| Box::new((name, value)));
        self
    }
}

impl From<Problem> for Answer {
    fn from(problem: Problem) -> Self {
        let mut answer = whole("application/problem+json", json(&problem) + "\n");
        *answer.status_mut() = problem.status;
        answer.headers_mut().extend(problem.field.map(|field| *field));
        answer
    }
}

fn answer(content_type: &'static str, content: Content) -> Answer {
    let mut answer = Response::new(content);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Figures are of now, and clients without a token must not see some of them.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

pub(super) fn whole(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    answer(content_type, Content::Whole(Full::new(body.into())))
}

pub(super) fn stream(content_type: &'static str, parts: mpsc::Receiver<Bytes>) -> Answer {
    answer(content_type, Content::Stream(parts))
}

pub(super) fn text(text: impl Into<Bytes>) -> Answer {
    whole("text/plain; charset=utf-8", text)
}

pub(super) fn document(document: &impl Serialize) -> Answer {
    whole("application/json", json(document) + "\n")
}

pub(super) fn json(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("the keys of all maps are texts")
}

pub(super) fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Content::Whole(Full::default()));
    *answer.status_mut() = status;
    answer
}
