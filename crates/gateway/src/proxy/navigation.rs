//! What kind of request this is for the room: a page, a part of a page, a form, a program's call.

use bytes::BytesMut;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, ORIGIN, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, request};
use http_body::Body;
use http_body_util::BodyExt;

use crate::config::page::{self, KeptForm};
use crate::http::visitor_body::VisitorBody;

const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// How the page that made a request is related to its target (W3C Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a browser says that this is no page but a part of one (W3C Fetch Metadata).
///
/// Only a request that says so is a part: clients that say nothing (programs, load tests) meet the room. A
/// script's request (`empty`) is a part too: it comes from a page that was admitted. Old browsers, and all
/// where the site is plain HTTP, do not send the field: theirs comes from a page of the site and does not ask
/// for a page.
pub fn is_part_of_page(headers: &HeaderMap) -> bool {
    let Some(dest) = headers.get(SEC_FETCH_DEST) else {
        return headers.contains_key(ACCEPT) && comes_from_here(headers) && page_quality(headers) == 0.0;
    };
    !matches!(dest.as_bytes(), b"document" | b"iframe" | b"frame" | b"embed" | b"object" | b"fencedframe")
}

/// Whether to answer with a page: a browser's navigation; everything else gets JSON.
pub fn wants_html(headers: &HeaderMap) -> bool {
    if let Some(mode) = headers.get(SEC_FETCH_MODE)
        && mode != "navigate"
    {
        return false;
    }
    let html = page_quality(headers);
    html > 0.0 && html >= quality(headers, "application/json")
}

fn page_quality(headers: &HeaderMap) -> f32 {
    quality(headers, "text/html").max(quality(headers, "application/xhtml+xml"))
}

/// Whether the request comes from a page of this site.
pub fn comes_from_here(headers: &HeaderMap) -> bool {
    if headers.get(&SEC_FETCH_SITE).is_some_and(|site| site == "same-origin") {
        return true;
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let authority =
        |url: &'_ str| url.split_once("://").map(|(_, rest)| rest.split('/').next() == text(HOST));
    // A WebSocket's handshake names its page by `Origin` alone (RFC 6455 4.1).
    [REFERER, ORIGIN].into_iter().any(|field| text(field).and_then(authority).unwrap_or(false))
}

/// The program that a client says it is.
pub fn program(headers: &HeaderMap) -> &[u8] {
    headers.get(USER_AGENT).map_or(&[], HeaderValue::as_bytes)
}

/// Whether the client can wait for a position and come back for it: a browser's navigation, whose page does
/// that, or a program that says it understands the room's answer (RFC 9457). A program that says nothing is
/// assumed not to come back: most do not keep the contents of an error.
pub fn can_return(headers: &HeaderMap) -> bool {
    wants_html(headers) || quality(headers, "application/problem+json") > 0.0
}

/// How much a kind of answer is wanted, if it is named (RFC 9110 12.5.1); 0: it is not.
fn quality(headers: &HeaderMap, wanted: &str) -> f32 {
    let Some(accept) = headers.get(ACCEPT).and_then(|v| v.to_str().ok()) else { return 0.0 };
    accept
        .split(',')
        .filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let named = parts.next()?.eq_ignore_ascii_case(wanted);
            let q = parts.find_map(|p| p.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse::<f32>().ok());
            named.then(|| q.unwrap_or(0.0))
        })
        .fold(0.0, f32::max)
}

/// The request's form, if it is one that can be kept over the wait: at most `max` bytes, urlencoded, a POST.
pub async fn kept_form(parts: &request::Parts, mut body: VisitorBody, max: usize) -> Option<KeptForm> {
    let kind = parts.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok())?;
    let declared = body.size_hint().lower();
    if parts.method != Method::POST || declared > max as u64 || !is_form(kind) {
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

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
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
            let fields: Vec<(&'static str, &'static str)> = fields.to_vec();
            assert_eq!(wants_html(&headers(&fields)), expected, "{fields:?}");
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
            assert_eq!(can_return(&headers(&[("accept", accept)])), expected, "{accept}");
        }
        assert!(!can_return(&headers(&[])));
        assert!(!can_return(&headers(&[("accept", "text/html"), ("sec-fetch-mode", "cors")])));
    }

    #[test]
    fn only_requests_marked_as_parts_are_parts_of_a_page() {
        for part in ["image", "style", "script", "font", "empty", "audio"] {
            assert!(is_part_of_page(&headers(&[("sec-fetch-dest", part)])), "{part}");
        }
        for page in ["document", "iframe", "frame", "object", "embed"] {
            assert!(!is_part_of_page(&headers(&[("sec-fetch-dest", page)])), "{page}");
        }
        assert!(!is_part_of_page(&headers(&[])));
        let here = [("host", "shop.example"), ("referer", "http://shop.example/page")];
        let there = [("host", "shop.example"), ("referer", "http://other.example/")];
        for (site, accept, is_part) in [
            (here, "image/png,image/*;q=0.8,*/*;q=0.5", true),
            (here, "*/*", true),
            (here, "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", false),
            (there, "image/*", false),
        ] {
            let fields: Vec<_> = site.into_iter().chain([("accept", accept)]).collect();
            assert_eq!(is_part_of_page(&headers(&fields)), is_part, "{site:?} {accept}");
        }
        assert!(!is_part_of_page(&headers(&here)), "a program that says nothing");
    }
}
