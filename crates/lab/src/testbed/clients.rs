//! Clients as Webstone has them: each asks for a file over a connection of its own, waits for the answer, and
//! asks again. A SYN that is dropped is sent again by the client's kernel, at its own pace.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_gateway::base::clock::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::addresses::SERVER;
use super::cpu;
use super::namespace::Namespace;
use super::network::Network;
use super::spec::{ClientSpec, Testbed};
use super::trouble::{Trouble, system};

/// Pause after a connection that failed: a server that refuses at once must not be asked a million times.
const PAUSE: Duration = Duration::from_millis(10);
/// Between two looks at whether the clients shall end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the clients of a group have seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Connections over which a whole answer came.
    pub served: u64,
    pub body_bytes: u64,
    /// Their times in all, from the first SYN to the last byte.
    pub time_us: u64,
    pub failed: u64,
}

#[derive(Default)]
struct Counts {
    served: AtomicU64,
    body_bytes: AtomicU64,
    time_us: AtomicU64,
    failed: AtomicU64,
}

/// All clients of a testbed, a thread for each machine. Dropping it ends them.
pub(super) struct Clients {
    groups: Vec<Arc<Counts>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Clients {
    /// Starts them, on `core` if they share one with the server.
    pub fn start(
        testbed: &Testbed,
        network: &Network,
        core: Option<usize>,
        clock: &Arc<Clock>,
    ) -> Result<Self, Trouble> {
        let mut clients =
            Self { groups: Vec::new(), threads: Vec::new(), stop: Arc::new(AtomicBool::new(false)) };
        for (spec, machines) in testbed.clients.iter().zip(&network.clients) {
            let counts = Arc::new(Counts::default());
            clients.groups.push(Arc::clone(&counts));
            for machine in machines {
                let machine = Machine {
                    namespace: Arc::clone(machine),
                    spec: spec.clone(),
                    counts: Arc::clone(&counts),
                    clock: Arc::clone(clock),
                    stop: Arc::clone(&clients.stop),
                    core,
                };
                let thread = std::thread::Builder::new().name(format!("client-{}", spec.name));
                let started = thread.spawn(move || {
                    if let Err(error) = machine.run() {
                        tracing::error!(%error, "a client machine has not begun");
                    }
                });
                clients.threads.push(started.map_err(system("a thread for a client machine"))?);
            }
        }
        Ok(clients)
    }

    /// By group.
    pub fn seen(&self) -> Vec<Seen> {
        let seen = |counts: &Arc<Counts>| Seen {
            served: counts.served.load(Relaxed),
            body_bytes: counts.body_bytes.load(Relaxed),
            time_us: counts.time_us.load(Relaxed),
            failed: counts.failed.load(Relaxed),
        };
        self.groups.iter().map(seen).collect()
    }

    /// Whether a machine has ended before it was told to.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A panic has been reported by its thread.
            let _ = thread.join();
        }
    }
}

struct Machine {
    namespace: Arc<Namespace>,
    spec: ClientSpec,
    counts: Arc<Counts>,
    clock: Arc<Clock>,
    stop: Arc<AtomicBool>,
    core: Option<usize>,
}

impl Machine {
    fn run(self) -> io::Result<()> {
        self.namespace.enter()?;
        if let Some(core) = self.core {
            cpu::bind(0, core)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            for _ in 0..self.spec.sessions {
                let (counts, clock) = (Arc::clone(&self.counts), Arc::clone(&self.clock));
                tokio::spawn(session(self.spec.clone(), counts, clock));
            }
            while !self.stop.load(Relaxed) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        Ok(())
    }
}

async fn session(spec: ClientSpec, counts: Arc<Counts>, clock: Arc<Clock>) {
    loop {
        let began = clock.now();
        match fetch(SERVER.into(), spec.body_bytes).await {
            Ok(()) => {
                counts.time_us.fetch_add(clock.now().since(began).as_micros() as u64, Relaxed);
                counts.body_bytes.fetch_add(spec.body_bytes.into(), Relaxed);
                counts.served.fetch_add(1, Relaxed);
                if !spec.think.is_zero() {
                    tokio::time::sleep(spec.think).await;
                }
            }
            Err(_) => {
                counts.failed.fetch_add(1, Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Asks for a file of so many bytes.
///
/// # Errors
/// No connection, or an answer that is not this file.
pub(super) async fn fetch(server: SocketAddr, body_bytes: u32) -> io::Result<()> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(format!("GET /{body_bytes} HTTP/1.0\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::with_capacity(body_bytes as usize + 128);
    stream.read_to_end(&mut answer).await?;
    let body = memchr::memmem::find(&answer, b"\r\n\r\n").map(|end| answer.len() - end - 4);
    if body == Some(body_bytes as usize) { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}
