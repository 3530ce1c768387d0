//! Pages: size, escaping, templates, answers for programs.

use std::io::Write;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::*;

fn pages() -> Pages {
    Pages::new(&tidegate_settings::Room::default()).unwrap()
}

fn view() -> View<'static> {
    View {
        kind: Kind::Waiting,
        lang: Lang::En,
        status: 503,
        wait: Duration::from_secs(240),
        place: 1_234,
        waited: Duration::from_secs(60),
        poll: Duration::from_secs(20),
        target: "/search?q=trains&day=friday",
        ticket: None,
        status_path: "/.tidegate/status?c=3",
        check_url: None,
        form: None,
        refresh: Some(Duration::from_secs(20)),
    }
}

fn html(v: &View) -> String {
    let mut out = Vec::new();
    pages().waiting(v, &mut out);
    String::from_utf8(out).unwrap()
}

fn json(v: &View) -> serde_json::Value {
    let mut out = Vec::new();
    pages().api(v, &mut out);
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn every_page_fits_one_initial_tcp_window() {
    // 14 kB less the room that a response head takes (RFC 6928: ten segments of 1460 bytes).
    for lang in Lang::ALL {
        for kind in Kind::ALL {
            let page = html(&View { lang, kind, ticket: Some(&"x".repeat(80)), ..view() });
            assert!(page.len() < 13_500, "{lang:?} {kind:?}: {} bytes", page.len());
        }
    }
}

#[test]
fn a_page_is_made_with_one_allocation() {
    let pages = pages();
    let form =
        keep("application/x-www-form-urlencoded", "a=%22%27%3C".repeat(500).as_bytes(), 1 << 16).unwrap();
    let target = format!("/{}", "\"é".repeat(1_000));
    let busy = View { target: &target, form: Some(&form), ticket: Some("ticket"), place: u64::MAX, ..view() };
    for v in [view(), busy, View { wait: Duration::MAX, waited: Duration::MAX, ..view() }] {
        let mut out = Vec::new();
        pages.waiting(&v, &mut out);
        let reserved = {
            let mut twin: Vec<u8> = Vec::new();
            pages.waiting(&v, &mut twin);
            twin.capacity()
        };
        let mut exact = Vec::with_capacity(reserved);
        let start = exact.as_ptr();
        pages.waiting(&v, &mut exact);
        assert_eq!(exact.as_ptr(), start, "the page outgrew what was reserved for it");
        assert_eq!(exact, out);
    }
}

#[test]
fn a_page_in_pieces_is_the_same_page_and_shares_style_and_script() {
    let pages = pages();
    for kind in Kind::ALL {
        let v = View { kind, ..view() };
        let (mut pieces, mut whole) = (pages.pieces(&v), Vec::new());
        pages.waiting(&v, &mut whole);
        assert_eq!(pieces.len(), whole.len());
        let taken: Vec<_> = std::iter::from_fn(|| pieces.take()).collect();
        assert!(pieces.is_empty());
        assert_eq!(taken.concat(), whole, "{kind:?}");
        let is_shared = |one: &bytes::Bytes| taken.iter().any(|piece| piece.as_ptr() == one.as_ptr());
        assert!(is_shared(&pages.style) && is_shared(&pages.languages[0].script), "{kind:?}");
    }
}

#[test]
fn the_page_shows_position_wait_and_next_step() {
    let page = html(&view());
    for expected in [
        "<html lang=\"en\" dir=\"ltr\">",
        "<title>4 minutes · You are in line</title>",
        "<span data-tg=\"wait\">about <b>4</b> minutes</span>",
        "<dd data-tg=\"place\">1,234</dd>",
        "<dd data-tg=\"waited\">60 seconds</dd>",
        "stroke-dashoffset=\"80\"",
        "translate(0 154)",
        "data-kind=waiting data-wait=240000 data-waited=60000 data-poll=20000 data-status=\"/.tidegate/status?c=3\"",
        "data-target=\"/search?q=trains&amp;day=friday\"",
        "<noscript><meta http-equiv=\"refresh\" content=\"20;url=/search?q=trains&amp;day=friday\"></noscript>",
        "<a href=\"/search?q=trains&amp;day=friday\">Check now</a>",
    ] {
        assert!(page.contains(expected), "{expected}\n{page}");
    }
    assert!(!page.contains("{{") && !page.contains("<form"));
}

#[test]
fn kinds_offer_different_actions() {
    // kind, headline, has a position, has a refresh
    let table = [
        (Kind::Waiting, "You are in line", true, true),
        (Kind::Replaced, "Your earlier place has been used", true, true),
        (Kind::Late, "Your turn had passed", true, true),
        (Kind::Unavailable, "The service is not answering", true, true),
        (Kind::Full, "All places are taken", false, true),
        (Kind::Forbidden, "This ticket is not valid", false, false),
        (Kind::Overloaded, "The service is overloaded", false, true),
    ];
    for (kind, words, place, refreshed) in table {
        let page = html(&View { kind, ticket: Some("forged"), ..view() });
        let (body, _) = page.split_once("<script").unwrap();
        assert!(body.contains(words), "{kind:?}");
        assert_eq!(body.contains("data-tg=\"place\""), place, "{kind:?}");
        assert_eq!(body.contains("http-equiv=\"refresh\""), refreshed, "{kind:?}");
        assert_eq!(
            body.contains("href=\"/search?q=trains&amp;day=friday\""),
            kind == Kind::Forbidden,
            "{kind:?}"
        );
    }
}

#[test]
fn a_kept_form_replaces_the_link() {
    let form = keep("application/x-www-form-urlencoded", b"seat=12%22A&note=a%0D%0Ab", 100).unwrap();
    let page = html(&View { form: Some(&form), ticket: Some("t"), ..view() });
    assert!(page.contains("action=\"/search?q=trains&amp;day=friday&tg=t\""));
    assert!(page.contains("<input type=hidden name=\"seat\" value=\"12&quot;A\">"));
    assert!(page.contains("value=\"a&#13;&#10;b\""));
    assert!(page.contains("Send now</button>"));
    assert!(!page.contains("http-equiv=\"refresh\""), "a reload would lose the form");
}

#[test]
fn hostile_text_stays_text() {
    let target = "/\"><script>alert(1)</script>";
    let room = tidegate_settings::Room { title: "<script>alert(2)</script>&".into(), ..Default::default() };
    let mut out = Vec::new();
    let v = View { target, ticket: Some("\"><script>alert(3)</script>"), status_path: "/\"><i>", ..view() };
    Pages::new(&room).unwrap().waiting(&v, &mut out);
    let page = String::from_utf8(out).unwrap();
    assert!(!page.contains("<script>alert") && !page.contains("<i>"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(2)&lt;/script&gt;&amp;"));
}

#[test]
fn the_policy_names_the_code_of_the_page_by_hash() {
    let page = html(&view());
    let pages = pages();
    let policy = pages.policy(false);
    let code = page.split("<script>").nth(1).unwrap().split("</script>").next().unwrap();
    let style = page.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
    for body in [code, style] {
        let hash = STANDARD.encode(Sha256::digest(body));
        assert!(policy.contains(&format!("'sha256-{hash}'")), "{policy}");
    }
    assert!(policy.starts_with("default-src 'none';") && policy.contains("form-action 'self'"));
    assert!(!pages.policy(true).contains("form-action"));
}

#[test]
fn the_api_answer_is_a_problem_document() {
    let v = View { ticket: Some("tick"), wait: Duration::from_millis(12_005), ..view() };
    let expected = serde_json::json!({
        "type": "urn:tidegate:problem:waiting",
        "title": "You are in line",
        "status": 503,
        "detail": "A lot of people are here right now. Everyone is admitted in the order they came.",
        "wait_s": 12.005,
        "retry_after": 12,
        "place": 1234,
        "waited_s": 60,
        "ticket": "tick",
        "status_url": "/.tidegate/status?c=3&tg=tick",
    });
    assert_eq!(json(&v), expected);
    let forbidden = json(&View { kind: Kind::Forbidden, status: 403, ..v });
    assert_eq!(forbidden["status"], 403);
    assert!(forbidden.get("ticket").is_none() && forbidden.get("wait_s").is_none());
    let full = json(&View { kind: Kind::Full, ..v });
    assert!(full.get("place").is_none() && full["retry_after"] == 13);
    for lang in Lang::ALL {
        for kind in Kind::ALL {
            assert!(json(&View { lang, kind, ticket: Some("\"\\"), ..view() }).is_object());
        }
    }
}

#[test]
fn the_status_document_is_json() {
    let status =
        Status { state: State::Waiting, wait_ms: 1, place: 2, poll_ms: 3, waited_ms: 4, ticket: None };
    let mut out = Vec::new();
    pages().status(&status, &mut out);
    assert_eq!(out, br#"{"state":"waiting","wait_ms":1,"place":2,"poll_ms":3,"waited_ms":4}"#);
    out.clear();
    pages().status(&Status { state: State::Ready, ticket: Some("t"), ..status }, &mut out);
    let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&document["state"], &document["ticket"]), (&"ready".into(), &"t".into()));
}

/// A file that is removed with the test.
struct TempFile(std::path::PathBuf);

impl TempFile {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-page-{}-{name}", std::process::id()));
        std::fs::File::create(&path).unwrap().write_all(content).unwrap();
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn an_operator_s_template_title_and_logo_are_used() {
    let source = "<html lang={{lang}}>{{refresh}}<style>p{color:red}</style>{{logo}}<h1>{{title}}</h1>{{wait}}{{form}}";
    let template = TempFile::new("own.html", source.as_bytes());
    let logo = TempFile::new("logo.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>");
    let room = tidegate_settings::Room {
        template: Some(template.0.clone()),
        logo: Some(logo.0.clone()),
        title: "Tom & Co".into(),
        ..Default::default()
    };
    let pages = Pages::new(&room).unwrap();
    let mut out = Vec::new();
    pages.waiting(&view(), &mut out);
    let page = String::from_utf8(out).unwrap();
    assert!(page.contains("<h1>Tom &amp; Co</h1>about <b>4</b> minutes"), "{page}");
    assert!(page.contains("<img src=\"data:image/svg+xml;base64,PHN2Zy"), "{page}");
    let policy = pages.policy(false);
    assert!(policy.contains("script-src 'none'"), "{policy}");
    assert!(policy.contains(&STANDARD.encode(Sha256::digest("p{color:red}"))), "{policy}");
}

#[test]
fn a_wrong_logo_or_template_is_refused() {
    let text = TempFile::new("logo.txt", b"hello");
    let large = TempFile::new("large.png", &[b"\x89PNG\r\n\x1a\n".as_slice(), &[0; 70_000]].concat());
    let bare = TempFile::new("bare.html", b"<p>{{wait}}</p>");
    let missing = std::path::PathBuf::from("/nonexistent/logo.png");
    let with_logo =
        |path: &std::path::Path| tidegate_settings::Room { logo: Some(path.into()), ..Default::default() };
    assert!(matches!(Pages::new(&with_logo(&text.0)), Err(PageError::LogoKind { .. })));
    assert!(matches!(Pages::new(&with_logo(&large.0)), Err(PageError::LogoSize { .. })));
    assert!(matches!(Pages::new(&with_logo(&missing)), Err(PageError::Read { .. })));
    let room = tidegate_settings::Room { template: Some(bare.0.clone()), ..Default::default() };
    assert!(matches!(Pages::new(&room), Err(PageError::Missing { slot: "refresh", .. })));
}

#[test]
fn tokengens_pages_know_the_way_to_tokencheck() {
    let check_url = "https://check.example/search?q=a&tg=tick";
    let far = View { check_url: Some(check_url), ..view() };
    let page = html(&far);
    assert!(page.contains(" data-check=\"https://check.example/search?q=a&amp;tg=tick\""), "{page}");
    assert!(page.contains(";url=/search"), "before its turn it asks here: {page}");
    let near = html(&View { wait: Duration::from_secs(20), ..far });
    assert!(near.contains("content=\"20;url=https://check.example/search?q=a&amp;tg=tick\""), "{near}");
    assert_eq!(json(&far)["check_url"], check_url);
    assert_eq!(json(&view())["check_url"], serde_json::Value::Null);
}

proptest::proptest! {
    #[test]
    fn any_view_renders(
        target: String,
        ticket: Option<String>,
        wait: u64,
        waited: u64,
        place: u64,
        kind in 0..6usize,
        lang in 0..7usize,
    ) {
        let v = View {
            kind: Kind::ALL[kind],
            lang: Lang::ALL[lang],
            wait: Duration::from_millis(wait),
            waited: Duration::from_millis(waited),
            place,
            target: &target,
            ticket: ticket.as_deref(),
            ..view()
        };
        json(&v);
        proptest::prop_assert!(html(&v).ends_with("</html>"));
    }
}

#[test]
fn the_template_in_the_manual_works() {
    let manual = include_str!("../../../../../docs/waiting-page.md");
    let (_, rest) = manual.split_once("```html\n").unwrap();
    let (source, _) = rest.split_once("```").unwrap();
    let template = TempFile::new("manual.html", source.as_bytes());
    let room = tidegate_settings::Room { template: Some(template.0.clone()), ..Default::default() };
    let mut out = Vec::new();
    Pages::new(&room).unwrap().waiting(&view(), &mut out);
    assert!(String::from_utf8(out).unwrap().contains("<span data-tg=\"wait\">about <b>4</b> minutes</span>"));
}
