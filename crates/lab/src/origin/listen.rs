//! A replica's listener, which opens and closes with the replica, and its connections.
//!
//! The port stays the replica's while it is out of service: a socket that is bound but never listens keeps
//! it, and connections meanwhile are refused, as at a host whose service is down.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use super::meter::Meter;
use super::service::Service;

/// Connections that may wait to be accepted; the kernel's own default limit lies at 4096.
const LISTEN_BACKLOG: u32 = 4096;
/// Pause after a failed accept: keeps a lasting shortage of descriptors from becoming a busy loop.
const SHORTAGE: Duration = Duration::from_millis(5);

pub(super) struct Door {
    pub addr: SocketAddr,
    _reserved: TcpSocket,
    pub open: watch::Sender<bool>,
}

impl Door {
    /// Takes the address, port 0: any. Out of service at first.
    pub fn new(addr: SocketAddr) -> io::Result<Self> {
        let reserved = bind(addr)?;
        Ok(Self { addr: reserved.local_addr()?, _reserved: reserved, open: watch::Sender::new(false) })
    }

    /// Starts to listen; to be called within a runtime.
    pub fn listen(&self) -> io::Result<TcpListener> {
        bind(self.addr)?.listen(LISTEN_BACKLOG)
    }

    /// Accepts while in service, for as long as it is polled. `first`: the listener of a replica that is in
    /// service from the start, so that a port that cannot be had is known before anything runs.
    pub async fn serve(&self, first: Option<TcpListener>, service: Arc<dyn Service>, meter: Arc<Meter>) {
        let mut open = self.open.subscribe();
        let mut listener = first;
        loop {
            // The sender lives as long as this listener.
            let _ = open.wait_for(|open| *open).await;
            let current = match listener.take().map_or_else(|| self.listen(), Ok) {
                Ok(current) => current,
                Err(error) => {
                    tracing::error!(%error, addr = %self.addr, "the replica cannot listen");
                    tokio::time::sleep(SHORTAGE).await;
                    continue;
                }
            };
            tokio::select! {
                () = accept(&current, &self.open, &service, &meter) => {}
                _ = open.wait_for(|open| !*open) => {}
            }
        }
    }
}

fn bind(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Lets the listener share the address with the socket that reserves it and never listens; a second
    // listener is still refused.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

async fn accept(
    listener: &TcpListener,
    open: &watch::Sender<bool>,
    service: &Arc<dyn Service>,
    meter: &Arc<Meter>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                tokio::spawn(connection(stream, open.subscribe(), Arc::clone(service), Arc::clone(meter)));
            }
            Err(error) => {
                // Out of descriptors or a visitor gone before the handshake ended: neither may end the
                // origin.
                tracing::debug!(%error, "accept");
                tokio::time::sleep(SHORTAGE).await;
            }
        }
    }
}

/// One connection, until either side ends it. A replica that goes out of service answers what it has and
/// closes.
async fn connection(
    stream: TcpStream,
    mut open: watch::Receiver<bool>,
    service: Arc<dyn Service>,
    meter: Arc<Meter>,
) {
    let serve = service_fn(|request| {
        let visit = meter.arrive();
        let answering = service.call(visit, request);
        async move { Ok::<_, Infallible>(answering.await) }
    });
    let mut connection = std::pin::pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), serve));
    tokio::select! {
        // A connection that ends early is a visitor who left; the service counts it as wasted work.
        _ = connection.as_mut() => return,
        _ = open.wait_for(|open| !*open) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
