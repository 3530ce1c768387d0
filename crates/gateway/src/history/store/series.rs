//! The series in the file, and which one loses its number when all are taken.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::{MAX_SERIES, by_slot, key, table};
use crate::history::archive::{ARCHIVES, Archive, Series};

#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub id: usize,
    /// Rows of intervals that ended before are those of the series that had the number earlier.
    pub since: u64,
    /// Last written, to the minute.
    pub used: u64,
}

pub(super) fn read_series(db: &Connection) -> rusqlite::Result<HashMap<Series, Entry>> {
    db.prepare_cached("SELECT name, id, since, used FROM series")?
        .query_map([], |row| {
            let name: String = row.get(0)?;
            Ok((Series::from(&*name), Entry { id: row.get(1)?, since: row.get(2)?, used: row.get(3)? }))
        })?
        .collect()
}

pub(super) fn one_series(db: &Connection, series: &Series) -> rusqlite::Result<Option<Entry>> {
    db.prepare_cached("SELECT id, since, used FROM series WHERE name = ?1")?
        .query_row([series.name()], |row| {
            Ok(Entry { id: row.get(0)?, since: row.get(1)?, used: row.get(2)? })
        })
        .optional()
}

/// Gives a series a number: a free one, or that of the series whose last write is the oldest. `None`: all are
/// in use.
pub(super) fn add_series(
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
