//! Message heads to and from the origin: framing, the copy for another attempt, and the check of responses.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body;

use super::SendContext;
use crate::http::hygiene::{ResponseFraming, settle_framing};
use crate::upstream::body::{BoxError, RequestBody};

/// Sets the framing fields to what hyper will send for this body, whatever the visitor's head said (RFC 9112
/// 6). A field that disagrees with the body would allow request smuggling.
pub(crate) fn prepare(req: &mut Request<RequestBody>, ctx: &SendContext) {
    *req.version_mut() = Version::HTTP_11;
    let empty = req.body().is_end_stream();
    let length = req.body().size_hint().exact();
    let anticipates = matches!(*req.method(), Method::POST | Method::PUT | Method::PATCH);
    let headers = req.headers_mut();
    headers.remove(header::TRANSFER_ENCODING);
    if empty {
        if anticipates || headers.contains_key(header::CONTENT_LENGTH) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
    } else if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    } else {
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if ctx.expect_continue && !empty {
        headers.insert(header::EXPECT, HeaderValue::from_static("100-continue"));
    } else {
        headers.remove(header::EXPECT);
    }
    if ctx.upgrade.is_some() {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// A copy of a request's head, kept until its response begins. A flat list in a recycled buffer, because a
/// copy of the `HeaderMap` would allocate its index and entries for every request, and few are needed.
#[derive(Default)]
pub(crate) struct Spare {
    method: Method,
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Spare {
    pub(crate) fn keep<B>(&mut self, req: &Request<B>) {
        self.method = req.method().clone();
        self.uri = req.uri().clone();
        self.headers.clear();
        self.headers.extend(req.headers().iter().map(|(n, v)| (n.clone(), v.clone())));
    }

    pub(crate) fn rebuild(&self, body: RequestBody) -> Request<RequestBody> {
        let mut req = Request::new(body);
        *req.method_mut() = self.method.clone();
        *req.uri_mut() = self.uri.clone();
        let mut headers = HeaderMap::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            headers.append(name.clone(), value.clone());
        }
        *req.headers_mut() = headers;
        req
    }

    /// Drops the visitor's data and keeps the buffer.
    pub(crate) fn clear(&mut self) {
        self.headers.clear();
        self.uri = Uri::default();
    }
}

pub(crate) struct Asked {
    pub(crate) head: bool,
    pub(crate) upgrade: bool,
}

impl Asked {
    pub(crate) fn of<B>(req: &Request<B>, ctx: &SendContext) -> Self {
        Self { head: req.method() == Method::HEAD, upgrade: ctx.upgrade.is_some() }
    }
}

/// Checks a response head and makes its framing unambiguous. Ok(false): the connection must not be reused.
pub(crate) fn check<B: Body>(res: &mut Response<B>, asked: &Asked) -> Result<bool, BoxError> {
    let status = res.status();
    if !(100..=599).contains(&status.as_u16()) {
        return Err("a status outside 100..=599".into());
    }
    let framing = settle_framing(status, res.headers_mut())?;
    if status == StatusCode::SWITCHING_PROTOCOLS {
        if !asked.upgrade {
            return Err("101 without being asked to upgrade".into());
        }
        if !res.headers().contains_key(header::UPGRADE) {
            return Err("101 without Upgrade".into());
        }
        res.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        return Ok(false);
    }
    if let ResponseFraming::Length(length) = framing {
        // The length of a response without a body is that of a GET; others must be what hyper delivers.
        let bodiless = asked.head || status == StatusCode::NOT_MODIFIED;
        if !bodiless && res.body().size_hint().exact().is_some_and(|n| n != length) {
            return Err("a body of another length than Content-Length".into());
        }
    }
    Ok(framing != ResponseFraming::Chunked { overrode_length: true })
}
