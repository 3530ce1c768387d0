//! The PROXY protocol (haproxy.org, proxy-protocol.txt, versions 1 and 2): a header before the first byte of
//! a connection, by which a proxy that does not speak HTTP names the visitor.
//!
//! Read strictly: what is not exactly a header ends the connection, since bytes that are taken for one decide
//! who the visitor is. Values of version 2 behind the addresses (TLVs) are skipped. Written by ourselves and
//! not by the crate `ppp`: that parses text which is there as a whole, and says nothing of where it ends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tidegate_settings::ProxyHeader;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The signature of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const TEXT: &[u8; 6] = b"PROXY ";
/// Longest line of version 1, with its end.
const MAX_LINE: usize = 107;
/// Longest header of version 2: addresses are 36 bytes, certificates among the values some kilobytes.
const MAX_BINARY: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    V1,
    V2,
}

/// Whom a header names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    pub from: SocketAddr,
    pub to: SocketAddr,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a PROXY header")]
pub struct Bad;

/// The length of the header that `bytes` begins with; `None`: more bytes must tell.
fn length(bytes: &[u8], accepts: fn(Version) -> bool) -> Result<Option<usize>, Bad> {
    let begins = |with: &[u8]| {
        let n = with.len().min(bytes.len());
        with[..n] == bytes[..n]
    };
    if accepts(Version::V2) && begins(SIGNATURE) {
        let Some(head) = bytes.first_chunk::<16>() else { return Ok(None) };
        let length = 16 + usize::from(u16::from_be_bytes([head[14], head[15]]));
        let is_known = matches!(head[12], 0x20 | 0x21);
        return if is_known && length <= MAX_BINARY { Ok(Some(length)) } else { Err(Bad) };
    }
    if !accepts(Version::V1) || !begins(TEXT) {
        return Err(Bad);
    }
    match bytes.iter().take(MAX_LINE).position(|byte| *byte == b'\n') {
        Some(end) => Ok(Some(end + 1)),
        None if bytes.len() < MAX_LINE => Ok(None),
        None => Err(Bad),
    }
}

/// Reads a whole header. `None`: it names nobody (LOCAL, UNKNOWN, Unix sockets), so the connection is the
/// proxy's own.
pub fn parse(header: &[u8]) -> Result<Option<Named>, Bad> {
    if header.starts_with(SIGNATURE) { parse_binary(header) } else { parse_text(header) }
}

fn parse_text(line: &[u8]) -> Result<Option<Named>, Bad> {
    let line = line.strip_suffix(b"\r\n").ok_or(Bad)?;
    let line = std::str::from_utf8(line).map_err(|_| Bad)?.strip_prefix("PROXY ").ok_or(Bad)?;
    // What follows is of no meaning then.
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        return Ok(None);
    }
    let parts: Vec<_> = line.split(' ').collect();
    let [family, from, to, from_port, to_port] = parts[..] else { return Err(Bad) };
    let address = |text: &str| match family {
        "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::from).map_err(|_| Bad),
        "TCP6" => text.parse::<Ipv6Addr>().map(IpAddr::from).map_err(|_| Bad),
        _ => Err(Bad),
    };
    let port = |text: &str| {
        let is_plain = text == "0" || !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| is_plain).ok_or(Bad)
    };
    let from = SocketAddr::new(address(from)?, port(from_port)?);
    Ok(Some(Named { from, to: SocketAddr::new(address(to)?, port(to_port)?) }))
}

fn parse_binary(header: &[u8]) -> Result<Option<Named>, Bad> {
    let (head, rest) = header.split_first_chunk::<16>().ok_or(Bad)?;
    if head[12] & 0xf == 0 {
        return Ok(None);
    }
    let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
    match head[13] {
        // No addresses, or those of Unix sockets.
        0x00 | 0x31 => Ok(None),
        0x11 if rest.len() >= 12 => {
            let ip = |at: usize| Ipv4Addr::new(rest[at], rest[at + 1], rest[at + 2], rest[at + 3]);
            let (from, to) = ((ip(0), port(8)).into(), (ip(4), port(10)).into());
            Ok(Some(Named { from, to }))
        }
        0x21 if rest.len() >= 36 => {
            let ip = |at: usize| {
                let bytes: Result<[u8; 16], _> = rest[at..at + 16].try_into();
                bytes.map(Ipv6Addr::from).map_err(|_| Bad)
            };
            let (from, to) = ((ip(0)?, port(32)).into(), (ip(16)?, port(34)).into());
            Ok(Some(Named { from, to }))
        }
        _ => Err(Bad),
    }
}

/// Reads the header of a connection, and not a byte more.
///
/// # Errors
/// The connection fails, or does not begin with a header of a version that is accepted.
pub async fn read(stream: &mut TcpStream, accepts: fn(Version) -> bool) -> io::Result<Option<Named>> {
    let bad = |bad: Bad| io::Error::new(io::ErrorKind::InvalidData, bad);
    let (mut header, mut seen) = (Vec::with_capacity(MAX_LINE), [0; MAX_LINE]);
    loop {
        let n = stream.peek(&mut seen).await?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let before = header.len();
        header.extend_from_slice(&seen[..n]);
        let whole = length(&header, accepts).map_err(bad)?;
        // What is taken now belongs to the header: waiting for more does not ask again for the same bytes.
        let end = whole.unwrap_or(header.len());
        header.resize(end, 0);
        stream.read_exact(&mut header[before.min(end)..]).await?;
        if whole.is_some() {
            return parse(&header).map_err(bad);
        }
    }
}

/// The version that the settings ask for.
pub fn version(configured: ProxyHeader) -> Option<Version> {
    match configured {
        ProxyHeader::Off => None,
        ProxyHeader::V1 => Some(Version::V1),
        ProxyHeader::V2 => Some(Version::V2),
    }
}

/// The header that names a visitor; nobody, if it is a connection of the gate's own.
pub fn write(version: Version, named: Option<Named>) -> Vec<u8> {
    // Both of one family: IPv4 is part of IPv6.
    let named = named.map(|Named { from, to }| match (canonical(from), canonical(to)) {
        (from @ SocketAddr::V4(_), to @ SocketAddr::V4(_)) => (from, to),
        (from, to) => (widened(from), widened(to)),
    });
    match (version, named) {
        (Version::V1, None) => b"PROXY UNKNOWN\r\n".to_vec(),
        (Version::V1, Some((from, to))) => {
            let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
            let (ip, port) = ((from.ip(), to.ip()), (from.port(), to.port()));
            format!("PROXY {family} {} {} {} {}\r\n", ip.0, ip.1, port.0, port.1).into_bytes()
        }
        (Version::V2, None) => [&SIGNATURE[..], &[0x20, 0, 0, 0]].concat(),
        (Version::V2, Some((from, to))) => {
            let octets = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            let (family, length) = if from.is_ipv4() { (0x11, 12) } else { (0x21, 36) };
            let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
            let head = [&SIGNATURE[..], &[0x21, family, 0, length]].concat();
            [head, octets(from.ip()), octets(to.ip()), ports].concat()
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn widened(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    SocketAddr::new(ip.into(), address.port())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    fn any(_: Version) -> bool {
        true
    }

    /// The outcome, and where the header ended.
    fn whole(bytes: &[u8]) -> Result<(Option<Named>, usize), Bad> {
        let length = length(bytes, any)?.filter(|n| *n <= bytes.len()).ok_or(Bad)?;
        Ok((parse(&bytes[..length])?, length))
    }

    #[test]
    fn lines_are_read_exactly() {
        let named =
            |from: &str, to: &str| Ok(Some(Named { from: from.parse().unwrap(), to: to.parse().unwrap() }));
        for (line, expected) in [
            ("PROXY TCP4 192.0.2.1 198.51.100.2 5 443\r\n", named("192.0.2.1:5", "198.51.100.2:443")),
            ("PROXY TCP6 2001:db8::1 ::1 65535 0\r\n", named("[2001:db8::1]:65535", "[::1]:0")),
            ("PROXY UNKNOWN\r\n", Ok(None)),
            ("PROXY UNKNOWN 1 2 whatever\r\n", Ok(None)),
            ("PROXY UNKNOWNS\r\n", Err(Bad)),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 5 443\n", Err(Bad)),
            ("PROXY TCP4  192.0.2.1 198.51.100.2 5 443\r\n", Err(Bad)),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 5 443 \r\n", Err(Bad)),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 5\r\n", Err(Bad)),
            ("PROXY TCP4 192.0.2.01 198.51.100.2 5 443\r\n", Err(Bad)),
            ("PROXY TCP4 ::1 ::1 5 443\r\n", Err(Bad)),
            ("PROXY TCP6 192.0.2.1 192.0.2.1 5 443\r\n", Err(Bad)),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 +5 443\r\n", Err(Bad)),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 05 443\r\n", Err(Bad)),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 5 65536\r\n", Err(Bad)),
            ("PROXY UDP4 192.0.2.1 198.51.100.2 5 443\r\n", Err(Bad)),
            ("proxy TCP4 192.0.2.1 198.51.100.2 5 443\r\n", Err(Bad)),
            ("GET / HTTP/1.1\r\n", Err(Bad)),
        ] {
            let found = whole(line.as_bytes()).map(|(named, end)| {
                assert_eq!(end, line.len());
                named
            });
            assert_eq!(found, expected, "{line}");
        }
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(MAX_LINE));
        assert_eq!(whole(long.as_bytes()), Err(Bad));
    }

    #[test]
    fn binary_headers_are_read_exactly() {
        let header = |command: u8, family: u8, rest: &[u8]| {
            let length = (rest.len() as u16).to_be_bytes();
            [&SIGNATURE[..], &[command, family], &length, rest].concat()
        };
        let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0, 5, 1, 187];
        let expected =
            Some(Named { from: "192.0.2.1:5".parse().unwrap(), to: "198.51.100.2:443".parse().unwrap() });
        assert_eq!(whole(&header(0x21, 0x11, &v4)), Ok((expected, 28)));
        let with_values = [&v4[..], &[0x04, 0, 2, 1, 2]].concat();
        assert_eq!(whole(&header(0x21, 0x11, &with_values)), Ok((expected, 33)));
        // LOCAL: whatever addresses it has.
        assert_eq!(whole(&header(0x20, 0x11, &v4)), Ok((None, 28)));
        assert_eq!(whole(&header(0x21, 0x00, &[])), Ok((None, 16)));
        assert_eq!(whole(&header(0x21, 0x31, &[0; 216])), Ok((None, 232)));
        for bad in [
            header(0x21, 0x11, &v4[..11]),
            header(0x21, 0x21, &[0; 35]),
            header(0x21, 0x12, &v4),
            header(0x11, 0x11, &v4),
            header(0x22, 0x11, &v4),
            header(0x21, 0x11, &[0; MAX_BINARY]),
        ] {
            assert_eq!(whole(&bad), Err(Bad), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            from: ([u8; 16], u16),
            to: ([u8; 16], u16),
            v4: bool,
            text: bool,
            more in prop::collection::vec(prop::num::u8::ANY, 0..20),
        ) {
            let address = |(octets, port): ([u8; 16], u16)| -> SocketAddr {
                let [a, b, c, d, ..] = octets;
                match v4 {
                    true => (Ipv4Addr::new(a, b, c, d), port).into(),
                    false => (Ipv6Addr::from(octets), port).into(),
                }
            };
            let named = Named { from: address(from), to: address(to) };
            let version = if text { Version::V1 } else { Version::V2 };
            let header = write(version, Some(named));
            let sent = [&header[..], &more[..]].concat();
            let (read, end) = whole(&sent).unwrap();
            prop_assert_eq!(end, header.len());
            let read = read.unwrap();
            prop_assert_eq!(canonical(read.from), canonical(named.from));
            prop_assert_eq!(canonical(read.to), canonical(named.to));
            // Every beginning of it wants more.
            for n in 0..header.len() {
                prop_assert!(length(&header[..n], |_| true).is_ok_and(|end| end.is_none_or(|end| end > n)));
            }
        }

        #[test]
        fn anything_is_a_header_or_refused(
            bytes in prop::collection::vec(prop::num::u8::ANY, 0..200),
            begins: bool,
        ) {
            let begin = if begins { &SIGNATURE[..] } else { &TEXT[..] };
            _ = whole(&[begin, &bytes[..]].concat());
        }
    }

    #[tokio::test]
    async fn not_a_byte_behind_the_header_is_taken_however_it_comes() {
        for part in [1, 3, 1000] {
            for version in [Version::V1, Version::V2] {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let at = listener.local_addr().unwrap();
                let named = Named { from: "192.0.2.1:5".parse().unwrap(), to: at };
                let sent = [&write(version, Some(named))[..], b"GET /"].concat();
                let client = tokio::spawn(async move {
                    let mut stream = TcpStream::connect(at).await.unwrap();
                    stream.set_nodelay(true).unwrap();
                    for piece in sent.chunks(part) {
                        stream.write_all(piece).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                });
                let (mut stream, _) = listener.accept().await.unwrap();
                assert_eq!(read(&mut stream, any).await.unwrap(), Some(named));
                client.await.unwrap();
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await.unwrap();
                assert_eq!(rest, b"GET /");
            }
        }
    }
}
