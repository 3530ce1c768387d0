//! A small HTTP/1.1 client on a raw socket: it sends exactly the bytes it is given and hides nothing of the
//! answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::harness::DEADLINE;

/// Fields in the order they came.
pub type Fields = Vec<(String, String)>;

/// First line and fields of a message.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// `GET / HTTP/1.1` or `HTTP/1.1 200 OK`.
    pub line: String,
    pub fields: Fields,
}

impl Head {
    /// The first field of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The request's target or the response's status.
    pub fn second_word(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    pub fn status(&self) -> u16 {
        self.second_word().parse().unwrap_or(0)
    }

    pub fn is_chunked(&self) -> bool {
        self.field("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"))
    }

    pub fn content_length(&self) -> Option<u64> {
        self.field("content-length")?.parse().ok()
    }

    pub fn closes(&self) -> bool {
        self.field("connection").is_some_and(|v| v.eq_ignore_ascii_case("close"))
    }
}

/// A complete answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// 1xx answers that came before.
    pub interim: Vec<Head>,
    pub head: Head,
    pub body: Vec<u8>,
    pub trailers: Fields,
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; `Null` if it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// One connection.
pub struct Client {
    pub stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::with_capacity(64 << 10, stream) })
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_ref())
    }

    /// A GET with extra field lines (each ended by CRLF), and its answer.
    pub fn get(&mut self, target: &str, fields: &str) -> io::Result<Answer> {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\n{fields}\r\n"))?;
        self.answer("GET")
    }

    /// Reads the answer to a request of this method, the 1xx before it included. An error of another kind
    /// than `InvalidData` means that not one byte of it came.
    pub fn answer(&mut self, method: &str) -> io::Result<Answer> {
        let mut answer = Answer::default();
        loop {
            answer.head = read_head(&mut self.stream)?;
            match answer.head.status() {
                100 | 102..=199 => answer.interim.push(answer.head.clone()),
                _ => break,
            }
        }
        let body = &mut answer.body;
        answer.trailers = self
            .body(&answer.head, method, &mut |part| body.extend_from_slice(part))
            .map_err(|e| broken(format!("in the body: {e}")))?;
        Ok(answer)
    }

    /// Reads the body that follows `head` and hands it on in parts; returns the trailers.
    pub fn body(&mut self, head: &Head, method: &str, sink: &mut dyn FnMut(&[u8])) -> io::Result<Fields> {
        if method == "HEAD" || matches!(head.status(), 101 | 204 | 304) {
            return Ok(Fields::new());
        }
        if head.is_chunked() {
            return read_chunked(&mut self.stream, sink);
        }
        let length = head.content_length();
        let copied = copy(&mut self.stream, length.unwrap_or(u64::MAX), sink)?;
        match length {
            Some(n) if copied < n => Err(broken(format!("body of {copied} bytes, {n} announced"))),
            _ => Ok(Fields::new()),
        }
    }

    /// True when the peer has closed and nothing is left to read.
    pub fn is_at_end(&mut self) -> bool {
        match self.stream.fill_buf() {
            Ok(rest) => rest.is_empty(),
            Err(e) => e.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

pub fn broken(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Reads up to and with the empty line; an end of stream before its first byte is `UnexpectedEof`.
pub fn read_head(reader: &mut impl BufRead) -> io::Result<Head> {
    let line = read_line(reader)?;
    let fields = read_fields(reader).map_err(|e| broken(format!("in the fields: {e}")))?;
    Ok(Head { line, fields })
}

fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    match line.last() {
        Some(b'\n') => {}
        Some(_) => return Err(broken("a line that breaks off")),
        None => return Err(io::ErrorKind::UnexpectedEof.into()),
    }
    let text = String::from_utf8_lossy(&line);
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn read_fields(reader: &mut impl BufRead) -> io::Result<Fields> {
    let mut fields = Fields::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Ok(fields);
        }
        let (name, value) = line.split_once(':').ok_or_else(|| broken(format!("field line {line:?}")))?;
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// Reads a chunked body; returns its trailers.
pub fn read_chunked(reader: &mut impl BufRead, sink: &mut dyn FnMut(&[u8])) -> io::Result<Fields> {
    loop {
        let line = read_line(reader)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(digits, 16).map_err(|_| broken(format!("chunk size {line:?}")))?;
        if size == 0 {
            return read_fields(reader);
        }
        if copy(reader, size, sink)? < size || !read_line(reader)?.is_empty() {
            return Err(broken("chunk not ended"));
        }
    }
}

/// Hands on at most `limit` bytes; returns how many there were.
pub fn copy(reader: &mut impl BufRead, limit: u64, sink: &mut dyn FnMut(&[u8])) -> io::Result<u64> {
    let mut limited = reader.take(limit);
    let mut copied = 0;
    loop {
        let part = limited.fill_buf()?;
        if part.is_empty() {
            return Ok(copied);
        }
        let n = part.len();
        sink(part);
        limited.consume(n);
        copied += n as u64;
    }
}
