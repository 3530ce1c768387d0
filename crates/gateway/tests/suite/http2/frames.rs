//! HTTP/2 by hand: frames that no client of good will sends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::whole::harness::connect;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const ENHANCE_YOUR_CALM: u32 = 11;

#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A header block of literals without indexing and without Huffman codes (RFC 7541 6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            length(text.len(), &mut bytes);
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

/// An integer with a prefix of seven bits (RFC 7541 5.1).
fn length(n: usize, out: &mut Vec<u8>) {
    if n < 127 {
        return out.push(n as u8);
    }
    out.push(127);
    let mut rest = n - 127;
    while rest >= 128 {
        out.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    out.push(rest as u8);
}

/// The block of a GET.
pub fn get(path: &str) -> Vec<u8> {
    block(&[(":method", "GET"), (":scheme", "http"), (":authority", "shop.example"), (":path", path)])
}

/// A connection after preface and settings.
pub struct Raw(pub TcpStream);

impl Raw {
    pub fn connect(to: SocketAddr) -> Self {
        let mut stream = connect(to);
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
        Self(stream)
    }

    /// Sends as much as the gate takes: it may have ended the connection.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// The next frame; `None`: the connection has ended.
    pub fn next(&mut self) -> Option<Frame> {
        let mut header = [0; 9];
        self.fill(&mut header)?;
        let [a, b, c, kind, flags, stream @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.fill(&mut payload)?;
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.0.read_exact(bytes) {
            Ok(()) => Some(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the connection stays open"),
            Err(_) => None,
        }
    }

    /// The next frame of this kind.
    pub fn wait_for(&mut self, kind: u8) -> Option<Frame> {
        std::iter::from_fn(|| self.next()).find(|frame| frame.kind == kind)
    }

    /// The code of the GOAWAY that ends the connection; `None`: it ended without.
    pub fn goaway(&mut self) -> Option<u32> {
        let code =
            self.wait_for(GOAWAY).map(|frame| u32::from_be_bytes(frame.payload[4..8].try_into().unwrap()));
        while self.next().is_some() {}
        code
    }
}
