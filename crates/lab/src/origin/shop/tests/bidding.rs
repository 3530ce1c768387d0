//! The auction's rules, against a model of them and with many bidders at once.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use parking_lot::Mutex;
use rusqlite::Connection;

use super::*;
use crate::origin::shop::fill;
use crate::origin::shop::route::{BidForm, Query};
use crate::origin::shop::store::{self, Found, Refusal};

/// Few items and few users, so that they meet often. Zero is drawn as well: nobody has that number.
const ITEMS: i64 = 12;
const USERS: i64 = 6;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// By how much above what leads; negative: below.
    Bid {
        item: i64,
        user: i64,
        above: i64,
    },
    Lucky(u32),
    /// Seconds.
    Pass(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..ITEMS + 1, 0..USERS + 1, -3..4i64)
            .prop_map(|(item, user, above)| Step::Bid { item, user, above }),
        2 => (0..2_000_000u32).prop_map(Step::Lucky),
        1 => (0..fill::WEEK_S / 10).prop_map(Step::Pass),
    ]
}

/// What the rules need to know of an item.
#[derive(Clone, Debug)]
struct Model {
    seller: i64,
    ends_s: i64,
    least: i64,
    bids: i64,
}

fn models(connection: &Connection) -> BTreeMap<i64, Model> {
    let sql = "SELECT id, seller, ends_s, coalesce(highest_cents + 1, start_cents), bids FROM items";
    let mut statement = connection.prepare(sql).expect("items");
    let rows = statement.query_map([], |row| {
        let model = Model { seller: row.get(1)?, ends_s: row.get(2)?, least: row.get(3)?, bids: row.get(4)? };
        Ok((row.get(0)?, model))
    });
    rows.expect("items").map(|row| row.expect("row")).collect()
}

fn expected(models: &BTreeMap<i64, Model>, form: BidForm, now_s: i64) -> Result<(), Refusal> {
    let Some(item) = models.get(&form.item) else { return Err(Refusal::NoItem) };
    if !(1..=i64::from(Size::Small.users())).contains(&form.user) {
        return Err(Refusal::NoUser);
    }
    if form.user == item.seller {
        return Err(Refusal::OwnItem);
    }
    if now_s >= item.ends_s {
        return Err(Refusal::Over);
    }
    if form.cents < item.least { Err(Refusal::TooLow { least_cents: item.least }) } else { Ok(()) }
}

fn ask(connection: &mut Connection, ask: &Query, now_s: i64) -> Result<store::Accepted, Refusal> {
    match store::run(connection, &Mutex::new(()), ask, now_s).expect("database") {
        Found::Bid(outcome) => outcome,
        other => panic!("{ask:?}: {other:?}"),
    }
}

/// A shop like all others of these cases, filled once.
fn copy(dir: &Dir) -> Connection {
    static FILLED: OnceLock<Vec<u8>> = OnceLock::new();
    let path = dir.path().join("case.db");
    let open = || {
        let connection = Connection::open(&path).expect("file");
        connection.pragma_update(None, "synchronous", "off").expect("pragma");
        connection
    };
    let filled = FILLED.get_or_init(|| {
        fill::fill(&mut open(), Size::Small, 7, 0).expect("fill");
        std::fs::read(&path).expect("read")
    });
    std::fs::write(&path, filled).expect("write");
    open()
}

fn play(steps: &[Step]) {
    let dir = Dir::new();
    let mut connection = copy(&dir);
    let mut models = models(&connection);
    let (mut now_s, mut accepted) = (0, 0);
    for step in steps {
        match *step {
            Step::Pass(seconds) => now_s += seconds,
            Step::Bid { item, user, above } => {
                let cents = models.get(&item).map_or(1, |item| (item.least + above).max(1));
                let form = BidForm { item, user, cents };
                let outcome = ask(&mut connection, &Query::Bid(form), now_s);
                assert_eq!(outcome.map(|_| ()), expected(&models, form, now_s), "{form:?} at {now_s}");
                if outcome.is_ok() {
                    let item = models.get_mut(&item).expect("item");
                    (item.least, item.bids) = (cents + 1, item.bids + 1);
                    accepted += 1;
                }
            }
            Step::Lucky(number) => match ask(&mut connection, &Query::LuckyBid(number), now_s) {
                Ok(bid) => {
                    let item = models.get_mut(&bid.item).expect("item");
                    assert!(item.ends_s > now_s && bid.cents == item.least, "{bid:?} of {item:?}");
                    (item.least, item.bids) = (bid.cents + 1, item.bids + 1);
                    accepted += 1;
                }
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::NoItem);
                    assert!(models.values().all(|item| item.ends_s <= now_s), "none is open");
                }
            },
        }
    }
    for (id, item) in &models {
        let sql = format!("SELECT coalesce(highest_cents + 1, start_cents) FROM items WHERE id = {id}");
        assert_eq!(number(&connection, &sql), item.least, "item {id}");
    }
    assert_eq!(audit(&connection), i64::from(Size::Small.bids()) + accepted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_bid_follows_the_rules(steps in prop::collection::vec(step(), 0..60)) {
        play(&steps);
    }
}

/// Every bidder offers every amount on the same item, as fast as the service takes it.
#[tokio::test]
async fn bidders_at_once_lose_nothing() {
    const BIDDERS: i64 = 8;
    const AMOUNTS: i64 = 40;
    let (shop, service) = open(Tiers { connections: 4, backlog: 1_000, ..Tiers::default() });
    let connection = shop.connect().expect("connection");
    let which =
        "SELECT id FROM items WHERE ends_s > 1000 AND seller > 100 AND highest_cents < 100000 LIMIT 1";
    let item = number(&connection, which);
    let before = audit(&connection);
    let of_item = |sql: &str| number(&connection, &format!("SELECT {sql} FROM items WHERE id = {item}"));
    let (bids, highest) = (of_item("bids"), of_item("highest_cents"));
    let mut bidders = tokio::task::JoinSet::new();
    for user in 1..=BIDDERS {
        for above in 0..=AMOUNTS {
            let service = Arc::clone(&service);
            let form =
                format!("item={item}&user={user}&amount={}", super::super::store::Money(highest + above));
            bidders.spawn(async move {
                service.answer(request(Method::POST, "/bid", &form, "application/json")).await
            });
        }
    }
    let mut won = Vec::new();
    while let Some(answer) = bidders.join_next().await {
        let answer = answer.expect("bidder");
        match answer.status() {
            StatusCode::CREATED => won.push(json(&answer)["cents"].as_i64().expect("cents")),
            status => assert_eq!(status, StatusCode::CONFLICT, "{}", text(&answer)),
        }
    }
    won.sort_unstable();
    let distinct = won.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(distinct, "each amount leads once: {won:?}");
    assert_eq!(won.last(), Some(&(highest + AMOUNTS)), "the highest offer leads at the end");
    assert_eq!((of_item("bids"), of_item("highest_cents")), (bids + won.len() as i64, highest + AMOUNTS));
    assert_eq!(audit(&connection), before + won.len() as i64);
}
