//! Ending a run early, so that what it has measured is kept.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Exit code of a process ended by Ctrl-C, as shells have it: 128 and the signal's number.
const INTERRUPTED: i32 = 130;

/// Ends runs early, from another thread. Clones end the same runs.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<Option<String>>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Stop {
    /// Ends the runs that have this stop, those to come included. `why` is what their outcomes say; the first
    /// counts.
    pub fn now(&self, why: &str) {
        self.0.send_if_modified(|reason| {
            let first = reason.is_none();
            reason.get_or_insert_with(|| why.to_owned());
            first
        });
    }

    /// A stop for Ctrl-C and SIGTERM.
    pub fn on_interrupt() -> io::Result<Self> {
        let stop = Self::default();
        let ended = stop.clone();
        on_interrupt(move |why| ended.now(why))?;
        Ok(stop)
    }

    pub(super) fn watcher(&self) -> watch::Receiver<Option<String>> {
        self.0.subscribe()
    }
}

/// Calls `stop` with the reason at the first Ctrl-C or SIGTERM. A second one ends the process at once; the
/// kernel ends its children. Watches for as long as the process lives.
pub fn on_interrupt(stop: impl Fn(&'static str) + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _in = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        runtime.block_on(async move {
            let mut stopping = false;
            loop {
                let why = tokio::select! {
                    _ = interrupt.recv() => "interrupted (Ctrl-C)",
                    _ = terminate.recv() => "told to end (SIGTERM)",
                };
                if std::mem::replace(&mut stopping, true) {
                    std::process::exit(INTERRUPTED);
                }
                stop(why);
            }
        });
    })?;
    Ok(())
}

/// Waits until the run is asked to stop, and returns why.
pub(super) async fn stopped(stop: &mut watch::Receiver<Option<String>>) -> String {
    match stop.wait_for(Option::is_some).await {
        Ok(why) => why.clone().unwrap_or_default(),
        // No sender is left.
        Err(_) => std::future::pending().await,
    }
}
