//! The database tier's way in: one [`Query`] in, one [`Found`] out.

use parking_lot::Mutex;
use rusqlite::{Connection, Result};

use super::route::Query;
use super::{rubis, store};

#[derive(Debug, PartialEq)]
pub(super) enum Found {
    Shop(store::Found),
    Rubis(rubis::store::Answer),
}

/// Answers `ask`. `now_s`: seconds since the shop's opening. SQLite takes one writer at a time; writers queue
/// at `writer`, because SQLite itself would make them poll.
pub(super) fn run(connection: &mut Connection, writer: &Mutex<()>, ask: &Query, now_s: i64) -> Result<Found> {
    match ask {
        Query::Rubis(ask) => {
            let _turn = ask.writes().then(|| writer.lock());
            rubis::store::run(connection, ask, now_s).map(Found::Rubis)
        }
        ask => store::run(connection, writer, ask, now_s).map(Found::Shop),
    }
}
