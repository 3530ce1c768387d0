//! Parses a request to the shop. Every input is checked and bounded here, before it can cost anything.

use http::{Method, Request};

use super::fields::{Fields, MAX_FORM, Misread, cents, excerpt, number};
use super::rubis;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Query {
    Home,
    Browse {
        category: u32,
        page: u32,
    },
    Search {
        text: String,
        category: Option<u32>,
        page: u32,
    },
    Item(i64),
    User(i64),
    Bid(BidForm),
    /// The item that this number falls on.
    Lucky(u32),
    /// A bid on the item that this number falls on.
    LuckyBid(u32),
    Rubis(rubis::Ask),
}

impl Query {
    /// Whether it changes the database: carried out also if its visitor has left.
    pub fn writes(&self) -> bool {
        match self {
            Self::Bid(_) | Self::LuckyBid(_) => true,
            Self::Rubis(ask) => ask.writes(),
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BidForm {
    pub item: i64,
    pub user: i64,
    pub cents: i64,
}

pub(super) fn read(request: &Request<impl AsRef<[u8]>>) -> Result<Query, Misread> {
    let (path, form) = (request.uri().path(), request.body().as_ref());
    let query = Fields::new(request.uri().query().unwrap_or_default().as_bytes());
    let mut segments = path.strip_prefix('/').ok_or(Misread::NoPage)?.split('/');
    let page = (segments.next().unwrap_or_default(), segments.next(), segments.next());
    let get = matches!(*request.method(), Method::GET | Method::HEAD);
    let post = request.method() == Method::POST;
    match page {
        ("rubis", Some(name), None) => {
            let query = request.uri().query().unwrap_or_default();
            rubis::route::read(name, request.method(), query, form).map(Query::Rubis)
        }
        ("bid", None, None) if post => bid(form).map(Query::Bid),
        ("bid", None, None) => Err(Misread::Method("POST")),
        ("lucky", Some(n), None) if get => number(n).map(Query::Lucky).ok_or(Misread::NoPage),
        ("lucky", Some(n), None) if post => number(n).map(Query::LuckyBid).ok_or(Misread::NoPage),
        ("lucky", Some(_), None) => Err(Misread::Method("GET, HEAD, POST")),
        ("" | "browse" | "search", None, None) | ("item" | "user", Some(_), None) if !get => {
            Err(Misread::Method("GET, HEAD"))
        }
        ("", None, None) => Ok(Query::Home),
        ("browse", None, None) => {
            Ok(Query::Browse { category: query.category()?.unwrap_or(1), page: query.page()? })
        }
        ("search", None, None) => {
            Ok(Query::Search { text: query.text()?, category: query.category()?, page: query.page()? })
        }
        ("item", Some(id), None) => number(id).map(|id| Query::Item(id.into())).ok_or(Misread::NoPage),
        ("user", Some(id), None) => number(id).map(|id| Query::User(id.into())).ok_or(Misread::NoPage),
        _ => Err(Misread::NoPage),
    }
}

fn bid(form: &[u8]) -> Result<BidForm, Misread> {
    if form.len() > MAX_FORM {
        return Err(Misread::LongForm);
    }
    let fields = Fields::new(form);
    let amount = fields.get("amount").unwrap_or_default();
    let cents = cents(amount).ok_or_else(|| Misread::Form {
        name: "amount",
        expected: "an amount such as 12.50, at most 10000000",
        got: excerpt(amount),
    })?;
    Ok(BidForm { item: fields.form_number("item")?, user: fields.form_number("user")?, cents })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::shop::fields::MAX_CENTS;

    fn ask(method: &str, target: &str, form: &str) -> Result<Query, Misread> {
        let request = Request::builder().method(method).uri(target).body(form.to_owned()).expect("request");
        read(&request)
    }

    #[test]
    fn pages() {
        let search = |text: &str, category, page| Ok(Query::Search { text: text.into(), category, page });
        for (target, expected) in [
            ("/", Ok(Query::Home)),
            ("/?utm=1", Ok(Query::Home)),
            ("/browse", Ok(Query::Browse { category: 1, page: 1 })),
            ("/browse?category=20&page=500", Ok(Query::Browse { category: 20, page: 500 })),
            ("/search?q=clock", search("clock", None, 1)),
            ("/search?q=+salt+%26+pepper%20&category=&page=2", search("salt & pepper", None, 2)),
            ("/search?q=a&q=b&category=3", search("a", Some(3), 1)),
            ("/item/7", Ok(Query::Item(7))),
            ("/user/7", Ok(Query::User(7))),
            ("/lucky/999999", Ok(Query::Lucky(999_999))),
            ("/item/", Err(Misread::NoPage)),
            ("/item/-1", Err(Misread::NoPage)),
            ("/item/+1", Err(Misread::NoPage)),
            ("/item/1/2", Err(Misread::NoPage)),
            ("/item/99999999999999999999", Err(Misread::NoPage)),
            ("/item/1%20or%201=1", Err(Misread::NoPage)),
            ("/ITEM/1", Err(Misread::NoPage)),
            ("//", Err(Misread::NoPage)),
            ("/bid", Err(Misread::Method("POST"))),
        ] {
            assert_eq!(ask("GET", target, ""), expected, "{target}");
        }
        assert_eq!(ask("HEAD", "/item/7", ""), Ok(Query::Item(7)));
        assert_eq!(ask("POST", "/lucky/7", ""), Ok(Query::LuckyBid(7)));
        assert_eq!(ask("DELETE", "/item/7", ""), Err(Misread::Method("GET, HEAD")));
    }

    #[test]
    fn errors_of_queries_out_of_bounds_say_the_expectation() {
        for (target, field) in [
            ("/browse?category=0", "category"),
            ("/browse?category=21", "category"),
            ("/search?q=a&category=1;drop", "category"),
            ("/browse?page=0", "page"),
            ("/browse?page=501", "page"),
            ("/browse?page=1e3", "page"),
            ("/search", "q"),
            ("/search?q=+++", "q"),
            ("/search?q=a%00b", "q"),
            (&format!("/search?q={}", "a".repeat(101)), "q"),
        ] {
            let misread = ask("GET", target, "").expect_err(target);
            assert!(matches!(&misread, Misread::Query { name, .. } if *name == field), "{target}: {misread}");
            assert!(misread.to_string().len() < 150, "{target}: {misread}");
        }
    }

    #[test]
    fn bids() {
        let ok = |cents| Ok(Query::Bid(BidForm { item: 3, user: 4, cents }));
        for (amount, cents) in [
            ("12", 1200),
            ("12.5", 1250),
            ("12.05", 1205),
            ("0.01", 1),
            ("+7+", 700),
            ("10000000", MAX_CENTS),
        ] {
            assert_eq!(ask("POST", "/bid", &format!("item=3&user=4&amount={amount}")), ok(cents), "{amount}");
        }
        for amount in [
            "",
            "0",
            "0.00",
            "-1",
            "%2B1",
            "1.234",
            "1.",
            ".5",
            "1e3",
            "NaN",
            "10000000.01",
            "99999999999",
            "1,5",
            "٣",
        ] {
            let misread = ask("POST", "/bid", &format!("item=3&user=4&amount={amount}"));
            assert!(matches!(misread, Err(Misread::Form { name: "amount", .. })), "{amount}: {misread:?}");
        }
        let misread = ask("POST", "/bid", "item=3&amount=1");
        assert!(matches!(misread, Err(Misread::Form { name: "user", .. })), "{misread:?}");
        let long = format!("item=3&user=4&amount=1&x={}", "x".repeat(MAX_FORM));
        assert_eq!(ask("POST", "/bid", &long), Err(Misread::LongForm));
    }
}
