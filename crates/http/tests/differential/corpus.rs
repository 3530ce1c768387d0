//! Where the random messages come from.

use rand::Rng;
use rand::rngs::SmallRng;

use super::Subject;

/// Bytes with a meaning to a parser.
const SPICE: &[u8] = b"\r\n\t\0 :;,/?#%\\\"{}`^|[]@*\x0b\x0c\x7f\x80\xff0123789afFgxZ-_";

/// Pieces with a meaning to a parser.
const WORDS: &[&str] = &[
    "\r\n",
    "\r\n\r\n",
    "\r\n ",
    "\n",
    "\r",
    "HTTP/1.1",
    "HTTP/1.0",
    "Host: a\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "chunked",
    "identity",
    ", ",
    "gzip, chunked",
    "0\r\n\r\n",
    "5\r\nhello\r\n",
    "0",
    "ffffffffffffffff",
    "9223372036854775808",
    "X-Sum: 1\r\n",
    "GET /next HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "Upgrade: h2c\r\n",
    "http://a/",
];

const MORE_REQUESTS: &[&str] = &[
    "GET /a/b?c=d HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: Mozilla/5.0\r\nAccept: */*\r\nCookie: a=b\r\n\r\n",
    "POST http://a.example:80/x HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: 5\r\n\r\nhello",
    "PUT / HTTP/1.1\r\nHost: [::1]:80\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "OPTIONS * HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
];

const MORE_RESPONSES: &[&str] = &[
    "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Type: text/html\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
    "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end",
];

/// Messages to start from.
pub struct Corpus(Vec<Vec<u8>>);

/// The messages of a subject.
pub fn of(subject: Subject) -> Corpus {
    let (cases, more) = match subject {
        Subject::Requests => (include_str!("../conformance/requests.txt"), MORE_REQUESTS),
        Subject::Responses => (include_str!("../conformance/responses.txt"), MORE_RESPONSES),
        Subject::Contents => {
            (include_str!("../conformance/contents.txt"), &["5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n"][..])
        }
    };
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for line in cases.lines() {
        match line.split_at_checked(2) {
            Some(("# ", _)) => messages.push(Vec::new()),
            // Limits have cases of their own: repetitions are written once.
            Some(("> ", bytes)) if bytes != "\\$" => messages.last_mut().unwrap().extend(unescaped(bytes)),
            _ => {}
        }
    }
    // As many plain messages as special ones.
    for i in 0..messages.len() {
        messages.push(more[i % more.len()].as_bytes().to_vec());
    }
    Corpus(messages)
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        bytes.push(match b {
            b'\\' => match rest.next() {
                Some(b'r') => b'\r',
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'x') => {
                    let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16)).unwrap() as u8;
                    digit() << 4 | digit()
                }
                other => other.unwrap(),
            },
            plain => plain,
        });
    }
    bytes
}

impl Corpus {
    /// Makes a message of another.
    pub fn mutate(&self, rng: &mut SmallRng, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.0[rng.random_range(0..self.0.len())]);
        for _ in 0..rng.random_range(0..5) {
            let at = rng.random_range(0..=out.len());
            let end = (at + rng.random_range(1..16)).min(out.len());
            match rng.random_range(0..8) {
                0 if at < out.len() => out[at] = SPICE[rng.random_range(0..SPICE.len())],
                1 if at < out.len() => out[at] = rng.random(),
                2 => out.insert(at, SPICE[rng.random_range(0..SPICE.len())]),
                3 => drop(out.drain(at..end)),
                4 => {
                    let word = WORDS[rng.random_range(0..WORDS.len())].as_bytes();
                    out.splice(at..at, word.iter().copied());
                }
                5 => {
                    // A piece comes again, elsewhere.
                    let from = out.len();
                    out.extend_from_within(at..end);
                    let to = rng.random_range(0..=from);
                    out[to..].rotate_right(end - at);
                }
                6 => {
                    // A piece of another message.
                    let other = &self.0[rng.random_range(0..self.0.len())];
                    let from = rng.random_range(0..=other.len());
                    let to = (from + rng.random_range(1..64)).min(other.len());
                    out.splice(at..end, other[from..to].iter().copied());
                }
                _ if rng.random_ratio(1, 8) => out.truncate(at),
                _ => {}
            }
        }
    }
}
