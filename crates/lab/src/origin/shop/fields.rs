//! The fields of a query or a form, and what is wrong with them. Every input is bounded here.

use std::borrow::Cow;

/// Longest form taken, in bytes: three numbers need less than a hundred.
pub(super) const MAX_FORM: usize = 4 * 1024;
/// Longest text to search for, in characters. The cost of a scan grows with it only a little; nobody types
/// more.
pub(super) const MAX_TEXT: usize = 100;
/// Last page of a list: the database walks over everything before a page, and nobody reads as far.
pub(super) const MAX_PAGE: u32 = 500;
/// Highest bid, in cents: ten million.
pub(super) const MAX_CENTS: i64 = 1_000_000_000;

/// A request the database need not see.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Misread {
    #[error("there is no such page")]
    NoPage,
    #[error("{0} is expected here")]
    Method(&'static str),
    #[error("the form is longer than {MAX_FORM} bytes")]
    LongForm,
    #[error("{name}: expected {expected}, got {got:?}")]
    Query { name: &'static str, expected: &'static str, got: String },
    #[error("{name}: expected {expected}, got {got:?}")]
    Form { name: &'static str, expected: &'static str, got: String },
}

pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Fields<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        Self(form_urlencoded::parse(text).collect())
    }

    /// The first field of that name; an empty one counts as absent, since forms send them.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(key, value)| key == name && !value.is_empty())?;
        Some(value)
    }

    pub fn category(&self) -> Result<Option<u32>, Misread> {
        let Some(value) = self.get("category") else { return Ok(None) };
        let category = number(value).filter(|n| (1..=super::vocabulary::CATEGORIES.len() as u32).contains(n));
        category.map(Some).ok_or_else(|| Misread::Query {
            name: "category",
            expected: "the number of a category",
            got: excerpt(value),
        })
    }

    pub fn page(&self) -> Result<u32, Misread> {
        let Some(value) = self.get("page") else { return Ok(1) };
        number(value).filter(|page| (1..=MAX_PAGE).contains(page)).ok_or_else(|| Misread::Query {
            name: "page",
            expected: "a number from 1 to 500",
            got: excerpt(value),
        })
    }

    pub fn text(&self) -> Result<String, Misread> {
        let text = self.get("q").unwrap_or_default().trim();
        let fits = (1..=MAX_TEXT).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        fits.then(|| text.to_owned()).ok_or_else(|| Misread::Query {
            name: "q",
            expected: "1 to 100 characters to look for",
            got: excerpt(text),
        })
    }

    pub fn number(&self, name: &str) -> Option<u32> {
        number(self.get(name)?)
    }

    pub fn form_number(&self, name: &'static str) -> Result<i64, Misread> {
        let value = self.get(name).unwrap_or_default();
        number(value).map(i64::from).ok_or_else(|| Misread::Form {
            name,
            expected: "a whole number",
            got: excerpt(value),
        })
    }
}

/// Digits only: `u32::from_str` would take a plus sign.
pub(super) fn number(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// "12", "12.5" or "12.50", from one cent to [`MAX_CENTS`].
pub(super) fn cents(text: &str) -> Option<i64> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
    let whole = i64::from(number(whole)?);
    let fraction = match fraction.len() {
        1 => 10 * number(fraction)?,
        2 => number(fraction)?,
        _ => return None,
    };
    Some(whole * 100 + i64::from(fraction)).filter(|cents| (1..=MAX_CENTS).contains(cents))
}

pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}
