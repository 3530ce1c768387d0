//! The admin API: health, metrics, state, and everything that may be changed while running. On loopback by
//! default; elsewhere it requires a bearer token.
//!
//! ```text
//! connection ─► dispatch ─► access (site, token) ─► routes (the table) ─► schema ─► handler ─► answer
//!                                                     └─► openapi
//! ```

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::control::driver::Control;
use crate::shared::{Drain, reached};

mod access;
mod answer;
mod audit;
mod call;
mod capacity;
mod claims;
mod correlation;
mod dashboard;
mod dispatch;
mod explain;
mod history;
mod kernel;
mod listeners;
mod metrics;
mod openapi;
mod route;
mod routes;
mod schema;
mod sessions;
mod signals;
mod state;
mod throttles;
mod tunables;
mod tuners;

use call::Api;

/// Connections at a time: for people, a scraper and a peer; too few to slow the control thread down.
const MAX_CONNECTIONS: usize = 64;
/// Longest life of a connection, or a client that never reads would hold it for ever. Scrapers reconnect.
const MAX_AGE: Duration = Duration::from_secs(300);
/// Time for the TLS handshake, where there is one.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time for the answer under way when a connection has reached that age.
const LAST_ANSWER: Duration = Duration::from_secs(10);
/// Time for the answers under way when the gate has drained.
const LAST_ANSWER_AT_THE_END: Duration = Duration::from_secs(5);

/// Serves the admin API until the other end of `over` is gone. Returns once answers under way have been sent,
/// so that a request to drain is answered.
pub async fn serve(control: Arc<Control>, listener: std::net::TcpListener, mut over: watch::Receiver<()>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(e) => return tracing::error!(error = %e, "no admin API"),
    };
    let api = Arc::new(Api::new(control));
    tokio::spawn(tell_listeners(api.clone()));
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &permits) => accepted,
            _ = over.changed() => break,
        };
        let Some((permit, stream, peer)) = accepted else { continue };
        let (api, over) = (api.clone(), over.clone());
        tokio::spawn(async move {
            converse(api, stream, peer, over).await;
            drop(permit);
        });
    }
    drop(listener);
    // Once all permits are free, no connection is left. Clients that do not read are not waited for.
    let all = permits.acquire_many(MAX_CONNECTIONS as u32);
    let _ = tokio::time::timeout(LAST_ANSWER_AT_THE_END, all).await;
}

async fn tell_listeners(api: Arc<Api>) {
    let mut figures = api.control.watch_figures();
    let mut drain = api.control.shared().drain.subscribe();
    loop {
        tokio::select! {
            changed = figures.changed() => match changed {
                Ok(()) => api.listeners.publish(|| state::event_of(&api.control)),
                Err(_) => return,
            },
            () = reached(&mut drain, Drain::Accepting) => return api.listeners.close(),
        }
    }
}

/// The next connection, once there is a permit for it.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(OwnedSemaphorePermit, TcpStream, SocketAddr)> {
    let permit = permits.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((permit, stream, peer)),
        Err(e) => {
            tracing::debug!(error = %e, "admin: cannot accept");
            tokio::time::sleep(Duration::from_millis(20)).await;
            None
        }
    }
}

async fn converse(api: Arc<Api>, stream: TcpStream, peer: SocketAddr, over: watch::Receiver<()>) {
    // Answers are small, and clients wait for each.
    let _ = stream.set_nodelay(true);
    let config = api.control.shared().config.load_full();
    let Some(tls) = config.tls.clone().filter(|_| config.settings.listen.admin_https) else {
        return answer_all(api, stream, peer, over).await;
    };
    match tokio::time::timeout(HANDSHAKE, tls.accept_admin(stream)).await {
        Ok(Ok(stream)) => answer_all(api, stream, peer, over).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "admin: TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "admin: no TLS handshake in time"),
    }
}

/// Answers the requests of a connection.
async fn answer_all(
    api: Arc<Api>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    mut over: watch::Receiver<()>,
) {
    let aged = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request| {
        let (api, aged) = (api.clone(), aged.clone());
        async move { Ok::<_, Infallible>(dispatch::answer(&api, peer, aged, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => Some(ended),
        () = tokio::time::sleep(MAX_AGE) => None,
        _ = over.changed() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            // Endless answers check this and end.
            aged.store(true, Ordering::Relaxed);
            served.as_mut().graceful_shutdown();
            tokio::time::timeout(LAST_ANSWER, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(e) = ended {
        tracing::debug!(error = %e, "admin connection ended");
    }
}
