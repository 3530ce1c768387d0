//! What kind of request this is for the room: a page, a part of a page, a form, a program's call.

use bytes::BytesMut;
use http::Method;
use http_body::Body;
use http_body_util::BodyExt;
use tidegate_http::{Fields, RequestHead, name};

use crate::config::page::{self, KeptForm};
use crate::http::visitor_body::VisitorBody;

/// What the fields of a request say of it, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RequestKind {
    /// A browser says that this is no page but a part of one (W3C Fetch Metadata).
    ///
    /// Only a request that says so is a part: clients that say nothing (programs, load tests) meet the room.
    /// A script's request (`empty`) is a part too: it comes from a page that was admitted. Old browsers, and
    /// all where the site is plain HTTP, do not send the field: theirs comes from a page of the site and does
    /// not ask for a page.
    pub is_part_of_page: bool,
    /// Whether to answer with a page: a browser's navigation; everything else gets JSON.
    pub wants_html: bool,
    /// Whether the client can wait for a position and come back for it: a browser's navigation, whose page
    /// does that, or a program that says it understands the room's answer (RFC 9457). A program that says
    /// nothing is assumed not to come back: most do not keep the contents of an error.
    pub can_return: bool,
}

impl RequestKind {
    pub fn of(fields: &Fields) -> Self {
        let wanted = Wanted::of(fields);
        let is_part_of_page = match fields.get(name::SEC_FETCH_DEST) {
            Some(dest) => {
                !matches!(dest, b"document" | b"iframe" | b"frame" | b"embed" | b"object" | b"fencedframe")
            }
            None => fields.contains(name::ACCEPT) && wanted.page == 0.0 && comes_from_here(fields),
        };
        let navigates = fields.get(name::SEC_FETCH_MODE).is_none_or(|mode| mode == b"navigate");
        let wants_html = navigates && wanted.page > 0.0 && wanted.page >= wanted.json;
        Self { is_part_of_page, wants_html, can_return: wants_html || wanted.problem > 0.0 }
    }
}

/// Whether the request comes from a page of this site.
pub fn comes_from_here(fields: &Fields) -> bool {
    // How the page that made a request is related to its target (W3C Fetch Metadata).
    if fields.get(name::SEC_FETCH_SITE) == Some(b"same-origin") {
        return true;
    }
    let host = fields.get(name::HOST);
    let is_here = |url: &[u8]| {
        let scheme_end = url.windows(3).position(|part| part == b"://");
        scheme_end.is_some_and(|at| url[at + 3..].split(|b| *b == b'/').next() == host)
    };
    // A WebSocket's handshake names its page by `Origin` alone (RFC 6455 4.1).
    [name::REFERER, name::ORIGIN].into_iter().any(|field| fields.get(field).is_some_and(is_here))
}

/// The program that a client says it is.
pub fn program(fields: &Fields) -> &[u8] {
    fields.get(name::USER_AGENT).unwrap_or_default()
}

/// How much kinds of answers are wanted, if they are named (RFC 9110 12.5.1); 0: it is not.
#[derive(Default)]
struct Wanted {
    page: f32,
    json: f32,
    problem: f32,
}

impl Wanted {
    fn of(fields: &Fields) -> Self {
        let mut wanted = Self::default();
        for range in fields.get(name::ACCEPT).unwrap_or_default().split(|b| *b == b',') {
            let mut parts = range.split(|b| *b == b';').map(<[u8]>::trim_ascii);
            let kind = parts.next().unwrap_or_default();
            let is = |one: &str| kind.eq_ignore_ascii_case(one.as_bytes());
            let quality = match kind.len() {
                // Of the lengths of the names below.
                9 if is("text/html") => &mut wanted.page,
                21 if is("application/xhtml+xml") => &mut wanted.page,
                16 if is("application/json") => &mut wanted.json,
                24 if is("application/problem+json") => &mut wanted.problem,
                _ => continue,
            };
            let q = parts.find_map(|part| part.strip_prefix(b"q=")).map(std::str::from_utf8);
            *quality = quality.max(q.map_or(1.0, |q| q.ok().and_then(|q| q.parse().ok()).unwrap_or(0.0)));
        }
        wanted
    }
}

/// The request's form, if it is one that can be kept over the wait: at most `max` bytes, urlencoded, a POST.
pub async fn kept_form(head: &RequestHead, mut body: VisitorBody, max: usize) -> Option<KeptForm> {
    let kind = head.fields.get_str(name::CONTENT_TYPE)?;
    let declared = body.size_hint().lower();
    if *head.method() != Method::POST || declared > max as u64 || !is_form(kind) {
        return None;
    }
    let mut bytes = BytesMut::with_capacity(declared as usize);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.ok()?.into_data() {
            if bytes.len() + data.len() > max {
                return None;
            }
            bytes.extend_from_slice(&data);
        }
    }
    page::keep(kind, &bytes, max)
}

fn is_form(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(lines: &[(&str, &str)]) -> RequestKind {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.append((*name).into(), value.as_bytes()));
        RequestKind::of(&fields)
    }

    #[test]
    fn pages_get_html_and_programs_json() {
        let chrome = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
        let cases: [(&[(&str, &str)], bool); 9] = [
            (&[], false),
            (&[("accept", "*/*")], false),
            (&[("accept", chrome)], true),
            (&[("accept", chrome), ("sec-fetch-mode", "navigate")], true),
            (&[("accept", chrome), ("sec-fetch-mode", "cors")], false),
            (&[("accept", "application/json")], false),
            (&[("accept", "application/json, text/html;q=0.9")], false),
            (&[("accept", "text/html;q=0.9, application/json;q=0.1")], true),
            (&[("accept", "text/html;q=0")], false),
        ];
        for (fields, expected) in cases {
            assert_eq!(kind(fields).wants_html, expected, "{fields:?}");
        }
    }

    #[test]
    fn a_client_that_says_nothing_cannot_come_back() {
        let cases = [
            ("text/html,*/*;q=0.8", true),
            ("application/json", false),
            ("*/*", false),
            ("application/json, application/problem+json", true),
            ("application/problem+json;q=0", false),
        ];
        for (accept, expected) in cases {
            assert_eq!(kind(&[("accept", accept)]).can_return, expected, "{accept}");
        }
        assert!(!kind(&[]).can_return);
        assert!(!kind(&[("accept", "text/html"), ("sec-fetch-mode", "cors")]).can_return);
    }

    #[test]
    fn only_requests_marked_as_parts_are_parts_of_a_page() {
        for part in ["image", "style", "script", "font", "empty", "audio"] {
            assert!(kind(&[("sec-fetch-dest", part)]).is_part_of_page, "{part}");
        }
        for page in ["document", "iframe", "frame", "object", "embed"] {
            assert!(!kind(&[("sec-fetch-dest", page)]).is_part_of_page, "{page}");
        }
        assert!(!kind(&[]).is_part_of_page);
        let here = [("host", "shop.example"), ("referer", "http://shop.example/page")];
        let there = [("host", "shop.example"), ("referer", "http://other.example/")];
        for (site, accept, is_part) in [
            (here, "image/png,image/*;q=0.8,*/*;q=0.5", true),
            (here, "*/*", true),
            (here, "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", false),
            (there, "image/*", false),
        ] {
            let fields: Vec<_> = site.into_iter().chain([("accept", accept)]).collect();
            assert_eq!(kind(&fields).is_part_of_page, is_part, "{site:?} {accept}");
        }
        assert!(!kind(&here).is_part_of_page, "a program that says nothing");
    }
}
