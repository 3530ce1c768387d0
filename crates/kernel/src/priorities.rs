//! Prioritised accept: listening sockets for each priority, and the program that chooses among them.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{BorrowedFd, RawFd};

use aya::programs::SkReuseport;
use tidegate_core::policing::SynRule;

use crate::error::{KernelError, with_causes};
use crate::layout::{Group, MAX_SOCKETS};
use crate::policing::SynPolicing;
use crate::program::{Loaded, Part, Shared};

/// How connections that no rule is about are treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PriorityConfig {
    /// The priority of connections that no rule is about; one that does not exist is the last one.
    pub unmatched: u8,
    /// Room for rules, if they are not shared with policing by XDP.
    pub max_rules: usize,
}

impl Default for PriorityConfig {
    fn default() -> Self {
        Self { unmatched: u8::MAX, max_rules: 1024 }
    }
}

/// The program of `bpf/prioritise.bpf.c` on listening sockets. When it is dropped, the kernel spreads
/// connections over the sockets by hash again; it ends with the sockets in any case.
pub struct Priorities {
    loaded: Shared,
    is_own: bool,
    groups: Vec<AttachedGroup>,
}

struct AttachedGroup {
    /// The first socket and its cookie, which tells whether the number is still the same socket's. Not a
    /// duplicate: that would keep listening after the owner has closed its own.
    socket: RawFd,
    cookies: Vec<u64>,
    places: std::ops::Range<u32>,
}

impl Priorities {
    /// Without listening sockets yet. With policing by XDP they share its rules, and connections that it
    /// lets pass beyond their rate ([`tidegate_core::policing::Excess::Slow`]) have the lowest priority.
    pub fn new(policing: Option<&dyn SynPolicing>, config: &PriorityConfig) -> Result<Self, KernelError> {
        let programs = policing.and_then(|policing| policing.programs());
        let loaded = match programs {
            Some(programs) => {
                programs.shared.lock().load(Part::Priorities)?;
                programs.shared.clone()
            }
            None => Loaded::new(config.max_rules, Part::Priorities)?,
        };
        Ok(Self { loaded, is_own: programs.is_none(), groups: Vec::new() })
    }

    /// Orders connections to one address: `listeners[priority]` are its sockets, as many for each priority
    /// (one for each worker), all bound to the address with SO_REUSEPORT (see [`listen`]). Can be called
    /// for more addresses.
    pub fn attach(&mut self, listeners: &[Vec<RawFd>], config: &PriorityConfig) -> Result<(), KernelError> {
        let per_priority = listeners.first().map_or(0, Vec::len);
        if per_priority == 0 || listeners.iter().any(|of| of.len() != per_priority) {
            return Err(KernelError::Listeners("as many for each priority, and at least one".into()));
        }
        let count = (listeners.len() * per_priority) as u32;
        let mut loaded = self.loaded.lock();
        self.groups.retain(|group| {
            let is_open = group.is_open();
            if !is_open {
                group.forget(&mut loaded);
            }
            is_open
        });
        let Some(places) = free_places(&self.groups, count) else {
            return Err(KernelError::Listeners(format!("at most {MAX_SOCKETS} of all addresses")));
        };
        let sockets: Vec<RawFd> = listeners.iter().flatten().copied().collect();
        let cookies = sockets.iter().map(|fd| cookie(*fd)).collect::<io::Result<Vec<_>>>();
        let cookies = cookies.map_err(|source| KernelError::Io { what: "socket cookie", source })?;
        let group = Group {
            first: places.start,
            priorities: listeners.len() as u32,
            per_priority: per_priority as u32,
            unmatched: config.unmatched.into(),
        };
        let socket = sockets[0];
        for (place, fd) in places.clone().zip(&sockets) {
            loaded
                .sockets
                .set(place, fd, 0)
                .map_err(|error| KernelError::map("sockets", with_causes(&error)))?;
        }
        for cookie in &cookies {
            loaded.groups.insert(cookie, group, 0).map_err(|error| KernelError::map("groups", error))?;
        }
        let program = loaded.ebpf.program_mut("prioritise").expect("it is loaded");
        let program: &mut SkReuseport = program.try_into().expect("its type");
        program.attach(borrowed(socket)).map_err(|error| KernelError::Listeners(with_causes(&error)))?;
        drop(loaded);
        self.groups.push(AttachedGroup { socket, cookies, places });
        Ok(())
    }

    /// Replaces the rules, unless they are shared with policing by XDP, which has set them then.
    pub fn set_rules(&mut self, rules: &[SynRule]) -> Result<(), KernelError> {
        if self.is_own { self.loaded.lock().set_rules(rules) } else { Ok(()) }
    }
}

impl Drop for Priorities {
    fn drop(&mut self) {
        let mut loaded = self.loaded.lock();
        for group in &self.groups {
            if group.is_open() {
                let _ = SkReuseport::detach(borrowed(group.socket));
            }
            group.forget(&mut loaded);
        }
    }
}

impl AttachedGroup {
    /// Whether its first socket is open. Others of the address follow it.
    fn is_open(&self) -> bool {
        cookie(self.socket).ok().as_ref() == self.cookies.first()
    }

    /// Takes it out of the maps; sockets that are closed have left theirs by themselves.
    fn forget(&self, loaded: &mut Loaded) {
        for cookie in &self.cookies {
            let _ = loaded.groups.remove(cookie);
        }
        for place in self.places.clone() {
            let _ = loaded.sockets.clear_index(&place);
        }
    }
}

/// The first places in a row that no group has; `None`: there are none.
fn free_places(groups: &[AttachedGroup], count: u32) -> Option<std::ops::Range<u32>> {
    let mut taken: Vec<_> = groups.iter().map(|group| &group.places).collect();
    taken.sort_by_key(|places| places.start);
    let mut start = 0;
    for places in taken {
        if places.start - start >= count {
            break;
        }
        start = places.end;
    }
    (start + count <= MAX_SOCKETS as u32).then_some(start..start + count)
}

/// Sockets that listen at one address, `per_priority` of each priority. With port 0 all get the port of the
/// first. They do not block.
pub fn listen(
    address: SocketAddr,
    priorities: usize,
    per_priority: usize,
    backlog: u32,
) -> io::Result<Vec<Vec<TcpListener>>> {
    let mut address = address;
    let mut all = Vec::with_capacity(priorities);
    for _ in 0..priorities {
        let mut of_priority = Vec::with_capacity(per_priority);
        for _ in 0..per_priority {
            let listener = reuseport_listener(address, backlog)?;
            address = listener.local_addr()?;
            of_priority.push(listener);
        }
        all.push(of_priority);
    }
    Ok(all)
}

fn reuseport_listener(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Accepts the connection that is next: the first one of the highest priority that has any. `listeners` are a
/// worker's, by priority, and do not block.
pub fn accept_first<'a>(
    listeners: impl IntoIterator<Item = &'a TcpListener>,
) -> io::Result<Option<(usize, TcpStream)>> {
    for (priority, listener) in listeners.into_iter().enumerate() {
        match listener.accept() {
            Ok((connection, _)) => return Ok(Some((priority, connection))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn cookie(fd: RawFd) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the option is a u64, and the length says so.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, (&raw mut cookie).cast(), &mut length)
    };
    if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

fn borrowed<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: used for one system call, during which its owner keeps it open: the caller of `attach`, and
    // at the end whoever holds the socket with the same cookie.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
