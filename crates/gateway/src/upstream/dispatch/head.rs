//! Message heads on their way to and from the origin: framing, what is kept for another attempt, and what a
//! response must be to be passed on.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body;

use super::SendContext;
use crate::upstream::body::RequestBody;

/// Makes the head say what hyper will send: the framing is the body's, whatever the visitor's head said
/// (RFC 9112 6). Leaving either field to chance is how requests are smuggled.
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

/// A copy of a request's head, kept until its response begins. A flat list in a recycled buffer: copying a
/// `HeaderMap` would allocate its index and entries anew for every request, and hardly any copy is ever needed.
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

    /// Lets go of the visitor's data; the buffer stays.
    pub(crate) fn clear(&mut self) {
        self.headers.clear();
        self.uri = Uri::default();
    }
}

/// What must be known of the request to judge its response.
pub(crate) struct Asked {
    pub(crate) head: bool,
    pub(crate) upgrade: bool,
}

impl Asked {
    pub(crate) fn of<B>(req: &Request<B>, ctx: &SendContext) -> Self {
        Self { head: req.method() == Method::HEAD, upgrade: ctx.upgrade.is_some() }
    }
}

/// Checks a response head and makes its framing unambiguous. Ok(false): pass it on, but do not use the
/// connection again.
pub(crate) fn check<B: Body>(res: &mut Response<B>, asked: &Asked) -> Result<bool, &'static str> {
    let status = res.status();
    if !(100..=599).contains(&status.as_u16()) {
        return Err("a status outside 100..=599");
    }
    if status == StatusCode::SWITCHING_PROTOCOLS {
        if !asked.upgrade {
            return Err("101 without being asked to upgrade");
        }
        if !res.headers().contains_key(header::UPGRADE) {
            return Err("101 without Upgrade");
        }
        let headers = res.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::TRANSFER_ENCODING);
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        return Ok(false);
    }
    let mut reusable = true;
    if res.headers().contains_key(header::TRANSFER_ENCODING) {
        // No coding but one "chunked" was offered, hyper decodes no other, and passing on what is still encoded
        // without saying so would corrupt it (RFC 9112 6.1).
        let mut codings = res.headers().get_all(header::TRANSFER_ENCODING).iter();
        let chunked = codings.next().is_some_and(|c| c.as_bytes().eq_ignore_ascii_case(b"chunked"));
        if !chunked || codings.next().is_some() {
            return Err("a Transfer-Encoding other than chunked");
        }
        let headers = res.headers_mut();
        headers.remove(header::TRANSFER_ENCODING);
        // RFC 9112 6.3: Transfer-Encoding overrides Content-Length, which must be removed before forwarding, and
        // an origin that sends both may be under attack: nothing else is read from this connection.
        reusable = headers.remove(header::CONTENT_LENGTH).is_none();
    } else if status == StatusCode::NO_CONTENT {
        res.headers_mut().remove(header::CONTENT_LENGTH);
    } else if let Some(length) = agreed_length(res.headers())? {
        // A bodiless answer's length is that of a GET; any other's is what hyper will deliver.
        let bodiless = asked.head || status == StatusCode::NOT_MODIFIED;
        if !bodiless && res.body().size_hint().exact().is_some_and(|n| n != length) {
            return Err("a body of another length than Content-Length");
        }
    }
    Ok(reusable)
}

/// The one value of all Content-Length fields, if there is any.
fn agreed_length(headers: &HeaderMap) -> Result<Option<u64>, &'static str> {
    const BAD: &str = "an invalid Content-Length";
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = values.next() else { return Ok(None) };
    // "5, 5" and repeated fields: legal to accept (RFC 9112 6.3), but the next parser may not agree.
    if values.next().is_some() {
        return Err("more than one Content-Length");
    }
    let digits = first.as_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(BAD);
    }
    let length = digits.iter().try_fold(0u64, |n, d| n.checked_mul(10)?.checked_add(u64::from(d - b'0')));
    length.map(Some).ok_or(BAD)
}
