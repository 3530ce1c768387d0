//! The model origin: replicas on ports of their own, real HTTP/1.1 in front of the model, and figures about
//! it.
//!
//! ```text
//!  listen ─► service ─► modelled ─► sleep (model + timer) │ spin (threads + CPU)   all on one thread but
//!    │          └─► anything else that answers requests                             spin's workers
//!    └─► meter: what came and how it ended, per second           admin: figures, changes
//! ```
//!
//! Every path takes a worker. A visitor who leaves closes the connection; hyper then drops the request's
//! future, while the worker goes on to the end (`wasted`), unless the spec says that leavers are noticed.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::classify::ClassifyError;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::model::{Model, Paths};
use crate::scenario::{Change, Mode, OriginSpec};

mod admin;
mod body;
mod control;
mod cpu;
mod figures;
mod listen;
mod meter;
mod modelled;
mod reply;
mod servers;
mod service;
pub mod shop;
mod shopped;
mod sleep;
mod spin;

#[cfg(test)]
mod tests;

pub use crate::model::{Full, Stats};
pub use body::Body;
pub use control::ChangeError;
use control::Control;
pub(crate) use cpu::burn;
use listen::Door;
pub use meter::{DoorSecond, Meter, Series, Visit};
use modelled::{Modelled, Pool};
pub use service::{Answer, Answering, Service, answer};
pub use shopped::Shopped;
use sleep::SleepPool;
use spin::SpinPool;

#[derive(Clone, Debug, PartialEq)]
pub struct OriginConfig {
    /// Address of the first replica; the others take the ports after it. Port 0 lets the system choose all of
    /// them.
    pub addr: SocketAddr,
    pub admin: Option<SocketAddr>,
    pub spec: OriginSpec,
    pub seed: u64,
}

impl OriginConfig {
    /// On any port of the loopback interface, without admin port.
    pub fn new(spec: OriginSpec) -> Self {
        Self { addr: SocketAddr::from(([127, 0, 0, 1], 0)), admin: None, spec, seed: 1 }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    #[error("{replicas} replicas need as many ports in a row: there are not so many from {addr} on")]
    Ports { addr: SocketAddr, replicas: u32 },
    #[error("a path of the origin: {0}")]
    Path(#[from] ClassifyError),
    /// The system gives no thread or no poller, or too many threads were asked for.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

pub struct Origin;

/// A running origin; dropping it stops it.
pub struct OriginHandle {
    control: Arc<Control>,
    admin: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    /// Starts the model. Connections are accepted when this returns.
    pub fn start(config: OriginConfig) -> Result<OriginHandle, OriginError> {
        let runtime = Executor::new()?;
        let mut services: Vec<Arc<dyn Service>> = Vec::new();
        for replica in 0..config.spec.most_replicas() {
            match modelled(&config, replica, &runtime) {
                Ok(service) => services.push(Arc::new(service)),
                Err(error) => {
                    services.iter().for_each(|service| service.stop());
                    return Err(error);
                }
            }
        }
        Self::launch(&config, services, runtime)
    }

    /// Starts listeners, series and admin port in front of services of any kind. Replica i is answered by
    /// service i modulo their number: one for all, or one for each. Of the spec, only replicas and changes
    /// count.
    ///
    /// # Errors
    /// See [`OriginError`].
    ///
    /// # Panics
    /// There is no service.
    pub fn serve(
        config: &OriginConfig,
        services: Vec<Arc<dyn Service>>,
    ) -> Result<OriginHandle, OriginError> {
        assert!(!services.is_empty(), "an origin needs a service");
        let runtime = Executor::new()?;
        Self::launch(config, services, runtime)
    }

    fn launch(
        config: &OriginConfig,
        services: Vec<Arc<dyn Service>>,
        runtime: Executor,
    ) -> Result<OriginHandle, OriginError> {
        let stopping = Stopping(services.clone());
        let doors = doors(config.addr, config.spec.most_replicas())?;
        let control = Arc::new(Control::new(doors, services));
        let _in = runtime.enter();
        let mut listeners = Vec::new();
        for door in &control.doors {
            let serves = listeners.len() < config.spec.replicas as usize;
            let listener = serves.then(|| door.listen()).transpose();
            listeners.push(listener.map_err(|error| OriginError::Listen(door.addr, error))?);
        }
        control.set_replicas(config.spec.replicas);
        let admin =
            config.admin.map(|addr| admin::bind(addr).map_err(|error| OriginError::Listen(addr, error)));
        let admin = admin.transpose()?;
        let admin_addr = admin.as_ref().map(|(_, addr)| *addr);
        let (stop, stopped) = oneshot::channel();
        let playing = Arc::clone(&control);
        let changes = config.spec.changes.clone();
        drop(_in);
        let thread = std::thread::Builder::new().name("origin".into()).spawn(move || {
            runtime.block_on(async {
                spawn_doors(&playing, listeners);
                tokio::spawn(play(Arc::clone(&playing), changes));
                if let Some((listener, _)) = admin {
                    tokio::spawn(admin::serve(listener, playing));
                }
                // An error means that the handle has gone: that stops it, too.
                let _ = stopped.await;
            });
            drop(runtime);
            drop(stopping);
        })?;
        Ok(OriginHandle { control, admin: admin_addr, stop: Some(stop), thread: Some(thread) })
    }
}

/// The origin's runtime, which may be dropped anywhere: a plain one must not be inside another, as happens
/// when an origin fails to start there. Nothing of it blocks, so nothing needs to be waited for.
struct Executor(Option<Runtime>);

impl Executor {
    fn new() -> io::Result<Self> {
        Ok(Self(Some(tokio::runtime::Builder::new_current_thread().enable_all().build()?)))
    }
}

impl Deref for Executor {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("there until dropped")
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Stops the services when the origin ends, also when it fails to start.
struct Stopping(Vec<Arc<dyn Service>>);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.iter().for_each(|service| service.stop());
    }
}

fn modelled(config: &OriginConfig, replica: u32, runtime: &Runtime) -> Result<Modelled, OriginError> {
    let OriginConfig { spec, seed, .. } = config;
    let paths = Paths::compile(&spec.paths)?;
    // Replicas draw different demands.
    let seed = seed.wrapping_add(u64::from(replica) << 32);
    let pool = match spec.mode {
        Mode::Sleep => {
            let pool = SleepPool::new(Model::new(spec, seed));
            runtime.spawn(Arc::clone(&pool).drive());
            Pool::Sleep(pool)
        }
        Mode::Spin => Pool::Spin(SpinPool::start(spec, seed)?),
    };
    Ok(Modelled::new(pool, paths, &spec.paths))
}

fn doors(first: SocketAddr, replicas: u32) -> Result<Vec<Door>, OriginError> {
    let port = |i: u32| match first.port() {
        0 => Some(0),
        port => u16::try_from(u32::from(port) + i).ok(),
    };
    let door = |i| {
        let port = port(i).ok_or(OriginError::Ports { addr: first, replicas })?;
        let addr = SocketAddr::new(first.ip(), port);
        Door::new(addr).map_err(|error| OriginError::Listen(addr, error))
    };
    (0..replicas).map(door).collect()
}

fn spawn_doors(control: &Arc<Control>, listeners: Vec<Option<TcpListener>>) {
    for (replica, listener) in listeners.into_iter().enumerate() {
        let control = Arc::clone(control);
        tokio::spawn(async move {
            let service = Arc::clone(&control.services[replica % control.services.len()]);
            let meter = Arc::clone(&control.meter);
            control.doors[replica].serve(listener, service, meter).await;
        });
    }
}

async fn play(control: Arc<Control>, changes: Vec<Change>) {
    let start = Instant::now();
    for change in changes {
        tokio::time::sleep_until(start + change.at.min(Duration::from_secs(365 * 24 * 3600))).await;
        if let Err(error) = control.change(&change) {
            tracing::error!(%error, "a change of the origin");
        }
    }
}

impl OriginHandle {
    /// Where its first replica listens.
    pub fn addr(&self) -> SocketAddr {
        self.control.doors[0].addr
    }

    /// Where its replicas listen; of those out of service, where they will.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.control.doors.iter().map(|door| door.addr).collect()
    }

    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    pub fn stats(&self) -> Stats {
        self.control.stats()
    }

    pub fn series(&self) -> Series {
        self.control.meter.series()
    }

    /// Changes its capacity; `at` does not count.
    pub fn change(&self, change: &Change) -> Result<(), ChangeError> {
        self.control.change(change)
    }

    pub fn stop(mut self) {
        self.halt();
    }

    fn halt(&mut self) {
        // An error means that the thread has ended already: nothing is left to stop.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for OriginHandle {
    fn drop(&mut self) {
        self.halt();
    }
}
