//! Visitors: one that keeps cookies and comes back until it is let in, and a crowd that keeps the gate busy.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::harness::{now, pause, wait_for};
use super::http::{Answer, Client};

/// A visitor with a cookie jar.
#[derive(Clone, Default)]
pub struct Visitor {
    pub cookies: BTreeMap<String, String>,
}

impl Visitor {
    /// Asks over this connection and keeps the cookies of the answer.
    pub fn ask(&mut self, client: &mut Client, target: &str) -> io::Result<Answer> {
        let answer = client.get(target, &self.cookie_line())?;
        self.keep(&answer);
        Ok(answer)
    }

    /// Asks over a connection of its own.
    pub fn ask_once(&mut self, address: SocketAddr, target: &str) -> io::Result<Answer> {
        self.ask(&mut Client::connect(address)?, target)
    }

    /// Asks until the answer is not to wait.
    #[track_caller]
    pub fn wait_for_turn(&mut self, address: SocketAddr, target: &str) -> Answer {
        let mut client = None;
        wait_for(format!("a turn at {target}"), || {
            let mut open = match client.take() {
                Some(open) => open,
                None => Client::connect(address).ok()?,
            };
            let answer = self.ask(&mut open, target).ok()?;
            if !answer.head.closes() {
                client = Some(open);
            }
            (!is_wait(&answer)).then_some(answer)
        })
    }

    /// `Cookie: ...` with CRLF; nothing without cookies.
    pub fn cookie_line(&self) -> String {
        if self.cookies.is_empty() {
            return String::new();
        }
        let pairs: Vec<String> = self.cookies.iter().map(|(n, v)| format!("{n}={v}")).collect();
        format!("Cookie: {}\r\n", pairs.join("; "))
    }

    /// Value and name of the first ticket cookie (`tg0`, `tg1`, ...).
    pub fn ticket(&self) -> Option<(&str, &str)> {
        let is_ticket = |name: &str| name.strip_prefix("tg").is_some_and(|id| id.parse::<u8>().is_ok());
        self.cookies.iter().find(|(name, _)| is_ticket(name)).map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// Keeps the cookies of an answer and drops those it takes back.
    pub fn keep(&mut self, answer: &Answer) {
        for (_, line) in answer.head.fields.iter().filter(|(name, _)| name == "set-cookie") {
            let pair = line.split(';').next().unwrap_or_default();
            let Some((name, value)) = pair.split_once('=') else { continue };
            if line.to_ascii_lowercase().replace(' ', "").contains("max-age=0") {
                self.cookies.remove(name.trim());
            } else {
                self.cookies.insert(name.trim().into(), value.trim().into());
            }
        }
    }
}

/// Whether the answer is to wait.
pub fn is_wait(answer: &Answer) -> bool {
    answer.status() == 503 && answer.head.field("x-tidegate-status").is_some()
}

/// The remaining wait an answer names.
pub fn remaining(answer: &Answer) -> Duration {
    let json = answer.json();
    let wait = json.get("wait_s").or_else(|| json.get("wait")).and_then(serde_json::Value::as_f64);
    let retry_after = answer.head.field("retry-after").and_then(|v| v.parse().ok());
    Duration::from_secs_f64(wait.or(retry_after).expect("an answer that names the wait"))
}

/// Keep-alive connections that ask for one target without a break.
pub struct Crowd {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    served: AtomicUsize,
    errors: Mutex<Vec<String>>,
}

impl Crowd {
    pub fn start(address: SocketAddr, connections: usize, target: &'static str) -> Self {
        let shared = Arc::new(Shared::default());
        let threads = (0..connections)
            .map(|_| {
                let shared = shared.clone();
                std::thread::spawn(move || run(&shared, address, target))
            })
            .collect();
        Self { shared, threads }
    }

    pub fn served(&self) -> usize {
        self.shared.served.load(Ordering::SeqCst)
    }

    /// Waits until `more` further requests have been served (or something went wrong).
    pub fn wait_served(&self, more: usize) {
        let goal = self.served() + more;
        wait_for("the crowd to be served", || {
            let failed = !self.shared.errors.lock().expect("lock").is_empty();
            (failed || self.served() >= goal || self.threads.iter().all(JoinHandle::is_finished))
                .then_some(())
        });
    }

    /// Ends the crowd; panics if any visitor saw an error.
    #[track_caller]
    pub fn stop_without_errors(self) -> usize {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("crowd thread");
        }
        let errors = self.shared.errors.lock().expect("lock");
        assert!(errors.is_empty(), "{} errors, the first: {:?}", errors.len(), errors.first());
        self.shared.served.load(Ordering::SeqCst)
    }
}

fn run(shared: &Shared, address: SocketAddr, target: &str) {
    let mut client: Option<Client> = None;
    while !shared.stop.load(Ordering::SeqCst) {
        let reused = client.is_some();
        let Some(mut open) = client.take().or_else(|| Client::connect(address).ok()) else {
            // The gate has ended, which is no error of a request.
            pause();
            continue;
        };
        let started = now();
        match open.get(target, "") {
            Ok(answer) if answer.status() == 200 => {
                shared.served.fetch_add(1, Ordering::SeqCst);
                client = (!answer.head.closes()).then_some(open);
            }
            Ok(answer) => fail(shared, format!("status {}: {}", answer.status(), answer.text())),
            Err(e) if may_repeat(&e, reused) => {}
            Err(e) => fail(shared, format!("{e} after {:?}, reused: {reused}", started.elapsed())),
        }
    }
}

/// A connection that ends before the first byte of an answer: RFC 9112 section 9.5 lets the client repeat,
/// and every browser does. A fresh one may still be refused while the listener closes.
fn may_repeat(error: &io::Error, reused: bool) -> bool {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => reused,
        io::ErrorKind::ConnectionReset => true,
        _ => false,
    }
}

fn fail(shared: &Shared, what: String) {
    shared.errors.lock().expect("lock").push(what);
}
