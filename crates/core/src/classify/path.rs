//! Paths as rules see them: spelled one way, so that another spelling of the same path cannot dodge a rule.
//!
//! After RFC 3986 section 6.2.2, and one step further, as origins go: every escape is decoded except `%2F`
//! and `%25` (decoding those would change where segments end, or what the next decoder reads), dot segments
//! are resolved, runs of slashes count as one (nginx's `merge_slashes`). Only for matching: the origin gets
//! the path as it was sent.
//!
//! Left alone, because origins differ: letter case, and path parameters (`/checkout;x`), which belong to
//! their segment. Before an origin that drops them (servlet containers) write `/checkout*`.

use std::borrow::Cow;

/// The path in its one spelling; borrowed if it was spelled so already, as nearly all are.
pub(super) fn normalise(path: &str) -> Cow<'_, [u8]> {
    let bytes = path.as_bytes();
    if bytes.is_empty() {
        // Absolute form without a path (RFC 9110, 4.2.3).
        return Cow::Borrowed(b"/");
    }
    if is_normal(bytes) { Cow::Borrowed(bytes) } else { Cow::Owned(rewrite(bytes)) }
}

fn is_normal(path: &[u8]) -> bool {
    path.iter().enumerate().all(|(i, &b)| match b {
        b'%' => false,
        b'/' => !matches!(
            path[i + 1..],
            [b'/', ..] | [b'.'] | [b'.', b'/', ..] | [b'.', b'.'] | [b'.', b'.', b'/', ..]
        ),
        _ => true,
    })
}

fn rewrite(path: &[u8]) -> Vec<u8> {
    // Starts with the slash that every segment follows.
    let mut out = Vec::with_capacity(path.len() + 1);
    let mut open = false;
    for segment in path.split(|&b| b == b'/') {
        let start = out.len();
        out.push(b'/');
        decode(segment, &mut out);
        // An empty, `.` or `..` segment leaves the path open: it ends in a slash unless another one follows.
        open = match &out[start + 1..] {
            b"" | b"." => {
                out.truncate(start);
                true
            }
            b".." => {
                out.truncate(start);
                let parent = out.iter().rposition(|&b| b == b'/').unwrap_or(0);
                out.truncate(parent);
                true
            }
            _ => false,
        };
    }
    if open {
        out.push(b'/');
    }
    out
}

fn decode(segment: &[u8], out: &mut Vec<u8>) {
    let mut rest = segment;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            out.push(*first);
        } else if let Some(byte) = escape(tail) {
            out.push(byte);
            rest = &tail[2..];
        } else if is_escape(tail) {
            out.push(b'%');
            out.extend(tail[..2].iter().map(u8::to_ascii_uppercase));
            rest = &tail[2..];
        } else {
            out.push(b'%');
        }
    }
}

/// The byte that the two digits after a `%` stand for; `None` if they are no digits or the escape must stay.
pub(super) fn escape(after_percent: &[u8]) -> Option<u8> {
    hex(after_percent).filter(|b| !matches!(b, b'/' | b'%'))
}

/// Whether two hexadecimal digits follow.
pub(super) fn is_escape(after_percent: &[u8]) -> bool {
    hex(after_percent).is_some()
}

/// The byte spelled by two hexadecimal digits.
pub(super) fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |i: usize| char::from(*digits.get(i)?).to_digit(16);
    Some((digit(0)? << 4 | digit(1)?) as u8)
}
