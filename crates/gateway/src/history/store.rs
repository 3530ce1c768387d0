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
//! a page for every figure, 20 times as much); rows inserted and deleted by age (no bound, and two trees).

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};

use super::archive::{ARCHIVES, Archive, Row, Series};
use super::layout::{FIGURE_BYTES, HEAD_BYTES, Layout};
use super::metrics::Scope;

/// "Tdgt": the file is ours.
const APPLICATION_ID: i32 = 0x5464_6774;
/// Version of the tables, not of the figures.
const VERSION: i32 = 1;
const PAGE_BYTES: u64 = 4096;
/// The write-ahead log is copied into the file when it has this many pages (4 MiB).
const CHECKPOINT_PAGES: u64 = 1000;
/// How long to wait for the file's lock; only our own readers and writer take it.
const BUSY: Duration = Duration::from_secs(5);
/// SQLite's cache of pages, per connection, in KiB.
const CACHE_KIB: i64 = 1024;
/// Most series in a file; part of the keys.
pub const MAX_SERIES: usize = 256;

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
    let figures = Scope::ALL.map(|scope| scope.metrics().len()).into_iter().max().unwrap_or(0);
    bound(series, figures as u64)
}

fn bound(series: usize, figures: u64) -> u64 {
    let rows: u64 = ARCHIVES.iter().map(|a| a.rows).sum();
    (256 << 10) + 2 * series as u64 * rows * (HEAD_BYTES + FIGURE_BYTES * figures + 20)
}

fn table(archive: usize) -> String {
    format!("every_{}s", ARCHIVES[archive].step)
}

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
        is_ours(&db)?;
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

    pub fn check(&self) -> Result<(), StoreError> {
        let verdict: String = self.db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if verdict == "ok" { Ok(()) } else { Err(StoreError::Damaged(verdict)) }
    }

    /// Does not let the file grow beyond so many pages; for tests of a full disk.
    #[cfg(test)]
    pub(super) fn limit_pages(&self, pages: u64) -> Result<(), StoreError> {
        Ok(self.db.pragma_update(None, "max_page_count", pages)?)
    }

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

    /// Rows of all series in an archive, from `from` to the second written last: for a restart.
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

/// The file, for queries beside the writer.
pub struct Reader {
    db: Connection,
    layouts: Layouts,
}

impl Reader {
    /// Opens the file, which the writer has created.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let db = Connection::open_with_flags(
            path,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        db.busy_timeout(BUSY)?;
        db.pragma_update(None, "cache_size", -CACHE_KIB)?;
        let layouts = Layouts::read(&db)?;
        Ok(Self { db, layouts })
    }

    pub fn layouts(&self) -> &Layouts {
        &self.layouts
    }

    pub fn series(&self) -> Result<Vec<Series>, StoreError> {
        Ok(read_series(&self.db)?.into_keys().collect())
    }

    /// Calls `each` with the beginning and the bytes of every interval of a series in `span`, unordered.
    pub fn read(
        &self,
        archive: usize,
        series: &Series,
        span: Range<u64>,
        each: impl FnMut(u64, &[u8]),
    ) -> Result<(), StoreError> {
        match one_series(&self.db, series)? {
            Some(entry) => Ok(read(&self.db, archive, entry, span, each)?),
            None => Ok(()),
        }
    }
}

fn read(
    db: &Connection,
    archive: usize,
    entry: Entry,
    span: Range<u64>,
    mut each: impl FnMut(u64, &[u8]),
) -> rusqlite::Result<()> {
    let Archive { step, rows } = ARCHIVES[archive];
    let from = span.start.max((entry.since + 1).saturating_sub(step));
    if from >= span.end {
        return Ok(());
    }
    let (first, last) = (ARCHIVES[archive].slot(from), ARCHIVES[archive].slot(span.end - 1));
    let intervals = (span.end - 1) / step - from / step + 1;
    // A span over the ring's end has two ranges.
    let ranges = if intervals >= rows {
        vec![(0, rows - 1)]
    } else if first <= last {
        vec![(first, last)]
    } else {
        vec![(first, rows - 1), (0, last)]
    };
    let whose =
        if by_slot(archive) { format!("AND key % {MAX_SERIES} = {}", entry.id) } else { String::new() };
    let sql = format!(
        "SELECT at, data FROM {} WHERE key BETWEEN ?1 AND ?2 {whose} AND at >= ?3 AND at < ?4",
        table(archive)
    );
    let mut select = db.prepare_cached(&sql)?;
    for (first, last) in ranges {
        let keys = (key(archive, entry.id, first), key(archive, entry.id, last));
        let mut rows = select.query(params![keys.0, keys.1, from, span.end])?;
        while let Some(row) = rows.next()? {
            each(row.get(0)?, row.get_ref(1)?.as_blob()?);
        }
    }
    Ok(())
}

#[derive(Clone, Debug)]
pub struct Layouts([Layout; Scope::ALL.len()]);

impl Layouts {
    /// Those of the file; figures that it lacks are added if it is writable.
    fn read(db: &Connection) -> Result<Self, StoreError> {
        let [class, gate, detector] = Scope::ALL.map(|scope| layout(db, scope));
        Ok(Self([class?, gate?, detector?]))
    }

    fn width(&self) -> usize {
        self.0.iter().map(Layout::width).max().unwrap_or(0)
    }

    pub fn of(&self, scope: Scope) -> &Layout {
        &self.0[scope as usize]
    }
}

/// Whether the tables are ours; `false`: there are none. Writes nothing.
fn is_ours(db: &Connection) -> Result<bool, StoreError> {
    let number = |name| db.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(false);
    }
    match (number("application_id")?, number("user_version")?) {
        (APPLICATION_ID, VERSION) => Ok(true),
        (APPLICATION_ID, version) => {
            Err(StoreError::Damaged(format!("of version {version}, this program writes {VERSION}")))
        }
        _ => Err(StoreError::Damaged("another program's".into())),
    }
}

/// Creates the tables, or checks that they are ours.
fn schema(db: &Transaction<'_>) -> Result<(), StoreError> {
    if is_ours(db)? {
        return Ok(());
    }
    db.pragma_update(None, "application_id", APPLICATION_ID)?;
    db.pragma_update(None, "user_version", VERSION)?;
    db.execute_batch(
        "CREATE TABLE metric (scope TEXT NOT NULL, name TEXT NOT NULL, place INTEGER NOT NULL,
                              PRIMARY KEY (scope, name)) WITHOUT ROWID;
         CREATE TABLE series (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, since INTEGER NOT NULL,
                              used INTEGER NOT NULL);
         CREATE TABLE last (id INTEGER PRIMARY KEY, at INTEGER NOT NULL);",
    )?;
    for archive in 0..ARCHIVES.len() {
        let table = table(archive);
        db.execute_batch(&format!(
            "CREATE TABLE {table} (key INTEGER PRIMARY KEY, at INTEGER NOT NULL, data BLOB NOT NULL)"
        ))?;
    }
    Ok(())
}

/// The file's layout; figures that it lacks are added if it is writable.
fn layout(db: &Connection, scope: Scope) -> Result<Layout, StoreError> {
    let known: Vec<(String, usize)> = db
        .prepare("SELECT name, place FROM metric WHERE scope = ?1")?
        .query_map([scope.name()], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let (layout, new) = Layout::new(scope, &known)
        .map_err(|_| StoreError::Damaged("its list of figures is invalid".into()))?;
    if !db.is_readonly("main")? {
        for figure in new {
            let row = params![scope.name(), figure.name, figure.index];
            db.execute("INSERT INTO metric VALUES (?1, ?2, ?3)", row)?;
        }
    }
    Ok(layout)
}

#[derive(Clone, Copy)]
struct Entry {
    id: usize,
    /// Rows of intervals that ended before are those of the series that had the number earlier.
    since: u64,
    /// Last written, to the minute.
    used: u64,
}

fn read_series(db: &Connection) -> rusqlite::Result<HashMap<Series, Entry>> {
    db.prepare_cached("SELECT name, id, since, used FROM series")?
        .query_map([], |row| {
            let name: String = row.get(0)?;
            Ok((Series::from(&*name), Entry { id: row.get(1)?, since: row.get(2)?, used: row.get(3)? }))
        })?
        .collect()
}

fn one_series(db: &Connection, series: &Series) -> rusqlite::Result<Option<Entry>> {
    db.prepare_cached("SELECT id, since, used FROM series WHERE name = ?1")?
        .query_row([series.name()], |row| {
            Ok(Entry { id: row.get(0)?, since: row.get(1)?, used: row.get(2)? })
        })
        .optional()
}

/// Gives a series a number: a free one, or that of the series written least recently. `None`: all are in use.
fn add_series(
    db: &Transaction<'_>,
    all: &mut HashMap<Series, Entry>,
    max: usize,
    series: &Series,
    at: u64,
) -> rusqlite::Result<Option<Entry>> {
    let mut taken = [false; MAX_SERIES];
    for entry in all.values() {
        if let Some(taken) = taken.get_mut(entry.id) {
            *taken = true;
        }
    }
    let id = match taken[..max].iter().position(|taken| !taken) {
        Some(id) => id,
        None => {
            let oldest = all.iter().filter(|(_, e)| e.id < max).min_by_key(|(_, e)| e.used);
            // `used` is exact to the minute.
            let Some((name, entry)) = oldest.filter(|(_, e)| e.used + 120 < at) else { return Ok(None) };
            let (name, id) = (name.clone(), entry.id);
            tracing::info!(
                old = name.name(),
                new = series.name(),
                "history: an unused series makes room for a new one"
            );
            db.execute("DELETE FROM series WHERE id = ?1", [id])?;
            all.remove(&name);
            // After the clock has jumped back there may be rows of the future.
            for (archive, Archive { rows, step }) in ARCHIVES.iter().enumerate() {
                let whose = if by_slot(archive) {
                    format!("key % {MAX_SERIES} = {id}")
                } else {
                    let first = key(archive, id, 0);
                    format!("key BETWEEN {first} AND {}", first + rows - 1)
                };
                let sql = format!("UPDATE {} SET at = 0 WHERE {whose} AND at + {step} > ?1", table(archive));
                db.execute(&sql, [at])?;
            }
            id
        }
    };
    let entry = Entry { id, since: at, used: at };
    db.execute("INSERT INTO series VALUES (?1, ?2, ?3, ?3)", params![id, series.name(), at])?;
    all.insert(series.clone(), entry);
    Ok(Some(entry))
}

#[cfg(test)]
mod tests;
