//! Tests of the whole shop: pages over a filled database, as a visitor meets them. What must hold of the
//! database after anything is [`audit`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use proptest::prelude::*;
use rusqlite::Connection;
use serde_json::Value;

use super::{Service, Shop, Size, Tiers};

mod bidding;
mod data;
mod rubis;
mod tiers;

/// A small shop and one replica.
fn open(tiers: Tiers) -> (Arc<Shop>, Arc<Service>) {
    let shop = Arc::new(Shop::open(None, Size::Small, 1).expect("shop"));
    let service = Service::start(Arc::clone(&shop), tiers).expect("service");
    (shop, Arc::new(service))
}

/// A directory that is removed at the end of the test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Relaxed));
        let dir = std::env::temp_dir().join(format!("tidegate-shop-test-{process}-{count}"));
        std::fs::create_dir_all(&dir).expect("directory");
        Self(dir)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn request(method: Method, target: &str, form: &str, accept: &str) -> Request<Bytes> {
    Request::builder()
        .method(method)
        .uri(target)
        .header(header::ACCEPT, accept)
        .body(Bytes::copy_from_slice(form.as_bytes()))
        .expect("request")
}

fn get(target: &str) -> Request<Bytes> {
    request(Method::GET, target, "", "text/html")
}

fn get_json(target: &str) -> Request<Bytes> {
    request(Method::GET, target, "", "application/json")
}

fn bid(item: i64, user: i64, amount: &str) -> Request<Bytes> {
    request(Method::POST, "/bid", &format!("item={item}&user={user}&amount={amount}"), "text/html")
}

fn text(response: &Response<Bytes>) -> &str {
    std::str::from_utf8(response.body()).expect("UTF-8")
}

fn json(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).expect("JSON")
}

/// One number from the database.
fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Checks what holds for the database after any queries and bids. Returns the number of bids.
fn audit(connection: &Connection) -> i64 {
    let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("check");
    assert_eq!(check, "ok");
    assert_eq!(number(connection, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    let wrong = "SELECT count(*) FROM items WHERE
        bids <> (SELECT count(*) FROM bids WHERE item = items.id)
        OR highest_cents IS NOT (SELECT max(cents) FROM bids WHERE item = items.id)
        OR start_cents > (SELECT min(cents) FROM bids WHERE item = items.id)";
    assert_eq!(number(connection, wrong), 0, "an item's sums are those of its bids");
    let falling = "SELECT count(*) FROM bids AS early JOIN bids AS late
        ON late.item = early.item AND late.id > early.id AND late.cents <= early.cents";
    assert_eq!(number(connection, falling), 0, "every bid beats those before it");
    let own = "SELECT count(*) FROM bids JOIN items ON items.id = item WHERE bidder = seller";
    assert_eq!(number(connection, own), 0, "nobody bids on their own items");
    let late = "SELECT count(*) FROM bids JOIN items ON items.id = item WHERE at_s >= ends_s";
    assert_eq!(number(connection, late), 0, "nobody bids after the end");
    assert_eq!(
        number(connection, "SELECT sum(bids) FROM items"),
        number(connection, "SELECT count(*) FROM bids")
    );
    number(connection, "SELECT count(*) FROM bids")
}

#[tokio::test]
async fn one_can_click_through() {
    let (_shop, service) = open(Tiers::default());
    // Follow links as a visitor would, from the home page on, each kind once.
    let mut page = text(&service.answer(get("/")).await).to_owned();
    for kind in ["/browse?", "/item/", "/user/", "/item/"] {
        let at = page.find(&format!("href=\"{kind}")).unwrap_or_else(|| panic!("no {kind} in {page}"));
        let link = page[at + 6..].split('"').next().expect("link").replace("&amp;", "&");
        let answer = service.answer(get(&link)).await;
        assert_eq!(answer.status(), StatusCode::OK, "{link}");
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        page = text(&answer).to_owned();
    }
    assert_eq!(service.answer(get("/healthz")).await.status(), StatusCode::OK);
    let stats = tiers::until(&service, |stats| stats.present() == 0).await;
    assert_eq!((stats.submitted, stats.served), (5, 5));
    assert_eq!(service.failures(), 0);
}

#[tokio::test]
async fn a_bid_is_answered_with_the_rule_it_breaks() {
    let (shop, service) = open(Tiers::default());
    let connection = shop.connect().expect("connection");
    let find = |which: &str| number(&connection, &format!("SELECT id FROM items WHERE {which} LIMIT 1"));
    let open = find("ends_s > 1000 AND highest_cents > 200");
    let over = find("ends_s < 0");
    let unbid = find("ends_s > 1000 AND highest_cents IS NULL");
    let seller = number(&connection, &format!("SELECT seller FROM items WHERE id = {open}"));
    let other = 1 + seller % 300;
    let highest = number(&connection, &format!("SELECT highest_cents FROM items WHERE id = {open}"));
    let amount = |cents: i64| super::store::Money(cents).to_string();
    let start = number(&connection, &format!("SELECT start_cents FROM items WHERE id = {unbid}"));
    let unbids_seller = number(&connection, &format!("SELECT seller FROM items WHERE id = {unbid}"));
    let unbids_bidder = 1 + unbids_seller % 300;
    for (request, status, reason) in [
        (bid(open, other, &amount(highest)), 409, "or more would lead"),
        (bid(open, other, &amount(highest - 1)), 409, "or more would lead"),
        (bid(unbid, unbids_bidder, &amount(start - 1)), 409, "or more would lead"),
        (bid(over, other, "1000000"), 409, "over"),
        (bid(open, seller, "1000000"), 422, "own items"),
        (bid(open, 999_999, "1000000"), 422, "no such user"),
        (bid(open, other, "-5"), 422, "amount: expected"),
        (bid(999_999, other, "5"), 404, "no such item"),
        (request(Method::POST, "/bid", &"x".repeat(5_000), "text/html"), 413, "longer than"),
        (get("/bid"), 405, "POST"),
        (bid(unbid, unbids_bidder, &amount(start)), 303, ""),
        (bid(open, other, &amount(highest + 1)), 303, ""),
        (bid(open, other, &amount(highest + 1)), 409, "or more would lead"),
    ] {
        let what = format!("{request:?}");
        let answer = service.answer(request).await;
        assert_eq!(answer.status(), status, "{what}: {}", text(&answer));
        assert!(text(&answer).contains(reason), "{what}: {}", text(&answer));
        if status == 303 {
            assert!(answer.headers()[header::LOCATION].to_str().expect("path").starts_with("/item/"));
        }
    }
    assert_eq!(audit(&connection), i64::from(Size::Small.bids()) + 2, "only the good ones count");
    let item = json(&service.answer(get_json(&format!("/item/{open}"))).await);
    assert_eq!(item["price_cents"], highest + 1);
    assert_eq!(item["history"][0]["bidder"], other);
    assert_eq!(item["least_cents"], highest + 2);
}

#[tokio::test]
async fn text_of_other_users_is_escaped() {
    let (shop, service) = open(Tiers::default());
    let connection = shop.connect().expect("connection");
    let attack = r#"zq"'><script>alert(1)</script><img src=x onerror=alert(1)>&amp;"#;
    let set = |sql: &str| connection.execute(sql, [attack]).expect(sql);
    set("UPDATE items SET title = ?1, description = ?1 WHERE id <= 50");
    set("UPDATE users SET name = ?1");
    set("UPDATE comments SET text = ?1");
    set("UPDATE regions SET name = ?1");
    let sought: String = form_urlencoded::byte_serialize(attack.as_bytes()).collect();
    for target in [
        "/".to_owned(),
        "/item/1".to_owned(),
        "/user/1".to_owned(),
        "/search?q=zq".to_owned(),
        format!("/search?q={sought}&page=2"),
        format!("/search?q=zq&category={sought}"),
        format!("/browse?page={sought}"),
        format!("/{sought}"),
    ] {
        let answer = service.answer(get(&target)).await;
        let page = text(&answer);
        for raw in ["<script", "<img", "zq\"", "zq'"] {
            assert!(!page.contains(raw), "{target}: {raw} in {page}");
        }
        assert!(answer.headers().contains_key(header::CONTENT_SECURITY_POLICY), "{target}");
    }
    let page = service.answer(get("/item/1")).await;
    assert!(text(&page).contains("zq&quot;&#39;&gt;&lt;script&gt;"), "shown, not dropped: {}", text(&page));
    // A bid with a bad amount shows the amount again.
    let page = service.answer(bid(1, 2, &sought)).await;
    assert!(!text(&page).contains("<script"), "{}", text(&page));
}

#[tokio::test]
async fn sql_in_a_field_is_only_a_text() {
    let (shop, service) = open(Tiers::default());
    let connection = shop.connect().expect("connection");
    for sql in [
        "' OR 1=1 --",
        "'; DROP TABLE bids; --",
        "%' UNION SELECT id, name, 1, 1, 1, 1, 1 FROM users --",
        "\\' OR ''='",
        "?1",
        ":a",
    ] {
        let field: String = form_urlencoded::byte_serialize(sql.as_bytes()).collect();
        let found = json(&service.answer(get_json(&format!("/search?q={field}"))).await);
        assert_eq!(found["total"], 0, "{sql}");
        for target in [format!("/search?q=a&category={field}"), format!("/browse?page={field}")] {
            assert_eq!(service.answer(get(&target)).await.status(), StatusCode::BAD_REQUEST, "{target}");
        }
        for target in [format!("/item/{field}"), format!("/user/{field}")] {
            assert_eq!(service.answer(get(&target)).await.status(), StatusCode::NOT_FOUND, "{target}");
        }
        let form = format!("item={field}&user={field}&amount={field}");
        let answer = service.answer(request(Method::POST, "/bid", &form, "text/html")).await;
        assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY, "{sql}");
    }
    assert_eq!(audit(&connection), i64::from(Size::Small.bids()));
    assert_eq!(service.failures(), 0);
}

/// Anything a visitor can put into a request, mostly near what the shop reads.
fn anything() -> impl Strategy<Value = (Method, String, String)> {
    let method = prop::sample::select(vec![Method::GET, Method::POST, Method::HEAD, Method::PUT]);
    let path = prop::sample::select(vec![
        "/",
        "/browse",
        "/search",
        "/item/",
        "/user/",
        "/lucky/",
        "/bid",
        "//",
        "/item",
        "/x",
        "/rubis/ViewItem",
        "/rubis/SearchItemsByRegion",
        "/rubis/PutBid",
        "/rubis/PutComment",
        "/rubis/RegisterItem",
        "/rubis/",
    ]);
    let field = (
        "(q|page|category|region|item|user|to|amount|rating|title|text)?",
        "[0-9]{0,20}|[ -~]{0,12}|\\PC{0,60}",
    );
    let fields = prop::collection::vec(field, 0..4);
    (method, path, "[0-9]{0,12}|[ -~]{0,8}", fields.clone(), fields).prop_map(
        |(method, path, tail, query, form)| {
            let encode = |fields: Vec<(String, String)>| {
                form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
            };
            let tail: String = form_urlencoded::byte_serialize(tail.as_bytes()).collect();
            (method, format!("{path}{tail}?{}", encode(query)), encode(form))
        },
    )
}

#[test]
fn nothing_a_visitor_sends_breaks_the_shop() {
    let (shop, service) = open(Tiers::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    proptest!(ProptestConfig::with_cases(1_000), |((method, target, form) in anything())| {
        let answer = runtime.block_on(service.answer(request(method, &target, &form, "*/*")));
        prop_assert!(!answer.status().is_server_error(), "{}", answer.status());
        prop_assert!(!answer.body().is_empty());
    });
    let stats = service.stats();
    assert_eq!((service.failures(), stats.refused), (0, 0));
    assert!(stats.served > 0);
    audit(&shop.connect().expect("connection"));
}
