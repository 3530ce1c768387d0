//! The policies in force (WAC 3.3): the tick publishes them; requests and connections read and obey them.
//!
//! ```text
//! rules (tick) ─► publish ─► one word ─► accept:  the connection is closed or reset before it is read
//!                              │    └──► request: pass, answer, page, lighter, close, reset, end, stop, room
//!                              └──► connections in service: end after the answer or in the middle of it
//! ```
//!
//! **Cost.** While no policy is in force the word is 0, and a request loads it once. Sending an answer loads
//! nothing: a policy that cuts off answers under way wakes the connections' tasks once, through the channel
//! that the shutdown uses, and each task checks the request that it is serving.

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_core::policies::{
    Action, ActivePolicy, ActiveThrottle, Policy, PolicyDecision, PolicyRequest, PolicySet, Scope, TierId,
};
use tidegate_core::units::{ClassId, Cost, Timestamp};
use tokio::sync::watch;

use crate::http::socket;
use crate::shared::Drain;
use crate::upstream::tunnel::TunnelHandle;

pub mod refusals;
pub mod stats;

use refusals::Refusals;
use stats::{Done, Ledger, RuleStats};

/// Longest texts of a [`PolicyRecord`], in bytes. One record is kept for every rule and tick that refused any
/// of the last [`refusals::KEPT`] requests.
const MAX_FIGURES: usize = 256;

/// A rule as it was when its policy was published.
#[derive(Debug)]
pub struct PolicyRecord {
    pub rule: Arc<str>,
    /// The worst level of the detectors in its condition: `red`.
    pub level: Box<str>,
    /// The figures it went by: `cpu=0.97, rate=412/s`.
    pub figures: Box<str>,
    pub stats: Arc<RuleStats>,
}

#[derive(Debug, Default)]
pub struct PoliciesInForce {
    /// In order of precedence.
    pub set: PolicySet,
    /// By [`RuleId`](tidegate_core::policies::RuleId); `None`: not in force.
    records: Box<[Option<Arc<PolicyRecord>>]>,
}

impl PoliciesInForce {
    pub fn record_of(&self, policy: &ActivePolicy) -> Option<&Arc<PolicyRecord>> {
        self.records.get(usize::from(policy.rule.0))?.as_ref()
    }

    /// Counts what the rule of `policy` did.
    pub(crate) fn count(&self, policy: &ActivePolicy, done: Done) {
        if let Some(record) = self.record_of(policy) {
            record.stats.count(done);
        }
    }

    /// The index after `policy`, where [`PolicySet::decide`] goes on.
    pub(crate) fn after(&self, policy: &ActivePolicy) -> usize {
        self.set.iter().position(|one| std::ptr::eq(one, policy)).map_or(usize::MAX, |at| at + 1)
    }
}

/// Connections remember the request they are serving, so that a policy can end it.
const WATCHED: u64 = 1;

/// The policies in force, and what they did.
#[derive(Default)]
pub struct PublishedPolicies {
    /// Bit 0 is [`WATCHED`]; the bits above number the publication in force, 0 if none is.
    word: AtomicU64,
    standing: ArcSwap<PoliciesInForce>,
    /// Counts changes of the policies that cut off answers under way.
    cuts: AtomicU64,
    published: Mutex<Published>,
    pub ledger: Ledger,
    pub refusals: Refusals,
}

#[derive(Default)]
struct Published {
    number: u64,
    throttles: Arc<[ActiveThrottle]>,
    /// Policies that cut off answers under way.
    cutting: Vec<(Scope, Action)>,
}

impl PublishedPolicies {
    /// Makes the record of a rule. Texts are cut to a bounded length.
    pub fn record(&self, rule: &str, level: &str, figures: &str) -> Arc<PolicyRecord> {
        let stats = self.ledger.of(rule);
        Arc::new(PolicyRecord { rule: stats.name.clone(), level: cut(level), figures: cut(figures), stats })
    }

    /// Replaces the policies of rules in force. `records` is by rule id. Connections whose answers a policy
    /// now ends are woken through `wake`.
    pub fn publish(
        &self,
        set: PolicySet,
        records: Vec<Option<Arc<PolicyRecord>>>,
        wake: &watch::Sender<Drain>,
    ) {
        let mut published = self.published.lock();
        let cuts = |policy: &&ActivePolicy| !policy.is_shadow && is_cut(policy);
        let cutting: Vec<_> = set.iter().filter(cuts).map(|p| (p.scope.clone(), p.action)).collect();
        let set = set.with_throttles(published.throttles.clone());
        self.store(&mut published, PoliciesInForce { set, records: records.into() });
        if published.cutting != cutting {
            published.cutting = cutting;
            self.cuts.fetch_add(1, Ordering::Release);
            // The word is stored already: a request that has not seen it is remembered by its connection,
            // which checks it.
            wake.send_modify(|_| ());
        }
    }

    /// Replaces the throttles in force.
    pub fn publish_throttles(&self, throttles: Arc<[ActiveThrottle]>) {
        let mut published = self.published.lock();
        published.throttles.clone_from(&throttles);
        let PoliciesInForce { set, records } = &*self.standing();
        let set = set.clone().with_throttles(throttles);
        self.store(&mut published, PoliciesInForce { set, records: records.clone() });
    }

    fn store(&self, published: &mut Published, standing: PoliciesInForce) {
        let is_empty = standing.set.is_empty();
        published.number += 1;
        self.standing.store(Arc::new(standing));
        let number = if is_empty { 0 } else { published.number << 1 };
        let watched = self.word.load(Ordering::Relaxed) & WATCHED;
        self.word.store(number | watched, Ordering::Release);
    }

    /// Sets whether any rule of the configuration may end an answer under way. Only then do connections
    /// remember requests.
    pub fn watch(&self, requests: bool) {
        let _published = self.published.lock();
        let number = self.word.load(Ordering::Relaxed) & !WATCHED;
        self.word.store(number | u64::from(requests), Ordering::Release);
    }

    /// The version that a request loads; 0: no policy is in force and requests are not remembered.
    pub fn word(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    pub fn standing(&self) -> Arc<PoliciesInForce> {
        self.standing.load_full()
    }

    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Acquire)
    }
}

/// Whether connections remember their request, by [`PublishedPolicies::word`].
pub(crate) fn is_watched(word: u64) -> bool {
    word & WATCHED != 0
}

/// Whether any policy is in force, by [`PublishedPolicies::word`].
pub(crate) fn is_in_force(word: u64) -> bool {
    word & !WATCHED != 0
}

fn is_cut(policy: &ActivePolicy) -> bool {
    matches!(policy.policy, Policy::Refuse) && matches!(policy.action, Action::End | Action::Stop)
}

fn cut(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(MAX_FIGURES)].into()
}

/// State shared by a connection's task and its requests.
pub struct ConnControl {
    /// `None`: of one stream of several in a connection.
    fd: Option<RawFd>,
    request: RefCell<Option<RequestInProgress>>,
    tunnel: OnceCell<Rc<TunnelHandle>>,
    /// What a policy has ordered for the answer under way.
    ordered: Cell<Option<Action>>,
}

/// The request that a connection is serving, as policies see it.
struct RequestInProgress {
    path: String,
    query: String,
    class: ClassId,
    tier: TierId,
    visitor: u64,
    is_new_session: bool,
    is_plain: bool,
    /// Its answer is shared with other requests.
    is_shared: bool,
}

impl ConnControl {
    /// For the connection with this socket, which must stay open as long as this is used.
    pub fn new(fd: RawFd) -> Self {
        Self { fd: Some(fd), ..Self::of_stream() }
    }

    /// For a stream, whose connection belongs to other streams too: neither reset nor paced for it.
    pub fn of_stream() -> Self {
        Self { fd: None, request: RefCell::default(), tunnel: OnceCell::new(), ordered: Cell::default() }
    }

    pub(crate) fn take(&self, asked: &PolicyRequest<'_>) {
        let PolicyRequest { class, tier, visitor, is_new_session, is_plain, .. } = *asked;
        let mut request = self.request.borrow_mut();
        // The memory of the request before.
        let before = request.take().map(|before| (before.path, before.query));
        let (mut path, mut query) = before.unwrap_or_default();
        asked.path.clone_into(&mut path);
        asked.query.clone_into(&mut query);
        *request = Some(RequestInProgress {
            path,
            query,
            class,
            tier,
            visitor,
            is_new_session,
            is_plain,
            is_shared: false,
        });
    }

    pub(crate) fn share(&self) {
        if let Some(request) = &mut *self.request.borrow_mut() {
            request.is_shared = true;
        }
    }

    /// The handle of the tunnel that a request may turn the connection into.
    pub(crate) fn line(&self) -> Rc<TunnelHandle> {
        self.tunnel.get_or_init(Rc::default).clone()
    }

    pub(crate) fn tunnel(&self) -> Option<&TunnelHandle> {
        self.tunnel.get().map(|line| &**line).filter(|line| line.is_open())
    }

    /// Makes the visitor see a reset when the connection is closed. Unsent bytes are discarded.
    pub(crate) fn reset(&self) {
        if let Some(fd) = self.fd {
            socket::reset_on_close(fd);
        }
    }

    /// Lets the kernel send no faster than this, in bytes per second; `None`: as fast as it can. Only within
    /// the connection's own task.
    pub(crate) fn pace(&self, bytes_per_s: Option<u64>) {
        if let Some(fd) = self.fd {
            socket::pace(fd, bytes_per_s);
        }
    }

    /// Notes that a policy ends or stops the answer under way. Returns whether it is the first of this
    /// action: policies may be published again before the answer has ended, and it is counted once.
    pub(crate) fn note_order(&self, action: Action) -> bool {
        self.ordered.replace(Some(action)) != Some(action)
    }

    /// The policy that ends the request being served, if one does. For a request that began before requests
    /// were remembered, only a policy for everybody can.
    pub(crate) fn cut_by<'s>(
        &self,
        standing: &'s PoliciesInForce,
        now: Timestamp,
    ) -> Option<&'s ActivePolicy> {
        let request = self.request.borrow();
        let Some(request) = &*request else {
            let mut policies = standing.set.iter().filter(|policy| !policy.is_shadow);
            return policies.next().filter(|policy| is_cut(policy) && policy.scope.is_everything());
        };
        let asked = PolicyRequest {
            path: &request.path,
            query: &request.query,
            class: request.class,
            // It was admitted already: rates are not charged again.
            cost: Cost::ZERO,
            tier: request.tier,
            visitor: request.visitor,
            is_new_session: request.is_new_session,
            is_plain: request.is_plain,
        };
        let mut from = 0;
        loop {
            from = match standing.set.decide(&asked, from, now, &mut |_| ()) {
                PolicyDecision::Refuse { policy, .. } if is_cut(policy) => return Some(policy),
                // It is under way, so the application has agreed; and if it is not shared, it could not be.
                PolicyDecision::Ask { next, .. } => next,
                PolicyDecision::Multicast { policy, .. } if !request.is_shared => standing.after(policy),
                _ => return None,
            };
        }
    }
}

#[cfg(test)]
mod tests;
