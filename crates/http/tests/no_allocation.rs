//! The steady state of keep-alive GETs allocates nothing: heads are parsed, edited, written and dropped.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use http::StatusCode;
use tidegate_http::{
    Asked, BodyDecoder, BodyEncoder, Framing, HeadLimits, Piece, RequestParser, ResponseHead, ResponseLimits,
    ResponseParser, name, write_request, write_response,
};

struct Counting;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const REQUEST: &[u8] = b"GET /shop/item?id=42 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: Mozilla/5.0 (X11)\r\n\
    Accept: text/html\r\nAccept-Encoding: gzip\r\nCookie: a=1; b=2\r\nConnection: keep-alive\r\nX-More: 1\r\n\r\n";
const RESPONSE: &[u8] =
    b"HTTP/1.1 200 Very Good\r\nContent-Type: text/html\r\nSet-Cookie: a=1\r\nServer: x\r\n\
    Content-Length: 5\r\nX-Cache: hit\r\n\r\nhello";

const LIMITS: HeadLimits = HeadLimits { bytes: 32 << 10, fields: 100, target: 8 << 10, body: 0 };

/// A request on its way in and out, and its response back. In three pieces every other time.
fn exchange(i: usize, to_origin: &mut Vec<u8>, to_visitor: &mut Vec<u8>) {
    let mut parser = RequestParser::new();
    if i % 2 == 1 {
        assert!(parser.parse(&REQUEST[..10], &LIMITS).unwrap().is_none());
        assert!(parser.parse(&REQUEST[..100], &LIMITS).unwrap().is_none());
    }
    let (mut head, facts) = parser.parse(REQUEST, &LIMITS).unwrap().expect("complete");
    assert!(facts.keep_alive && facts.len == REQUEST.len());
    head.set_target("/shop/item?id=43");
    head.fields.remove(name::CONNECTION);
    head.fields.set(name::COOKIE, b"b=2");
    head.fields.append(name::X_FORWARDED_FOR, b"192.0.2.1");
    head.fields.append("x-internal".into(), b"yes");
    head.fields.retain(|name, _, _| !name.eq_ignore_ascii_case(b"x-more"));
    to_origin.clear();
    write_request(to_origin, &head, facts.framing, b"");
    assert!(to_origin.starts_with(b"GET /shop/item?id=43 HTTP/1.1\r\nHost: shop.example\r\n"));

    let limits = ResponseLimits::default();
    let (mut answer, facts) =
        ResponseParser::new().parse(RESPONSE, Asked::default(), &limits).unwrap().expect("complete");
    answer.fields.set(name::SET_COOKIE, b"c=3");
    answer.fields.remove(name::SERVER);
    to_visitor.clear();
    write_response(to_visitor, &answer, facts.framing, b"date: now\r\n");
    let mut decoder = BodyDecoder::response(facts.framing);
    let mut encoder = BodyEncoder::new(Framing::Fixed(5));
    let content = &RESPONSE[facts.len..];
    let (consumed, Piece::Data(range)) = decoder.decode(content) else { panic!("content") };
    encoder.write(&content[range], to_visitor).unwrap();
    encoder.finish(None, to_visitor).unwrap();
    assert!(consumed == 5 && decoder.is_done());

    let mut own = ResponseHead::new(StatusCode::SERVICE_UNAVAILABLE);
    own.fields.append(name::RETRY_AFTER, b"5");
    write_response(to_visitor, &own, Framing::Fixed(0), b"");
}

#[test]
fn ten_thousand_exchanges_allocate_nothing() {
    let (mut to_origin, mut to_visitor) = (Vec::new(), Vec::new());
    for i in 0..10 {
        exchange(i, &mut to_origin, &mut to_visitor);
    }
    let before = ALLOCATIONS.get();
    for i in 0..10_000 {
        exchange(i, &mut to_origin, &mut to_visitor);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    drop(Box::new(to_visitor.len()));
    assert_eq!(ALLOCATIONS.get() - before, 1, "the counter counts");
}
