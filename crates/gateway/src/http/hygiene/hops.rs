//! Fields that concern one connection only (RFC 9110 7.6.1).
//!
//! `Connection` lets a sender name fields that the next hop must remove. Taken literally, a visitor could
//! make the gateway remove what the origin relies on: `Connection: x-forwarded-for`, `Connection: cookie`.
//! RFC 9110 forbids a sender to name fields meant for all recipients, so such a name is an error or an attack
//! and is ignored: the field stays. Fields of all other names are removed.

use tidegate_http::{Fields, Known, list, name};

/// Names that are taken from `Connection`. No sender names more, and each is compared with every field.
const MAX_NAMED: usize = 32;

/// Whether it is removed even where `Connection` does not name it.
pub(crate) const fn is_hop_by_hop(known: Known) -> bool {
    matches!(
        known,
        Known::Connection
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::TransferEncoding
            | Known::Upgrade
            | Known::Http2Settings
    )
}

/// End-to-end fields that `Connection` cannot remove: framing, routing, identity, conditions, content.
#[rustfmt::skip]
const PROTECTED: [&[u8]; 28] = [
    b"accept", b"accept-encoding", b"age", b"authorization", b"cache-control", b"cookie", b"date", b"etag",
    b"expect", b"expires", b"forwarded", b"host", b"last-modified", b"location", b"max-forwards", b"origin",
    b"range", b"referer", b"retry-after", b"set-cookie", b"strict-transport-security", b"user-agent",
    b"vary", b"via", b"www-authenticate", b"x-frame-options", b"x-real-ip", b"x-request-id",
];

fn is_protected(name: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 6] =
        [b"content-", b"if-", b"sec-", b"x-forwarded-", b"access-control-", b"proxy-auth"];
    PROTECTED.iter().any(|protected| protected.eq_ignore_ascii_case(name))
        || PREFIXES.iter().any(|prefix| begins_with(name, prefix))
}

/// Whether a name begins so, in whatever case.
pub(crate) fn begins_with(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// The fields that `Connection` names, and that it may remove.
pub(crate) struct Named(Vec<Box<[u8]>>);

impl Named {
    pub(crate) fn of(fields: &Fields) -> Self {
        let mut named = Vec::new();
        for value in fields.get_all(name::CONNECTION) {
            // Most messages have one of these or none; only other names allocate.
            if value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close") {
                continue;
            }
            let usual = [&b"keep-alive"[..], b"close", b"upgrade", b"te", b"transfer-encoding"];
            let is_usual = |option: &&[u8]| usual.iter().any(|u| option.eq_ignore_ascii_case(u));
            let others = list(value).filter(|option| !is_usual(option) && !is_protected(option));
            named.extend(others.take(MAX_NAMED - named.len()).map(Box::from));
        }
        Self(named)
    }

    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.0.iter().any(|named| named.eq_ignore_ascii_case(name))
    }
}
