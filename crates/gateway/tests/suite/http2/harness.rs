//! A client of the `h2` crate, and origins of HTTP/1.1 in front of which a gate stands.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::whole::harness::PATIENCE;

/// Everybody passes.
pub const PLAIN: &str = "[origin]\nreplicas = [\"ORIGIN\"]\n";

/// Runs a client, whose connections go on while the test waits for something else; a test that hangs fails.
pub fn run<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("the test hangs") })
}

pub struct Client {
    pub send: SendRequest<Bytes>,
    /// How its connection ends.
    pub connection: JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    pub async fn connect(to: SocketAddr) -> Self {
        Self::connect_with(to, &h2::client::Builder::new()).await
    }

    pub async fn connect_with(to: SocketAddr, builder: &h2::client::Builder) -> Self {
        let stream = TcpStream::connect(to).await.unwrap();
        let (send, connection) = builder.handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        Self { send: send.ready().await.unwrap(), connection }
    }

    /// A request without a body.
    pub async fn start(&mut self, request: Request<()>) -> ResponseFuture {
        self.begin(request, true).await.0
    }

    pub async fn begin(&mut self, request: Request<()>, is_all: bool) -> (ResponseFuture, SendStream<Bytes>) {
        let mut send = self.send.clone().ready().await.unwrap();
        send.send_request(request, is_all).unwrap()
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        let response = self.start(get(path)).await;
        read(response.await.unwrap()).await.unwrap()
    }
}

pub fn get(path: &str) -> Request<()> {
    request(Method::GET, path)
}

pub fn request(method: Method, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("http://shop.example{path}")).body(()).unwrap()
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Reads an answer to its end.
pub async fn read(response: Response<RecvStream>) -> Result<Answer, h2::Error> {
    let (parts, mut body) = response.into_parts();
    let mut all = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    let trailers = body.trailers().await?;
    Ok(Answer { status: parts.status, headers: parts.headers, body: all.freeze(), trailers })
}

/// Why the request behind `response` was reset.
pub async fn reset_of(response: ResponseFuture) -> Option<Reason> {
    match response.await {
        Ok(response) => read(response).await.map(|answer| panic!("{answer:?}")).err().unwrap().reason(),
        Err(error) => error.reason(),
    }
}

/// Waits until `condition` holds.
pub async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
