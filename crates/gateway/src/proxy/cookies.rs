//! The cookies by which a visitor keeps a position: read, written, and hidden from the origin.
//!
//! `tg<class>` the ticket of a class, `tgid` the random value that tickets are bound to, `tgp` the pass. All
//! are HttpOnly: the page needs none of them, and a script of the origin's must not hand them on.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_http::{Fields, name};

use crate::config::ClassTag;

/// 16 bytes in base64 without padding.
const BINDING_LEN: usize = 22;

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
    pub fn read(fields: &'a Fields, class: ClassTag) -> Self {
        let mut found = Self::default();
        for (name, value) in pairs(fields) {
            found.any = true;
            let Some(rest) = name.strip_prefix(b"tg") else { continue };
            let Ok(value) = std::str::from_utf8(value) else { continue };
            match rest {
                b"id" => found.binding = found.binding.or_else(|| parse_binding(value)),
                b"p" => found.pass = found.pass.or(Some(value)),
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

/// Cookies to set, as lines of `Set-Cookie`: in the end they become lines of an answer.
#[derive(Clone, Debug, Default)]
pub struct SetCookies(Fields);

impl SetCookies {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds them to an answer's fields.
    pub fn add_to(&self, fields: &mut Fields) {
        if !self.is_empty() {
            fields.extend_from(&self.0);
        }
    }

    /// A new random value to bind tickets to.
    pub fn binding(&mut self, value: [u8; 16], secure: bool) {
        // A year: the value says nothing about the visitor but that the same browser came back.
        let mut text = [0; BINDING_LEN];
        let Ok(BINDING_LEN) = URL_SAFE_NO_PAD.encode_slice(value, &mut text) else { return };
        self.add("id", "", &text, Duration::from_secs(365 * 24 * 3600), secure);
    }

    /// The value to bind tickets to that is being set.
    pub fn new_binding(&self) -> Option<[u8; 16]> {
        let value = |cookie: &'_ [u8]| {
            let value = cookie.strip_prefix(b"tgid=")?.split(|b| *b == b';').next()?;
            parse_binding(std::str::from_utf8(value).ok()?)
        };
        self.0.get_all(name::SET_COOKIE).find_map(value)
    }

    pub fn ticket(&mut self, class: ClassTag, sealed: &[u8], keep: Duration, secure: bool) {
        self.add("", itoa::Buffer::new().format(class.0), sealed, keep, secure);
    }

    /// Takes a ticket back after its redemption.
    pub fn clear_ticket(&mut self, class: ClassTag, secure: bool) {
        self.ticket(class, b"", Duration::ZERO, secure);
    }

    pub fn pass(&mut self, sealed: &[u8], keep: Duration, secure: bool) {
        self.add("p", "", sealed, keep, secure);
    }

    pub fn clear_pass(&mut self, secure: bool) {
        self.pass(b"", Duration::ZERO, secure);
    }

    /// Whatever was to be done with the pass is not done.
    pub fn forget_pass(&mut self) {
        self.0.retain(|_, _, cookie| !cookie.starts_with(b"tgp="));
    }

    fn add(&mut self, name: &str, class: &str, value: &[u8], keep: Duration, secure: bool) {
        // Not a part of a second too short.
        let keep_s = keep.as_secs() + u64::from(keep.subsec_nanos() > 0);
        let mut digits = itoa::Buffer::new();
        let keep = digits.format(keep_s).as_bytes();
        let secure: &[u8] = if secure { b"; Secure" } else { b"" };
        self.0.append_with(name::SET_COOKIE, |line| {
            for part in [b"tg", name.as_bytes(), class.as_bytes(), b"=", value, b"; Path=/; Max-Age=", keep] {
                line.extend_from_slice(part);
            }
            line.extend_from_slice(b"; HttpOnly; SameSite=Lax");
            line.extend_from_slice(secure);
        });
    }
}

pub fn binding_text(value: [u8; 16]) -> String {
    URL_SAFE_NO_PAD.encode(value)
}

fn pairs(fields: &Fields) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields.get_all(name::COOKIE).flat_map(|line| line.split(|b| *b == b';')).filter_map(|pair| {
        let pair = pair.trim_ascii();
        let at = memchr::memchr(b'=', pair)?;
        Some((&pair[..at], &pair[at + 1..]))
    })
}

pub fn parse_binding(text: &str) -> Option<[u8; 16]> {
    let mut value = [0; 16];
    (URL_SAFE_NO_PAD.decode_slice(text, &mut value).ok()? == 16).then_some(value)
}

fn is_class(digits: &[u8], class: ClassTag) -> bool {
    itoa::Buffer::new().format(class.0).as_bytes() == digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[&[u8]]) -> Fields {
        let mut fields = Fields::new();
        lines.iter().for_each(|line| fields.append(name::COOKIE, line));
        fields
    }

    fn set(set: impl FnOnce(&mut SetCookies)) -> Vec<String> {
        let mut cookies = SetCookies::default();
        set(&mut cookies);
        let mut fields = Fields::new();
        cookies.add_to(&mut fields);
        fields.get_all(name::SET_COOKIE).map(|value| String::from_utf8(value.to_vec()).unwrap()).collect()
    }

    #[test]
    fn finds_its_own_among_others() {
        let value = [7u8; 16];
        let id = binding_text(value);
        let second = format!("tg1=other; caf\u{e9}=\u{e9}; tgid={id}; tgp=pass; tg12=second");
        let fields = fields(&[b"a=b; tg12=ticket; odd=\xff", second.as_bytes()]);
        let c = Cookies::read(&fields, ClassTag(12));
        assert_eq!(c.ticket, Some("ticket"));
        assert_eq!(c.binding, Some(value));
        assert_eq!(c.pass, Some("pass"));
        assert_eq!(Cookies::read(&fields, ClassTag(1)).ticket, Some("other"));
        assert_eq!(Cookies::read(&fields, ClassTag(2)).ticket, None);
    }

    #[test]
    fn a_binding_of_another_length_is_none() {
        for bad in ["", "AA", "AAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAA==", "!AAAAAAAAAAAAAAAAAAAAA"]
        {
            let line = format!("tgid={bad}");
            assert_eq!(Cookies::read(&fields(&[line.as_bytes()]), ClassTag(0)).binding, None, "{bad}");
        }
    }

    #[test]
    fn a_binding_that_is_being_set_is_found_and_a_pass_can_be_forgotten() {
        let value = [9; 16];
        let mut cookies = SetCookies::default();
        cookies.clear_ticket(ClassTag(1), true);
        assert_eq!(cookies.new_binding(), None);
        cookies.pass(b"pass", Duration::ZERO, true);
        cookies.binding(value, true);
        cookies.forget_pass();
        assert_eq!(cookies.new_binding(), Some(value));
        let left = set(|all| *all = cookies);
        assert!(left.len() == 2 && left[0].starts_with("tg1=;") && left[1].starts_with("tgid="), "{left:?}");
    }

    #[test]
    fn cookies_are_spelt_as_rfc_6265_says() {
        let c = set(|all| all.ticket(ClassTag(3), b"abc", Duration::from_secs(90), true));
        assert_eq!(c, ["tg3=abc; Path=/; Max-Age=90; HttpOnly; SameSite=Lax; Secure"]);
        let c = set(|all| all.pass(b"abc", Duration::from_millis(1_250), false));
        assert_eq!(c, ["tgp=abc; Path=/; Max-Age=2; HttpOnly; SameSite=Lax"]);
        let c = set(|all| all.clear_ticket(ClassTag(255), false));
        assert_eq!(c, ["tg255=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"]);
    }
}
