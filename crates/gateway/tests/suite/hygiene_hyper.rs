//! The behaviour of hyper's client that hygiene relies on.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt;
use hyper::body::Frame;
use hyper::client::conn::http1;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tidegate_gateway::http::hygiene::{BadResponse, prepare_response, settle_framing};
use tidegate_http::ResponseHead;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};

/// A pipe with hyper's I/O traits.
struct Pipe(DuplexStream);

impl hyper::rt::Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut bytes = vec![0; buf.remaining().min(4096)];
        let mut into = tokio::io::ReadBuf::new(&mut bytes);
        std::task::ready!(Pin::new(&mut self.0).poll_read(cx, &mut into))?;
        buf.put_slice(into.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A body of one frame whose length is not known before.
struct Once(Option<Bytes>);

impl hyper::body::Body for Once {
    type Data = Bytes;
    type Error = Infallible;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|b| Ok(Frame::data(b))))
    }
}

/// Sends `request` to an origin that answers with `answer` whatever it gets; also returns what it got.
async fn exchange(
    request: Request<Once>,
    answer: &'static str,
) -> (Result<(http::response::Parts, Bytes), hyper::Error>, String) {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let (mut sender, connection) = http1::handshake(Pipe(near)).await.unwrap();
    tokio::spawn(connection);
    let origin = tokio::spawn(async move {
        let mut got = Vec::new();
        let mut byte = [0; 4096];
        // The request is complete when a chunked body or a head without one is.
        while !got.ends_with(b"\r\n\r\n") || got.ends_with(b"chunked\r\n\r\n") {
            match far.read(&mut byte).await.unwrap() {
                0 => break,
                n => got.extend_from_slice(&byte[..n]),
            }
        }
        far.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(got).unwrap()
    });
    let result = async {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        Ok((parts, body.collect().await?.to_bytes()))
    };
    (result.await, origin.await.unwrap())
}

fn get() -> Request<Once> {
    Request::builder().uri("/").header("host", "a").body(Once(None)).unwrap()
}

#[tokio::test]
async fn hyper_reads_chunks_despite_a_length_and_the_length_is_removed() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n";
    let (mut parts, body) = exchange(get(), answer).await.0.unwrap();
    assert_eq!(&body[..], b"0123456789");
    settle_framing(parts.status, &mut parts.headers).unwrap();
    let mut head = ResponseHead::from_parts(&parts);
    prepare_response(&mut head, &Method::GET, "", false).unwrap();
    assert!(head.fields.is_empty());
}

#[tokio::test]
async fn invalid_statuses_fail_in_hyper_or_in_hygiene() {
    for line in
        ["HTTP/1.1 099 x", "HTTP/1.1 20 x", "HTTP/1.1 abc x", "HTTP/1.1 2000 x", "HTTP/1.1 200 a\x01b"]
    {
        let answer: &'static str = format!("{line}\r\nContent-Length: 0\r\n\r\n").leak();
        assert!(exchange(get(), answer).await.0.is_err(), "{line:?}");
    }
    let (parts, _) = exchange(get(), "HTTP/1.1 700 x\r\nContent-Length: 0\r\n\r\n").await.0.unwrap();
    let mut head = ResponseHead::from_parts(&parts);
    assert_eq!(prepare_response(&mut head, &Method::GET, "", false), Err(BadResponse::Status));
}

#[tokio::test]
async fn a_get_with_a_chunked_body_keeps_it_only_if_the_coding_is_named() {
    let answer = "HTTP/1.1 204 No Content\r\n\r\n";
    let mut request = get();
    *request.body_mut() = Once(Some(Bytes::from_static(b"body")));
    assert!(
        !exchange(request, answer).await.1.contains("body"),
        "hyper sends it: the coding need not be kept"
    );
    let mut request = get();
    *request.body_mut() = Once(Some(Bytes::from_static(b"body")));
    request.headers_mut().insert("transfer-encoding", "chunked".parse().unwrap());
    assert!(exchange(request, answer).await.1.ends_with("4\r\nbody\r\n0\r\n\r\n"));
}
