//! A visitor that sends raw bytes, a connection whose service records what it saw, and virtual time.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Full};
use tidegate_gateway::http::http1::{Http1, Http1Body, Http1Event, Http1Limits, Http1Link, is_bad_body};
use tidegate_gateway::http::visitor_link::TunnelIo;
use tidegate_http::{HeadLimits, RequestHead, ResponseHead};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// One end of a pipe.
pub struct Pipe(pub DuplexStream);

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl TunnelIo for Pipe {}

/// Small, so that tests can reach them.
pub const LIMITS: Http1Limits = Http1Limits {
    head: HeadLimits { bytes: 2048, fields: 16, target: 512, body: 0 },
    header_timeout: Duration::from_secs(10),
    idle_timeout: Duration::from_secs(75),
    body_timeout: Duration::from_secs(60),
    min_body_rate: 0,
};

/// What the server side has seen.
#[derive(Default)]
pub struct World {
    /// `METHOD target body-length`, then `name=value` of every trailer; or `! reason` for a body that broke
    /// off.
    pub seen: Mutex<Vec<String>>,
    pub events: Mutex<Vec<Http1Event>>,
    /// Requests for `/wait` are answered when this is notified.
    pub go: Notify,
    /// A request for `/wait` has arrived.
    pub arrived: Notify,
    /// A service future was dropped before it was done.
    pub dropped: Notify,
}

pub struct Server {
    pub world: Arc<World>,
    pub handle: Http1Link,
    pub task: JoinHandle<io::Result<()>>,
}

struct Abandoned(Option<Arc<World>>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(world) = self.0.take() {
            world.dropped.notify_one();
        }
    }
}

/// What every service here does.
pub async fn record<B>(
    head: RequestHead,
    body: B,
    world: &Arc<World>,
    handle: Option<&Http1Link>,
) -> (StatusCode, String)
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if let Some(handle) = handle.filter(|_| head.path() == "/hint") {
        let mut fields = HeaderMap::new();
        fields.insert("link", "</a.css>; rel=preload".parse().unwrap());
        let sent = handle.informational(StatusCode::EARLY_HINTS, &fields);
        world.seen.lock().unwrap().push(format!("hint {sent}"));
    }
    if head.path() == "/wait" {
        let mut guard = Abandoned(Some(world.clone()));
        world.arrived.notify_one();
        world.go.notified().await;
        guard.0 = None;
    }
    match body.collect().await {
        Ok(body) => {
            let mut line = format!("{} {}", head.method(), head.target());
            let trailers = body.trailers().cloned().unwrap_or_default();
            line += &format!(" {}", body.to_bytes().len());
            for (name, value) in &trailers {
                line += &format!(" {name}={}", String::from_utf8_lossy(value.as_bytes()));
            }
            world.seen.lock().unwrap().push(line.clone());
            (StatusCode::OK, line)
        }
        Err(e) => {
            let e = e.into();
            let bad = is_bad_body(&*e);
            let reason = bad.map_or(format!("other: {e:?}"), |b| b.to_string());
            world.seen.lock().unwrap().push(format!("! {reason}"));
            let status = bad.map_or(500, |b| b.status());
            (StatusCode::from_u16(status).unwrap(), reason)
        }
    }
}

/// A server on one end of a pipe; the other end is the visitor's.
pub fn start(limits: Http1Limits, pipe: usize) -> (Server, DuplexStream) {
    let (near, far) = tokio::io::duplex(pipe);
    let world = Arc::new(World::default());
    let events = world.clone();
    let (connection, handle) = Http1::new(Pipe(near), limits, move |e| events.events.lock().unwrap().push(e));
    let (w, h) = (world.clone(), handle.clone());
    let service = move |head: RequestHead, body: Http1Body| {
        let (world, handle) = (w.clone(), h.clone());
        async move {
            let (status, text) = record(head, body, &world, Some(&handle)).await;
            (ResponseHead::new(status), Full::new(Bytes::from(text)))
        }
    };
    let task = tokio::task::spawn_local(async move { connection.serve(service).await.map(drop) });
    (Server { world, handle, task }, far)
}

/// Runs all tasks that are ready, without time passing.
pub async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// The outcome of a conversation.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// Status codes of the responses.
    pub statuses: Vec<u16>,
    pub seen: Vec<String>,
    pub events: Vec<Http1Event>,
    pub raw: String,
}

/// Sends the pieces one by one, then reads until the server closes (which virtual time ensures).
pub async fn converse_with(limits: Http1Limits, pieces: &[&[u8]]) -> Outcome {
    let (server, mut visitor) = start(limits, 1 << 20);
    for piece in pieces {
        // A server that has closed already is a result, not a failure.
        let _ = visitor.write_all(piece).await;
        settle().await;
    }
    let mut raw = Vec::new();
    let _ = visitor.read_to_end(&mut raw).await;
    drop(visitor);
    let _ = server.task.await.expect("the connection's task does not panic");
    let raw = String::from_utf8(raw).unwrap();
    let seen = std::mem::take(&mut *server.world.seen.lock().unwrap());
    let events = std::mem::take(&mut *server.world.events.lock().unwrap());
    Outcome { statuses: statuses(&raw), seen, events, raw }
}

pub async fn converse(pieces: &[&[u8]]) -> Outcome {
    converse_with(LIMITS, pieces).await
}

/// Status codes of a sequence of responses whose bodies have no `HTTP/1.` in them.
pub fn statuses(raw: &str) -> Vec<u16> {
    raw.split("HTTP/1.").skip(1).filter_map(|r| r.get(2..5)?.parse().ok()).collect()
}

/// A runtime with virtual time.
pub fn run<F: Future>(f: F) -> F::Output {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, f)
}
