//! What every rule did: requests and connections by action. Kept by the rule's name, over publications and reloads.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tidegate_core::policies::Action;

/// What became of a request or connection by a rule's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// Refused with a problem document.
    Answer,
    /// Refused with the page.
    Page,
    /// Sent to a lighter URL instead of being refused.
    Lighter,
    /// Closed without an answer.
    Close,
    /// Reset.
    Reset,
    /// Its connection ended after the answer.
    End,
    /// Cut off.
    Stop,
    /// Sent to the room.
    Room,
    /// Rerouted.
    Reroute,
    /// Given a shared answer.
    Multicast,
    /// Another application was asked.
    Ask,
}

impl Done {
    /// All, by index.
    pub const ALL: [Self; 11] = [
        Self::Answer,
        Self::Page,
        Self::Lighter,
        Self::Close,
        Self::Reset,
        Self::End,
        Self::Stop,
        Self::Room,
        Self::Reroute,
        Self::Multicast,
        Self::Ask,
    ];

    /// Its stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Page => "page",
            Self::Lighter => "lighter",
            Self::Close => "close",
            Self::Reset => "reset",
            Self::End => "end",
            Self::Stop => "stop",
            Self::Room => "room",
            Self::Reroute => "reroute",
            Self::Multicast => "multicast",
            Self::Ask => "ask",
        }
    }
}

impl From<Action> for Done {
    fn from(action: Action) -> Self {
        match action {
            Action::Answer { .. } => Self::Answer,
            Action::Page { .. } => Self::Page,
            Action::Lighter(_) => Self::Lighter,
            Action::Close => Self::Close,
            Action::Reset => Self::Reset,
            Action::End => Self::End,
            Action::Stop => Self::Stop,
        }
    }
}

/// What one rule did. Counted by all workers: it is a rule in force that pays for the shared line.
#[derive(Debug)]
pub struct RuleStats {
    /// The rule.
    pub name: Arc<str>,
    done: [AtomicU64; Done::ALL.len()],
    would: AtomicU64,
}

impl RuleStats {
    /// Counts one.
    pub fn count(&self, done: Done) {
        self.done[done as usize].fetch_add(1, Relaxed);
    }

    /// Counts one that an order in shadow would have decided.
    pub fn count_shadow(&self) {
        self.would.fetch_add(1, Relaxed);
    }

    /// How often so far.
    pub fn get(&self, done: Done) -> u64 {
        self.done[done as usize].load(Relaxed)
    }

    /// How often an order in shadow would have decided.
    pub fn would(&self) -> u64 {
        self.would.load(Relaxed)
    }
}

/// Every rule that was ever in force. Rules come from the configuration, and a process sees few of those.
#[derive(Default)]
pub struct Ledger(Mutex<BTreeMap<Arc<str>, Arc<RuleStats>>>);

impl Ledger {
    /// A rule's counters.
    pub fn of(&self, rule: &str) -> Arc<RuleStats> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stats) = all.get(rule) {
            return stats.clone();
        }
        let name: Arc<str> = rule.into();
        let stats = RuleStats { name: name.clone(), done: Default::default(), would: AtomicU64::new(0) };
        all.entry(name).or_insert_with(|| Arc::new(stats)).clone()
    }

    fn all(&self) -> Vec<Arc<RuleStats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// In Prometheus's text form. `label` escapes a label's value.
    pub fn prometheus(&self, out: &mut String, label: fn(&str) -> String) {
        let all = self.all();
        let name = "tidegate_rule_actions_total";
        let help = "What rules did with requests and connections, by action.";
        _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
        for rule in &all {
            for done in Done::ALL {
                let (rule_name, n) = (label(&rule.name), rule.get(done));
                _ = writeln!(out, "{name}{{rule=\"{rule_name}\",action=\"{}\"}} {n}", done.name());
            }
        }
        let name = "tidegate_rule_would_refuse_total";
        let help = "Requests that a rule in shadow would have decided on.";
        _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
        for rule in &all {
            _ = writeln!(out, "{name}{{rule=\"{}\"}} {}", label(&rule.name), rule.would());
        }
    }

    /// For `/v1/state`.
    pub fn json(&self) -> Vec<Value> {
        let rules = self.all();
        rules
            .iter()
            .map(|rule| {
                let actions: serde_json::Map<_, _> =
                    Done::ALL.iter().map(|done| (done.name().into(), rule.get(*done).into())).collect();
                json!({ "name": &*rule.name, "actions": actions, "would_refuse": rule.would() })
            })
            .collect()
    }
}
