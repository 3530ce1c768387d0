//! A whole gate in this process, in front of an origin that the test controls.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tidegate_core::measure::{Event, Snapshot};
use tidegate_core::units::Rate;
use tidegate_gateway::server::{Server, Source};
use tidegate_settings::{Capacity, Override, Settings, Unit};

/// A test that waits longer fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// An origin that answers every request, those for `/hold` only after [`Origin::release`].
pub struct Origin {
    pub address: SocketAddr,
    held: Arc<Held>,
}

#[derive(Default)]
struct Held {
    state: Mutex<HeldState>,
    changed: Condvar,
}

#[derive(Default)]
struct HeldState {
    requests: usize,
    is_released: bool,
}

impl Origin {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let held = Arc::<Held>::default();
        let shared = held.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (held, stream) = (shared.clone(), stream.unwrap());
                std::thread::spawn(move || answer(stream, &held));
            }
        });
        Self { address, held }
    }

    /// Waits until a request is held.
    pub fn holds(&self) {
        let state = self.held.state.lock().unwrap();
        let (_state, wait) =
            self.held.changed.wait_timeout_while(state, PATIENCE, |state| state.requests == 0).unwrap();
        assert!(!wait.timed_out(), "no request is held");
    }

    pub fn release(&self) {
        self.held.state.lock().unwrap().is_released = true;
        self.held.changed.notify_all();
    }
}

fn answer(mut stream: TcpStream, held: &Held) {
    while let Some(head) = read_head(&mut stream) {
        if head.starts_with("GET /hold") {
            let mut state = held.state.lock().unwrap();
            state.requests += 1;
            held.changed.notify_all();
            drop(held.changed.wait_while(state, |state| !state.is_released).unwrap());
        }
        if head.starts_with("GET /drip") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
            let _ = stream.read(&mut [0]); // until the gate gives up
            return;
        }
        if head.starts_with("GET /tunnel") {
            let _ = stream.write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n",
            );
            let mut bytes = [0; 64];
            while let Ok(n @ 1..) = stream.read(&mut bytes) {
                let _ = stream.write_all(&bytes[..n]);
            }
            return;
        }
        if head.starts_with("GET /lite") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlite");
            continue;
        }
        let fields =
            if head.starts_with("GET /public") { "Cache-Control: public, max-age=60\r\n" } else { "" };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n{fields}\r\nserved");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A whole head; `None` at the end of the stream.
pub fn read_head(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// A gate with a state directory of its own; stopped when dropped.
pub struct Gate {
    pub http: SocketAddr,
    pub admin: SocketAddr,
    server: Option<Server>,
    state: PathBuf,
}

impl Gate {
    /// Starts a gate with one worker on ephemeral ports. `ORIGIN` in `toml` stands for the origin's address.
    pub fn start(origin: &Origin, toml: &str) -> Self {
        Self::start_with(origin, toml, |_| Vec::new())
    }

    /// As [`Gate::start`]. A reload reads only the overrides, made from the state directory.
    pub fn start_with(origin: &Origin, toml: &str, overrides: impl FnOnce(&Path) -> Vec<Override>) -> Self {
        Self::begin(origin.address, toml, |state| Source { file: None, overrides: overrides(state) })
    }

    /// As [`Gate::start_with`], in front of any origin.
    pub fn before(origin: SocketAddr, toml: &str, overrides: impl FnOnce(&Path) -> Vec<Override>) -> Self {
        Self::begin(origin, toml, |state| Source { file: None, overrides: overrides(state) })
    }

    fn begin(origin: SocketAddr, toml: &str, source: impl FnOnce(&Path) -> Source) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let state = std::env::temp_dir().join(format!("tidegate-whole-{}-{n}", std::process::id()));
        Self::run(origin, toml, state, source)
    }

    /// Stops it, and starts it again with this configuration.
    pub fn restarted(mut self, origin: &Origin, toml: &str) -> Self {
        self.server.take().unwrap().stop();
        Self::run(origin.address, toml, std::mem::take(&mut self.state), |_| Source::default())
    }

    fn run(origin: SocketAddr, toml: &str, state: PathBuf, source: impl FnOnce(&Path) -> Source) -> Self {
        let mut settings = Settings::parse(&toml.replace("ORIGIN", &origin.to_string()), "test").unwrap();
        // Requests are admitted one by one, unless the test is about sessions.
        if !toml.contains("unit = ") {
            settings.room.unit = Unit::Request;
        }
        // Every request is admitted, unless the test sets a capacity.
        if settings.capacity == Capacity::default() {
            settings.capacity.rate = Rate::MAX.get();
        }
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        settings.listen.http = loopback.into();
        settings.listen.admin = loopback;
        // One, unless the test is about several.
        settings.listen.workers = settings.listen.workers.max(1);
        settings.room.state_dir = Some(state.clone());
        let server = Server::start(settings, source(&state)).unwrap();
        Self { http: server.http(), admin: server.admin(), server: Some(server), state }
    }

    /// As [`Gate::start`], with a file that [`Gate::reload`] changes.
    pub fn start_from_file(origin: &Origin, toml: &str) -> Self {
        Self::begin(origin.address, toml, |state| Source {
            file: Some(state.join("gate.toml")),
            overrides: Vec::new(),
        })
    }

    /// As [`Gate::start_from_file`], in a state directory that `prepare` fills.
    pub fn start_from_file_with(origin: &Origin, toml: &str, prepare: impl FnOnce(&Path)) -> Self {
        Self::begin(origin.address, toml, |state| {
            prepare(state);
            Source { file: Some(state.join("gate.toml")), overrides: Vec::new() }
        })
    }

    /// Replaces the file and reloads it.
    pub fn reload(&self, origin: &Origin, toml: &str) {
        let text = toml.replace("ORIGIN", &origin.address.to_string());
        std::fs::write(self.state.join("gate.toml"), text).unwrap();
        self.server().control().store().reload().unwrap();
    }

    /// `GET` of the admin API, as JSON.
    pub fn admin(&self, target: &str) -> serde_json::Value {
        let answer = admin(self, target);
        let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
        serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"))
    }

    pub fn state(&self) -> &Path {
        &self.state
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// How often `event` has happened.
    pub fn count(&self, event: Event) -> u64 {
        let shared = self.server().shared();
        Snapshot::take(shared.shards.iter().map(|s| &**s), shared.clock.now()).event(event)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

/// Connects, with a time limit on reads.
pub fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request, which must ask for the connection to be closed, and returns the whole answer.
pub fn ask(to: SocketAddr, request: &str) -> String {
    let mut stream = connect(to);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A GET with these cookies and without `Accept`, as of a program.
pub fn get(to: SocketAddr, target: &str, cookies: &str) -> String {
    ask(
        to,
        &format!(
            "GET {target} HTTP/1.1\r\nHost: shop.example\r\nCookie: {cookies}\r\nConnection: close\r\n\r\n"
        ),
    )
}

/// The admin API's answer to a GET.
pub fn admin(gate: &Gate, target: &str) -> String {
    api(gate, "GET", target, "", "")
}

/// The admin API's answer to a request with these headers.
pub fn api(gate: &Gate, method: &str, target: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    let head =
        format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {length}\r\n");
    ask(gate.admin, &format!("{head}Connection: close\r\n\r\n{body}"))
}

/// The cookies that a browser would send back after an answer.
pub fn cookies(answer: &str) -> String {
    let set = answer
        .lines()
        .filter_map(|l| l.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case("set-cookie")));
    set.map(|(_, v)| v.split(';').next().unwrap_or_default()).collect::<Vec<_>>().join("; ")
}

/// Repeats `ask` until its answer is `good`, for [`PATIENCE`] at most.
#[expect(clippy::disallowed_methods, reason = "the patience of a test")]
pub fn until(mut ask: impl FnMut() -> String, good: impl Fn(&str) -> bool) -> String {
    let start = std::time::Instant::now();
    loop {
        let answer = ask();
        if good(&answer) {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "still: {answer}");
    }
}

/// A server whose answers, with their framing, a function makes from the heads of requests. Counts the
/// requests.
pub struct Scripted {
    pub address: SocketAddr,
    pub came: Arc<AtomicU32>,
}

impl Scripted {
    /// `answer` gets the head and the number of requests before.
    pub fn start(answer: impl Fn(&str, u32, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (came, answer) = (Arc::new(AtomicU32::new(0)), Arc::new(answer));
        let counter = came.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, counter, mut stream) = (answer.clone(), counter.clone(), stream.unwrap());
                std::thread::spawn(move || {
                    while let Some(head) = read_head(&mut stream) {
                        let n = counter.fetch_add(1, Ordering::SeqCst);
                        answer(&head, n, &mut stream);
                    }
                });
            }
        });
        Self { address, came }
    }

    pub fn came(&self) -> u32 {
        self.came.load(Ordering::SeqCst)
    }
}

/// Sends an answer with `Content-Length`.
pub fn reply(stream: &mut TcpStream, status: &str, fields: &str, body: &str) {
    let length = body.len();
    let _ = stream
        .write_all(format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n{body}").as_bytes());
}

/// Lets threads wait until it is opened.
#[derive(Default)]
pub struct Latch {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Latch {
    pub fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    pub fn wait(&self) {
        let guard = self.is_open.lock().unwrap();
        let (_guard, late) = self.changed.wait_timeout_while(guard, PATIENCE, |open| !*open).unwrap();
        assert!(!late.timed_out(), "the latch was not opened");
    }
}
