//! Origins written in a test, for what nginx cannot do: trailers, 103, echoes, delayed answers.

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::harness::DEADLINE;
use super::http::{Fields, Head, copy, read_chunked, read_head};

/// One request at the origin: its head, and the connection it came on.
pub struct Exchange {
    pub head: Head,
    pub stream: BufReader<TcpStream>,
}

impl Exchange {
    /// The whole body and its trailers.
    pub fn body(&mut self) -> io::Result<(Vec<u8>, Fields)> {
        let mut body = Vec::new();
        let mut sink = |part: &[u8]| body.extend_from_slice(part);
        let trailers = if self.head.is_chunked() {
            read_chunked(&mut self.stream, &mut sink)?
        } else {
            copy(&mut self.stream, self.head.content_length().unwrap_or(0), &mut sink)?;
            Fields::new()
        };
        Ok((body, trailers))
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_ref())
    }

    /// 200 with a short body.
    pub fn ok(&mut self, body: &str) -> io::Result<()> {
        self.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    }
}

/// A listening origin, a thread per connection; closed when dropped.
pub struct Origin {
    address: SocketAddr,
    closed: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Head>>>,
}

impl Origin {
    /// `handle` answers one request; an error ends the connection.
    pub fn start(handle: impl Fn(&mut Exchange) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("origin");
        let address = listener.local_addr().expect("origin");
        let closed = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let handle = Arc::new(handle);
        let origin = Self { address, closed: closed.clone(), seen: seen.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if closed.load(Ordering::SeqCst) {
                    return;
                }
                let (handle, seen) = (handle.clone(), seen.clone());
                std::thread::spawn(move || serve(stream, &*handle, &seen));
            }
        });
        origin
    }

    /// Answers every request with 200 and `body`.
    pub fn answering(body: &'static str) -> Self {
        Self::start(move |exchange| {
            exchange.body()?;
            exchange.ok(body)
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every request head that has come, oldest first.
    pub fn seen(&self) -> Vec<Head> {
        self.seen.lock().expect("no handler panics with the lock held").clone()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then sees the flag.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    stream: TcpStream,
    handle: &(dyn Fn(&mut Exchange) -> io::Result<()> + Send + Sync),
    seen: &Mutex<Vec<Head>>,
) {
    let _ = stream.set_read_timeout(Some(DEADLINE));
    let _ = stream.set_nodelay(true);
    let mut exchange = Exchange { head: Head::default(), stream: BufReader::new(stream) };
    while let Ok(head) = read_head(&mut exchange.stream) {
        seen.lock().expect("no handler panics with the lock held").push(head.clone());
        exchange.head = head;
        if handle(&mut exchange).is_err() {
            break;
        }
    }
    let _ = exchange.stream.get_mut().shutdown(Shutdown::Both);
}
