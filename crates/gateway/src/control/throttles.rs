//! The throttles of request types: put, removed, ended by time, kept over reloads and restarts.
//!
//! ```text
//! API, correlation ─► put, remove ─┐
//! tick ─► those whose time is over ┼─► publish: types compiled for the configuration in force ─► workers
//! reload, tuning ──────────────────┘
//! ```
//!
//! The core decides (`tidegate_core::throttle`). A throttle keeps its counters and its state as long as it
//! lives, whatever else changes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_core::policies::ActiveThrottle;
use tidegate_core::throttle::{
    PathType, Throttle, ThrottleAction, ThrottleCounts, ThrottleId, ThrottledType,
};
use tidegate_core::units::{Rate, Timestamp};

use crate::base::audit::{Audit, By, Entry};
use crate::config::Config;
use crate::shared::Shared;
use tidegate_settings::did_you_mean;
use tidegate_settings::tree::quoted;

/// Most throttles at a time: every request is compared with each.
pub const MAX_THROTTLES: usize = 64;
/// Who ends a throttle whose time is over.
const TIME: By<'static> = By { who: "gate", why: "its time is over" };

/// What becomes of the requests: one of three.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// This share of them is refused, from 0 to 1.
    Refuse(f64),
    /// So many requests per second pass.
    Rate(f64),
    /// The bodies of all their answers together get so many bytes per second.
    Bandwidth(u64),
}

impl Action {
    fn to_core(self) -> ThrottleAction {
        match self {
            Self::Refuse(share) => ThrottleAction::Refuse(share),
            Self::Rate(per_s) => ThrottleAction::Rate(per_s),
            Self::Bandwidth(bytes_per_s) => ThrottleAction::Bandwidth(bytes_per_s),
        }
    }

    fn of(throttle: &Throttle) -> Self {
        match throttle.action {
            ThrottleAction::Refuse(share) => Self::Refuse(share),
            ThrottleAction::Rate(per_s) => Self::Rate(per_s),
            ThrottleAction::Bandwidth(bytes_per_s) => Self::Bandwidth(bytes_per_s),
        }
    }

    /// What it must be; `None`: it is.
    fn mistake(self) -> Option<&'static str> {
        match self {
            Self::Refuse(share) if !(0.0..=1.0).contains(&share) => Some("a share from 0 to 1"),
            Self::Rate(per_s) if !(0.0..=Rate::MAX.get()).contains(&per_s) => {
                Some("requests per second from 0 to 1000000")
            }
            Self::Bandwidth(0) => Some("at least 1 byte per second"),
            _ => None,
        }
    }
}

/// A throttle to be put.
#[derive(Clone, PartialEq, Debug)]
pub struct NewThrottle {
    /// `class:NAME`, or `path:` with a template or a path.
    pub name: String,
    pub action: Action,
    /// How long it lasts; `None`: until it is removed.
    pub lasts: Option<Duration>,
}

/// Why a throttle is not put.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ThrottleError {
    #[error("{key}: expected {expected}; got {got}.{}", said(.hint))]
    Wrong { key: &'static str, expected: String, got: String, hint: Option<String> },
    #[error("there are {MAX_THROTTLES} throttles already; remove one first")]
    TooMany,
}

fn said(hint: &Option<String>) -> String {
    hint.as_ref().map_or_else(String::new, |hint| format!(" {hint}"))
}

/// A throttle in force.
#[derive(Clone, Debug)]
pub struct ThrottleState {
    pub id: ThrottleId,
    pub name: Arc<str>,
    pub action: Action,
    pub since: Timestamp,
    pub until: Option<Timestamp>,
    pub by: String,
    pub why: String,
    /// It counts, and holds nobody (`enforcement.shadow`).
    pub is_shadow: bool,
    pub counts: ThrottleCounts,
}

/// A throttle as it is kept over a restart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SavedThrottle {
    id: u32,
    #[serde(rename = "type")]
    name: String,
    action: Action,
    since_ms: u64,
    until_ms: Option<u64>,
    by: String,
    why: String,
}

struct Kept {
    throttle: Arc<Throttle>,
    since: Timestamp,
    until: Option<Timestamp>,
    by: String,
    why: String,
}

#[derive(Default)]
struct List {
    last_id: u32,
    /// In the order of their ids.
    kept: Vec<Kept>,
}

pub struct Throttles {
    shared: Arc<Shared>,
    audit: Arc<Audit>,
    /// Held during a change, until it is in the audit.
    changing: Mutex<()>,
    list: Mutex<List>,
}

impl Throttles {
    /// Puts in force what an earlier process has left.
    pub(crate) fn new(shared: Arc<Shared>, audit: Arc<Audit>, saved: &[SavedThrottle]) -> Self {
        let now = shared.clock.now();
        let list = List {
            last_id: saved.iter().map(|one| one.id).max().unwrap_or_default(),
            kept: saved.iter().filter_map(|one| Kept::restored(one, now)).take(MAX_THROTTLES).collect(),
        };
        for one in &list.kept {
            tracing::info!(of = %one.throttle.name, by = one.by, "throttled before the restart");
        }
        let this = Self { shared, audit, changing: Mutex::default(), list: Mutex::new(list) };
        this.follow_config();
        this
    }

    /// Puts a throttle in force instead of one of the same type. Waits for the audit's disk: not to be called
    /// on the control thread.
    ///
    /// # Errors
    /// The type or the action is wrong, or there are too many. Nothing has changed then.
    pub fn put(&self, wanted: &NewThrottle, by: By<'_>) -> Result<ThrottleId, ThrottleError> {
        let name: Arc<str> = type_of(&self.shared.config.load(), &wanted.name)?.0.into();
        if let Some(expected) = wanted.action.mistake() {
            let got = json!(wanted.action).to_string();
            return Err(ThrottleError::Wrong { key: "action", expected: expected.into(), got, hint: None });
        }
        let _others_wait = self.changing.lock();
        let now = self.shared.clock.now();
        let mut list = self.list.lock();
        let old = list.kept.iter().position(|one| one.throttle.name == name);
        if old.is_none() && list.kept.len() >= MAX_THROTTLES {
            return Err(ThrottleError::TooMany);
        }
        let old = old.map(|at| list.kept.remove(at));
        list.last_id = list.last_id.wrapping_add(1);
        let id = ThrottleId(list.last_id);
        let throttle = Throttle::new(id, name.clone(), wanted.action.to_core());
        let throttle = match &old {
            Some(old) => throttle.instead_of(&old.throttle),
            None => throttle,
        };
        list.kept.push(Kept {
            throttle: Arc::new(throttle),
            since: now,
            until: wanted.lasts.map(|lasts| now + lasts),
            by: by.who.into(),
            why: by.why.into(),
        });
        self.publish(&list);
        drop(list);
        let old = old.map_or(Value::Null, |old| json!(Action::of(&old.throttle)));
        tracing::info!(of = %name, action = %json!(wanted.action), who = by.who, "throttled");
        let entry = Entry { action: "throttle", key: Some(name.to_string()), old, new: json!(wanted.action) };
        self.audit.record(by, &[entry], now);
        Ok(id)
    }

    /// Ends a throttle; `false`: there is none of this number. Waits for the audit's disk.
    pub fn remove(&self, id: ThrottleId, by: By<'_>) -> bool {
        let _others_wait = self.changing.lock();
        let mut list = self.list.lock();
        let Some(at) = list.kept.iter().position(|one| one.throttle.id == id) else { return false };
        let gone = list.kept.remove(at);
        self.publish(&list);
        gone.throttle.end();
        drop(list);
        self.record_end(&[gone.throttle], by);
        true
    }

    /// Ends those whose time is over. The caller [records](Self::record_expiry) them where a disk may be
    /// waited for.
    pub(crate) fn tick(&self, now: Timestamp) -> Vec<Arc<Throttle>> {
        let mut list = self.list.lock();
        let is_over = |one: &Kept| one.until.is_some_and(|until| until <= now);
        if !list.kept.iter().any(is_over) {
            return Vec::new();
        }
        let (over, kept): (Vec<_>, _) = std::mem::take(&mut list.kept).into_iter().partition(is_over);
        list.kept = kept;
        self.publish(&list);
        over.iter().for_each(|one| one.throttle.end());
        over.into_iter().map(|one| one.throttle).collect()
    }

    pub(crate) fn record_expiry(&self, over: &[Arc<Throttle>]) {
        self.record_end(over, TIME);
    }

    fn record_end(&self, gone: &[Arc<Throttle>], by: By<'_>) {
        let entry = |throttle: &Arc<Throttle>| {
            tracing::info!(of = %throttle.name, who = by.who, why = by.why, "not throttled any more");
            let key = Some(throttle.name.to_string());
            Entry { action: "unthrottle", key, old: json!(Action::of(throttle)), new: Value::Null }
        };
        let entries: Vec<_> = gone.iter().map(entry).collect();
        self.audit.record(by, &entries, self.shared.clock.now());
    }

    /// Compiles the types anew: classes and service levels have ids of the configuration.
    pub(crate) fn follow_config(&self) {
        self.publish(&self.list.lock());
    }

    /// Called with the list locked, so that an older one is not published after a newer one.
    fn publish(&self, list: &List) {
        let config = self.shared.config.load();
        let exempt = config.settings.tier.iter().filter(|tier| tier.exempt);
        let exempt = exempt.filter_map(|tier| config.settings.tier_id(&tier.name));
        let spared = exempt.fold(0, |bits, tier| bits | 1 << tier.0);
        let active = |one: &Kept| ActiveThrottle {
            of: type_of(&config, &one.throttle.name).map_or(ThrottledType::Nothing, |(_, of)| of),
            spared,
            is_shadow: config.settings.enforcement.shadow,
            throttle: one.throttle.clone(),
        };
        self.shared.policies.publish_throttles(list.kept.iter().map(active).collect());
    }

    /// Those in force, in the order in which they were put.
    pub fn all(&self) -> Vec<ThrottleState> {
        let is_shadow = self.shared.config.load().settings.enforcement.shadow;
        let list = self.list.lock();
        let state = |one: &Kept| ThrottleState {
            id: one.throttle.id,
            name: one.throttle.name.clone(),
            action: Action::of(&one.throttle),
            since: one.since,
            until: one.until,
            by: one.by.clone(),
            why: one.why.clone(),
            is_shadow,
            counts: one.throttle.counts(),
        };
        list.kept.iter().map(state).collect()
    }

    pub(crate) fn to_save(&self) -> Vec<SavedThrottle> {
        self.list.lock().kept.iter().map(Kept::to_save).collect()
    }
}

impl Kept {
    fn restored(saved: &SavedThrottle, now: Timestamp) -> Option<Self> {
        let until = saved.until_ms.map(Timestamp::from_millis);
        let is_over = until.is_some_and(|until| until <= now);
        let action = saved.action;
        (!is_over && action.mistake().is_none()).then(|| Self {
            throttle: Arc::new(Throttle::new(
                ThrottleId(saved.id),
                saved.name.as_str().into(),
                action.to_core(),
            )),
            since: Timestamp::from_millis(saved.since_ms),
            until,
            by: saved.by.clone(),
            why: saved.why.clone(),
        })
    }

    fn to_save(&self) -> SavedThrottle {
        SavedThrottle {
            id: self.throttle.id.0,
            name: self.throttle.name.to_string(),
            action: Action::of(&self.throttle),
            since_ms: self.since.as_millis(),
            until_ms: self.until.map(Timestamp::as_millis),
            by: self.by.clone(),
            why: self.why.clone(),
        }
    }
}

/// The type that a text names, in the form in which it is shown.
fn type_of(config: &Config, text: &str) -> Result<(String, ThrottledType), ThrottleError> {
    let wrong = |expected: &str, hint: Option<String>| ThrottleError::Wrong {
        key: "type",
        expected: expected.into(),
        got: quoted(text),
        hint,
    };
    let names = || config.in_order().filter(|(_, facts)| !facts.is_gone).map(|(_, facts)| &*facts.name);
    match text.split_once(':') {
        Some(("class", name)) => match config.named(name) {
            Some(id) => Ok((text.to_owned(), ThrottledType::Class(id))),
            None => {
                let hint = did_you_mean(name, names());
                Err(wrong("a configured class after `class:`", hint))
            }
        },
        Some(("path", template)) => match PathType::canonical(template) {
            Some(template) => {
                let of = ThrottledType::Path(PathType::new(&template));
                Ok((format!("path:{template}"), of))
            }
            None => Err(wrong(
                "a path or its template after `path:`, like \"path:/item/{n}\"; what is folded is {n}, {uuid}, \
                 {hash}, {id}, {token} or {rest}",
                None,
            )),
        },
        _ if text == "other" => {
            let hint = Some("What has no type of its own has no path in common.".into());
            Err(wrong("\"class:NAME\" or \"path:TEMPLATE\"", hint))
        }
        _ => {
            let hint = match text.starts_with('/') {
                true => Some(format!("Write \"path:{text}\"?")),
                false => config.named(text).map(|_| format!("Write \"class:{text}\"?")),
            };
            Err(wrong("\"class:NAME\" or \"path:TEMPLATE\"", hint))
        }
    }
}
