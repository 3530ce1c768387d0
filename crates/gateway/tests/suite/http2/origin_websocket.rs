//! WebSocket at an origin that is spoken to by HTTP/2 (RFC 8441): what it is asked, what passes, how it ends.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use bytes::Bytes;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderValue, Method, Response};
use tidegate_core::measure::Event;
use tidegate_core::policies::Action;
use tidegate_gateway::http::tunnel_io::{VisitorStream, VisitorUpgrade};
use tidegate_gateway::upstream::balance::Replicas;
use tidegate_gateway::upstream::dispatch::{Dispatcher, SendContext};
use tidegate_settings::OriginProtocol;

use super::frames::{DATA, END_HEADERS, HEADERS, PING, PREFACE, Raw, SETTINGS, block, frame};
use super::harness::{read, run, until};
use super::origin::{HTTP2, Incoming, Origin, one_by_http_1, say};
use super::websocket::{asks, client, hear};
use crate::upstream_support;
use crate::whole::harness::{Gate, PATIENCE, connect, read_head};
use crate::whole::policies::{publish, refuse};

/// The key and its answer of RFC 6455 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// An origin that announces that it takes extended CONNECT. Counts the requests that went as [`serve`] wants.
fn willing() -> (Origin, Arc<AtomicU32>) {
    willing_with(h2::server::Builder::new())
}

fn willing_with(mut builder: h2::server::Builder) -> (Origin, Arc<AtomicU32>) {
    builder.enable_connect_protocol();
    let done = Arc::<AtomicU32>::default();
    let counter = done.clone();
    let origin = Origin::answering_with(builder, move |incoming| {
        let counter = counter.clone();
        async move {
            serve(incoming).await;
            counter.fetch_add(1, SeqCst);
        }
    });
    (origin, done)
}

/// Refuses at `/refused`, ends first at `/first`, breaks off at `/broken`, says nothing at `/silent`, and
/// else returns every byte.
async fn serve((request, mut respond): Incoming) {
    if request.method() != Method::CONNECT {
        return say((request, respond), "served").await;
    }
    let (parts, mut receive) = request.into_parts();
    assert_eq!(parts.extensions.get::<Protocol>().unwrap().as_str(), "websocket");
    assert_eq!(parts.uri.scheme_str(), Some("http"));
    assert_eq!(parts.uri.authority().unwrap(), "shop.example");
    for absent in ["host", "connection", "upgrade", "sec-websocket-key", "content-length"] {
        assert!(!parts.headers.contains_key(absent), "{absent}");
    }
    assert_eq!(parts.headers["sec-websocket-version"], "13");
    assert_eq!(parts.headers["sec-websocket-protocol"], "chat");
    let path = parts.uri.path_and_query().unwrap().as_str();
    let mut head = Response::new(());
    if path == "/refused" {
        *head.status_mut() = http::StatusCode::FORBIDDEN;
        let mut send = respond.send_response(head, false).unwrap();
        send.send_data(Bytes::from_static(b"not you"), true).unwrap();
        assert!(hear_out(&mut receive).await.unwrap().is_empty(), "the request is ended as well");
        return;
    }
    head.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static("chat"));
    let mut send = respond.send_response(head, false).unwrap();
    match path {
        "/first" => {
            send.send_data(Bytes::from_static(b"last words"), true).unwrap();
            let answer = hear_out(&mut receive).await.unwrap();
            assert_eq!(answer, b"heard");
        }
        "/broken" => {
            assert_eq!(hear(&mut receive, 5).await, b"break");
            send.send_reset(Reason::INTERNAL_ERROR);
        }
        "/silent" => {
            let reason = poll_fn(|cx| send.poll_reset(cx)).await.unwrap();
            assert_eq!(reason, Reason::CANCEL);
        }
        path => {
            assert_eq!(path, "/chat?room=1");
            while let Some(data) = receive.data().await {
                let data = match data {
                    Ok(data) => data,
                    Err(error) => return assert_eq!(error.reason(), Some(Reason::CANCEL)),
                };
                receive.flow_control().release_capacity(data.len()).unwrap();
                send_all(&mut send, data).await;
            }
            send.send_data(Bytes::from_static(b"bye"), true).unwrap();
        }
    }
}

/// Sends within the other side's window.
async fn send_all(send: &mut SendStream<Bytes>, mut data: Bytes) {
    while !data.is_empty() {
        send.reserve_capacity(data.len());
        let room = poll_fn(|cx| send.poll_capacity(cx)).await.unwrap().unwrap();
        send.send_data(data.split_to(room.min(data.len())), false).unwrap();
    }
}

/// Everything until the end of the stream.
async fn hear_out(receive: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = receive.data().await {
        let data = data?;
        let _ = receive.flow_control().release_capacity(data.len());
        all.extend_from_slice(&data);
    }
    Ok(all)
}

/// A visitor of HTTP/1.1 that asks for a WebSocket, and the head of its answer.
fn ask(gate: &Gate, path: &str) -> (TcpStream, String) {
    let mut visitor = connect(gate.http);
    let fields = "Connection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n";
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: shop.example\r\n{fields}Sec-WebSocket-Key: {KEY}\r\n\
         Sec-WebSocket-Protocol: chat\r\n\r\n"
    );
    visitor.write_all(head.as_bytes()).unwrap();
    let head = read_head(&mut visitor).unwrap();
    (visitor, head)
}

fn open(gate: &Gate, path: &str) -> TcpStream {
    let (visitor, head) = ask(gate, path);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for line in ["connection: upgrade", "upgrade: websocket", "sec-websocket-protocol: chat", ACCEPT] {
        assert_eq!(head.lines().filter(|other| *other == line).count(), 1, "{line} in {head}");
    }
    visitor
}

fn read_out(visitor: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    visitor.read_to_end(&mut all).unwrap();
    all
}

fn open_tunnels(gate: &Gate) -> u64 {
    gate.server().shared().upstream(|stats| &stats.tunnels_open)
}

#[test]
fn a_visitor_of_http_1_is_joined_to_a_stream() {
    let (origin, done) = willing();
    let gate = origin.gate(HTTP2);
    let mut visitor = open(&gate, "/chat?room=1");
    for word in [&b"one"[..], b"two"] {
        visitor.write_all(word).unwrap();
        let mut back = [0; 3];
        visitor.read_exact(&mut back).unwrap();
        assert_eq!(back, word);
        assert!(one_by_http_1(&gate, "GET").contains("served"), "beside the tunnel");
    }
    assert_eq!((open_tunnels(&gate), gate.count(Event::Upgrades)), (1, 1));
    // Large enough that windows shut in between, whichever side is read later.
    let large: Vec<u8> = (0..1 << 20).map(|n: u32| (n / 7) as u8).collect();
    let mut writer = visitor.try_clone().unwrap();
    let sent = std::thread::spawn({
        let large = large.clone();
        move || {
            writer.write_all(&large).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        }
    });
    let back = read_out(&mut visitor);
    sent.join().unwrap();
    let (echoed, rest) = back.split_at(large.len());
    assert!(echoed == large && rest == b"bye", "after the visitor's end: {rest:?}");
    run(until(|| open_tunnels(&gate) == 0 && done.load(SeqCst) == 3));
    assert_eq!(origin.connections(), 1);
}

#[test]
fn the_origin_may_end_first() {
    let (origin, done) = willing();
    let gate = origin.gate(HTTP2);
    let mut visitor = open(&gate, "/first");
    assert_eq!(read_out(&mut visitor), b"last words");
    assert_eq!(open_tunnels(&gate), 1, "the other direction is open");
    visitor.write_all(b"heard").unwrap();
    visitor.shutdown(Shutdown::Write).unwrap();
    run(until(|| open_tunnels(&gate) == 0 && done.load(SeqCst) == 1));
}

#[test]
fn a_visitor_of_http_2_is_joined_to_a_stream() {
    let (origin, done) = willing();
    let gate = origin.gate(HTTP2);
    run(async {
        let mut client = client(&gate).await;
        let (response, mut send) = client.begin(asks("/chat?room=1", "websocket"), false).await;
        let (parts, mut receive) = response.await.unwrap().into_parts();
        assert_eq!(
            (parts.status.as_u16(), &parts.headers["sec-websocket-protocol"]),
            (200, &"chat".parse().unwrap())
        );
        for absent in ["upgrade", "connection", "sec-websocket-accept"] {
            assert!(!parts.headers.contains_key(absent), "{absent}");
        }
        send.send_data(Bytes::from_static(b"one"), false).unwrap();
        assert_eq!(hear(&mut receive, 3).await, b"one");
        let large = Bytes::from(vec![5; 1 << 20]);
        let up = async {
            send_all(&mut send, large.clone()).await;
            send.send_data(Bytes::new(), true).unwrap();
        };
        let (back, ()) = tokio::join!(hear_out(&mut receive), up);
        let back = back.unwrap();
        assert!(back[..large.len()] == large && &back[large.len()..] == b"bye");
        // The origin's refusal and its end pass as well.
        let refused = client.begin(asks("/refused", "websocket"), false).await.0.await.unwrap();
        let refused = read(refused).await.unwrap();
        assert_eq!((refused.status.as_u16(), refused.text()), (403, "not you"));
        let (response, mut send) = client.begin(asks("/first", "websocket"), false).await;
        let mut receive = response.await.unwrap().into_body();
        assert_eq!(hear_out(&mut receive).await.unwrap(), b"last words");
        send.send_data(Bytes::from_static(b"heard"), true).unwrap();
        until(|| open_tunnels(&gate) == 0 && done.load(SeqCst) == 3).await;
    });
    assert_eq!((origin.connections(), gate.count(Event::Upgrades)), (1, 2));
}

#[test]
fn a_refusal_is_an_ordinary_response() {
    let (origin, done) = willing();
    let gate = origin.gate(HTTP2);
    let (mut visitor, head) = ask(&gate, "/refused");
    assert!(head.starts_with("HTTP/1.1 403 ") && !head.contains("sec-websocket-accept"), "{head}");
    // The body's length is not known beforehand: it comes in chunks.
    let mut body = Vec::new();
    while !body.ends_with(b"0\r\n\r\n") {
        let mut byte = [0];
        visitor.read_exact(&mut byte).unwrap();
        body.extend(byte);
    }
    assert_eq!(body, b"7\r\nnot you\r\n0\r\n\r\n");
    // Its connection goes on, and so does the origin's.
    visitor.write_all(b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n").unwrap();
    assert!(String::from_utf8(read_out(&mut visitor)).unwrap().contains("served"));
    run(until(|| done.load(SeqCst) == 2));
    assert_eq!((origin.connections(), gate.count(Event::Upgrades)), (1, 0));
}

#[test]
fn a_tunnel_ends_with_either_side_and_by_order() {
    let (origin, done) = willing();
    let gate = origin.gate(HTTP2);
    let mut broken = open(&gate, "/broken");
    broken.write_all(b"break").unwrap();
    assert_eq!(broken.read(&mut [0]).unwrap_or(0), 0);
    let leaving = open(&gate, "/silent");
    socket2::SockRef::from(&leaving).set_linger(Some(Duration::ZERO)).unwrap();
    drop(leaving);
    run(until(|| open_tunnels(&gate) == 0 && done.load(SeqCst) == 2));
    let mut visitor = open(&gate, "/silent");
    publish(&gate, vec![refuse(Action::Stop)]);
    assert_eq!(visitor.read(&mut [0]).unwrap_or(0), 0);
    publish(&gate, Vec::new());
    run(until(|| open_tunnels(&gate) == 0 && done.load(SeqCst) == 3));
    let gate = origin.gate(&format!("{HTTP2}read_timeout = \"50ms\"\n"));
    let mut visitor = open(&gate, "/silent");
    assert_eq!(visitor.read(&mut [0]).unwrap_or(0), 0, "nothing has flowed for too long");
    run(until(|| open_tunnels(&gate) == 0 && done.load(SeqCst) == 4));
}

#[test]
fn an_origin_that_does_not_take_it_is_not_asked() {
    let origin = Origin::answering(|incoming| say(incoming, "served"));
    let gate = origin.gate(HTTP2);
    for _ in 0..2 {
        let (mut visitor, head) = ask(&gate, "/chat");
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        let reason = b"The service does not speak WebSocket by HTTP/2 (RFC 8441).";
        let mut body = [0; 58];
        visitor.read_exact(&mut body).unwrap();
        assert_eq!(&body, reason);
        // The second time the origin's settings are known from the answer to this.
        assert!(one_by_http_1(&gate, "GET").contains("served"));
    }
    run(async {
        let mut client = client(&gate).await;
        let refused = client.begin(asks("/chat", "websocket"), false).await.0.await.unwrap();
        let refused = read(refused).await.unwrap();
        assert!(refused.status == 502 && refused.text().contains("RFC 8441"), "{refused:?}");
    });
    assert_eq!((origin.came(), origin.connections()), (2, 1));
    assert_eq!((gate.count(Event::OriginBadResponse), gate.count(Event::Upgrades)), (3, 0));
}

/// A dispatcher's request for a WebSocket: the status or the error, and the visitor's end of its socket.
async fn send(d: &Dispatcher) -> (Result<u16, String>, tokio::net::TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let visitor = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (ours, _) = listener.accept().await.unwrap();
    let stream = VisitorStream { io: Box::new(ours), received: Bytes::from_static(b"early") };
    let upgrade: VisitorUpgrade = Box::pin(std::future::ready(Some(stream)));
    let ctx = SendContext { upgrade: Some(upgrade), ..SendContext::default() };
    let mut request = upstream_support::get();
    *request.uri_mut() = "/chat?room=1".parse().unwrap();
    let fields = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-key", KEY),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "chat"),
    ];
    for (name, value) in fields {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let sent = upstream_support::send_with(d, request, ctx).await;
    (sent.map(|response| response.status().as_u16()).map_err(|error| error.to_string()), visitor)
}

/// One failure would eject a replica.
fn strict(origin: SocketAddr) -> tidegate_settings::Origin {
    let mut settings = upstream_support::settings_for(&[origin]);
    settings.protocol = OriginProtocol::Http2;
    settings.eject.failures = 1;
    settings
}

#[test]
fn an_origin_that_does_not_take_it_stays_in_use() {
    let origin = Origin::answering(|incoming| say(incoming, "served"));
    upstream_support::worker(async {
        let settings = strict(origin.address);
        let replicas = Replicas::new(&settings);
        let d = Dispatcher::new(replicas.clone(), &settings);
        let (error, _) = send(&d).await;
        assert_eq!(error.unwrap_err(), "the origin does not speak WebSocket by HTTP/2 (RFC 8441)");
        assert_eq!((replicas.usable(), replicas.list()[0].in_flight()), ((1, 1), 0));
        let stats = d.stats();
        assert_eq!((stats.bad_response.load(Relaxed), stats.retries.load(Relaxed)), (1, 0));
        assert_eq!(upstream_support::fetch(&d, upstream_support::get()).await.unwrap().0, 200);
    });
}

#[test]
fn the_stream_and_the_slot_are_held_until_the_tunnel_is_over() {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(1);
    let (origin, done) = willing_with(builder);
    upstream_support::worker(async {
        let settings = strict(origin.address);
        let replicas = Replicas::new(&settings);
        let d = Dispatcher::new(replicas.clone(), &settings);
        let (status, mut visitor) = send(&d).await;
        assert_eq!(status, Ok(101));
        assert_eq!(upstream_support::read_n(&mut visitor, 5).await, b"early");
        assert_eq!((replicas.list()[0].in_flight(), d.stats().tunnels_open.load(Relaxed)), (1, 1));
        // The only stream of the first connection is taken.
        assert_eq!(upstream_support::fetch(&d, upstream_support::get()).await.unwrap().0, 200);
        assert_eq!(origin.connections(), 2);
        d.close_tunnels();
        assert_eq!(tokio::io::AsyncReadExt::read(&mut visitor, &mut [0]).await.unwrap_or(0), 0);
        until(|| d.stats().tunnels_open.load(Relaxed) == 0 && replicas.list()[0].in_flight() == 0).await;
        until(|| done.load(SeqCst) == 2).await;
    });
    assert_eq!(origin.came(), 2);
}

/// An origin by hand, which gets each connection after its preface.
fn by_hand(serve: impl Fn(Raw) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (serve, mut stream) = (serve.clone(), stream.unwrap());
            std::thread::spawn(move || {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.read_exact(&mut [0; PREFACE.len()]).unwrap();
                serve(Raw(stream));
            });
        }
    });
    address
}

#[test]
fn the_first_settings_are_waited_for() {
    let address = by_hand(|mut raw| {
        // The gate asks whether they have come. They take their time.
        let ping = raw.wait_for(PING).unwrap();
        raw.send(&frame(SETTINGS, 0, 0, &[0, 8, 0, 0, 0, 1]));
        raw.send(&frame(PING, 1, 0, &ping.payload));
        raw.wait_for(HEADERS).unwrap();
        let head = [(":status", "200"), ("sec-websocket-protocol", "chat")];
        raw.send(&frame(HEADERS, END_HEADERS, 1, &block(&head)));
        // The visitor's end. The origin leaves as well.
        raw.wait_for(DATA).unwrap();
    });
    let gate = Gate::before(address, HTTP2, |_| Vec::new());
    open(&gate, "/chat");
    // An origin that never sends them is one to which there is no connection.
    let address = by_hand(|mut raw| while raw.next().is_some() {});
    let gate = Gate::before(address, &format!("{HTTP2}connect_timeout = \"50ms\"\n"), |_| Vec::new());
    let (_, head) = ask(&gate, "/chat");
    assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
    // So is one that leaves instead.
    let left = Arc::<AtomicU32>::default();
    let address = by_hand({
        let left = left.clone();
        move |mut raw| {
            raw.wait_for(PING).unwrap();
            left.fetch_add(1, SeqCst);
        }
    });
    let gate = Gate::before(address, HTTP2, |_| Vec::new());
    let (_, head) = ask(&gate, "/chat");
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert_eq!(left.load(SeqCst), 2, "nothing was sent: once more");
}

#[test]
fn other_protocols_are_not_asked_for() {
    let (origin, _) = willing();
    let gate = origin.gate(HTTP2);
    let fields = "Connection: upgrade, close\r\nUpgrade: echo\r\n";
    let answer = crate::whole::harness::ask(
        gate.http,
        &format!("GET / HTTP/1.1\r\nHost: shop.example\r\n{fields}\r\n"),
    );
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("served"), "{answer}");
}
