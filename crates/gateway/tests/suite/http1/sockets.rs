//! Real sockets, for what depends on the kernel.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use tidegate_gateway::http::http1::{Http1, Http1Body};
use tidegate_http::{RequestHead, ResponseHead};

use super::harness::{LIMITS, statuses};

/// Serves one connection and returns what the visitor got.
fn over_tcp(visit: impl FnOnce(TcpStream) -> String + Send + 'static) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let visitor = std::thread::spawn(move || visit(TcpStream::connect(address).unwrap()));
        let (socket, _) = listener.accept().await.unwrap();
        let (connection, _link) = Http1::new(socket, LIMITS, |_| {});
        let service = |_: RequestHead, _: Http1Body| async {
            (ResponseHead::new(StatusCode::OK), Full::new(Bytes::from_static(b"early")))
        };
        let _ = connection.serve(service).await;
        visitor.join().unwrap()
    })
}

fn send_all_then_read(mut socket: TcpStream, head: &str, junk: usize) -> String {
    socket.write_all(head.as_bytes()).unwrap();
    // Unread bytes would turn a plain close into a reset, which destroys the response.
    let _ = socket.write_all(&vec![b'x'; junk]);
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut raw = String::new();
    socket.read_to_string(&mut raw).expect("no reset");
    raw
}

#[test]
fn a_refusal_reaches_a_visitor_who_continues_to_send() {
    let raw = over_tcp(|socket| send_all_then_read(socket, "GET / HTTP/1.1\nHost: a\r\n\r\n", 700 << 10));
    assert_eq!(statuses(&raw), [400]);
}

#[test]
fn the_response_to_an_unread_upload_reaches_the_visitor() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 700000\r\n\r\n";
    let raw = over_tcp(move |socket| send_all_then_read(socket, head, 700_000));
    assert_eq!(statuses(&raw), [200]);
}
