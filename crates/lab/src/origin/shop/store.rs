//! The database tier: one [`Query`] in, one [`Found`] out. All of the shop's SQL.
//!
//! Every query has an index that leads to the few rows it wants, except one. `LIKE '%word%'` cannot use an
//! index, because the word may stand anywhere: the search reads title and description of every item, counts
//! what matches and sorts it, whatever the page asked for. Real shops that began without a full-text index
//! have exactly this query (RUBiS calls it SearchItemsInCategory and finds it the most expensive of the
//! site), and it stays in step with their growth. So a search costs as much as hundreds of views, in the one
//! tier that has few servers: this is what hurts.

use std::fmt::{self, Display};

use parking_lot::Mutex;
use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Params, Result, Row, TransactionBehavior, params};
use serde::Serialize;

use super::route::{BidForm, Query};

/// Items on a page of a list.
pub(super) const PAGE_ITEMS: u32 = 20;
/// Bids, comments and items shown on an item's or a user's page.
pub(super) const SHOWN: u32 = 10;

#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// The auctions that end first.
    Home(Vec<Listing>),
    /// A page of a category or of what a search found.
    List(List),
    Item(Box<Item>),
    User(Box<User>),
    Bid(Result<Accepted, Refusal>),
    Nothing,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Listing {
    pub id: i64,
    pub title: String,
    pub category: u32,
    /// The highest bid; the starting price if there is none.
    pub price_cents: i64,
    pub bids: u32,
    /// Seconds until the auction ends; negative: over.
    pub ends_in_s: i64,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct List {
    /// All that match, on whatever page.
    pub total: u64,
    pub items: Vec<Listing>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Item {
    #[serde(flatten)]
    pub listing: Listing,
    pub description: String,
    pub seller: i64,
    pub seller_name: String,
    pub seller_rating: i64,
    /// The least amount that leads.
    pub least_cents: i64,
    pub history: Vec<Offer>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Offer {
    pub bidder: i64,
    pub bidder_name: String,
    pub cents: i64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct User {
    pub id: i64,
    pub name: String,
    pub region: String,
    pub rating: i64,
    pub selling: Vec<Listing>,
    pub comments: Vec<Comment>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Comment {
    pub author: i64,
    pub author_name: String,
    pub rating: i64,
    pub text: String,
}

/// Cents as an amount: `12.50`.
pub(super) struct Money(pub i64);

impl Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Accepted {
    pub bid: i64,
    pub item: i64,
    pub cents: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("there is no such item")]
    NoItem,
    #[error("there is no such user")]
    NoUser,
    #[error("sellers may not bid on their own items")]
    OwnItem,
    #[error("the auction is over")]
    Over,
    #[error("the bid is too low: {} or more would lead", Money(*.least_cents))]
    TooLow { least_cents: i64 },
}

pub(super) struct Auction {
    pub seller: i64,
    ends_s: i64,
    start_cents: i64,
    highest_cents: Option<i64>,
}

impl Auction {
    pub fn least_cents(&self) -> i64 {
        self.highest_cents.map_or(self.start_cents, |highest| highest + 1)
    }
}

/// Answers `ask`. `now_s`: seconds since the shop's opening. SQLite takes one writer at a time; bidders queue
/// at `writer`, because SQLite itself would make them poll.
pub(super) fn run(connection: &mut Connection, writer: &Mutex<()>, ask: &Query, now_s: i64) -> Result<Found> {
    match ask {
        Query::Home => snapshot(connection, |at| home(at, now_s)).map(Found::Home),
        Query::Browse { category, page } => {
            snapshot(connection, |at| browse(at, *category, *page, now_s)).map(Found::List)
        }
        Query::Search { text, category, page } => {
            snapshot(connection, |at| search(at, text, *category, *page, now_s)).map(Found::List)
        }
        Query::Item(id) => snapshot(connection, |at| item(at, *id, now_s)),
        Query::User(id) => snapshot(connection, |at| user(at, *id, now_s)),
        Query::Lucky(number) => snapshot(connection, |at| lucky_item(at, *number, now_s)),
        Query::Bid(form) => {
            let _turn = writer.lock();
            bid(connection, *form, now_s).map(Found::Bid)
        }
        Query::LuckyBid(number) => {
            let _turn = writer.lock();
            lucky_bid(connection, *number, now_s).map(Found::Bid)
        }
        Query::Rubis(_) => unreachable!("`database.rs` leads it elsewhere"),
    }
}

/// One state of the shop for all statements of a page: the price of an item is the highest bid beside it.
fn snapshot<T>(connection: &mut Connection, look: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
    let transaction = connection.transaction()?;
    look(&transaction)
}

/// Columns of a [`Listing`]; `?1` is the time now.
const LISTING: &str = "id, title, category, coalesce(highest_cents, start_cents), bids, ends_s - ?1";

pub(super) fn listing(row: &Row<'_>) -> Result<Listing> {
    Ok(Listing {
        id: row.get(0)?,
        title: row.get(1)?,
        category: row.get(2)?,
        price_cents: row.get(3)?,
        bids: row.get(4)?,
        ends_in_s: row.get(5)?,
    })
}

pub(super) fn one<T: FromSql>(connection: &Connection, sql: &str, of: impl Params) -> Result<T> {
    connection.prepare_cached(sql)?.query_row(of, |row| row.get(0))
}

pub(super) fn offset(page: u32) -> u32 {
    page.saturating_sub(1).saturating_mul(PAGE_ITEMS)
}

fn home(connection: &Connection, now_s: i64) -> Result<Vec<Listing>> {
    let sql = format!("SELECT {LISTING} FROM items WHERE ends_s > ?1 ORDER BY ends_s, id LIMIT ?2");
    connection.prepare_cached(&sql)?.query_map([now_s, SHOWN.into()], listing)?.collect()
}

fn browse(connection: &Connection, category: u32, page: u32, now_s: i64) -> Result<List> {
    let count = "SELECT count(*) FROM items WHERE category = ?1 AND ends_s > ?2";
    let total = one(connection, count, params![category, now_s])?;
    let sql = format!(
        "SELECT {LISTING} FROM items WHERE ends_s > ?1 AND category = ?2 ORDER BY ends_s, id LIMIT ?3 OFFSET ?4"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params![now_s, category, PAGE_ITEMS, offset(page)], listing)?;
    Ok(List { total, items: rows.collect::<Result<_>>()? })
}

/// Open auctions with `text` in title or description (ASCII letters in either case), most bids first.
fn search(connection: &Connection, text: &str, category: Option<u32>, page: u32, now_s: i64) -> Result<List> {
    // One pass both counts and sorts. NOT INDEXED: nearly all auctions are open, and to read them all in the
    // order of their ends would only add a look-up per item. With a category, its index narrows the scan to a
    // twentieth.
    let table = if category.is_some() { "items" } else { "items NOT INDEXED" };
    let sql = format!(
        "SELECT {LISTING}, count(*) OVER () FROM {table}
         WHERE ends_s > ?1 AND (title LIKE ?2 ESCAPE '\\' OR description LIKE ?2 ESCAPE '\\') {}
         ORDER BY bids DESC, id LIMIT ?3 OFFSET ?4",
        if category.is_some() { "AND category = ?5" } else { "AND ?5 IS NULL" }
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![now_s, pattern(text), PAGE_ITEMS, offset(page), category])?;
    let mut list = List { total: 0, items: Vec::new() };
    while let Some(row) = rows.next()? {
        list.total = row.get(6)?;
        list.items.push(listing(row)?);
    }
    Ok(list)
}

/// `text` anywhere, as a pattern for LIKE in which every character stands for itself.
fn pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 2);
    pattern.push('%');
    for c in text.chars() {
        if matches!(c, '\\' | '%' | '_') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

pub(super) fn item(connection: &Connection, id: i64, now_s: i64) -> Result<Found> {
    let sql = format!("SELECT {LISTING}, description, seller, start_cents FROM items WHERE id = ?2");
    let found = connection
        .prepare_cached(&sql)?
        .query_row([now_s, id], |row| {
            Ok((listing(row)?, row.get::<_, String>(6)?, row.get::<_, i64>(7)?, row.get::<_, i64>(8)?))
        })
        .optional()?;
    let Some((listing, description, seller, start_cents)) = found else { return Ok(Found::Nothing) };
    let (seller_name, seller_rating) = connection
        .prepare_cached("SELECT name, rating FROM users WHERE id = ?1")?
        .query_row([seller], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut statement = connection.prepare_cached(
        "SELECT bidder, users.name, cents FROM bids JOIN users ON users.id = bidder
         WHERE item = ?1 ORDER BY cents DESC LIMIT ?2",
    )?;
    let offers = statement.query_map([id, SHOWN.into()], |row| {
        Ok(Offer { bidder: row.get(0)?, bidder_name: row.get(1)?, cents: row.get(2)? })
    })?;
    let history: Vec<Offer> = offers.collect::<Result<_>>()?;
    let least_cents = history.first().map_or(start_cents, |highest| highest.cents + 1);
    let item = Item { listing, description, seller, seller_name, seller_rating, least_cents, history };
    Ok(Found::Item(Box::new(item)))
}

pub(super) fn user(connection: &Connection, id: i64, now_s: i64) -> Result<Found> {
    let found = connection
        .prepare_cached(
            "SELECT users.name, regions.name, rating FROM users JOIN regions ON regions.id = region
             WHERE users.id = ?1",
        )?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((name, region, rating)) = found else { return Ok(Found::Nothing) };
    let sql = format!("SELECT {LISTING} FROM items WHERE seller = ?2 ORDER BY ends_s DESC, id LIMIT ?3");
    let selling: Result<_> =
        connection.prepare_cached(&sql)?.query_map([now_s, id, SHOWN.into()], listing)?.collect();
    let mut statement = connection.prepare_cached(
        "SELECT author, users.name, comments.rating, text FROM comments JOIN users ON users.id = author
         WHERE about = ?1 ORDER BY at_s DESC, comments.id LIMIT ?2",
    )?;
    let comments = statement.query_map([id, SHOWN.into()], |row| {
        Ok(Comment { author: row.get(0)?, author_name: row.get(1)?, rating: row.get(2)?, text: row.get(3)? })
    })?;
    let comments = comments.collect::<Result<_>>()?;
    Ok(Found::User(Box::new(User { id, name, region, rating, selling: selling?, comments })))
}

/// A bid is one transaction that holds the only right to write from its first look on: between the comparison
/// with the highest bid and the new one, nobody else bids.
fn bid(connection: &mut Connection, form: BidForm, now_s: i64) -> Result<Result<Accepted, Refusal>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let outcome = place_bid(&transaction, form, now_s)?;
    transaction.commit()?;
    Ok(outcome)
}

/// The same, within a transaction that holds the right to write.
pub(super) fn place_bid(
    connection: &Connection,
    form: BidForm,
    now_s: i64,
) -> Result<Result<Accepted, Refusal>> {
    let auction = match judge(connection, form, now_s)? {
        Ok(auction) => auction,
        Err(refusal) => return Ok(Err(refusal)),
    };
    debug_assert!(auction.highest_cents.is_none_or(|highest| form.cents > highest));
    connection
        .prepare_cached("INSERT INTO bids (item, bidder, cents, at_s) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![form.item, form.user, form.cents, now_s])?;
    let bid = connection.last_insert_rowid();
    connection
        .prepare_cached("UPDATE items SET bids = bids + 1, highest_cents = ?2 WHERE id = ?1")?
        .execute([form.item, form.cents])?;
    Ok(Ok(Accepted { bid, item: form.item, cents: form.cents }))
}

fn judge(connection: &Connection, form: BidForm, now_s: i64) -> Result<Result<Auction, Refusal>> {
    let Some(auction) = auction(connection, form.item)? else { return Ok(Err(Refusal::NoItem)) };
    let known: bool = one(connection, "SELECT EXISTS (SELECT 1 FROM users WHERE id = ?1)", [form.user])?;
    let least_cents = auction.least_cents();
    Ok(match () {
        () if !known => Err(Refusal::NoUser),
        () if auction.seller == form.user => Err(Refusal::OwnItem),
        () if auction.ends_s <= now_s => Err(Refusal::Over),
        () if form.cents < least_cents => Err(Refusal::TooLow { least_cents }),
        () => Ok(auction),
    })
}

pub(super) fn auction(connection: &Connection, id: i64) -> Result<Option<Auction>> {
    connection
        .prepare_cached("SELECT seller, ends_s, start_cents, highest_cents FROM items WHERE id = ?1")?
        .query_row([id], |row| {
            Ok(Auction {
                seller: row.get(0)?,
                ends_s: row.get(1)?,
                start_cents: row.get(2)?,
                highest_cents: row.get(3)?,
            })
        })
        .optional()
}

/// The open auction that a number falls on: for visitors who have no catalogue, such as a load generator's.
pub(super) fn lucky(connection: &Connection, number: u32, now_s: i64) -> Result<Option<i64>> {
    let items: i64 = one(connection, "SELECT coalesce(max(id), 0) FROM items", [])?;
    let from = 1 + i64::from(number) % items.max(1);
    let first = "SELECT id FROM items NOT INDEXED WHERE id >= ?1 AND ends_s > ?2 ORDER BY id LIMIT 1";
    match one(connection, first, [from, now_s]).optional()? {
        Some(id) => Ok(Some(id)),
        None => one(connection, first, [1, now_s]).optional(),
    }
}

fn lucky_item(connection: &Connection, number: u32, now_s: i64) -> Result<Found> {
    let id = lucky(connection, number, now_s)?;
    id.map_or(Ok(Found::Nothing), |id| item(connection, id, now_s))
}

/// Somebody bids the least that leads on the item `number` falls on. The writer's turn covers both looks, so
/// that the amount still leads when it is bid.
fn lucky_bid(connection: &mut Connection, number: u32, now_s: i64) -> Result<Result<Accepted, Refusal>> {
    let Some(item) = lucky(connection, number, now_s)? else { return Ok(Err(Refusal::NoItem)) };
    let Some(auction) = auction(connection, item)? else { return Ok(Err(Refusal::NoItem)) };
    let users: i64 = one(connection, "SELECT coalesce(max(id), 0) FROM users", [])?;
    let user = 1 + i64::from(number) % users.max(1);
    let user = if user == auction.seller { 1 + user % users.max(1) } else { user };
    bid(connection, BidForm { item, user, cents: auction.least_cents() }, now_s)
}
