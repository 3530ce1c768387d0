//! `[origin.shop]`: a real service over a real database in place of the model (docs/shop.md).

use std::str::FromStr;

use tidegate_settings::kind::{Choice, Count, Named};

use super::section::Section;

/// Most servers of a tier: more threads than any machine has cores for, fewer than any system refuses.
pub const MAX_SHOP_SERVERS: usize = 4096;

/// The shop's size and the threads of its two tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShopSpec {
    pub size: ShopSize,
    /// Requests that a replica's app tier holds at once.
    pub workers: u32,
    /// Connections to the database.
    pub connections: u32,
}

impl Default for ShopSpec {
    fn default() -> Self {
        Self { size: ShopSize::Medium, workers: 8, connections: 2 }
    }
}

/// How much there is in a shop. The time of a search is proportional to the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ShopSize {
    Small,
    #[default]
    Medium,
    Large,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected small, medium or large; got {0:?}")]
pub struct NotASize(pub String);

impl Named for ShopSize {
    const NAMES: &'static [(&'static str, Self)] =
        &[("small", Self::Small), ("medium", Self::Medium), ("large", Self::Large)];
}

impl FromStr for ShopSize {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Self, NotASize> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, size)| *size).ok_or_else(|| NotASize(text.into()))
    }
}

impl ShopSize {
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }

    /// Items for sale or sold.
    pub fn items(self) -> u32 {
        match self {
            Self::Small => 2_000,
            Self::Medium => 50_000,
            Self::Large => 250_000,
        }
    }

    pub fn users(self) -> u32 {
        self.items() / 5
    }

    pub fn bids(self) -> u32 {
        self.items() * 2
    }

    pub fn comments(self) -> u32 {
        self.items() / 2
    }
}

pub(super) fn read(origin: &mut Section<'_, '_>) -> Option<ShopSpec> {
    let usual = ShopSpec::default();
    let mut section = origin.inside("shop")?;
    let servers = || Count(1..=MAX_SHOP_SERVERS as u64);
    let shop = ShopSpec {
        size: section.take("size", &Choice, usual.size),
        workers: section.take("workers", &servers(), usual.workers),
        connections: section.take("connections", &servers(), usual.connections),
    };
    section.finish();
    Some(shop)
}
