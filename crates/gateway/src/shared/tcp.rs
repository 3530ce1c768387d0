//! TCP services (`[[tcp]]`) as workers, reloads and the operator's API see them.
//!
//! ```text
//! reload ─► TcpServices ─┬─ service by name: limits, figures ◄─── relays, metrics
//!                        └─ listening address ─(watch)─► accept loops of the workers
//! ```
//!
//! A service is known by its name, and keeps its counters and its open connections over a reload. Listening
//! sockets are known by their address: a reload closes only those whose address is gone.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire},
};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_core::bucket::{BucketConfig, SharedBucket};
use tidegate_core::units::{Cost, Rate};
use tidegate_settings::Tcp;
use tokio::sync::{Notify, mpsc, watch};

use crate::base::clock::Clock;
use crate::shared::listening::{Listening, ListeningSocket};
use crate::upstream::target::Target;

/// What a service has done since the start.
#[derive(Default, Debug)]
pub struct TcpFigures {
    /// Connections that the gate has now, those being established to the service included.
    pub open: AtomicUsize,
    pub accepted: AtomicU64,
    /// Established to the service.
    pub relayed: AtomicU64,
    /// Reset at once: by a rule in force, or by `limits.max_connections`.
    pub refused: AtomicU64,
    /// The service could not be reached.
    pub failed: AtomicU64,
    /// From visitors to the service.
    pub bytes_in: AtomicU64,
    /// From the service to visitors.
    pub bytes_out: AtomicU64,
}

/// One of `[[tcp]]`.
pub struct TcpService {
    /// As settings say, with where `to` leads.
    in_force: ArcSwap<InForce>,
    pub figures: TcpFigures,
    /// A connection has ended, or the limits are others.
    freed: Notify,
}

/// What holds for connections that are accepted from now on.
pub struct InForce {
    pub settings: Tcp,
    pub target: Arc<Target>,
    bucket: Option<Arc<SharedBucket>>,
}

impl TcpService {
    fn new(settings: Tcp) -> Arc<Self> {
        let bucket = SharedBucket::new(&bucket_of(&settings));
        let target = Arc::new(Target::new(settings.to.clone()));
        let in_force = ArcSwap::from_pointee(InForce { settings, target, bucket });
        Arc::new(Self { in_force, figures: TcpFigures::default(), freed: Notify::new() })
    }

    pub fn name(&self) -> String {
        self.in_force.load().settings.name.clone()
    }

    pub fn in_force(&self) -> Arc<InForce> {
        self.in_force.load_full()
    }

    fn reconfigure(&self, settings: &Tcp, clock: &Clock) {
        let old = self.in_force();
        if old.settings == *settings {
            return;
        }
        let config = bucket_of(settings);
        let bucket = match &old.bucket {
            Some(bucket) => bucket.succeed(&config, clock.now()),
            None => SharedBucket::new(&config),
        };
        let target = match old.settings.to == settings.to {
            true => old.target.clone(),
            false => Arc::new(Target::new(settings.to.clone())),
        };
        self.in_force.store(Arc::new(InForce { settings: settings.clone(), target, bucket }));
        self.freed.notify_waiters();
    }

    /// Waits until one more connection may be accepted, and takes its slot. If the caller gives up, nothing
    /// is taken.
    pub async fn slot(self: &Arc<Self>, clock: &Clock) -> TcpSlot {
        loop {
            // In the line of those to wake before it looks: nothing that is freed in between is missed.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            match self.try_slot(clock) {
                Ok(slot) => return slot,
                Err(None) => freed.await,
                Err(Some(wait)) => _ = tokio::time::timeout(wait, freed).await,
            }
        }
    }

    /// A slot for one more connection.
    ///
    /// # Errors
    /// There is none: until a connection ends, or for so long.
    pub fn try_slot(self: &Arc<Self>, clock: &Clock) -> Result<TcpSlot, Option<Duration>> {
        let in_force = self.in_force();
        // First, because what is given back must wake nobody: the next token comes by time.
        if let Some(bucket) = &in_force.bucket {
            bucket.take(Cost::ONE, clock.now()).map_err(Some)?;
        }
        let most = match in_force.settings.max_connections {
            0 => usize::MAX,
            most => most,
        };
        let one_more = |open| (open < most).then_some(open + 1);
        if self.figures.open.fetch_update(AcqRel, Acquire, one_more).is_err() {
            in_force.give_back_token();
            return Err(None);
        }
        Ok(TcpSlot { service: self.clone(), in_force })
    }
}

impl InForce {
    fn give_back_token(&self) {
        if let Some(bucket) = &self.bucket {
            bucket.give_back(Cost::ONE);
        }
    }
}

fn bucket_of(settings: &Tcp) -> BucketConfig {
    let burst = if settings.burst == 0 { settings.rate.ceil().max(1.0) } else { settings.burst.into() };
    let rate = Rate::per_second(settings.rate).unwrap_or_default();
    BucketConfig { rate, burst: Cost::from_hundredths(burst as u64 * Cost::ONE.hundredths()) }
}

/// The right to one connection of a service, until it is dropped.
pub struct TcpSlot {
    service: Arc<TcpService>,
    in_force: Arc<InForce>,
}

impl TcpSlot {
    pub fn service(&self) -> &Arc<TcpService> {
        &self.service
    }

    pub fn in_force(&self) -> &Arc<InForce> {
        &self.in_force
    }

    /// Whether others wait while all is taken: then any worker's sockets have to be looked at.
    pub fn is_limited(&self) -> bool {
        self.in_force.settings.max_connections > 0 || self.in_force.bucket.is_some()
    }

    /// Nobody was there to be accepted.
    pub fn unused(self) {
        self.in_force.give_back_token();
    }
}

impl Drop for TcpSlot {
    fn drop(&mut self) {
        self.service.figures.open.fetch_sub(1, AcqRel);
        if self.is_limited() {
            self.service.freed.notify_one();
        }
    }
}

/// The sockets of a TCP service's address for one worker.
pub struct TcpSockets {
    pub all: Arc<Listening>,
    /// By priority.
    pub own: Vec<Arc<ListeningSocket>>,
    /// Whose connections they are; `None`: the address is no longer listened at.
    pub service: watch::Receiver<Option<Arc<TcpService>>>,
    _accepting: Accepting,
}

/// Counts an accept loop that has not ended.
struct Accepting(Arc<TcpServices>);

impl Accepting {
    fn new(services: &Arc<TcpServices>) -> Self {
        services.accepting.fetch_add(1, AcqRel);
        Self(services.clone())
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.0.accepting.fetch_sub(1, AcqRel);
    }
}

/// What tells addresses apart: with port 0, which the system chooses, each service has one of its own.
type AddressKey = (SocketAddr, Option<String>);

fn key_of(settings: &Tcp) -> AddressKey {
    (settings.listen, (settings.listen.port() == 0).then(|| settings.name.clone()))
}

/// An address that is listened at.
struct Address {
    key: AddressKey,
    all: Arc<Listening>,
    service: watch::Sender<Option<Arc<TcpService>>>,
}

/// All TCP services.
pub struct TcpServices {
    /// In the order of the file.
    listed: ArcSwap<Vec<Arc<TcpService>>>,
    addresses: Mutex<Vec<Address>>,
    /// Where workers take new sockets from.
    workers: Vec<mpsc::UnboundedSender<TcpSockets>>,
    accepting: AtomicUsize,
}

/// A worker's end of the channel from which it takes sockets.
pub type NewSockets = mpsc::UnboundedReceiver<TcpSockets>;

/// An address that listens already, and whose sockets no worker has yet.
pub struct NewAddress {
    key: AddressKey,
    all: Arc<Listening>,
    /// By worker, then by priority.
    sockets: Vec<Vec<Arc<ListeningSocket>>>,
}

impl NewAddress {
    pub fn new(settings: &Tcp, all: Arc<Listening>, sockets: Vec<Vec<Arc<ListeningSocket>>>) -> Self {
        Self { key: key_of(settings), all, sockets }
    }
}

impl TcpServices {
    pub fn new(workers: usize) -> (Arc<Self>, Vec<NewSockets>) {
        let (workers, new_sockets) = (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
        let (listed, addresses, accepting) = Default::default();
        (Arc::new(Self { listed, addresses, workers, accepting }), new_sockets)
    }

    pub fn list(&self) -> Arc<Vec<Arc<TcpService>>> {
        self.listed.load_full()
    }

    /// Where a service listens: with the port that the system has chosen.
    pub fn address_of(&self, service: &TcpService) -> Option<SocketAddr> {
        let (key, addresses) = (key_of(&service.in_force().settings), self.addresses.lock());
        addresses.iter().find(|known| known.key == key).map(|known| known.all.address())
    }

    /// The sockets of every address.
    pub fn listening(&self) -> Vec<Arc<Listening>> {
        self.addresses.lock().iter().map(|known| known.all.clone()).collect()
    }

    /// Accept loops that have not ended.
    pub fn accepting(&self) -> usize {
        self.accepting.load(Acquire)
    }

    /// Which of these addresses nobody listens at yet.
    pub fn missing<'t>(&self, settings: &'t [Tcp]) -> Vec<&'t Tcp> {
        let addresses = self.addresses.lock();
        let is_new = |tcp: &&Tcp| !addresses.iter().any(|known| known.key == key_of(tcp));
        settings.iter().filter(is_new).collect()
    }

    /// Puts other settings in force. `new`: the addresses of [`TcpServices::missing`]. One caller at a time.
    pub fn put_in_force(self: &Arc<Self>, settings: &[Tcp], new: Vec<NewAddress>, clock: &Clock) {
        let old = self.list();
        let service = |tcp: &Tcp| match old.iter().find(|of| of.in_force().settings.name == tcp.name) {
            Some(service) => {
                service.reconfigure(tcp, clock);
                service.clone()
            }
            None => TcpService::new(tcp.clone()),
        };
        let services: Vec<_> = settings.iter().map(service).collect();
        let at = |key: &AddressKey| {
            let found = settings.iter().position(|tcp| key_of(tcp) == *key)?;
            Some(services[found].clone())
        };
        let mut addresses = self.addresses.lock();
        addresses.retain(|known| {
            let now = at(&known.key);
            let is_left = now.is_some();
            known.service.send_if_modified(|was| {
                let is_other = match (&*was, &now) {
                    (Some(was), Some(now)) => !Arc::ptr_eq(was, now),
                    _ => true,
                };
                *was = now;
                is_other
            });
            is_left
        });
        for NewAddress { key, all, sockets } in new {
            let (service, follow) = watch::channel(at(&key));
            for (worker, own) in self.workers.iter().zip(sockets) {
                let (all, service) = (all.clone(), follow.clone());
                // A worker that has ended accepts nothing: the process ends.
                _ = worker.send(TcpSockets { all, own, service, _accepting: Accepting::new(self) });
            }
            addresses.push(Address { key, all, service });
        }
        drop(addresses);
        self.listed.store(Arc::new(services));
    }
}
