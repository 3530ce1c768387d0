//! WebSocket over HTTP/2 (RFC 8441): a stream becomes a tunnel, its connection does not.

use std::io::{Read, Write};

use bytes::Bytes;
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::{Method, Request};
use tidegate_core::measure::Event;
use tidegate_core::policies::Action;

use super::harness::{Client, PLAIN, read, run, until};
use crate::whole::harness::{Gate, Scripted, reply};
use crate::whole::policies::{publish, refuse};

/// Switches protocols and returns every byte; without `Upgrade` it answers as usual.
fn echo() -> Scripted {
    Scripted::start(|head, _, stream| {
        let head = head.to_ascii_lowercase();
        if !head.contains("upgrade: websocket") || head.starts_with("get /plain") {
            return reply(stream, "200 OK", "", &head);
        }
        let key = head.split("sec-websocket-key: ").nth(1).expect("a key").split("\r\n").next().unwrap();
        assert_eq!(key.len(), 24, "{head}");
        assert!(head.contains("connection: upgrade") && head.contains("sec-websocket-version: 13"), "{head}");
        let fields = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n";
        stream
            .write_all(
                format!("HTTP/1.1 101 Switching Protocols\r\n{fields}Sec-WebSocket-Protocol: chat\r\n\r\nhi")
                    .as_bytes(),
            )
            .unwrap();
        let mut bytes = [0; 1024];
        while let Ok(n @ 1..) = stream.read(&mut bytes) {
            let _ = stream.write_all(&bytes[..n]);
        }
    })
}

pub fn asks(path: &str, protocol: &'static str) -> Request<()> {
    Request::builder()
        .method(Method::CONNECT)
        .uri(format!("http://shop.example{path}"))
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "chat")
        .extension(Protocol::from_static(protocol))
        .body(())
        .unwrap()
}

pub async fn client(gate: &Gate) -> Client {
    let client = Client::connect(gate.http).await;
    // Its settings come with the gate's first bytes.
    let send = client.send.clone();
    until(|| send.is_extended_connect_protocol_enabled()).await;
    client
}

/// The next bytes of a tunnel.
pub async fn hear(receive: &mut RecvStream, n: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < n {
        let data = receive.data().await.expect("the tunnel has ended").unwrap();
        receive.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    all
}

async fn open(client: &mut Client) -> (SendStream<Bytes>, RecvStream) {
    let (response, send) = client.begin(asks("/chat", "websocket"), false).await;
    let (parts, mut receive) = response.await.unwrap().into_parts();
    assert_eq!(parts.status, 200);
    assert_eq!(parts.headers["sec-websocket-protocol"], "chat");
    for absent in ["upgrade", "connection", "sec-websocket-accept"] {
        assert!(!parts.headers.contains_key(absent), "{absent}");
    }
    assert_eq!(hear(&mut receive, 2).await, b"hi", "sent with the head");
    (send, receive)
}

#[test]
fn a_stream_becomes_a_tunnel_beside_other_requests() {
    let origin = echo();
    let gate = Gate::before(origin.address, PLAIN, |_| Vec::new());
    run(async {
        let mut client = client(&gate).await;
        let (mut send, mut receive) = open(&mut client).await;
        for word in [&b"one"[..], b"two"] {
            send.send_data(Bytes::copy_from_slice(word), false).unwrap();
            assert_eq!(hear(&mut receive, 3).await, word);
            assert_eq!(client.get("/plain").await.status, 200);
        }
        // Large enough that windows shut in between.
        let large = Bytes::from(vec![5; 1 << 20]);
        let up = async {
            let mut rest = large.clone();
            while !rest.is_empty() {
                send.reserve_capacity(rest.len());
                let room = std::future::poll_fn(|cx| send.poll_capacity(cx)).await.unwrap().unwrap();
                send.send_data(rest.split_to(room.min(rest.len())), false).unwrap();
            }
        };
        let (back, ()) = tokio::join!(hear(&mut receive, large.len()), up);
        assert!(back == large);
        // An end is passed on, and comes back.
        send.send_data(Bytes::new(), true).unwrap();
        while let Some(data) = receive.data().await {
            assert!(data.unwrap().is_empty());
        }
    });
    assert_eq!(gate.count(Event::Upgrades), 1);
}

#[test]
fn only_an_origin_that_switches_opens_a_tunnel() {
    let origin = echo();
    let gate = Gate::before(origin.address, PLAIN, |_| Vec::new());
    run(async {
        let mut client = client(&gate).await;
        let refused = client.begin(asks("/plain", "websocket"), false).await.0.await.unwrap();
        assert_eq!(refused.status(), 502, "a success would say that there is a tunnel");
        let other = client.begin(asks("/chat", "connect-udp"), false).await.0.await.unwrap();
        assert_eq!(other.status(), 501);
        let plain = Request::builder().method(Method::CONNECT).uri("shop.example:80").body(()).unwrap();
        let plain = client.begin(plain, false).await.0.await.unwrap();
        assert_eq!(read(plain).await.unwrap().status, 405);
    });
    assert_eq!(gate.count(Event::Upgrades), 0);
}

#[test]
fn a_policy_ends_a_tunnel_and_not_its_connection() {
    let origin = echo();
    let gate = Gate::before(origin.address, PLAIN, |_| Vec::new());
    run(async {
        let mut client = client(&gate).await;
        let (_send, mut receive) = open(&mut client).await;
        publish(&gate, vec![refuse(Action::Stop)]);
        assert!(receive.data().await.is_none_or(|data| data.is_err()));
        publish(&gate, Vec::new());
        assert_eq!(client.get("/plain").await.status, 200);
    });
}
