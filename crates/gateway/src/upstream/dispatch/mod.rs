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
//! A body that has begun to flow cannot be repeated, one known beforehand can. A retry happens once per
//! request and within the budget ([`budget`]). Methods that are not idempotent only use pooled connections
//! that were idle for less than [`FRESH_ENOUGH`], where the race against the origin's keep-alive timer is
//! practically excluded.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use tokio::time::Instant;

use crate::http::visitor_link::VisitorUpgrade;
use crate::upstream::balance::{InFlight, Miss, Replica, Replicas};
use crate::upstream::body::{BoxError, Held, RequestBody};
use crate::upstream::deadline::Limit;
use crate::upstream::pool::{Conn, ConnectError, Pool};
use crate::upstream::stats::bump;
use crate::upstream::target::OpenError;
use crate::upstream::tunnel::{self, Tunnels};

pub use self::response::{BodyError, UpstreamBody};
pub use crate::upstream::stats::Stats;

use self::budget::Budget;
use self::exchange::{Exchange, Failure, exchange};
use self::head::{Asked, Spare};
use self::response::Lease;

pub mod budget;
mod exchange;
mod head;
mod response;

/// A pooled connection idle for less than this is used for methods that must not be repeated: the shortest
/// keep-alive time of usual servers is 2 s (Node 5 s, Apache 5 s, gunicorn 2 s).
pub const FRESH_ENOUGH: Duration = Duration::from_secs(1);

/// Buffers of kept heads that are recycled; more are freed.
const MAX_SPARES: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    /// Every replica is down by the active checks, or none is configured.
    #[error("no replica is up")]
    NoReplica,
    /// The replica refused the connection, is unreachable, or its name has no address.
    #[error("cannot connect: {0}")]
    ConnectFailed(#[source] io::Error),
    /// No connection within `origin.connect_timeout`.
    #[error("no connection within the time limit")]
    ConnectTimeout,
    /// No response within `origin.first_byte_timeout` after the end of the request.
    #[error("no response within the time limit")]
    FirstByteTimeout,
    #[error("the connection was lost before the response: {0}")]
    Reset(#[source] hyper::Error),
    /// The origin sent something that may not be passed on.
    #[error("invalid response: {0}")]
    BadResponse(#[source] BoxError),
    /// The visitor's side of the request body failed: hyper's error of the visitor's connection, within which
    /// [`crate::http::wire::is_bad_body`] finds the wire's verdict.
    #[error("the request body failed: {0}")]
    RequestBody(#[source] BoxError),
}

impl DispatchError {
    /// How the attempt ended; `None`: there was no replica to make one at.
    pub(crate) fn miss(&self) -> Option<Miss> {
        Some(match self {
            Self::NoReplica => return None,
            Self::ConnectFailed(e) if e.kind() == io::ErrorKind::ConnectionRefused => Miss::Refused,
            Self::ConnectFailed(_) | Self::ConnectTimeout => Miss::NoConnection,
            Self::Reset(_) => Miss::Lost,
            Self::FirstByteTimeout => Miss::Silent,
            Self::BadResponse(_) => Miss::Bad,
            Self::RequestBody(_) => Miss::Body,
        })
    }

    fn counter<'s>(&self, stats: &'s Stats) -> &'s AtomicU64 {
        match self {
            Self::NoReplica => &stats.no_replica,
            Self::ConnectFailed(_) => &stats.connect_failed,
            Self::ConnectTimeout => &stats.connect_timeout,
            Self::FirstByteTimeout => &stats.first_byte_timeout,
            Self::Reset(_) => &stats.reset,
            Self::BadResponse(_) => &stats.bad_response,
            Self::RequestBody(_) => &stats.request_body,
        }
    }
}

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
}

/// Sends requests to the origin. Cheap to clone; belongs to one worker thread and must be used inside a
/// `LocalRuntime` or `LocalSet`.
#[derive(Clone)]
pub struct Dispatcher(Rc<Inner>);

struct Inner {
    replicas: Arc<Replicas>,
    pool: Rc<Pool>,
    tunnels: Tunnels,
    budget: Budget,
    stats: Arc<Stats>,
    /// How long to wait for a replica that works on less than it may.
    seat_patience: Cell<Duration>,
    first_byte_ticks: Cell<u64>,
    read_ticks: Cell<u64>,
    fresh_ticks: u64,
    random: Cell<u64>,
    spares: RefCell<Vec<Spare>>,
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

struct Message<'a> {
    ctx: &'a mut SendContext,
    /// Its body, if it streams.
    held: Option<Rc<Held>>,
    /// Its body, if it is known beforehand.
    known: Option<RequestBody>,
    /// Its head, if its method is idempotent.
    spare: Option<&'a Spare>,
    asked: Asked,
}

impl Message<'_> {
    /// The request once more; `None`: sending it twice might do harm, or its body has begun to flow.
    fn again(&self) -> Option<Request<RequestBody>> {
        let body = match &self.held {
            Some(held) => (!held.has_begun()).then(|| RequestBody::held(held.clone())),
            None => self.known.as_ref().and_then(RequestBody::again),
        };
        Some(self.spare?.rebuild(body?))
    }
}

/// Keeps a body that streams on this side.
fn hold(req: &mut Request<RequestBody>, ctx: &SendContext) -> Option<Rc<Held>> {
    let waits = ctx.expect_continue && !req.body().is_end_stream();
    if req.body().again().is_some() && !waits {
        return None;
    }
    let held = Held::new(std::mem::replace(req.body_mut(), RequestBody::empty()));
    if !waits {
        held.open();
    }
    *req.body_mut() = RequestBody::held(held.clone());
    Some(held)
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
            tunnels: Tunnels::new(stats.clone()),
            budget: Budget::new(origin.retry_budget, Instant::now()),
            stats,
            seat_patience: Cell::default(),
            first_byte_ticks: Cell::default(),
            read_ticks: Cell::default(),
            fresh_ticks: pool.ticks.cover(FRESH_ENOUGH).saturating_sub(1),
            random: Cell::new(seed),
            spares: RefCell::default(),
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
        inner.budget.set_share(origin.retry_budget);
        inner.seat_patience.set(origin.connect_timeout);
        inner.first_byte_ticks.set(inner.pool.ticks.cover(origin.first_byte_timeout));
        inner.read_ticks.set(inner.pool.ticks.cover(origin.read_timeout));
    }

    pub fn stats(&self) -> Arc<Stats> {
        self.0.stats.clone()
    }

    pub fn idle_connections(&self) -> usize {
        self.0.pool.idle()
    }

    pub fn close_tunnels(&self) {
        self.0.tunnels.close();
    }

    /// Sends `req` to a replica and returns the head of its response; the body follows as it comes.
    ///
    /// The head must be ready for the origin: origin-form target, `Host`, no hop-by-hop fields; `Upgrade`
    /// stays if `ctx.upgrade` is given. Framing, `Expect` and `Connection: upgrade` are set here. Of the
    /// response, `Transfer-Encoding` is removed; other hop-by-hop fields are left to the caller. On 101 the
    /// two connections are joined in the background once the caller has returned the response to the visitor.
    ///
    /// Dropping the future or the body ends the exchange with the origin.
    pub async fn send(
        &self,
        mut req: Request<RequestBody>,
        mut ctx: SendContext,
    ) -> Result<Response<UpstreamBody>, DispatchError> {
        let inner = &*self.0;
        bump(&inner.stats.requests);
        inner.budget.deposit();
        head::prepare(&mut req, &ctx);
        let held = hold(&mut req, &ctx);
        let spare = req.method().is_idempotent().then(|| {
            let mut spare = inner.spares.borrow_mut().pop().unwrap_or_default();
            spare.keep(&req);
            spare
        });
        let (asked, known) = (Asked::of(&req, &ctx), req.body().again());
        let message = Message { ctx: &mut ctx, held, known, spare: spare.as_ref(), asked };
        let result = inner.attempts(req, message).await;
        if let Some(mut spare) = spare {
            spare.clear();
            let mut spares = inner.spares.borrow_mut();
            if spares.len() < MAX_SPARES {
                spares.push(spare);
            }
        }
        result
    }
}

impl Inner {
    async fn attempts(
        &self,
        req: Request<RequestBody>,
        mut message: Message<'_>,
    ) -> Result<Response<UpstreamBody>, DispatchError> {
        let mut tried = Tried::default();
        let mut next = Some(req);
        loop {
            let Some(flight) = self.place(&mut tried).await else {
                return Err(self.lost(DispatchError::NoReplica));
            };
            let max_idle_ticks = match (tried.again.take(), message.spare) {
                (Some(_), _) => None,
                (None, Some(_)) => Some(u64::MAX),
                (None, None) => Some(self.fresh_ticks),
            };
            let mut conn = match self.connection(flight.replica(), max_idle_ticks).await {
                Ok(conn) => conn,
                Err(error) => match self.give_up(error, &flight, &mut tried, next.is_some()) {
                    Some(error) => return Err(error),
                    None => continue,
                },
            };
            let Some(req) = next.take() else { unreachable!("each way round the loop leaves a request") };
            let way = Exchange {
                pool: &self.pool,
                ctx: message.ctx,
                held: message.held.as_ref(),
                first_byte_ticks: self.first_byte_ticks.get(),
            };
            let failure = match exchange(&mut conn, req, way).await {
                Ok(response) => return self.answered(response, conn, flight, &mut message),
                Err(failure) => failure,
            };
            let error = match failure {
                Failure::Unsent(req) => {
                    next = Some(*req);
                    if conn.reused {
                        bump(&self.stats.stale_connection);
                        tried.again = Some(flight.replica().clone());
                        continue;
                    }
                    DispatchError::ConnectFailed(io::ErrorKind::ConnectionReset.into())
                }
                Failure::Lost(e) => {
                    next = message.again();
                    if conn.reused && next.is_some() {
                        bump(&self.stats.stale_connection);
                        tried.again = Some(flight.replica().clone());
                        continue;
                    }
                    DispatchError::Reset(e)
                }
                Failure::Bad(e) => DispatchError::BadResponse(e.into()),
                Failure::Body(e) => DispatchError::RequestBody(e),
                Failure::Timeout => DispatchError::FirstByteTimeout,
            };
            if let Some(error) = self.give_up(error, &flight, &mut tried, next.is_some()) {
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
    ) -> Result<Conn, DispatchError> {
        if let Some(conn) = max_idle_ticks.and_then(|ticks| self.pool.checkout(replica, ticks)) {
            return Ok(conn);
        }
        self.pool.connect(replica).await.map_err(|e| match e {
            ConnectError::Open(OpenError::Timeout) => DispatchError::ConnectTimeout,
            ConnectError::Open(OpenError::Failed(e)) => DispatchError::ConnectFailed(e),
            ConnectError::Handshake(e) => DispatchError::Reset(e),
        })
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
        mut response: Response<hyper::body::Incoming>,
        conn: Conn,
        flight: InFlight,
        message: &mut Message<'_>,
    ) -> Result<Response<UpstreamBody>, DispatchError> {
        self.replicas.succeeded(flight.replica());
        let reusable = match head::check(&mut response, &message.asked) {
            Ok(reusable) => reusable,
            Err(why) => return Err(self.lost(DispatchError::BadResponse(why))),
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && let Some(visitor) = message.ctx.upgrade.take()
        {
            let origin = hyper::upgrade::on(&mut response);
            let idle = Limit { slot: conn.slot, ticks: self.read_ticks.get() };
            let handle = message.ctx.tunnel.take().unwrap_or_default();
            self.tunnels.open(tunnel::Ends { visitor, origin }, idle, flight, handle);
            return Ok(response.map(UpstreamBody::detached));
        }
        let (pool, stats) = (self.pool.clone(), self.stats.clone());
        let lease = Lease { pool, stats, conn, flight, held: message.held.take(), reusable };
        Ok(response.map(|incoming| UpstreamBody::new(incoming, lease, self.read_ticks.get())))
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
