//! Checks the head of a request that came by HTTP/2, and gives it the form that stages know.
//!
//! `h2` has decoded it and refused what RFC 9113 8.2 and 8.3 call malformed: upper case, fields of a
//! connection, pseudo-fields that are missing, repeated or out of place. What is left is what is
//! demanded of HTTP/1.1: the same target and the same limits, so that a request means the same by both.

use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Uri};
use tidegate_http::target::is_target;
use tidegate_http::{HeadLimits, Refusal};

use crate::http::hygiene;

/// As long as in HTTP/1.1.
const MAX_METHOD: usize = 32;

/// What a field line takes in HTTP/1.1 beside name and value.
const LINE: usize = 4;
/// What a field takes in a header list beside name and value (RFC 9113 6.5.2).
const ENTRY: usize = 32;

/// The header list that `h2` may decode: whatever HTTP/1.1 accepts is accepted.
pub fn max_header_list(limits: &HeadLimits) -> u32 {
    u32::try_from(limits.bytes + (limits.fields + 5) * ENTRY).unwrap_or(u32::MAX)
}

/// Facts that the body and the answer need.
#[derive(Debug, PartialEq, Eq)]
pub struct HeadFacts {
    pub length: Option<u64>,
    pub expects_continue: bool,
    /// An extended CONNECT (RFC 8441). The head is now that of a GET that asks for an upgrade.
    pub is_websocket: bool,
    /// Both sides speak in turn.
    pub is_conversation: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHead {
    /// It is answered with the refusal's status.
    Refused(Refusal),
    /// Malformed in HTTP/2's sense: the stream is reset (RFC 9113 8.1.1).
    Malformed,
    /// An extended CONNECT for another protocol than WebSocket.
    Protocol,
}

impl From<Refusal> for BadHead {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Checks and completes a head. `key`: the value of `Sec-WebSocket-Key`, should one be needed.
pub fn prepare(
    parts: &mut Parts,
    limits: &HeadLimits,
    key: impl FnOnce() -> HeaderValue,
) -> Result<HeadFacts, BadHead> {
    check_limits(parts, limits)?;
    if parts.headers.values().any(is_padded) {
        return Err(BadHead::Malformed);
    }
    let protocol = parts.extensions.remove::<h2::ext::Protocol>();
    let is_websocket = match &protocol {
        None => false,
        Some(protocol) if protocol.as_str().eq_ignore_ascii_case("websocket") => true,
        Some(_) => return Err(BadHead::Protocol),
    };
    host(parts)?;
    join_cookies(&mut parts.headers);
    let length = hygiene::content_length(&parts.headers).map_err(|_| Refusal::ContentLength)?;
    if limits.body > 0 && length.is_some_and(|length| length > limits.body) {
        return Err(Refusal::BodyTooLarge.into());
    }
    if is_websocket {
        upgrade(parts, key());
    }
    let expects = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    let expects_continue = parts.headers.get(header::EXPECT).is_some_and(expects);
    let kind = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_conversation = super::is_conversation(kind);
    let length = length.filter(|_| !is_websocket);
    Ok(HeadFacts { length, expects_continue, is_websocket, is_conversation })
}

fn check_limits(parts: &Parts, limits: &HeadLimits) -> Result<(), Refusal> {
    if parts.method.as_str().len() > MAX_METHOD {
        return Err(Refusal::MethodTooLong);
    }
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    if target.len() > limits.target {
        return Err(Refusal::TargetTooLong);
    }
    let is_connect = parts.method == Method::CONNECT && target.is_empty();
    // Forms of other targets than a path are HTTP/1.1's alone. An extended CONNECT has the target of a GET.
    let is_form = target == "*" || target.starts_with('/') && is_target(b"GET", target.as_bytes());
    if !is_connect && !is_form {
        return Err(Refusal::Target);
    }
    if parts.uri.scheme_str().is_some_and(|scheme| !matches!(scheme, "http" | "https")) {
        return Err(Refusal::Target);
    }
    if parts.headers.len() > limits.fields {
        return Err(Refusal::TooManyFields);
    }
    let fields = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + LINE);
    let authority = parts.uri.authority().map_or(0, |authority| authority.as_str().len());
    if fields.sum::<usize>() + target.len() + authority > limits.bytes {
        return Err(Refusal::HeadTooLarge);
    }
    Ok(())
}

/// White space around a value (RFC 9113 8.2.1).
fn is_padded(value: &HeaderValue) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_space(value.as_bytes().first()) || is_space(value.as_bytes().last())
}

/// Gives it one `Host`: the authority, or the field where there is no authority (RFC 9113 8.3.1). Where both
/// are there and differ, `hygiene::check` refuses the request, as it does the absolute form of HTTP/1.1.
fn host(parts: &mut Parts) -> Result<(), Refusal> {
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::ManyHosts);
    }
    let Some(authority) = authority else {
        return host.map(|_| ()).ok_or(Refusal::NoHost);
    };
    let is_asterisk = parts.uri.path() == "*";
    match host {
        None => {
            let value = HeaderValue::from_str(authority).map_err(|_| Refusal::Target)?;
            parts.headers.insert(header::HOST, value);
        }
        // This form leaves no room for the authority, which is compared here.
        Some(host) if is_asterisk && !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) => {
            return Err(Refusal::ManyHosts);
        }
        Some(_) => {}
    }
    if is_asterisk {
        parts.uri = Uri::from_static("*");
    }
    Ok(())
}

/// A cookie may come in pieces, each a field of its own, so that HPACK remembers those that stay the same.
/// Who does not speak HTTP/2 expects one (RFC 9113 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(header::COOKIE).iter();
    if crumbs.nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // Parts of valid values are one.
    if let Ok(cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(header::COOKIE, cookie);
    }
}

/// An extended CONNECT as HTTP/1.1 says it (RFC 8441 5): origins know no other form.
fn upgrade(parts: &mut Parts, key: HeaderValue) {
    parts.method = Method::GET;
    let headers = &mut parts.headers;
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::SEC_WEBSOCKET_KEY, key);
    // The stream's data is the tunnel's, no request body.
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::EXPECT);
}
