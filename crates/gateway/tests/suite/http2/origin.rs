//! HTTP/2 to the origin: gRPC from end to end, what is repeated, what an origin may do wrong.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use super::frames::{END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, Raw, SETTINGS, block, frame};
use super::harness::{Client, get, read, request, run, until};
use crate::whole::harness::{Gate, ask};

pub const HTTP2: &str = "[origin]\nreplicas = [\"ORIGIN\"]\nprotocol = \"h2\"\n";

/// An origin of HTTP/2. Counts its connections, and the requests that came.
pub struct Origin {
    pub address: SocketAddr,
    connections: Arc<AtomicU32>,
    came: Arc<AtomicU32>,
}

pub type Incoming = (Request<RecvStream>, SendResponse<Bytes>);

impl Origin {
    /// Handles its n-th connection with `serve`, which gets the count of requests.
    fn serving<F, Fut>(serve: F) -> Self
    where
        F: Fn(u32, Connection<TcpStream, Bytes>, Arc<AtomicU32>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self::with(h2::server::Builder::new(), serve)
    }

    fn with<F, Fut>(builder: h2::server::Builder, serve: F) -> Self
    where
        F: Fn(u32, Connection<TcpStream, Bytes>, Arc<AtomicU32>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, came) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
        let this = Self { address, connections: connections.clone(), came: came.clone() };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                let serve = Arc::new(serve);
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    stream.set_nodelay(true).unwrap();
                    let n = connections.fetch_add(1, Ordering::SeqCst);
                    let (builder, serve, came) = (builder.clone(), serve.clone(), came.clone());
                    tokio::spawn(async move {
                        if let Ok(connection) = builder.handshake(stream).await {
                            serve(n, connection, came).await;
                        }
                    });
                }
            });
        });
        this
    }

    /// Answers every request with `answer`, in a task of its own.
    pub fn answering<F, Fut>(answer: F) -> Self
    where
        F: Fn(Incoming) -> Fut + Send + Sync + Clone + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self::answering_with(h2::server::Builder::new(), answer)
    }

    /// As [`Origin::answering`], with these settings.
    pub fn answering_with<F, Fut>(builder: h2::server::Builder, answer: F) -> Self
    where
        F: Fn(Incoming) -> Fut + Send + Sync + Clone + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self::with(builder, move |_, mut connection, came| {
            let answer = answer.clone();
            async move {
                while let Some(Ok(incoming)) = connection.accept().await {
                    came.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(answer(incoming));
                }
            }
        })
    }

    pub fn came(&self) -> u32 {
        self.came.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn gate(&self, toml: &str) -> Gate {
        Gate::before(self.address, toml, |_| Vec::new())
    }
}

/// Answers with this body.
pub async fn say((_request, mut respond): Incoming, body: &'static str) {
    let mut send = respond.send_response(Response::new(()), false).unwrap();
    let _ = send.send_data(Bytes::from_static(body.as_bytes()), true);
}

pub fn one_by_http_1(gate: &Gate, method: &str) -> String {
    ask(
        gate.http,
        &format!(
            "{method} / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        ),
    )
}

/// A call of gRPC as it is on the wire: messages both ways, at the same time, and a status at the end.
async fn grpc((request, mut respond): Incoming) {
    let (parts, mut body) = request.into_parts();
    assert_eq!(parts.method, Method::POST);
    assert_eq!(parts.uri.authority().unwrap(), "shop.example");
    assert!(parts.headers["te"] == "trailers" && !parts.headers.contains_key("host"), "{parts:?}");
    assert!(parts.headers["via"] == "2.0 tidegate" && parts.headers["x-forwarded-for"] == "127.0.0.1");
    let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    if parts.uri.path() == "/shop.Stock/Missing" {
        // An answer that is only trailers.
        let mut head = head;
        head.headers_mut().insert("grpc-status", HeaderValue::from_static("12"));
        respond.send_response(head, true).unwrap();
        return;
    }
    let mut send = respond.send_response(head, false).unwrap();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        let _ = body.flow_control().release_capacity(data.len());
        if !data.is_empty() {
            send.send_data(data, false).unwrap();
        }
    }
    assert_eq!(body.trailers().await.unwrap().unwrap()["x-last"], "yes");
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers.insert("grpc-message", HeaderValue::from_static("fine"));
    send.send_trailers(trailers).unwrap();
}

#[test]
fn grpc_passes_in_both_directions_at_once() {
    let origin = Origin::answering(grpc);
    let gate = origin.gate(HTTP2);
    run(async {
        let mut client = Client::connect(gate.http).await;
        let call = |path: &str| {
            let mut asked = request(Method::POST, path);
            asked.headers_mut().insert("te", HeaderValue::from_static("trailers"));
            asked.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
            asked
        };
        let (response, mut send) = client.begin(call("/shop.Stock/Watch"), false).await;
        let (parts, mut body) = response.await.unwrap().into_parts();
        assert_eq!(parts.headers["content-type"], "application/grpc");
        // Each message is answered before the next is sent.
        for message in [&b"\0\0\0\0\x03one"[..], b"\0\0\0\0\x03two"] {
            send.send_data(Bytes::from_static(message), false).unwrap();
            let mut back = Vec::new();
            while back.len() < message.len() {
                back.extend_from_slice(&body.data().await.unwrap().unwrap());
            }
            assert_eq!(back, message);
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-last", HeaderValue::from_static("yes"));
        send.send_trailers(trailers).unwrap();
        while let Some(data) = body.data().await {
            assert!(data.unwrap().is_empty());
        }
        let trailers = body.trailers().await.unwrap().expect("trailers");
        assert!(trailers["grpc-status"] == "0" && trailers["grpc-message"] == "fine", "{trailers:?}");
        let missing = client.start(call("/shop.Stock/Missing")).await.await.unwrap();
        let missing = read(missing).await.unwrap();
        assert_eq!(missing.headers["grpc-status"], "12");
    });
    assert_eq!(origin.connections(), 1);
}

#[test]
fn many_requests_share_few_connections() {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(5);
    let origin = Origin::with(builder, |_, mut connection, came| async move {
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            came.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let _request = request;
                let mut send = respond.send_response(Response::new(()), false).unwrap();
                send.send_data(Bytes::from_static(b"served"), true).unwrap();
            });
        }
    });
    let gate = origin.gate(HTTP2);
    run(async {
        let mut client = Client::connect(gate.http).await;
        let mut all = Vec::new();
        for _ in 0..50 {
            all.push(client.start(get("/")).await);
        }
        for response in all {
            assert_eq!(read(response.await.unwrap()).await.unwrap().text(), "served");
        }
    });
    assert_eq!(origin.came(), 50);
    assert!((1..=2).contains(&origin.connections()), "origin.http2_connections is 2");
    // HTTP/1.1 goes the same way.
    assert!(one_by_http_1(&gate, "GET").contains("served"));
}

#[test]
fn large_bodies_pass_both_ways() {
    let origin = Origin::answering(|(request, mut respond)| async move {
        let mut body = request.into_body();
        let mut send = respond.send_response(Response::new(()), false).unwrap();
        while let Some(data) = body.data().await {
            let mut data = data.unwrap();
            let _ = body.flow_control().release_capacity(data.len());
            while !data.is_empty() {
                send.reserve_capacity(data.len());
                let room = std::future::poll_fn(|cx| send.poll_capacity(cx)).await.unwrap().unwrap();
                send.send_data(data.split_to(room.min(data.len())), false).unwrap();
            }
        }
        send.send_data(Bytes::new(), true).unwrap();
    });
    let gate = origin.gate(HTTP2);
    let body = vec![b'x'; 3 << 20];
    let head =
        format!("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut stream = crate::whole::harness::connect(gate.http);
    let mut writer = stream.try_clone().unwrap();
    let sent = std::thread::spawn(move || {
        std::io::Write::write_all(&mut writer, &[head.as_bytes(), &body].concat()).unwrap();
    });
    let mut answer = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut answer).unwrap();
    sent.join().unwrap();
    assert!(answer.iter().filter(|&&byte| byte == b'x').count() >= 3 << 20);
}

#[test]
fn what_the_origin_has_not_touched_is_repeated_whatever_its_method() {
    // Refuses the first request of the first connection, and every request of the path `/no`.
    let origin = Origin::serving(|n, mut connection, came| async move {
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let first = came.fetch_add(1, Ordering::SeqCst) == 0;
            if n == 0 && first || request.uri().path() == "/no" {
                respond.send_reset(Reason::REFUSED_STREAM);
            } else {
                say((request, respond), "served").await;
            }
        }
    });
    let gate = origin.gate(HTTP2);
    assert!(one_by_http_1(&gate, "POST").contains("served"));
    assert_eq!(origin.came(), 2);
    let refused =
        ask(gate.http, "POST /no HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 502"), "{refused}");
    assert_eq!(origin.came(), 4, "once more, and no further");
}

/// An origin by hand, whose connections serve one request each and leave when the second comes.
fn leaving() -> (SocketAddr, Arc<AtomicU32>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = Arc::<AtomicU32>::default();
    let counter = served.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut raw = Raw(stream.unwrap());
            let counter = counter.clone();
            std::thread::spawn(move || {
                std::io::Read::read_exact(&mut raw.0, &mut [0; PREFACE.len()]).unwrap();
                raw.send(&[frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, 1, 0, &[])].concat());
                raw.wait_for(HEADERS);
                counter.fetch_add(1, Ordering::SeqCst);
                raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[(":status", "200")])));
                raw.wait_for(HEADERS);
                // The last stream that it has served, and no error.
                raw.send(&frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]));
                while raw.next().is_some() {}
            });
        }
    });
    (address, served)
}

#[test]
fn an_origin_that_leaves_loses_no_request() {
    let (address, served) = leaving();
    let gate = Gate::before(address, HTTP2, |_| Vec::new());
    for n in 0..20 {
        let answer = one_by_http_1(&gate, "POST");
        assert!(answer.starts_with("HTTP/1.1 200"), "{n}: {answer}");
    }
    assert_eq!(served.load(Ordering::SeqCst), 20);
}

#[test]
fn a_broken_stream_is_repeated_only_if_that_does_no_harm() {
    let origin = Origin::answering(|(request, mut respond)| async move {
        drop(request);
        respond.send_reset(Reason::INTERNAL_ERROR);
    });
    let gate = origin.gate(HTTP2);
    assert!(one_by_http_1(&gate, "POST").starts_with("HTTP/1.1 502"));
    assert_eq!(origin.came(), 1);
    assert!(one_by_http_1(&gate, "GET").starts_with("HTTP/1.1 502"));
    assert_eq!(origin.came(), 3);
    // Not in the middle of an answer: the visitor's is broken off.
    let read_half = Arc::new(tokio::sync::Notify::new());
    let told = read_half.clone();
    let origin = Origin::answering(move |(_request, mut respond)| {
        let told = told.clone();
        async move {
            let mut send = respond.send_response(Response::new(()), false).unwrap();
            send.send_data(Bytes::from_static(b"half"), false).unwrap();
            told.notified().await;
            send.send_reset(Reason::INTERNAL_ERROR);
        }
    });
    let gate = origin.gate(HTTP2);
    run(async {
        let mut client = Client::connect(gate.http).await;
        let mut response = client.start(get("/")).await.await.unwrap();
        assert_eq!(response.body_mut().data().await.unwrap().unwrap(), "half");
        read_half.notify_one();
        assert_eq!(read(response).await.unwrap_err().reason(), Some(Reason::INTERNAL_ERROR));
    });
    assert_eq!(origin.came(), 1);
}

#[test]
fn a_silent_origin_has_its_limits() {
    let origin = Origin::answering(|(request, mut respond)| async move {
        if request.uri().path() == "/half" {
            let mut send = respond.send_response(Response::new(()), false).unwrap();
            send.send_data(Bytes::from_static(b"half"), false).unwrap();
            std::future::pending::<()>().await;
        }
        std::future::pending::<()>().await;
    });
    let gate = origin.gate(&format!("{HTTP2}first_byte_timeout = \"50ms\"\nread_timeout = \"50ms\"\n"));
    run(async {
        let mut client = Client::connect(gate.http).await;
        assert_eq!(client.start(get("/")).await.await.unwrap().status(), 504);
        let half = client.start(get("/half")).await.await.unwrap();
        assert!(read(half).await.is_err());
    });
}

#[test]
fn a_visitor_who_leaves_takes_the_request_back_from_the_origin() {
    let gone = Arc::new(AtomicU32::new(0));
    let counter = gone.clone();
    let origin = Origin::answering(move |(_request, mut respond)| {
        let counter = counter.clone();
        async move {
            let reason = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
            assert_eq!(reason.unwrap(), Reason::CANCEL);
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let gate = origin.gate(&format!("{HTTP2}abort_on_close = true\n"));
    run(async {
        let mut client = Client::connect(gate.http).await;
        let (response, mut send) = client.begin(get("/"), true).await;
        until(|| origin.came() == 1).await;
        send.send_reset(Reason::CANCEL);
        drop(response);
        until(|| gone.load(Ordering::SeqCst) == 1).await;
    });
    assert_eq!(origin.connections(), 1);
}

#[test]
fn health_checks_speak_the_origins_protocol() {
    let origin = Origin::answering(|incoming| say(incoming, "fine"));
    let gate =
        origin.gate(&format!("{HTTP2}[origin.health]\npath = \"/healthz\"\nevery = \"100ms\"\nfall = 1\n"));
    run(until(|| origin.came() >= 3));
    assert!(one_by_http_1(&gate, "GET").contains("fine"), "it is up");
}
