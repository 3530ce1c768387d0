//! Network namespaces, which have no names and so vanish with the process that holds them, however it ends.

use std::ffi::CString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::Command;
use std::time::Duration;

/// How long a condition may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A network namespace.
pub struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// With the loopback interface up.
    pub fn new() -> Self {
        let open = || {
            // SAFETY: no memory.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) }, "unshare");
            let file = std::fs::File::open("/proc/thread-self/ns/net").expect("its file");
            OwnedFd::from(file)
        };
        let fd = std::thread::scope(|scope| scope.spawn(open).join().expect("a namespace"));
        let namespace = Self { fd };
        namespace.ip("link set lo up");
        namespace
    }

    /// Runs in the namespace. What is opened there stays there.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let enter = || {
            // SAFETY: no memory.
            check(unsafe { libc::setns(self.fd.as_raw_fd(), libc::CLONE_NEWNET) }, "setns");
            work()
        };
        let name = std::thread::current().name().unwrap_or("test").to_owned();
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, enter).expect("a thread");
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// `ip` with these words.
    pub fn ip(&self, words: &str) {
        let status = self.run(|| Command::new("ip").args(words.split(' ')).status().expect("ip"));
        assert!(status.success(), "ip {words}");
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd())
    }
}

/// A server and clients on two ends of a cable: `s0` with 10.77.0.1 and fd77::1, `c0` with .2 and ::2 up to
/// 9.
pub struct Cable {
    pub server: Namespace,
    pub client: Namespace,
}

pub const SERVER_V4: &str = "10.77.0.1";
pub const SERVER_V6: &str = "fd77::1";

impl Cable {
    pub fn new() -> Self {
        let (server, client) = (Namespace::new(), Namespace::new());
        // The hardware addresses of `frames`.
        server.ip(&format!(
            "link add s0 address 02:00:00:00:00:01 type veth peer name c0 address 02:00:00:00:00:02 netns {}",
            client.path()
        ));
        for (namespace, interface, hosts) in [(&server, "s0", 1..=1), (&client, "c0", 2..=9)] {
            for host in hosts {
                namespace.ip(&format!("addr add 10.77.0.{host}/24 dev {interface}"));
                namespace.ip(&format!("addr add fd77::{host}/64 dev {interface} nodad"));
            }
            namespace.ip(&format!("link set {interface} up"));
        }
        Self { server, client }
    }

    /// A socket of the clients' end that sends whole frames.
    pub fn raw_socket(&self) -> RawSocket {
        self.client.run(|| {
            // SAFETY: no memory.
            let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
            check(fd, "a raw socket");
            let name = CString::new("c0").expect("no zero");
            // SAFETY: a string that ends with a zero.
            let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
            // SAFETY: just opened, and owned by nobody else.
            RawSocket { fd: unsafe { OwnedFd::from_raw_fd(fd) }, index }
        })
    }
}

pub struct RawSocket {
    fd: OwnedFd,
    index: u32,
}

impl RawSocket {
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: zeroed is a valid address, and the lengths are those of what is pointed to.
        unsafe {
            let mut to: libc::sockaddr_ll = std::mem::zeroed();
            to.sll_family = libc::AF_PACKET as u16;
            to.sll_ifindex = self.index as i32;
            let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            let (to, fd) = ((&raw const to).cast(), self.fd.as_raw_fd());
            // A full queue drops it, as a flood does.
            libc::sendto(fd, frame.as_ptr().cast(), frame.len(), 0, to, length);
        }
    }
}

fn check(result: i32, what: &str) {
    assert!(result >= 0, "{what}: {}", io::Error::last_os_error());
}

/// Seconds since boot.
pub fn now() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `now` only.
    check(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) }, "the clock");
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Waits until something is there.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = now() + PATIENCE.as_secs_f64();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() < end, "not after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An attempt to connect that does not wait for its end.
pub fn try_connect(from: &str, to: SocketAddr) -> socket2::Socket {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).expect("a socket");
    let from: SocketAddr = SocketAddr::new(from.parse().expect("an address"), 0);
    socket.bind(&from.into()).expect("its own address");
    socket.set_nonblocking(true).expect("a mode");
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => panic!("{from} to {to}: {error}"),
    }
    socket
}

/// How the attempt stands: `None` while it is under way.
pub fn outcome(socket: &socket2::Socket) -> Option<Result<(), io::Error>> {
    if let Some(error) = socket.take_error().expect("a socket") {
        return Some(Err(error));
    }
    socket.peer_addr().is_ok().then_some(Ok(()))
}
