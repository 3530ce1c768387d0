//! The origin's response, made fit for the visitor.
//!
//! Where both lengths are given, `Transfer-Encoding` goes before `Content-Length` (RFC 9112 6.3). hyper's client
//! decodes such a body by its chunks, whole, but leaves both fields in the head; hyper's server, given a
//! Content-Length and a body of unknown size, cuts the body at that length. So the Content-Length must go here:
//! the body then leaves chunked, or delimited by the close for HTTP/1.0.

use http::header::{self, HeaderMap};
use http::response::Parts;
use http::{Method, StatusCode, Version};

use super::hops;
use super::request::via;
use crate::http::wire::is_forbidden_trailer;

/// Why a response cannot be passed on: it becomes 502.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadResponse {
    /// Not 200 to 599; 1xx does not end an exchange, and 101 was not asked for.
    #[error("the origin answered with a status that is none")]
    Status,
    /// `Content-Length` is not one number, or several lines disagree (RFC 9112 6.3).
    #[error("the origin answered with a malformed Content-Length")]
    ContentLength,
    /// A transfer coding besides `chunked`, which the gate does not decode and must not pass on as content.
    #[error("the origin answered with a transfer coding that was not asked for")]
    TransferCoding,
}

/// Makes a final response fit for the visitor. `upgraded`: the gate tunnels, so 101 is right.
///
/// A status line that is malformed, or a number below 100, never comes this far: hyper's client refuses it with a
/// parse error, which is a 502 as well.
pub fn prepare_response(
    parts: &mut Parts,
    method: &Method,
    via_name: &str,
    upgraded: bool,
) -> Result<(), BadResponse> {
    let status = parts.status;
    let switching = upgraded && status == StatusCode::SWITCHING_PROTOCOLS;
    if !switching && !(200..600).contains(&status.as_u16()) {
        return Err(BadResponse::Status);
    }
    let headers = &mut parts.headers;
    check_framing(headers)?;
    let upgrade = if switching { headers.remove(header::UPGRADE) } else { None };
    hops::strip(headers);
    if let Some(upgrade) = upgrade {
        headers.insert(header::UPGRADE, upgrade);
        headers.insert(header::CONNECTION, http::HeaderValue::from_static("upgrade"));
    }
    // RFC 9110 8.6: none of them has one. A 304 or an answer to HEAD may say what GET would have had.
    let never_has_content = switching || status == StatusCode::NO_CONTENT;
    let reset = status == StatusCode::RESET_CONTENT && *method != Method::HEAD;
    if never_has_content || reset {
        headers.remove(header::CONTENT_LENGTH);
    }
    via(headers, parts.version, via_name);
    parts.version = Version::HTTP_11;
    // A reason phrase is the origin's own business (RFC 9112 4); passing it on is what old clients expect.
    Ok(())
}

fn check_framing(headers: &mut HeaderMap) -> Result<(), BadResponse> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
        let (first, more) = (codings.next(), codings.next());
        let chunked = first.is_some_and(|c| c.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"));
        if !chunked || more.is_some() {
            return Err(BadResponse::TransferCoding);
        }
        headers.remove(header::CONTENT_LENGTH);
        return Ok(());
    }
    let mut lengths =
        headers.get_all(header::CONTENT_LENGTH).iter().flat_map(|v| v.as_bytes().split(|&b| b == b','));
    let Some(first) = lengths.next() else { return Ok(()) };
    let first = number(first).ok_or(BadResponse::ContentLength)?;
    // A list of equal numbers may be read as one (RFC 9110 8.6); it leaves here as one.
    if !lengths.all(|n| number(n) == Some(first)) {
        return Err(BadResponse::ContentLength);
    }
    headers.insert(header::CONTENT_LENGTH, first.into());
    Ok(())
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = digits.trim_ascii();
    let ok = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    ok.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
}

/// Removes from a trailer section what must not be in one (RFC 9110 6.5.1).
pub fn prepare_trailers(trailers: &mut HeaderMap) {
    let forbidden: Vec<header::HeaderName> = trailers
        .keys()
        .filter(|name| is_forbidden_trailer(name.as_str().replace('_', "-").as_bytes()))
        .cloned()
        .collect();
    for name in &forbidden {
        trailers.remove(name);
    }
}
