//! The last refusals, by request id: why was this request refused?
//!
//! A ring of fixed records. Writing one takes the next entry (one atomic addition) and that entry's own lock,
//! which is contended only while the same entry is read or when the ring has gone round. A refusal allocates
//! nothing: its texts belong to the rule's record, which all refusals of a tick share.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use tidegate_core::measure::Event;
use tidegate_core::policies::TierId;
use tidegate_core::throttle::Throttle;
use tidegate_core::units::{ClassId, Timestamp};

use super::PolicyRecord;
use super::stats::Done;
use crate::config::Config;

/// Refusals kept: some 24 MB, allocated with the first.
pub const KEPT: usize = 100_000;

/// A text cut to at most `N` bytes, stored inline.
#[derive(Clone, Copy)]
struct Short<const N: usize> {
    bytes: [u8; N],
    len: u8,
}

impl<const N: usize> Short<N> {
    fn new(text: &str) -> Self {
        let len = text.floor_char_boundary(N);
        let mut bytes = [0; N];
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Self { bytes, len: len as u8 }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
pub enum Cause {
    Rule(Arc<PolicyRecord>, Done),
    /// A throttle of its request type.
    Throttle(Arc<Throttle>),
    /// The gate, the room or an ingress bucket.
    Gate(Event),
    /// The quota of its service level.
    Quota,
}

#[derive(Clone)]
pub struct Refusal {
    id: Short<64>,
    path: Short<96>,
    at: Timestamp,
    class: ClassId,
    tier: TierId,
    retry_after_s: u32,
    cause: Cause,
}

impl Refusal {
    /// The refusal of a request. The id is cut to 64 bytes, the path to 96.
    pub fn new(id: &str, path: &str, class: ClassId, tier: TierId, cause: Cause, at: Timestamp) -> Self {
        Self { id: Short::new(id), path: Short::new(path), at, class, tier, retry_after_s: 0, cause }
    }

    /// Sets the `Retry-After` that was sent.
    pub fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after_s: u32::try_from(seconds).unwrap_or(u32::MAX), ..self }
    }

    pub fn explain(&self, live: &Config) -> Explanation {
        let (by, rule, action, level, figures) = match &self.cause {
            Cause::Rule(record, done) => {
                ("rule", Some(&*record.rule), Some(done.name()), Some(&*record.level), Some(&*record.figures))
            }
            Cause::Throttle(_) => ("throttle", None, None, None, None),
            Cause::Gate(event) => (event.name(), None, None, None, None),
            Cause::Quota => ("quota", None, None, None, None),
        };
        let throttle = match &self.cause {
            Cause::Throttle(throttle) => {
                Some(ThrottleNamed { id: throttle.id.0, request_type: throttle.name.to_string() })
            }
            _ => None,
        };
        let tier = live.tiers.get(self.tier).map_or(tidegate_settings::DEFAULT, |tier| &tier.name);
        Explanation {
            id: self.id.as_str().to_owned(),
            at_ms: self.at.as_millis(),
            path: self.path.as_str().to_owned(),
            class: live.class(self.class).name.to_string(),
            tier: tier.to_owned(),
            by,
            rule: rule.map(str::to_owned),
            action,
            level: level.map(str::to_owned),
            figures: figures.map(str::to_owned),
            throttle,
            retry_after_s: self.retry_after_s,
        }
    }
}

/// Why a request was refused: the answer of `GET /v1/explain`.
#[derive(Serialize, JsonSchema)]
pub struct Explanation {
    /// The request's id, at most 64 bytes of it.
    id: String,
    /// When, in milliseconds since 1970.
    at_ms: u64,
    /// Its path, at most 96 bytes of it.
    path: String,
    class: String,
    /// Its service level.
    tier: String,
    /// `rule`, `throttle`, `quota`, or the name of the counter: `queue_full`, `ingress_shed`.
    by: &'static str,
    rule: Option<String>,
    /// What became of the request.
    action: Option<&'static str>,
    /// How congested what the rule goes by was.
    level: Option<String>,
    /// The figures that the rule went by.
    figures: Option<String>,
    /// The throttle that refused it.
    throttle: Option<ThrottleNamed>,
    /// The `Retry-After` sent, in seconds; 0: none.
    retry_after_s: u32,
}

#[derive(Serialize, JsonSchema)]
struct ThrottleNamed {
    id: u32,
    /// The type of requests that it is for.
    #[serde(rename = "type")]
    request_type: String,
}

#[derive(Default)]
pub struct Refusals {
    entries: OnceLock<Box<[Mutex<Option<Refusal>>]>>,
    next: AtomicU64,
}

impl Refusals {
    /// Keeps one instead of the oldest.
    pub fn keep(&self, refusal: Refusal) {
        let entries = self.entries.get_or_init(|| (0..KEPT).map(|_| Mutex::new(None)).collect());
        let at = self.next.fetch_add(1, Relaxed) % KEPT as u64;
        *entries[at as usize].lock() = Some(refusal);
    }

    /// The latest refusal of this request, if it is kept. Scans the whole ring: not for the control thread.
    pub fn find(&self, id: &str) -> Option<Refusal> {
        let entries = self.entries.get()?;
        let id = Short::<64>::new(id);
        let of_id = |entry: &Mutex<Option<Refusal>>| {
            let kept = entry.lock();
            kept.as_ref().filter(|refusal| refusal.id.as_str() == id.as_str()).cloned()
        };
        entries.iter().filter_map(of_id).max_by_key(|refusal| refusal.at)
    }

    pub fn count(&self) -> u64 {
        self.next.load(Relaxed)
    }
}
