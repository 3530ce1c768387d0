//! Starts and stops a gate: sockets first, then state, then threads.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use tidegate_core::measure::Shard;
use tidegate_core::room::{Checker, Member, PrefixKeys, Room};
use tidegate_core::session::SessionPace;
use tidegate_core::units::Timestamp;
use tokio::runtime::LocalOptions;
use tokio::sync::watch;

use crate::admin;
use crate::base::access_log::AccessWriter;
use crate::base::clock::Clock;
use crate::base::redeemed_log::RedeemedLog;
use crate::base::state_dir::StateDir;
use crate::config::{Config, ConfigError};
use crate::control::config_store::{Tuning, ticket_keys};
use crate::control::driver::{self, Control};
use crate::control::kernel::{KernelControl, syn_rules};
use crate::control::learned::Saved;
use crate::control::tcp::TcpListeners;
use crate::control::{acme, correlation, tuners};
use crate::proxy::accept::VisitorListeners;
use crate::proxy::listeners::Listeners;
use crate::proxy::{accept, tcp};
use crate::shared::accepts::Accepts;
use crate::shared::coalesce::Coalescer;
use crate::shared::gate_keeper::GateKeeper;
use crate::shared::listening::{
    ListenConfig, ListenError, Listened, Listening, ListeningSocket, listen, listen_unix,
};
use crate::shared::peers::{self, Peers};
use crate::shared::policies::PublishedPolicies;
use crate::shared::request_paths::RequestPaths;
use crate::shared::sessions::VisitorSessions;
use crate::shared::tcp::{NewSockets, TcpServices};
use crate::shared::{Drain, Shared, Worker, reached};
use crate::upstream::balance::Replicas;
use tidegate_core::admission::Admission;
use tidegate_settings::{ListenAt, Role, Settings};

pub use crate::control::config_store::Source;

/// Counters for classes that a reload adds: some 14 kB per class and worker.
const SPARE_CLASSES: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot keep state: {0} (room.state_dir)")]
    State(io::Error),
    #[error(transparent)]
    Live(#[from] ConfigError),
    /// A thread cannot be started, or the system has no randomness.
    #[error("cannot start: {0}")]
    System(io::Error),
}

pub struct Server {
    shared: Arc<Shared>,
    control: Arc<Control>,
    http: SocketAddr,
    https: Option<SocketAddr>,
    admin: SocketAddr,
    workers: Vec<JoinHandle<()>>,
    driver: JoinHandle<()>,
    _socket_file: Option<SocketFile>,
}

/// The file of a Unix socket, removed at the end.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn listen_http(
    settings: &Settings,
    config: ListenConfig,
) -> Result<(Listened, Option<SocketFile>), ListenError> {
    let key = "listen.http";
    match &settings.listen.http {
        ListenAt::Ip(address) => Ok((listen(key, *address, config)?, None)),
        ListenAt::Unix(path) => {
            let mode = u32::from_str_radix(&settings.listen.unix_mode, 8).unwrap_or(0o660);
            let listened = listen_unix(key, path, mode, config)?;
            Ok((listened, Some(SocketFile(path.clone()))))
        }
    }
}

impl Server {
    /// Starts listening and serving; returns once visitors can connect.
    ///
    /// # Errors
    /// Addresses, state or the configuration do not permit it. Nothing keeps running then.
    pub fn start(settings: Settings, source: Source) -> Result<Self, StartError> {
        let files = raise_open_files().map_err(StartError::System)?;
        let needed = settings.limits.max_connections as u64;
        if files < needed {
            tracing::warn!(
                files,
                needed,
                "the system permits fewer open files than limits.max_connections needs"
            );
        }
        // Before anything listens: no SYN comes that rules have not seen.
        let tcp_addresses = settings.tcp.iter().map(|tcp| tcp.listen);
        let visitors = settings.listen.http.ip().into_iter().chain(settings.listen.https);
        let addresses: Vec<_> = visitors.chain(tcp_addresses).collect();
        let kernel = Arc::new(KernelControl::start(&settings, &addresses));
        let config = listen_config(&settings);
        let (of_http, socket_file) = listen_http(&settings, config)?;
        let mut listened = vec![(of_http, false)];
        if let Some(https) = settings.listen.https {
            listened.push((listen("listen.https", https, config)?, true));
        }
        let http = listened[0].0.all.address();
        let https = listened.get(1).map(|(listened, _)| listened.all.address());
        if config.priorities > 1 {
            // The queue of a Unix socket is not the network's.
            let of_network = listened.iter().skip(usize::from(socket_file.is_some()));
            of_network.for_each(|(listened, _)| kernel.prioritise(&listened.fds()));
        }
        let (services, new_sockets) = TcpServices::new(config.workers);
        let tcp = Arc::new(TcpListeners::new(services.clone(), kernel.clone(), config));
        let tcp_listened = tcp.listen(&settings)?;
        let admin_listener = listen_alone(settings.listen.admin)?;
        let admin = admin_listener.local_addr().map_err(StartError::System)?;
        let state =
            StateDir::open(settings.room.state_dir.as_deref(), http.port()).map_err(StartError::State)?;
        let clock = Arc::new(Clock::new());
        let saved = Saved::read(&state);
        let (settings, tuning) = Tuning::restored(settings, &saved, clock.now());
        let visitors = listened.iter().map(|(listened, _)| listened.all.clone()).collect();
        let shared = Arc::new(share(settings, &state, clock, config, (visitors, services))?);
        tcp.put_in_force(&shared.config.load().settings, tcp_listened, &shared.clock);
        let of_acme = state.clone();
        let control = Control::new(shared.clone(), (kernel, tcp), source, state, &saved, tuning);
        let control = Arc::new(control);
        // Before anybody is accepted: rules of the API are those of an earlier process.
        syn_rules::spawn(control.kernel().clone()).map_err(StartError::System)?;
        let mut workers = Vec::with_capacity(config.workers);
        for (index, tcp) in new_sockets.into_iter().enumerate() {
            let of_worker = |(listened, is_tls): &mut (Listened, bool)| {
                let own = std::mem::take(&mut listened.of_workers[index]);
                VisitorSockets { all: listened.all.clone(), own, is_tls: *is_tls }
            };
            let sockets = WorkerSockets { visitors: listened.iter_mut().map(of_worker).collect(), tcp };
            workers.push(spawn_worker(shared.clone(), index, sockets).map_err(StartError::System)?);
        }
        let api = {
            let control = control.clone();
            move |end| admin::serve(control, admin_listener, end)
        };
        let driver = driver::spawn(control.clone(), api).map_err(StartError::System)?;
        acme::spawn(shared.clone(), of_acme).map_err(StartError::System)?;
        tuners::spawn(control.tuned_gate()).map_err(StartError::System)?;
        correlation::spawn(control.correlation().clone()).map_err(StartError::System)?;
        Ok(Self { shared, control, http, https, admin, workers, driver, _socket_file: socket_file })
    }

    pub fn http(&self) -> SocketAddr {
        self.http
    }

    pub fn https(&self) -> Option<SocketAddr> {
        self.https
    }

    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Stops accepting, lets requests in progress end within the drain timeout, and returns.
    pub fn stop(self) {
        self.control.drain();
        self.join();
    }

    /// Waits for the end, which a signal or an API call starts.
    pub fn join(self) {
        for worker in self.workers {
            if worker.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
        self.control.end();
        let _ = self.driver.join();
    }
}

/// Raises the soft limit of open files to the hard limit. The usual soft limit of 1024 exists for programs
/// that use select(2); with it the origin would become unreachable at some 500 visitors.
fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a pointer to a whole `rlimit` that lives until they return, and keep none.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

/// The admin API's listener, without SO_REUSEPORT: two gates on one address would each answer half.
fn listen_alone(address: SocketAddr) -> Result<std::net::TcpListener, ListenError> {
    let failed = |error| ListenError { key: "listen.admin".into(), address: address.to_string(), error };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Each worker has a listener for each priority, all on one address.
fn listen_config(settings: &Settings) -> ListenConfig {
    let workers = match settings.listen.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    ListenConfig { priorities: settings.priorities(), workers, backlog: settings.listen.backlog }
}

fn share(
    settings: Settings,
    state: &StateDir,
    clock: Arc<Clock>,
    ListenConfig { workers, priorities, .. }: ListenConfig,
    (visitors, tcp): (Vec<Arc<Listening>>, Arc<TcpServices>),
) -> Result<Shared, StartError> {
    let now = clock.now();
    let keys = ticket_keys(&settings, state).map_err(StartError::State)?;
    let access = AccessWriter::open(settings.log.access, settings.log.access_file.as_deref())
        .map_err(StartError::System)?;
    let replicas = Replicas::new(&settings.origin);
    let live = Config::new(settings, &keys)?;
    replicas.set_tls(live.origin_tls.clone());
    if let Some(tls) = &live.tls {
        tls.warn(now.as_millis() / 1000);
    }
    let (log, redeemed) = RedeemedLog::open(state, now);
    let member = match peers::member(&live.settings.role) {
        Some(member) => {
            let unknown_before = unknown_before(member, redeemed.is_some(), state, &live, now);
            Some((member, unknown_before.map_err(StartError::State)?))
        }
        None => None,
    };
    let sessions = VisitorSessions::new(&live, now).map_err(|e| StartError::System(io::Error::other(e)))?;
    let admission = admission(&live, member, state, sessions.pace(&live), now)
        .map_err(|e| StartError::System(io::Error::other(e)))?;
    if let Some(redeemed) = redeemed {
        admission.restore_redeemed(redeemed);
    }
    // A reload may add classes. Those beyond the spare counters are served, but not counted apart.
    let classes = live.classes.len() + SPARE_CLASSES;
    let gate = GateKeeper::new(live.gate(), clock.clone());
    let peers = Peers::new(&live.settings.role, now);
    Ok(Shared {
        clock,
        config: ArcSwap::from_pointee(live),
        generation: AtomicU64::new(0),
        admission,
        peers,
        shadow_room: Default::default(),
        gate,
        sessions,
        policies: PublishedPolicies::default(),
        coalescer: Coalescer::default(),
        replicas,
        shards: (0..workers).map(|_| Arc::new(Shard::new(classes))).collect(),
        paths: RequestPaths::new(workers),
        connections: AtomicUsize::new(0),
        accepting: AtomicUsize::new(workers * visitors.len()),
        accepts: Accepts::new(workers, priorities, visitors, tcp.clone()),
        tcp,
        busy_since_us: AtomicU64::new(0),
        draining: AtomicBool::new(false),
        drain: watch::Sender::new(Drain::No),
        upstream: parking_lot::Mutex::default(),
        access,
        redeemed: log,
    })
}

/// The instant before which nobody knows what this one of several tokenchecks has let in: a process before it
/// had another number, or left no log of redeemed tickets.
fn unknown_before(
    member: Member,
    knows_redeemed: bool,
    state: &StateDir,
    live: &Config,
    now: Timestamp,
) -> io::Result<Timestamp> {
    let saved = state.member()?.unwrap_or_default();
    let saved: Vec<u64> = String::from_utf8_lossy(&saved).split(' ').flat_map(str::parse).collect();
    if let [number, count, since_us] = saved[..]
        && knows_redeemed
        && (number, count) == (member.number.into(), member.count.into())
    {
        return Ok(Timestamp::from_micros(since_us));
    }
    // By the clock of tokengen, which tells when visitors come.
    let since = now + live.settings.room.tolerance;
    // After the log was opened: from now on it is complete.
    state.save_member(format!("{} {} {}", member.number, member.count, since.as_micros()).as_bytes())?;
    Ok(since)
}

/// `pace`: of session slots. They are counted from the first visitor on.
fn admission(
    live: &Config,
    member: Option<(Member, Timestamp)>,
    state: &StateDir,
    pace: Option<SessionPace>,
    now: Timestamp,
) -> Result<Admission, getrandom::Error> {
    if let Role::TokenCheck { .. } = live.settings.role {
        let mut checker = Checker::new(&live.room_config(), live.initial_capacity(), now);
        if let Some((member, unknown_before)) = member {
            checker = checker.one_of(member, unknown_before);
        }
        checker.pace_sessions(pace);
        let capacity = std::sync::Mutex::new(live.initial_capacity());
        return Ok(Admission::Checker { checker, capacity });
    }
    let mut keys = PrefixKeys::default();
    for key in &mut keys {
        *key = getrandom::u64()?;
    }
    let room = Room::new(live.room_config(), live.initial_capacity(), now).with_prefix_keys(keys);
    room.pace_sessions(pace);
    match state.promises() {
        Ok(Some(saved)) => match room.restore(&saved, now) {
            Ok(()) => tracing::info!(waiting = room.state(now).waiting, "promises restored"),
            Err(e) => {
                tracing::warn!(error = %e, "saved promises are not usable; starting with an empty room")
            }
        },
        Ok(None) => {}
        Err(e) => tracing::warn!(error = %e, "saved promises cannot be read; starting with an empty room"),
    }
    Ok(Admission::Room(Box::new(room)))
}

/// What a worker accepts connections with.
struct WorkerSockets {
    visitors: Vec<VisitorSockets>,
    tcp: NewSockets,
}

/// Sockets at one of the addresses for visitors.
struct VisitorSockets {
    all: Arc<Listening>,
    /// By priority.
    own: Vec<Arc<ListeningSocket>>,
    is_tls: bool,
}

impl VisitorSockets {
    fn watched(self, worker: usize) -> io::Result<VisitorListeners> {
        let listeners = Listeners::new(worker, self.all, self.own)?;
        Ok(VisitorListeners { listeners, is_tls: self.is_tls })
    }
}

fn spawn_worker(
    shared: Arc<Shared>,
    index: usize,
    WorkerSockets { visitors, tcp }: WorkerSockets,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = match builder.enable_all().build_local(LocalOptions::default()) {
            Ok(runtime) => runtime,
            Err(e) => return tracing::error!(error = %e, "cannot start a worker"),
        };
        runtime.block_on(async move {
            let visitors = visitors.into_iter().map(|sockets| sockets.watched(index));
            let listeners = match visitors.collect::<io::Result<Vec<_>>>() {
                Ok(listeners) => listeners,
                Err(e) => return tracing::error!(error = %e, "cannot serve the listeners"),
            };
            let mut drain = shared.drain.subscribe();
            let worker = match Worker::new(shared, index) {
                Ok(worker) => Rc::new(worker),
                Err(e) => return tracing::error!(error = %e, "cannot seed a worker"),
            };
            tokio::task::spawn_local(tcp::serve(worker.clone(), tcp));
            for listeners in listeners {
                tokio::task::spawn_local(accept::accept(worker.clone(), listeners));
            }
            reached(&mut drain, Drain::Over).await;
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_of_open_files_is_raised_to_the_hard_limit() {
        let limit = || {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: as in `raise_open_files`.
            assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
            limit
        };
        let mut low = limit();
        low.rlim_cur = low.rlim_max.min(512);
        // SAFETY: as in `raise_open_files`.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const low) }, 0);
        assert_eq!(raise_open_files().unwrap(), low.rlim_max);
        assert_eq!(limit().rlim_cur, low.rlim_max);
    }
}
