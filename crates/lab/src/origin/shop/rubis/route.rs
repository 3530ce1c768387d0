//! Reads a request below `/rubis/`: the type from its path, the rest from its query or form.

use http::Method;

use super::super::fields::{Fields, MAX_FORM, Misread, cents};
use super::super::vocabulary::{CATEGORIES, REGIONS};
use super::{Ask, NewComment, NewItem};

/// Longest title or comment, in characters.
const MAX_WORDS: usize = 200;
/// The starting price of an item that names none, in cents.
const USUAL_CENTS: i64 = 1_000;

/// A request's fields: of the query, or of the form where one is sent.
struct Sent<'a> {
    fields: Fields<'a>,
    is_form: bool,
}

/// The request for `/rubis/{name}`.
pub(in super::super) fn read(name: &str, method: &Method, query: &str, form: &[u8]) -> Result<Ask, Misread> {
    let writes = matches!(name, "RegisterUser" | "RegisterItem" | "PutComment" | "PutBid" | "BuyNow");
    let sent = match *method {
        Method::GET | Method::HEAD if !writes => {
            Sent { fields: Fields::new(query.as_bytes()), is_form: false }
        }
        Method::POST if writes && form.len() > MAX_FORM => return Err(Misread::LongForm),
        Method::POST if writes => Sent { fields: Fields::new(form), is_form: true },
        _ if !NAMES.contains(&name) => return Err(Misread::NoPage),
        _ if writes => return Err(Misread::Method("POST")),
        _ => return Err(Misread::Method("GET, HEAD")),
    };
    Ok(match name {
        "BrowseCategories" => Ask::BrowseCategories,
        "BrowseRegions" => Ask::BrowseRegions,
        "SearchItemsByCategory" => {
            Ask::SearchItemsByCategory { category: sent.category()?, page: sent.fields.page()? }
        }
        "SearchItemsByRegion" => {
            Ask::SearchItemsByRegion { region: sent.region()?, page: sent.fields.page()? }
        }
        "AboutMe" => Ask::AboutMe { user: sent.number("user")? },
        "RegisterUser" => Ask::RegisterUser { region: sent.region()? },
        "SellItemForm" => Ask::SellItemForm { category: sent.category()? },
        "RegisterItem" => Ask::RegisterItem(NewItem {
            seller: sent.number("user")?,
            category: sent.category()?,
            title: sent.words("title")?,
            cents: sent.cents("price")?.unwrap_or(USUAL_CENTS),
        }),
        "ViewItem" => Ask::ViewItem { item: sent.number("item")? },
        "PutComment" => Ask::PutComment(NewComment {
            author: sent.number("user")?,
            about: sent.number("to")?,
            item: sent.number("item")?,
            rating: sent.rating()?,
            text: sent.words("text")?,
        }),
        "ViewUserInfo" => Ask::ViewUserInfo { user: sent.number("user")? },
        "PutBidAuth" => Ask::PutBidAuth { item: sent.number("item")? },
        "PutBid" => Ask::PutBid {
            item: sent.number("item")?,
            user: sent.number("user")?,
            cents: sent.cents("amount")?,
        },
        "BuyNowAuth" => Ask::BuyNowAuth { item: sent.number("item")? },
        "BuyNow" => Ask::BuyNow { item: sent.number("item")?, user: sent.number("user")? },
        "ViewBidHistory" => Ask::ViewBidHistory { item: sent.number("item")? },
        _ => return Err(Misread::NoPage),
    })
}

/// The types in the order of the paper's Fig. 1; each is its path's last part.
pub(in super::super) const NAMES: [&str; 16] = [
    "BrowseCategories",
    "BrowseRegions",
    "SearchItemsByCategory",
    "SearchItemsByRegion",
    "AboutMe",
    "RegisterUser",
    "SellItemForm",
    "RegisterItem",
    "ViewItem",
    "PutComment",
    "ViewUserInfo",
    "PutBidAuth",
    "PutBid",
    "BuyNowAuth",
    "BuyNow",
    "ViewBidHistory",
];

impl Sent<'_> {
    fn wrong(&self, name: &'static str, expected: &'static str) -> Misread {
        let got = self.fields.get(name).unwrap_or_default().chars().take(40).collect();
        match self.is_form {
            true => Misread::Form { name, expected, got },
            false => Misread::Query { name, expected, got },
        }
    }

    fn number(&self, name: &'static str) -> Result<u32, Misread> {
        self.fields.number(name).ok_or_else(|| self.wrong(name, "a whole number"))
    }

    /// A number that falls on one of `count` things, those beyond the last beginning again.
    fn one_of(&self, name: &'static str, count: usize) -> Result<u32, Misread> {
        Ok(super::nth(self.number(name)?, count as i64) as u32)
    }

    fn category(&self) -> Result<u32, Misread> {
        self.one_of("category", CATEGORIES.len())
    }

    fn region(&self) -> Result<u32, Misread> {
        self.one_of("region", REGIONS.len())
    }

    fn words(&self, name: &'static str) -> Result<String, Misread> {
        let text = self.fields.get(name).unwrap_or_default().trim();
        let fits = (1..=MAX_WORDS).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        fits.then(|| text.to_owned()).ok_or_else(|| self.wrong(name, "1 to 200 characters"))
    }

    /// `None`: the field is not there.
    fn cents(&self, name: &'static str) -> Result<Option<i64>, Misread> {
        let Some(text) = self.fields.get(name) else { return Ok(None) };
        cents(text).map(Some).ok_or_else(|| self.wrong(name, "an amount such as 12.50, at most 10000000"))
    }

    fn rating(&self) -> Result<i64, Misread> {
        let rating = self.fields.get("rating").unwrap_or_default().parse().ok();
        rating.filter(|r| (-5..=5).contains(r)).ok_or_else(|| self.wrong("rating", "a number from -5 to 5"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(name: &str, query: &str) -> Result<Ask, Misread> {
        read(name, &Method::GET, query, b"")
    }

    fn post(name: &str, form: &str) -> Result<Ask, Misread> {
        read(name, &Method::POST, "", form.as_bytes())
    }

    #[test]
    fn each_type_is_read_from_its_path_and_fields() {
        let category = |category, page| Ok(Ask::SearchItemsByCategory { category, page });
        for (got, expected) in [
            (get("BrowseCategories", ""), Ok(Ask::BrowseCategories)),
            (get("SearchItemsByCategory", "category=20&page=3"), category(20, 3)),
            (get("SearchItemsByCategory", "category=21"), category(1, 1)),
            (get("SearchItemsByCategory", "category=999999"), category(19, 1)),
            (get("SearchItemsByCategory", "category=0"), category(20, 1)),
            (get("SearchItemsByRegion", "region=12"), Ok(Ask::SearchItemsByRegion { region: 12, page: 1 })),
            (post("RegisterUser", "region=1"), Ok(Ask::RegisterUser { region: 1 })),
            (post("PutBid", "item=7&user=8"), Ok(Ask::PutBid { item: 7, user: 8, cents: None })),
            (
                post("PutBid", "item=7&user=8&amount=1.50"),
                Ok(Ask::PutBid { item: 7, user: 8, cents: Some(150) }),
            ),
            (get("PutBid", "item=7&user=8"), Err(Misread::Method("POST"))),
            (post("ViewItem", "item=7"), Err(Misread::Method("GET, HEAD"))),
            (post("Nothing", ""), Err(Misread::NoPage)),
            (get("Nothing", ""), Err(Misread::NoPage)),
            (get("viewitem", "item=1"), Err(Misread::NoPage)),
        ] {
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn a_wrong_field_is_named() {
        for (misread, field) in [
            (get("ViewItem", ""), "item"),
            (get("ViewItem", "item=-1"), "item"),
            (get("ViewItem", "item=99999999999"), "item"),
            (get("SearchItemsByCategory", "category=1;drop"), "category"),
            (get("SearchItemsByCategory", "category=1&page=501"), "page"),
        ] {
            let misread = misread.expect_err(field);
            assert!(matches!(&misread, Misread::Query { name, .. } if *name == field), "{misread}");
        }
        for (misread, field) in [
            (post("PutBid", "item=1&user=2&amount=1e3"), "amount"),
            (post("RegisterItem", "user=1&category=1&title=+"), "title"),
            (post("RegisterItem", &format!("user=1&category=1&title={}", "x".repeat(201))), "title"),
            (post("PutComment", "user=1&to=2&item=3&rating=6&text=x"), "rating"),
        ] {
            let misread = misread.expect_err(field);
            assert!(matches!(&misread, Misread::Form { name, .. } if *name == field), "{misread}");
        }
        assert_eq!(post("PutBid", &"x".repeat(MAX_FORM + 1)), Err(Misread::LongForm));
    }
}
