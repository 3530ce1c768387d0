//! The shop's data: the fill, kept files, search and lists against a naive reading of the same rows.

use rusqlite::Connection;
use rusqlite::types::Value as Sql;

use super::*;
use crate::origin::shop::{ShopError, fill};

/// Everything a visitor can come to see, in order.
fn content(connection: &Connection) -> Vec<Vec<Sql>> {
    let mut rows = Vec::new();
    for table in ["categories", "regions", "users", "items", "bids", "comments", "purchases"] {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY id")).expect(table);
        let columns = statement.column_count();
        let read = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect());
        rows.extend(read.expect(table).map(|row| row.expect("row")));
    }
    rows
}

fn filled(seed: u64, opened_us: i64) -> Connection {
    let mut connection = Connection::open_in_memory().expect("memory");
    fill::fill(&mut connection, Size::Small, seed, opened_us).expect("fill");
    connection
}

#[test]
fn a_seed_is_a_shop() {
    let first = filled(1, 0);
    assert!(content(&first) == content(&filled(1, 1_000_000)), "whenever it opens");
    assert!(content(&first) != content(&filled(2, 0)));
    assert_eq!(audit(&first), i64::from(Size::Small.bids()));
    for (table, count) in
        [("items", Size::Small.items()), ("users", Size::Small.users()), ("comments", Size::Small.comments())]
    {
        assert_eq!(number(&first, &format!("SELECT count(*) FROM {table}")), i64::from(count), "{table}");
    }
    let over = number(&first, "SELECT count(*) FROM items WHERE ends_s <= 0");
    assert!((100..300).contains(&over), "about one auction in ten is over: {over}");
}

#[test]
fn sizes_have_names() {
    for size in [Size::Small, Size::Medium, Size::Large] {
        assert_eq!(size.name().parse(), Ok(size));
    }
    let error = "tiny".parse::<Size>().expect_err("no size");
    assert_eq!(error.to_string(), "expected small, medium or large; got \"tiny\"");
}

#[tokio::test]
async fn a_kept_shop_keeps_its_bids_and_no_other_is_overwritten() {
    let dir = Dir::new();
    let bids = i64::from(Size::Small.bids());
    let opened_us = {
        let shop = Arc::new(Shop::open(Some(dir.path()), Size::Small, 1).expect("new"));
        let service = Service::start(Arc::clone(&shop), Tiers::default()).expect("service");
        let answer = service.answer(request(Method::POST, "/lucky/5", "", "application/json")).await;
        assert_eq!(answer.status(), StatusCode::CREATED, "{}", text(&answer));
        shop.opened_us
    };
    let again = Shop::open(Some(dir.path()), Size::Small, 1).expect("again");
    assert_eq!(audit(&again.connect().expect("connection")), bids + 1);
    assert_eq!(again.opened_us, opened_us, "auctions go on where they were");
    let path = again.path().to_owned();
    drop(again);
    for (size, seed) in [(Size::Small, 2), (Size::Medium, 1)] {
        let error = Shop::open(Some(dir.path()), size, seed).map(drop).expect_err("another shop");
        assert!(matches!(error, ShopError::Another { .. }), "{error}");
        assert!(error.to_string().contains(&format!("expected a {} shop of seed {seed}", size.name())));
    }
    assert_eq!(audit(&Connection::open(&path).expect("file")), bids + 1);
}

#[test]
fn a_file_that_is_no_shop_is_left_alone() {
    let dir = Dir::new();
    let path = dir.path().join("shop.db");
    let other = Connection::open(&path).expect("file");
    other.execute_batch("CREATE TABLE diary (text)").expect("table");
    drop(other);
    let before = std::fs::read(&path).expect("file");
    let error = Shop::open(Some(dir.path()), Size::Small, 1).map(drop).expect_err("a diary");
    assert!(matches!(error, ShopError::Another { .. }), "{error}");
    assert_eq!(std::fs::read(&path).expect("file"), before, "to the byte");
    assert_eq!(number(&Connection::open(&path).expect("file"), "SELECT count(*) FROM sqlite_schema"), 1);
    std::fs::write(&path, "not a database, but long enough to have a header of 100 bytes ".repeat(9))
        .expect("write");
    let error = Shop::open(Some(dir.path()), Size::Small, 1).map(drop).expect_err("a text");
    assert!(matches!(error, ShopError::Database { .. }), "{error}");
}

#[test]
fn a_temporary_shop_leaves_nothing_behind() {
    let shop = Shop::open(None, Size::Small, 1).expect("shop");
    let dir = shop.path().parent().expect("directory").to_owned();
    assert!(dir.is_dir());
    drop(shop);
    assert!(!dir.exists());
}

/// An open item, as the tests read it.
struct Row {
    id: i64,
    category: i64,
    text: [String; 2],
    bids: i64,
    ends_s: i64,
}

fn open_items(connection: &Connection) -> Vec<Row> {
    let sql = "SELECT id, category, title, description, bids, ends_s FROM items WHERE ends_s > 0";
    let mut statement = connection.prepare(sql).expect("items");
    let rows = statement.query_map([], |row| {
        Ok(Row {
            id: row.get(0)?,
            category: row.get(1)?,
            text: [row.get(2)?, row.get(3)?],
            bids: row.get(4)?,
            ends_s: row.get(5)?,
        })
    });
    rows.expect("items").map(|row| row.expect("row")).collect()
}

/// All pages of a list: the ids on them and the total they name.
async fn whole_list(service: &Service, target: &str) -> (Vec<i64>, u64) {
    let (mut ids, mut total) = (Vec::new(), 0);
    for page in 1.. {
        let list = json(&service.answer(get_json(&format!("{target}&page={page}"))).await);
        let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}"));
        assert!(items.len() <= 20);
        if items.is_empty() {
            break;
        }
        total = list["total"].as_u64().expect("total");
        ids.extend(items.iter().map(|item| item["id"].as_i64().expect("id")));
    }
    (ids, total)
}

#[tokio::test]
async fn a_search_finds_every_matching_item() {
    let (shop, service) = open(Tiers::default());
    let connection = shop.connect().expect("connection");
    for (id, title) in [(1, "100% wool_scarf"), (2, "back\\slash"), (3, "ÄRMEL coat")] {
        let sql = "UPDATE items SET title = ?2, ends_s = 100000 WHERE id = ?1";
        connection.execute(sql, rusqlite::params![id, title]).expect("update");
    }
    let mut items = open_items(&connection);
    items.sort_by_key(|item| (-item.bids, item.id));
    let mut found_some = 0;
    for (sought, category) in [
        ("clock", None),
        ("CLOCK", None),
        ("Umbrella", None),
        ("clock", Some(3)),
        ("potter's", None),
        ("salt & pepper", None),
        ("%", None),
        ("_", None),
        ("\\", None),
        ("l_s", None),
        ("ÄRMEL", None),
        ("ärmel", None),
        ("< 30 cm", Some(20)),
        ("zeppelin", None),
    ] {
        let contains = |text: &str| text.to_ascii_lowercase().contains(&sought.to_ascii_lowercase());
        let expected: Vec<i64> = items
            .iter()
            .filter(|item| category.is_none_or(|category| item.category == category))
            .filter(|item| item.text.iter().any(|text| contains(text)))
            .map(|item| item.id)
            .collect();
        let q: String = form_urlencoded::byte_serialize(sought.as_bytes()).collect();
        let category = category.map(|category| category.to_string()).unwrap_or_default();
        let (ids, total) = whole_list(&service, &format!("/search?q={q}&category={category}")).await;
        assert_eq!(ids, expected, "{sought:?} {category}");
        assert_eq!(total, expected.len() as u64, "{sought:?} {category}");
        found_some += usize::from(!ids.is_empty());
    }
    assert_eq!(found_some, 12, "all but the zeppelin and the small umlaut, which LIKE does not fold");
}

#[tokio::test]
async fn the_pages_of_a_category_are_all_of_it_once() {
    let (shop, service) = open(Tiers::default());
    let mut items = open_items(&shop.connect().expect("connection"));
    items.retain(|item| item.category == 7);
    items.sort_by_key(|item| (item.ends_s, item.id));
    let expected: Vec<i64> = items.iter().map(|item| item.id).collect();
    assert!(expected.len() > 40, "more than two pages");
    let (ids, total) = whole_list(&service, "/browse?category=7").await;
    assert_eq!((ids, total), (expected.clone(), expected.len() as u64));
    let last = expected.len().div_ceil(20);
    for (page, prev, next) in
        [(1, false, true), (2, true, true), (last, true, false), (last + 1, true, false)]
    {
        let answer = service.answer(get(&format!("/browse?category=7&page={page}"))).await;
        let links = ["rel=\"prev\"", "rel=\"next\""].map(|rel| text(&answer).contains(rel));
        assert_eq!(links, [prev, next], "page {page}");
    }
}

#[test]
fn the_scenario_of_the_shop_is_right() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios/shop.toml");
    let scenario = crate::scenario::Scenario::load(&file).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let tiers = Tiers::default();
    assert_eq!(scenario.origin.workers as usize, tiers.workers);
    assert_eq!(scenario.origin.backlog as usize, tiers.backlog);
    let servers =
        |name: &str| scenario.origin.stages.iter().find(|stage| stage.name == name).map(|s| s.servers);
    assert_eq!((servers("app"), servers("db")), (Some(8), Some(tiers.connections as u32)));
    let (_shop, service) = open(tiers);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    for step in scenario.visitors.iter().flat_map(|kind| &kind.steps) {
        let method = step.method.parse().expect("method");
        let form = step.form.as_deref().unwrap_or_default();
        let request = request(method, &step.path.replace("{n}", "123456"), form, "text/html");
        let answer = runtime.block_on(service.answer(request));
        assert!(answer.status().is_success() || answer.status() == StatusCode::SEE_OTHER, "{}", step.path);
    }
}
