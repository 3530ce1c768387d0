//! Prepares a visitor's request for the origin.
//!
//! The head is edited in place: one pass over its lines leaves out what must not be passed on, and what the
//! gateway says is added at the end. Lines that stay are not touched: names keep their case.

use std::net::IpAddr;

use http::Version;
use tidegate_http::{Fields, Known, Name, RequestHead, is_forbidden_trailer, list, name};

use super::forwarded::{push_address, push_node, push_token_or_quoted};
use super::hops::{Named, begins_with, is_hop_by_hop};
use crate::base::scratch::Scratch;

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
    pub request_id: &'a [u8],
    /// `Upgrade` is passed on: the gateway is ready to tunnel.
    pub keep_upgrade: bool,
    /// Whether a cookie of this name is the gateway's own and must not reach the origin.
    pub is_own_cookie: fn(&str) -> bool,
}

/// The request's id that a trusted peer gives, if it is printable and short enough.
pub fn request_id(fields: &Fields, trusted: bool) -> Option<&str> {
    let given = fields.get_str(name::X_REQUEST_ID).filter(|_| trusted)?;
    let is_one = (1..=MAX_REQUEST_ID).contains(&given.len()) && given.bytes().all(|b| b.is_ascii_graphic());
    is_one.then_some(given)
}

/// Whether the request asks for another protocol that the origin may switch to. HTTP/2 over the same
/// connection is none: the gateway could not read what follows.
pub fn asks_to_switch(fields: &Fields) -> bool {
    let is_h2c = |protocol: &[u8]| protocol.eq_ignore_ascii_case(b"h2c");
    fields.contains(name::UPGRADE)
        && fields.lists(name::CONNECTION, "upgrade")
        && !fields.get_all(name::UPGRADE).flat_map(list).any(is_h2c)
}

/// Makes a visitor's head the one that the origin gets. What frames its body is left to who sends it.
pub fn prepare_request(head: &mut RequestHead, ctx: &ForwardContext<'_>) {
    let mut host = Scratch::new();
    // The authority of an absolute-form target overrides the field (RFC 9112 3.2.2).
    let original = head.authority().map(str::as_bytes).or_else(|| head.fields.get(name::HOST));
    let has_host = original.is_some();
    host.extend_from_slice(original.unwrap_or_default());
    let is_host_kept = ctx.host.is_empty() && has_host && head.authority().is_none();

    let version = head.version();
    let fields = &mut head.fields;
    let upgrades = ctx.keep_upgrade && asks_to_switch(fields);
    // Trailers are sent only to who accepts them.
    let trailers = fields.lists(name::TE, "trailers");
    let cookies = other_cookies(fields, ctx.is_own_cookie);
    strip(fields, ctx, upgrades, cookies.is_some());
    if upgrades {
        fields.append(name::CONNECTION, b"upgrade");
    }
    if trailers {
        fields.append(name::TE, b"trailers");
        // RFC 9110 10.1.4: a sender of TE names it in Connection.
        fields.append(name::CONNECTION, b"te");
    }
    for line in cookies.iter().flat_map(|lines| lines.split(|&b| b == b'\n')).filter(|line| !line.is_empty())
    {
        fields.append(name::COOKIE, line);
    }
    forward(fields, ctx, has_host.then_some(&host[..]));
    via(fields, version, ctx.via);
    fields.append(name::X_REQUEST_ID, ctx.request_id);
    if !is_host_kept {
        let host = if ctx.host.is_empty() { &host } else { ctx.host.as_bytes() };
        fields.set(name::HOST, host);
    }
    head.make_origin_form();
    head.set_version(Version::HTTP_11);
}

/// Leaves out what concerns the visitor's connection only, what only a trusted peer may say, what the gateway
/// says itself, and what would pass for one of these.
fn strip(fields: &mut Fields, ctx: &ForwardContext<'_>, upgrades: bool, has_own_cookies: bool) {
    let named = Named::of(fields);
    let mut has_upgrade = false;
    fields.retain(|name, known, _| match known {
        Some(Known::Upgrade) => upgrades && !std::mem::replace(&mut has_upgrade, true),
        Some(known) if is_hop_by_hop(known) => false,
        // `Proxy-Authorization` is meant for the first proxy, which is the gateway (RFC 9110 11.7.2); it
        // needs none.
        Some(Known::Te | Known::ProxyAuthorization | Known::XRequestId) => false,
        Some(Known::Cookie) => !has_own_cookies,
        // A chain with a hop missing would name the wrong client.
        Some(Known::Forwarded) => ctx.trusted && ctx.forwarded,
        Some(Known::XForwardedFor | Known::XForwardedHost | Known::XForwardedProto | Known::XRealIp) => {
            ctx.trusted
        }
        Some(_) => !named.has(name),
        None => {
            !named.has(name) && (ctx.trusted || !begins_with(name, b"x-forwarded-")) && !is_disguised(name)
        }
    });
}

/// Whether origins which do not tell `_` from `-` (CGI, PHP) would trust it: `X_Forwarded_For`.
fn is_disguised(name: &[u8]) -> bool {
    let plain = |b: &u8| if *b == b'_' { b'-' } else { b.to_ascii_lowercase() };
    memchr::memchr(b'_', name).is_some() && is_forbidden_trailer(&name.iter().map(plain).collect::<Vec<u8>>())
}

/// Extends the forwarding fields of a trusted peer; those of anybody else are gone.
fn forward(fields: &mut Fields, ctx: &ForwardContext<'_>, host: Option<&[u8]>) {
    let peer = ctx.peer.to_canonical();
    append_list(fields, name::X_FORWARDED_FOR, |out| push_address(out, peer));
    // A trusted peer names the host and scheme of the visitor's connection; ours would be the peer's.
    if !fields.contains(name::X_FORWARDED_PROTO) {
        fields.append(name::X_FORWARDED_PROTO, ctx.scheme.as_bytes());
    }
    if let Some(host) = host
        && !fields.contains(name::X_FORWARDED_HOST)
    {
        fields.append(name::X_FORWARDED_HOST, host);
    }
    if ctx.forwarded {
        append_list(fields, name::FORWARDED, |out| {
            out.extend_from_slice(b"for=");
            match peer {
                IpAddr::V4(_) => push_address(out, peer),
                IpAddr::V6(_) => push_node(out, peer),
            }
            out.extend_from_slice(b";proto=");
            out.extend_from_slice(ctx.scheme.as_bytes());
            if let Some(host) = host {
                out.extend_from_slice(b";host=");
                push_token_or_quoted(host, out);
            }
        });
    }
}

/// Adds the element that `write` writes to the list that the lines of a name make; it becomes one line.
fn append_list(fields: &mut Fields, name: Name<'_>, write: impl FnOnce(&mut Vec<u8>)) {
    if !fields.contains(name) {
        return fields.append_with(name, write);
    }
    let mut all = Scratch::new();
    for value in fields.get_all(name) {
        all.extend_from_slice(value);
        all.text(", ");
    }
    write(&mut all);
    fields.set(name, &all);
}

/// RFC 9110 7.6.3.
pub(crate) fn via(fields: &mut Fields, version: Version, gateway: &str) {
    if gateway.is_empty() {
        return;
    }
    let version = match version {
        Version::HTTP_10 => b"1.0 ",
        Version::HTTP_2 => b"2.0 ",
        _ => b"1.1 ",
    };
    append_list(fields, name::VIA, |out| {
        out.extend_from_slice(version);
        out.extend_from_slice(gateway.as_bytes());
    });
}

/// The cookies that are not the gateway's own, each line ended by LF. `None`: all are kept as they are.
fn other_cookies(fields: &Fields, is_own: fn(&str) -> bool) -> Option<Scratch> {
    let is_own_pair = |pair: &[u8]| {
        let name = pair.split(|&b| b == b'=').next().unwrap_or(pair);
        std::str::from_utf8(name.trim_ascii()).is_ok_and(is_own)
    };
    let is_end = |b: &u8| *b == b';';
    if !fields.get_all(name::COOKIE).flat_map(|line| line.split(is_end)).any(is_own_pair) {
        return None;
    }
    let mut into = Scratch::new();
    for line in fields.get_all(name::COOKIE) {
        let others = line.split(is_end).map(<[u8]>::trim_ascii);
        for (i, pair) in others.filter(|pair| !pair.is_empty() && !is_own_pair(pair)).enumerate() {
            into.text(if i > 0 { "; " } else { "" });
            into.extend_from_slice(pair);
        }
        into.push(b'\n');
    }
    Some(into)
}
