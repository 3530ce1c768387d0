//! The shop's tables and what is in them when it opens: the same for the same seed and size.
//!
//! Times are seconds since the opening, so that the content does not depend on the day: bids and comments lie
//! before zero, nine auctions in ten are still open and close within a week, the others are over.
//!
//! Every access has its index but two: a word anywhere in titles and descriptions (`store.rs`), and the order
//! by the bids of the last week and the sellers' rating (`rubis/store.rs`).

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rusqlite::{Connection, Result, Transaction, params};

use super::Size;
use super::vocabulary::{ADJECTIVES, CATEGORIES, NOUNS, PHRASES, REGIONS, REMARKS};

/// Changes whenever tables or content do: a kept file of another version is not this shop.
pub(super) const VERSION: i64 = 2;
/// Auctions last at most this long after the opening; what happened before it happened as long ago.
pub(super) const WEEK_S: i64 = 7 * 24 * 3600;
const HOUR_S: i64 = 3600;
/// One auction in this many is over when the shop opens.
const OVER: u32 = 10;
/// Largest raise beside the coins, in cents.
const MOST_RAISE: i64 = 5_000;
/// Things named in a description: with the phrases between them about 400 characters, a short real one.
const DESCRIBED: usize = 9;

const TABLES: &str = include_str!("tables.sql");

/// Made after the rows: building an index once is cheaper than keeping it through every insertion.
const INDICES: &str = include_str!("indices.sql");

/// Creates and fills everything in one transaction: a file is a whole shop or none.
///
/// # Errors
/// SQLite's: the disk is full, the file is somebody else's.
pub(super) fn fill(connection: &mut Connection, size: Size, seed: u64, opened_us: i64) -> Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    transaction.execute(
        "INSERT INTO shop VALUES (?1, ?2, ?3, ?4)",
        // SQLite's integers are signed; the bits are what counts.
        params![VERSION, size.name(), seed.cast_signed(), opened_us],
    )?;
    for (table, names) in [("categories", &CATEGORIES[..]), ("regions", &REGIONS[..])] {
        let mut insert = transaction.prepare(&format!("INSERT INTO {table} (name) VALUES (?1)"))?;
        for name in names {
            insert.execute([name])?;
        }
    }
    let mut rng = StdRng::seed_from_u64(seed);
    users(&transaction, size, &mut rng)?;
    items(&transaction, size, &mut rng)?;
    comments(&transaction, size, &mut rng)?;
    transaction.execute_batch(INDICES)?;
    transaction.execute(
        "INSERT INTO filled VALUES (?1, ?2, ?3, ?4, 0)",
        [size.users(), size.items(), size.bids(), size.comments()],
    )?;
    transaction.commit()
}

fn users(transaction: &Transaction<'_>, size: Size, rng: &mut StdRng) -> Result<()> {
    let mut insert =
        transaction.prepare("INSERT INTO users (name, region, rating, joined_s) VALUES (?1, ?2, ?3, ?4)")?;
    for number in 1..=size.users() {
        let name = format!("{}{number}", pick(&NOUNS, rng).replace([' ', '\'', '&'], ""));
        let region = rng.random_range(1..=REGIONS.len());
        insert.execute(params![
            name,
            region,
            rng.random_range(0..500),
            -rng.random_range(0..200 * WEEK_S)
        ])?;
    }
    Ok(())
}

fn items(transaction: &Transaction<'_>, size: Size, rng: &mut StdRng) -> Result<()> {
    let mut insert = transaction.prepare(
        "INSERT INTO items (seller, category, title, description, start_cents, ends_s, bids, highest_cents)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let mut insert_bid =
        transaction.prepare("INSERT INTO bids (item, bidder, cents, at_s) VALUES (?1, ?2, ?3, ?4)")?;
    let counts = bid_counts(size, rng);
    for (item, bids) in (1..).zip(counts) {
        let seller = rng.random_range(1..=size.users());
        let start_cents: i64 = rng.random_range(100..50_000);
        let over = rng.random_range(0..OVER) == 0;
        let ends_s = if over { -rng.random_range(HOUR_S..WEEK_S) } else { rng.random_range(HOUR_S..=WEEK_S) };
        let offers = offers(bids, start_cents, ends_s, rng);
        let category = rng.random_range(1..=CATEGORIES.len());
        let (title, description) = (title(rng), description(rng));
        let highest = offers.last().map(|(cents, _)| *cents);
        insert.execute(params![seller, category, title, description, start_cents, ends_s, bids, highest])?;
        for (cents, at_s) in offers {
            insert_bid.execute(params![item, other_than(seller, size.users(), rng), cents, at_s])?;
        }
    }
    Ok(())
}

/// Amounts and times of an item's bids, both rising.
fn offers(bids: u32, start_cents: i64, ends_s: i64, rng: &mut StdRng) -> Vec<(i64, i64)> {
    let mut times: Vec<i64> = (0..bids).map(|_| rng.random_range(-2 * WEEK_S..ends_s.min(0))).collect();
    times.sort_unstable();
    let mut cents = start_cents;
    let mut raise = || {
        let offered = cents;
        // Five percent and some coins above the last one, as people bid, but never more than fifty above: the
        // most popular items have a thousand bids.
        cents += (cents / 20).min(MOST_RAISE) + rng.random_range(1..200);
        offered
    };
    times.into_iter().map(|at_s| (raise(), at_s)).collect()
}

/// How many bids each item has: few have many.
fn bid_counts(size: Size, rng: &mut StdRng) -> Vec<u32> {
    let mut counts = vec![0u32; size.items() as usize];
    let skew = |r: f64| r * r;
    for _ in 0..size.bids() {
        let item = (skew(rng.random()) * counts.len() as f64) as usize;
        counts[item] += 1;
    }
    // Popularity has nothing to do with age: without this the first items would have all the bids.
    for last in (1..counts.len()).rev() {
        counts.swap(last, rng.random_range(0..=last));
    }
    counts
}

fn comments(transaction: &Transaction<'_>, size: Size, rng: &mut StdRng) -> Result<()> {
    let mut insert = transaction.prepare(
        "INSERT INTO comments (author, about, item, rating, at_s, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for _ in 0..size.comments() {
        let about = rng.random_range(1..=size.users());
        let author = other_than(about, size.users(), rng);
        let item = rng.random_range(1..=size.items());
        let (rating, at_s) = (rng.random_range(-1..=5), -rng.random_range(1..20 * WEEK_S));
        insert.execute(params![author, about, item, rating, at_s, pick(&REMARKS, rng)])?;
    }
    Ok(())
}

fn title(rng: &mut StdRng) -> String {
    let (first, second) = (pick(&ADJECTIVES, rng), pick(&ADJECTIVES, rng));
    let mut title = if first == second { first.to_string() } else { format!("{first} {second}") };
    title.push(' ');
    title.push_str(pick(&NOUNS, rng));
    let first = title.remove(0).to_ascii_uppercase();
    title.insert(0, first);
    title
}

fn description(rng: &mut StdRng) -> String {
    let mut text = String::with_capacity(512);
    for _ in 0..DESCRIBED {
        let (adjective, noun) = (pick(&ADJECTIVES, rng), pick(&NOUNS, rng));
        text.push_str(&format!("{adjective} {noun}, {}. ", pick(&PHRASES, rng)));
    }
    text.push_str(&format!("Lot {}.", rng.random_range(0..1_000_000)));
    text
}

/// One of `words`, the first ones more often: the square of an even draw, so that the first tenth of the
/// words takes a third of the draws, as in any language a few words do most of the work.
fn pick<'a>(words: &[&'a str], rng: &mut StdRng) -> &'a str {
    let r: f64 = rng.random();
    words[((r * r) * words.len() as f64) as usize]
}

fn other_than(user: u32, users: u32, rng: &mut StdRng) -> u32 {
    let other = rng.random_range(1..users);
    if other >= user { other + 1 } else { other }
}
