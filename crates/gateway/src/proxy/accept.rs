//! Takes visitors' connections in: when they are accepted, and the connection cap.
//!
//! Every worker has its own listeners on the same address (`SO_REUSEPORT`), so that accepting needs no lock.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::measure::Event;
use tidegate_core::policies::Action;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::http::socket;
use crate::http::stream::{ConnInfo, VisitorSocket};
use crate::proxy::connection::connection;
use crate::proxy::counted::Counted;
use crate::proxy::handshake::handshake;
use crate::proxy::listeners::{Accepted, Listeners, Reach};
use crate::proxy::respond;
use crate::shared::free_slots::{MAX_SILENCE, Silence, SilentSlot};
use crate::shared::policies::stats::Done;
use crate::shared::{Drain, Worker, reached};

/// After an error of `accept` that is not the connection's own (out of file descriptors): long enough for
/// some to be freed, short enough not to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A worker's sockets at one of the addresses for visitors.
pub struct VisitorListeners {
    pub listeners: Listeners,
    /// Connections begin with a TLS handshake.
    pub is_tls: bool,
}

/// Accepts until draining starts, then until nobody is left.
pub async fn accept(worker: Rc<Worker>, VisitorListeners { listeners, is_tls }: VisitorListeners) {
    let take = |accepted, silence| take(&worker, accepted, is_tls, silence);
    let mut drain = worker.shared.drain.subscribe();
    let mut silent = Silent::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = reached(&mut drain, Drain::Accepting) => break,
            () = silent.expire() => continue,
            accepted = next(&worker, &listeners) => accepted,
        };
        match accepted {
            Ok((accepted, slot)) => take(accepted, silent.begin(slot)),
            Err(error) => pause(&error).await,
        }
    }
    // Connections that the kernel has already accepted are served: closing the listener would reset them.
    loop {
        match listeners.take(Reach::Own) {
            Ok(Some(accepted)) => take(accepted, Silence::default()),
            Ok(None) => break,
            Err(error) => pause(&error).await,
        }
    }
    worker.shared.accepting.fetch_sub(1, Ordering::AcqRel);
}

/// The next connection, once it may be accepted, with its slot if connections wait for slots.
async fn next(worker: &Worker, listeners: &Listeners) -> io::Result<(Accepted, Option<SilentSlot>)> {
    loop {
        listeners.somebody().await?;
        let slot = worker.shared.gate.free_slots().slot().await;
        let reach = if slot.is_some() { Reach::All } else { Reach::Own };
        if let Some(accepted) = listeners.take(reach)? {
            return Ok((accepted, slot));
        }
    }
}

/// After an error of `accept`.
pub(super) async fn pause(error: &io::Error) {
    if !is_of_connection(error) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// The connections of a worker that hold slots without having sent a request, the oldest first.
#[derive(Default)]
struct Silent(VecDeque<(Instant, Silence)>);

impl Silent {
    fn begin(&mut self, slot: Option<SilentSlot>) -> Silence {
        if slot.is_none() {
            return Silence::default();
        }
        let silence = Silence::new(slot);
        while self.0.front().is_some_and(|(_, oldest)| oldest.is_over()) {
            self.0.pop_front();
        }
        self.0.push_back((Instant::now() + MAX_SILENCE, silence.clone()));
        silence
    }

    /// Waits until the oldest has been silent for too long, and takes its slot.
    async fn expire(&mut self) {
        match self.0.front() {
            None => std::future::pending().await,
            Some((end, _)) => tokio::time::sleep_until(*end).await,
        }
        if let Some((_, silence)) = self.0.pop_front() {
            silence.end();
        }
    }
}

fn take(worker: &Rc<Worker>, accepted: Accepted, is_tls: bool, silence: Silence) {
    let Accepted { stream, peer, priority } = accepted;
    worker.count(Event::Connections);
    worker.shared.accepts.count(worker.index, priority);
    if is_turned_away(worker, &stream) {
        return silence.end();
    }
    let Some(counted) = Counted::new(worker) else {
        worker.count(Event::ConnectionsRefused);
        // A handshake would cost more than everything else here: such a visitor sees the connection end.
        if !is_tls {
            tokio::task::spawn_local(refuse(stream));
        }
        return silence.end();
    };
    let _ = stream.set_nodelay(true);
    let info = ConnInfo::plain(peer, stream.local_addr().ok());
    let worker = worker.clone();
    if !is_tls {
        let socket = VisitorSocket::Tcp(stream);
        tokio::task::spawn_local(connection(worker, socket, info, counted, silence));
        return;
    }
    tokio::task::spawn_local(async move {
        match handshake(&worker, stream, info).await {
            Some((socket, info)) => connection(worker, socket, info, counted, silence).await,
            None => silence.end(),
        }
    });
}

/// Whether a policy in force closes or resets every connection before it is read (WAC 3.3 d).
pub(super) fn is_turned_away(worker: &Worker, stream: &TcpStream) -> bool {
    let Some(standing) = worker.policies(worker.policy_version()) else { return false };
    let Some(policy) = standing.set.at_accept() else { return false };
    standing.count(policy, Done::from(policy.action));
    if policy.action == Action::Reset {
        socket::reset_on_close(stream.as_raw_fd());
    }
    true
}

/// Errors that say something of one connection, not of the listener (accept(2)).
fn is_of_connection(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, WouldBlock};
    matches!(e.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | WouldBlock)
}

/// Over the cap: a clear answer that costs no more than the connection already did.
async fn refuse(mut stream: TcpStream) {
    let answer = tokio::time::timeout(Duration::from_secs(1), async {
        stream.write_all(respond::TOO_MANY_CONNECTIONS).await?;
        stream.shutdown().await?;
        // Reading what the visitor had sent: closing over unread bytes would reset the answer away.
        let mut rest = [0; 1024];
        for _ in 0..16 {
            if tokio::io::AsyncReadExt::read(&mut stream, &mut rest).await? == 0 {
                break;
            }
        }
        io::Result::Ok(())
    });
    let _ = answer.await;
}
