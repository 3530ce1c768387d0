//! Listening sockets of one address: one for each priority and worker, all of them bound to the address
//! (`SO_REUSEPORT`). `bpf/prioritise.bpf.c` chooses among the priorities; without it, or with one priority,
//! the kernel spreads connections over all of them by a hash.

use std::fs::Permissions;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpStream, UnixStream};

use crate::http::stream::VisitorSocket;

/// Who is at the other end of a Unix socket.
const THIS_MACHINE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// A socket that listens, and does not block.
pub struct ListeningSocket {
    fd: OwnedFd,
    is_unix: bool,
}

impl AsRawFd for ListeningSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl ListeningSocket {
    /// The next connection of its queue, without waiting: one system call, as in Tokio.
    pub fn accept(&self) -> io::Result<(VisitorSocket, SocketAddr)> {
        let listener = self.as_raw_fd();
        // SAFETY: `accept4` writes an address of at most `length` bytes to `storage`, and its length.
        let (fd, peer) = unsafe {
            SockAddr::try_init(|storage, length| {
                let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
                match libc::accept4(listener, storage.cast(), length, flags) {
                    -1 => Err(io::Error::last_os_error()),
                    fd => Ok(fd),
                }
            })?
        };
        // SAFETY: the kernel has just opened it for this process, and nobody else knows its number.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        if self.is_unix {
            return Ok((VisitorSocket::Unix(UnixStream::from_std(fd.into())?), THIS_MACHINE));
        }
        let peer = peer.as_socket().ok_or(io::ErrorKind::ConnectionAborted)?;
        Ok((VisitorSocket::Tcp(TcpStream::from_std(fd.into())?), peer))
    }
}

impl ListeningSocket {
    /// Connections in its queue. Of a listening socket, the kernel tells it in this field (tcp(7)).
    fn waiting(&self) -> u64 {
        // SAFETY: the structure is of numbers only, for which zero is valid.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to the structure, which is as long.
        let result = unsafe {
            let value = (&raw mut info).cast();
            libc::getsockopt(self.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, value, &raw mut length)
        };
        if result == 0 { info.tcpi_unacked.into() } else { 0 }
    }
}

/// All sockets of an address. Each belongs to a worker, and is closed when that worker drops it; the other
/// workers reach it as long as it is there.
pub struct Listening {
    address: SocketAddr,
    /// By priority, then by worker.
    sockets: Vec<Vec<Weak<ListeningSocket>>>,
    /// Whose sockets are looked at first: each worker's in turn, or those of one would wait for all others.
    turn: AtomicUsize,
}

/// An address that is listened at, with the sockets of each worker by priority.
pub struct Listened {
    pub all: Arc<Listening>,
    pub of_workers: Vec<Vec<Arc<ListeningSocket>>>,
}

impl Listened {
    /// By priority, then by worker.
    pub fn fds(&self) -> Vec<Vec<RawFd>> {
        let priorities = self.of_workers.first().map_or(0, Vec::len);
        let of = |priority: usize| self.of_workers.iter().map(move |own| own[priority].as_raw_fd());
        (0..priorities).map(|priority| of(priority).collect()).collect()
    }
}

/// An address cannot be listened at.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({key}): {error}")]
pub struct ListenError {
    pub key: String,
    pub address: String,
    pub error: io::Error,
}

impl ListenError {
    fn new(key: &str, address: impl ToString, error: io::Error) -> Self {
        Self { key: key.to_owned(), address: address.to_string(), error }
    }
}

/// How an address is listened at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenConfig {
    pub priorities: usize,
    pub workers: usize,
    /// Length of each socket's queue.
    pub backlog: u32,
}

/// Listens at an address that nobody else listens at. For port 0 the system chooses the port once.
///
/// # Errors
/// The system does not permit it. `key` names the address in the settings.
pub fn listen(key: &str, address: SocketAddr, config: ListenConfig) -> Result<Listened, ListenError> {
    let failed = |error| ListenError::new(key, address, error);
    let ListenConfig { priorities, workers, backlog } = config;
    // With SO_REUSEPORT alone, two gates could share an address by accident.
    drop(TcpListener::bind(address).map_err(failed)?);
    let listeners = tidegate_kernel::listen(address, priorities, workers, backlog).map_err(failed)?;
    let address = listeners[0][0].local_addr().map_err(failed)?;
    let socket = |one: TcpListener| Arc::new(ListeningSocket { fd: one.into(), is_unix: false });
    let shared = |of: Vec<TcpListener>| of.into_iter().map(socket).collect();
    let sockets: Vec<Vec<Arc<ListeningSocket>>> = listeners.into_iter().map(shared).collect();
    Ok(listened(address, sockets, workers))
}

/// Listens at a Unix socket, which all workers share. What a process that has ended left there is replaced.
///
/// # Errors
/// Somebody listens there, or the system does not permit it.
pub fn listen_unix(key: &str, path: &Path, mode: u32, config: ListenConfig) -> Result<Listened, ListenError> {
    let failed = |error| ListenError::new(key, path.display(), error);
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => return Err(failed(io::ErrorKind::AddrInUse.into())),
        // Files that are no sockets refuse as well: those stay, and the address is in use.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let found = std::fs::symlink_metadata(path).map_err(failed)?;
            if found.file_type().is_socket() {
                std::fs::remove_file(path).map_err(failed)?;
            }
        }
        Err(_) => {}
    }
    let bound = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        // Nobody can connect before it listens.
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        socket.listen(config.backlog.try_into().unwrap_or(i32::MAX))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let socket = Arc::new(ListeningSocket { fd: bound().map_err(failed)?.into(), is_unix: true });
    Ok(listened(THIS_MACHINE, vec![vec![socket; config.workers]], config.workers))
}

/// `sockets` by priority, then by worker.
fn listened(address: SocketAddr, sockets: Vec<Vec<Arc<ListeningSocket>>>, workers: usize) -> Listened {
    let of_worker = |worker: usize| sockets.iter().map(|of| of[worker].clone()).collect();
    let of_workers = (0..workers).map(of_worker).collect();
    let sockets = sockets.iter().map(|of| of.iter().map(Arc::downgrade).collect()).collect();
    Listened { all: Arc::new(Listening { address, sockets, turn: AtomicUsize::new(0) }), of_workers }
}

impl Listening {
    /// With the port that the system has chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that wait to be accepted, by priority.
    pub fn waiting(&self) -> impl Iterator<Item = u64> {
        let of = |sockets: &Vec<Weak<ListeningSocket>>| {
            sockets.iter().filter_map(Weak::upgrade).map(|socket| socket.waiting()).sum()
        };
        self.sockets.iter().map(of)
    }

    /// Takes the first connection of the highest priority for which `take` finds one, over the sockets of all
    /// workers. `take` gets a socket, its priority and its worker.
    pub fn first<T>(
        &self,
        mut take: impl FnMut(&ListeningSocket, usize, usize) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let turn = self.turn.load(Relaxed);
        for (priority, of) in self.sockets.iter().enumerate() {
            for at in 0..of.len() {
                let worker = turn.wrapping_add(at) % of.len();
                let Some(socket) = of[worker].upgrade() else { continue };
                match take(&socket, priority, worker) {
                    Ok(taken) => {
                        self.turn.store(worker.wrapping_add(1), Relaxed);
                        return Ok(Some(taken));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(None)
    }
}
