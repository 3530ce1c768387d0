//! A request as handlers see it, and the state of the admin API.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use http::HeaderMap;
use http::header::HeaderName;
use serde_json::Value;
use tidegate_core::units::Timestamp;
use tokio::sync::Semaphore;

use super::access::Rank;
use super::listeners::Listeners;
use crate::base::audit::{By, Entry};
use crate::control::config_store::ConfigStore;
use crate::control::driver::Control;
use crate::shared::Shared;

/// Answers that read a disk at a time. The bound on connections does not bound them, since clients may leave
/// and ask again.
const MAX_SLOW: usize = 4;

pub(super) struct Api {
    pub control: Arc<Control>,
    pub listeners: Listeners,
    /// Changes are made one at a time; those behind wait without a thread.
    pub next_change: Arc<Semaphore>,
    pub slow: Arc<Semaphore>,
    /// When the API started: tells its ETags from those of other processes.
    pub started: Timestamp,
}

impl Api {
    pub fn new(control: Arc<Control>) -> Self {
        Self {
            listeners: Listeners::default(),
            next_change: Arc::new(Semaphore::new(1)),
            slow: Arc::new(Semaphore::new(MAX_SLOW)),
            started: control.shared().clock.now(),
            control,
        }
    }
}

pub(super) struct Call {
    pub api: Arc<Api>,
    /// The token's name and the peer's address.
    pub who: String,
    pub rank: Rank,
    /// The connection has reached its age: an answer without end is to end.
    pub aged: Arc<AtomicBool>,
    /// By the names in the route's template.
    pub path: Vec<(&'static str, String)>,
    /// Typed and within the bounds of the route's parameters.
    pub query: Vec<(&'static str, Value)>,
    pub headers: HeaderMap,
    /// As the route's schema has it; `Null` if it takes none.
    pub body: Value,
}

impl Call {
    pub fn control(&self) -> &Control {
        &self.api.control
    }

    pub fn shared(&self) -> &Shared {
        self.control().shared()
    }

    pub fn store(&self) -> &ConfigStore {
        self.control().store()
    }

    pub fn by(&self) -> By<'_> {
        By { who: &self.who, why: self.body["why"].as_str().unwrap_or_default() }
    }

    pub fn record(&self, entry: Entry, at: Timestamp) {
        self.store().audit().record(self.by(), &[entry], at);
    }

    pub fn path(&self, name: &str) -> &str {
        self.path.iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value)
    }

    pub fn query(&self, name: &str) -> Option<&Value> {
        self.query.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    /// A whole number of the query. `5.0` is an integer in JSON Schema too.
    pub fn query_integer(&self, name: &str) -> Option<u64> {
        self.query(name).and_then(Value::as_f64).map(|number| number as u64)
    }

    pub fn limit(&self, usual: usize, most: usize) -> usize {
        let limit = self.query_integer("limit");
        limit.map_or(usual, |limit| usize::try_from(limit).unwrap_or(most).clamp(1, most))
    }

    /// Whether a header was given that is not text.
    pub fn is_illegible(&self, name: &HeaderName) -> bool {
        self.headers.get_all(name).iter().any(|value| value.to_str().is_err())
    }

    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
