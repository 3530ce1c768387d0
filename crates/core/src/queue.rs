//! One class's queue at the gate: who waits, in which order, and for how long.
//!
//! [`Discipline`] is the border: the gate only pushes, pops and removes. [`Fifo`] is the first discipline; others
//! (LIFO under overload, CoDel) go beside it.
//!
//! [`Fifo`] is a doubly linked list over a slab, with an index by id, so that a visitor who leaves from the middle
//! costs O(1): in a flash crowd people give up as often as they come. Rejected: a `VecDeque` searched on removal
//! (10,000 entries behind one lock are tens of microseconds), and one with tombstones (a queue of the departed
//! would count as full).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use crate::units::{ClassId, Cost, Timestamp};

/// A request that waits for a free place at the origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The caller's name for it; unique among those that wait.
    pub id: u64,
    /// Its class.
    pub class: ClassId,
    /// Work it asks of the origin.
    pub cost: Cost,
    /// When it came.
    pub since: Timestamp,
    /// Its number in the order of arrival over all classes: tells apart what came in the same microsecond.
    pub turn: u64,
}

/// The queue is at its bound; nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("queue full: expected room for one more, got {len} of {len}")]
pub struct Full {
    /// Requests that wait.
    pub len: usize,
}

/// In which order those who wait are served, and who is let go.
pub trait Discipline: Send {
    /// Takes one in.
    fn push(&mut self, waiting: Waiting) -> Result<(), Full>;

    /// Takes out who is served next.
    fn pop(&mut self, now: Timestamp) -> Option<Waiting>;

    /// Takes out one who left.
    fn remove(&mut self, id: u64) -> Option<Waiting>;

    /// Takes out one who came at or before `deadline`; call until `None`.
    fn expire(&mut self, deadline: Timestamp) -> Option<Waiting>;

    /// Who has waited longest.
    fn oldest(&self) -> Option<&Waiting>;

    /// How many wait.
    fn len(&self) -> usize;

    /// Whether nobody waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most that may wait from now on; those who already wait stay.
    fn set_max(&mut self, max: usize);
}

/// First come, first served; bounded.
#[derive(Debug)]
pub struct Fifo {
    slab: Vec<Node>,
    /// Head of the list of unused nodes, linked by `next`.
    free: u32,
    head: u32,
    tail: u32,
    max: usize,
    /// Where an id stands. Hashed without a random seed: ids are the gate's own, not a visitor's.
    index: HashMap<u64, u32, BuildHasherDefault<DefaultHasher>>,
}

#[derive(Debug)]
struct Node {
    waiting: Waiting,
    prev: u32,
    next: u32,
}

/// No node.
const NIL: u32 = u32::MAX;

impl Fifo {
    /// At most `max` may wait. Memory grows with the longest queue ever seen and is then reused.
    pub fn new(max: usize) -> Self {
        Self { slab: Vec::new(), free: NIL, head: NIL, tail: NIL, max, index: HashMap::default() }
    }

    fn unlink(&mut self, at: u32) -> Waiting {
        let &Node { waiting, prev, next } = &self.slab[at as usize];
        match prev {
            NIL => self.head = next,
            p => self.slab[p as usize].next = next,
        }
        match next {
            NIL => self.tail = prev,
            n => self.slab[n as usize].prev = prev,
        }
        self.slab[at as usize].next = self.free;
        self.free = at;
        self.index.remove(&waiting.id);
        waiting
    }

    fn allocate(&mut self, waiting: Waiting) -> u32 {
        let node = Node { waiting, prev: self.tail, next: NIL };
        match self.free {
            NIL => {
                self.slab.push(node);
                // A hash table at most half full cleans up after removals in place instead of growing.
                let room = 2 * self.slab.capacity();
                self.index.reserve(room.saturating_sub(self.index.len()));
                (self.slab.len() - 1) as u32
            }
            at => {
                self.free = self.slab[at as usize].next;
                self.slab[at as usize] = node;
                at
            }
        }
    }
}

impl Discipline for Fifo {
    fn push(&mut self, waiting: Waiting) -> Result<(), Full> {
        // The slab is addressed by u32; NIL is not an address.
        if self.len() >= self.max.min(NIL as usize) {
            return Err(Full { len: self.len() });
        }
        assert!(!self.index.contains_key(&waiting.id), "id {} waits already", waiting.id);
        let at = self.allocate(waiting);
        match self.tail {
            NIL => self.head = at,
            t => self.slab[t as usize].next = at,
        }
        self.tail = at;
        self.index.insert(waiting.id, at);
        Ok(())
    }

    fn pop(&mut self, _now: Timestamp) -> Option<Waiting> {
        (self.head != NIL).then(|| self.unlink(self.head))
    }

    fn remove(&mut self, id: u64) -> Option<Waiting> {
        let at = *self.index.get(&id)?;
        Some(self.unlink(at))
    }

    fn expire(&mut self, deadline: Timestamp) -> Option<Waiting> {
        let oldest = self.oldest()?;
        (oldest.since <= deadline).then(|| self.unlink(self.head))
    }

    fn oldest(&self) -> Option<&Waiting> {
        (self.head != NIL).then(|| &self.slab[self.head as usize].waiting)
    }

    fn len(&self) -> usize {
        self.index.len()
    }

    fn set_max(&mut self, max: usize) {
        self.max = max;
    }
}
