//! Signals of `tidegate run`: SIGTERM and SIGINT drain, a second one exits at once, SIGHUP reloads.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tidegate_gateway::base::audit::By;
use tidegate_gateway::control::driver::Control;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Takes SIGHUP, which would end the process otherwise. One that comes before [`Reloads::watch`] is not lost.
pub struct Reloads {
    runtime: Runtime,
    hup: Signal,
}

impl Reloads {
    /// From now on.
    pub fn hold() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let hup = {
            let _in = runtime.enter();
            signal(SignalKind::hangup())?
        };
        Ok(Self { runtime, hup })
    }

    /// Watches for all signals on a thread of its own, for as long as the process lives.
    pub fn watch(self, control: Arc<Control>) -> io::Result<JoinHandle<()>> {
        watch(self, control)
    }
}

fn watch(Reloads { runtime, mut hup }: Reloads, control: Arc<Control>) -> io::Result<JoinHandle<()>> {
    let (mut term, mut int) = {
        let _in = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async move {
            let mut stopping = false;
            loop {
                let stop = tokio::select! {
                    _ = term.recv() => true,
                    _ = int.recv() => true,
                    _ = hup.recv() => false,
                };
                match (stop, stopping) {
                    (true, false) => {
                        stopping = true;
                        // On another thread: the audit file's disk may hang, and a second signal must still
                        // work.
                        let control = control.clone();
                        tokio::task::spawn_blocking(move || control.drain_by(By::SIGNAL));
                    }
                    (true, true) => std::process::exit(130),
                    (false, _) => {
                        let control = control.clone();
                        tokio::task::spawn_blocking(move || {
                            if let Err(e) = control.store().reload() {
                                tracing::error!(
                                    "the configuration was not reloaded, the old one stays in force:\n{e}"
                                );
                            }
                        });
                    }
                }
            }
        });
    })
}
