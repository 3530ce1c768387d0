//! Prepares the origin's response for the visitor. Its framing is settled by the parser (RFC 9112 6.3).

use http::header::{self, HeaderMap};
use http::{Method, StatusCode, Version};
use tidegate_http::{Known, ResponseHead, decimal, is_forbidden_trailer, name};

use super::hops::{self, Named};
use super::request::via;

/// Why a response cannot be passed on; it becomes 502. Not 200 to 599: 1xx does not end an exchange, and 101
/// was not asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the origin answered with an invalid status")]
pub struct BadStatus;

/// Prepares a final response, whose framing is settled. `upgraded`: the gateway tunnels, so that 101 is
/// allowed.
pub fn prepare_response(
    head: &mut ResponseHead,
    method: &Method,
    via_name: &str,
    upgraded: bool,
) -> Result<(), BadStatus> {
    let status = head.status();
    let switching = upgraded && status == StatusCode::SWITCHING_PROTOCOLS;
    if !switching && !(200..600).contains(&status.as_u16()) {
        return Err(BadStatus);
    }
    let version = head.version();
    let fields = &mut head.fields;
    let mut has_upgrade = !switching;
    let named = Named::of(fields);
    fields.retain(|name, known, _| match known {
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

/// The `Content-Length` of a head that is a map (HTTP/2, the admin API), if any: one line with one decimal
/// number below 2^63.
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
