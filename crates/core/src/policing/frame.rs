//! Reads a connection request from an Ethernet frame: the reference of `bpf/frame.h`.
//!
//! A frame is a connection request if its IP packet carries a TCP header with SYN and without ACK, RST and
//! FIN. Everything else is no concern of policing, and neither is a frame that is malformed: the stack
//! drops it without help, and a program that guessed what it means would be wrong one day.
//!
//! ```text
//! Ethernet ─► up to 2 VLAN tags ─► IPv4, with options       ─► TCP
//!                               └► IPv6 ─► extension headers ┘
//! ```
//!
//! **Fragments.** Fragments after the first have no TCP header and pass: they are of no use without the
//! first. A first fragment may be cut before the flags, or before the options that the header promises. It
//! counts as a connection request if it could be one; otherwise a flood of cut SYNs would not be policed
//! (RFC 1858). No other segment is ever cut like that, since every link carries 68 bytes.
//!
//! Checksums are not verified: the stack does, and a forged one only wastes the sender's own bucket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::rules::Syn;

/// VLAN tags that are read: a provider's and a customer's.
const MAX_TAGS: usize = 2;
/// Extension headers that are read. RFC 8200 recommends at most seven.
const MAX_EXTENSIONS: usize = 8;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: [u16; 2] = [0x8100, 0x88a8];

const TCP: u8 = 6;
/// Hop-by-hop options, routing, destination options, mobility, host identity, shim6: all have a length in
/// units of 8 bytes, the first not counted.
const EXTENSIONS: [u8; 6] = [0, 43, 60, 135, 139, 140];
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

const TCP_HEADER: usize = 20;

/// What stands behind the IP header.
struct Segment<'a> {
    bytes: &'a [u8],
    /// Whether more fragments follow.
    is_cut: bool,
}

/// The connection request in `frame`, if it is one.
pub fn read(frame: &[u8]) -> Option<Syn> {
    let mut ethertype = word(frame, 12)?;
    let mut rest = &frame[14..];
    for _ in 0..MAX_TAGS {
        if ETHERTYPE_VLAN.contains(&ethertype) {
            ethertype = word(rest, 2)?;
            rest = &rest[4..];
        }
    }
    let (src, dst, segment) = match ethertype {
        ETHERTYPE_IPV4 => ipv4(rest)?,
        ETHERTYPE_IPV6 => ipv6(rest)?,
        _ => return None,
    };
    let (sport, dport) = (word(segment.bytes, 0)?, word(segment.bytes, 2)?);
    is_request(&segment).then_some(Syn { src, dst, sport, dport })
}

/// Big-endian.
fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn ipv4(packet: &[u8]) -> Option<(IpAddr, IpAddr, Segment<'_>)> {
    let header = packet.get(..20)?;
    let header_length = usize::from(header[0] & 0x0f) * 4;
    let length = usize::from(word(packet, 2)?);
    let fragment = word(packet, 6)?;
    let is_sound = header[0] >> 4 == 4 && header_length >= 20 && length >= header_length;
    // An offset: a fragment after the first.
    if !is_sound || fragment & 0x1fff != 0 || header[9] != TCP {
        return None;
    }
    // What lies behind the packet pads the frame.
    let bytes = packet.get(header_length..length)?;
    let address = |at: usize| {
        let bytes: [u8; 4] = header[at..at + 4].try_into().expect("4 bytes");
        IpAddr::V4(Ipv4Addr::from(bytes))
    };
    Some((address(12), address(16), Segment { bytes, is_cut: fragment & 0x2000 != 0 }))
}

fn ipv6(packet: &[u8]) -> Option<(IpAddr, IpAddr, Segment<'_>)> {
    let header = packet.get(..40)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let mut bytes = packet.get(40..40 + usize::from(word(packet, 4)?))?;
    let mut next = header[6];
    let mut is_cut = false;
    for _ in 0..MAX_EXTENSIONS {
        if next == TCP {
            break;
        }
        let extension = bytes.get(..8)?;
        let length = match next {
            FRAGMENT => {
                let fragment = word(extension, 2)?;
                if fragment & 0xfff8 != 0 {
                    return None;
                }
                is_cut |= fragment & 1 != 0;
                8
            }
            AUTHENTICATION => (usize::from(extension[1]) + 2) * 4,
            _ if EXTENSIONS.contains(&next) => (usize::from(extension[1]) + 1) * 8,
            _ => return None,
        };
        next = extension[0];
        bytes = bytes.get(length..)?;
    }
    let address = |at: usize| {
        let bytes: [u8; 16] = header[at..at + 16].try_into().expect("16 bytes");
        IpAddr::V6(Ipv6Addr::from(bytes))
    };
    (next == TCP).then(|| (address(8), address(24), Segment { bytes, is_cut }))
}

/// Whether a segment, or what a first fragment shows of it, asks for a connection.
fn is_request(segment: &Segment<'_>) -> bool {
    let Some(&flags) = segment.bytes.get(13) else { return segment.is_cut };
    let length = segment.bytes.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
    let is_whole = length >= TCP_HEADER && segment.bytes.len() >= length;
    flags & (SYN | ACK | RST | FIN) == SYN && (is_whole || segment.is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRC: [u8; 4] = [10, 0, 0, 1];
    const DST: [u8; 4] = [10, 0, 0, 2];

    fn tcp(flags: u8) -> Vec<u8> {
        let mut segment = vec![0; TCP_HEADER];
        segment[..4].copy_from_slice(&[0x30, 0x39, 0, 80]);
        segment[12] = 5 << 4;
        segment[13] = flags;
        segment
    }

    fn ethernet(ethertypes: &[u16], packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        for (i, ethertype) in ethertypes.iter().enumerate() {
            frame.extend(ethertype.to_be_bytes());
            if i + 1 < ethertypes.len() {
                frame.extend([0, 7]);
            }
        }
        frame.extend(packet);
        frame
    }

    fn v4(options: &[u8], fragment: u16, segment: &[u8]) -> Vec<u8> {
        let header_length = 20 + options.len();
        let mut packet = vec![0; 20];
        packet[0] = 0x40 | (header_length / 4) as u8;
        packet[2..4].copy_from_slice(&((header_length + segment.len()) as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[9] = TCP;
        packet[12..16].copy_from_slice(&SRC);
        packet[16..20].copy_from_slice(&DST);
        packet.extend(options);
        packet.extend(segment);
        packet
    }

    /// `extensions`: type and bytes of each, in order; the first byte of each is filled in.
    fn v6(extensions: &[(u8, Vec<u8>)], last: u8, segment: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[23] = 1;
        packet[39] = 2;
        packet[6] = extensions.first().map_or(last, |(kind, _)| *kind);
        for (i, (_, bytes)) in extensions.iter().enumerate() {
            packet.push(extensions.get(i + 1).map_or(last, |(kind, _)| *kind));
            packet.extend(&bytes[1..]);
        }
        packet.extend(segment);
        let length = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        packet
    }

    fn expected_v4() -> Option<Syn> {
        Some(Syn { src: SRC.into(), dst: DST.into(), sport: 12345, dport: 80 })
    }

    #[test]
    fn bare_syns_alone() {
        let read = |flags| read(&ethernet(&[ETHERTYPE_IPV4], &v4(&[], 0, &tcp(flags))));
        for flags in 0..=u8::MAX {
            let is_bare = flags & (SYN | ACK | RST | FIN) == SYN;
            assert_eq!(read(flags), if is_bare { expected_v4() } else { None }, "{flags:#x}");
        }
    }

    #[test]
    fn vlan_tags_and_options() {
        let packet = v4(&[7; 12], 0, &tcp(SYN));
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
            let ethertypes = [tags, &[ETHERTYPE_IPV4]].concat();
            assert_eq!(read(&ethernet(&ethertypes, &packet)), expected_v4(), "{tags:x?}");
        }
        assert_eq!(read(&ethernet(&[0x8100, 0x8100, 0x8100, ETHERTYPE_IPV4], &packet)), None);
        // A padded frame.
        let padded = [ethernet(&[ETHERTYPE_IPV4], &packet), vec![0; 6]].concat();
        assert_eq!(read(&padded), expected_v4());
    }

    #[test]
    fn extension_headers() {
        let plain = |length: u8| [vec![0, length - 1], vec![0; usize::from(length) * 8 - 2]].concat();
        let authentication = [vec![0, 4], vec![0; 22]].concat();
        let read = |extensions: &[(u8, Vec<u8>)]| {
            read(&ethernet(&[ETHERTYPE_IPV6], &v6(extensions, TCP, &tcp(SYN)))).is_some()
        };
        assert!(read(&[]));
        assert!(read(&[(0, plain(1)), (43, plain(3)), (60, plain(2)), (AUTHENTICATION, authentication)]));
        assert!(read(&vec![(60, plain(1)); MAX_EXTENSIONS]));
        assert!(!read(&vec![(60, plain(1)); MAX_EXTENSIONS + 1]));
        assert!(!read(&[(50, plain(1))]), "encrypted");
        assert!(!read(&[(59, plain(1))]), "no next header");
    }

    #[test]
    fn fragments() {
        let v4_read =
            |fragment, segment: &[u8]| read(&ethernet(&[ETHERTYPE_IPV4], &v4(&[], fragment, segment)));
        let syn = tcp(SYN);
        assert_eq!(v4_read(0x2000, &syn), expected_v4(), "the first");
        assert_eq!(v4_read(0x2003, &syn), None, "a later one");
        assert_eq!(v4_read(0x0003, &syn), None, "the last");
        assert_eq!(v4_read(0x2000, &syn[..8]), expected_v4(), "cut before the flags");
        assert_eq!(v4_read(0x0000, &syn[..8]), None, "short, and no fragment");
        let mut long = tcp(SYN);
        long[12] = 10 << 4;
        assert_eq!(v4_read(0x2000, &long), expected_v4(), "cut within its options");
        assert_eq!(v4_read(0x0000, &long), None);
        assert_eq!(v4_read(0x2000, &tcp(ACK)), None);
        let fragment = |offset: u16| (FRAGMENT, [&[0, 0][..], &offset.to_be_bytes(), &[0; 4]].concat());
        let v6_read = |offset, segment: &[u8]| {
            read(&ethernet(&[ETHERTYPE_IPV6], &v6(&[fragment(offset)], TCP, segment)))
        };
        assert!(v6_read(1, &syn).is_some() && v6_read(1, &syn[..8]).is_some());
        assert!(v6_read(0, &syn).is_some(), "a whole packet with a fragment header");
        assert!(v6_read(8, &syn).is_none() && v6_read(9, &syn).is_none() && v6_read(0, &syn[..8]).is_none());
    }

    #[test]
    fn cut_anywhere_it_is_no_request() {
        let frames = [ethernet(&[0x8100, ETHERTYPE_IPV4], &v4(&[1; 4], 0, &tcp(SYN))), {
            let extension = (0, vec![0; 8]);
            ethernet(&[ETHERTYPE_IPV6], &v6(&[extension], TCP, &tcp(SYN)))
        }];
        for frame in frames {
            assert!(read(&frame).is_some());
            for length in 0..frame.len() {
                assert_eq!(read(&frame[..length]), None, "{length} bytes");
            }
        }
    }
}
