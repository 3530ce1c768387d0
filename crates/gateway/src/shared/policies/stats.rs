//! Counts requests and connections by rule and action. Kept by the rule's name, over reloads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tidegate_core::policies::Action;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// Refused with a problem document.
    Answer,
    /// Refused with the page.
    Page,
    /// Sent to a lighter URL instead of being refused.
    Lighter,
    Close,
    Reset,
    /// Its connection ended after the answer.
    End,
    Stop,
    Room,
    Reroute,
    /// Given a shared answer.
    Multicast,
    /// Another application was asked.
    Ask,
}

impl Done {
    /// All, by discriminant.
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

/// The counters of one rule, shared by all workers: only a rule in force pays for the contended cache line.
#[derive(Debug)]
pub struct RuleStats {
    pub name: Arc<str>,
    done: [AtomicU64; Done::ALL.len()],
    would: AtomicU64,
}

impl RuleStats {
    pub fn count(&self, done: Done) {
        self.done[done as usize].fetch_add(1, Relaxed);
    }

    /// Counts a request that the rule would have decided, were it not in shadow.
    pub fn count_shadow(&self) {
        self.would.fetch_add(1, Relaxed);
    }

    /// Requests and connections so far.
    pub fn get(&self, done: Done) -> u64 {
        self.done[done as usize].load(Relaxed)
    }

    /// Requests that the rule would have decided, were it not in shadow.
    pub fn would(&self) -> u64 {
        self.would.load(Relaxed)
    }
}

/// Every rule that was ever in force. Bounded by the rules of the configurations that the process has had.
#[derive(Default)]
pub struct Ledger(Mutex<BTreeMap<Arc<str>, Arc<RuleStats>>>);

impl Ledger {
    pub fn of(&self, rule: &str) -> Arc<RuleStats> {
        let mut all = self.0.lock();
        if let Some(stats) = all.get(rule) {
            return stats.clone();
        }
        let name: Arc<str> = rule.into();
        let stats = RuleStats { name: name.clone(), done: Default::default(), would: AtomicU64::new(0) };
        all.entry(name).or_insert_with(|| Arc::new(stats)).clone()
    }

    pub fn all(&self) -> Vec<Arc<RuleStats>> {
        self.0.lock().values().cloned().collect()
    }
}
