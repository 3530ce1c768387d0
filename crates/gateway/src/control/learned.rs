//! What was learned and set while running, over a restart: `learned.json` of the state directory.
//!
//! ```text
//! {"version": 1,
//!  "capacity": {"at_ms", "origin", "estimator", "rate", "knee": {...}, "costs": {class: ratio},
//!               "numbers": {class: cost}},
//!  "pushed":   {"at_ms", "rate", "configured", "until_ms"},
//!  "sessions": {"at_ms", "pause": [seconds, pauses], "work": [work, seconds], "share": [work, work],
//!               "first": [work, sessions], "first_page": [work, work], "correction",
//!               "length": [seconds, sessions]},
//!  "tuned":    {key: {"at_ms", "value", "file", "who", "why"}},
//!  "throttles": [{"id", "type", "action", "since_ms", "until_ms", "by", "why"}],
//!  "syn_rules": [{"name", "rule": {key: value}, "since_ms", "by", "why"}]}
//! ```
//!
//! Every part has its own age, from which its use follows: [`Trust`]. What another version adds is ignored,
//! and a part that cannot be used is dropped alone. Saved once a second, so a kill loses at most the last.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_core::capacity::{Knee, Learned, Trust};
use tidegate_core::class_costs::CostSource;
use tidegate_core::session::LearnedSessions;
use tidegate_core::units::{Rate, Timestamp};

use crate::base::state_dir::StateDir;
use crate::config::Config;
use crate::control::kernel::syn_rules::SavedSynRule;
use crate::control::throttles::SavedThrottle;

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize, Default, Debug)]
pub struct Saved {
    version: u32,
    #[serde(default)]
    pub(crate) capacity: Option<SavedCapacity>,
    #[serde(default)]
    pub(crate) pushed: Option<Pushed>,
    #[serde(default)]
    pub(crate) sessions: Option<SavedSessions>,
    #[serde(default)]
    pub(crate) tuned: BTreeMap<String, SavedTuned>,
    #[serde(default)]
    pub(crate) throttles: Vec<SavedThrottle>,
    #[serde(default)]
    pub(crate) syn_rules: Vec<SavedSynRule>,
}

/// What the estimator has learned of this origin.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct SavedCapacity {
    at_ms: u64,
    origin: Vec<String>,
    estimator: String,
    rate: f64,
    knee: Option<SavedKnee>,
    #[serde(default)]
    costs: BTreeMap<String, f64>,
    /// What the operator said that a class costs; without a number its ratio is to 1. `None`: of a version
    /// whose ratios were all to numbers.
    #[serde(default)]
    numbers: Option<BTreeMap<String, f64>>,
}

#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
struct SavedKnee {
    in_flight: f64,
    base_s: f64,
    contention: f64,
    units_per_s: f64,
    units: f64,
    dispersion: f64,
}

/// A capacity that somebody has set with `PUT /v1/capacity`.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub(crate) struct Pushed {
    pub(crate) at_ms: u64,
    pub(crate) rate: f64,
    /// `capacity.rate` at that time: a file that says something else since then wins.
    pub(crate) configured: Option<f64>,
    /// When it is forgotten; `None`: by its age ([`Trust`]).
    #[serde(default)]
    pub(crate) until_ms: Option<u64>,
}

/// Without a field that an older process did not save nothing is resumed.
#[derive(Clone, Copy, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub(crate) struct SavedSessions {
    at_ms: u64,
    #[serde(alias = "gap")]
    pause: (f64, f64),
    work: (f64, f64),
    share: (f64, f64),
    first: (f64, f64),
    first_page: (f64, f64),
    correction: f64,
    length: (f64, f64),
}

/// A tunable whose value is not the file's.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct SavedTuned {
    pub(crate) at_ms: u64,
    /// As TOML; `file`: the file's value at that time.
    pub(crate) value: String,
    pub(crate) file: String,
    pub(crate) who: String,
    pub(crate) why: String,
}

impl Saved {
    /// What the last process saved; nothing if that is missing or cannot be used, which the log says.
    pub fn read(state: &StateDir) -> Self {
        let read = state.learned().map_err(|e| e.to_string());
        match read.and_then(|bytes| bytes.map_or_else(|| Ok(Self::default()), |bytes| Self::parse(&bytes))) {
            Ok(saved) => saved,
            Err(why) => {
                tracing::warn!(
                    why,
                    "learned.json is not usable; starting without what was learned and tuned"
                );
                Self::default()
            }
        }
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let saved: Self = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        if saved.version != VERSION {
            return Err(format!("expected version {VERSION}, got {}", saved.version));
        }
        Ok(saved)
    }

    pub(crate) fn new() -> Self {
        Self { version: VERSION, ..Self::default() }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|_| unreachable!("maps have text as keys"))
    }
}

impl SavedCapacity {
    /// `None` for figures that JSON has no number for.
    pub(crate) fn new(learned: &Learned, live: &Config, now: Timestamp) -> Option<Self> {
        let name = |id: &tidegate_core::units::ClassId| live.class(*id).name.to_string();
        let knee = learned.knee.map(|knee| {
            let Knee { in_flight, base_s, contention, units_per_s, units, dispersion } = knee;
            SavedKnee { in_flight, base_s, contention, units_per_s, units, dispersion }
        });
        let finite = |ratio: f64| ratio.is_finite();
        Some(Self {
            at_ms: now.as_millis(),
            origin: live.settings.origin.replicas.clone(),
            estimator: live.settings.estimator().to_owned(),
            rate: Some(learned.capacity.get()).filter(|rate| finite(*rate) && *rate > 0.0)?,
            knee,
            costs: learned
                .costs
                .iter()
                .filter(|c| finite(c.1))
                .map(|(id, ratio)| (name(id), *ratio))
                .collect(),
            numbers: Some(
                learned
                    .costs
                    .iter()
                    .filter_map(|(id, _)| Some((name(id), number(live.class(*id).cost)?)))
                    .collect(),
            ),
        })
    }

    pub(crate) fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.at_ms)
    }

    /// What this is worth now. Behind other replicas, or under another algorithm, it is to be checked.
    pub(crate) fn trust(&self, live: &Config, now: Timestamp) -> Trust {
        let trust = Trust::of(self.at(), now);
        let is_same =
            self.origin == live.settings.origin.replicas && self.estimator == live.settings.estimator();
        if is_same { trust } else { trust.at_most_checked() }
    }

    /// The factor on a class's ratio, if it has a number now and had none, or the other way round: what it
    /// costs is what it was.
    fn rebase(&self, name: &str, now: Option<f64>) -> f64 {
        let Some(numbers) = &self.numbers else { return 1.0 };
        match (numbers.get(name), now) {
            (Some(before), None) => *before,
            (None, Some(now)) => 1.0 / now,
            (Some(_), Some(_)) | (None, None) => 1.0,
        }
    }

    pub(crate) fn learned(&self, live: &Config) -> Option<Learned> {
        let knee = self.knee.filter(|_| self.estimator == live.settings.estimator()).map(|knee| {
            let SavedKnee { in_flight, base_s, contention, units_per_s, units, dispersion } = knee;
            Knee { in_flight, base_s, contention, units_per_s, units, dispersion }
        });
        let costs = self.costs.iter().filter_map(|(name, ratio)| {
            let id = live.named(name)?;
            Some((id, ratio * self.rebase(name, number(live.class(id).cost))))
        });
        let capacity = Rate::per_second(self.rate).filter(|rate| *rate > Rate::ZERO)?;
        Some(Learned { capacity, knee, costs: costs.collect() })
    }
}

/// The operator's number; `None`: the cost is learned.
fn number(cost: CostSource) -> Option<f64> {
    match cost {
        CostSource::Configured(cost) => Some(cost.units()),
        CostSource::Learned => None,
    }
}

impl SavedSessions {
    pub(crate) fn new(learned: &LearnedSessions, now: Timestamp) -> Self {
        let LearnedSessions { pause, work, share, first, first_page, correction, length } = *learned;
        Self { at_ms: now.as_millis(), pause, work, share, first, first_page, correction, length }
    }

    pub(crate) fn trust(&self, now: Timestamp) -> Trust {
        Trust::of(Timestamp::from_millis(self.at_ms), now)
    }

    pub(crate) fn learned(&self) -> LearnedSessions {
        let Self { pause, work, share, first, first_page, correction, length, .. } = *self;
        LearnedSessions { pause, work, share, first, first_page, correction, length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_versions_and_damage_have_clear_messages() {
        for (text, expected) in [
            (r#"{"version": 2}"#, "expected version 1, got 2"),
            (r#"{"version": 1, "pushed": {"at_ms": 1}}"#, "missing field `rate`"),
            (r#"{"version": 1, "tuned": 3"#, "invalid type"),
            ("", "EOF"),
        ] {
            let why = Saved::parse(text.as_bytes()).expect_err(text);
            assert!(why.contains(expected), "{text}: {why}");
        }
        let later = br#"{"version": 1, "weather": "fine", "sessions": null}"#;
        assert!(Saved::parse(later).expect("what is unknown is ignored").sessions.is_none());
    }

    fn live(classes: &str) -> Config {
        let text = format!("origin.replicas = \"a:1\"\n{classes}");
        let settings = tidegate_settings::Settings::parse(&text, "test").expect("valid settings");
        Config::new(settings, &[format!("1:{}", "00".repeat(32))]).expect("a configuration")
    }

    #[test]
    fn a_cost_stays_what_it_is_when_its_number_comes_or_goes_over_a_restart() {
        let number = "[[class]]\nname = \"a\"\ncost = 3\n[[class]]\nname = \"default\"\ncost = 1\n";
        let learned = "[[class]]\nname = \"a\"\n[[class]]\nname = \"default\"\ncost = 1\n";
        let ratio = |before: &str, after: &str, ratio: f64| {
            let before = live(before);
            let a = before.named("a").expect("it is a class");
            let capacity = Rate::per_second(50.0).unwrap_or_default();
            let learned = Learned { capacity, knee: None, costs: vec![(a, ratio)] };
            let saved = SavedCapacity::new(&learned, &before, Timestamp::default()).expect("finite figures");
            let read: SavedCapacity =
                serde_json::from_value(serde_json::to_value(&saved).expect("JSON")).expect("the same");
            read.learned(&live(after)).expect("a capacity").costs[0].1
        };
        assert_eq!(ratio(number, number, 2.0), 2.0);
        assert_eq!(ratio(learned, learned, 2.0), 2.0);
        assert_eq!(ratio(number, learned, 2.0), 6.0);
        assert_eq!(ratio(learned, number, 6.0), 2.0);
    }
}
