//! The request target on raw bytes (RFC 9112 3.2).
//!
//! Accepted are what RFC 3986 allows and the few characters that browsers send unescaped in a query (WHATWG
//! URL: `|`, `^`, `{`, `}`, a backtick, a backslash); never `#`, never bytes above 126. Everything accepted
//! here is a URI to the `http` crate as well.

use std::ops::Range;

use crate::bytes::find;

const PATH: u8 = 1;
const QUERY: u8 = 2;
const HOST: u8 = 4;

static CLASS: [u8; 256] = {
    let mut class = [0u8; 256];
    let mut b = 0x21;
    while b < 0x7f {
        let c = b as u8;
        if !matches!(c, b'#' | b'<' | b'>' | b'"') {
            class[b] |= QUERY;
            if !matches!(c, b'`' | b'?' | b'\\' | b'{' | b'}') {
                class[b] |= PATH;
            }
        }
        // DNS names and IPv4 addresses. RFC 3986 allows `%` and sub-delims in a reg-name too; no resolver
        // does, and parsers read them differently.
        if c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_') {
            class[b] |= HOST;
        }
        b += 1;
    }
    class
};

fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().fold(class, |acc, &b| acc & CLASS[b as usize]) == class
}

fn is_path_and_query(bytes: &[u8]) -> bool {
    match find(b'?', bytes) {
        Some(at) => all(&bytes[..at], PATH) && all(&bytes[at + 1..], QUERY),
        None => all(bytes, PATH),
    }
}

/// `host [":" port]`: a name, an IPv4 address, or an IPv6 address in brackets; without user information.
pub fn is_authority(bytes: &[u8]) -> bool {
    let (host_ok, rest) = if bytes.first() == Some(&b'[') {
        let Some(close) = memchr::memchr(b']', bytes) else { return false };
        let literal = std::str::from_utf8(&bytes[1..close]).ok();
        let ok = literal.is_some_and(|s| s.parse::<std::net::Ipv6Addr>().is_ok());
        (ok, &bytes[close + 1..])
    } else {
        let end = find(b':', bytes).unwrap_or(bytes.len());
        (end > 0 && all(&bytes[..end], HOST), &bytes[end..])
    };
    host_ok
        && match rest.split_first() {
            None => true,
            Some((b':', port)) => is_port(port),
            Some(_) => false,
        }
}

fn is_port(digits: &[u8]) -> bool {
    if digits.is_empty() || digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    digits.iter().fold(0u32, |n, d| n * 10 + u32::from(d - b'0')) <= 65_535
}

fn after_scheme(target: &[u8]) -> Option<&[u8]> {
    if target.first() == Some(&b'/') {
        return None;
    }
    [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| {
        let (head, rest) = target.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// Where the authority of an absolute-form target ends, after its scheme.
fn authority_end(rest: &[u8]) -> usize {
    rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len())
}

/// The parts of a target as positions in it. What a form does not have is empty.
pub(crate) struct Split {
    pub(crate) scheme: usize,
    pub(crate) authority: Range<usize>,
    /// Where the path begins, or the query if the path is empty.
    pub(crate) path: usize,
}

/// Splits a valid target. CONNECT has an authority alone, unless it is the extended one of HTTP/2 (RFC 8441).
pub(crate) fn split(is_connect: bool, target: &[u8]) -> Split {
    if is_connect && after_scheme(target).is_none() && target.first() != Some(&b'/') {
        return Split { scheme: 0, authority: 0..target.len(), path: target.len() };
    }
    match after_scheme(target) {
        Some(rest) => {
            let at = target.len() - rest.len();
            let end = at + authority_end(rest);
            Split { scheme: at - "://".len(), authority: at..end, path: end }
        }
        None => Split { scheme: 0, authority: 0..0, path: 0 },
    }
}

/// Whether `target` has one of the four forms of a request target, `CONNECT` having its own.
pub fn is_target(method: &[u8], target: &[u8]) -> bool {
    match target {
        _ if method == b"CONNECT" => is_authority(target),
        [b'/', rest @ ..] => is_path_and_query(rest),
        // Only OPTIONS may have it, which is checked with the meaning of the request.
        b"*" => true,
        _ => after_scheme(target).is_some_and(|rest| {
            let end = authority_end(rest);
            is_authority(&rest[..end]) && is_path_and_query(&rest[end..])
        }),
    }
}
