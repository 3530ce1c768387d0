//! Floods: a visitor who makes the gate work for nothing loses its connection, and nobody else notices.

use tidegate_core::measure::Event;

use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, PING, PRIORITY, RST_STREAM, Raw,
    SETTINGS, WINDOW_UPDATE, block, frame, get,
};
use super::harness::PLAIN;
use crate::whole::harness::{Gate, Origin, ask, until};

const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// Sends what `next` makes, at most 100,000 times, until the gate ends the connection; the code of its
/// GOAWAY. Others are served meanwhile and afterwards.
fn flood(gate: &Gate, mut next: impl FnMut(u32) -> Vec<u8>) -> Option<u32> {
    let mut raw = Raw::connect(gate.http);
    let mut other = Raw::connect(gate.http);
    let mut sent = 0;
    // In pieces of some hundred frames, as a flood would.
    while sent < 100_000 {
        let piece: Vec<u8> = (sent..sent + 200).flat_map(&mut next).collect();
        sent += 200;
        if !raw.send(&piece) {
            break;
        }
        if sent == 400 {
            other.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &get("/")));
            assert!(other.wait_for(HEADERS).is_some(), "others are served");
        }
    }
    let code = raw.goaway();
    assert!(ask(gate.http, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").ends_with("served"));
    other.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &get("/")));
    assert!(other.wait_for(HEADERS).is_some(), "the other connection lives");
    code
}

/// The GOAWAY may be lost where the flood is still under way when the gate closes.
fn is_ended_for(code: Option<u32>, expected: u32) {
    assert!(code.is_none_or(|code| code == expected), "{code:?}");
}

fn gate(origin: &Origin) -> Gate {
    Gate::start(origin, PLAIN)
}

#[test]
fn rapid_reset() {
    let origin = Origin::start();
    let gate = gate(&origin);
    let code = flood(&gate, |n| {
        let stream = n * 2 + 1;
        let asked = frame(HEADERS, END_HEADERS | END_STREAM, stream, &get("/"));
        [asked, frame(RST_STREAM, 0, stream, &CANCEL)].concat()
    });
    is_ended_for(code, ENHANCE_YOUR_CALM);
    until(|| gate.count(Event::Http2Floods).to_string(), |floods| floods == "1");
    // What came to the stages is bounded, too.
    assert!(gate.count(Event::Requests) < 1000);
}

#[test]
fn resets_that_a_visitor_provokes() {
    let origin = Origin::start();
    let gate = gate(&origin);
    // A window of zero more is an error of the stream (RFC 9113 6.9).
    let code = flood(&gate, |n| {
        let stream = n * 2 + 1;
        let asked = frame(HEADERS, END_HEADERS, stream, &get("/"));
        [asked, frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
    });
    assert!(code.is_none_or(|code| code != 0), "{code:?}");
    until(
        || (gate.count(Event::Http2Floods) + gate.count(Event::RequestsBad)).to_string(),
        |ended| ended == "1",
    );
}

#[test]
fn frames_that_carry_nothing() {
    let origin = Origin::start();
    let gate = gate(&origin);
    let floods: [(&str, Vec<u8>); 6] = [
        ("ping", frame(PING, 0, 0, &[0; 8])),
        ("ping acknowledged", frame(PING, 1, 0, &[0; 8])),
        ("settings", frame(SETTINGS, 0, 0, &[])),
        ("priority", frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 0])),
        ("window", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("unknown", frame(0xfa, 0, 0, &[])),
    ];
    for (n, (name, one)) in (1_u64..).zip(floods) {
        println!("{name}");
        is_ended_for(flood(&gate, |_| one.clone()), ENHANCE_YOUR_CALM);
        until(|| gate.count(Event::Http2Floods).to_string(), |floods| floods == n.to_string());
    }
}

#[test]
fn data_without_data() {
    let origin = Origin::start();
    let gate = gate(&origin);
    let code = flood(&gate, |n| match n {
        0 => frame(HEADERS, END_HEADERS, 1, &get("/hold")),
        _ => frame(DATA, 0, 1, &[]),
    });
    is_ended_for(code, ENHANCE_YOUR_CALM);
    until(|| gate.count(Event::Http2Floods).to_string(), |floods| floods == "1");
}

#[test]
fn data_in_crumbs() {
    let origin = Origin::start();
    let gate = gate(&origin);
    // One byte a frame, to an origin that does not read: each frame takes more memory than its byte.
    let code = flood(&gate, |n| match n {
        0 => frame(HEADERS, END_HEADERS, 1, &get("/hold")),
        _ => frame(DATA, 0, 1, &[0]),
    });
    assert!(code.is_none_or(|code| code != 0), "{code:?}");
}

#[test]
fn continuation_without_end() {
    let origin = Origin::start();
    let gate = gate(&origin);
    for (n, payload) in (1_u64..).zip([block(&[("x", "y")]), Vec::new()]) {
        let code = flood(&gate, |n| match n {
            0 => frame(HEADERS, END_STREAM, 1, &get("/")),
            _ => frame(CONTINUATION, 0, 1, &payload),
        });
        is_ended_for(code, ENHANCE_YOUR_CALM);
        until(|| gate.count(Event::Http2Floods).to_string(), |floods| floods == n.to_string());
    }
}

#[test]
fn a_header_list_that_unpacks_to_more_than_is_allowed() {
    let origin = Origin::start();
    let gate = gate(&origin);
    let mut raw = Raw::connect(gate.http);
    // One field of 4000 bytes in the table (6.2.1), then a byte for each time it comes again (6.1).
    let mut bomb = get("/");
    bomb.push(0x40);
    bomb.extend(&block(&[("x-bomb", &"a".repeat(4000))])[1..]);
    bomb.extend([0x80 | 62; 10]);
    raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb));
    let answer = raw.wait_for(HEADERS).expect("431");
    // `:status` is a literal with an indexed name.
    assert!(String::from_utf8_lossy(&answer.payload).contains("431") || !answer.payload.contains(&0x88));
    bomb.extend([0x80 | 62; 4000]);
    raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &bomb));
    assert_eq!(raw.goaway(), Some(ENHANCE_YOUR_CALM));
    assert!(ask(gate.http, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").ends_with("served"));
    assert_eq!(gate.count(Event::Requests), 1);
}

#[test]
fn more_streams_at_once_than_are_allowed() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, &format!("{PLAIN}[http2]\nmax_streams = 10\n"));
    let mut raw = Raw::connect(gate.http);
    for n in 0..11 {
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, n * 2 + 1, &get("/hold")));
    }
    let refused = raw.wait_for(RST_STREAM).expect("a refusal");
    assert_eq!((refused.stream, &refused.payload[..]), (21, &[0, 0, 0, 7][..]), "REFUSED_STREAM");
    origin.release();
    for _ in 0..10 {
        assert!(raw.wait_for(HEADERS).is_some());
    }
}

#[test]
fn visitors_who_do_not_read() {
    let origin = crate::whole::harness::Scripted::start(|head, _, stream| {
        let body = if head.starts_with("GET /large") { "x".repeat(4 << 20) } else { String::from("served") };
        crate::whole::harness::reply(stream, "200 OK", "", &body);
    });
    let toml = format!("{PLAIN}[limits]\nbody_timeout = \"200ms\"\n");
    let gate = Gate::before(origin.address, &toml, |_| Vec::new());
    // Their windows are shut: each stream is reset.
    let mut shut = Raw::connect(gate.http);
    shut.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    for n in 0..20 {
        shut.send(&frame(HEADERS, END_HEADERS | END_STREAM, n * 2 + 1, &get("/large")));
    }
    for _ in 0..20 {
        assert_eq!(shut.wait_for(RST_STREAM).map(|frame| frame.payload), Some(CANCEL.to_vec()));
    }
    assert_eq!(gate.count(Event::BodyTimeout), 20);
    // Their windows are open, and nothing is read: the connection is closed.
    let mut open = Raw::connect(gate.http);
    let all = 0x7fff_ffff_u32.to_be_bytes();
    open.send(&frame(SETTINGS, 0, 0, &[&[0, 4][..], &all].concat()));
    open.send(&frame(WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes()));
    for n in 0..20 {
        open.send(&frame(HEADERS, END_HEADERS | END_STREAM, n * 2 + 1, &get("/large")));
    }
    until(|| gate.count(Event::BodyTimeout).to_string(), |timeouts| timeouts == "21");
    assert!(ask(gate.http, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").ends_with("served"));
}
