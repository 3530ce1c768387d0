//! `[capacity]`: how the capacity of the origin is discovered, or that it is given. The names of the
//! estimators are the core's, so an algorithm that exists there can be chosen here.

use tidegate_core::capacity::{self, Options};
use tidegate_core::units::Rate;

use super::declare::{Leaf, Section as _};
use super::estimators::{Aimd, Bottleneck, Breakwater, Cinnamon, Gradient, Gradient2, PowerRatio, Vegas};
use super::kinds::quantity::{Number, RateOrNone};
use super::kinds::toml_string;
use super::mistake::{did_you_mean, either};
use super::read::Reader;
use super::tree::Value;
use super::{Role, Settings};

/// Chooses the estimator by whether a rate is given.
pub const AUTO: &str = "auto";
/// Keeps the number it was given.
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

section! {
    /// How much the origin can serve: discovered, or given.
    pub struct Capacity [tunable] {
        /// How it is discovered: the name of an algorithm; "fixed": it is the number in `rate`; "auto":
        /// "fixed" if there is a number in `rate`, else "bottleneck".
        estimator: String = AUTO.into() => EstimatorName;
        /// Cost units per second: for "fixed" what the origin can serve (0: it is discovered until a number
        /// is set through the API; 1000000: no limit), for the others where they start (0: they choose).
        rate: f64 = 0.0 => RateOrNone;
        /// Never admit more than this, in cost units per second, whatever is discovered; 0: no bound.
        ceiling: f64 = 0.0 => RateOrNone;
        /// Never admit less than this, in cost units per second, whatever is discovered; 0: no bound.
        floor: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
    }
    with {
        /// Parameters of "bottleneck".
        bottleneck: Bottleneck;
        /// Parameters of "power-ratio".
        power_ratio: PowerRatio;
        /// Parameters of "aimd".
        aimd: Aimd;
        /// Parameters of "vegas".
        vegas: Vegas;
        /// Parameters of "gradient".
        gradient: Gradient;
        /// Parameters of "gradient2".
        gradient2: Gradient2;
        /// Parameters of "cinnamon".
        cinnamon: Cinnamon;
        /// Parameters of "breakwater".
        breakwater: Breakwater;
    }
}

impl Capacity {
    pub fn given(&self) -> Option<Rate> {
        bound(self.rate)
    }

    pub fn most(&self) -> Option<Rate> {
        bound(self.ceiling)
    }

    /// The operator's floor; [`Rate::ZERO`] for none.
    pub fn least(&self) -> Rate {
        bound(self.floor).unwrap_or(Rate::ZERO)
    }

    /// Whether the estimator called `name` has the same parameters in `other`.
    pub fn is_tuned_like(&self, other: &Self, name: &str) -> bool {
        // Usually at most a bound differs; then nothing has to be printed to find that out.
        let bare =
            |of: &Self| Self { estimator: String::new(), rate: 0.0, ceiling: 0.0, floor: 0.0, ..of.clone() };
        bare(self) == bare(other) || self.parameters(name) == other.parameters(name)
    }

    /// The values in the section of the estimator called `name`.
    fn parameters(&self, name: &str) -> Vec<String> {
        let mut blocks = Vec::new();
        self.blocks("capacity", &mut blocks);
        blocks.retain(|block| block.path == format!("capacity.{}", name.replace('-', "_")));
        blocks.into_iter().flat_map(|block| block.keys).map(|key| key.value).collect()
    }

    pub fn options(&self) -> Options {
        let mut options = Options { rate: self.given(), ..Options::default() };
        self.bottleneck.fill(&mut options.bottleneck);
        self.power_ratio.fill(&mut options.power_ratio);
        self.aimd.fill(&mut options.aimd);
        self.vegas.fill(&mut options.vegas);
        self.gradient.fill(&mut options.gradient);
        self.gradient2.fill(&mut options.gradient2);
        self.cinnamon.fill(&mut options.cinnamon);
        self.breakwater.fill(&mut options.breakwater);
        options
    }
}

impl Settings {
    /// The name of the estimator in force; for "auto" the one that it stands for. Tokencheck has no estimator
    /// of its own: its observations drive tokengen's, and it keeps the capacity that tokengen sends.
    pub fn estimator(&self) -> &str {
        match self.capacity.estimator.as_str() {
            _ if matches!(self.role, Role::TokenCheck { .. }) => FIXED,
            AUTO if self.capacity.given().is_some() => FIXED,
            AUTO => capacity::names().find(|name| *name == DISCOVERS).unwrap_or(FIXED),
            name => name,
        }
    }

    /// Whether nothing limits admission: the estimator is "fixed", at the largest number.
    pub fn lets_everybody_in(&self) -> bool {
        let is_told = matches!(self.role, Role::TokenCheck { .. });
        let is_unlimited = self.capacity.given() == Some(Rate::MAX);
        !is_told && !self.discovers() && is_unlimited && self.capacity.most().is_none()
    }

    pub fn discovers(&self) -> bool {
        self.estimator() != FIXED
    }

    /// Where the capacity comes from, in a sentence for operators.
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
            (false, Some(rate)) if rate == Rate::MAX => "unlimited, as given".into(),
            (false, Some(rate)) => format!("{} cost units/s, as given", rate.get()),
            (false, None) => format!("discovered by \"{DISCOVERS}\" until PUT /v1/capacity sets one"),
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

/// 0 means that there is no rate.
fn bound(rate: f64) -> Option<Rate> {
    Rate::per_second(rate).filter(|rate| *rate > Rate::ZERO)
}

/// Reports keys that contradict each other.
pub(crate) fn check(capacity: &Capacity, out: &mut Reader) {
    let c = capacity;
    if c.ceiling > 0.0 && c.floor > c.ceiling {
        let got = format!("a floor of {} above a ceiling of {}", c.floor, c.ceiling);
        out.conflict("capacity.floor", "at most `capacity.ceiling`", got, None);
    }
    let b = &c.bottleneck;
    if b.min_in_flight > b.max_in_flight {
        let got = format!("a minimum of {} above a maximum of {}", b.min_in_flight, b.max_in_flight);
        out.conflict("capacity.bottleneck.min_in_flight", "at most `max_in_flight`", got, None);
    }
}
