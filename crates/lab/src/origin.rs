//! The model origin: the pool of `pool.rs` behind a real HTTP/1.1 listener, on a thread of its own.
//!
//! Every path takes a worker. A visitor who leaves closes the connection; hyper then drops the request's
//! future and with it the receiver of the pool's answer, while the worker goes on to the end (`wasted`).

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::Full as Whole;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;

mod pool;
pub mod shop;

#[cfg(test)]
mod tests;

pub use pool::{Full, Law, Pool, Stats};

/// What a visitor came for. About as long as the smallest of real pages.
const PAGE: &[u8] = b"<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Model origin</title>\
<body style=\"font:1.1rem system-ui;max-width:36rem;margin:4rem auto;padding:0 1rem\">\
<h1>You are in</h1><p>This page was served by the model origin. It took one of its workers to make.</p>\
<p><a href=\"/\">Come again</a></p></body></html>";

/// Where the origin listens and how it behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OriginConfig {
    /// Address to listen on; port 0 lets the system choose.
    pub addr: SocketAddr,
    /// The worker pool.
    pub law: Law,
}

impl Default for OriginConfig {
    fn default() -> Self {
        Self { addr: SocketAddr::from(([127, 0, 0, 1], 0)), law: Law::default() }
    }
}

/// Starts model origins.
pub struct Origin;

/// A running origin; dropping it stops it.
pub struct OriginHandle {
    addr: SocketAddr,
    pool: Arc<Pool>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    /// Binds, starts the thread and returns when connections are accepted.
    ///
    /// # Errors
    /// The address cannot be bound, or the system gives no thread or no poller.
    pub fn start(config: OriginConfig) -> io::Result<OriginHandle> {
        let listener = TcpListener::bind(config.addr)?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let pool = Pool::new(config.law);
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serving = Arc::clone(&pool);
        let thread = std::thread::Builder::new().name("origin".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    outcome = accept(listener, serving) => {
                        if let Err(error) = outcome {
                            tracing::error!(%error, "the model origin stopped accepting");
                        }
                    }
                }
            });
        })?;
        Ok(OriginHandle { addr, pool, stop: Some(stop), thread: Some(thread) })
    }
}

impl OriginHandle {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The figures now.
    pub fn stats(&self) -> Stats {
        self.pool.stats()
    }

    /// Closes every connection and ends the thread.
    pub fn stop(mut self) {
        self.halt();
    }

    fn halt(&mut self) {
        // An error means that the thread has ended already: nothing is left to stop.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for OriginHandle {
    fn drop(&mut self) {
        self.halt();
    }
}

async fn accept(listener: TcpListener, pool: Arc<Pool>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors or a visitor gone before the handshake ended: neither may end the origin.
                // The pause keeps a lasting shortage from becoming a busy loop.
                tracing::debug!(%error, "accept");
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let pool = Arc::clone(&pool);
        tokio::spawn(async move {
            let service = service_fn(|_request| serve(Arc::clone(&pool)));
            // A connection that ends early is a visitor who left; the pool counts it as wasted work.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(pool: Arc<Pool>) -> Result<Response<Whole<Bytes>>, Infallible> {
    let served = match pool.submit() {
        Ok(served) => served.await.is_ok(),
        Err(Full) => false,
    };
    let (status, body) =
        if served { (StatusCode::OK, PAGE) } else { (StatusCode::SERVICE_UNAVAILABLE, &b"overloaded\n"[..]) };
    let kind = if served { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" };
    let mut response = Response::new(Whole::new(Bytes::from_static(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    Ok(response)
}
