//! What each kind of page of the shop costs: one visitor, one page at a time, nothing else to do.
//!
//! ```console
//! $ cargo run --release -p tidegate-lab --example shop_costs -- medium
//! ```
//!
//! `ms` is the mean from the question to the whole answer; `app` and `db` are the busy time of the tiers,
//! whose sum is less by the ways between the threads. The table of docs/shop.md comes from here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tidegate_lab::origin::shop::{Service, Shop, Size, Tiers};
use tokio::time::Instant;

/// Each kind of page is asked for until this long has passed, and at least a few times.
const EACH: Duration = Duration::from_secs(2);
const AT_LEAST: u32 = 10;

/// A kind of page: method and target, with a form behind its question mark; `{n}`, `{c}` and `{u}` are
/// numbers that change with every request.
const PAGES: [(&str, &str, &str); 27] = [
    ("home", "GET", "/"),
    ("browse, first page", "GET", "/browse?category={c}"),
    ("browse, page 20", "GET", "/browse?category={c}&page=20"),
    ("item", "GET", "/lucky/{n}"),
    ("user", "GET", "/user/{u}"),
    ("bid", "POST", "/lucky/{n}"),
    ("search, frequent word", "GET", "/search?q=clock"),
    ("search, rare word", "GET", "/search?q=umbrella"),
    ("search, no match", "GET", "/search?q=zeppelin"),
    ("search, a lot's number", "GET", "/search?q={n}"),
    ("search in a category", "GET", "/search?q=clock&category={c}"),
    ("BrowseCategories", "GET", "/rubis/BrowseCategories"),
    ("BrowseRegions", "GET", "/rubis/BrowseRegions"),
    ("SearchItemsByCategory", "GET", "/rubis/SearchItemsByCategory?category={n}"),
    ("SearchItemsByRegion", "GET", "/rubis/SearchItemsByRegion?region={n}"),
    ("AboutMe", "GET", "/rubis/AboutMe?user={n}"),
    ("RegisterUser", "POST", "/rubis/RegisterUser?region={n}"),
    ("SellItemForm", "GET", "/rubis/SellItemForm?category={n}"),
    ("RegisterItem", "POST", "/rubis/RegisterItem?user={n}&category={n}&title=Lot+{n}"),
    ("ViewItem", "GET", "/rubis/ViewItem?item={n}"),
    ("PutComment", "POST", "/rubis/PutComment?user={n}&to={n}&item={n}&rating=1&text=Thank+you"),
    ("ViewUserInfo", "GET", "/rubis/ViewUserInfo?user={n}"),
    ("PutBidAuth", "GET", "/rubis/PutBidAuth?item={n}"),
    ("PutBid", "POST", "/rubis/PutBid?item={n}&user={n}"),
    ("BuyNowAuth", "GET", "/rubis/BuyNowAuth?item={n}"),
    ("BuyNow", "POST", "/rubis/BuyNow?item={n}&user={n}"),
    ("ViewBidHistory", "GET", "/rubis/ViewBidHistory?item={n}"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let size: Size = std::env::args().nth(1).as_deref().unwrap_or("medium").parse()?;
    let begun = Instant::now();
    let shop = Arc::new(Shop::open(None, size, 1)?);
    println!("{} items filled in {:.1} s", size.items(), begun.elapsed().as_secs_f64());
    let service = Service::start(shop, Tiers { workers: 1, connections: 1, ..Tiers::default() })?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    println!("{:<24} {:>9} {:>9} {:>9}", "page", "ms", "app ms", "db ms");
    for (name, method, target) in PAGES {
        // Not measured: the first compiles the statement and maps the file.
        runtime.block_on(service.answer(request(method, target, 0)?));
        let before = service.stages();
        let (begun, mut count) = (Instant::now(), 0u32);
        while begun.elapsed() < EACH || count < AT_LEAST {
            count += 1;
            let answer = runtime.block_on(service.answer(request(method, target, count)?));
            if !answer.status().is_success() && !answer.status().is_redirection() {
                return Err(format!("{method} {target}: {}", answer.status()).into());
            }
        }
        let ms = begun.elapsed().as_secs_f64() * 1e3 / f64::from(count);
        let after = service.stages();
        let busy = |tier: usize| {
            let us = after[tier].total_busy_us() - before[tier].total_busy_us();
            us as f64 / 1e3 / f64::from(count)
        };
        println!("{name:<24} {ms:>9.3} {:>9.3} {:>9.3}", busy(0), busy(1));
    }
    Ok(())
}

fn request(method: &str, target: &str, count: u32) -> Result<Request<Bytes>, http::Error> {
    // A step coprime to everything: the requests spread over the shop, the same way each time.
    let n = count.wrapping_mul(7_919) % 1_000_000;
    let target = target
        .replace("{n}", &n.to_string())
        .replace("{c}", &(1 + n % 20).to_string())
        .replace("{u}", &(1 + n % 400).to_string());
    // What is sent stands behind the question mark here.
    let form = if method == "POST" { target.split('?').nth(1).unwrap_or_default() } else { "" };
    let body = Bytes::copy_from_slice(form.as_bytes());
    Request::builder().method(method).uri(target.as_str()).body(body)
}
