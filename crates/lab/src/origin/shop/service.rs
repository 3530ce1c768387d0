//! A replica of the shop: its two tiers of threads and what they count.
//!
//! Threads, not tasks: a query to SQLite blocks, and a bounded number of blocked threads is what such
//! services are made of. Replicas share the database as real ones do; each has connections of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::model::{StageStats, Stats};

use super::database::{self, Found};
use super::stage::{Meter, Stage};
use super::visit::{self, DbJob, Visit, Visiting};
use super::{MAX_SERVERS, Shop, ShopError, pages, route, rubis};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiers {
    pub workers: usize,
    /// Requests that may wait for a worker; further ones are refused.
    pub backlog: usize,
    /// Connections to the database. Fewer than workers: a query waits for one.
    pub connections: usize,
    /// Whether a query is dropped or interrupted when its visitor has left. Most services do not notice.
    pub notices_leavers: bool,
}

impl Default for Tiers {
    fn default() -> Self {
        Self { workers: 8, backlog: 128, connections: 2, notices_leavers: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Answered to a visitor who still waited for it, whatever the status code.
    Served,
    Refused,
    /// Answered although the visitor had left.
    Wasted,
    /// Dropped or interrupted because the visitor had left. Only if the service notices.
    Abandoned,
}

/// A request in the service: counts where it is, and passes its outcome to the caller.
struct Present {
    stats: Arc<Mutex<Stats>>,
    then: Box<dyn FnOnce(Ended) + Send>,
}

impl Present {
    fn taken(&self) {
        let mut stats = self.stats.lock();
        stats.queued -= 1;
        stats.in_service += 1;
    }

    fn ended(self, how: Ended) {
        let mut stats = self.stats.lock();
        stats.in_service -= 1;
        *match how {
            Ended::Served => &mut stats.served,
            Ended::Refused => &mut stats.refused,
            Ended::Wasted => &mut stats.wasted,
            Ended::Abandoned => &mut stats.abandoned,
        } += 1;
        drop(stats);
        (self.then)(how);
    }
}

/// One replica of the service. Dropping it discards what waits and ends its threads.
pub struct Service {
    // The order of the fields is the order of the end: the app tier asks the database tier.
    app: Stage<AppJob>,
    db: Arc<Stage<DbJob>>,
    stats: Arc<Mutex<Stats>>,
    failures: Arc<AtomicU64>,
    notices_leavers: bool,
    /// Kept for the threads' sake: its file goes when they have gone.
    _shop: Arc<Shop>,
}

struct AppJob {
    request: Request<Bytes>,
    visit: Arc<Visit>,
    reply: oneshot::Sender<Response<Bytes>>,
    present: Present,
}

impl Service {
    /// Starts the tiers' threads.
    ///
    /// # Errors
    /// A tier has no servers or too many, the database cannot be opened, the system gives no thread.
    pub fn start(shop: Arc<Shop>, tiers: Tiers) -> Result<Self, ShopError> {
        for (name, servers) in [("workers", tiers.workers), ("connections", tiers.connections)] {
            if !(1..=MAX_SERVERS).contains(&servers) {
                return Err(ShopError::Servers { name, got: servers });
            }
        }
        let thread = |source| ShopError::Io { what: "cannot start a thread".into(), source };
        let connections: Result<Vec<_>, _> = (0..tiers.connections)
            .map(|_| {
                let (shop, mut connection) = (Arc::clone(&shop), shop.connect()?);
                let interrupt = Arc::new(connection.get_interrupt_handle());
                Ok(move |job: DbJob, _: &Meter| {
                    job.run(&interrupt, |ask| {
                        database::run(&mut connection, &shop.writer, ask, shop.now_s())
                    });
                })
            })
            .collect();
        // Each worker runs one query at a time: never more than `workers` wait here.
        let db = Arc::new(Stage::start("db", tiers.workers, connections?).map_err(thread)?);
        let failures = Arc::new(AtomicU64::new(0));
        let workers = (0..tiers.workers).map(|_| {
            let (db, failures) = (Arc::clone(&db), Arc::clone(&failures));
            move |job: AppJob, meter: &Meter| job.serve(&db, &failures, meter)
        });
        let app = Stage::start("app", tiers.backlog, workers.collect()).map_err(thread)?;
        let stats = Arc::default();
        Ok(Self { app, db, stats, failures, notices_leavers: tiers.notices_leavers, _shop: shop })
    }

    /// Answers a request whose body is whole; the caller bounds it. Dropping the future is how a visitor
    /// leaves. For a HEAD request the caller leaves the body out.
    pub async fn answer(&self, request: Request<Bytes>) -> Response<Bytes> {
        self.answer_then(request, |_| ()).await
    }

    /// As [`Service::answer`], and calls `then` when the work on the request has ended, which may be after
    /// the visitor has left. Not called for what still waits when the service is dropped.
    pub async fn answer_then(
        &self,
        request: Request<Bytes>,
        then: impl FnOnce(Ended) + Send + 'static,
    ) -> Response<Bytes> {
        // Not through the tiers: overload is no illness, and a replica taken out for it would leave it to the
        // others.
        if request.uri().path() == "/healthz" {
            then(Ended::Served);
            return pages::healthy();
        }
        let format = pages::Format::of(&request);
        let (reply, answer) = oneshot::channel();
        let visiting = Visiting::new(self.notices_leavers);
        let present = Present { stats: Arc::clone(&self.stats), then: Box::new(then) };
        self.hand_in(AppJob { request, visit: visiting.visit(), reply, present });
        // An error: the job was refused, or the service is being stopped.
        answer.await.unwrap_or_else(|_| pages::overloaded(format))
    }

    fn hand_in(&self, job: AppJob) {
        // Locked until the job is counted: a worker that takes it at once counts it after that.
        let mut stats = self.stats.lock();
        stats.submitted += 1;
        match self.app.submit(job) {
            Ok(()) => {
                stats.queued += 1;
                stats.peak = stats.peak.max(stats.present());
            }
            Err(job) => {
                stats.refused += 1;
                drop(stats);
                (job.present.then)(Ended::Refused);
            }
        }
    }

    pub fn stats(&self) -> Stats {
        *self.stats.lock()
    }

    pub fn stages(&self) -> [StageStats; 2] {
        [self.app.stats(), self.db.stats()]
    }

    /// Questions that the database failed to answer; their visitors got status 500.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }
}

impl AppJob {
    fn serve(self, db: &Stage<DbJob>, failures: &AtomicU64, meter: &Meter) {
        self.present.taken();
        let format = pages::Format::of(&self.request);
        let response = match route::read(&self.request) {
            Err(misread) => pages::misread(&misread, format),
            Ok(ask) => match meter.away(|| visit::ask(db, ask.clone(), &self.visit)) {
                Ok(Found::Shop(found)) => pages::found(&ask, &found, format),
                Ok(Found::Rubis(answer)) => rubis::pages::page(&answer, format),
                Err(visit::Unanswered::Left) => return self.present.ended(Ended::Abandoned),
                Err(visit::Unanswered::Failed(error)) => {
                    tracing::warn!(%error, ?ask, "the shop's database failed");
                    failures.fetch_add(1, Relaxed);
                    pages::failed(format)
                }
            },
        };
        let how = if self.reply.send(response).is_ok() { Ended::Served } else { Ended::Wasted };
        self.present.ended(how);
    }
}
