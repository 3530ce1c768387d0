//! What the programs and this crate share in maps: the structures of `bpf/rules.h` and of the two programs.

use std::net::IpAddr;

use aya::Pod;
use ipnet::IpNet;

/// Shapes of a family in one set of rules; `MAX_SHAPES` of `bpf/rules.h`.
pub const MAX_SHAPES: usize = 64;
/// Listening sockets of all addresses, priorities and workers; `MAX_SOCKETS` of `bpf/prioritise.bpf.c`.
pub const MAX_SOCKETS: usize = 4096;

/// An address, or the mask of a prefix, as the programs compare it: the words on the wire.
pub type Words = [u64; 2];

/// `struct shape`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    pub src: Words,
    pub dst: Words,
    pub sport: u16,
    pub dport: u16,
    pub pad: u32,
}

/// `struct rule_set`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RuleSet {
    pub generation: u32,
    pub shapes: [u32; 2],
    pub pad: u32,
    pub shape: [Shape; 2 * MAX_SHAPES],
}

/// `struct rule_key`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleKey {
    pub src: Words,
    pub dst: Words,
    pub sport: u16,
    pub dport: u16,
    pub generation: u32,
    pub shape: u32,
    pub pad: u32,
}

/// `struct rule`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleValue {
    pub id: u32,
    pub excess: u8,
    pub priority: u8,
    pub limit: u8,
    pub pad: u8,
    pub interval: u64,
    pub depth: u64,
}

/// `struct counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub seen: u64,
    pub passed: u64,
    pub dropped: u64,
    pub reset: u64,
    pub slowed: u64,
}

/// `struct totals`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalCounters {
    pub syns: u64,
    pub unmatched: u64,
}

/// `struct group`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pub first: u32,
    pub priorities: u32,
    pub per_priority: u32,
    pub unmatched: u32,
}

/// `struct test_clock`.
#[cfg(test)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TestClock {
    pub now: u64,
    pub step: u64,
}

// SAFETY: C layouts of whole numbers without implicit padding: the sizes below are the sums of the fields.
unsafe impl Pod for Shape {}
// SAFETY: as above.
unsafe impl Pod for RuleSet {}
// SAFETY: as above.
unsafe impl Pod for RuleKey {}
// SAFETY: as above.
unsafe impl Pod for RuleValue {}
// SAFETY: as above.
unsafe impl Pod for Counters {}
// SAFETY: as above.
unsafe impl Pod for TotalCounters {}
// SAFETY: as above.
unsafe impl Pod for Group {}
#[cfg(test)]
// SAFETY: as above.
unsafe impl Pod for TestClock {}

const _: () = assert!(size_of::<Shape>() == 40);
const _: () = assert!(size_of::<RuleSet>() == 16 + 2 * MAX_SHAPES * 40);
const _: () = assert!(size_of::<RuleKey>() == 48);
const _: () = assert!(size_of::<RuleValue>() == 24);

/// The words of an address.
pub fn words(address: IpAddr) -> Words {
    match address {
        IpAddr::V4(address) => [u32::from_ne_bytes(address.octets()).into(), 0],
        IpAddr::V6(address) => {
            let octets = address.octets();
            let half = |at: usize| u64::from_ne_bytes(octets[at..at + 8].try_into().expect("8 bytes"));
            [half(0), half(8)]
        }
    }
}

/// The words of a prefix and its mask; an open one has none.
pub fn masked(net: Option<IpNet>) -> (Words, Words) {
    net.map_or(([0; 2], [0; 2]), |net| (words(net.network()), words(net.netmask())))
}

/// A port as on the wire, and its mask.
pub fn port(port: Option<u16>) -> (u16, u16) {
    port.map_or((0, 0), |port| (port.to_be(), u16::MAX))
}
