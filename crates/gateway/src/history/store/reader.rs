//! Reading the file: beside the writer, and after a restart.

use std::ops::Range;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, params};

use super::schema::Layouts;
use super::series::{Entry, one_series, read_series};
use super::{BUSY, CACHE_KIB, MAX_SERIES, StoreError, by_slot, key, table};
use crate::history::archive::{ARCHIVES, Archive, Series};

/// The file, for queries beside the writer.
pub struct Reader {
    db: Connection,
    layouts: Layouts,
}

impl Reader {
    /// Opens the file, which the writer has created.
    ///
    /// # Errors
    /// See [`StoreError`].
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

    /// The layouts of rows.
    pub fn layouts(&self) -> &Layouts {
        &self.layouts
    }

    /// Names of the series kept.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn series(&self) -> Result<Vec<Series>, StoreError> {
        Ok(read_series(&self.db)?.into_keys().collect())
    }

    /// Calls `each` with the beginning and the bytes of every interval of one series that begins in `span`,
    /// in any order.
    ///
    /// # Errors
    /// It cannot be read.
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

/// As [`Reader::read`], for a known series.
pub(super) fn read(
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
