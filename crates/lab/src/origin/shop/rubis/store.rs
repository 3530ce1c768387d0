//! The SQL of the sixteen requests.
//!
//! The two searches show the liveliest auctions first: most bids of the last week, then the best rated
//! seller. That order lies in two other tables, so no index has it. The database joins every open item of the
//! category or of the region's sellers with its seller and its bids, and sorts all of them for the twenty
//! that are shown. Everything else finds its few rows by an index. RUBiS's searches are its expensive
//! requests for the same reason.

use rusqlite::{Connection, OptionalExtension, Result, TransactionBehavior, params};

use super::super::fill::WEEK_S;
use super::super::route::BidForm;
use super::super::store::{
    self, Accepted, Found, Item, List, Listing, PAGE_ITEMS, Refusal, SHOWN, User, lucky, offset, one,
};
use super::{Ask, NewComment, NewItem, nth};

/// Rows that each table takes beyond those it was filled with: bounds the file of a shop that is under load
/// for days. Bids, items, users, comments and purchases of a day at a hundred writes a second.
const MAX_ADDED: i64 = 10_000_000;
/// Bids on the page of an item's history.
const MAX_HISTORY: u32 = 50;

#[derive(Debug, PartialEq)]
pub(in super::super) enum Answer {
    /// Categories or regions: number and name.
    Names {
        heading: &'static str,
        link: &'static str,
        names: Vec<(u32, String)>,
    },
    List {
        heading: &'static str,
        list: List,
    },
    Me(Box<Me>),
    SellForm {
        category: u32,
    },
    /// The form to bid on an item or to buy it: what is asked before either.
    Auth {
        item: Listing,
        buys: bool,
        cents: i64,
    },
    History {
        item: Listing,
        bids: Vec<(i64, String, i64)>,
    },
    Done {
        what: &'static str,
        number: i64,
    },
    Refused(Refused),
    Item(Box<Item>),
    User(Box<User>),
    Nothing,
}

#[derive(Debug, PartialEq)]
pub(in super::super) struct Me {
    pub user: User,
    /// Item and amount, the latest first.
    pub bids: Vec<(i64, i64)>,
    pub purchases: Vec<(i64, i64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum Refused {
    #[error(transparent)]
    Bid(#[from] Refusal),
    #[error("the shop takes no more of these")]
    Full,
}

pub(in super::super) fn run(connection: &mut Connection, ask: &Ask, now_s: i64) -> Result<Answer> {
    if ask.writes() {
        // The only right to write is held from the first look on, as in a bid.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let answer = write(&transaction, ask, now_s)?;
        transaction.commit()?;
        return Ok(answer);
    }
    let transaction = connection.transaction()?;
    look(&transaction, ask, now_s)
}

fn look(connection: &Connection, ask: &Ask, now_s: i64) -> Result<Answer> {
    let answer = match *ask {
        Ask::BrowseCategories => names(connection, "Categories", "SearchItemsByCategory?category")?,
        Ask::BrowseRegions => names(connection, "Regions", "SearchItemsByRegion?region")?,
        Ask::SearchItemsByCategory { category, page } => Answer::List {
            heading: "Items of a category",
            list: by_category(connection, category, page, now_s)?,
        },
        Ask::SearchItemsByRegion { region, page } => {
            Answer::List { heading: "Items of a region", list: by_region(connection, region, page, now_s)? }
        }
        Ask::AboutMe { user } => about_me(connection, user, now_s)?,
        Ask::SellItemForm { category } => Answer::SellForm { category },
        Ask::ViewItem { item } => shown(store::item(connection, item_of(connection, item)?, now_s)?),
        Ask::ViewUserInfo { user } => shown(store::user(connection, user_of(connection, user)?, now_s)?),
        Ask::PutBidAuth { item } => auth(connection, item, false, now_s)?,
        Ask::BuyNowAuth { item } => auth(connection, item, true, now_s)?,
        Ask::ViewBidHistory { item } => history(connection, item, now_s)?,
        Ask::RegisterUser { .. }
        | Ask::RegisterItem(_)
        | Ask::PutComment(_)
        | Ask::PutBid { .. }
        | Ask::BuyNow { .. } => unreachable!("`run` leads those that write elsewhere"),
    };
    Ok(answer)
}

/// What the shop's other pages show, too.
fn shown(found: Found) -> Answer {
    match found {
        Found::Item(item) => Answer::Item(item),
        Found::User(user) => Answer::User(user),
        _ => Answer::Nothing,
    }
}

fn write(connection: &Connection, ask: &Ask, now_s: i64) -> Result<Answer> {
    let written = match ask {
        Ask::RegisterUser { region } => register_user(connection, *region, now_s)?,
        Ask::RegisterItem(item) => register_item(connection, item, now_s)?,
        Ask::PutComment(comment) => put_comment(connection, comment, now_s)?,
        Ask::PutBid { item, user, cents } => put_bid(connection, *item, *user, *cents, now_s)?,
        Ask::BuyNow { item, user } => buy_now(connection, *item, *user, now_s)?,
        _ => unreachable!("`run` leads those that only read elsewhere"),
    };
    Ok(match written {
        Ok((what, number)) => Answer::Done { what, number },
        Err(refused) => Answer::Refused(refused),
    })
}

type Written = Result<(&'static str, i64), Refused>;

fn last(connection: &Connection, table: &str) -> Result<i64> {
    one(connection, &format!("SELECT coalesce(max(id), 0) FROM {table}"), [])
}

/// The number of the item that a number falls on.
fn item_of(connection: &Connection, number: u32) -> Result<i64> {
    Ok(nth(number, last(connection, "items")?.max(1)))
}

fn user_of(connection: &Connection, number: u32) -> Result<i64> {
    Ok(nth(number, last(connection, "users")?.max(1)))
}

/// The same, but not this one.
fn user_but(connection: &Connection, number: u32, other: i64) -> Result<i64> {
    let users = last(connection, "users")?.max(1);
    let user = nth(number, users);
    Ok(if user == other { 1 + user % users } else { user })
}

fn names(connection: &Connection, heading: &'static str, link: &'static str) -> Result<Answer> {
    let sql = format!("SELECT id, name FROM {} ORDER BY name", heading.to_ascii_lowercase());
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Answer::Names { heading, link, names: rows.collect::<Result<_>>()? })
}

/// Columns of a [`Listing`] and the order of both searches; `?1` is the time now, `?2` a week before it.
const LIVELY: &str =
    "SELECT items.id, title, category, coalesce(highest_cents, start_cents), bids, ends_s - ?1";
const LIVELIEST_FIRST: &str =
    "ORDER BY (SELECT count(*) FROM bids WHERE bids.item = items.id AND bids.at_s > ?2) DESC,
    seller_of.rating DESC, items.id LIMIT ?4 OFFSET ?5";

fn by_category(connection: &Connection, category: u32, page: u32, now_s: i64) -> Result<List> {
    let count = "SELECT count(*) FROM items WHERE category = ?1 AND ends_s > ?2";
    let total = one(connection, count, params![category, now_s])?;
    // CROSS JOIN: in SQLite it only says which table comes first.
    let sql = format!(
        "{LIVELY} FROM items CROSS JOIN users AS seller_of ON seller_of.id = items.seller
         WHERE category = ?3 AND ends_s > ?1 {LIVELIEST_FIRST}"
    );
    Ok(List { total, items: lively(connection, &sql, category, page, now_s)? })
}

fn by_region(connection: &Connection, region: u32, page: u32, now_s: i64) -> Result<List> {
    let of_region = "users AS seller_of CROSS JOIN items ON items.seller = seller_of.id
        WHERE seller_of.region = ?3 AND ends_s > ?1";
    let count = format!("SELECT count(*) FROM {} ", of_region.replace("?3", "?2"));
    let total = one(connection, &count, params![now_s, region])?;
    let sql = format!("{LIVELY} FROM {of_region} {LIVELIEST_FIRST}");
    Ok(List { total, items: lively(connection, &sql, region, page, now_s)? })
}

fn lively(connection: &Connection, sql: &str, which: u32, page: u32, now_s: i64) -> Result<Vec<Listing>> {
    let mut statement = connection.prepare_cached(sql)?;
    let of = params![now_s, now_s - WEEK_S, which, PAGE_ITEMS, offset(page)];
    statement.query_map(of, store::listing)?.collect()
}

fn about_me(connection: &Connection, user: u32, now_s: i64) -> Result<Answer> {
    let id = user_of(connection, user)?;
    let Found::User(user) = store::user(connection, id, now_s)? else { return Ok(Answer::Nothing) };
    let pairs = |sql| -> Result<Vec<(i64, i64)>> {
        let mut statement = connection.prepare_cached(sql)?;
        statement.query_map([id, SHOWN.into()], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    };
    let bids = pairs("SELECT item, cents FROM bids WHERE bidder = ?1 ORDER BY at_s DESC, id DESC LIMIT ?2")?;
    let purchases = pairs("SELECT item, cents FROM purchases WHERE buyer = ?1 ORDER BY id DESC LIMIT ?2")?;
    Ok(Answer::Me(Box::new(Me { user: *user, bids, purchases })))
}

/// The open auction that a number falls on, and its form.
fn auth(connection: &Connection, number: u32, buys: bool, now_s: i64) -> Result<Answer> {
    let Some(id) = lucky(connection, number, now_s)? else { return Ok(Answer::Nothing) };
    let Found::Item(item) = store::item(connection, id, now_s)? else { return Ok(Answer::Nothing) };
    let cents = if buys { buy_now_cents(item.listing.price_cents) } else { item.least_cents };
    Ok(Answer::Auth { item: item.listing, buys, cents })
}

/// For so much an item is sold at once: twice its price.
fn buy_now_cents(price_cents: i64) -> i64 {
    price_cents * 2
}

fn history(connection: &Connection, number: u32, now_s: i64) -> Result<Answer> {
    let id = item_of(connection, number)?;
    let Found::Item(item) = store::item(connection, id, now_s)? else { return Ok(Answer::Nothing) };
    let mut statement = connection.prepare_cached(
        "SELECT bidder, users.name, cents FROM bids JOIN users ON users.id = bidder
         WHERE item = ?1 ORDER BY cents DESC LIMIT ?2",
    )?;
    let rows =
        statement.query_map([id, MAX_HISTORY.into()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(Answer::History { item: item.listing, bids: rows.collect::<Result<_>>()? })
}

/// Whether a table takes another row: those that the shop was filled with are in `shop`.
fn is_full(connection: &Connection, table: &str) -> Result<bool> {
    let filled: i64 = one(connection, &format!("SELECT {table} FROM filled"), [])?;
    Ok(last(connection, table)? - filled >= MAX_ADDED)
}

fn register_user(connection: &Connection, region: u32, now_s: i64) -> Result<Written> {
    if is_full(connection, "users")? {
        return Ok(Err(Refused::Full));
    }
    let name = format!("visitor{}", last(connection, "users")? + 1);
    connection
        .prepare_cached("INSERT INTO users (name, region, rating, joined_s) VALUES (?1, ?2, 0, ?3)")?
        .execute(params![name, region, now_s])?;
    Ok(Ok(("You are user number", connection.last_insert_rowid())))
}

/// An auction of a week.
fn register_item(connection: &Connection, item: &NewItem, now_s: i64) -> Result<Written> {
    if is_full(connection, "items")? {
        return Ok(Err(Refused::Full));
    }
    let seller = user_of(connection, item.seller)?;
    connection
        .prepare_cached(
            "INSERT INTO items (seller, category, title, description, start_cents, ends_s, bids)
             VALUES (?1, ?2, ?3, ?3, ?4, ?5, 0)",
        )?
        .execute(params![seller, item.category, item.title, item.cents, now_s + WEEK_S])?;
    Ok(Ok(("You sell item number", connection.last_insert_rowid())))
}

/// A comment also changes the rating of whom it is about.
fn put_comment(connection: &Connection, comment: &NewComment, now_s: i64) -> Result<Written> {
    if is_full(connection, "comments")? {
        return Ok(Err(Refused::Full));
    }
    let about = user_of(connection, comment.about)?;
    let author = user_but(connection, comment.author, about)?;
    let item = item_of(connection, comment.item)?;
    connection
        .prepare_cached(
            "INSERT INTO comments (author, about, item, rating, at_s, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![author, about, item, comment.rating, now_s, comment.text])?;
    let number = connection.last_insert_rowid();
    connection
        .prepare_cached("UPDATE users SET rating = rating + ?2 WHERE id = ?1")?
        .execute([about, comment.rating])?;
    Ok(Ok(("Your comment has number", number)))
}

/// A bid on the open auction that a number falls on; without an amount, the least that leads.
fn put_bid(connection: &Connection, item: u32, user: u32, cents: Option<i64>, now_s: i64) -> Result<Written> {
    if is_full(connection, "bids")? {
        return Ok(Err(Refused::Full));
    }
    let Some(item) = lucky(connection, item, now_s)? else { return Ok(Err(Refusal::NoItem.into())) };
    let Some(auction) = store::auction(connection, item)? else { return Ok(Err(Refusal::NoItem.into())) };
    let user = user_but(connection, user, auction.seller)?;
    let cents = cents.unwrap_or(auction.least_cents());
    let outcome = store::place_bid(connection, BidForm { item, user, cents }, now_s)?;
    Ok(outcome.map(|Accepted { bid, .. }| ("You lead. Your bid has number", bid)).map_err(Refused::Bid))
}

/// Sells one of the item; its auction goes on for the others.
fn buy_now(connection: &Connection, item: u32, user: u32, now_s: i64) -> Result<Written> {
    if is_full(connection, "purchases")? {
        return Ok(Err(Refused::Full));
    }
    let Some(item) = lucky(connection, item, now_s)? else { return Ok(Err(Refusal::NoItem.into())) };
    let price = "SELECT seller, coalesce(highest_cents, start_cents) FROM items WHERE id = ?1";
    let found = connection
        .prepare_cached(price)?
        .query_row([item], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
        .optional()?;
    let Some((seller, price)) = found else { return Ok(Err(Refusal::NoItem.into())) };
    let buyer = user_but(connection, user, seller)?;
    connection
        .prepare_cached("INSERT INTO purchases (item, buyer, cents, at_s) VALUES (?1, ?2, ?3, ?4)")?
        .execute([item, buyer, buy_now_cents(price), now_s])?;
    Ok(Ok(("Sold. Your purchase has number", connection.last_insert_rowid())))
}
