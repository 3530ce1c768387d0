//! Frames for tests.

use std::net::IpAddr;

pub const SYN: u8 = 2;
pub const ACK: u8 = 16;

/// What to build.
#[derive(Clone, Debug)]
pub struct Frame {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub sport: u16,
    pub dport: u16,
    pub flags: u8,
    /// TPIDs of the VLAN tags.
    pub tags: Vec<u16>,
    /// IPv4 options, a multiple of four bytes.
    pub options: Vec<u8>,
    /// Types and bytes of extension headers, the first byte of which is filled in.
    pub extensions: Vec<(u8, Vec<u8>)>,
    /// IPv4: flags and offset of the fragment.
    pub fragment: u16,
    /// TCP options, a multiple of four bytes.
    pub tcp_options: Vec<u8>,
    pub payload: Vec<u8>,
    /// Bytes of the segment that the frame has.
    pub cut: usize,
}

impl Frame {
    pub fn syn(src: &str, sport: u16, dst: &str, dport: u16) -> Self {
        Self {
            src: src.parse().expect("src"),
            dst: dst.parse().expect("dst"),
            sport,
            dport,
            flags: SYN,
            tags: Vec::new(),
            options: Vec::new(),
            extensions: Vec::new(),
            fragment: 0,
            tcp_options: Vec::new(),
            payload: Vec::new(),
            cut: usize::MAX,
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in &self.tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 7]);
        }
        let mut segment = self.segment();
        segment.truncate(self.cut);
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header = 20 + self.options.len();
                frame.extend([8, 0, 0x40 | (header / 4) as u8, 0]);
                frame.extend(((header + segment.len()) as u16).to_be_bytes());
                frame.extend([0, 1]);
                frame.extend(self.fragment.to_be_bytes());
                frame.extend([64, 6, 0, 0]);
                frame.extend(src.octets());
                frame.extend(dst.octets());
                frame.extend(&self.options);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let extensions: usize = self.extensions.iter().map(|(_, bytes)| bytes.len()).sum();
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(((extensions + segment.len()) as u16).to_be_bytes());
                let kinds = self.extensions.iter().map(|(kind, _)| *kind).chain([6]).collect::<Vec<_>>();
                frame.extend([kinds[0], 64]);
                frame.extend(src.octets());
                frame.extend(dst.octets());
                for ((_, bytes), next) in self.extensions.iter().zip(&kinds[1..]) {
                    frame.push(*next);
                    frame.extend(&bytes[1..]);
                }
            }
            _ => panic!("addresses of one family"),
        }
        frame.extend(segment);
        frame
    }

    fn segment(&self) -> Vec<u8> {
        let mut segment = Vec::new();
        segment.extend(self.sport.to_be_bytes());
        segment.extend(self.dport.to_be_bytes());
        segment.extend(1000u32.to_be_bytes());
        segment.extend([0; 4]);
        segment.extend([(5 + self.tcp_options.len() / 4) as u8 * 16, self.flags, 0x10, 0, 0, 0, 0, 0]);
        segment.extend(&self.tcp_options);
        segment.extend(&self.payload);
        segment
    }
}

/// The Internet checksum of `bytes`, which is 0 where a correct one is among them.
pub fn checksum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Extension header of a type with options only, of `units` times 8 bytes.
pub fn extension(kind: u8, units: u8) -> (u8, Vec<u8>) {
    let mut bytes = vec![0; usize::from(units) * 8];
    bytes[1] = units - 1;
    (kind, bytes)
}

/// IPv6 fragment header: 13 bits of offset, two of zero, one for "more".
pub fn fragment(offset_and_more: u16) -> (u8, Vec<u8>) {
    let mut bytes = vec![0; 8];
    bytes[2..4].copy_from_slice(&offset_and_more.to_be_bytes());
    (44, bytes)
}
