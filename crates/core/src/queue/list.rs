//! Who waits, in order of arrival: a doubly linked list over a slab. Whoever is taken in is told its [`Spot`], so that a visitor
//! who leaves from the middle costs O(1) and is not searched for: in a flash crowd people give up as often as they come.
//!
//! A node is one line of the processor's cache, and what becomes free is used again at once. So a step of a queue that moves
//! touches one line that may not be in the cache, the new head's, and one from the middle three (its own and its neighbours'),
//! however many wait.
//!
//! Requests of admitted sessions go before all others, first come, first served: they have a chain of their own over the same slab.
//! No discipline is asked about them.
//!
//! Rejected: an index by id (three lines of its own for every step, and the reason why 100,000 cost three times what 100 did),
//! links apart from what they link (two lines instead of one where the order is not that of memory), a `VecDeque` searched on
//! removal (10,000 entries behind one lock are tens of microseconds), and one with tombstones (a queue of the departed would
//! count as full).

use super::{End, Full, Waiting};
use crate::gate::Lane;
use crate::units::ClassId;

/// Who waits, in order of arrival. Memory grows with the longest queue ever seen and is then reused.
#[derive(Debug)]
pub struct List {
    slab: Vec<Node>,
    /// Head of the list of unused nodes, linked by `next`.
    free: u32,
    /// By [`Lane`].
    chains: [Chain; 2],
}

/// Who waits in one lane.
#[derive(Clone, Copy, Debug)]
struct Chain {
    head: u32,
    tail: u32,
    len: usize,
}

const NOBODY: Chain = Chain { head: NIL, tail: NIL, len: 0 };

/// Where one waits, in the queue of its class. It finds nobody any more as soon as that one has left, whoever stands there then
/// (unless 2^32 others have come meanwhile, to the request). Small, so that a decision fits two registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueHandle {
    slot: u32,
    /// The low half of the turn of who waits.
    turn: u32,
    class: ClassId,
}

impl QueueHandle {
    fn new(slot: u32, waiting: &Waiting) -> Self {
        Self { slot, turn: waiting.turn as u32, class: waiting.class }
    }

    /// Whose queue it is in.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// Its number among the spots of its class: of those that wait, no two have the same, and all are less than the longest that
    /// the queue has ever been.
    pub fn slot(&self) -> usize {
        self.slot as usize
    }
}

#[derive(Debug)]
#[repr(align(64))]
struct Node {
    waiting: Waiting,
    /// Its own number when nobody waits here.
    prev: u32,
    next: u32,
}

const _: () = assert!(size_of::<Node>() == 64, "a node is one line");

/// No node.
const NIL: u32 = u32::MAX;

impl Default for List {
    fn default() -> Self {
        Self { slab: Vec::new(), free: NIL, chains: [NOBODY; 2] }
    }
}

impl List {
    /// Takes one in at the newest end.
    ///
    /// # Errors
    /// The slab is addressed by 32 bits.
    pub fn push(&mut self, waiting: Waiting) -> Result<QueueHandle, Full> {
        let len = self.len() + self.admitted();
        if len >= NIL as usize {
            return Err(Full { len });
        }
        let slot = self.allocate(waiting);
        let chain = &mut self.chains[waiting.lane as usize];
        match chain.tail {
            NIL => chain.head = slot,
            t => self.slab[t as usize].next = slot,
        }
        chain.tail = slot;
        chain.len += 1;
        Ok(QueueHandle::new(slot, &waiting))
    }

    /// Who stands at an end of the ordinary lane.
    pub fn at(&self, end: End) -> Option<&Waiting> {
        self.waiting(self.place(end))
    }

    /// Takes out who stands there.
    pub fn pop(&mut self, end: End) -> Option<(QueueHandle, Waiting)> {
        self.take(self.place(end))
    }

    /// Who has waited longest of admitted sessions.
    pub fn first_admitted(&self) -> Option<&Waiting> {
        self.waiting(self.chains[Lane::Admitted as usize].head)
    }

    /// Takes it out.
    pub fn pop_admitted(&mut self) -> Option<(QueueHandle, Waiting)> {
        self.take(self.chains[Lane::Admitted as usize].head)
    }

    fn waiting(&self, slot: u32) -> Option<&Waiting> {
        self.slab.get(slot as usize).map(|node| &node.waiting)
    }

    fn take(&mut self, slot: u32) -> Option<(QueueHandle, Waiting)> {
        (slot != NIL).then(|| {
            let waiting = self.unlink(slot);
            (QueueHandle::new(slot, &waiting), waiting)
        })
    }

    /// Takes one out, wherever it stands. `None`: it has left before.
    pub fn remove(&mut self, spot: QueueHandle) -> Option<Waiting> {
        let node = self.slab.get(spot.slot())?;
        (node.waiting.turn as u32 == spot.turn && node.prev != spot.slot).then(|| self.unlink(spot.slot))
    }

    /// How many wait in the ordinary lane.
    pub fn len(&self) -> usize {
        self.chains[Lane::Ordinary as usize].len
    }

    /// Whether nobody waits in the ordinary lane.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of admitted sessions wait.
    pub fn admitted(&self) -> usize {
        self.chains[Lane::Admitted as usize].len
    }

    fn place(&self, end: End) -> u32 {
        let chain = &self.chains[Lane::Ordinary as usize];
        match end {
            End::Oldest => chain.head,
            End::Newest => chain.tail,
        }
    }

    fn unlink(&mut self, slot: u32) -> Waiting {
        let node = &mut self.slab[slot as usize];
        let (waiting, prev, next) = (node.waiting, node.prev, node.next);
        (node.prev, node.next) = (slot, self.free);
        self.free = slot;
        let chain = &mut self.chains[waiting.lane as usize];
        match prev {
            NIL => chain.head = next,
            p => self.slab[p as usize].next = next,
        }
        match next {
            NIL => chain.tail = prev,
            n => self.slab[n as usize].prev = prev,
        }
        chain.len -= 1;
        waiting
    }

    fn allocate(&mut self, waiting: Waiting) -> u32 {
        let node = Node { waiting, prev: self.chains[waiting.lane as usize].tail, next: NIL };
        match self.free {
            NIL => {
                self.slab.push(node);
                (self.slab.len() - 1) as u32
            }
            slot => {
                self.free = self.slab[slot as usize].next;
                self.slab[slot as usize] = node;
                slot
            }
        }
    }
}
