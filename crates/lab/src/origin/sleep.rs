//! Mode `sleep`: the model in real time. Nobody works; time passes.
//!
//! The model's events have exact instants, and tokio's timer fires up to a millisecond after them. Whoever
//! comes to the pool first, the timer or a request, takes what is due before anything else, so the model
//! never hears of things out of order, and a late timer delays an answer by its lateness but takes nothing of
//! the capacity.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::reply::{Leaving, Reply, Taken};
use super::{Full, Stats, Visit};
use crate::model::{Done, Model, Part, StageStats, Ticket};
use crate::scenario::Change;

/// Longest sleep of the driver: no event may be due in a year, and a timer has a range.
const MAX_SLEEP_US: u64 = 60 * 1_000_000;

pub(super) struct SleepPool {
    start: Instant,
    state: Mutex<State>,
    /// Something is due earlier than the driver thinks.
    earlier: Notify,
}

struct State {
    model: Model,
    present: HashMap<u64, Present>,
    next_id: u64,
    /// Until when the driver sleeps.
    armed_us: u64,
}

struct Present {
    ticket: Ticket,
    /// Until the answer has begun.
    reply: Option<oneshot::Sender<Reply>>,
    visit: Visit,
}

impl SleepPool {
    /// An idle pool; its clock starts now. [`SleepPool::drive`] must run for anything to end.
    pub fn new(model: Model) -> Arc<Self> {
        let state = State { model, present: HashMap::new(), next_id: 0, armed_us: u64::MAX };
        Arc::new(Self { start: Instant::now(), state: Mutex::new(state), earlier: Notify::new() })
    }

    pub fn submit(self: &Arc<Self>, path: usize, visit: Visit) -> Result<Taken, Full> {
        let (mut state, now) = self.settled();
        let id = state.next_id;
        state.next_id += 1;
        let ticket = match state.model.submit(id, path, now) {
            Ok(ticket) => ticket,
            Err(Full) => {
                visit.refused();
                return Err(Full);
            }
        };
        let (reply, taken) = oneshot::channel();
        state.present.insert(id, Present { ticket, reply: Some(reply), visit });
        self.wake_earlier(&mut state);
        let pool = Arc::clone(self);
        Ok(Taken { reply: taken, leaving: Some(Leaving::new(move || pool.leave(id))) })
    }

    /// A visitor may have left; after the answer this changes nothing.
    pub fn leave(&self, id: u64) {
        let (mut state, now) = self.settled();
        let Some(ticket) = state.present.get(&id).map(|present| present.ticket) else { return };
        if !state.model.leave(ticket, now) {
            // Noticed: nobody works on it any longer.
            state.present.remove(&id);
            self.wake_earlier(&mut state);
        }
    }

    pub fn stats(&self) -> Stats {
        self.settled().0.model.stats()
    }

    pub fn stages(&self) -> Vec<StageStats> {
        self.settled().0.model.stages()
    }

    pub fn change(&self, change: &Change) {
        let (mut state, now) = self.settled();
        if let Some(errors) = change.errors {
            state.model.set_errors(errors, now);
        }
        if let Some(speed) = change.speed {
            state.model.set_speed(speed, now);
        }
        if let Some(workers) = change.workers {
            state.model.set_workers(workers, now);
        }
        self.wake_earlier(&mut state);
    }

    /// Takes what is due when it is due, for as long as it is polled.
    pub async fn drive(self: Arc<Self>) {
        loop {
            let due = self.arm();
            tokio::select! {
                () = sleep_until(self.start + Duration::from_micros(due)) => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    fn arm(&self) -> u64 {
        let (mut state, now) = self.settled();
        state.armed_us = state.model.next_event().unwrap_or(u64::MAX).min(now + MAX_SLEEP_US);
        state.armed_us
    }

    fn wake_earlier(&self, state: &mut State) {
        if let Some(due) = state.model.next_event().filter(|due| *due < state.armed_us) {
            state.armed_us = due;
            self.earlier.notify_one();
        }
    }

    /// The state, with everything taken that is due by now, and the time.
    fn settled(&self) -> (MutexGuard<'_, State>, u64) {
        let mut state = self.state.lock();
        // Read under the lock: the model's time never runs backwards.
        let now = self.start.elapsed().as_micros() as u64;
        let State { model, present, .. } = &mut *state;
        model.advance(now, &mut |done| self.sent(present, done));
        (state, now)
    }
    fn sent(&self, present: &mut HashMap<u64, Present>, done: Done) {
        let reply = match done.part {
            Part::Whole => Some(Reply::Whole),
            Part::Head { ends_us } => Some(Reply::Until(self.start + Duration::from_micros(ends_us))),
            Part::Rest => None,
            Part::Error => Some(Reply::Error),
        };
        let Entry::Occupied(mut entry) = present.entry(done.id) else { return };
        if !done.wasted
            && let (Some(sender), Some(reply)) = (entry.get_mut().reply.take(), reply)
        {
            // A failed send means that the visitor has left; the request was served all the same.
            let _ = sender.send(reply);
        }
        if matches!(done.part, Part::Head { .. }) {
            return;
        }
        let visit = entry.remove().visit;
        match done.part {
            _ if done.wasted => {}
            Part::Error => visit.refused(),
            _ => visit.served(),
        }
    }
}
