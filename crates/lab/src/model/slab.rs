//! The requests present, in one array with a free list, and the lines they stand in.
//!
//! A line is a doubly linked list through the array, so that leaving from its middle costs as little as being
//! served from its front, and nothing is allocated once the array has grown to the most requests present at
//! once. A slot freed last is used first: it is still in the cache.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Nowhere,
    /// In the backlog, without a worker.
    Backlog,
    /// A worker holds it in line for a server of its stage.
    Line,
    Server,
    /// It is answered with an error in a moment.
    Failing,
    /// Its answer goes on, without a worker.
    Streaming,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub id: u64,
    /// What contention makes of its demands; fixed when a worker took it.
    pub factor: f64,
    pub path: u32,
    /// Which of its path's stages it is at.
    pub step: u32,
    pub place: Place,
    pub gone: bool,
    /// How often this slot was used before: tells an old ticket from a new one.
    pub generation: u32,
    next: u32,
    prev: u32,
}

#[derive(Default)]
pub(super) struct Slab {
    jobs: Vec<Job>,
    free: Vec<u32>,
}

impl Slab {
    pub fn insert(&mut self, id: u64, path: u32) -> u32 {
        let fresh = Job {
            id,
            factor: 1.0,
            path,
            step: 0,
            place: Place::Backlog,
            gone: false,
            generation: 0,
            next: NONE,
            prev: NONE,
        };
        if let Some(slot) = self.free.pop() {
            let old = &mut self.jobs[slot as usize];
            *old = Job { generation: old.generation, ..fresh };
            slot
        } else {
            self.jobs.push(fresh);
            (self.jobs.len() - 1) as u32
        }
    }

    pub fn remove(&mut self, slot: u32) {
        let job = &mut self.jobs[slot as usize];
        job.generation = job.generation.wrapping_add(1);
        job.place = Place::Nowhere;
        self.free.push(slot);
    }

    pub fn get(&self, slot: u32) -> &Job {
        &self.jobs[slot as usize]
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut Job {
        &mut self.jobs[slot as usize]
    }

    /// The request in `slot`, if it is still the one of that generation.
    pub fn find(&mut self, slot: u32, generation: u32) -> Option<&mut Job> {
        self.jobs
            .get_mut(slot as usize)
            .filter(|job| job.generation == generation && job.place != Place::Nowhere)
    }

    pub fn slots(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.jobs).filter(|(_, job)| job.place != Place::Nowhere).map(|(slot, _)| slot)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    first: u32,
    last: u32,
    len: u32,
}

impl Default for Line {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }
}

impl Line {
    pub fn len(&self) -> u32 {
        self.len
    }

    pub fn push(&mut self, slab: &mut Slab, slot: u32) {
        let job = slab.get_mut(slot);
        (job.prev, job.next) = (self.last, NONE);
        match self.last {
            NONE => self.first = slot,
            last => slab.get_mut(last).next = slot,
        }
        self.last = slot;
        self.len += 1;
    }

    pub fn pop(&mut self, slab: &mut Slab) -> Option<u32> {
        let slot = Some(self.first).filter(|slot| *slot != NONE)?;
        self.remove(slab, slot);
        Some(slot)
    }

    pub fn remove(&mut self, slab: &mut Slab, slot: u32) {
        let Job { prev, next, .. } = *slab.get(slot);
        match prev {
            NONE => self.first = next,
            prev => slab.get_mut(prev).next = next,
        }
        match next {
            NONE => self.last = prev,
            next => slab.get_mut(next).prev = prev,
        }
        self.len -= 1;
    }
}
