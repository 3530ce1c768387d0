//! Which answers are shared, and how many readers read one.

use std::pin::pin;
use std::task::{Context, Waker};

use bytes::Bytes;
use http::{StatusCode, Version};
use http_body::Body;
use std::future::Future;

use super::rules::sharing;
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const NOW: Timestamp = Timestamp::from_secs(100);

fn headers(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::new();
    lines.iter().for_each(|(name, value)| fields.append((*name).into(), value.as_bytes()));
    fields
}

fn head(method: &str, lines: &[(&str, &str)]) -> RequestHead {
    let mut head = RequestHead::new(method.parse().unwrap(), "/a", Version::HTTP_11);
    head.fields = headers(lines);
    head
}

#[test]
fn only_harmless_requests_may_share() {
    for (method, fields, wanted) in [
        ("GET", &[][..], true),
        ("HEAD", &[], true),
        ("GET", &[("cookie", "a=b"), ("if-none-match", "\"x\"")], true),
        ("POST", &[], false),
        ("OPTIONS", &[], false),
        ("GET", &[("authorization", "Basic x")], false),
        ("GET", &[("range", "bytes=0-1")], false),
        ("GET", &[("upgrade", "websocket")], false),
        ("GET", &[("user-agent", "x"), ("sec-fetch-dest", "document"), ("referer", "/"), ("via", "x")], true),
        ("GET", &[("x-original-url", "/admin")], false),
        ("GET", &[("x-api-key", "gold-key")], false),
        ("GET", &[("origin", "https://shop.example")], false),
    ] {
        assert_eq!(rules::may_share(&head(method, fields)), wanted, "{method} {fields:?}");
    }
    assert!(!has_cookies(&headers(&[])) && !has_cookies(&headers(&[("cookie", " ; ")])));
    assert!(has_cookies(&headers(&[("cookie", "a=b")])));
}

#[test]
fn answers_are_shared_by_status_and_headers() {
    const NOBODY: Sharing = Sharing::None { cookieless: true };
    const ALONE: Sharing = Sharing::None { cookieless: false };
    // status, fields, asked without cookies, asked with
    for (status, fields, without, with) in [
        (200, &[][..], Sharing::Cookieless, ALONE),
        (200, &[("cache-control", "public")], Sharing::All, Sharing::All),
        (200, &[("cache-control", "max-age=0, S-MaxAge=5")], Sharing::All, Sharing::All),
        (200, &[("cache-control", "no-cache, max-age=0")], Sharing::Cookieless, ALONE),
        (200, &[("cache-control", "public, no-store")], NOBODY, NOBODY),
        (200, &[("cache-control", "public"), ("cache-control", "Private")], NOBODY, NOBODY),
        (200, &[("cache-control", "private=\"x\"")], NOBODY, NOBODY),
        (200, &[("cache-control", "public"), ("set-cookie", "a=b")], NOBODY, NOBODY),
        (200, &[("cache-control", "public"), ("vary", "Accept, *")], NOBODY, NOBODY),
        (200, &[("cache-control", "public"), ("vary", "Accept")], Sharing::All, Sharing::All),
        (200, &[("cache-control", "public"), ("content-length", "4194305")], NOBODY, NOBODY),
        (200, &[("cache-control", "public"), ("content-type", "text/event-stream")], NOBODY, NOBODY),
        (206, &[("cache-control", "public")], NOBODY, NOBODY),
        (200, &[("cache-control", "public"), ("content-range", "bytes 0-1/2")], NOBODY, NOBODY),
        (304, &[("cache-control", "public")], NOBODY, NOBODY),
        (401, &[("cache-control", "public")], NOBODY, NOBODY),
        (429, &[], NOBODY, NOBODY),
        (302, &[], NOBODY, NOBODY),
        (302, &[("cache-control", "public")], Sharing::All, Sharing::All),
        (404, &[], Sharing::Cookieless, ALONE),
        (500, &[], Sharing::Cookieless, ALONE),
    ] {
        let headers = headers(fields);
        assert_eq!(sharing(status, &headers, false), without, "{status} {fields:?}");
        assert_eq!(sharing(status, &headers, true), with, "{status} {fields:?} with cookies");
    }
    let mut illegible = headers(&[("cache-control", "public")]);
    illegible.append(name::CACHE_CONTROL, b"\xff");
    assert_eq!(sharing(200, &illegible, false), NOBODY);
    let names = rules::vary(&self::headers(&[("vary", "Accept , "), ("content-encoding", "gzip")])).unwrap();
    assert_eq!(names, ["accept", "accept-encoding"]);
    assert_eq!((rules::kept(200, 5 * SECOND), rules::kept(503, 5 * SECOND)), (5 * SECOND, SECOND));
}

#[test]
fn proxy_fields_about_the_connection_are_part_of_the_key() {
    // headers of two requests, whether their keys are equal
    for (one, other, wanted) in [
        (&[("x-forwarded-for", "192.0.2.1")][..], &[("x-forwarded-for", "192.0.2.2")][..], true),
        (&[("x-forwarded-host", "a")], &[("x-forwarded-host", "b")], false),
        (&[("x-forwarded-host", "a")], &[("x-forwarded-host", "a"), ("x-forwarded-host", "b")], false),
        (
            &[("x-forwarded-port", "1"), ("x-forwarded-a", "2")],
            &[("x-forwarded-a", "2"), ("x-forwarded-port", "1")],
            true,
        ),
        (
            &[("forwarded", "for=192.0.2.1;proto=http")],
            &[("forwarded", "For=\"[2001:db8::1]:80\";proto=http")],
            true,
        ),
        (&[("forwarded", "for=_a")], &[("forwarded", "for=unknown")], true),
        (&[("forwarded", "for=a;host=a")], &[("forwarded", "for=a;host=b")], false),
        (&[("forwarded", "for=a, for=b;host=a")], &[("forwarded", "for=a, for=b")], false),
        // Readers that know no quotes take these for hosts.
        (&[("forwarded", "for=\"a;host=a\"")], &[("forwarded", "for=\"a;host=b\"")], false),
        (&[("forwarded", "for=\"a;host=a")], &[("forwarded", "for=\"a;host=b")], false),
    ] {
        let [one_said, other_said] = [one, other].map(|fields| rules::forwarded(&headers(fields)));
        assert_eq!(one_said == other_said, wanted, "{one:?} {other:?}");
    }
}

fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut cx = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut cx) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

/// The next chunk's length; `None`: nothing yet.
fn next(body: &mut SharedBody) -> Option<Result<usize, ()>> {
    let mut cx = Context::from_waker(Waker::noop());
    match std::pin::Pin::new(body).poll_frame(&mut cx) {
        std::task::Poll::Pending => None,
        std::task::Poll::Ready(None) => Some(Ok(0)),
        std::task::Poll::Ready(Some(Ok(frame))) => Some(Ok(frame.into_data().unwrap().len())),
        std::task::Poll::Ready(Some(Err(_))) => Some(Err(())),
    }
}

fn a_key() -> Key {
    Key {
        throttle: None,
        is_head: false,
        host: "shop.example".into(),
        target: "/".into(),
        forwarded: [].into(),
        cookies: SharedCookies::AsAllowed,
    }
}

fn lead(multicast: &Coalescer, headers: &Fields) -> Reader {
    let seeking =
        Seeking { headers, has_cookies: has_cookies(headers), standing: RequesterStanding::default() };
    match multicast.join(&a_key(), &seeking, SECOND, NOW) {
        Joined::Lead(reader) => reader,
        _ => panic!("expected to lead"),
    }
}

fn joins(multicast: &Coalescer, headers: &Fields, at: Timestamp) -> char {
    let seeking =
        Seeking { headers, has_cookies: has_cookies(headers), standing: RequesterStanding::default() };
    match multicast.join(&a_key(), &seeking, SECOND, at) {
        Joined::Lead(_) => 'l',
        Joined::Follow(_) => 'f',
        Joined::Alone => 'a',
    }
}

fn land(reader: &Reader, fields: &[(&str, &str)]) -> Sharing {
    reader.flight.land(StatusCode::OK, headers(fields), flight::Author::Origin, false)
}

#[test]
fn one_request_leads_in_a_period_and_the_others_follow() {
    let (multicast, none) = (Coalescer::default(), Fields::new());
    let first = lead(&multicast, &none);
    assert_eq!(joins(&multicast, &none, NOW + 5 * SECOND), 'f', "its head has not come yet");
    assert!(now(first.landed()).is_none());
    land(&first, &[("cache-control", "public")]);
    assert!(now(first.landed()).unwrap().is_some());
    assert_eq!(joins(&multicast, &none, NOW + SECOND / 2), 'f');
    let with = headers(&[("cookie", "a=b")]);
    assert_eq!(joins(&multicast, &with, NOW + SECOND / 2), 'f', "the answer is public");
    assert_eq!(joins(&multicast, &none, NOW + SECOND), 'l');
    multicast.sweep(NOW + SECOND);
    assert_eq!(multicast.size().0, 1);
}

#[test]
fn another_value_of_a_header_in_vary_selects_another_answer() {
    let multicast = Coalescer::default();
    let (german, french) = (headers(&[("accept-language", "de")]), headers(&[("accept-language", "fr")]));
    let first = lead(&multicast, &german);
    assert_eq!(joins(&multicast, &french, NOW), 'f', "the head has not come yet");
    land(&first, &[("vary", "Accept-Language")]);
    let seeking = Seeking { headers: &french, has_cookies: false, standing: RequesterStanding::default() };
    assert_eq!(first.flight.suits(&seeking), flight::Match::Other);
    assert_eq!(joins(&multicast, &french, NOW), 'l');
    assert_eq!(joins(&multicast, &german, NOW), 'f');
}

#[test]
fn after_a_private_answer_requests_are_not_shared_for_the_period() {
    let (multicast, none) = (Coalescer::default(), Fields::new());
    let first = lead(&multicast, &none);
    let sharing = land(&first, &[("set-cookie", "a=b")]);
    multicast.keep_apart(&a_key(), sharing, NOW + SECOND);
    assert_eq!(joins(&multicast, &none, NOW + SECOND / 2), 'a');
    assert_eq!(joins(&multicast, &none, NOW + SECOND), 'l');
}

#[test]
fn answers_to_requests_with_cookies_are_not_shared_without_leave() {
    let multicast = Coalescer::default();
    let (none, with) = (Fields::new(), headers(&[("cookie", "a=b")]));
    let first = lead(&multicast, &none);
    let sharing = land(&first, &[]);
    multicast.keep_apart(&a_key(), sharing, NOW + SECOND);
    assert_eq!((joins(&multicast, &none, NOW), joins(&multicast, &with, NOW)), ('f', 'a'));
    let multicast = Coalescer::default();
    let first = lead(&multicast, &with);
    let sharing = land(&first, &[]);
    multicast.keep_apart(&a_key(), sharing, NOW + SECOND);
    assert_eq!((joins(&multicast, &with, NOW), joins(&multicast, &none, NOW)), ('a', 'l'));
}

#[test]
fn a_refusal_by_the_gate_is_for_its_class_and_lane() {
    let (multicast, none) = (Coalescer::default(), Fields::new());
    let first = lead(&multicast, &none);
    let author = flight::Author::Refusal(tidegate_core::measure::Event::QueueFull);
    first.flight.land(StatusCode::SERVICE_UNAVAILABLE, Fields::new(), author, true);
    let suits = |standing| first.flight.suits(&Seeking { headers: &none, has_cookies: true, standing });
    assert_eq!(suits(RequesterStanding::default()), flight::Match::Suits);
    assert_eq!(
        suits(RequesterStanding { class: ClassId(1), ..RequesterStanding::default() }),
        flight::Match::Other
    );
    assert_eq!(
        suits(RequesterStanding { lane: Lane::Admitted, ..RequesterStanding::default() }),
        flight::Match::Other
    );
}

#[test]
fn a_large_answer_becomes_a_window_behind_its_fastest_reader() {
    let (multicast, none) = (Coalescer::default(), Fields::new());
    let lead = lead(&multicast, &none);
    let flight = lead.flight.clone();
    let mut slow = flight.read().unwrap().into_body();
    let mut fast = lead.into_body();
    flight.land(StatusCode::OK, Fields::new(), flight::Author::Origin, false);
    let chunk = Bytes::from(vec![0; 256 << 10]);
    for _ in 0..MAX_ANSWER / chunk.len() {
        assert_eq!(now(flight.push(chunk.clone())), Some(true));
    }
    assert_eq!(next(&mut slow), Some(Ok(chunk.len())));
    assert!(flight.read().is_some() && multicast.size().1 == MAX_ANSWER + a_key().text());
    // One chunk more makes it a window. The origin waits for the fastest reader, which is not cut off.
    assert_eq!(now(flight.push(chunk.clone())), None);
    assert!(flight.read().is_none());
    for _ in 0..=MAX_ANSWER / chunk.len() {
        assert_eq!(next(&mut fast), Some(Ok(chunk.len())));
    }
    assert_eq!(next(&mut slow), Some(Err(())));
    assert!(multicast.size().1 <= 1 << 20);
    drop((fast, slow));
    assert_eq!(now(flight.push(chunk)), Some(false), "no reader is left");
    drop(flight);
    multicast.sweep(NOW + 2 * SECOND);
    assert_eq!(multicast.size(), (0, 0));
}

#[test]
fn a_reader_that_keeps_up_reads_an_answer_of_any_length() {
    let (multicast, none) = (Coalescer::default(), Fields::new());
    let lead = lead(&multicast, &none);
    let flight = lead.flight.clone();
    flight.land(StatusCode::OK, Fields::new(), flight::Author::Origin, false);
    let mut body = lead.into_body();
    let chunk = Bytes::from(vec![0; 200_000]);
    for _ in 0..100 {
        assert_eq!(now(flight.push(chunk.clone())), Some(true));
        assert_eq!(next(&mut body), Some(Ok(chunk.len())));
        assert_eq!(next(&mut body), None);
    }
    flight.end(flight::End::Complete);
    assert_eq!(next(&mut body), Some(Ok(0)));
    assert!(body.is_end_stream());
    assert!(multicast.size().1 <= (1 << 20) + chunk.len());
}

#[test]
fn an_answer_closed_to_newcomers_without_readers_is_unwanted() {
    let (multicast, none) = (Coalescer::default(), Fields::new());
    let first = lead(&multicast, &none);
    land(&first, &[]);
    let flight = first.flight.clone();
    let unwanted = || flight.poll_unwanted(&mut Context::from_waker(Waker::noop())).is_ready();
    drop(first);
    assert!(!unwanted(), "newcomers within the period have it");
    let reader = flight.read().unwrap();
    multicast.sweep(NOW + SECOND);
    assert!(!unwanted() && flight.read().is_none(), "the present reader reads on; nobody joins");
    drop(reader);
    assert!(unwanted());
}

const CHUNK: usize = 30_000;

/// Pushes so many chunks; whether another is wanted at once.
fn push(flight: &Flight, chunks: usize) -> Option<bool> {
    (0..chunks).map(|_| now(flight.push(Bytes::from(vec![0; CHUNK])))).last().flatten()
}

#[test]
fn chunks_that_nobody_will_read_are_freed() {
    let (multicast, none) = (Coalescer::default(), Fields::new());
    let held = || (multicast.size().1 - a_key().text()) / CHUNK;
    let first = lead(&multicast, &none);
    land(&first, &[("cache-control", "private")]);
    assert_eq!((push(&first.flight, 3), held()), (Some(true), 3));
    let flight = first.flight.clone();
    drop(first);
    assert_eq!(held(), 0, "closed to newcomers");
    assert_eq!(push(&flight, 1), Some(false));

    let multicast = Coalescer::default();
    let held = || (multicast.size().1 - a_key().text()) / CHUNK;
    let first = lead(&multicast, &none);
    land(&first, &[]);
    let flight = first.flight.clone();
    let (mut fast, mut slow) = (first.into_body(), flight.read().unwrap().into_body());
    push(&flight, 3);
    flight.end(flight::End::Complete);
    (0..3).for_each(|_| assert_eq!(next(&mut fast), Some(Ok(CHUNK))));
    assert_eq!(next(&mut slow), Some(Ok(CHUNK)));
    assert_eq!(held(), 3, "newcomers may join");
    flight.close();
    assert_eq!((held(), next(&mut slow), held()), (2, Some(Ok(CHUNK)), 1));
    assert_eq!((next(&mut slow), held(), next(&mut slow)), (Some(Ok(CHUNK)), 0, Some(Ok(0))));
}

#[test]
fn windows_are_small_while_memory_is_full() {
    let (multicast, none) = (Coalescer::default(), Fields::new());
    let first = lead(&multicast, &none);
    land(&first, &[]);
    multicast.kept.fetch_add(MAX_KEPT, Relaxed);
    assert_eq!((push(&first.flight, 1), push(&first.flight, 1)), (Some(true), None));
    let (flight, mut slow) = (first.flight.clone(), first.into_body());
    assert!(flight.read().is_none());
    assert_eq!(next(&mut slow), Some(Ok(CHUNK)));
    assert_eq!(multicast.size().1, MAX_KEPT + CHUNK + a_key().text());
}

#[test]
fn heads_and_selections_are_bounded() {
    let multicast = Coalescer::default();
    let asked = |n: usize| headers(&[("accept-encoding", &format!("gzip;q=0.{n}"))]);
    let mut size = 0;
    let readers: Vec<Reader> = (0..MAX_SELECTIONS)
        .map(|n| {
            let reader = lead(&multicast, &asked(n));
            land(&reader, &[("vary", "accept-encoding")]);
            assert!(multicast.size().1 > size + 2 * "accept-encoding".len());
            size = multicast.size().1;
            reader
        })
        .collect();
    assert_eq!(joins(&multicast, &asked(MAX_SELECTIONS), NOW), 'a');
    assert_eq!(joins(&multicast, &asked(0), NOW), 'f');
    drop(readers);
    multicast.sweep(NOW + SECOND);
    assert_eq!(multicast.size(), (0, 0));
    multicast.kept.fetch_add(MAX_HELD, Relaxed);
    assert_eq!(joins(&multicast, &asked(0), NOW), 'a');
}

#[test]
fn the_table_is_bounded() {
    let (multicast, none) = (Coalescer::default(), Fields::new());
    let seeking = Seeking { headers: &none, has_cookies: false, standing: RequesterStanding::default() };
    let key = |n: usize| Key { target: format!("/{n}").into(), ..a_key() };
    let mut leaders = Vec::new();
    for n in 0..MAX_URLS {
        let Joined::Lead(reader) = multicast.join(&key(n), &seeking, SECOND, NOW) else { panic!("{n}") };
        leaders.push(reader);
    }
    assert!(matches!(multicast.join(&key(MAX_URLS), &seeking, SECOND, NOW), Joined::Alone));
    assert!(matches!(multicast.join(&key(0), &seeking, SECOND, NOW), Joined::Follow(_)));
    leaders.iter().for_each(|reader| reader.flight.end(flight::End::Broken));
    multicast.sweep(NOW);
    assert_eq!(multicast.size(), (0, 0));
}
