//! The estimators of the capacity as the configuration names them, and their parameters.
//!
//! The names are the core's own, so that an algorithm that exists there can be chosen here.

use tidegate_core::capacity::{self, Options};
use tidegate_core::units::Rate;

use super::declare::Leaf;
use super::kinds::{either, toml_string};
use super::read::did_you_mean;
use super::sections::Capacity;
use super::tree::Value;
use super::{Role, Settings};

/// The estimator that fits what is configured.
pub const AUTO: &str = "auto";
/// Holds the number it was given.
const FIXED: &str = "fixed";
/// What "auto" means where no number is given.
const DISCOVERS: &str = "bottleneck";

/// What `capacity.estimator` may be.
pub fn estimator_names() -> impl Iterator<Item = &'static str> {
    std::iter::once(AUTO).chain(capacity::names())
}

/// One of [`estimator_names`].
pub(super) struct EstimatorName;

impl Leaf<String> for EstimatorName {
    fn parse(&self, value: &Value) -> Result<String, Option<String>> {
        let Value::Text(text) = value else { return Err(None) };
        let known = estimator_names().find(|name| name == text).map(str::to_owned);
        known.ok_or_else(|| did_you_mean(text, estimator_names()))
    }

    fn expected(&self) -> String {
        either(estimator_names().map(toml_string))
    }

    fn show(&self, value: &String) -> String {
        toml_string(value)
    }
}

impl Capacity {
    /// The configured rate, if there is one.
    pub fn given(&self) -> Option<Rate> {
        bound(self.rate)
    }

    /// The operator's ceiling, if there is one.
    pub fn most(&self) -> Option<Rate> {
        bound(self.ceiling)
    }

    /// The operator's floor; [`Rate::ZERO`] for none.
    pub fn least(&self) -> Rate {
        bound(self.floor).unwrap_or(Rate::ZERO)
    }

    /// What the core's estimators are made with.
    pub fn options(&self) -> Options {
        Options { rate: self.given() }
    }
}

impl Settings {
    /// The estimator in force, by the core's name: what "auto" comes to. Tokencheck has none of its own, since what it
    /// sees drives tokengen's; it holds the capacity that tokengen tells.
    pub fn estimator(&self) -> &str {
        match self.capacity.estimator.as_str() {
            _ if matches!(self.role, Role::TokenCheck { .. }) => FIXED,
            AUTO if self.capacity.given().is_some() => FIXED,
            AUTO => capacity::names().find(|name| *name == DISCOVERS).unwrap_or(FIXED),
            name => name,
        }
    }

    /// Whether the estimator in force finds the capacity out.
    pub fn discovers(&self) -> bool {
        self.estimator() != FIXED
    }
}

/// 0 stands for none.
fn bound(rate: f64) -> Option<Rate> {
    Rate::per_second(rate).filter(|rate| *rate > Rate::ZERO)
}
