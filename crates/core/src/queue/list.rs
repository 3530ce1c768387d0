//! Who waits, in order of arrival: a doubly linked list over a slab, with an index by id, so that a visitor who leaves from
//! the middle costs O(1): in a flash crowd people give up as often as they come. Rejected: a `VecDeque` searched on removal
//! (10,000 entries behind one lock are tens of microseconds), and one with tombstones (a queue of the departed would count
//! as full).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::{End, Full, Waiting};

/// Who waits, in order of arrival. Memory grows with the longest queue ever seen and is then reused.
#[derive(Debug)]
pub struct List {
    slab: Vec<Node>,
    /// Head of the list of unused nodes, linked by `next`.
    free: u32,
    head: u32,
    tail: u32,
    /// Where an id stands.
    index: HashMap<u64, u32, BuildHasherDefault<InOrder>>,
}

/// Ids are the gate's own, not a visitor's, and given in order: those that wait at the same time differ in their low bits. So
/// neighbours in time are neighbours in memory, and a long queue's index costs no more than a short one's.
#[derive(Debug, Default)]
struct InOrder(u64);

impl Hasher for InOrder {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        // The table tells entries of one place apart by the seven highest bits.
        self.0 = id ^ (id << 57);
    }
}

#[derive(Debug)]
struct Node {
    waiting: Waiting,
    prev: u32,
    next: u32,
}

/// No node.
const NIL: u32 = u32::MAX;

impl Default for List {
    fn default() -> Self {
        Self { slab: Vec::new(), free: NIL, head: NIL, tail: NIL, index: HashMap::default() }
    }
}

impl List {
    /// Takes one in at the newest end.
    ///
    /// # Errors
    /// The slab is addressed by 32 bits.
    pub fn push(&mut self, waiting: Waiting) -> Result<(), Full> {
        if self.len() >= NIL as usize {
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

    /// Who stands at an end.
    pub fn at(&self, end: End) -> Option<&Waiting> {
        match self.place(end) {
            NIL => None,
            at => Some(&self.slab[at as usize].waiting),
        }
    }

    /// Takes out who stands at an end.
    pub fn pop(&mut self, end: End) -> Option<Waiting> {
        match self.place(end) {
            NIL => None,
            at => Some(self.unlink(at)),
        }
    }

    /// Takes one out, wherever it stands.
    pub fn remove(&mut self, id: u64) -> Option<Waiting> {
        let at = *self.index.get(&id)?;
        Some(self.unlink(at))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn place(&self, end: End) -> u32 {
        match end {
            End::Oldest => self.head,
            End::Newest => self.tail,
        }
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
