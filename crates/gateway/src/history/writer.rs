//! The writer: a thread that takes seconds from the tick, makes rows of them and writes them to the file.
//!
//! The tick puts a second into a bounded queue; if the disk is so slow that the queue is full, the second is
//! dropped and counted. When the file cannot be written (no space, no permission, used by another gateway),
//! the writer logs it once, keeps the rows in bounded memory, and tries again every ten seconds; the rows
//! still in memory are written then. A damaged file is renamed and a new one begun, so that the history never
//! prevents the gateway from serving.
//!
//! One gateway per file: a lock on `history.lock` beside it is held as long as the process lives. (Not on the
//! file itself: closing any descriptor of it would drop SQLite's own locks.)

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;

use super::Inner;
use super::archive::{ARCHIVES, Consolidator, Row, Second};
use super::host::{Host, HostUse};
use super::metrics::{self, HOST_CPU, HOST_MEMORY};
use super::store::{Store, StoreError};

pub const FILE: &str = "history.db";
const LOCK: &str = "history.lock";
/// Suffixes of SQLite's other files: the write-ahead log, its index, and another program's rollback journal.
const TAILS: [&str; 3] = ["-wal", "-shm", "-journal"];
/// Most damaged files that are kept, so that a faulty disk is not filled with them.
const MAX_ASIDE: usize = 5;
/// Seconds between two attempts to use a file that could not be used.
const RETRY: u64 = 10;
/// Seconds between two checks whether the file still exists.
const LOOK: u64 = 60;
/// Most intervals of each archive that wait for the disk: a quarter of an hour of seconds, and 20 minutes, 4
/// hours, 40 hours and 10 days of the coarser ones. With 16 classes some 15 MB.
const PENDING: [usize; ARCHIVES.len()] = [900, 240, 240, 240, 240];

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("another gate keeps its history there (history.dir chooses another place)")]
    Taken,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Store(#[from] StoreError),
}

pub(super) struct Writer {
    inner: Arc<Inner>,
    dir: PathBuf,
    max_series: usize,
    consolidator: Consolidator,
    host: Host,
    file: Option<OpenFile>,
    /// Rows that are not in the file yet, by archive and interval.
    pending: [VecDeque<(u64, Vec<Row>)>; ARCHIVES.len()],
    /// The present trouble was logged.
    told: bool,
    /// Seconds until the next attempt.
    pause: u64,
    looked: u64,
    /// The open intervals of the previous process were restored.
    restored: bool,
    /// SQLite's integrity check has passed.
    checked: bool,
    told_homeless: bool,
}

struct OpenFile {
    store: Store,
    inode: u64,
    _lock: File,
}

impl Writer {
    pub(super) fn new(inner: Arc<Inner>, dir: PathBuf, max_series: usize) -> Self {
        Self {
            inner,
            dir,
            max_series,
            consolidator: Consolidator::default(),
            host: Host::default(),
            file: None,
            pending: Default::default(),
            told: false,
            pause: 0,
            looked: 0,
            restored: false,
            checked: false,
            told_homeless: false,
        }
    }

    /// Runs until the queue is closed and empty.
    pub(super) fn run(mut self, queue: &Receiver<Second>) {
        self.open();
        while let Ok(second) = queue.recv() {
            let before = self.inner.clock.now();
            self.take(second);
            let spent = self.inner.clock.now().since(before);
            self.inner.write_us.fetch_add(spent.as_micros() as u64, Relaxed);
        }
    }

    /// Puts one second into memory, the archives and the file.
    pub(super) fn take(&mut self, mut second: Second) {
        let HostUse { cpu, memory } = self.host.read();
        let gate = super::archive::Series::gate();
        if let Some((_, values)) = second.series.iter_mut().find(|(series, _)| *series == gate) {
            for (name, value) in [(HOST_CPU, cpu), (HOST_MEMORY, memory)] {
                if let Some((_, at)) = metrics::find(name) {
                    values[at] = value;
                }
            }
        }
        let at = second.at;
        let mut rows = Vec::new();
        self.consolidator.push(&second, &mut rows);
        self.inner.memory.lock().push(Arc::new(second));
        self.keep(rows);
        self.look(at);
        if self.file.is_none() {
            self.pause = self.pause.saturating_sub(1);
            if self.pause == 0 {
                self.open();
            }
        }
        if self.file.is_some() {
            self.write(at);
        }
    }

    #[cfg(test)]
    pub(super) fn fill_disk(&self) {
        self.file.as_ref().expect("an open file").store.limit_pages(1).expect("a limit");
    }

    fn keep(&mut self, rows: Vec<Row>) {
        for row in rows {
            let waiting = &mut self.pending[row.archive];
            match waiting.back_mut() {
                Some((at, rows)) if *at == row.at => rows.push(row),
                _ => waiting.push_back((row.at, vec![row])),
            }
        }
        for (waiting, most) in self.pending.iter_mut().zip(PENDING) {
            while waiting.len() > most {
                waiting.pop_front();
            }
        }
    }

    /// Queues parts of intervals; a queued row of the same interval is its other part.
    fn join(&mut self, parts: Vec<Row>) {
        let first = self.consolidator.first();
        for part in parts {
            let step = ARCHIVES[part.archive].step;
            let is_shared = first.is_some_and(|first| (part.at..part.at + step).contains(&first));
            let waiting = &mut self.pending[part.archive];
            let at = waiting.partition_point(|(at, _)| *at < part.at);
            match waiting.get_mut(at) {
                Some((same, rows)) if *same == part.at => {
                    match rows.iter_mut().find(|row| row.series == part.series) {
                        Some(row) => row.data.join(part.series.scope(), &part.data),
                        None => rows.push(part),
                    }
                }
                // The other part was dropped from memory: a row in the file has at least as much.
                _ if is_shared => {}
                _ => waiting.insert(at, (part.at, vec![part])),
            }
        }
    }

    fn write(&mut self, at: u64) {
        let Some(file) = &mut self.file else { return };
        let rows = self.pending.iter().flatten().flat_map(|(_, rows)| rows);
        match file.store.write(at, rows) {
            Ok(homeless) => {
                self.pending.iter_mut().for_each(VecDeque::clear);
                self.weigh();
                if homeless > 0 && !std::mem::replace(&mut self.told_homeless, true) {
                    tracing::warn!(
                        max_series = self.max_series,
                        "more series (of classes, service levels and detectors) than history.max_series: some are not kept"
                    );
                }
                self.well();
            }
            Err(e) => self.trouble(e.into()),
        }
    }

    fn weigh(&self) {
        let path = self.dir.join(FILE);
        let size = |path: &Path| fs::metadata(path).map_or(0, |data| data.len());
        let beside: u64 = TAILS.iter().map(|tail| size(&beside(&path, tail))).sum();
        self.inner.bytes.store(size(&path) + beside, Relaxed);
    }

    /// Checks that the file still exists: a removed one could be written to without an error.
    pub(super) fn look(&mut self, at: u64) {
        if at.abs_diff(self.looked) < LOOK {
            return;
        }
        self.looked = at;
        let path = self.dir.join(FILE);
        let inode = fs::metadata(&path).ok().map(|data| data.ino());
        if self.file.as_ref().is_some_and(|file| Some(file.inode) != inode) {
            self.trouble(
                io::Error::new(io::ErrorKind::NotFound, format!("{} is gone", path.display())).into(),
            );
        }
    }

    pub(super) fn open(&mut self) {
        match self.try_open() {
            Ok(file) => {
                self.file = Some(file);
                *self.inner.reader.lock() = None;
                self.inner.on_disk.store(true, Relaxed);
            }
            Err(e) => self.trouble(e),
        }
    }

    fn try_open(&mut self) -> Result<OpenFile, Trouble> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.dir.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Trouble::Taken),
            Err(TryLockError::Error(e)) => return Err(e.into()),
        }
        let path = self.dir.join(FILE);
        make_private(&path)?;
        let store = match self.sound(&path) {
            Err(StoreError::Damaged(why)) => {
                set_aside(&path, &why)?;
                make_private(&path)?;
                self.sound(&path)?
            }
            store => store?,
        };
        let inode = fs::metadata(&path)?.ino();
        Ok(OpenFile { store, inode, _lock: lock })
    }

    /// Opens the file, and checks its integrity before anything relies on it.
    fn sound(&mut self, path: &Path) -> Result<Store, StoreError> {
        let store = Store::open(path, self.max_series)?;
        if !self.checked {
            store.check()?;
        }
        self.checked = true;
        if !self.restored {
            let rows = self.restore(&store)?;
            self.restored = true;
            self.join(rows);
        }
        Ok(store)
    }

    /// Restores the intervals that were open when the file was last written, and returns those that are over.
    fn restore(&mut self, store: &Store) -> Result<Vec<Row>, StoreError> {
        let Some(mut last) = store.last() else { return Ok(Vec::new()) };
        let first = self.consolidator.first();
        if let Some(first) = first {
            // The file was opened late. Seconds of another gateway are not counted twice.
            last = last.min(first.saturating_sub(1));
        }
        let mut before = Consolidator::default();
        let mut rows = Vec::new();
        for archive in 0..ARCHIVES.len() - 1 {
            for row in store.rows(archive, ARCHIVES[archive + 1].start(last))? {
                if row.at + ARCHIVES[archive].step <= last + 1 {
                    before.restore(&row, &mut rows);
                }
            }
        }
        match first {
            None => self.consolidator = before,
            Some(_) => self.consolidator.absorb(before, &mut rows),
        }
        Ok(rows)
    }

    /// Uses memory only, until the next attempt. Logged once.
    fn trouble(&mut self, why: Trouble) {
        self.inner.failures.fetch_add(1, Relaxed);
        self.inner.on_disk.store(false, Relaxed);
        *self.inner.reader.lock() = None;
        self.file = None;
        self.weigh();
        // The next attempt will set a damaged file aside, so it is made at once.
        self.pause = RETRY;
        if let Trouble::Store(StoreError::Damaged(_)) = why {
            self.pause = 1;
            self.checked = false;
        }
        if !std::mem::replace(&mut self.told, true) {
            tracing::warn!(
                error = %why,
                dir = %self.dir.display(),
                "history cannot be kept on disk: the last minutes are kept in memory, and it is tried again"
            );
        }
    }

    fn well(&mut self) {
        if std::mem::replace(&mut self.told, false) {
            tracing::info!(dir = %self.dir.display(), "history is kept on disk again");
        }
    }
}

/// Creates an empty file that only the user may read, for SQLite to fill; SQLite itself would create one that
/// others may read. Its log gets the file's permissions.
fn make_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

fn beside(path: &Path, tail: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(tail);
    name.into()
}

/// Renames a file that cannot be used, with its log, without which another program's file could not be read.
/// Files that were set aside before are not touched.
fn set_aside(path: &Path, why: &str) -> io::Result<()> {
    let name = |number: usize| match number {
        0 => path.with_extension("db.damaged"),
        n => path.with_extension(format!("db.damaged.{n}")),
    };
    let is_free = |aside: &PathBuf| {
        let all = TAILS.iter().map(|tail| beside(aside, tail)).chain([aside.clone()]);
        all.into_iter().all(|path| fs::symlink_metadata(&path).is_err())
    };
    let Some(aside) = (0..MAX_ASIDE).map(name).find(is_free) else {
        return Err(io::Error::other(format!(
            "not a usable history file: {why}; and {MAX_ASIDE} files were set aside before: remove those that are not needed"
        )));
    };
    // The file comes last: SQLite would take a log left behind for the new file's.
    for tail in TAILS.into_iter().chain([""]) {
        match fs::rename(beside(path, tail), beside(&aside, tail)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound || tail.is_empty() => return Err(e),
            _ => {}
        }
    }
    tracing::warn!(error = why, file = %aside.display(), "the history file is damaged: it was set aside, and a new one is begun");
    Ok(())
}
