//! The cookies by which a visitor keeps a position: read, written, and hidden from the origin.
//!
//! `tg<class>` the ticket of a class, `tgid` the random value that tickets are bound to, `tgp` the pass. All
//! are HttpOnly: the page needs none of them, and a script of the origin's must not hand them on.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

use crate::config::ClassTag;

/// The gate's cookies of a request, borrowed from its head.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cookies<'a> {
    /// The ticket of the class asked for.
    pub ticket: Option<&'a str>,
    /// What tickets are bound to.
    pub binding: Option<[u8; 16]>,
    pub pass: Option<&'a str>,
    /// The client sent some cookie.
    pub any: bool,
}

impl<'a> Cookies<'a> {
    /// Reads the cookies that matter for `class`. Of several with one name the first counts (RFC 6265 5.4).
    pub fn read(headers: &'a HeaderMap, class: ClassTag) -> Self {
        let mut found = Self::default();
        for (name, value) in pairs(headers) {
            found.any = true;
            let Some(rest) = name.strip_prefix("tg") else { continue };
            match rest {
                "id" => found.binding = found.binding.or_else(|| parse_binding(value)),
                "p" => found.pass = found.pass.or(Some(value)),
                digits if is_class(digits, class) => found.ticket = found.ticket.or(Some(value)),
                _ => {}
            }
        }
        found
    }

    /// Whether the client shows no cookie of the gate.
    pub fn are_none(&self) -> bool {
        self.pass.is_none() && self.binding.is_none() && self.ticket.is_none()
    }
}

/// A new random value to bind tickets to, as a cookie.
pub fn set_binding(value: [u8; 16], secure: bool) -> HeaderValue {
    // A year: the value says nothing about the visitor but that the same browser came back.
    cookie("tgid", &binding_text(value), Duration::from_secs(365 * 24 * 3600), secure)
}

pub fn binding_text(value: [u8; 16]) -> String {
    URL_SAFE_NO_PAD.encode(value)
}

pub fn binding_set(cookies: &[HeaderValue]) -> Option<[u8; 16]> {
    let value = |cookie: &'_ HeaderValue| {
        let value = cookie.as_bytes().strip_prefix(b"tgid=")?.split(|b| *b == b';').next()?;
        parse_binding(std::str::from_utf8(value).ok()?)
    };
    cookies.iter().find_map(value)
}

pub fn set_ticket(class: ClassTag, sealed: &str, keep: Duration, secure: bool) -> HeaderValue {
    cookie(&format!("tg{}", class.0), sealed, keep, secure)
}

/// Takes a ticket back after its redemption.
pub fn clear_ticket(class: ClassTag, secure: bool) -> HeaderValue {
    set_ticket(class, "", Duration::ZERO, secure)
}

pub fn set_pass(sealed: &str, keep: Duration, secure: bool) -> HeaderValue {
    cookie("tgp", sealed, keep, secure)
}

pub fn clear_pass(secure: bool) -> HeaderValue {
    set_pass("", Duration::ZERO, secure)
}

pub fn is_pass(cookie: &HeaderValue) -> bool {
    cookie.as_bytes().starts_with(b"tgp=")
}

fn cookie(name: &str, value: &str, keep: Duration, secure: bool) -> HeaderValue {
    let mut text = String::with_capacity(name.len() + value.len() + 72);
    text.push_str(name);
    text.push('=');
    text.push_str(value);
    text.push_str("; Path=/; Max-Age=");
    // Not a part of a second too short.
    text.push_str(itoa::Buffer::new().format(keep.as_secs() + u64::from(keep.subsec_nanos() > 0)));
    text.push_str("; HttpOnly; SameSite=Lax");
    if secure {
        text.push_str("; Secure");
    }
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|field| field.to_str().ok())
        .flat_map(|field| field.split(';'))
        .filter_map(|pair| pair.trim_matches(' ').split_once('='))
}

pub fn parse_binding(text: &str) -> Option<[u8; 16]> {
    let mut value = [0; 16];
    (URL_SAFE_NO_PAD.decode_slice(text, &mut value).ok()? == 16).then_some(value)
}

fn is_class(digits: &str, class: ClassTag) -> bool {
    itoa::Buffer::new().format(class.0) == digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[&str]) -> HeaderMap {
        fields.iter().map(|f| (COOKIE, HeaderValue::from_str(f).unwrap())).collect()
    }

    #[test]
    fn finds_its_own_among_others() {
        let value = [7u8; 16];
        let id = URL_SAFE_NO_PAD.encode(value);
        let h = headers(&["a=b; tg12=ticket", &format!("tg1=other; tgid={id}; tgp=pass; tg12=second")]);
        let c = Cookies::read(&h, ClassTag(12));
        assert_eq!(c.ticket, Some("ticket"));
        assert_eq!(c.binding, Some(value));
        assert_eq!(c.pass, Some("pass"));
        assert_eq!(Cookies::read(&h, ClassTag(1)).ticket, Some("other"));
        assert_eq!(Cookies::read(&h, ClassTag(2)).ticket, None);
    }

    #[test]
    fn a_binding_of_another_length_is_none() {
        for bad in ["", "AA", "AAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAA==", "!AAAAAAAAAAAAAAAAAAAAA"]
        {
            assert_eq!(
                Cookies::read(&headers(&[&format!("tgid={bad}")]), ClassTag(0)).binding,
                None,
                "{bad}"
            );
        }
    }

    #[test]
    fn a_binding_that_is_being_set_is_found() {
        let value = [9; 16];
        let set = [clear_ticket(ClassTag(1), true), set_binding(value, true), clear_pass(true)];
        assert_eq!(binding_set(&set), Some(value));
        assert_eq!(binding_set(&set[..1]), None);
    }

    #[test]
    fn cookies_are_spelt_as_rfc_6265_says() {
        let c = set_ticket(ClassTag(3), "abc", Duration::from_secs(90), true);
        assert_eq!(c, "tg3=abc; Path=/; Max-Age=90; HttpOnly; SameSite=Lax; Secure");
        let c = set_pass("abc", Duration::from_millis(1_250), false);
        assert_eq!(c, "tgp=abc; Path=/; Max-Age=2; HttpOnly; SameSite=Lax");
        assert_eq!(clear_ticket(ClassTag(255), false), "tg255=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax");
    }
}
