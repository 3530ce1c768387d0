//! The shop: a real auction service over a real SQLite database, for when a model will not do.
//!
//! In the spirit of RUBiS (Cecchet, Marguerite, Zwaenepoel, "Performance and scalability of EJB
//! applications", OOPSLA 2002), the eBay-like benchmark behind WAC and Porter & Katz. One kind of page, the
//! search, costs hundreds of times what the others cost; see `store.rs` for why.
//!
//! ```text
//!  answer ─► app: workers, bounded backlog ─► db: connections, one writer ─► SQLite file
//!              route.rs, pages.rs               store.rs                       fill.rs
//! ```
//!
//! An app worker is held while its query is in the database, as in any service with a thread per request:
//! searches that fill the database's queue fill the workers next, then the backlog, and then those are
//! refused who only wanted the home page. A file with WAL rather than a database in memory: connections to a
//! shared memory database lock each other's tables, so that a bid would wait for searches. All pages stay in
//! the page cache; no disk is waited for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use tidegate_gateway::base::clock::Clock;

use crate::scratch::Scratch;

mod database;
mod fields;
mod fill;
mod load;
mod pages;
mod route;
mod rubis;
mod service;
mod stage;
mod store;
mod visit;
mod vocabulary;

#[cfg(test)]
mod tests;

pub use crate::scenario::{MAX_SHOP_SERVERS as MAX_SERVERS, NotASize, ShopSize as Size};
pub use service::{Ended, Service, Tiers};

/// Bytes of the database that are mapped rather than copied: more than the largest shop.
const MAP_BYTES: i64 = 1 << 30;

#[derive(Debug, thiserror::Error)]
pub enum ShopError {
    /// The directory cannot be made, or the system gives no thread.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{}: {source}", path.display())]
    Database { path: PathBuf, source: rusqlite::Error },
    /// A file that was kept is another shop, or none. It is left alone.
    #[error("{}: expected {expected}, got {got}; remove the file or choose another directory", path.display())]
    Another { path: PathBuf, expected: String, got: String },
    /// A tier without servers, or with more than [`MAX_SERVERS`].
    #[error("{name}: expected 1 to {MAX_SERVERS}, since each is a thread; got {got}")]
    Servers {
        /// `workers` or `connections`.
        name: &'static str,
        got: usize,
    },
}

/// A filled database. Shared by the replicas of one service.
pub struct Shop {
    path: PathBuf,
    /// Its own directory; `None`: the user's.
    temporary: Option<Scratch>,
    size: Size,
    clock: Clock,
    opened_us: i64,
    writer: Arc<Mutex<()>>,
}

impl Shop {
    /// Creates the database and fills it: the same content for the same `size` and `seed`. With `dir`, the
    /// file `shop.db` in it is kept, and used again if it is the same shop; auctions that have ended since
    /// stay so. Without, it lives in a directory for temporary files and is removed when the shop is dropped.
    /// Medium takes about a second.
    ///
    /// # Errors
    /// See [`ShopError`]. A file that holds anything else is not touched.
    pub fn open(dir: Option<&Path>, size: Size, seed: u64) -> Result<Self, ShopError> {
        let failed =
            |dir: &Path, source| ShopError::Io { what: format!("cannot make {}", dir.display()), source };
        let (dir, temporary) = match dir {
            Some(dir) => (dir.to_owned(), None),
            None => {
                let scratch = Scratch::new("shop").map_err(|(dir, source)| failed(&dir, source))?;
                (scratch.path().to_owned(), Some(scratch))
            }
        };
        fs::create_dir_all(&dir).map_err(|source| failed(&dir, source))?;
        let clock = Clock::new();
        let opened_us = clock.now().as_micros().cast_signed();
        let path = dir.join("shop.db");
        let mut shop = Self { path, temporary, size, clock, opened_us, writer: Arc::default() };
        shop.opened_us = match shop.kept(seed)? {
            Some(opened_us) => opened_us,
            None => fill::fill(&mut shop.connect()?, size, seed, opened_us)
                .map(|()| opened_us)
                .map_err(|source| shop.database(source))?,
        };
        Ok(shop)
    }

    pub fn size(&self) -> Size {
        self.size
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn now_s(&self) -> i64 {
        (self.clock.now().as_micros().cast_signed() - self.opened_us).div_euclid(1_000_000)
    }

    fn connect(&self) -> Result<Connection, ShopError> {
        let connect = || {
            let connection = Connection::open(&self.path)?;
            connection.pragma_update(None, "journal_mode", "wal")?;
            // Nobody's bids are lost with a temporary file; with a kept one, WAL needs no more than NORMAL.
            let synchronous = if self.temporary.is_some() { "off" } else { "normal" };
            connection.pragma_update(None, "synchronous", synchronous)?;
            connection.pragma_update(None, "mmap_size", MAP_BYTES)?;
            // What a search sorts.
            connection.pragma_update(None, "temp_store", "memory")?;
            Ok(connection)
        };
        connect().map_err(|source| self.database(source))
    }

    /// When the shop in the file was opened; `None`: there is no file, or it is empty. Only reads: a
    /// connection as the shop has them would already change a file that is something else.
    fn kept(&self, seed: u64) -> Result<Option<i64>, ShopError> {
        if !self.path.exists() {
            return Ok(None);
        }
        let database = |source| self.database(source);
        let connection =
            Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(database)?;
        let another = |got| {
            let size = self.size.name();
            let expected = format!("a {size} shop of seed {seed}, version {}", fill::VERSION);
            ShopError::Another { path: self.path.clone(), expected, got }
        };
        let tables =
            "SELECT count(*), coalesce(sum(name = 'shop'), 0) FROM sqlite_schema WHERE type = 'table'";
        let (tables, shops): (u32, u32) =
            connection.query_row(tables, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(database)?;
        if tables == 0 {
            return Ok(None);
        }
        if shops == 0 {
            return Err(another("a database of something else".into()));
        }
        let same = "SELECT opened_us FROM shop WHERE version = ?1 AND size = ?2 AND seed = ?3";
        let row = params![fill::VERSION, self.size.name(), seed.cast_signed()];
        let kept = connection.query_row(same, row, |row| row.get(0)).optional().map_err(database)?;
        kept.map_or_else(|| Err(another("another shop".into())), |opened_us| Ok(Some(opened_us)))
    }

    fn database(&self, source: rusqlite::Error) -> ShopError {
        ShopError::Database { path: self.path.clone(), source }
    }
}
