//! Accepts connections at one address, in the order of their priority (docs/kernel.md).

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::http::stream::VisitorSocket;
use crate::shared::listening::{Listening, ListeningSocket};

/// A connection, and who it is from.
pub struct Accepted {
    pub socket: VisitorSocket,
    pub peer: SocketAddr,
    /// 0 is the highest.
    pub priority: usize,
}

/// Whose connections a worker takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Those that wait at its own sockets: no worker waits for another.
    Own,
    /// Those that wait at any worker's sockets. Where connections wait until one ends, this keeps their order
    /// among all workers.
    All,
}

/// A worker's listening sockets at one address.
pub struct Listeners {
    worker: usize,
    all: Arc<Listening>,
    /// By priority.
    own: Vec<AsyncFd<Arc<ListeningSocket>>>,
}

impl Listeners {
    /// # Errors
    /// The runtime cannot watch a socket.
    pub fn new(worker: usize, all: Arc<Listening>, own: Vec<Arc<ListeningSocket>>) -> io::Result<Self> {
        let watched = |socket| {
            // SAFETY: the descriptor is that of the socket, which is open as long as the `Arc` is there.
            let watched = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
            watched.map_err(io::Error::from)
        };
        Ok(Self { worker, all, own: own.into_iter().map(watched).collect::<io::Result<_>>()? })
    }

    /// Waits until somebody waits at one of the worker's sockets, as far as is known: they may be accepted by
    /// then.
    pub async fn somebody(&self) -> io::Result<()> {
        poll_fn(|cx| {
            for socket in &self.own {
                if let Poll::Ready(ready) = socket.poll_read_ready(cx) {
                    return Poll::Ready(ready.map(|mut guard| guard.retain_ready()));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Takes the connection that is next: the first of the highest priority that has any. Each queue is asked
    /// anew, from the highest on: what the runtime knows of them may be older than the last connection.
    pub fn take(&self, reach: Reach) -> io::Result<Option<Accepted>> {
        let accepted = |(socket, peer), priority| Accepted { socket, peer, priority };
        if reach == Reach::All {
            return self.all.first(|socket, priority, worker| match worker == self.worker {
                true => Ok(accepted(self.accept(priority)?, priority)),
                false => Ok(accepted(socket.accept()?, priority)),
            });
        }
        for priority in 0..self.own.len() {
            match self.accept(priority) {
                Ok(taken) => return Ok(Some(accepted(taken, priority))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The next connection of one of the worker's own sockets. If there is none, the runtime tells when one
    /// comes.
    fn accept(&self, priority: usize) -> io::Result<(VisitorSocket, SocketAddr)> {
        let (socket, was_asked) = (&self.own[priority], Cell::new(false));
        let accept = |socket: &Arc<ListeningSocket>| {
            was_asked.set(true);
            socket.accept()
        };
        match socket.try_io(Interest::READABLE, accept) {
            // The runtime knows of nobody, and has not looked since the last turn.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !was_asked.get() => {
                socket.get_ref().accept()
            }
            taken => taken,
        }
    }
}
