//! A visitor that sends raw bytes, a hyper server whose service records what it saw, and virtual time.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tidegate_gateway::http::wire::{HeadLimits, Wire, WireEvent, WireHandle, WireLimits, is_bad_body};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Small, so that tests can reach them.
pub const LIMITS: WireLimits = WireLimits {
    head: HeadLimits { bytes: 2048, fields: 16, target: 512, body: 0 },
    header_timeout: Duration::from_secs(10),
    idle_timeout: Duration::from_secs(75),
    body_timeout: Duration::from_secs(60),
};

/// What the server side has seen.
#[derive(Default)]
pub struct World {
    /// `METHOD target body-length`, then `name=value` of every trailer; or `! reason` for a body that broke
    /// off.
    pub seen: Mutex<Vec<String>>,
    pub events: Mutex<Vec<WireEvent>>,
    /// Requests for `/wait` are answered when this is notified.
    pub go: Notify,
    /// A request for `/wait` has arrived.
    pub arrived: Notify,
    /// A service future was dropped before it was done.
    pub dropped: Notify,
}

pub struct Server {
    pub world: Arc<World>,
    pub handle: WireHandle,
    pub task: JoinHandle<Result<(), hyper::Error>>,
}

struct Abandoned(Option<Arc<World>>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(world) = self.0.take() {
            world.dropped.notify_one();
        }
    }
}

async fn serve(request: Request<Incoming>, world: &Arc<World>, handle: &WireHandle) -> (StatusCode, String) {
    let (parts, body) = request.into_parts();
    if parts.uri.path() == "/hint" {
        let mut fields = HeaderMap::new();
        fields.insert("link", "</a.css>; rel=preload".parse().unwrap());
        let sent = handle.informational(StatusCode::EARLY_HINTS, &fields);
        world.seen.lock().unwrap().push(format!("hint {sent}"));
    }
    if parts.uri.path() == "/wait" {
        let mut guard = Abandoned(Some(world.clone()));
        world.arrived.notify_one();
        world.go.notified().await;
        guard.0 = None;
    }
    match body.collect().await {
        Ok(body) => {
            let mut line = format!("{} {}", parts.method, parts.uri);
            let trailers = body.trailers().cloned().unwrap_or_default();
            line += &format!(" {}", body.to_bytes().len());
            for (name, value) in &trailers {
                line += &format!(" {name}={}", String::from_utf8_lossy(value.as_bytes()));
            }
            world.seen.lock().unwrap().push(line.clone());
            (StatusCode::OK, line)
        }
        Err(e) => {
            let bad = is_bad_body(&e);
            let reason = bad.map_or(format!("other: {e:?}"), |b| b.to_string());
            world.seen.lock().unwrap().push(format!("! {reason}"));
            let status = bad.map_or(500, |b| b.status());
            (StatusCode::from_u16(status).unwrap(), reason)
        }
    }
}

/// A server on one end of a pipe; the other end is the visitor's.
pub fn start(limits: WireLimits, pipe: usize) -> (Server, DuplexStream) {
    let (near, far) = tokio::io::duplex(pipe);
    let world = Arc::new(World::default());
    let events = world.clone();
    let (wire, handle) = Wire::new(near, limits, move |e| events.events.lock().unwrap().push(e));
    let (w, h) = (world.clone(), handle.clone());
    let service = service_fn(move |request| {
        let (world, handle) = (w.clone(), h.clone());
        async move {
            let (status, text) = serve(request, &world, &handle).await;
            let mut response = Response::new(handle.track(Full::new(Bytes::from(text))));
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    limits.configure(&mut builder);
    let task = tokio::spawn(builder.serve_connection(wire, service));
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
    pub events: Vec<WireEvent>,
    pub raw: String,
}

/// Sends the pieces one by one, then reads until the server closes (which virtual time ensures).
pub async fn converse_with(limits: WireLimits, pieces: &[&[u8]]) -> Outcome {
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
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(f)
}
