//! Who has which address in a testbed.

use std::net::{Ipv4Addr, SocketAddrV4};

use ipnet::Ipv4Net;

/// The network that all machines are in.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 0);
/// Where the server is asked.
pub(super) const PORT: u16 = 80;
pub(super) const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), PORT);
pub(super) const SERVER_MAC: [u8; 6] = [2, 0, 0, 77, 0, 1];
/// Whom the flood comes from: addresses for tests of network devices (RFC 2544), which nobody has.
pub(super) const FLOOD_FROM: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
pub(super) const FLOOD_PREFIX: u8 = 15;
pub(super) const FLOOD_MACHINE: Ipv4Addr = Ipv4Addr::new(10, 77, 250, 1);
pub(super) const FLOOD_MAC: [u8; 6] = [2, 0, 0, 77, 250, 1];

/// The addresses of a group of clients.
pub(super) fn machines_of(group: usize) -> Ipv4Net {
    Ipv4Net::new_assert(machine(group, 0), 24)
}

/// A machine of a group, from 1.
pub(super) fn machine(group: usize, number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(NETWORK) + ((group as u32 + 1) << 8) + number)
}
