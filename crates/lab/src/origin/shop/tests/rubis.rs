//! The sixteen requests of RUBiS: each is answered, those that write do, and the two searches are what costs.

use rusqlite::ffi;

use super::*;
use crate::origin::shop::route::Query;
use crate::origin::shop::rubis::route::NAMES;
use crate::origin::shop::{database, route};

/// A request of this type by a visitor who draws one number, as a load generator's do.
fn of_type(name: &str, n: u32) -> Request<Bytes> {
    let get = |fields: String| get(&format!("/rubis/{name}?{fields}"));
    let post = |form: String| request(Method::POST, &format!("/rubis/{name}"), &form, "text/html");
    match name {
        "BrowseCategories" | "BrowseRegions" => get(String::new()),
        "SearchItemsByCategory" | "SellItemForm" => get(format!("category={n}")),
        "SearchItemsByRegion" => get(format!("region={n}")),
        "AboutMe" | "ViewUserInfo" => get(format!("user={n}")),
        "ViewItem" | "PutBidAuth" | "BuyNowAuth" | "ViewBidHistory" => get(format!("item={n}")),
        "RegisterUser" => post(format!("region={n}")),
        "RegisterItem" => post(format!("user={n}&category={n}&title=A+lamp&price=12.50")),
        "PutComment" => post(format!("user={n}&to={n}&item={n}&rating=3&text=Thank+you")),
        "PutBid" | "BuyNow" => post(format!("item={n}&user={n}")),
        _ => panic!("{name} is no type"),
    }
}

fn rows(connection: &Connection) -> [i64; 5] {
    ["users", "items", "bids", "comments", "purchases"]
        .map(|table| number(connection, &format!("SELECT count(*) FROM {table}")))
}

#[tokio::test]
async fn every_type_is_answered_and_those_that_write_write() {
    let (shop, service) = open(Tiers::default());
    let connection = shop.connect().expect("connection");
    let before = rows(&connection);
    for name in NAMES {
        // The last one is none of any table's.
        for n in [0, 1, 400, 2_000, 999_999] {
            let answer = service.answer(of_type(name, n)).await;
            assert_eq!(answer.status(), StatusCode::OK, "{name} {n}: {}", text(&answer));
        }
    }
    let added: Vec<i64> =
        rows(&connection).iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(added, [5, 5, 5, 5, 5], "users, items, bids, comments, purchases");
    audit(&connection);
    assert_eq!(service.failures(), 0);
    let me = service.answer(of_type("AboutMe", 400)).await;
    assert!(text(&me).contains("<h2>Bought</h2><ul><li>"), "{}", text(&me));
    let own = "SELECT count(*) FROM comments WHERE author = about";
    let own = own.to_owned()
        + " UNION ALL SELECT count(*) FROM purchases JOIN items ON items.id = item
        WHERE buyer = seller";
    assert_eq!(number(&connection, &own), 0);
}

#[tokio::test]
async fn a_bid_with_an_amount_must_lead() {
    let (shop, service) = open(Tiers::default());
    let bid = |amount: &str| {
        let form = format!("item=7&user=9&amount={amount}");
        service.answer(request(Method::POST, "/rubis/PutBid", &form, "text/html"))
    };
    assert_eq!(bid("0.01").await.status(), StatusCode::CONFLICT);
    assert_eq!(bid("9000000").await.status(), StatusCode::OK);
    assert_eq!(bid("9000000").await.status(), StatusCode::CONFLICT);
    assert_eq!(bid("much").await.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(audit(&shop.connect().expect("connection")), i64::from(Size::Small.bids()) + 1);
}

/// An open item as the searches order it.
struct Found {
    id: i64,
    lively: i64,
    rating: i64,
}

fn expected(connection: &Connection, which: &str) -> Vec<i64> {
    let sql = format!(
        "SELECT items.id, (SELECT count(*) FROM bids WHERE item = items.id AND at_s > -7 * 24 * 3600),
            users.rating FROM items JOIN users ON users.id = seller WHERE ends_s > 0 AND {which}"
    );
    let mut statement = connection.prepare(&sql).expect("sql");
    let found = statement
        .query_map([], |row| Ok(Found { id: row.get(0)?, lively: row.get(1)?, rating: row.get(2)? }));
    let mut found: Vec<Found> = found.expect("rows").map(|row| row.expect("row")).collect();
    found.sort_by_key(|found| (-found.lively, -found.rating, found.id));
    found.iter().map(|found| found.id).collect()
}

#[tokio::test]
async fn searches_find_the_liveliest_first() {
    let (shop, service) = open(Tiers::default());
    let connection = shop.connect().expect("connection");
    for (target, which) in [
        ("/rubis/SearchItemsByCategory?category=7", "category = 7"),
        ("/rubis/SearchItemsByRegion?region=3", "users.region = 3"),
    ] {
        let expected = expected(&connection, which);
        for page in [1, 2] {
            let answer = service.answer(get(&format!("{target}&page={page}"))).await;
            let page_text = text(&answer);
            assert!(page_text.contains(&format!("<p>{} auctions", expected.len())), "{page_text}");
            let links = page_text.split("href=\"/item/").skip(1);
            let ids = links.map(|rest| rest.split('"').next().expect("id").parse::<i64>().expect("a number"));
            let of_page: Vec<i64> = expected.iter().skip((page - 1) * 20).take(20).copied().collect();
            // A listing shows each item once.
            assert_eq!(ids.collect::<Vec<_>>(), of_page, "{target} {page}");
        }
    }
}

/// Steps of SQLite's machine that a request takes.
fn steps(shop: &Shop, request: &Request<Bytes>) -> i64 {
    let mut connection = shop.connect().expect("connection");
    let query = route::read(request).expect("a request");
    database::run(&mut connection, &shop.writer, &query, shop.now_s()).expect("answer");
    let mut sum = 0;
    // SAFETY: the connection is open, and its statements live in its cache until it is dropped.
    unsafe {
        let mut statement = ffi::sqlite3_next_stmt(connection.handle(), std::ptr::null_mut());
        while !statement.is_null() {
            sum += i64::from(ffi::sqlite3_stmt_status(statement, ffi::SQLITE_STMTSTATUS_VM_STEP, 0));
            statement = ffi::sqlite3_next_stmt(connection.handle(), statement);
        }
    }
    sum
}

#[test]
fn the_searches_cost_what_all_others_do_not() {
    let shop = Shop::open(None, Size::Small, 1).expect("shop");
    let costs: Vec<(&str, i64)> =
        NAMES.iter().map(|name| (*name, steps(&shop, &of_type(name, 1_234)))).collect();
    let is_search = |name: &str| name.starts_with("SearchItems");
    let dearest_other = costs.iter().filter(|(name, _)| !is_search(name)).map(|(_, cost)| *cost).max();
    for (name, cost) in costs.iter().filter(|(name, _)| is_search(name)) {
        // In the small shop; 125 times as much in the large one, where the others cost the same.
        assert!(*cost > 3 * dearest_other.expect("others"), "{name}: {cost}; {costs:?}");
    }
    let asks_nothing = |(name, cost): &(&str, i64)| (*name == "SellItemForm") == (*cost == 0);
    assert!(costs.iter().all(asks_nothing), "{costs:?}");
}

#[test]
fn requests_that_write_are_carried_out_in_any_case() {
    for name in NAMES {
        let Ok(Query::Rubis(ask)) = route::read(&of_type(name, 5)) else { panic!("{name}") };
        assert_eq!(ask.writes(), of_type(name, 5).method() == Method::POST, "{name}");
    }
}
