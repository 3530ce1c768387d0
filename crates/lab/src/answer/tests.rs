//! Answers as rooms and services give them, the gate's own as its own code writes them.

use http::HeaderValue;
use tidegate_gateway::config::page;
use tidegate_gateway::config::page::{Kind, Pages, View};
use tidegate_settings::Settings;

use super::*;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// Sun, 06 Nov 1994 08:49:37 GMT.
const NOW: u64 = 784_111_777;

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().expect("name"), HeaderValue::from_str(value).expect("value"))
    };
    fields.iter().map(field).collect()
}

fn page(status: u16, fields: &[(&str, &str)], body: &str) -> Reading {
    let status = StatusCode::from_u16(status).expect("status");
    read(RequestKind::Page, status, &headers(fields), body.as_bytes(), NOW)
}

fn wait(has_status: bool, after: Option<Duration>, refresh: Option<Duration>) -> Answer {
    Answer::Wait { has_status, after, refresh, poll: None, full: false }
}

#[test]
fn pages_by_their_head() {
    let long = format!("/{}", "x".repeat(MAX_PATH));
    type Fields<'a> = &'a [(&'a str, &'a str)];
    let cases: &[(u16, Fields<'_>, Answer)] = &[
        (200, &[], Answer::Served),
        (204, &[("retry-after", "3")], Answer::Served),
        (503, &[], Answer::Refused(503)),
        (502, &[("retry-after", "3")], Answer::Refused(502)),
        (503, &[("retry-after", "3")], wait(false, Some(3 * S), None)),
        (429, &[("retry-after", "9999999")], wait(false, Some(MAX_DELAY), None)),
        (429, &[("retry-after", "-1")], Answer::Refused(429)),
        (503, &[("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT")], wait(false, Some(60 * S), None)),
        (503, &[("retry-after", "Sunday, 06-Nov-94 08:49:40 GMT")], wait(false, Some(3 * S), None)),
        (503, &[("retry-after", "Fri, 31 Dec 1993 23:59:59 GMT")], wait(false, Some(Duration::ZERO), None)),
        (503, &[("retry-after", "Tue, 31 Dec 2193 23:59:59 GMT")], wait(false, Some(MAX_DELAY), None)),
        (503, &[("retry-after", "tomorrow")], Answer::Refused(503)),
        (200, &[("refresh", "7; url=/x")], wait(false, None, Some(7 * S))),
        (200, &[("refresh", "7"), ("retry-after", "9")], wait(false, Some(9 * S), Some(7 * S))),
        (200, &[("refresh", "soon")], Answer::Served),
        (200, &[("refresh", "0")], wait(false, None, Some(S))),
        (503, &[("retry-after", "40"), ("x-tidegate-status", "/s?c=0")], wait(true, Some(40 * S), None)),
        (200, &[("x-tidegate-status", "/s")], wait(true, None, None)),
        (409, &[("x-tidegate-status", "/s"), ("refresh", "2")], wait(true, None, Some(2 * S))),
        (503, &[("x-tidegate-status", "http://elsewhere/")], Answer::Refused(503)),
        (503, &[("x-tidegate-status", "//elsewhere/")], Answer::Refused(503)),
        (503, &[("x-tidegate-status", "/a b")], Answer::Refused(503)),
        (503, &[("x-tidegate-status", &long)], Answer::Refused(503)),
    ];
    for (status, fields, expected) in cases {
        let reading = page(*status, fields, "");
        assert_eq!(reading.answer, *expected, "{status} {fields:?}");
        let has_status = matches!(reading.answer, Answer::Wait { has_status: true, .. });
        assert_eq!(reading.status_path.is_some(), has_status, "{status} {fields:?}");
        assert_eq!(reading.redirect, None);
    }
}

fn view(kind: Kind) -> View<'static> {
    View {
        kind,
        lang: page::Lang::ALL[0],
        status: 503,
        wait: 12_345 * MS,
        place: 7,
        waited: 4 * S,
        poll: 1_500 * MS,
        target: "/search?q=1",
        ticket: None,
        status_path: "/.tidegate/status?c=3",
        check_url: None,
        form: None,
        refresh: (kind != Kind::Forbidden).then_some(13 * S),
    }
}

/// What the gate sends with such a view.
fn sent(view: &View<'_>, pages: &Pages, html: bool) -> (HeaderMap, Vec<u8>) {
    let mut body = Vec::new();
    let mut fields = Vec::new();
    if html {
        pages.waiting(view, &mut body);
        fields.push(("content-type", "text/html; charset=utf-8"));
    } else {
        pages.api(view, &mut body);
        fields.push(("content-type", "application/problem+json"));
    }
    if view.kind != Kind::Forbidden {
        fields.push(("retry-after", "13"));
    }
    if !matches!(view.kind, Kind::Full | Kind::Forbidden) {
        fields.push(("x-tidegate-status", view.status_path));
    }
    (headers(&fields), body)
}

#[test]
fn answers_of_the_gate() {
    let pages = Pages::new(&Settings::default().room).expect("the built-in page");
    let after = Some(12_345 * MS);
    let place = |poll, refresh| Answer::Wait { has_status: true, after, refresh, poll, full: false };
    let full = |poll, refresh| Answer::Wait { has_status: false, after, refresh, poll, full: true };
    let turned_away = |refresh| Answer::TurnedAway { after, refresh };
    let (poll, refresh) = (Some(1_500 * MS), Some(13 * S));
    let cases = [
        // An operator chooses the status of waiting answers.
        (Kind::Waiting, 503, place(poll, refresh), place(None, None)),
        (Kind::Waiting, 200, place(poll, refresh), place(None, None)),
        (Kind::Late, 503, place(poll, refresh), place(None, None)),
        (Kind::Replaced, 409, place(poll, refresh), place(None, None)),
        (Kind::Unavailable, 503, place(poll, refresh), place(None, None)),
        (Kind::Full, 503, full(poll, refresh), full(None, None)),
        (Kind::Full, 200, full(poll, refresh), full(None, None)),
        (Kind::Forbidden, 403, Answer::Refused(403), Answer::Refused(403)),
        (Kind::Overloaded, 503, turned_away(refresh), turned_away(None)),
        (Kind::Overloaded, 200, turned_away(refresh), turned_away(None)),
    ];
    for (kind, status, to_browsers, to_programs) in cases {
        for (html, expected) in [(true, to_browsers), (false, to_programs)] {
            let (headers, body) = sent(&view(kind), &pages, html);
            let status = StatusCode::from_u16(status).expect("status");
            assert_eq!(wants_body(RequestKind::Page, &headers), kind != Kind::Forbidden);
            let reading = read(RequestKind::Page, status, &headers, &body, NOW);
            assert_eq!(reading.answer, expected, "{kind:?} {status} html: {html}");
            let path = matches!(expected, Answer::Wait { has_status: true, .. })
                .then(|| view(kind).status_path.into());
            assert_eq!(reading.status_path, path, "{kind:?} {status} html: {html}");
        }
    }
}

#[test]
fn programs_without_the_field_find_the_status_document_in_the_answer() {
    let pages = Pages::new(&Settings::default().room).expect("the built-in page");
    let (mut headers, body) = sent(&View { ticket: Some("abc"), ..view(Kind::Waiting) }, &pages, false);
    headers.remove("x-tidegate-status");
    let reading = read(RequestKind::Page, StatusCode::SERVICE_UNAVAILABLE, &headers, &body, NOW);
    assert_eq!(reading.status_path.as_deref(), Some("/.tidegate/status?c=3&tg=abc"));
}

#[test]
fn bodies_that_say_less_or_nonsense() {
    let html = [("content-type", "text/html"), ("x-tidegate-status", "/s"), ("retry-after", "9")];
    let told =
        |after, poll| Answer::Wait { has_status: true, after: Some(after), refresh: None, poll, full: false };
    for (body, expected) in [
        ("", told(9 * S, None)),
        ("<main data-poll=700>", told(9 * S, None)),
        ("<main data-kind=waiting data-poll=700 data-x=1>", told(9 * S, Some(700 * MS))),
        ("<main data-kind=waiting data-poll=\"0\">", told(9 * S, Some(MIN_POLL))),
        ("<main data-kind=waiting data-poll=soon data-wait=-1 >", told(9 * S, None)),
        ("<main data-kind=waiting data-wait=99999999999999999 >", told(MAX_DELAY, None)),
        ("<main data-kind=waiting data-wait=1500 data-poll=70", told(1_500 * MS, None)),
    ] {
        assert_eq!(page(503, &html, body).answer, expected, "{body}");
    }
    // A room that is full has no status document, whatever its head says.
    let full = Answer::Wait { has_status: false, after: Some(9 * S), refresh: None, poll: None, full: true };
    let reading = page(503, &html, "<main data-kind=full >");
    assert_eq!((reading.answer, reading.status_path), (full, None));
    let problem = [("content-type", "application/problem+json"), ("retry-after", "9")];
    let busy = wait(false, Some(9 * S), None);
    for body in ["", "{", "[]", r#"{"wait_s":-1}"#, r#"{"wait_s":1e300}"#, r#"{"status_url":"ftp://x/"}"#] {
        assert_eq!(page(503, &problem, body).answer, busy, "{body}");
    }
    // An article about waiting rooms is no waiting room.
    assert_eq!(page(200, &[], "<main data-kind=full>").answer, Answer::Served, "nothing in its head says so");
}

#[test]
fn redirects() {
    let to = |authority: Option<&str>, path: &str, same_method| {
        Some(Redirect { authority: authority.map(Into::into), path: path.into(), same_method })
    };
    for (status, location, expected) in [
        (
            307,
            "http://check.example:81/buy?n=1&tg=abc",
            to(Some("check.example:81"), "/buy?n=1&tg=abc", true),
        ),
        (308, "http://check.example", to(Some("check.example"), "/", true)),
        (302, "http://check.example?a=b#there", to(Some("check.example"), "/?a=b", false)),
        (303, "/thanks", to(None, "/thanks", false)),
        (301, "//[::1]:80/x", to(Some("[::1]:80"), "/x", false)),
        (307, "https://check.example/", None),
        (307, "thanks", None),
        (307, "?page=2", None),
        (307, "", None),
        (307, "http:///", None),
        (307, "http://a b/", None),
        (307, "/a b", None),
        (304, "/", None),
        (300, "/", None),
    ] {
        let reading = page(status, &[("location", location)], "");
        assert_eq!(reading.answer, Answer::Refused(status), "{status} {location}");
        assert_eq!(reading.redirect, expected, "{status} {location}");
    }
    assert_eq!(page(307, &[], "").redirect, None);
}

#[test]
fn status_documents() {
    let read =
        |body: &[u8]| read(RequestKind::Status, StatusCode::CONFLICT, &HeaderMap::new(), body, NOW).answer;
    let full = br#"{"state":"waiting","wait_ms":1500,"place":3,"poll_ms":700,"waited_ms":9,"ticket":""}"#;
    let expected = RoomStatus { state: State::Waiting, poll: 700 * MS, wait: 1_500 * MS };
    assert_eq!(read(full), Answer::Status(expected));
    for (name, state) in [
        ("ready", State::Ready),
        ("expired", State::Expired),
        ("redeemed", State::Redeemed),
        ("full", State::Full),
        ("unavailable", State::Unavailable),
        ("asleep", State::Other),
    ] {
        let body = format!(r#"{{"state":"{name}"}}"#);
        let expected = RoomStatus { state, poll: 2 * S, wait: Duration::ZERO };
        assert_eq!(read(body.as_bytes()), Answer::Status(expected));
    }
    for body in [&b""[..], b"{}", b"[]", br#"{"state":7}"#, b"\xff\x00"] {
        assert_eq!(read(body), Answer::Refused(409), "{body:?}");
    }
    for (poll_ms, poll) in [(0, MIN_POLL), (u64::MAX, MAX_DELAY)] {
        let body = format!(r#"{{"state":"waiting","poll_ms":{poll_ms},"wait_ms":{poll_ms}}}"#);
        let wait = (poll_ms as u128 * MS.as_nanos()).min(MAX_DELAY.as_nanos());
        let wait = Duration::from_nanos(wait as u64);
        assert_eq!(read(body.as_bytes()), Answer::Status(RoomStatus { state: State::Waiting, poll, wait }));
    }
}

#[test]
fn the_gates_status_document() {
    let pages = Pages::new(&Settings::default().room).expect("the built-in page");
    let states = [
        (page::State::Waiting, State::Waiting),
        (page::State::Ready, State::Ready),
        (page::State::Expired, State::Expired),
        (page::State::Redeemed, State::Redeemed),
        (page::State::Full, State::Full),
        (page::State::Unavailable, State::Unavailable),
    ];
    for (state, expected) in states {
        let mut body = Vec::new();
        let status =
            page::Status { state, wait_ms: 61, place: 2, poll_ms: 350, waited_ms: 5, ticket: Some("x") };
        pages.status(&status, &mut body);
        let reading = read(RequestKind::Status, StatusCode::OK, &HeaderMap::new(), &body, NOW);
        assert_eq!(
            reading.answer,
            Answer::Status(RoomStatus { state: expected, poll: 350 * MS, wait: 61 * MS })
        );
    }
}

proptest::proptest! {
    #[test]
    fn nothing_read_is_beyond_its_bounds(
        status in 100_u16..1000,
        fields in proptest::collection::vec((0_usize..6, ".{0,40}"), 0..6),
        body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        ask in proptest::sample::select(vec![RequestKind::Page, RequestKind::Status]),
    ) {
        let names = ["x-tidegate-status", "retry-after", "refresh", "location", "content-type", "set-cookie"];
        let mut headers = HeaderMap::new();
        for (name, value) in &fields {
            if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                headers.insert(names[*name], value);
            }
        }
        let mut page = b"<main data-kind=full data-wait=".to_vec();
        page.extend_from_slice(&body);
        headers.entry("retry-after").or_insert(HeaderValue::from_static("5"));
        let status = StatusCode::from_u16(status).expect("in range");
        for body in [&body, &page] {
            let reading = read(ask, status, &headers, body, NOW);
            let bounded = |time: Option<Duration>| time.is_none_or(|time| time <= MAX_DELAY);
            if let Answer::Wait { after, refresh, poll, has_status, .. } = reading.answer {
                proptest::prop_assert!(bounded(after) && bounded(refresh) && bounded(poll));
                proptest::prop_assert_eq!(has_status, reading.status_path.is_some());
            }
            proptest::prop_assert!(reading.status_path.is_none_or(|path| is_local(&path)));
        }
    }
}
