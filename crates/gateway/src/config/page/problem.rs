//! The responses for programs: the API answer (RFC 9457), and the status document that the page asks for.

use std::time::Duration;

use tidegate_core::room;

use super::{Kind, Pages, State, Status, View, escape};

impl Pages {
    /// Appends the API answer: `application/problem+json` (RFC 9457), in the visitor's language.
    ///
    /// Besides the standard members it has `wait_s` and `waited_s` in seconds, `place` (people ahead),
    /// `ticket` and `status_url` for the next request, `check_url` where tokencheck takes the ticket, and
    /// `retry_after` in whole seconds as the header of that name. The answer to a forged ticket has none.
    pub fn api(&self, v: &View, out: &mut Vec<u8>) {
        let (headline, message) = super::heading(v.lang, v.kind);
        let notice = super::notice(v.lang, v.kind).unwrap_or(message);
        out.reserve(512 + 3 * (v.target.len() + v.status_path.len()) + v.ticket.map_or(0, str::len));
        let name = match v.kind {
            Kind::Waiting => "waiting",
            Kind::Full => "full",
            Kind::Replaced => "replaced",
            Kind::Late => "late",
            Kind::Unavailable => "unavailable",
            Kind::Forbidden => "forbidden",
            Kind::Overloaded => "overloaded",
        };
        text(out, "{\"type\":\"urn:tidegate:problem:", name);
        text(out, "\",\"title\":\"", headline);
        text(out, "\",\"status\":", itoa::Buffer::new().format(v.status));
        text(out, ",\"detail\":\"", notice);
        out.push(b'"');
        if v.kind != Kind::Forbidden {
            seconds(out, ",\"wait_s\":", v.wait);
            text(out, ",\"retry_after\":", itoa::Buffer::new().format(told_seconds(v.kind, v.wait)));
        }
        if v.kind.has_place() {
            text(out, ",\"place\":", itoa::Buffer::new().format(v.place));
            seconds(out, ",\"waited_s\":", v.waited);
            if let Some(ticket) = v.ticket {
                text(out, ",\"ticket\":\"", "");
                escape::json(ticket, out);
                out.push(b'"');
            }
            if let Some(url) = v.check_url {
                text(out, ",\"check_url\":\"", "");
                escape::json(url, out);
                out.push(b'"');
            }
            text(out, ",\"status_url\":\"", "");
            escape::url_json(v.status_path, v.ticket, out);
            out.push(b'"');
        }
        out.push(b'}');
    }

    /// Appends the status document, `application/json`: what a waiting page asks for.
    pub fn status(&self, s: &Status, out: &mut Vec<u8>) {
        let state = match s.state {
            State::Waiting => "waiting",
            State::Ready => "ready",
            State::Expired => "expired",
            State::Redeemed => "redeemed",
            State::Full => "full",
            State::Unavailable => "unavailable",
        };
        out.reserve(128 + s.ticket.map_or(0, str::len));
        text(out, "{\"state\":\"", state);
        text(out, "\",\"wait_ms\":", itoa::Buffer::new().format(s.wait_ms));
        text(out, ",\"place\":", itoa::Buffer::new().format(s.place));
        text(out, ",\"poll_ms\":", itoa::Buffer::new().format(s.poll_ms));
        text(out, ",\"waited_ms\":", itoa::Buffer::new().format(s.waited_ms));
        if let Some(ticket) = s.ticket {
            text(out, ",\"ticket\":\"", "");
            escape::json(ticket, out);
            out.push(b'"');
        }
        out.push(b'}');
    }
}

/// The value of `Retry-After` of a waiting answer, in whole seconds. Whoever has a position and is early is
/// held until the turn; others must not come too early.
pub fn told_seconds(kind: Kind, wait: Duration) -> u64 {
    match kind {
        Kind::Waiting | Kind::Late | Kind::Replaced => room::told_seconds(wait),
        Kind::Full | Kind::Unavailable | Kind::Overloaded | Kind::Forbidden => retry_after(wait),
    }
}

/// The value of `Retry-After` for a wait: whole seconds, rounded up, so that no client comes too early.
pub fn retry_after(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

fn text(out: &mut Vec<u8>, key: &str, value: &str) {
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(value.as_bytes());
}

/// Seconds with milliseconds: `12.005`.
fn seconds(out: &mut Vec<u8>, key: &str, d: Duration) {
    text(out, key, itoa::Buffer::new().format(d.as_secs()));
    let ms = d.subsec_millis();
    if ms > 0 {
        let digit = |power: u32| b'0' + (ms / power % 10) as u8;
        out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
    }
}
