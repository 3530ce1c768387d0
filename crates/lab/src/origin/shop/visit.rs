//! A query's way to the database and back, also when its visitor leaves.
//!
//! By default the query goes on: it waits its turn, runs to its end and the answer is thrown away. A service
//! that notices leavers drops a query that still waits and interrupts one that runs. What writes is never
//! given up: who has pressed the button has bid.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use rusqlite::{ErrorCode, InterruptHandle};

use super::database::Found;
use super::route::Query;
use super::stage::Stage;

#[derive(Default)]
pub(super) struct Visit {
    left: AtomicBool,
    running: Mutex<Option<Arc<InterruptHandle>>>,
}

/// The visitor's side: dropped when the visitor leaves, or has the answer.
pub(super) struct Visiting {
    visit: Arc<Visit>,
    notices: bool,
}

impl Visiting {
    pub fn new(notices: bool) -> Self {
        Self { visit: Arc::default(), notices }
    }

    pub fn visit(&self) -> Arc<Visit> {
        Arc::clone(&self.visit)
    }
}

impl Drop for Visiting {
    fn drop(&mut self) {
        if self.notices {
            // Under the lock, so that the connection still works for this visitor while it is interrupted.
            // Between two statements of one query SQLite ignores an interrupt: that query then runs to its
            // end.
            let running = self.visit.running.lock();
            self.visit.left.store(true, Relaxed);
            if let Some(connection) = &*running {
                connection.interrupt();
            }
        }
    }
}

#[derive(Debug)]
pub(super) enum Unanswered {
    Left,
    Failed(rusqlite::Error),
}

pub(super) struct DbJob {
    ask: Query,
    visit: Arc<Visit>,
    reply: mpsc::SyncSender<Result<Found, Unanswered>>,
}

pub(super) fn ask(db: &Stage<DbJob>, ask: Query, visit: &Arc<Visit>) -> Result<Found, Unanswered> {
    let (job, answer) = DbJob::new(ask, visit);
    // Both fail only while the service is being stopped, and its visitors with it.
    db.submit(job).map_err(|_| Unanswered::Left)?;
    answer.recv().unwrap_or(Err(Unanswered::Left))
}

impl DbJob {
    pub fn new(ask: Query, visit: &Arc<Visit>) -> (Self, mpsc::Receiver<Result<Found, Unanswered>>) {
        let (reply, answer) = mpsc::sync_channel(1);
        (Self { ask, visit: Arc::clone(visit), reply }, answer)
    }

    /// Runs it on the connection that `interrupt` stops.
    pub fn run(self, interrupt: &Arc<InterruptHandle>, run: impl FnOnce(&Query) -> rusqlite::Result<Found>) {
        let writes = self.ask.writes();
        let mut running = self.visit.running.lock();
        let left = self.visit.left.load(Relaxed) && !writes;
        if !left && !writes {
            *running = Some(Arc::clone(interrupt));
        }
        drop(running);
        let answer = if left { Err(Unanswered::Left) } else { run(&self.ask).map_err(Unanswered::from) };
        self.visit.running.lock().take();
        // The worker waits for this answer, or is being stopped.
        let _ = self.reply.send(answer);
    }
}

impl From<rusqlite::Error> for Unanswered {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => Self::Left,
            _ => Self::Failed(error),
        }
    }
}
