//! How a request goes through a replica: worker, stages, and what comes after.

use std::cmp::Reverse;

use super::share::Shared;
use super::slab::Place;
use super::{Done, Model, Part, Ticket, contention_factor, nanoseconds};

impl Model {
    #[inline]
    pub(super) fn in_service(&self) -> u32 {
        self.stats.in_service as u32
    }

    #[inline]
    pub(super) fn present(&self) -> usize {
        self.stats.present() + self.waiting.len() as usize
    }

    /// A worker, already counted in service, takes a request.
    #[inline]
    pub(super) fn begin(&mut self, slot: u32, work: u64) {
        let present = self.in_service() + self.waiting.len();
        if present > self.workers {
            self.jobs.get_mut(slot).factor = contention_factor(self.contention, self.workers, present);
        }
        self.enter(slot, work);
    }

    #[inline]
    fn enter(&mut self, slot: u32, work: u64) {
        let job = self.jobs.get_mut(slot);
        let Some(&(index, _)) = self.routes[job.path as usize].get(job.step as usize) else {
            // A path that demands nothing: over at once, but not before somebody asks.
            return self.schedule(slot, work);
        };
        let stage = &mut self.stages[index as usize];
        if stage.shared.is_some() {
            job.place = Place::Server;
            let demand = self.demand(slot);
            self.stages[index as usize].share(work, |shared| shared.join(slot, demand, work));
        } else if stage.busy < stage.servers {
            stage.occupy(work);
            self.serve(slot, work);
        } else {
            job.place = Place::Line;
            stage.line.push(&mut self.jobs, slot);
        }
    }

    /// A server, already counted busy, starts on a request.
    #[inline]
    fn serve(&mut self, slot: u32, work: u64) {
        let demand = self.demand(slot);
        self.schedule(slot, work.saturating_add(demand));
    }

    #[inline]
    fn demand(&mut self, slot: u32) -> u64 {
        let job = self.jobs.get(slot);
        let (_, dist) = self.routes[job.path as usize][job.step as usize];
        let drawn = nanoseconds(dist.sample(&mut self.rng));
        if job.factor == 1.0 { drawn } else { (drawn as f64 * job.factor).round() as u64 }
    }

    #[inline]
    fn schedule(&mut self, slot: u32, end: u64) {
        self.jobs.get_mut(slot).place = Place::Server;
        self.starts = self.starts.wrapping_add(1);
        self.ends.push(Reverse((end, self.starts, slot)));
    }

    #[inline]
    pub(super) fn end_of_server(&mut self, work: u64, slot: u32, at_us: u64, done: &mut impl FnMut(Done)) {
        self.ends.pop();
        if self.jobs.get(slot).place == Place::Failing {
            return self.end_of_error(slot, at_us, done);
        }
        self.end_of_stage(slot, work, at_us, done);
    }

    fn end_of_error(&mut self, slot: u32, at_us: u64, done: &mut impl FnMut(Done)) {
        let job = self.jobs.get(slot);
        let (id, wasted) = (job.id, job.gone);
        self.jobs.remove(slot);
        self.stats.failing -= 1;
        self.stats.failed += 1;
        done(Done { id, at_us, wasted, part: Part::Error });
    }

    pub(super) fn end_of_share(&mut self, stage: u32, at_us: u64, done: &mut impl FnMut(Done)) {
        let stage = &mut self.stages[stage as usize];
        let Some(work) = stage.shared.as_ref().map(|shared| shared.due) else { return };
        let Some(slot) = stage.share(work, Shared::pop).flatten() else { return };
        self.end_of_stage(slot, work, at_us, done);
    }

    fn end_of_stage(&mut self, slot: u32, work: u64, at_us: u64, done: &mut impl FnMut(Done)) {
        let job = self.jobs.get_mut(slot);
        let route = &self.routes[job.path as usize];
        let stage = route.get(job.step as usize).map(|(stage, _)| *stage as usize);
        job.step += 1;
        let last = job.step as usize >= route.len();
        let (id, wasted, path) = (job.id, job.gone, job.path as usize);
        if let Some(stage) = stage {
            self.free_server(stage, work);
        }
        if !last {
            return self.enter(slot, work);
        }
        let lasts_us = if self.fates.may_stream && !wasted { self.fates.stream(path) } else { 0 };
        let part = if lasts_us > 0 {
            let ends_us = at_us.saturating_add(lasts_us);
            self.go_on(slot, ends_us);
            Part::Head { ends_us }
        } else {
            self.jobs.remove(slot);
            *(if wasted { &mut self.stats.wasted } else { &mut self.stats.served }) += 1;
            Part::Whole
        };
        self.free_worker(work);
        done(Done { id, at_us, wasted, part });
    }

    /// The answer of a request that needs no worker any more goes on.
    fn go_on(&mut self, slot: u32, ends_us: u64) {
        self.jobs.get_mut(slot).place = Place::Streaming;
        self.stats.streaming += 1;
        self.starts = self.starts.wrapping_add(1);
        self.streams.push(Reverse((ends_us, self.starts, slot)));
    }

    pub(super) fn end_of_stream(&mut self, at_us: u64, done: &mut impl FnMut(Done)) {
        let Some(Reverse((.., slot))) = self.streams.pop() else { return };
        let id = self.jobs.get(slot).id;
        self.jobs.remove(slot);
        self.stats.streaming -= 1;
        self.stats.served += 1;
        done(Done { id, at_us, wasted: false, part: Part::Rest });
    }

    /// A request is answered with an error, after so much work that is no worker's.
    pub(super) fn fail(&mut self, id: u64, path: usize, demand: u64, now_us: u64) -> Ticket {
        let slot = self.jobs.insert(id, path as u32);
        self.stats.failing += 1;
        self.stats.peak = self.stats.peak.max(self.present());
        self.schedule(slot, self.pace.work(now_us).saturating_add(demand));
        self.jobs.get_mut(slot).place = Place::Failing;
        Ticket { slot, generation: self.jobs.get(slot).generation }
    }

    pub(super) fn drop_out(&mut self, slot: u32, now_us: u64) {
        let work = self.pace.work(now_us);
        let job = self.jobs.get(slot);
        let place = job.place;
        let stage = self.routes[job.path as usize].get(job.step as usize).map(|(stage, _)| *stage as usize);
        match (place, stage) {
            (Place::Backlog | Place::Nowhere, _) => self.waiting.remove(&mut self.jobs, slot),
            (Place::Line, Some(stage)) => self.stages[stage].line.remove(&mut self.jobs, slot),
            (Place::Server, Some(stage)) if self.stages[stage].shared.is_some() => {
                self.stages[stage].share(work, |shared| shared.remove(slot, work));
            }
            (Place::Server | Place::Line, stage) => {
                self.ends.retain(|Reverse((_, _, other))| *other != slot);
                if let Some(stage) = stage {
                    self.free_server(stage, work);
                }
            }
            (Place::Failing, _) => self.ends.retain(|Reverse((_, _, other))| *other != slot),
            (Place::Streaming, _) => self.streams.retain(|Reverse((_, _, other))| *other != slot),
        }
        self.jobs.remove(slot);
        match place {
            Place::Server | Place::Line => self.free_worker(work),
            Place::Failing => self.stats.failing -= 1,
            Place::Streaming => self.stats.streaming -= 1,
            Place::Backlog | Place::Nowhere => {}
        }
    }

    fn free_server(&mut self, stage: usize, work: u64) {
        // A request that shared servers gave up its share when it ended.
        if self.stages[stage].shared.is_some() {
            return;
        }
        self.stages[stage].release(work);
        self.feed_servers(stage, work);
    }

    /// Idle servers start on those in line.
    pub(super) fn feed_servers(&mut self, index: usize, work: u64) {
        loop {
            let stage = &mut self.stages[index];
            if stage.busy >= stage.servers {
                return;
            }
            let Some(slot) = stage.line.pop(&mut self.jobs) else { return };
            stage.occupy(work);
            self.serve(slot, work);
        }
    }

    /// A worker has ended; it takes the next of the backlog unless there are too many workers.
    fn free_worker(&mut self, work: u64) {
        self.stats.in_service -= 1;
        if self.in_service() < self.workers
            && let Some(slot) = self.waiting.pop(&mut self.jobs)
        {
            self.stats.in_service += 1;
            self.begin(slot, work);
        }
    }
}
