//! Performs what rules in force order (WAC 3.3): what the tick has published, and how a request and a connection learn of it.
//!
//! ```text
//! rules (tick) ─► publish ─► one word ─► accept:  closed or reset before it is read
//!                              │    └──► request: obey ─► pass | answer | page | lighter | close | reset | end | stop | room
//!                              └──► connections in service: end after the answer, or stop in the middle of it
//! ```
//!
//! **What it costs.** Nothing in force is one word that is 0: a request loads it once and goes on. Chunks of answers load
//! nothing at all: an order that cuts off what is already being sent wakes the connections' tasks, once, through the channel
//! that the shutdown uses, and each asks the order about the request it has in hand.

use std::cell::{OnceCell, RefCell};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use http::uri::PathAndQuery;
use tidegate_core::policies::{
    Action, ActivePolicy, Policy, PolicyDecision, PolicyRequest, PolicySet, Scope, TierId,
};
use tidegate_core::units::{ClassId, Cost, Timestamp};
use tokio::sync::watch;

use crate::http::socket;
use crate::shared::Drain;
use crate::upstream::tunnel::TunnelHandle;

pub mod refusals;
pub mod stats;

use refusals::Refusals;
use stats::{Ledger, RuleStats};

/// Longest texts of [`Told`], in bytes: one is kept for every rule and tick that refused something of the last
/// [`explain::KEPT`].
const MAX_FIGURES: usize = 256;

/// A rule as visitors and operators are told of it: what its figures were when its order was published.
#[derive(Debug)]
pub struct PolicyRecord {
    /// Its name.
    pub rule: Arc<str>,
    /// How congested what it goes by was: `red`.
    pub level: Box<str>,
    /// The figures it went by: `cpu=0.97, rate=412/s`.
    pub figures: Box<str>,
    /// What it did.
    pub stats: Arc<RuleStats>,
}

/// Orders in force, with whose they are.
#[derive(Debug, Default)]
pub struct PoliciesInForce {
    /// The orders.
    pub orders: PolicySet,
    /// By [`RuleId`](tidegate_core::orders::RuleId); `None`: not in force.
    told: Box<[Option<Arc<PolicyRecord>>]>,
}

impl PoliciesInForce {
    /// Whose order this is.
    pub fn told(&self, order: &ActivePolicy) -> Option<&Arc<PolicyRecord>> {
        self.told.get(usize::from(order.rule.0))?.as_ref()
    }

    /// The place after `order`, as [`Orders::decide`] takes it.
    pub(crate) fn after(&self, order: &ActivePolicy) -> usize {
        self.orders.iter().position(|one| std::ptr::eq(one, order)).map_or(usize::MAX, |at| at + 1)
    }
}

/// Requests in hand are remembered, so that orders can end them.
const WATCHED: u64 = 1;

/// What orders are in force, and what they did.
#[derive(Default)]
pub struct PublishedPolicies {
    /// [`WATCHED`], and above it which publication is in force; 0: none is.
    word: AtomicU64,
    standing: ArcSwap<PoliciesInForce>,
    /// Counts changes of what is cut off.
    cuts: AtomicU64,
    published: Mutex<Published>,
    /// What every rule did.
    pub ledger: Ledger,
    /// The last refusals.
    pub refusals: Refusals,
}

#[derive(Default)]
struct Published {
    number: u64,
    /// Orders that cut off what is being sent.
    cutting: Vec<(Scope, Action)>,
}

impl PublishedPolicies {
    /// What a rule is told as from now on, longer texts cut.
    pub fn told(&self, rule: &str, level: &str, figures: &str) -> Arc<PolicyRecord> {
        let stats = self.ledger.of(rule);
        Arc::new(PolicyRecord { rule: stats.name.clone(), level: cut(level), figures: cut(figures), stats })
    }

    /// Puts these orders in force instead of those before: on the tick. `told` is by rule id. Whoever must know of it (answers
    /// under way that an order ends) is woken through `wake`.
    pub fn publish(
        &self,
        orders: PolicySet,
        told: Vec<Option<Arc<PolicyRecord>>>,
        wake: &watch::Sender<Drain>,
    ) {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = orders.is_empty();
        let cuts = |order: &&ActivePolicy| !order.is_shadow && is_cut(order);
        let cutting: Vec<_> = orders.iter().filter(cuts).map(|o| (o.scope.clone(), o.action)).collect();
        published.number += 1;
        self.standing.store(Arc::new(PoliciesInForce { orders, told: told.into() }));
        let number = if is_empty { 0 } else { published.number << 1 };
        let watched = self.word.load(Ordering::Relaxed) & WATCHED;
        self.word.store(number | watched, Ordering::Release);
        if published.cutting != cutting {
            published.cutting = cutting;
            self.cuts.fetch_add(1, Ordering::Release);
            // The word behind has been stored: a request that has not seen it is in hand already, and is asked about.
            wake.send_modify(|_| ());
        }
    }

    /// Whether a rule of the configuration may end what is already being answered: only then are requests in hand remembered.
    pub fn watch(&self, requests: bool) {
        let _published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.word.load(Ordering::Relaxed) & !WATCHED;
        self.word.store(number | u64::from(requests), Ordering::Release);
    }

    /// What a request loads; 0: there is nothing to do.
    pub fn word(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// The orders in force.
    pub fn standing(&self) -> Arc<PoliciesInForce> {
        self.standing.load_full()
    }

    /// How often what is cut off has changed.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Acquire)
    }
}

/// Whether a request in hand is remembered, by [`Enforcement::word`].
pub(crate) fn is_watched(word: u64) -> bool {
    word & WATCHED != 0
}

/// Whether orders are in force, by [`Enforcement::word`].
pub(crate) fn is_in_force(word: u64) -> bool {
    word & !WATCHED != 0
}

/// Whether an order ends what it finds under way.
fn is_cut(order: &ActivePolicy) -> bool {
    matches!(order.policy, Policy::Refuse) && matches!(order.action, Action::End | Action::Stop)
}

fn cut(text: &str) -> Box<str> {
    let end = (0..=text.len().min(MAX_FIGURES)).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or_default()].into()
}

/// What a connection's task and its requests tell each other beside the wire.
pub struct ConnControl {
    fd: RawFd,
    request: RefCell<Option<RequestInProgress>>,
    /// The tunnel that a request may have made of it.
    line: OnceCell<Rc<TunnelHandle>>,
}

/// The request that a connection has in hand, as orders see it.
struct RequestInProgress {
    target: Option<PathAndQuery>,
    class: ClassId,
    tier: TierId,
    is_new_session: bool,
    is_plain: bool,
    /// Its answer is others' too.
    is_shared: bool,
}

impl ConnControl {
    /// Of the connection with this socket, which must stay open as long as this is used.
    pub fn new(fd: RawFd) -> Self {
        Self { fd, request: RefCell::new(None), line: OnceCell::new() }
    }

    /// The request that is being answered from now on.
    pub(crate) fn take(&self, asked: &PolicyRequest<'_>, target: Option<&PathAndQuery>) {
        let PolicyRequest { class, tier, is_new_session, is_plain, .. } = *asked;
        *self.request.borrow_mut() = Some(RequestInProgress {
            target: target.cloned(),
            class,
            tier,
            is_new_session,
            is_plain,
            is_shared: false,
        });
    }

    /// What it is given is an answer that others get too.
    pub(crate) fn share(&self) {
        if let Some(request) = &mut *self.request.borrow_mut() {
            request.is_shared = true;
        }
    }

    /// By which a tunnel is to be known that a request may make of the connection.
    pub(crate) fn line(&self) -> Rc<TunnelHandle> {
        self.line.get_or_init(Rc::default).clone()
    }

    /// The tunnel that the connection has become.
    pub(crate) fn tunnel(&self) -> Option<&TunnelHandle> {
        self.line.get().map(|line| &**line).filter(|line| line.is_open())
    }

    /// Has the visitor see a reset when the connection is closed: what the kernel has not sent yet is thrown away.
    pub(crate) fn reset(&self) {
        socket::reset_on_close(self.fd);
    }

    /// What orders say of the request in hand: of one that began before requests were remembered, only those that are for
    /// everybody.
    pub(crate) fn cut_by<'s>(
        &self,
        standing: &'s PoliciesInForce,
        now: Timestamp,
    ) -> Option<&'s ActivePolicy> {
        let request = self.request.borrow();
        let Some(request) = &*request else {
            let mut orders = standing.orders.iter().filter(|order| !order.is_shadow);
            return orders.next().filter(|order| is_cut(order) && order.scope.is_everything());
        };
        let asked = PolicyRequest {
            path: request.target.as_ref().map_or("/", PathAndQuery::path),
            class: request.class,
            // It has been let in once: rates are not charged again.
            cost: Cost::ZERO,
            tier: request.tier,
            is_new_session: request.is_new_session,
            is_plain: request.is_plain,
        };
        let mut from = 0;
        loop {
            from = match standing.orders.decide(&asked, from, now, &mut |_| ()) {
                PolicyDecision::Refuse { policy, .. } if is_cut(policy) => return Some(policy),
                // It would not be answered if the application had not agreed, nor alone if it could be shared.
                PolicyDecision::Ask { next, .. } => next,
                PolicyDecision::Multicast { policy, .. } if !request.is_shared => standing.after(policy),
                _ => return None,
            };
        }
    }
}

#[cfg(test)]
mod tests;
