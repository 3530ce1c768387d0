//! Upgrades: both connections are joined, early bytes are kept, tunnels end in time.

use super::upstream_support;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use tidegate_gateway::http::http1::{Http1, Http1Body, Http1Limits};
use tidegate_gateway::http::socket::Socket;
use tidegate_gateway::http::tunnel_io::{VisitorStream, VisitorUpgrade};
use tidegate_gateway::http::visitor_body::VisitorBody;
use tidegate_gateway::upstream::balance::Replicas;
use tidegate_gateway::upstream::body::RequestBody;
use tidegate_gateway::upstream::dispatch::{Dispatcher, SendContext};
use tidegate_http::{HeadLimits, RequestHead, ResponseHead};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use upstream_support::*;

const ASK: &[u8] = b"GET /chat HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";

/// A bare gate: visitors' connections in front of the dispatcher.
async fn gate(d: Dispatcher) -> SocketAddr {
    const LIMIT: Duration = Duration::from_secs(60);
    let head = HeadLimits { bytes: 8192, fields: 100, target: 4096, body: 0 };
    let limits = Http1Limits {
        head,
        header_timeout: LIMIT,
        idle_timeout: LIMIT,
        body_timeout: LIMIT,
        min_body_rate: 0,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let d = d.clone();
            let (connection, link) = Http1::new(stream, limits, |_| {});
            let serve = move |head: RequestHead, body: Http1Body| {
                let (d, link) = (d.clone(), link.clone());
                async move {
                    let ctx = SendContext { upgrade: link.take_upgrade(), ..SendContext::default() };
                    let body = RequestBody::visitor(VisitorBody::Http1(body));
                    let (head, body) = match d.send(head, body, ctx).await {
                        Ok((head, body)) => (head, RequestBody::boxed_response(body)),
                        Err(_) => (ResponseHead::new(StatusCode::BAD_GATEWAY), RequestBody::empty()),
                    };
                    if head.status() == StatusCode::SWITCHING_PROTOCOLS {
                        link.pass_through();
                    }
                    (head, body)
                }
            };
            tokio::task::spawn_local(connection.serve(serve));
        }
    });
    address
}

trait BoxedResponse {
    fn boxed_response(body: tidegate_gateway::upstream::dispatch::UpstreamBody) -> RequestBody;
}

impl BoxedResponse for RequestBody {
    fn boxed_response(body: tidegate_gateway::upstream::dispatch::UpstreamBody) -> RequestBody {
        RequestBody::boxed(body.map_err(Into::into))
    }
}

/// A hyper origin that echoes after the upgrade.
async fn echo_origin() -> Origin {
    Origin::start(|_, stream| async move {
        let serve = service_fn(|mut req: Request<Incoming>| async move {
            assert_eq!(req.headers()["upgrade"], "echo");
            assert_eq!(req.headers()["connection"], "upgrade");
            let upgrade = hyper::upgrade::on(&mut req);
            tokio::task::spawn_local(async move {
                let upgraded = upgrade.await.unwrap();
                let parts = upgraded.downcast::<Socket>().unwrap();
                let mut stream = parts.io.0;
                stream.write_all(&parts.read_buf).await.unwrap();
                let (mut read, mut write) = stream.split();
                drop(tokio::io::copy(&mut read, &mut write).await);
                drop(write.shutdown().await);
            });
            let switch = Response::builder().status(101).header("upgrade", "echo");
            Ok::<_, Infallible>(switch.header("connection", "upgrade").body(Empty::<Bytes>::new()).unwrap())
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(Socket(stream), serve)
            .with_upgrades();
        drop(connection.await);
    })
    .await
}

async fn connect(address: SocketAddr, first: &[u8]) -> TcpStream {
    let mut visitor = TcpStream::connect(address).await.unwrap();
    visitor.write_all(first).await.unwrap();
    let head = read_head(&mut visitor).await.unwrap();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("\r\nupgrade: echo\r\n") && head.contains("\r\nconnection: upgrade\r\n"), "{head}");
    visitor
}

#[test]
fn bytes_pass_through_both_connections() {
    worker(async {
        let origin = echo_origin().await;
        let settings = settings_for(&[origin.address]);
        let replicas = Replicas::new(&settings);
        let d = Dispatcher::new(replicas.clone(), &settings);
        let address = gate(d.clone()).await;
        // Early bytes are sent in the same packet as the request.
        let mut visitor = connect(address, &[ASK, b"early "].concat()).await;
        visitor.write_all(b"late").await.unwrap();
        assert_eq!(read_n(&mut visitor, 10).await, b"early late");
        assert_eq!((replicas.list()[0].in_flight(), d.stats().tunnels_open.load(Relaxed)), (1, 1));

        let big = vec![7u8; 4 << 20];
        let (mut read, mut write) = visitor.split();
        let sending = async {
            write.write_all(&big).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let mut back = Vec::new();
        let (n, ()) = tokio::join!(read.read_to_end(&mut back), sending);
        assert_eq!(n.unwrap(), big.len());
        assert!(back == big);
        until(|| d.stats().tunnels_open.load(Relaxed) == 0).await;
        let bytes = (10 + big.len()) as u64;
        assert_eq!(d.stats().tunnel_bytes_up.load(Relaxed), bytes);
        assert_eq!(d.stats().tunnel_bytes_down.load(Relaxed), bytes);
        assert_eq!((replicas.list()[0].in_flight(), d.idle_connections()), (0, 0));
    });
}

#[test]
fn the_origins_early_bytes_arrive() {
    worker(async {
        let origin = Origin::start(|_, mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(&[SWITCH, b"hello"].concat()).await.unwrap();
            drop(stream.read_to_end(&mut Vec::new()).await);
        })
        .await;
        let address = gate(dispatcher(&[origin.address])).await;
        let mut visitor = connect(address, ASK).await;
        assert_eq!(read_n(&mut visitor, 5).await, b"hello");
    });
}

/// An origin that switches and then says nothing.
async fn silent_origin() -> Origin {
    Origin::start(|_, mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(SWITCH).await.unwrap();
        drop(stream.read_to_end(&mut Vec::new()).await);
    })
    .await
}

#[test]
fn idle_tunnels_end() {
    worker(async {
        let origin = silent_origin().await;
        let limit = Duration::from_millis(30);
        let d = with(tidegate_settings::Origin { read_timeout: limit, ..settings_for(&[origin.address]) });
        let mut visitor = connect(gate(d.clone()).await, ASK).await;
        assert_eq!(visitor.read(&mut [0]).await.unwrap_or(0), 0);
        until(|| d.stats().tunnels_open.load(Relaxed) == 0).await;
    });
}

#[test]
fn the_drain_deadline_ends_tunnels() {
    worker(async {
        let origin = silent_origin().await;
        let d = dispatcher(&[origin.address]);
        let address = gate(d.clone()).await;
        let mut visitor = connect(address, ASK).await;
        until(|| d.stats().tunnels_open.load(Relaxed) == 1).await;
        d.close_tunnels();
        assert_eq!(visitor.read(&mut [0]).await.unwrap_or(0), 0);
        // A tunnel opened after the deadline ends at once.
        let mut late = connect(address, ASK).await;
        assert_eq!(late.read(&mut [0]).await.unwrap_or(0), 0);
        until(|| d.stats().tunnels_open.load(Relaxed) == 0).await;
    });
}

#[test]
fn a_refused_upgrade_is_an_ordinary_response() {
    worker(async {
        let origin = Origin::answering(b"HTTP/1.1 426 No\r\ncontent-length: 2\r\n\r\nno").await;
        let d = dispatcher(&[origin.address]);
        let mut visitor = TcpStream::connect(gate(d.clone()).await).await.unwrap();
        visitor.write_all(ASK).await.unwrap();
        let head = read_head(&mut visitor).await.unwrap();
        assert!(head.starts_with("http/1.1 426 "), "{head}");
        assert_eq!(read_n(&mut visitor, 2).await, b"no");
        until(|| d.idle_connections() == 1).await;
    });
}

/// A visitor whose side of the tunnel is a plain socket.
async fn plain_visitor(d: &Dispatcher, received: &'static [u8]) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let visitor = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (ours, _) = listener.accept().await.unwrap();
    let stream = VisitorStream { io: Box::new(ours), received: Bytes::from_static(received) };
    let upgrade: VisitorUpgrade = Box::pin(std::future::ready(Some(stream)));
    let ctx = SendContext { upgrade: Some(upgrade), ..SendContext::default() };
    let mut req = get();
    req.headers_mut().insert("upgrade", http::HeaderValue::from_static("echo"));
    let response = send_with(d, req, ctx).await.unwrap();
    assert_eq!(response.status(), 101);
    visitor
}

#[test]
fn plain_sockets_are_joined_in_the_kernel() {
    worker(async {
        let origin = Origin::start(|_, mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(&[SWITCH, b"hello "].concat()).await.unwrap();
            let (mut read, mut write) = stream.split();
            drop(tokio::io::copy(&mut read, &mut write).await);
            drop(write.write_all(b" bye").await);
        })
        .await;
        let settings = settings_for(&[origin.address]);
        let replicas = Replicas::new(&settings);
        let d = Dispatcher::new(replicas.clone(), &settings);
        let mut visitor = plain_visitor(&d, b"early ").await;
        visitor.write_all(b"late").await.unwrap();
        assert_eq!(read_n(&mut visitor, 16).await, b"hello early late");
        let big = vec![7u8; 4 << 20];
        let (mut read, mut write) = visitor.split();
        let sending = async {
            write.write_all(&big).await.unwrap();
            // The other direction stays open.
            write.shutdown().await.unwrap();
        };
        let mut back = Vec::new();
        let (n, ()) = tokio::join!(read.read_to_end(&mut back), sending);
        assert_eq!(n.unwrap(), big.len() + 4);
        assert!(back.ends_with(b"\x07 bye"));
        until(|| d.stats().tunnels_open.load(Relaxed) == 0).await;
        assert_eq!(d.stats().tunnel_bytes_up.load(Relaxed), 10 + big.len() as u64);
        assert_eq!(d.stats().tunnel_bytes_down.load(Relaxed), 20 + big.len() as u64);
        assert_eq!((replicas.list()[0].in_flight(), d.idle_connections()), (0, 0));
    });
}

#[test]
fn plain_tunnels_end_in_time_by_order_and_with_their_sides() {
    worker(async {
        let origin = silent_origin().await;
        let limit = Duration::from_millis(30);
        let d = with(tidegate_settings::Origin { read_timeout: limit, ..settings_for(&[origin.address]) });
        let mut visitor = plain_visitor(&d, b"").await;
        assert_eq!(visitor.read(&mut [0]).await.unwrap_or(0), 0, "nothing has flowed for too long");

        let d = dispatcher(&[origin.address]);
        let visitor = plain_visitor(&d, b"").await;
        reset(visitor);
        until(|| d.stats().tunnels_open.load(Relaxed) == 0).await;

        let mut visitor = plain_visitor(&d, b"").await;
        d.close_tunnels();
        assert_eq!(visitor.read(&mut [0]).await.unwrap_or(0), 0);
        until(|| d.stats().tunnels_open.load(Relaxed) == 0).await;
    });
}

#[test]
fn an_origin_that_switches_before_the_end_of_the_request_is_refused() {
    worker(async {
        let origin = silent_origin().await;
        let d = dispatcher(&[origin.address]);
        let (_feed, body, _) = fed();
        let upgrade: VisitorUpgrade = Box::pin(std::future::ready(None));
        let ctx = SendContext { upgrade: Some(upgrade), ..SendContext::default() };
        let mut req = request(http::Method::POST, body);
        req.headers_mut().insert("upgrade", http::HeaderValue::from_static("echo"));
        let error = send_with(&d, req, ctx).await.unwrap_err().to_string();
        assert_eq!(error, "invalid response: 101 before the end of the request");
    });
}
