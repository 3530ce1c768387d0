//! A flood of SYNs, as fast as a core can send them: each from another address and port, none of which
//! answers.
//!
//! It refuses to send anywhere else than in the network namespace that its testbed has made for it, and it is
//! bounded in number and by its owner's life.

use std::ffi::CString;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

use super::addresses::{FLOOD_FROM, FLOOD_MAC, SERVER, SERVER_MAC};
use super::cpu;
use super::namespace::Namespace;
use super::network::CLIENT_INTERFACE;
use super::trouble::{Trouble, check, system};

/// Most SYNs of a flood: minutes of what a core can send.
const MAX_SYNS: u64 = 500_000_000;
/// Frames that one system call sends.
const BATCH: usize = 64;
/// Ethernet, IPv4 without options, TCP without options.
const ETHERNET: usize = 14;
const IP: usize = 20;
const FRAME: usize = ETHERNET + IP + 20;

/// A flood under way. Dropping it ends it.
pub(super) struct Flood {
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Begins to flood the server from this machine, by this core.
    pub fn start(machine: &Arc<Namespace>, core: usize) -> Result<Self, Trouble> {
        let (sent, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (machine, sends, stopped) = (Arc::clone(machine), Arc::clone(&sent), Arc::clone(&stop));
        let run = move || {
            let enter = || machine.enter().and_then(|()| cpu::bind(0, core)).map_err(system("its machine"));
            if let Err(error) = enter().and_then(|()| send(&machine, MAX_SYNS, &sends, &stopped)) {
                tracing::error!(%error, "the flood has ended");
            }
        };
        let thread = std::thread::Builder::new().name("flood".into()).spawn(run);
        Ok(Self { sent, stop, thread: Some(thread.map_err(system("a thread for the flood"))?) })
    }

    /// SYNs sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Whether it has ended before it was told to.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // A panic has been reported by its thread.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Sends at most so many SYNs, until told to stop.
///
/// # Errors
/// The calling thread is not in that namespace, or the kernel refuses.
pub(super) fn send(
    machine: &Namespace,
    most: u64,
    sent: &AtomicU64,
    stop: &AtomicBool,
) -> Result<(), Trouble> {
    if !machine.is_current().map_err(system("the namespace of this thread"))? {
        return Err(Trouble::Outside);
    }
    let socket = open(CLIENT_INTERFACE).map_err(system("a raw socket"))?;
    let mut frames = vec![frame(); BATCH];
    let mut parts: Vec<libc::iovec> = frames
        .iter_mut()
        .map(|frame| libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: FRAME })
        .collect();
    let mut number = 0u64;
    while number < most && !stop.load(Relaxed) {
        let batch = BATCH.min((most - number) as usize);
        for frame in &mut frames[..batch] {
            stamp(frame, number);
            number += 1;
        }
        let taken = send_all(&socket, &mut parts[..batch]).map_err(system("sending SYNs"))?;
        sent.fetch_add(taken, Relaxed);
    }
    Ok(())
}

/// Sends these frames; returns how many the interface has taken. A full queue drops the others.
fn send_all(socket: &OwnedFd, parts: &mut [libc::iovec]) -> io::Result<u64> {
    // SAFETY: zeroed is an empty message.
    let mut messages: Vec<libc::mmsghdr> = vec![unsafe { std::mem::zeroed() }; parts.len()];
    for (message, part) in messages.iter_mut().zip(parts) {
        message.msg_hdr.msg_iov = part;
        message.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: as many messages as it is told, which point to frames that live longer than the call.
    let result = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), messages.len() as libc::c_uint, 0)
    };
    match check(result) {
        Ok(taken) => Ok(taken as u64),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR) => Ok(0),
            _ => Err(error),
        },
    }
}

/// A socket that sends whole frames over an interface.
fn open(interface: &str) -> io::Result<OwnedFd> {
    let name = CString::new(interface).map_err(io::Error::other)?;
    // SAFETY: a string that ends with a zero; zeroed is a valid address; the lengths are those of what is
    // pointed to.
    unsafe {
        let fd = check(libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0))?;
        let fd = OwnedFd::from_raw_fd(fd);
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        if to.sll_ifindex == 0 {
            return Err(io::Error::last_os_error());
        }
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        check(libc::bind(fd.as_raw_fd(), (&raw const to).cast(), length))?;
        let bypass: libc::c_int = 1;
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        let bypass = (&raw const bypass).cast();
        check(libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, bypass, length))?;
        Ok(fd)
    }
}

/// A SYN to the server whose sender [`stamp`] writes.
pub(super) fn frame() -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[0..6].copy_from_slice(&SERVER_MAC);
    frame[6..12].copy_from_slice(&FLOOD_MAC);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let to: SocketAddrV4 = SERVER;
    let ip = &mut frame[ETHERNET..];
    // Version and length of the head; length of the packet; don't fragment; hops; TCP.
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((FRAME - ETHERNET) as u16).to_be_bytes());
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = 6;
    ip[16..20].copy_from_slice(&to.ip().octets());
    let tcp = &mut ip[IP..];
    tcp[2..4].copy_from_slice(&to.port().to_be_bytes());
    // Length of the head, SYN, window.
    tcp[12] = 0x50;
    tcp[13] = 0x02;
    tcp[14..16].copy_from_slice(&65_535u16.to_be_bytes());
    frame
}

/// Makes it the SYN of this number: sender, port, sequence number, checksums.
pub(super) fn stamp(frame: &mut [u8; FRAME], number: u64) {
    // A bijection that spreads numbers over all bits (a step of SplitMix64).
    let mixed = (number ^ (number >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let host = (mixed >> 40) as u32 & 0x1_ffff;
    let port = 1024 + (mixed >> 20) as u16 % 64_000;
    let ip = &mut frame[ETHERNET..];
    ip[12..16].copy_from_slice(&(u32::from(FLOOD_FROM) | host).to_be_bytes());
    ip[10..12].fill(0);
    let sum = checksum(&ip[..IP], 0);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let tcp = &mut ip[IP..];
    tcp[0..2].copy_from_slice(&port.to_be_bytes());
    tcp[4..8].copy_from_slice(&(mixed as u32).to_be_bytes());
    tcp[16..18].fill(0);
    // The addresses count too, and protocol and length (RFC 9293, section 3.1).
    let (head, tcp) = ip.split_at_mut(IP);
    let addresses = head[12..20].chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = checksum(tcp, addresses.sum::<u32>() + 6 + tcp.len() as u32);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
}

/// The Internet checksum (RFC 1071) of an even number of bytes, on top of a sum.
pub(super) fn checksum(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum = start + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
