//! Origins that misbehave as each test needs, and short ways to send to them.
#![allow(dead_code)] // each test file uses its part

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use tidegate_gateway::upstream::balance::Replicas;
use tidegate_gateway::upstream::body::{BoxError, RequestBody};
use tidegate_gateway::upstream::dispatch::{DispatchError, Dispatcher, SendContext, UpstreamBody};
use tidegate_http::RequestHead;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

/// Runs a worker; a test that hangs fails.
pub fn worker<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs")
    })
}

/// Waits until `condition` holds.
pub async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// An origin that handles its n-th connection with `serve`.
pub struct Origin {
    pub address: SocketAddr,
    pub accepted: Rc<Cell<usize>>,
    task: tokio::task::JoinHandle<()>,
}

impl Origin {
    pub async fn start<F, Fut>(serve: F) -> Self
    where
        F: Fn(usize, TcpStream) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Rc::new(Cell::new(0));
        let count = accepted.clone();
        let task = tokio::task::spawn_local(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let n = count.replace(count.get() + 1);
                tokio::task::spawn_local(serve(n, stream));
            }
        });
        Self { address, accepted, task }
    }

    /// Answers every request head with these bytes, keeping the connection.
    pub async fn answering(response: &'static [u8]) -> Self {
        Self::start(move |_, mut stream| async move {
            while read_head(&mut stream).await.is_some() {
                stream.write_all(response).await.unwrap();
            }
        })
        .await
    }

    /// Answers one request head with these bytes and closes the connection.
    pub async fn answering_once(response: &'static [u8]) -> Self {
        Self::start(move |_, mut stream| async move {
            if read_head(&mut stream).await.is_some() {
                stream.write_all(response).await.unwrap();
            }
        })
        .await
    }

    pub fn stop(&self) {
        self.task.abort();
    }
}

/// A request head up to and with its empty line; `None` at the end of the connection.
pub async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap().to_ascii_lowercase())
}

/// Reads so many bytes.
pub async fn read_n(stream: &mut TcpStream, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

/// Closes with RST instead of FIN.
pub fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

/// An address where nobody listens.
pub async fn dead_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

pub fn settings_for(addresses: &[SocketAddr]) -> tidegate_settings::Origin {
    tidegate_settings::Origin {
        replicas: addresses.iter().map(ToString::to_string).collect(),
        ..Default::default()
    }
}

pub fn dispatcher(addresses: &[SocketAddr]) -> Dispatcher {
    with(settings_for(addresses))
}

pub fn with(origin: tidegate_settings::Origin) -> Dispatcher {
    Dispatcher::new(Replicas::new(&origin), &origin)
}

pub fn request(method: Method, body: RequestBody) -> Request<RequestBody> {
    Request::builder().method(method).uri("/x?y=1").header("host", "shop.example").body(body).unwrap()
}

pub fn get() -> Request<RequestBody> {
    request(Method::GET, RequestBody::empty())
}

pub fn post(body: &'static str) -> Request<RequestBody> {
    request(Method::POST, RequestBody::full(body))
}

pub async fn send(
    d: &Dispatcher,
    req: Request<RequestBody>,
) -> Result<Response<UpstreamBody>, DispatchError> {
    send_with(d, req, SendContext::default()).await
}

pub async fn send_with(
    d: &Dispatcher,
    req: Request<RequestBody>,
    ctx: SendContext,
) -> Result<Response<UpstreamBody>, DispatchError> {
    let (parts, body) = req.into_parts();
    let (head, body) = d.send(RequestHead::from_parts(&parts), body, ctx).await?;
    Ok(Response::from_parts(head.to_parts(), body))
}

/// Sends and reads the whole response.
pub async fn fetch(d: &Dispatcher, req: Request<RequestBody>) -> Result<(u16, String), BoxError> {
    let response = send(d, req).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8(body.to_vec())?))
}

/// A body fed by the test.
pub struct Fed {
    receiver: tokio::sync::mpsc::Receiver<Result<http_body::Frame<Bytes>, BoxError>>,
    pub polled: Rc<Cell<bool>>,
}

pub type Feed = tokio::sync::mpsc::Sender<Result<http_body::Frame<Bytes>, BoxError>>;

/// A streamed body, its feed, and whether it was ever polled.
pub fn fed() -> (Feed, RequestBody, Rc<Cell<bool>>) {
    let (feed, receiver) = tokio::sync::mpsc::channel(1);
    let polled = Rc::new(Cell::new(false));
    let body = RequestBody::boxed(Fed { receiver, polled: polled.clone() });
    (feed, body, polled)
}

pub fn data(text: &'static str) -> Result<http_body::Frame<Bytes>, BoxError> {
    Ok(http_body::Frame::data(Bytes::from_static(text.as_bytes())))
}

impl Body for Fed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        self.polled.set(true);
        self.receiver.poll_recv(cx)
    }
}

/// The 1xx responses seen: status and fields.
pub type Seen = Rc<RefCell<Vec<(u16, HeaderMap)>>>;

/// A context that notes every 1xx response.
pub fn noting(expect_continue: bool) -> (SendContext, Seen) {
    let seen = Seen::default();
    let note = seen.clone();
    let ctx = SendContext {
        expect_continue,
        on_informational: Some(Rc::new(move |status, headers: &HeaderMap| {
            note.borrow_mut().push((status.as_u16(), headers.clone()));
        })),
        ..SendContext::default()
    };
    (ctx, seen)
}
