//! The sixteen requests of RUBiS that Porter & Katz correlate with the database's load (their Fig. 1), below
//! `/rubis/`, one path each.
//!
//! ```text
//!  route: path and fields ─► Ask ─► store: SQL ─► Answer ─► pages: HTML
//! ```
//!
//! RUBiS's clients know which items and users there are. A load generator here does not: any number names an
//! item or a user, those beyond the last begin again with the first. Answers to forms are pages and no
//! redirects, as in RUBiS: one request is one request of one type.

pub(super) mod pages;
pub(super) mod route;
pub(super) mod store;

/// A request of one of the sixteen types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    BrowseCategories,
    BrowseRegions,
    SearchItemsByCategory { category: u32, page: u32 },
    SearchItemsByRegion { region: u32, page: u32 },
    AboutMe { user: u32 },
    RegisterUser { region: u32 },
    SellItemForm { category: u32 },
    RegisterItem(NewItem),
    ViewItem { item: u32 },
    PutComment(NewComment),
    ViewUserInfo { user: u32 },
    PutBidAuth { item: u32 },
    PutBid { item: u32, user: u32, cents: Option<i64> },
    BuyNowAuth { item: u32 },
    BuyNow { item: u32, user: u32 },
    ViewBidHistory { item: u32 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewItem {
    pub seller: u32,
    pub category: u32,
    pub title: String,
    pub cents: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewComment {
    pub author: u32,
    pub about: u32,
    pub item: u32,
    pub rating: i64,
    pub text: String,
}

impl Ask {
    /// Whether it changes the database: then it waits for its turn, and is carried out also if its visitor
    /// has left.
    pub fn writes(&self) -> bool {
        matches!(
            self,
            Self::RegisterUser { .. }
                | Self::RegisterItem(_)
                | Self::PutComment(_)
                | Self::PutBid { .. }
                | Self::BuyNow { .. }
        )
    }
}

/// What a number falls on among `count` things numbered from 1.
fn nth(number: u32, count: i64) -> i64 {
    1 + (i64::from(number) + count - 1) % count
}
