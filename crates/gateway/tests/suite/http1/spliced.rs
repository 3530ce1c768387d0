//! Content that the kernel moves: after what is before it, and only where nothing is between its pieces.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tidegate_gateway::http::http1::{Http1, Http1Body};
use tidegate_gateway::http::tunnel_io::Splice;
use tidegate_http::{RequestHead, ResponseHead};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

use super::harness::LIMITS;

const LENGTH: usize = 16 << 20;
const FIRST: &[u8] = b"first ";

/// `first `, then `x` without end until there are enough bytes.
struct Content {
    has_begun: bool,
    left: usize,
    has_known_length: bool,
}

impl Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.left -= FIRST.len();
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(FIRST)))));
        }
        assert!(!self.has_known_length, "it is moved");
        let n = self.left.min(100_000);
        self.left -= n;
        Poll::Ready((n > 0).then(|| Ok(Frame::data(Bytes::from(vec![b'x'; n])))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        if self.has_known_length { SizeHint::with_exact(self.left as u64) } else { SizeHint::default() }
    }
}

impl Splice for Content {
    fn poll_splice(&mut self, cx: &mut Context<'_>, to: &TcpStream) -> Poll<io::Result<u64>> {
        assert!(self.has_known_length, "there are sizes of chunks between the pieces");
        loop {
            ready!(to.poll_write_ready(cx))?;
            match to.try_write(&vec![b'x'; self.left.min(100_000)]) {
                Ok(n) => {
                    self.left -= n;
                    return Poll::Ready(Ok(n as u64));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn waits_for_socket(&self) -> bool {
        true
    }
}

fn splice(content: &mut Content) -> Option<&mut dyn Splice> {
    content.has_begun.then_some(content as _)
}

/// Answers `/known` with a body of known length, everything else with chunks.
async fn answer(head: RequestHead, _body: Http1Body) -> (ResponseHead, Content) {
    let has_known_length = head.path() == "/known";
    (ResponseHead::new(StatusCode::OK), Content { has_begun: false, left: LENGTH, has_known_length })
}

async fn connection() -> (TcpStream, JoinHandle<io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let visitor = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    let (connection, _) = Http1::new(socket, LIMITS, |_| {});
    (visitor, tokio::task::spawn_local(async { connection.serve_spliced(answer, splice).await.map(drop) }))
}

async fn read_head(visitor: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(visitor.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn known_content_is_moved_and_chunks_are_not() {
    LocalSet::new()
        .run_until(async {
            let (mut visitor, _) = connection().await;
            for _ in 0..2 {
                visitor.write_all(b"GET /known HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
                let head = read_head(&mut visitor).await;
                assert!(head.contains(&format!("content-length: {LENGTH}\r\n")), "{head}");
                let mut body = vec![0; LENGTH];
                visitor.read_exact(&mut body).await.unwrap();
                let (first, rest) = body.split_at(FIRST.len());
                assert!(first == FIRST && rest.iter().all(|&b| b == b'x'));
            }
            visitor.write_all(b"GET /chunks HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
            let head = read_head(&mut visitor).await;
            assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
            let mut body = Vec::new();
            visitor.read_to_end(&mut body).await.unwrap();
            assert!(body.starts_with(b"6\r\nfirst \r\n186a0\r\nxx") && body.ends_with(b"\r\n0\r\n\r\n"));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_visitor_that_does_not_read_is_left_in_time() {
    LocalSet::new()
        .run_until(async {
            let (mut visitor, connection) = connection().await;
            visitor.write_all(b"GET /known HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            let start = Instant::now();
            let error = connection.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(start.elapsed().as_secs(), LIMITS.body_timeout.as_secs());
        })
        .await;
}
