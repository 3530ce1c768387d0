//! `Forwarded` (RFC 7239) and `X-Forwarded-For`: written, and read only as far as they can be trusted.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use tidegate_http::{Fields, is_token, name};

/// Entries that are read, from the right. No chain of trusted proxies is longer; longer fields are attacks.
const MAX_HOPS: usize = 32;

pub(crate) fn push_address(out: &mut Vec<u8>, ip: IpAddr) {
    use std::io::Write;
    let IpAddr::V4(v4) = ip else {
        // Writing to memory does not fail.
        let _ = write!(out, "{ip}");
        return;
    };
    for (i, octet) in v4.octets().into_iter().enumerate() {
        if i > 0 {
            out.push(b'.');
        }
        if octet >= 100 {
            out.push(b'0' + octet / 100);
        }
        if octet >= 10 {
            out.push(b'0' + octet / 10 % 10);
        }
        out.push(b'0' + octet % 10);
    }
}

/// Appends a node of `Forwarded`: an IPv6 address in brackets and quotes (RFC 7239 6).
pub(crate) fn push_node(out: &mut Vec<u8>, v6: IpAddr) {
    out.extend_from_slice(b"\"[");
    push_address(out, v6);
    out.extend_from_slice(b"]\"");
}

/// Appends `value` as a token if it is one, else as a quoted string (RFC 9110 5.6.4).
pub(crate) fn push_token_or_quoted(value: &[u8], out: &mut Vec<u8>) {
    if !value.is_empty() && value.iter().all(|b| is_token(*b)) {
        return out.extend_from_slice(value);
    }
    out.push(b'"');
    for &b in value {
        if matches!(b, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(b);
    }
    out.push(b'"');
}

/// The client's address: the peer's, or, if the peer is a trusted proxy, the one it names; and so on while
/// that one is trusted too.
///
/// The list is read from the right, because only the rightmost entry was written by the peer; what stands
/// left of the first untrusted address is that address's own claim. `Forwarded` counts only where
/// `X-Forwarded-For` is absent: nearly every proxy writes the latter and passes the former on, so that a
/// visitor could forge it. (A proxy that writes only `Forwarded` must remove the other for the same reason.)
/// An entry that is no address (`unknown`, obfuscated) ends the search at the last known address.
pub fn client_ip(peer: IpAddr, fields: &Fields, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |ip: IpAddr| trusted.iter().any(|net| net.contains(&ip));
    let mut ip = peer.to_canonical();
    if !is_trusted(ip) {
        return ip;
    }
    let by_forwarded = !fields.contains(name::X_FORWARDED_FOR);
    let entries = fields
        .get_all(if by_forwarded { name::FORWARDED } else { name::X_FORWARDED_FOR })
        .rev()
        .flat_map(|value| split_list(ascii(value).unwrap_or("unknown")).into_iter().rev());
    for entry in entries.take(MAX_HOPS) {
        let entry = if by_forwarded { for_parameter(entry) } else { Some(entry) };
        match entry.and_then(parse_node) {
            Some(next) => ip = next,
            None => return ip,
        }
        if !is_trusted(ip) {
            return ip;
        }
    }
    ip
}

fn ascii(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|text| text.is_ascii())
}

/// Elements of a comma-separated list; commas in quoted strings do not separate.
fn split_list(value: &str) -> Vec<&str> {
    split(value, b',').into_iter().filter(|e| !e.is_empty()).collect()
}

fn split(value: &str, separator: u8) -> Vec<&str> {
    let (mut parts, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, b) in value.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if b == separator && !quoted => {
                parts.push(value[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(value[start..].trim());
    parts
}

fn for_parameter(element: &str) -> Option<&str> {
    split(element, b';').into_iter().find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.eq_ignore_ascii_case("for").then(|| value.trim_matches('"'))
    })
}

/// What a line of `Forwarded` says beside addresses: every parameter but `for`, and also `for` where a
/// lenient reader might read more than an address in it.
pub fn beside_addresses(line: &str) -> impl Iterator<Item = &str> {
    let parameters = split_list(line).into_iter().flat_map(|element| split(element, b';'));
    parameters.filter(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.eq_ignore_ascii_case("for") => {
            let inner = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
            parse_node(inner).is_none() && !inner.bytes().all(is_token)
        }
        _ => true,
    })
}

fn parse_node(node: &str) -> Option<IpAddr> {
    if let Ok(ip) = node.parse::<IpAddr>() {
        return Some(ip.to_canonical());
    }
    if let Ok(address) = node.parse::<SocketAddr>() {
        return Some(address.ip().to_canonical());
    }
    let inner = node.strip_prefix('[')?.strip_suffix(']')?;
    inner.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}
