//! Network interfaces: their names, and which XDP program they have, asked of the kernel by rtnetlink.
//!
//! Neither `aya` nor a file answers the latter. Written by hand, since it is one request with one answer.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::KernelError;

const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const NESTED: u16 = 1 << 15;

/// Headers of netlink and of a link message.
const NLMSG_HEADER: usize = 16;
const IFINFO: usize = 16;

/// The index of an interface in the network namespace of this thread.
pub fn index_of(interface: &str) -> Result<u32, KernelError> {
    let unknown = || KernelError::NoInterface(interface.into());
    let name = CString::new(interface).map_err(|_| unknown())?;
    // SAFETY: a string that ends with a zero, which is only read.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(unknown()),
        index => Ok(index),
    }
}

/// An interface as the kernel describes it.
#[derive(Default)]
pub struct Link {
    /// The id of its XDP program.
    pub xdp_program: Option<u32>,
    pub is_up: bool,
    /// What kind of virtual interface it is.
    pub kind: Option<String>,
}

/// Asks for an interface of the network namespace of this thread.
pub fn describe(index: u32) -> io::Result<Link> {
    let answer = ask(index)?;
    let flags = answer.get(NLMSG_HEADER + 8..NLMSG_HEADER + 12).and_then(number).unwrap_or(0);
    let attributes = answer.get(NLMSG_HEADER + IFINFO..).unwrap_or_default();
    let xdp = attribute(attributes, IFLA_XDP).unwrap_or_default();
    let id = [IFLA_XDP_PROG_ID, IFLA_XDP_DRV_PROG_ID, IFLA_XDP_SKB_PROG_ID]
        .into_iter()
        .find_map(|kind| number(attribute(xdp, kind)?));
    let kind = attribute(attributes, IFLA_LINKINFO).and_then(|info| attribute(info, IFLA_INFO_KIND));
    let kind = kind.map(|kind| String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned());
    Ok(Link { xdp_program: id.filter(|id| *id != 0), is_up: flags & libc::IFF_UP as u32 != 0, kind })
}

/// Names and indices of the interfaces of the network namespace of this thread.
pub fn interfaces() -> Vec<(String, u32)> {
    // SAFETY: the list is read up to the entry that ends it, and then given back.
    unsafe {
        let list = libc::if_nameindex();
        let mut found = Vec::new();
        let mut entry = list;
        while !entry.is_null() && !(*entry).if_name.is_null() {
            found.push((CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned(), (*entry).if_index));
            entry = entry.add(1);
        }
        if !list.is_null() {
            libc::if_freenameindex(list);
        }
        found
    }
}

/// The interfaces, in the network namespace of this thread, at which connections to `addresses` arrive: those
/// that have the addresses; for an unspecified one all that are up, except the loopback interface.
pub fn interfaces_of(addresses: &[SocketAddr]) -> Vec<String> {
    let is_any = addresses.iter().any(|address| address.ip().is_unspecified());
    let is_loopback = addresses.iter().any(|address| address.ip().to_canonical().is_loopback());
    let has = |of: IpAddr| addresses.iter().any(|address| address.ip().to_canonical() == of);
    let mut found = BTreeSet::new();
    for Assigned { interface, flags, address } in assigned() {
        let is_up = flags & libc::IFF_UP as u32 != 0;
        let is_wanted = match flags & libc::IFF_LOOPBACK as u32 != 0 {
            // Every address of 127.0.0.0/8 is its, also one that it does not name.
            true => is_loopback || address.is_some_and(has),
            false => is_up && is_any || address.is_some_and(has),
        };
        if is_wanted {
            found.insert(interface);
        }
    }
    found.into_iter().collect()
}

/// An interface with one of its addresses.
struct Assigned {
    interface: String,
    flags: u32,
    address: Option<IpAddr>,
}

fn assigned() -> Vec<Assigned> {
    let mut found = Vec::new();
    // SAFETY: the list is read up to its end, and then given back. An address is as long as its family says.
    unsafe {
        let mut list = std::ptr::null_mut();
        if libc::getifaddrs(&raw mut list) != 0 {
            return found;
        }
        let mut entry = list;
        while !entry.is_null() {
            let interface = CStr::from_ptr((*entry).ifa_name).to_string_lossy().into_owned();
            let address = address_of((*entry).ifa_addr);
            found.push(Assigned { interface, flags: (*entry).ifa_flags, address });
            entry = (*entry).ifa_next;
        }
        libc::freeifaddrs(list);
    }
    found
}

/// # Safety
/// Null, or an address as long as its family says.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: as the caller says.
    unsafe {
        match libc::c_int::from((*address).sa_family) {
            libc::AF_INET => {
                let bits = (*address.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                Some(Ipv4Addr::from(u32::from_be(bits)).into())
            }
            libc::AF_INET6 => {
                Some(Ipv6Addr::from((*address.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().expect("4 bytes")))
}

/// RTM_GETLINK for one interface, and the message that answers it.
fn ask(index: u32) -> io::Result<Vec<u8>> {
    // SAFETY: no pointers.
    let fd =
        unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut request = Vec::with_capacity(NLMSG_HEADER + IFINFO);
    request.extend(((NLMSG_HEADER + IFINFO) as u32).to_ne_bytes());
    request.extend(libc::RTM_GETLINK.to_ne_bytes());
    request.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request.extend([0; 8]);
    request.extend([0; 4]);
    request.extend(index.to_ne_bytes());
    request.extend([0; 8]);
    // SAFETY: the buffer is as long as said.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = vec![0; 32 * 1024];
    // SAFETY: the buffer is as long as said.
    let length = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    answer.truncate(length as usize);
    let kind = answer.get(4..6).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
    if kind != Some(libc::RTM_NEWLINK) {
        return Err(io::Error::other("the kernel does not describe the interface"));
    }
    Ok(answer)
}

/// The contents of the first attribute of a kind.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let header = bytes.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & !NESTED;
        let contents = bytes.get(4..length)?;
        if kind == wanted {
            return Some(contents);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_by_name() {
        assert!(index_of("lo").expect("every namespace has it") > 0);
        assert!(matches!(index_of("nobody0"), Err(KernelError::NoInterface(_))));
        assert!(matches!(index_of("a\0b"), Err(KernelError::NoInterface(_))));
    }

    #[test]
    fn interfaces_by_what_is_listened_at() {
        let of = |addresses: &[&str]| {
            let addresses: Vec<_> = addresses.iter().map(|text| text.parse().expect("an address")).collect();
            interfaces_of(&addresses)
        };
        assert_eq!(of(&["127.0.0.1:80"]), ["lo"]);
        assert_eq!(of(&["127.1.2.3:80", "[::1]:80"]), ["lo"]);
        assert_eq!(of(&["[::ffff:127.0.0.1]:80"]), ["lo"]);
        assert!(of(&["192.0.2.1:80"]).is_empty(), "of nobody: it is for documentation");
        assert!(!of(&["0.0.0.0:80"]).contains(&"lo".to_owned()));
        assert!(of(&["[::]:80", "127.0.0.1:81"]).contains(&"lo".to_owned()));
    }

    #[test]
    fn attributes_are_found_and_broken_ones_end_the_search() {
        let bytes = [5, 0, 1, 0, 9, 0, 0, 0, 8, 0, 43, 0x80, 1, 2, 3, 4];
        assert_eq!(attribute(&bytes, 1), Some(&[9][..]));
        assert_eq!(attribute(&bytes, IFLA_XDP), Some(&[1, 2, 3, 4][..]));
        assert_eq!(attribute(&bytes, 7), None);
        assert_eq!(attribute(&[200, 0, 1, 0, 9], 1), None);
        assert_eq!(attribute(&[0, 0, 1, 0, 9], 7), None);
    }
}
