//! The origin's replicas, as models: their work, which are up, and their speed.

use crate::model::{Done, Full, Model, Stats, Ticket};
use crate::scenario::{Change, OriginSpec};

pub(crate) struct ReplicaPool {
    replicas: Vec<Site>,
    /// Speed of the whole service, by its changes.
    speed: f64,
    /// For how long the machine has stood still so far: the models' time is earlier by that.
    stalled_us: u64,
}

struct Site {
    model: Model,
    crashed: bool,
    absent: bool,
    /// How many times slower than its fellows.
    slowness: f64,
}

impl ReplicaPool {
    /// All replicas that there ever are; those that come later are absent at first.
    pub(crate) fn new(spec: &OriginSpec, seed: u64) -> Self {
        let site = |i: u32| Site {
            model: Model::new(spec, seed ^ (u64::from(i) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            crashed: false,
            absent: i >= spec.replicas,
            slowness: 1.0,
        };
        Self { replicas: (0..spec.most_replicas()).map(site).collect(), speed: 1.0, stalled_us: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.replicas.len()
    }

    pub(crate) fn is_up(&self, replica: usize) -> bool {
        !self.replicas[replica].crashed && !self.replicas[replica].absent
    }

    pub(crate) fn next_event(&self) -> Option<u64> {
        let next = self.replicas.iter().filter_map(|site| site.model.next_event()).min();
        next.map(|at_us| at_us.saturating_add(self.stalled_us))
    }

    /// The machine stands still for so long, from the last event on.
    pub(crate) fn stall(&mut self, lasts_us: u64) {
        self.stalled_us = self.stalled_us.saturating_add(lasts_us);
    }

    /// Advances to `now_us`; requests served go to `done`, with their replica.
    pub(crate) fn advance(&mut self, now_us: u64, done: &mut Vec<(usize, Done)>) {
        let stalled_us = self.stalled_us;
        for (i, site) in self.replicas.iter_mut().enumerate() {
            let mut take = |d: Done| done.push((i, Done { at_us: d.at_us.saturating_add(stalled_us), ..d }));
            site.model.advance(now_us - stalled_us, &mut take);
        }
    }

    pub(crate) fn submit(
        &mut self,
        replica: usize,
        id: u64,
        path: usize,
        now_us: u64,
    ) -> Result<Ticket, Full> {
        self.replicas[replica].model.submit(id, path, now_us - self.stalled_us)
    }

    pub(crate) fn leave(&mut self, replica: usize, ticket: Ticket, now_us: u64) -> bool {
        self.replicas[replica].model.leave(ticket, now_us - self.stalled_us)
    }

    /// The replica is gone; returns the requests that it worked on.
    pub(crate) fn crash(&mut self, replica: usize, now_us: u64) -> Vec<u64> {
        let Some(site) = self.replicas.get_mut(replica) else { return Vec::new() };
        site.crashed = true;
        site.model.crash(now_us - self.stalled_us)
    }

    pub(crate) fn revive(&mut self, replica: usize) {
        if let Some(site) = self.replicas.get_mut(replica) {
            site.crashed = false;
        }
    }

    /// `factor` times slower than its fellows; 1: as they are.
    pub(crate) fn slow(&mut self, replica: usize, factor: f64, now_us: u64) {
        let (speed, now_us) = (self.speed, now_us - self.stalled_us);
        if let Some(site) = self.replicas.get_mut(replica) {
            site.slowness = factor;
            site.model.set_speed(speed / factor, now_us);
        }
    }

    /// A replica that goes out of service by a change ends what it has; one that crashes does not.
    pub(crate) fn change(&mut self, change: &Change, now_us: u64) {
        self.speed = change.speed.unwrap_or(self.speed);
        let now_us = now_us - self.stalled_us;
        for (i, site) in self.replicas.iter_mut().enumerate() {
            if let Some(workers) = change.workers {
                site.model.set_workers(workers, now_us);
            }
            if change.speed.is_some() {
                site.model.set_speed(self.speed / site.slowness, now_us);
            }
            if let Some(errors) = change.errors {
                site.model.set_errors(errors, now_us);
            }
            if let Some(replicas) = change.replicas {
                site.absent = i as u32 >= replicas;
            }
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.replicas.iter().fold(Stats::default(), |sum, site| sum.plus(site.model.stats()))
    }
}
