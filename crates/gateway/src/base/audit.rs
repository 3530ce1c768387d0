//! The audit: author, time, reason and values of every change, one line of JSON each, in `audit.jsonl` of the
//! state directory.
//!
//! A record is written with one write(2) before the change is confirmed, so that a killed process loses no
//! confirmed change. There is no fsync, as for the promises: a crash of the machine may lose the last
//! seconds. A line that a crash cut off is ended at the next start, and readers skip it.
//!
//! A disk that hangs delays those who change something, each on a blocking thread, and nothing else: nothing
//! here is called on the control thread or a worker.
//!
//! A full disk prevents no change. The change is made, and the log says that it could not be recorded: an
//! operator in trouble must be able to change settings.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_core::units::Timestamp;

const FILE: &str = "audit.jsonl";
/// A new file is begun at this size: some 20,000 changes, read in a tenth of a second.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Older files that are kept: 32 MiB with the present one. That is years of an operator's changes, or minutes
/// of a tuner's at a thousand a second.
const KEPT: usize = 7;

#[derive(Clone, Copy, Debug)]
pub struct By<'a> {
    /// The token's name and the peer's address, a tuner's name, or "signal".
    pub who: &'a str,
    /// The reason they gave; may be empty.
    pub why: &'a str,
}

impl By<'static> {
    pub const SIGNAL: Self = Self { who: "signal", why: "" };
}

#[derive(Clone, Debug)]
pub struct Entry {
    /// `tune`, `reload`, `capacity`, `rediscover`, `drain`, `signal`, `throttle`, `unthrottle`,
    /// `end-session`, `end-sessions`, `syn-rule`, `adapt`.
    pub action: &'static str,
    pub key: Option<String>,
    pub old: Value,
    pub new: Value,
}

impl Entry {
    /// An action that changes no key.
    pub fn act(action: &'static str) -> Self {
        Self { action, key: None, old: Value::Null, new: Value::Null }
    }
}

/// A line of the file, and an item of `GET /v1/audit`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Counts up, over restarts too.
    pub id: u64,
    /// When, in milliseconds since 1970.
    at_ms: u64,
    /// The token's name and the peer's address, a tuner's name, or "signal".
    who: String,
    /// In their own words; may be empty.
    why: String,
    /// tune, reload, capacity, rediscover, drain, signal, throttle, unthrottle, end-session(s),
    /// syn-rule, adapt.
    action: String,
    /// What changed, if one key did.
    key: Option<String>,
    /// Its value before.
    old: Value,
    /// Its value now.
    new: Value,
}

pub struct Audit {
    dir: PathBuf,
    log: Mutex<Log>,
}

struct Log {
    /// `None`: it cannot be opened; every record tries again.
    file: Option<File>,
    bytes: u64,
    next_id: u64,
}

impl Audit {
    pub fn open(dir: &Path) -> Self {
        let this = Self { dir: dir.to_owned(), log: Mutex::new(Log { file: None, bytes: 0, next_id: 1 }) };
        let last = this.page(u64::MAX, 1).unwrap_or_default().first().map(|record| record.id);
        let mut log = this.log.lock();
        log.next_id = last.map_or(1, |last| last + 1);
        if let Err(e) = log.reopen(dir) {
            tracing::warn!(error = %e, "changes cannot be recorded");
        }
        drop(log);
        this
    }

    /// Records changes that belong together, in one write.
    pub fn record(&self, by: By<'_>, entries: &[Entry], now: Timestamp) {
        if entries.is_empty() {
            return;
        }
        let mut log = self.log.lock();
        let mut lines = String::new();
        for entry in entries {
            let Entry { action, key, old, new } = entry.clone();
            let record = Record {
                id: log.next_id,
                at_ms: now.as_millis(),
                who: by.who.into(),
                why: by.why.into(),
                action: action.into(),
                key,
                old,
                new,
            };
            lines.push_str(&format!("{}\n", json!(record)));
            log.next_id += 1;
        }
        if let Err(e) = log.append(&self.dir, lines.as_bytes()) {
            log.file = None;
            tracing::error!(error = %e, "a change is in force but could not be recorded: {lines}");
        }
    }

    /// The last `limit` records with ids below `before`, the latest first. Reads the disk.
    pub fn page(&self, before: u64, limit: usize) -> io::Result<Vec<Record>> {
        let files: Vec<io::Result<File>> = {
            // No file is renamed while the lock is held, so none is missed or read twice.
            let _log = self.log.lock();
            (0..=KEPT).map(|n| File::open(name(&self.dir, n))).collect()
        };
        let mut page = Vec::new();
        for file in files {
            let mut bytes = Vec::new();
            match file {
                Ok(file) => file.take(2 * MAX_FILE_BYTES).read_to_end(&mut bytes)?,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            let lines = bytes.rsplit(|b| *b == b'\n');
            let whole = lines.filter_map(|line| serde_json::from_slice::<Record>(line).ok());
            page.extend(whole.filter(|record| record.id < before).take(limit - page.len()));
            if page.len() == limit {
                break;
            }
        }
        Ok(page)
    }
}

/// The present file is number 0; the oldest has the highest number.
fn name(dir: &Path, number: usize) -> PathBuf {
    if number == 0 { dir.join(FILE) } else { dir.join(format!("{FILE}.{number}")) }
}

impl Log {
    fn append(&mut self, dir: &Path, lines: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.reopen(dir)?;
        } else if self.bytes >= MAX_FILE_BYTES {
            for number in (0..KEPT).rev() {
                match fs::rename(name(dir, number), name(dir, number + 1)) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            }
            self.reopen(dir)?;
        }
        if let Some(file) = &mut self.file {
            file.write_all(lines)?;
            self.bytes += lines.len() as u64;
        }
        Ok(())
    }

    /// Opens the present file, and ends a line that a crash cut off.
    fn reopen(&mut self, dir: &Path) -> io::Result<()> {
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(name(dir, 0))?;
        // 0 for a pipe, which an operator may put there for a collector.
        self.bytes = file.metadata()?.len();
        if self.bytes > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        self.file = Some(file);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("tidegate-audit-{}-{name}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn note(audit: &Audit, key: &str) {
        let entry = Entry { action: "tune", key: Some(key.into()), old: json!(1), new: json!("2s") };
        audit.record(
            By { who: "admin@127.0.0.1:5", why: "a \"test\"\n" },
            &[entry],
            Timestamp::from_millis(7),
        );
    }

    fn keys(page: &[Record]) -> Vec<&str> {
        page.iter().map(|record| record.key.as_deref().unwrap()).collect()
    }

    #[test]
    fn records_outlive_the_process_and_a_line_that_was_cut_off_spoils_none() {
        let dir = Dir::new("torn");
        let audit = Audit::open(&dir.0);
        note(&audit, "a");
        note(&audit, "b");
        drop(audit);
        let torn = b"{\"id\":3,\"at_ms\":7,\"who\":\"adm";
        OpenOptions::new().append(true).open(name(&dir.0, 0)).unwrap().write_all(torn).unwrap();
        let audit = Audit::open(&dir.0);
        note(&audit, "c");
        let page = audit.page(u64::MAX, 10).unwrap();
        assert_eq!(keys(&page), ["c", "b", "a"]);
        let ids: Vec<_> = page.iter().map(|record| record.id).collect();
        assert_eq!(ids, [3, 2, 1]);
        assert_eq!((&*page[0].why, &page[0].new), ("a \"test\"\n", &json!("2s")));
        assert_eq!(keys(&audit.page(3, 1).unwrap()), ["b"]);
        assert!(audit.page(1, 10).unwrap().is_empty());
    }

    #[test]
    fn the_files_are_bounded_and_pages_span_them() {
        let dir = Dir::new("bounded");
        let audit = Audit::open(&dir.0);
        let long = "k".repeat(100_000);
        // Two files more than are kept.
        let records = (KEPT + 3) * MAX_FILE_BYTES as usize / long.len();
        for n in 0..records {
            note(&audit, &format!("{n} {long}"));
        }
        let size: u64 = fs::read_dir(&dir.0).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
        assert!(size <= (KEPT as u64 + 1) * (MAX_FILE_BYTES + 200_000), "{size}");
        let (mut before, mut seen) = (u64::MAX, 0);
        loop {
            let page = audit.page(before, 30).unwrap();
            let Some(last) = page.last() else { break };
            assert!(page.windows(2).all(|w| w[0].id == w[1].id + 1), "in order, without a gap");
            assert!(before == u64::MAX || page[0].id == before - 1, "from page to page");
            (before, seen) = (last.id, seen + page.len());
        }
        assert!(seen * long.len() > KEPT * MAX_FILE_BYTES as usize, "{seen} of {records}");
        drop(audit);
        let audit = Audit::open(&dir.0);
        assert_eq!(audit.log.lock().next_id, records as u64 + 1);
    }

    #[test]
    fn changes_are_possible_without_a_writable_directory() {
        let dir = Dir::new("gone");
        let audit = Audit::open(&dir.0.join("nowhere"));
        note(&audit, "lost");
        assert!(audit.page(u64::MAX, 10).unwrap().is_empty());
        fs::create_dir(dir.0.join("nowhere")).unwrap();
        note(&audit, "kept");
        assert_eq!(keys(&audit.page(u64::MAX, 10).unwrap()), ["kept"]);
    }
}
