//! One stage of the service: its servers, the line for them, and the integral of how many were busy.
//!
//! The integral is kept without a sum per change: a request that occupies a server from work instant a to b
//! adds b − a, so starts subtract their instant and ends add theirs; those still in service add the present
//! one each. A server that passes from one request to the next changes nothing. A stage whose servers are
//! shared has no line: as many of them are busy as there are requests.

use serde::Serialize;

use super::pace::Pace;
use super::share::Shared;
use super::slab::Line;
use crate::scenario::{Discipline, Stage};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageStats {
    pub name: String,
    pub servers: u32,
    pub busy: u32,
    /// Requests in line for a server now; where servers are shared: requests beyond one for each.
    pub queued: u32,
    /// Time that each server has been busy since the start, in microseconds, with as many entries as there
    /// have ever been servers. The model's servers are alike: what they did together is spread evenly over
    /// those there were.
    pub busy_us: Vec<u64>,
    pub idle_us: Vec<u64>,
    /// The load: requests at work or in line for a server. Unlike the utilisation, which stops at 1, it goes
    /// on growing with what is asked of the stage. A real tier's is an average in which one a second old
    /// counts 1/e; a model's is that of now.
    pub load: f64,
    /// The load added up over time since the start, in request-microseconds; 0 in models, which do not add it
    /// up.
    pub load_us: u64,
}

impl StageStats {
    /// Busy server-microseconds since the start, of all servers together.
    pub fn total_busy_us(&self) -> u64 {
        self.busy_us.iter().sum()
    }
}

pub(super) struct StageState {
    name: String,
    pub servers: u32,
    /// As many servers as workers, always: a stage that is no limit of its own.
    pub follows_workers: bool,
    pub busy: u32,
    pub line: Line,
    /// The requests that share the servers; `None`: first come, first served.
    pub shared: Option<Shared>,
    /// Work since `flushed_us` is `ended + busy · now`; see above.
    ended: i128,
    flushed_us: u64,
    past_busy_ns: Vec<u128>,
    past_idle_ns: Vec<u128>,
}

impl StageState {
    pub fn new(stage: &Stage, workers: u32) -> Self {
        let servers = stage.servers;
        Self {
            name: stage.name.clone(),
            servers,
            follows_workers: servers == workers,
            busy: 0,
            line: Line::default(),
            shared: (stage.discipline == Discipline::Sharing).then(|| Shared::new(servers)),
            ended: 0,
            flushed_us: 0,
            past_busy_ns: vec![0; servers as usize],
            past_idle_ns: vec![0; servers as usize],
        }
    }

    pub fn occupy(&mut self, work: u64) {
        self.busy += 1;
        self.ended -= i128::from(work);
    }

    pub fn release(&mut self, work: u64) {
        self.busy -= 1;
        self.ended += i128::from(work);
    }

    /// Changes who shares the servers; `None`: nobody does.
    pub fn share<T>(&mut self, work: u64, change: impl FnOnce(&mut Shared) -> T) -> Option<T> {
        let changed = self.shared.as_mut().map(change);
        self.balance(work);
        changed
    }

    pub fn empty(&mut self, work: u64) {
        self.line = Line::default();
        if let Some(shared) = &mut self.shared {
            shared.clear(work);
        }
        while self.busy > 0 {
            self.release(work);
        }
    }

    /// As many shared servers are busy as there are requests.
    fn balance(&mut self, work: u64) {
        let Some(shared) = &self.shared else { return };
        let busy = shared.len().min(self.servers);
        while self.busy < busy {
            self.occupy(work);
        }
        while self.busy > busy {
            self.release(work);
        }
    }

    /// Settles the integral before the speed or the number of servers changes.
    pub fn flush(&mut self, pace: &Pace, now_us: u64) {
        let (busy, idle) = self.since_flush(pace, now_us);
        for (past, new) in [(&mut self.past_busy_ns, busy), (&mut self.past_idle_ns, idle)] {
            past.iter_mut().zip(spread(new, self.servers)).for_each(|(past, more)| *past += more);
        }
        self.ended = -(i128::from(self.busy) * i128::from(pace.work(now_us)));
        self.flushed_us = now_us;
    }

    /// Changes the number of servers, after [`StageState::flush`].
    pub fn resize(&mut self, servers: u32, work: u64) {
        self.servers = servers;
        self.share(work, |shared| shared.resize(servers, work));
        let most = self.past_busy_ns.len().max(servers as usize);
        self.past_busy_ns.resize(most, 0);
        self.past_idle_ns.resize(most, 0);
    }

    pub fn stats(&self, pace: &Pace, now_us: u64) -> StageStats {
        let (busy, idle) = self.since_flush(pace, now_us);
        let sum = |past: &[u128], since: u128| {
            let since = spread(since, self.servers).chain(std::iter::repeat(0));
            past.iter().zip(since).map(|(past, more)| ((past + more) / 1000) as u64).collect()
        };
        let sharing = self.shared.as_ref().map_or(0, Shared::len);
        StageStats {
            name: self.name.clone(),
            servers: self.servers,
            busy: self.busy,
            queued: self.line.len() + sharing.saturating_sub(self.busy),
            load: f64::from(self.busy + self.line.len() + sharing.saturating_sub(self.busy)),
            load_us: 0,
            busy_us: sum(&self.past_busy_ns, busy),
            idle_us: sum(&self.past_idle_ns, idle),
        }
    }

    /// Busy and idle server-nanoseconds since the last flush. Servers that end what they had when their
    /// number was lowered count as busy beyond it, and none as idle.
    fn since_flush(&self, pace: &Pace, now_us: u64) -> (u128, u128) {
        let work = self.ended + i128::from(self.busy) * i128::from(pace.work(now_us));
        let busy = pace.duration_ns(work.max(0) as u128);
        let all = u128::from(now_us.saturating_sub(self.flushed_us)) * 1000 * u128::from(self.servers);
        (busy, all.saturating_sub(busy))
    }
}

/// `total` in `parts` whole parts that differ by at most one and add up to it.
fn spread(total: u128, parts: u32) -> impl Iterator<Item = u128> {
    let parts = u128::from(parts);
    (0..parts).map(move |i| total / parts + u128::from(i < total % parts))
}
