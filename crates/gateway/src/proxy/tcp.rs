//! TCP services (`[[tcp]]`): accepts their connections in the order of their priority, while there are slots,
//! and relays them. Nothing is read: any protocol will do.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::http::proxy_header::{self, Named};
use crate::http::socket::reset_on_close;
use crate::proxy::accept::{is_turned_away, pause};
use crate::proxy::counted::Counted;
use crate::proxy::listeners::{Accepted, Listeners, Reach};
use crate::shared::tcp::{NewSockets, TcpService, TcpSlot, TcpSockets};
use crate::shared::{Drain, Worker, reached};
use crate::upstream::splice::{self, Direction, End};
use crate::upstream::target::{OpenError, Target};

/// A peer that has vanished without a word is noticed after `KEEPALIVE_AFTER` + 4 × `KEEPALIVE_EVERY`: two
/// minutes. Services that are silent for long keep their connections, and slots do not stay with the dead.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(15);
const KEEPALIVE_TRIES: u32 = 4;

/// Serves every address that comes through `new`, until the worker ends.
pub async fn serve(worker: Rc<Worker>, mut new: NewSockets) {
    while let Some(sockets) = new.recv().await {
        tokio::task::spawn_local(accept(worker.clone(), sockets));
    }
}

/// Accepts at one address until it is no longer listened at, or draining starts.
async fn accept(worker: Rc<Worker>, mut sockets: TcpSockets) {
    let listeners = match Listeners::new(worker.index, sockets.all.clone(), std::mem::take(&mut sockets.own))
    {
        Ok(listeners) => listeners,
        Err(error) => return tracing::error!(%error, "cannot serve the listeners of a TCP service"),
    };
    let mut drain = worker.shared.drain.subscribe();
    let mut service = sockets.service.borrow_and_update().clone();
    let mut last = service.clone();
    while let Some(now) = &service {
        let next = tokio::select! {
            biased;
            () = reached(&mut drain, Drain::Accepting) => break,
            // The sender is gone when the process ends.
            changed = sockets.service.changed() => {
                service = changed.ok().and_then(|()| sockets.service.borrow_and_update().clone());
                last = service.clone().or(last);
                continue;
            }
            next = next(&worker, &listeners, now) => next,
        };
        match next {
            Ok((accepted, slot)) => take(&worker, accepted, slot),
            Err(error) => pause(&error).await,
        }
    }
    // Connections that the kernel has already accepted are served, as far as there are slots. The others are
    // reset when the sockets are closed.
    while let Some(service) = &last
        && let Ok(slot) = service.try_slot(&worker.shared.clock)
    {
        match listeners.take(Reach::Own) {
            Ok(Some(accepted)) => take(&worker, accepted, slot),
            Ok(None) => return slot.unused(),
            Err(error) => pause(&error).await,
        }
    }
}

/// The next connection, once it may be accepted.
async fn next(
    worker: &Worker,
    listeners: &Listeners,
    service: &Arc<TcpService>,
) -> std::io::Result<(Accepted, TcpSlot)> {
    loop {
        listeners.somebody().await?;
        let slot = service.slot(&worker.shared.clock).await;
        let reach = if slot.is_limited() { Reach::All } else { Reach::Own };
        match listeners.take(reach) {
            Ok(Some(accepted)) => return Ok((accepted, slot)),
            Ok(None) => slot.unused(),
            Err(error) => {
                slot.unused();
                return Err(error);
            }
        }
    }
}

fn take(worker: &Rc<Worker>, accepted: Accepted, slot: TcpSlot) {
    let figures = &slot.service().figures;
    figures.accepted.fetch_add(1, Relaxed);
    worker.shared.accepts.count(worker.index, accepted.priority);
    if is_turned_away(worker, accepted.socket.fd()) {
        figures.refused.fetch_add(1, Relaxed);
        return;
    }
    let Some(counted) = Counted::new(worker) else {
        figures.refused.fetch_add(1, Relaxed);
        return reset_on_close(accepted.socket.fd());
    };
    tokio::task::spawn_local(relay(accepted, slot, counted));
}

/// One connection, from its acceptance to its end. What it has is given back at the end, the sockets first.
async fn relay(accepted: Accepted, slot: TcpSlot, counted: Counted) {
    let (_counted, slot) = (counted, slot);
    let Accepted { socket, peer, .. } = accepted;
    let Ok(visitor) = socket.into_tcp() else { unreachable!("TCP services listen at TCP addresses") };
    let (in_force, figures) = (slot.in_force(), &slot.service().figures);
    let settings = &in_force.settings;
    let opened = open(&in_force.target, settings, peer, &visitor);
    let service = match opened.await {
        Ok(service) => service,
        Err(error) => {
            figures.failed.fetch_add(1, Relaxed);
            tracing::debug!(service = settings.name, %peer, %error, "a TCP service cannot be reached");
            // So that the visitor knows at once.
            return reset_on_close(visitor.as_raw_fd());
        }
    };
    figures.relayed.fetch_add(1, Relaxed);
    for socket in [&visitor, &service] {
        prepare(socket);
    }
    let end = splice::join(&visitor, &service, settings.idle_timeout, |direction, n| {
        let counter = match direction {
            Direction::In => &figures.bytes_in,
            Direction::Out => &figures.bytes_out,
        };
        counter.fetch_add(n, Relaxed);
    });
    let end = end.await;
    tracing::debug!(service = settings.name, %peer, ?end, "a relayed connection has ended");
    if end == End::Reset {
        reset_on_close(visitor.as_raw_fd());
        reset_on_close(service.as_raw_fd());
    }
}

/// A connection to the service, which begins with a PROXY header if it wants one.
async fn open(
    target: &Arc<Target>,
    settings: &tidegate_settings::Tcp,
    peer: SocketAddr,
    visitor: &TcpStream,
) -> Result<TcpStream, OpenError> {
    let mut service = target.open(settings.connect_timeout).await?;
    if let Some(version) = proxy_header::version(settings.proxy_protocol) {
        let named = visitor.local_addr().ok().map(|to| Named { from: peer, to });
        // It is short: a new connection takes it at once.
        service.write_all(&proxy_header::write(version, named)).await?;
    }
    Ok(service)
}

/// Neither delays small parts nor stays with a peer that has vanished. A socket that refuses works all the
/// same.
fn prepare(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY)
        .with_retries(KEEPALIVE_TRIES);
    let _ = SockRef::from(socket).set_tcp_keepalive(&keepalive);
}
