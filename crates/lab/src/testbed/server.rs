//! The server: so many processes, each with one connection at a time, and one processor for all of them, as
//! the paper's Apache on a machine of 375 MHz.
//!
//! A process that is free accepts the connection that is next. Requests get the processor in the order in
//! which they were accepted. With work that sleeps, the processor is a point in time: a request that is taken
//! too late, because this machine was busy, does not make the next ones later. So the capacity is exact.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::units::Timestamp;
use tidegate_gateway::base::clock::Clock;
use tidegate_kernel::accept_first;

use super::cpu;
use super::spec::{ServerSpec, Work};
use super::trouble::{Trouble, system};

/// Connections that wait to be accepted, for each priority: more than all clients of an experiment.
pub(super) const BACKLOG: u32 = 1024;
/// Between two looks at whether the server shall end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest wait for a request. Clients send theirs with their first packet after the handshake.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest head of a request.
const MAX_HEAD: usize = 4096;
/// Largest answer.
const MAX_BODY: usize = 64 << 10;

/// A server at work. Dropping it ends it.
pub(super) struct Server {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

struct Job {
    connection: TcpStream,
    accepted: Timestamp,
}

impl Server {
    /// Serves who comes to `listeners`, the first of which goes first; on `core`, if there is one for it.
    pub fn start(
        listeners: Vec<TcpListener>,
        spec: ServerSpec,
        core: Option<usize>,
        clock: &Arc<Clock>,
    ) -> Result<Self, Trouble> {
        let stop = Arc::new(AtomicBool::new(false));
        let (jobs, taken) = mpsc::channel();
        let (freed, free) = mpsc::channel();
        for _ in 0..spec.processes {
            // The other end is held below.
            let _ = freed.send(());
        }
        let (stopped, accepting) = (Arc::clone(&stop), Arc::clone(clock));
        let accept = move || {
            bind(core);
            accept(&listeners, &free, &jobs, &accepting, &stopped);
        };
        let serving = Arc::clone(clock);
        let serve = move || {
            bind(core);
            serve(&taken, &freed, spec, &serving);
        };
        let mut server = Self { threads: Vec::new(), stop };
        let start = |name: &str| std::thread::Builder::new().name(name.into());
        let trouble = || system("a thread for the server");
        server.threads.push(start("server-accept").spawn(accept).map_err(trouble())?);
        server.threads.push(start("server-cpu").spawn(serve).map_err(trouble())?);
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A panic has been reported by its thread.
            let _ = thread.join();
        }
    }
}

fn bind(core: Option<usize>) {
    if let Some(Err(error)) = core.map(|core| cpu::bind(0, core)) {
        tracing::error!(%error, "the server is not bound to its core");
    }
}

/// Accepts whenever a process is free, until told to stop.
fn accept(
    listeners: &[TcpListener],
    free: &Receiver<()>,
    jobs: &Sender<Job>,
    clock: &Clock,
    stop: &AtomicBool,
) {
    while !stop.load(Relaxed) {
        match free.recv_timeout(LOOK_EVERY) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let connection = loop {
            if stop.load(Relaxed) {
                return;
            }
            // A connection that has gone meanwhile is an error; the next look finds the next one.
            if let Ok(Some((_, connection))) = accept_first(listeners) {
                break connection;
            }
            wait(listeners);
        };
        if jobs.send(Job { connection, accepted: clock.now() }).is_err() {
            return;
        }
    }
}

/// Waits until somebody comes, at most for one look.
fn wait(listeners: &[TcpListener]) {
    let entry =
        |listener: &TcpListener| libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut entries: Vec<libc::pollfd> = listeners.iter().map(entry).collect();
    let most_ms = LOOK_EVERY.as_millis() as libc::c_int;
    // SAFETY: as many entries as it is told.
    unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, most_ms) };
}

/// The processor: request after request, until nobody can send one any more.
fn serve(jobs: &Receiver<Job>, freed: &Sender<()>, spec: ServerSpec, clock: &Clock) {
    let mut free_at = Timestamp::default();
    while let Ok(Job { connection, accepted }) = jobs.recv() {
        free_at = free_at.max(accepted) + spec.service;
        // A client that has gone, or asks for something else, costs what the others do.
        let body_bytes = request(&connection).unwrap_or(0);
        match spec.work {
            Work::Sleep => std::thread::sleep(free_at.since(clock.now())),
            Work::Spin => cpu::burn(spec.service),
        }
        // It may have gone.
        let _ = answer(connection, body_bytes);
        if freed.send(()).is_err() {
            return;
        }
    }
}

/// The size of the file that a client asks for.
fn request(mut connection: &TcpStream) -> io::Result<usize> {
    connection.set_read_timeout(Some(PATIENCE))?;
    let mut head = Vec::with_capacity(128);
    let mut part = [0; 512];
    while !head.ends_with(b"\r\n\r\n") {
        let read = connection.read(&mut part)?;
        if read == 0 || head.len() > MAX_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&part[..read]);
    }
    asked_for(&head).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The number in `GET /8192 HTTP/1.0`.
pub(super) fn asked_for(head: &[u8]) -> Option<usize> {
    let line = std::str::from_utf8(head).ok()?.lines().next()?;
    let size = line.strip_prefix("GET /")?.split(' ').next()?.parse().ok()?;
    (size <= MAX_BODY).then_some(size)
}

fn answer(mut connection: TcpStream, body_bytes: usize) -> io::Result<()> {
    static BODY: [u8; MAX_BODY] = [b'x'; MAX_BODY];
    let mut answer = format!("HTTP/1.0 200 OK\r\nContent-Length: {body_bytes}\r\n\r\n").into_bytes();
    answer.extend_from_slice(&BODY[..body_bytes]);
    // It fits into the socket's buffer, so nobody waits for the client here.
    connection.set_nonblocking(true)?;
    connection.write_all(&answer)
}
