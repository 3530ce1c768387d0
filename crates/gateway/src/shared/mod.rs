//! The state that all threads share, and that of each worker.

pub mod accepts;
pub mod coalesce;
pub mod figures;
pub mod free_slots;
pub mod gate_keeper;
pub mod listening;
pub mod peers;
pub mod policies;
pub mod request_paths;
pub mod sessions;
pub mod tcp;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tidegate_core::measure::{Event, Shard};
use tidegate_core::units::{ClassId, Timestamp};
use tidegate_http::RequestHead;
use tokio::sync::watch;

use crate::base::access_log::AccessWriter;
use crate::base::clock::Clock;
use crate::base::redeemed_log::RedeemedLog;
use crate::config::Config;
use crate::shared::accepts::Accepts;
use crate::shared::coalesce::Coalescer;
use crate::shared::gate_keeper::GateKeeper;
use crate::shared::peers::Peers;
use crate::shared::policies::{PoliciesInForce, PublishedPolicies};
use crate::shared::request_paths::{PathBuffer, RequestPaths};
use crate::shared::sessions::VisitorSessions;
use crate::shared::tcp::TcpServices;
use crate::upstream::balance::Replicas;
use crate::upstream::dispatch::{Dispatcher, Stats};
use tidegate_core::admission::{Admission, ShadowRoom};
use tidegate_settings::Role;

pub struct Shared {
    /// The only clock of the process.
    pub clock: Arc<Clock>,
    pub config: ArcSwap<Config>,
    /// Counts changes of `config`, so that workers notice one without loading it.
    pub generation: AtomicU64,
    /// The waiting room, or this process's half of it.
    pub admission: Admission,
    /// The other ones of several tokenchecks.
    pub peers: Option<Peers>,
    /// What the room would do, where it holds nobody.
    pub shadow_room: ShadowRoom,
    pub gate: Arc<GateKeeper>,
    pub sessions: VisitorSessions,
    pub policies: PublishedPolicies,
    pub coalescer: Coalescer,
    pub replicas: Arc<Replicas>,
    /// Counters, one shard a worker.
    pub shards: Vec<Arc<Shard>>,
    /// Paths of requests that went to the origin since the last tick, by worker.
    pub paths: RequestPaths,
    pub connections: AtomicUsize,
    pub accepts: Accepts,
    pub tcp: Arc<TcpServices>,
    /// Workers that still accept connections. While one does, a count of zero connections may rise again.
    pub accepting: AtomicUsize,
    /// Since when visitors have been waiting, in µs since the Unix epoch; 0: none. Set by the control tick.
    pub busy_since_us: AtomicU64,
    /// SIGTERM came: connections end after their present request.
    pub draining: AtomicBool,
    /// Wakes accept loops and idle connections when draining starts, and when its grace is over.
    pub drain: watch::Sender<Drain>,
    /// The counters of the workers' dispatchers.
    pub upstream: Mutex<Vec<Arc<Stats>>>,
    pub access: Option<AccessWriter>,
    /// Outlives the process, in contrast to the set in `admission`.
    pub redeemed: RedeemedLog,
}

/// The stage of the shutdown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Drain {
    No,
    /// No new connections; answers close theirs.
    Accepting,
    /// Idle connections are closed too.
    Idle,
    /// No connection is left, or the deadline has passed: worker threads end.
    Over,
}

/// Waits until the shutdown has reached `stage`.
///
/// Drops the value that `wait_for` returns, which holds the channel's lock: a branch of `select!` would keep
/// it over an await, and the next stage could not be sent.
pub async fn reached(drain: &mut watch::Receiver<Drain>, stage: Drain) {
    // An error means that the sender is gone, and with it `Shared`.
    let _ = drain.wait_for(|now| *now >= stage).await;
}

impl Shared {
    /// The sum of one of the dispatchers' counters over all workers.
    pub fn upstream(&self, counter: impl Fn(&Stats) -> &AtomicU64) -> u64 {
        let all = self.upstream.lock();
        all.iter().map(|stats| counter(stats).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    /// Whether admitted requests can be forwarded. Tokengen forwards nothing and needs no replicas.
    pub fn has_somewhere_to_go(&self, role: &Role) -> bool {
        matches!(role, Role::TokenGen { .. }) || self.replicas.any_usable()
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether no connection is left, and none can come any more.
    pub fn is_empty(&self) -> bool {
        self.accepting.load(Ordering::Acquire) == 0
            && self.tcp.accepting() == 0
            && self.connections.load(Ordering::Relaxed) == 0
    }
}

/// What all workers share as one of them holds it. Requests count their references in the worker's own memory
/// (`Rc`), not in a counter that all cores write.
pub type WorkerHeld<T> = Rc<Arc<T>>;

/// One worker: a thread with its own listener, upstream connections, counters and randomness.
pub struct Worker {
    pub index: usize,
    pub shared: Arc<Shared>,
    pub shard: Arc<Shard>,
    paths: Arc<PathBuffer>,
    pub upstream: Dispatcher,
    /// Nonces and binding cookies: seeded by the operating system, cryptographic.
    pub rng: RefCell<StdRng>,
    /// The policies in force, with the version that was published.
    policies: RefCell<(u64, WorkerHeld<PoliciesInForce>)>,
    live: RefCell<WorkerHeld<Config>>,
    generation: Cell<u64>,
    next_request: Cell<u64>,
    request_prefix: u64,
}

impl Worker {
    pub fn new(shared: Arc<Shared>, index: usize) -> Result<Self, getrandom::Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        let mut rng = StdRng::from_seed(seed);
        let live = shared.config.load_full();
        let upstream = Dispatcher::new(shared.replicas.clone(), &live.settings.origin);
        shared.upstream.lock().push(upstream.stats());
        Ok(Self {
            index,
            shard: shared.shards[index].clone(),
            paths: shared.paths.of_worker(index),
            upstream,
            request_prefix: rand::RngCore::next_u64(&mut rng),
            rng: RefCell::new(rng),
            generation: Cell::new(shared.generation.load(Ordering::Acquire)),
            policies: RefCell::default(),
            live: RefCell::new(Rc::new(live)),
            next_request: Cell::new(0),
            shared,
        })
    }

    /// The configuration in force: a local counter, no traffic between cores.
    pub fn config(&self) -> WorkerHeld<Config> {
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation != self.generation.get() {
            let live = self.shared.config.load_full();
            self.upstream.reconfigure(&live.settings.origin);
            self.live.replace(Rc::new(live));
            self.generation.set(generation);
        }
        self.live.borrow().clone()
    }

    /// Which policies are in force; 0: none. While none is, this load is all that a request pays.
    pub fn policy_version(&self) -> u64 {
        self.shared.policies.word()
    }

    /// The policies of the version that [`Worker::policy_version`] returned.
    pub fn policies(&self, word: u64) -> Option<WorkerHeld<PoliciesInForce>> {
        if !policies::is_in_force(word) {
            return None;
        }
        if self.policies.borrow().0 != word {
            self.policies.replace((word, Rc::new(self.shared.policies.standing())));
        }
        Some(self.policies.borrow().1.clone())
    }

    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    pub fn count(&self, event: Event) {
        self.shard.count(event);
    }

    /// A request of a class goes to the origin.
    pub fn forwarded(&self, config: &Config, class: ClassId, head: &RequestHead, queued: Duration) {
        self.shard.forwarded(class, queued);
        if config.notes_path(class) {
            self.paths.note(if config.notes_query() { head.path_and_query() } else { head.path() });
        }
    }

    /// A request id: unique over workers and restarts, and cheap.
    pub fn request_id(&self) -> [u8; 16] {
        let n = self.next_request.get();
        self.next_request.set(n.wrapping_add(1));
        // Multiplying by an odd number is a permutation: the ids of one worker never repeat, and do not tell
        // how many there were.
        hex(self.request_prefix ^ n.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}

fn hex(n: u64) -> [u8; 16] {
    std::array::from_fn(|i| b"0123456789abcdef"[(n >> (60 - 4 * i)) as usize & 15])
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_request_id_is_sixteen_hexadecimal_digits() {
        for n in [0, 1, 0xfedc_ba98_7654_3210, u64::MAX] {
            assert_eq!(super::hex(n), format!("{n:016x}").as_bytes());
        }
    }
}
