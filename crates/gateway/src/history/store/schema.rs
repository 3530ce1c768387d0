//! The file's tables, and the figures it holds.

use rusqlite::{Connection, Transaction, params};

use super::{StoreError, table};
use crate::history::archive::ARCHIVES;
use crate::history::layout::Layout;
use crate::history::metrics::Scope;

/// "Tdgt": the file is ours.
const APPLICATION_ID: i32 = 0x5464_6774;
/// Version of the tables, not of the figures.
const VERSION: i32 = 1;

/// Layouts of both scopes.
#[derive(Clone, Debug)]
pub struct Layouts([Layout; 2]);

impl Layouts {
    /// Those of the file; figures that it lacks are added if it is writable.
    pub(super) fn read(db: &Connection) -> Result<Self, StoreError> {
        Ok(Self([layout(db, Scope::Class)?, layout(db, Scope::Gate)?]))
    }

    /// Most figures in a row.
    pub(super) fn width(&self) -> usize {
        self.0.iter().map(Layout::width).max().unwrap_or(0)
    }

    /// Of one scope.
    pub fn of(&self, scope: Scope) -> &Layout {
        &self.0[scope as usize]
    }
}

/// Whether the tables are ours; `false`: there are none. Writes nothing.
pub(super) fn is_ours(db: &Connection) -> Result<bool, StoreError> {
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
pub(super) fn schema(db: &Transaction<'_>) -> Result<(), StoreError> {
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
