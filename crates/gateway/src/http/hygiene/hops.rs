//! Fields that concern one connection only (RFC 9110 7.6.1).
//!
//! `Connection` lets a sender name fields that the next hop must remove. Taken literally, a visitor could
//! make the gateway remove what the origin relies on: `Connection: x-forwarded-for`, `Connection: cookie`.
//! RFC 9110 forbids a sender to name fields meant for all recipients, so such a name is an error or an attack
//! and is ignored: the field stays. Fields of all other names are removed.

use http::{HeaderMap, HeaderName, header};

/// Removed whether `Connection` names them or not.
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
];

/// End-to-end fields that `Connection` cannot remove: framing, routing, identity, conditions, content.
#[rustfmt::skip]
const PROTECTED: [&str; 28] = [
    "accept", "accept-encoding", "age", "authorization", "cache-control", "cookie", "date", "etag", "expect",
    "expires", "forwarded", "host", "last-modified", "location", "max-forwards", "origin", "range",
    "referer", "retry-after", "set-cookie", "strict-transport-security", "user-agent", "vary", "via",
    "www-authenticate", "x-frame-options", "x-real-ip", "x-request-id",
];

fn is_protected(name: &str) -> bool {
    const PREFIXES: [&str; 6] = ["content-", "if-", "sec-", "x-forwarded-", "access-control-", "proxy-auth"];
    PROTECTED.contains(&name) || PREFIXES.iter().any(|p| name.starts_with(p))
}

pub(crate) fn strip(headers: &mut HeaderMap) {
    // Most requests have one `Connection: keep-alive` or none; only other names allocate.
    let mut named: Vec<HeaderName> = Vec::new();
    for value in headers.get_all(header::CONNECTION) {
        for option in value.as_bytes().split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            let usual = [&b"close"[..], b"keep-alive", b"upgrade", b"te", b"transfer-encoding"];
            if usual.iter().any(|u| option.eq_ignore_ascii_case(u)) {
                continue;
            }
            if let Ok(name) = HeaderName::from_bytes(option)
                && !is_protected(name.as_str())
            {
                named.push(name);
            }
        }
    }
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

pub(crate) fn connection_has(headers: &HeaderMap, option: &str) -> bool {
    headers.get_all(header::CONNECTION).iter().any(|value| {
        value.as_bytes().split(|&b| b == b',').any(|o| o.trim_ascii().eq_ignore_ascii_case(option.as_bytes()))
    })
}
