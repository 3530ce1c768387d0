//! The measurement database (MASTH, section 2): measurements kept for a year at decreasing resolution.
//!
//! ```text
//! tick ─► observe ─► queue ─► writer ─► archive (1 s → 5 s → 1 min → 10 min → 1 h) ─► store (SQLite)
//!          one second  bounded   └───────► memory (last 15 min)                          │
//!                                             └──────────────► query ◄───────────────────┘
//! ```
//!
//! Every figure is kept per class and for all requests together, with average, minimum and maximum. The tick
//! never waits for the disk, and the gateway does not depend on the file: the last minutes are in
//! memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;

pub mod aggregate;
pub mod archive;
pub(crate) mod host;
pub mod layout;
pub mod memory;
pub mod metrics;
pub mod query;
pub mod store;
mod writer;

use archive::{Second, Series};
use memory::Memory;
use query::{Points, Query, QueryError};
use store::{Reader, StoreError};

use crate::base::clock::Clock;

/// Seconds that may wait for the writer: the disk may hang for a minute.
const QUEUE: usize = 60;
/// How long the end of the process waits for the last second.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

pub struct History {
    inner: Arc<Inner>,
    queue: Mutex<Option<SyncSender<Second>>>,
    /// Closed when the writer has ended.
    ended: Mutex<Option<Receiver<()>>>,
}

/// What the writer and the queries share.
struct Inner {
    clock: Arc<Clock>,
    path: PathBuf,
    memory: Mutex<Memory>,
    /// Opened by the first query; dropped whenever the writer opens or leaves the file.
    reader: Mutex<Option<Reader>>,
    on_disk: AtomicBool,
    dropped: AtomicU64,
    failures: AtomicU64,
    /// Size of the file and what SQLite keeps beside it, as of the last write or failure.
    bytes: AtomicU64,
    write_us: AtomicU64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Health {
    pub enabled: bool,
    /// Whether the file is in use; else only the last minutes are kept, in memory.
    pub on_disk: bool,
    pub file: PathBuf,
    /// Its size and that of its log and index beside it, as of the last write or failure.
    pub bytes: u64,
    pub dropped: u64,
    pub failures: u64,
    /// Time the writer has spent.
    pub spent: Duration,
}

impl History {
    /// Starts the writer; the file is in `settings.dir`, or else in `state`. A file that cannot be used is
    /// reported in the log and tried again later.
    pub fn start(settings: &tidegate_settings::History, state: &Path, clock: Arc<Clock>) -> Self {
        let dir = settings.dir.clone().unwrap_or_else(|| state.to_path_buf());
        let inner = Arc::new(Inner::new(clock, dir.join(writer::FILE)));
        let mut history = Self { inner: inner.clone(), queue: Mutex::default(), ended: Mutex::default() };
        if !settings.enabled {
            return history;
        }
        let (queue, seconds) = sync_channel(QUEUE);
        let (end, ended) = sync_channel::<()>(1);
        let max_series = settings.max_series;
        let thread = std::thread::Builder::new().name("history".into()).spawn(move || {
            writer::Writer::new(inner, dir, max_series).run(&seconds);
            drop(end);
        });
        match thread {
            Ok(_) => {
                history.queue = Mutex::new(Some(queue));
                history.ended = Mutex::new(Some(ended));
            }
            Err(e) => tracing::warn!(error = %e, "no thread for the history: none is kept"),
        }
        history
    }

    /// Passes a second to the writer. Never waits: if the queue is full, the second is dropped and counted.
    pub fn record(&self, second: Second) {
        if let Some(queue) = &*self.queue.lock()
            && let Err(TrySendError::Full(_)) = queue.try_send(second)
        {
            self.inner.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Ends the writer once it has written its queue; waits a few seconds at most.
    pub fn close(&self) {
        drop(self.queue.lock().take());
        if let Some(ended) = self.ended.lock().take() {
            // Nothing is ever sent; the channel closes when the writer ends.
            let _ = ended.recv_timeout(CLOSE_TIMEOUT);
        }
    }

    pub fn health(&self) -> Health {
        let inner = &self.inner;
        Health {
            enabled: self.queue.lock().is_some(),
            on_disk: inner.on_disk.load(Relaxed),
            file: inner.path.clone(),
            bytes: inner.bytes.load(Relaxed),
            dropped: inner.dropped.load(Relaxed),
            failures: inner.failures.load(Relaxed),
            spent: Duration::from_micros(inner.write_us.load(Relaxed)),
        }
    }

    /// One figure over a time range; from memory alone if the file cannot be read. Reads the disk, so not to
    /// be called on the control thread.
    pub fn query(&self, query: &Query) -> Result<Points, QueryError> {
        let now = self.inner.clock.now().second();
        self.inner.look(|reader, memory| query::answer(query, reader, memory, now))
    }

    /// The kept series, ordered by name.
    pub fn series(&self) -> Vec<Series> {
        let mut all = self.inner.look(|reader, memory| {
            let mut all = memory.series();
            all.extend(reader.map(Reader::series).transpose()?.unwrap_or_default());
            Ok(all)
        });
        all.sort();
        all.dedup();
        all
    }

    /// The maximum one-second value of a figure in the last `span`; `class` is a name or `all`. For tuners.
    pub fn peak(&self, metric: &str, class: &str, span: Duration) -> Option<f64> {
        self.whole(metric, class, span).map(|whole| f64::from(whole.max))
    }

    pub fn mean(&self, metric: &str, class: &str, span: Duration) -> Option<f64> {
        self.whole(metric, class, span).map(|whole| f64::from(whole.average))
    }

    fn whole(&self, metric: &str, class: &str, span: Duration) -> Option<aggregate::Spread> {
        let now = self.inner.clock.now().second();
        let from = now.saturating_sub(span.as_secs().max(1));
        let query = Query { metric: metric.into(), series: Series::named(class), from, to: now, step: None };
        self.query(&query).ok()?.whole
    }
}

impl Inner {
    fn new(clock: Arc<Clock>, path: PathBuf) -> Self {
        Self {
            clock,
            path,
            memory: Mutex::default(),
            reader: Mutex::default(),
            on_disk: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            write_us: AtomicU64::new(0),
        }
    }

    /// Runs `question` on the file, if it is in use and can be read, and on a copy of memory; the writer is
    /// not blocked.
    fn look<T>(&self, question: impl Fn(Option<&Reader>, &Memory) -> Result<T, StoreError>) -> T {
        let mut reader = self.reader.lock();
        // Cheap: the seconds are shared.
        let memory = self.memory.lock().clone();
        if self.on_disk.load(Relaxed) {
            let opened = match reader.take() {
                Some(open) => Ok(open),
                None => Reader::open(&self.path),
            };
            match opened.and_then(|open| Ok((question(Some(&open), &memory)?, open))) {
                Ok((answer, open)) => {
                    *reader = Some(open);
                    return answer;
                }
                Err(e) => tracing::warn!(error = %e, "the history's file cannot be read"),
            }
        }
        question(None, &memory).unwrap_or_else(|e| unreachable!("no file was read: {e}"))
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod trouble;
