//! The file: SQLite in WAL mode, one table per archive, every row overwritten in place.
//!
//! **Round robin in place.** A row's key is computed from its series' number and its slot, so that an
//! interval overwrites the oldest one of its archive, and the file stops growing once all slots are in use.
//! The two finest archives are ordered by slot (the rows that all series write in a second share a page or
//! two), the coarser ones by series (a year of one series is read in one range).
//!
//! **Bound.** With S series, each of at most M figures, and R = 18,300 rows over all archives, a file is at
//! most
//!
//! ```text
//! 256 KiB + 2 × S × R × (4 + 12 × M + 20) bytes
//! ```
//!
//! 4 bytes of head, 12 per figure, 20 of SQLite's per row; twice, because a tree that does not grow at its
//! end may leave half of every page empty. SQLite's page limit is set to this bound. The write-ahead log
//! beside the file takes some 8 MiB at most.
//!
//! **Crashes.** `synchronous=NORMAL`: a second's transaction survives the process once it is committed; a
//! power failure may lose what was written since the last checkpoint, but never damages the file.
//!
//! Rejected: one blob per figure and archive, as in RRDtool (a query reads one blob, but every second writes
//! a page for every figure, 20 times as much); rows inserted and deleted by age (no bound, and two trees to
//! maintain).

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::archive::{ARCHIVES, Row, Series};
use super::layout::{FIGURE_BYTES, HEAD_BYTES};
use super::metrics::Scope;

mod reader;
mod schema;
mod series;

pub use reader::Reader;
pub use schema::Layouts;

use reader::read;
use schema::schema;
use series::{Entry, add_series, read_series};

const PAGE_BYTES: u64 = 4096;
/// The write-ahead log is copied into the file when it has this many pages (4 MiB).
const CHECKPOINT_PAGES: u64 = 1000;
/// How long to wait for the file's lock; only our own readers and writer take it.
const BUSY: Duration = Duration::from_secs(5);
/// SQLite's cache of pages, per connection, in KiB.
const CACHE_KIB: i64 = 1024;
/// Most series in a file; part of the keys.
pub const MAX_SERIES: usize = 256;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It is no history file, or damaged: it is to be set aside.
    #[error("not a usable history file: {0}")]
    Damaged(String),
    /// The disk, the directory, permissions.
    #[error(transparent)]
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, TypeMismatch, Unknown};
        let damaged = match &error {
            // Unknown: one of our statements is invalid because a table is missing or different.
            rusqlite::Error::SqliteFailure(e, _) => {
                matches!(e.code, DatabaseCorrupt | NotADatabase | TypeMismatch | Unknown)
            }
            rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..) => true,
            _ => false,
        };
        if damaged { Self::Damaged(error.to_string()) } else { Self::Sqlite(error) }
    }
}

/// Most bytes of a file with `series` series: the bound stated above.
pub fn most_bytes(series: usize) -> u64 {
    let figures = Scope::Class.metrics().len().max(Scope::Gate.metrics().len()) as u64;
    bound(series, figures)
}

fn bound(series: usize, figures: u64) -> u64 {
    let rows: u64 = ARCHIVES.iter().map(|a| a.rows).sum();
    (256 << 10) + 2 * series as u64 * rows * (HEAD_BYTES + FIGURE_BYTES * figures + 20)
}

/// The table of an archive.
fn table(archive: usize) -> String {
    format!("every_{}s", ARCHIVES[archive].step)
}

/// Whether the archive is ordered by slot.
const fn by_slot(archive: usize) -> bool {
    archive < 2
}

fn key(archive: usize, series: usize, slot: u64) -> u64 {
    if by_slot(archive) {
        slot * MAX_SERIES as u64 + series as u64
    } else {
        series as u64 * ARCHIVES[archive].rows + slot
    }
}

/// The file, for its one writer.
pub struct Store {
    db: Connection,
    layouts: Layouts,
    series: HashMap<Series, Entry>,
    max_series: usize,
    last: Option<u64>,
    bytes: Vec<u8>,
}

impl Store {
    /// Opens or creates the file, and adds missing figures to its list.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(path: &Path, max_series: usize) -> Result<Self, StoreError> {
        let max_series = max_series.clamp(2, MAX_SERIES);
        let mut db = Connection::open_with_flags(
            path,
            OpenFlags::SQLITE_OPEN_READ_WRITE
                | OpenFlags::SQLITE_OPEN_CREATE
                | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        db.busy_timeout(BUSY)?;
        // Checked before anything is changed. Without a checkpoint on close, another program's file and its
        // log, which the last connection would copy into the file and remove, stay as they are.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        schema::is_ours(&db)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        db.pragma_update(None, "page_size", PAGE_BYTES)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "NORMAL")?;
        db.pragma_update(None, "cache_size", -CACHE_KIB)?;
        db.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        db.pragma_update(None, "journal_size_limit", CHECKPOINT_PAGES * PAGE_BYTES)?;
        let change = db.transaction()?;
        schema(&change)?;
        let layouts = Layouts::read(&change)?;
        let series = read_series(&change)?;
        let last = change.query_row("SELECT at FROM last", [], |row| row.get::<_, u64>(0)).optional()?;
        change.commit()?;
        let most = bound(max_series.max(series.len()), layouts.width() as u64) / PAGE_BYTES;
        db.pragma_update(None, "max_page_count", most)?;
        Ok(Self { db, layouts, series, max_series, last, bytes: Vec::new() })
    }

    /// Runs SQLite's integrity check.
    ///
    /// # Errors
    /// The file is damaged or cannot be read.
    pub fn check(&self) -> Result<(), StoreError> {
        let verdict: String = self.db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if verdict == "ok" { Ok(()) } else { Err(StoreError::Damaged(verdict)) }
    }

    /// Does not let the file grow beyond so many pages; for tests of a full disk.
    #[cfg(test)]
    pub(super) fn limit_pages(&self, pages: u64) -> Result<(), StoreError> {
        Ok(self.db.pragma_update(None, "max_page_count", pages)?)
    }

    /// The second written last.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// Writes rows as one transaction; `at` is the second they belong to.
    ///
    /// Returns how many rows were dropped because all series are in use.
    ///
    /// # Errors
    /// Nothing was written.
    pub fn write<'r>(
        &mut self,
        at: u64,
        rows: impl IntoIterator<Item = &'r Row>,
    ) -> Result<usize, StoreError> {
        let rows: Vec<&Row> = rows.into_iter().collect();
        let result = self.try_write(at, &rows);
        if result.is_err() {
            // The transaction was rolled back, and with it the changes to the series.
            self.series = read_series(&self.db).unwrap_or_default();
        }
        result
    }

    fn try_write(&mut self, at: u64, rows: &[&Row]) -> Result<usize, StoreError> {
        let change = self.db.transaction()?;
        let mut homeless = 0;
        for row in rows {
            let known = self.series.get(&row.series).copied();
            let entry = match known {
                Some(entry) => Some(entry),
                None => {
                    // After an outage the coarser rows begin earlier.
                    let its = rows.iter().filter(|r| r.series == row.series);
                    let since = its.map(|r| r.at).min().unwrap_or(at);
                    add_series(&change, &mut self.series, self.max_series, &row.series, since)?
                }
            };
            let Some(entry) = entry else {
                homeless += 1;
                continue;
            };
            if entry.used / 60 != at / 60 {
                change
                    .prepare_cached("UPDATE series SET used = ?2 WHERE id = ?1")?
                    .execute(params![entry.id, at])?;
                self.series.insert(row.series.clone(), Entry { used: at, ..entry });
            }
            self.layouts.of(row.series.scope()).encode(&row.data, &mut self.bytes);
            let slot = ARCHIVES[row.archive].slot(row.at);
            let sql = format!(
                "INSERT INTO {} (key, at, data) VALUES (?1, ?2, ?3)
                 ON CONFLICT (key) DO UPDATE SET at = excluded.at, data = excluded.data",
                table(row.archive)
            );
            let key = key(row.archive, entry.id, slot);
            change.prepare_cached(&sql)?.execute(params![key, row.at, self.bytes])?;
        }
        change
            .prepare_cached(
                "INSERT INTO last (id, at) VALUES (0, ?1) ON CONFLICT (id) DO UPDATE SET at = ?1",
            )?
            .execute([at])?;
        change.commit()?;
        self.last = Some(at);
        Ok(homeless)
    }

    /// Rows of all series in an archive, from `from` to the second written last: for open intervals after a
    /// restart.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn rows(&self, archive: usize, from: u64) -> Result<Vec<Row>, StoreError> {
        let Some(last) = self.last else { return Ok(Vec::new()) };
        let mut rows = Vec::new();
        for (series, entry) in &self.series {
            let layout = self.layouts.of(series.scope());
            read(&self.db, archive, *entry, from..last + 1, |at, bytes| {
                rows.push(Row { archive, at, series: series.clone(), data: layout.decode(bytes) });
            })?;
        }
        rows.sort_by_key(|row| row.at);
        Ok(rows)
    }
}

#[cfg(test)]
mod tests;
