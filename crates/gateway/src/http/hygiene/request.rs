//! Prepares a visitor's request for the origin.

use std::net::IpAddr;

use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::Uri;
use http::{HeaderMap, Version};

use super::forwarded::{node, push_token_or_quoted};
use super::hops;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest request id accepted from a trusted peer: it is part of every log line.
const MAX_REQUEST_ID: usize = 128;

#[derive(Clone, Copy)]
pub struct ForwardContext<'a> {
    pub peer: IpAddr,
    /// The peer is a trusted proxy: what it says about others is passed on, not replaced.
    pub trusted: bool,
    /// `http` or `https`: the scheme the visitor used.
    pub scheme: &'static str,
    /// Name in `Via`; empty: no `Via`.
    pub via: &'a str,
    pub forwarded: bool,
    /// `Host` for the origin; empty: the visitor's.
    pub host: &'a str,
    pub request_id: &'a str,
    /// `Upgrade` is passed on: the gateway is ready to tunnel.
    pub keep_upgrade: bool,
    /// Whether a cookie of this name is the gateway's own and must not reach the origin.
    pub is_own_cookie: fn(&str) -> bool,
}

/// The request's id: the one of a trusted peer if it is printable and short enough, else `fresh`.
pub fn request_id<'a>(headers: &'a HeaderMap, trusted: bool, fresh: &'a str) -> &'a str {
    let given = headers.get(&X_REQUEST_ID).filter(|_| trusted).and_then(|v| v.to_str().ok());
    match given {
        Some(id) if (1..=MAX_REQUEST_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic()) => {
            id
        }
        _ => fresh,
    }
}

pub fn prepare_request(parts: &mut Parts, ctx: &ForwardContext<'_>) {
    let original_host = original_host(parts);
    let headers = &mut parts.headers;
    strip_disguised(headers);
    let upgrade = (ctx.keep_upgrade && hops::connection_has(headers, "upgrade"))
        .then(|| without_h2c(headers))
        .flatten();
    let trailers = accepts_trailers(headers);
    let chunked = headers.contains_key(header::TRANSFER_ENCODING);
    hops::strip(headers);
    if chunked {
        // Without the field hyper's client takes a body of unknown size for none when the method is GET or
        // HEAD. The wire has checked that the value is exactly this.
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if let Some(upgrade) = upgrade {
        headers.insert(header::UPGRADE, upgrade);
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        // RFC 9110 10.1.4: a sender of TE names it in Connection.
        headers.append(header::CONNECTION, HeaderValue::from_static("te"));
    } else {
        headers.remove(header::TE);
    }
    // Meant for the first proxy, which is the gateway (RFC 9110 11.7.2); it needs none.
    headers.remove(header::PROXY_AUTHORIZATION);
    forward(headers, ctx, original_host.as_ref());
    strip_cookies(headers, ctx.is_own_cookie);
    via(headers, parts.version, ctx.via);
    if let Ok(id) = HeaderValue::from_str(ctx.request_id) {
        headers.insert(X_REQUEST_ID, id);
    }
    let host = if ctx.host.is_empty() { original_host } else { HeaderValue::from_str(ctx.host).ok() };
    match host {
        Some(host) => headers.insert(header::HOST, host),
        None => headers.insert(header::HOST, HeaderValue::from_static("")),
    };
    parts.uri = origin_form(&parts.uri);
    parts.version = Version::HTTP_11;
}

/// The authority of an absolute-form target overrides the field (RFC 9112 3.2.2).
fn original_host(parts: &Parts) -> Option<HeaderValue> {
    match parts.uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => parts.headers.get(header::HOST).cloned(),
    }
}

/// Whether a request's `Upgrade` asks for anything but HTTP/2 in clear, if it has one.
///
/// A connection cannot be made HTTP/2's so (RFC 9113 3.1 dropped it), and the origin must not be asked: it
/// would speak HTTP/2 with the visitor past the gate, which sees a tunnel then.
pub fn may_upgrade(headers: &HeaderMap) -> bool {
    !headers.contains_key(header::UPGRADE) || protocols(headers).next().is_some()
}

/// The protocols of `Upgrade` that a tunnel may be of.
fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let all = headers.get_all(header::UPGRADE).iter();
    let all = all.flat_map(|value| value.as_bytes().split(|&b| b == b',')).map(<[u8]>::trim_ascii);
    all.filter(|protocol| {
        let name = protocol.split(|&b| b == b'/').next().unwrap_or_default();
        !protocol.is_empty() && ![&b"h2c"[..], b"h2", b"http"].iter().any(|no| name.eq_ignore_ascii_case(no))
    })
}

/// The field for the origin; `None`: nothing is left to ask for.
fn without_h2c(headers: &HeaderMap) -> Option<HeaderValue> {
    let kept: Vec<&[u8]> = protocols(headers).collect();
    (!kept.is_empty()).then(|| HeaderValue::from_bytes(&kept.join(&b", "[..])).ok()).flatten()
}

/// Removes fields that origins which do not tell `_` from `-` (CGI, PHP) would trust: `X_Forwarded_For`.
fn strip_disguised(headers: &mut HeaderMap) {
    let disguised: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().contains('_'))
        .filter(|name| {
            let plain = name.as_str().replace('_', "-");
            crate::http::wire::is_forbidden_trailer(plain.as_bytes())
        })
        .cloned()
        .collect();
    for name in &disguised {
        headers.remove(name);
    }
}

/// Whether the visitor accepts trailers. hyper sends them only then, and so should the origin.
fn accepts_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(header::TE).iter().any(|value| {
        value.as_bytes().split(|&b| b == b',').any(|c| c.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    })
}

/// Extends the forwarding fields of a trusted peer; replaces those of anybody else.
fn forward(headers: &mut HeaderMap, ctx: &ForwardContext<'_>, host: Option<&HeaderValue>) {
    let peer = ctx.peer.to_canonical();
    if !ctx.trusted {
        for name in [&X_FORWARDED_FOR, &X_FORWARDED_HOST, &X_FORWARDED_PROTO, &X_REAL_IP, &header::FORWARDED]
        {
            headers.remove(name);
        }
        let other: Vec<HeaderName> =
            headers.keys().filter(|n| n.as_str().starts_with("x-forwarded-")).cloned().collect();
        for name in &other {
            headers.remove(name);
        }
    }
    let mut element = Vec::with_capacity(64);
    push_address(&mut element, peer);
    append_list(headers, &X_FORWARDED_FOR, &element);
    // A trusted peer names the host and scheme of the visitor's connection; ours would be the peer's.
    if !headers.contains_key(&X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(ctx.scheme));
    }
    if let Some(host) = host
        && !headers.contains_key(&X_FORWARDED_HOST)
    {
        headers.insert(X_FORWARDED_HOST, host.clone());
    }
    if ctx.forwarded {
        element.clear();
        element.extend_from_slice(b"for=");
        match peer {
            IpAddr::V4(_) => push_address(&mut element, peer),
            IpAddr::V6(_) => element.extend_from_slice(node(peer).as_bytes()),
        }
        element.extend_from_slice(b";proto=");
        element.extend_from_slice(ctx.scheme.as_bytes());
        if let Some(host) = host.and_then(|h| h.to_str().ok()) {
            element.extend_from_slice(b";host=");
            push_token_or_quoted(host, &mut element);
        }
        append_list(headers, &header::FORWARDED, &element);
    } else {
        // A chain with a hop missing would name the wrong client.
        headers.remove(header::FORWARDED);
    }
}

fn push_address(out: &mut Vec<u8>, ip: IpAddr) {
    let IpAddr::V4(v4) = ip else { return out.extend_from_slice(ip.to_string().as_bytes()) };
    for (i, octet) in v4.octets().into_iter().enumerate() {
        if i > 0 {
            out.push(b'.');
        }
        out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
    }
}

fn append_list(headers: &mut HeaderMap, name: &HeaderName, element: &[u8]) {
    if !headers.contains_key(name) {
        if let Ok(value) = HeaderValue::from_bytes(element) {
            headers.insert(name, value);
        }
        return;
    }
    let mut list = Vec::new();
    for value in headers.get_all(name) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element);
    if let Ok(value) = HeaderValue::from_bytes(&list) {
        headers.insert(name, value);
    }
}

/// RFC 9110 7.6.3.
pub(crate) fn via(headers: &mut HeaderMap, version: Version, name: &str) {
    if name.is_empty() {
        return;
    }
    let protocol = match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    };
    append_list(headers, &header::VIA, &[protocol.as_bytes(), b" ", name.as_bytes()].concat());
}

fn strip_cookies(headers: &mut HeaderMap, is_own: fn(&str) -> bool) {
    let own_pair = |pair: &[u8]| {
        let name = pair.split(|&b| b == b'=').next().unwrap_or(pair);
        std::str::from_utf8(name.trim_ascii()).is_ok_and(is_own)
    };
    let mentions = |line: &HeaderValue| line.as_bytes().split(|&b| b == b';').any(own_pair);
    if !headers.get_all(header::COOKIE).iter().any(mentions) {
        return;
    }
    let lines: Vec<HeaderValue> = headers.get_all(header::COOKIE).iter().cloned().collect();
    headers.remove(header::COOKIE);
    for line in lines {
        let kept: Vec<&[u8]> = line
            .as_bytes()
            .split(|&b| b == b';')
            .map(<[u8]>::trim_ascii)
            .filter(|pair| !pair.is_empty() && !own_pair(pair))
            .collect();
        if let Ok(value) = HeaderValue::from_bytes(&kept.join(&b"; "[..]))
            && !kept.is_empty()
        {
            headers.append(header::COOKIE, value);
        }
    }
}

/// Origin-form (or `*`).
fn origin_form(uri: &Uri) -> Uri {
    if uri.authority().is_none() {
        return uri.clone();
    }
    // An absolute-form target has a path: http::Uri makes an empty one "/".
    uri.path_and_query().cloned().map_or_else(|| Uri::from_static("/"), Uri::from)
}
