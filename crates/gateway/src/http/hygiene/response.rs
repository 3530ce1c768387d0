//! Prepares the origin's response for the visitor.
//!
//! `Transfer-Encoding` overrides `Content-Length` (RFC 9112 6.3). hyper's client decodes such a body by its
//! chunks, but leaves both fields in the head. hyper's server, given a Content-Length and a body of unknown
//! size, cuts the body at that length. So the Content-Length is removed here; the body is then sent chunked,
//! or ended by the close for HTTP/1.0.

use http::header::{self, HeaderMap};
use http::{Method, StatusCode, Version};
use tidegate_http::{Known, ResponseHead, decimal, is_forbidden_trailer, name};

use super::hops::{self, Named};
use super::request::via;

/// Why a response cannot be passed on: it becomes 502.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadResponse {
    /// Not 200 to 599. 1xx does not end an exchange, and 101 was not asked for.
    #[error("the origin answered with an invalid status")]
    Status,
    /// `Content-Length` is not one line with one number.
    #[error("the origin answered with a malformed Content-Length")]
    ContentLength,
    /// A transfer coding other than one `chunked`, which the gateway neither decodes nor may pass on.
    #[error("the origin answered with a transfer coding that was not asked for")]
    TransferCoding,
}

/// Prepares a final response, whose framing is settled. `upgraded`: the gateway tunnels, so that 101 is
/// allowed.
pub fn prepare_response(
    head: &mut ResponseHead,
    method: &Method,
    via_name: &str,
    upgraded: bool,
) -> Result<(), BadResponse> {
    let status = head.status();
    let switching = upgraded && status == StatusCode::SWITCHING_PROTOCOLS;
    if !switching && !(200..600).contains(&status.as_u16()) {
        return Err(BadResponse::Status);
    }
    let version = head.version();
    let fields = &mut head.fields;
    let mut has_upgrade = !switching;
    let named = Named::of(fields);
    fields.retain(|name, _| match Known::of(name) {
        Some(Known::Upgrade) => !std::mem::replace(&mut has_upgrade, true),
        Some(known) if hops::is_hop_by_hop(known) => false,
        // A 205 has no content (RFC 9110 15.3.6). An answer to HEAD may say what GET would have had.
        Some(Known::ContentLength) => status != StatusCode::RESET_CONTENT || *method == Method::HEAD,
        _ => !named.has(name),
    });
    if switching {
        fields.append(name::CONNECTION, b"upgrade");
    }
    via(fields, version, via_name);
    head.set_version(Version::HTTP_11);
    // The reason phrase stays as it is (RFC 9112 4): old clients expect it.
    Ok(())
}

/// How the end of a response body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    Chunked {
        /// The head had a `Content-Length` besides: such origins may be under attack (RFC 9112 6.3).
        overrode_length: bool,
    },
    /// By `Content-Length`; for HEAD and 304 it is what a GET would have had.
    Length(u64),
    /// By the end of the connection, or there is no body.
    Unstated,
}

/// The one rule on how a response is framed. Afterwards the head has no `Transfer-Encoding`, and at most one
/// `Content-Length`.
pub fn settle_framing(status: StatusCode, headers: &mut HeaderMap) -> Result<ResponseFraming, BadResponse> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        headers.remove(header::TRANSFER_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
        return Ok(ResponseFraming::Unstated);
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(first) = codings.next() {
        // No coding but one "chunked" was offered, hyper decodes no other, and passing on what is still
        // encoded without saying so would corrupt it (RFC 9112 6.1).
        let chunked = first.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
        if !chunked || codings.next().is_some() {
            return Err(BadResponse::TransferCoding);
        }
        headers.remove(header::TRANSFER_ENCODING);
        let overrode_length = headers.remove(header::CONTENT_LENGTH).is_some();
        return Ok(ResponseFraming::Chunked { overrode_length });
    }
    if status == StatusCode::NO_CONTENT {
        headers.remove(header::CONTENT_LENGTH);
        return Ok(ResponseFraming::Unstated);
    }
    let length = content_length(headers).map_err(|_| BadResponse::ContentLength)?;
    Ok(length.map_or(ResponseFraming::Unstated, ResponseFraming::Length))
}

/// The `Content-Length` of a request or a response, if any: one line with one decimal number below 2^63.
///
/// RFC 9112 6.3 allows to take `5, 5` and repeated equal lines for one number. The gate does not: the next
/// parser may read them differently.
///
/// # Errors
/// It is anything else.
pub fn content_length(headers: &HeaderMap) -> Result<Option<u64>, BadContentLength> {
    let mut lines = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lines.next() else { return Ok(None) };
    let number = decimal(first.as_bytes().trim_ascii()).filter(|_| lines.next().is_none());
    number.map(Some).ok_or(BadContentLength)
}

/// `Content-Length` is not one decimal number below 2^63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed Content-Length")]
pub struct BadContentLength;

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
