//! How often a worker allocates memory for a request of a kept connection, from its bytes to those of the
//! answer. A program of its own, because the allocator is the program's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_gateway::server::{Server, Source};
use tidegate_settings::Settings;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_worker() {
            ALLOCATIONS.fetch_add(1, Relaxed);
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Whether this thread is a worker, by its name: it is asked without allocating.
fn is_worker() -> bool {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes (prctl(2)).
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name.starts_with(b"worker-")
}

/// Answers every request of every connection with the same bytes.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                while read_to(&mut stream, b"\r\n\r\n").is_some() {
                    let answer =
                        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\nserved";
                    stream.write_all(answer).unwrap();
                }
            });
        }
    });
    address
}

/// Reads until the bytes end so; `None` at the end of the stream.
fn read_to(stream: &mut TcpStream, end: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut part) = (Vec::new(), [0; 16 << 10]);
    while !bytes.ends_with(end) {
        match stream.read(&mut part).ok()? {
            0 => return None,
            n => bytes.extend_from_slice(&part[..n]),
        }
    }
    Some(bytes)
}

/// Sends a request and reads the answer, whose length is stated.
fn exchange(stream: &mut TcpStream, request: &[u8]) -> String {
    stream.write_all(request).unwrap();
    let (mut bytes, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        let n = stream.read(&mut part).unwrap();
        assert!(n > 0, "the gate has closed the connection");
        bytes.extend_from_slice(&part[..n]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.expect("a length") {
            return text.into_owned();
        }
    }
}

fn gate(capacity: &str, state: &str) -> Server {
    let dir = std::env::temp_dir().join(format!("tidegate-allocations-{}-{state}", std::process::id()));
    let settings = format!(
        "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nworkers = 1\n\
         [origin]\nreplicas = [\"{}\"]\n[capacity]\n{capacity}\n\
         [room]\nunit = \"request\"\nclasses = [\"shop\"]\nmax_wait = \"24h\"\nstate_dir = \"{}\"\n\
         [[class]]\nname = \"shop\"\nmatch = {{ path = \"/shop\", method = [\"GET\"] }}\n",
        origin(),
        dir.display()
    );
    let settings = Settings::parse(&settings, "test").unwrap_or_else(|e| panic!("{}", e[0]));
    Server::start(settings, Source::default()).unwrap()
}

/// Allocations a request, in the steady state.
fn per_request(stream: &mut TcpStream, request: &[u8], status: &str) -> f64 {
    const WARM_UP: u64 = 200;
    const REQUESTS: u64 = 500;
    let ask = |stream: &mut TcpStream| {
        let answer = exchange(stream, request);
        assert!(answer.starts_with(status), "{answer}");
    };
    (0..WARM_UP).for_each(|_| ask(stream));
    let before = ALLOCATIONS.load(Relaxed);
    (0..REQUESTS).for_each(|_| ask(stream));
    (ALLOCATIONS.load(Relaxed) - before) as f64 / REQUESTS as f64
}

#[test]
fn few_allocations_a_request() {
    const BROWSER: &str = "Host: shop.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0)\r\n\
        Accept-Language: de,en;q=0.5\r\nAccept-Encoding: gzip, br\r\nSec-Fetch-Dest: document\r\n\
        Cookie: session=0123456789abcdef\r\n";
    let ask = |accept: &str| format!("GET /shop?q=tide HTTP/1.1\r\n{BROWSER}Accept: {accept}\r\n\r\n");
    let (html, json) = (ask("text/html,*/*;q=0.8"), ask("application/json"));

    let open = gate("rate = 1000000.0", "open");
    let mut stream = TcpStream::connect(open.http()).unwrap();
    let forwarded = per_request(&mut stream, html.as_bytes(), "HTTP/1.1 200");
    open.stop();

    let busy = gate("rate = 1.0", "busy");
    let mut stream = TcpStream::connect(busy.http()).unwrap();
    while !exchange(&mut stream, html.as_bytes()).starts_with("HTTP/1.1 503") {}
    let page = per_request(&mut stream, html.as_bytes(), "HTTP/1.1 503");
    let answer = per_request(&mut stream, json.as_bytes(), "HTTP/1.1 503");
    busy.stop();

    println!("allocations a request: forwarded {forwarded:.1}, page {page:.1}, answer {answer:.1}");
    assert!(forwarded <= 2.0 && page <= 4.0 && answer <= 2.0, "{forwarded} {page} {answer}");
}
