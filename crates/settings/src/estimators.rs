//! The estimators of the capacity as the configuration names them, and their parameters.
//!
//! The names are the core's own, so that an algorithm that exists there can be chosen here.

use tidegate_core::capacity::{self, Options};
use tidegate_core::units::Rate;

use super::declare::{Leaf, Section as _};
use super::kinds::{either, toml_string};
use super::read::did_you_mean;
use super::rivals;
use super::sections::Capacity;
use super::tree::Value;
use super::tuning;
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
pub(crate) struct EstimatorName;

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

    fn schema(&self) -> serde_json::Value {
        serde_json::json!({ "type": "string", "enum": estimator_names().collect::<Vec<_>>() })
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

    /// Whether the estimator called `name` has the same parameters in `other`. Other estimators' are no matter.
    pub fn is_tuned_like(&self, other: &Self, name: &str) -> bool {
        // As a rule nothing differs but a bound, and no text is made to find that out.
        let bare =
            |of: &Self| Self { estimator: String::new(), rate: 0.0, ceiling: 0.0, floor: 0.0, ..of.clone() };
        bare(self) == bare(other) || self.parameters(name) == other.parameters(name)
    }

    /// What is written in the section of the estimator called `name`.
    fn parameters(&self, name: &str) -> Vec<String> {
        let mut blocks = Vec::new();
        self.blocks("capacity", &mut blocks);
        blocks.retain(|block| block.path == format!("capacity.{}", name.replace('-', "_")));
        blocks.into_iter().flat_map(|block| block.keys).map(|key| key.value).collect()
    }

    /// What the core's estimators are made with.
    pub fn options(&self) -> Options {
        let mut options = Options { rate: self.given(), ..Options::default() };
        tuning::fill(self, &mut options);
        rivals::fill(self, &mut options);
        options
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

    /// Whether nothing limits what is let in: a number was asked for and none is given.
    pub fn lets_everybody_in(&self) -> bool {
        let is_told = matches!(self.role, Role::TokenCheck { .. });
        !is_told && !self.discovers() && self.capacity.given().is_none() && self.capacity.most().is_none()
    }

    /// Whether the estimator in force finds the capacity out.
    pub fn discovers(&self) -> bool {
        self.estimator() != FIXED
    }
}

impl Settings {
    /// What the gate will go by, in a sentence for operators.
    pub fn explain_capacity(&self) -> String {
        let c = &self.capacity;
        if let Role::TokenCheck { feedback_url, .. } = &self.role {
            return format!("as the tokengen process says ({feedback_url})");
        }
        let mut text = match (self.discovers(), c.given()) {
            (true, None) => format!("discovered by \"{}\"", self.estimator()),
            (true, Some(rate)) => {
                format!("discovered by \"{}\", starting from {} cost units/s", self.estimator(), rate.get())
            }
            (false, Some(rate)) => format!("{} cost units/s, as given", rate.get()),
            (false, None) => "unlimited: nobody waits until PUT /v1/capacity sets one".into(),
        };
        if let Some(most) = c.most() {
            text.push_str(&format!(", at most {}/s", most.get()));
        }
        if c.least() > Rate::ZERO {
            text.push_str(&format!(", at least {}/s", c.least().get()));
        }
        match self.origin.max_in_flight {
            0 => {}
            n => text.push_str(&format!(", at most {n} in flight")),
        }
        text
    }
}

/// 0 stands for none.
fn bound(rate: f64) -> Option<Rate> {
    Rate::per_second(rate).filter(|rate| *rate > Rate::ZERO)
}
