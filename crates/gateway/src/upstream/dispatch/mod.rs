//! One [`Dispatcher`] per worker sends requests to replicas and repeats those that are safe to repeat.
//!
//! ```text
//! pick replica ─► pooled or fresh connection ─► exchange ─► check head ─► stream body ─► back to pool
//!      ▲                    │ failed                │ lost        │ bad                     101: tunnel
//!      └─ another replica ◄─┴───────────────────────┘             └─► 502
//! ```
//!
//! What is repeated, and why it is safe:
//!
//! | what happened | repeated | counts as retry |
//! | --- | --- | --- |
//! | no connection (refused, timed out) | on another replica, any method: nothing was sent | yes |
//! | a pooled connection was dead, nothing was sent | on a fresh connection, any method | no |
//! | a pooled connection was lost, no first byte | on a fresh connection, if idempotent (RFC 9110) | no |
//! | a fresh connection was lost before the first byte | on another replica, if idempotent | yes |
//! | no first byte in time | never: the origin may still be working, a second copy adds load to overload | |
//! | the response has begun | never | |
//!
//! "Nothing was sent": the socket refused the first byte. A body can be repeated that is known beforehand, or
//! of which all that was sent is still here: nothing, or a small beginning that went along with the head. A
//! retry happens once per request and within the budget ([`budget`]). Methods that are not idempotent only
//! use pooled connections that were idle for less than [`FRESH_ENOUGH`], where the race against the origin's
//! keep-alive timer is practically excluded.
//!
//! The task of the request drives the origin's socket: no task belongs to a connection, and nothing is passed
//! from one to another. While nobody asks for more of a body, nothing is read.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tidegate_http::{Asked, RequestHead, ResponseHead, Stage, name};
use tidegate_settings::OriginProtocol;
use tokio::time::Instant;

use crate::http::proxy_header::Named;
use crate::http::visitor_link::VisitorUpgrade;
use crate::upstream::balance::{InFlight, Replica, Replicas};
use crate::upstream::body::RequestBody;
use crate::upstream::deadline::Limit;
use crate::upstream::http2::Multiplexed;
use crate::upstream::pool::{Conn, Pool};
use crate::upstream::socket::SMALL;
use crate::upstream::stats::bump;
use crate::upstream::tunnel::{self, Tunnels};

pub use self::error::{BodyError, DispatchError, OriginError};
pub use self::response::{SpliceError, UpstreamBody};
pub use crate::upstream::stats::Stats;

use self::budget::Budget;
use self::exchange::{Exchange, Failure, Received, exchange};
use self::response::Lease;
use self::sending::Sending;

pub mod budget;
mod error;
mod exchange;
mod multiplexed;
mod response;
mod sending;

/// A pooled connection idle for less than this is used for methods that must not be repeated: the shortest
/// keep-alive time of usual servers is 2 s (Node 5 s, Apache 5 s, gunicorn 2 s).
pub const FRESH_ENOUGH: Duration = Duration::from_secs(1);

/// Called with each 1xx response but 101. 100 only comes when the visitor expects it.
pub type OnInformational = Rc<dyn Fn(StatusCode, &HeaderMap)>;

#[derive(Default)]
pub struct SendContext {
    /// The visitor sent `Expect: 100-continue`: the body is not polled until the origin sends 100 or a second
    /// has passed, and never if a final response comes first.
    pub expect_continue: bool,
    /// Relays 1xx responses. `None` for visitors with HTTP/1.0.
    pub on_informational: Option<OnInformational>,
    /// The visitor's side of a tunnel, if the request carries `Upgrade` and may switch protocols.
    pub upgrade: Option<VisitorUpgrade>,
    /// The handle by which the visitor's connection controls the tunnel, should one be opened.
    pub tunnel: Option<Rc<tunnel::TunnelHandle>>,
    /// The visitor, for origins that want a PROXY header. `None`: a request of the gate's own.
    pub visitor: Option<Named>,
}

/// Sends requests to the origin. Cheap to clone; belongs to one worker thread and must be used inside a
/// `LocalRuntime` or `LocalSet`.
#[derive(Clone)]
pub struct Dispatcher(Rc<Inner>);

struct Inner {
    replicas: Arc<Replicas>,
    pool: Rc<Pool>,
    http2: Multiplexed,
    protocol: Cell<OriginProtocol>,
    /// Whether the origin has chosen HTTP/2, where it is asked.
    chosen: Cell<Option<bool>>,
    tunnels: Tunnels,
    budget: Budget,
    stats: Arc<Stats>,
    /// How long to wait for a replica that works on less than it may.
    seat_patience: Cell<Duration>,
    first_byte_ticks: Cell<u64>,
    read_ticks: Cell<u64>,
    fresh_ticks: u64,
    random: Cell<u64>,
}

/// Where a request was tried before.
#[derive(Default)]
struct Tried {
    /// The replica that failed it.
    avoid: Option<u64>,
    /// The replica whose pooled connection was dead: the next attempt goes there, on a fresh connection.
    again: Option<Arc<Replica>>,
    retried: bool,
}

/// A request, over all attempts.
struct Message {
    ctx: SendContext,
    /// `None`: the body of the response goes on with it.
    sending: Option<Sending>,
    asked: Asked,
    is_idempotent: bool,
}

impl Dispatcher {
    /// A dispatcher with its own connections. All workers share `replicas`.
    pub fn new(replicas: Arc<Replicas>, origin: &tidegate_settings::Origin) -> Self {
        let stats = Arc::new(Stats::default());
        let pool = Pool::new(origin, stats.clone());
        // Without entropy every worker draws the same numbers: the balance is worse, nothing else.
        let seed = getrandom::u64().unwrap_or(0);
        let inner = Inner {
            replicas,
            http2: Multiplexed::new(origin, stats.clone()),
            protocol: Cell::default(),
            chosen: Cell::default(),
            tunnels: Tunnels::new(stats.clone()),
            budget: Budget::new(origin.retry_budget, Instant::now()),
            stats,
            seat_patience: Cell::default(),
            first_byte_ticks: Cell::default(),
            read_ticks: Cell::default(),
            fresh_ticks: pool.ticks.cover(FRESH_ENOUGH).saturating_sub(1),
            random: Cell::new(seed),
            pool,
        };
        let this = Self(Rc::new(inner));
        this.reconfigure(origin);
        this
    }

    /// Applies other limits to requests from now on; [`Replicas::reconfigure`] changes the list of replicas.
    /// The length of a tick stays that of the first configuration: much shorter limits are exact to two of
    /// the old ticks (200 ms at most).
    pub fn reconfigure(&self, origin: &tidegate_settings::Origin) {
        let inner = &self.0;
        inner.pool.reconfigure(origin);
        inner.http2.reconfigure(origin);
        inner.protocol.set(origin.protocol);
        inner.chosen.set(None);
        inner.budget.set_share(origin.retry_budget);
        inner.seat_patience.set(origin.connect_timeout);
        inner.first_byte_ticks.set(inner.pool.ticks.cover(origin.first_byte_timeout));
        inner.read_ticks.set(inner.pool.ticks.cover(origin.read_timeout));
    }

    pub fn stats(&self) -> Arc<Stats> {
        self.0.stats.clone()
    }

    pub fn idle_connections(&self) -> usize {
        self.0.pool.idle() + self.0.http2.open()
    }

    pub fn close_tunnels(&self) {
        self.0.tunnels.close();
    }

    /// Sends a request to a replica and returns the head of its response; the body follows as it comes.
    ///
    /// The head must be ready for the origin: `Host`, no hop-by-hop fields; `Upgrade` stays if `ctx.upgrade`
    /// is given. Framing, `Expect` and `Connection: upgrade` are set here. Of the response,
    /// `Transfer-Encoding` is removed; other hop-by-hop fields are left to the caller. On 101 the two
    /// connections are joined in the background once the caller has returned the response to the visitor. A
    /// WebSocket at an HTTP/2 origin is one of its streams; the caller gets a 101 all the same.
    ///
    /// Dropping the future or the body ends the exchange with the origin.
    pub async fn send(
        &self,
        head: RequestHead,
        body: RequestBody,
        ctx: SendContext,
    ) -> Result<(ResponseHead, UpstreamBody), DispatchError> {
        let inner = &*self.0;
        bump(&inner.stats.requests);
        inner.budget.deposit();
        if inner.speaks_http2().await {
            // On the heap, as all that is seldom: requests by HTTP/1.1 should not carry its state along.
            return Box::pin(inner.attempts_by_http2(&head, body, ctx)).await;
        }
        let asked = Asked { head: *head.method() == Method::HEAD, upgrade: ctx.upgrade.is_some() };
        let is_idempotent = head.method().is_idempotent();
        let sending = Sending::new(head, body, ctx.expect_continue, asked.upgrade);
        inner.attempts(Message { ctx, sending: Some(sending), asked, is_idempotent }).await
    }
}

impl Inner {
    async fn attempts(&self, mut message: Message) -> Result<(ResponseHead, UpstreamBody), DispatchError> {
        let mut tried = Tried::default();
        loop {
            let Some(flight) = self.place(&mut tried).await else {
                return Err(self.lost(DispatchError::NoReplica));
            };
            let max_idle_ticks = match (tried.again.take(), message.is_idempotent) {
                (Some(_), _) => None,
                (None, true) => Some(u64::MAX),
                (None, false) => Some(self.fresh_ticks),
            };
            let mut conn = match self.connection(flight.replica(), max_idle_ticks, message.ctx.visitor).await
            {
                Ok(conn) => conn,
                Err(error) => match self.give_up(error, &flight, &mut tried, true) {
                    Some(error) => return Err(error),
                    None => continue,
                },
            };
            let Some(sending) = &mut message.sending else { unreachable!("only an answer takes it") };
            let way = Exchange {
                pool: &self.pool,
                ctx: &message.ctx,
                asked: message.asked,
                first_byte_ticks: self.first_byte_ticks.get(),
            };
            let failure = match exchange(&mut conn, sending, way).await {
                Ok(received) => return self.answered(received, conn, flight, &mut message),
                Err(failure) => failure,
            };
            let is_repeatable = match failure {
                Failure::Unsent => sending.rewind(),
                Failure::Lost(_) => message.is_idempotent && sending.rewind(),
                Failure::Bad(_) | Failure::Body(_) | Failure::Timeout => false,
            };
            if is_repeatable && conn.reused {
                bump(&self.stats.stale_connection);
                tried.again = Some(flight.replica().clone());
                continue;
            }
            let error = match failure {
                Failure::Unsent => DispatchError::ConnectFailed(io::ErrorKind::ConnectionReset.into()),
                Failure::Lost(error) => DispatchError::Reset(error),
                Failure::Bad(bad) => DispatchError::BadResponse(bad.into()),
                Failure::Body(error) => DispatchError::RequestBody(error),
                Failure::Timeout => DispatchError::FirstByteTimeout,
            };
            if let Some(error) = self.give_up(error, &flight, &mut tried, is_repeatable) {
                return Err(error);
            }
        }
    }

    /// The replica for the next attempt, with the request counted there.
    async fn place(&self, tried: &mut Tried) -> Option<InFlight> {
        let again = tried.again.as_ref().filter(|same| !same.is_retired());
        if let Some(flight) = again.and_then(InFlight::take_slot) {
            return Some(flight);
        }
        let patience = self.seat_patience.get();
        self.replicas.enter(|| self.random(), tried.avoid, patience).await
    }

    /// A pooled connection that was idle for at most so many ticks, or a fresh one.
    async fn connection(
        &self,
        replica: &Arc<Replica>,
        max_idle_ticks: Option<u64>,
        visitor: Option<Named>,
    ) -> Result<Conn, DispatchError> {
        // Where connections are one visitor's, none is pooled but of an earlier configuration.
        let max_idle_ticks = max_idle_ticks.filter(|_| replica.header().is_none());
        if let Some(conn) = max_idle_ticks.and_then(|ticks| self.pool.checkout(replica, ticks)) {
            return Ok(conn);
        }
        // On the heap: seldom, and more than all else that a request keeps.
        Ok(Box::pin(self.pool.connect(replica, visitor)).await?)
    }

    /// Counts a failure. `None`: another attempt is to be made; else the error to return.
    fn give_up(
        &self,
        error: DispatchError,
        flight: &InFlight,
        tried: &mut Tried,
        repeatable: bool,
    ) -> Option<DispatchError> {
        let error = self.lost(error);
        let replica = flight.replica();
        let miss = error.miss();
        if let Some(miss) = miss.filter(|miss| miss.speaks_against_replica()) {
            self.replicas.failed(replica, miss);
        }
        if !miss.is_some_and(|miss| miss.may_be_repeated(repeatable, tried.retried)) {
            return Some(error);
        }
        if !self.budget.withdraw(Instant::now()) {
            bump(&self.stats.retry_budget_empty);
            return Some(error);
        }
        bump(&self.stats.retries);
        *tried = Tried { avoid: Some(replica.id()), again: None, retried: true };
        None
    }

    fn lost(&self, error: DispatchError) -> DispatchError {
        bump(error.counter(&self.stats));
        error
    }

    fn answered(
        &self,
        received: Received,
        conn: Conn,
        flight: InFlight,
        message: &mut Message,
    ) -> Result<(ResponseHead, UpstreamBody), DispatchError> {
        self.replicas.succeeded(flight.replica());
        let Received { mut head, facts, rest } = received;
        let sending = message.sending.take().filter(|sending| !sending.is_over());
        if facts.stage == Stage::Switched
            && let Some(visitor) = message.ctx.upgrade.take()
        {
            if sending.is_some() {
                let early = "101 before the end of the request".into();
                return Err(self.lost(DispatchError::BadResponse(early)));
            }
            head.fields.set(name::CONNECTION, b"upgrade");
            let idle = Limit { slot: conn.slot, ticks: self.read_ticks.get() };
            let handle = message.ctx.tunnel.take().unwrap_or_default();
            // A copy: part of the thread's memory must not be kept as long as a tunnel.
            let received = Bytes::copy_from_slice(&rest);
            SMALL.give_back(rest);
            let ends = tunnel::Ends { visitor, origin: Box::new(conn.socket), received };
            self.tunnels.open(ends, idle, flight, handle);
            return Ok((head, UpstreamBody::detached()));
        }
        let (pool, stats) = (self.pool.clone(), self.stats.clone());
        let lease = Lease { pool, stats, conn, flight, sending };
        Ok((head, UpstreamBody::new(&facts, rest, lease, self.read_ticks.get())))
    }

    /// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): two multiplications for 64 good bits.
    fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
