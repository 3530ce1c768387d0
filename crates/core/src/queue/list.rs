//! Waiting requests in order of arrival: a doubly linked list over a slab. [`List::push`] returns a
//! [`QueueHandle`], so that a request whose visitor leaves is removed in O(1) without a search: in a flash
//! crowd visitors give up as often as they come.
//!
//! A node is one cache line, and freed nodes are reused first. Taking the head touches one line that may not
//! be cached (the new head), removing from the middle three (the node and its neighbours), however many wait.
//!
//! Requests of admitted sessions, and those that begin one, are served first come, first served. Each of
//! these lanes has a chain of its own over the same slab, and no discipline is asked about them.
//!
//! Rejected: an index by id (three more lines for every step; 100,000 requests cost three times what 100
//! did), links stored apart from the requests (two lines instead of one where the order is not that of
//! memory), a `VecDeque` searched on removal (10,000 entries behind one lock are tens of microseconds), and
//! one with tombstones (a queue of requests that have left would count as full).

use crate::units::{ClassId, Cost, Timestamp};

/// What a request has to do with sessions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Lane {
    /// None is counted, or it is of none.
    #[default]
    Ordinary,
    /// Of an admitted session: goes before all ordinary requests and is never refused for load.
    Admitted,
    /// Begins an admitted session: is never refused for load either. The gate lets only so many go at once:
    /// after the requests of sessions or, where these hardly wait, in order of arrival with them. Within a
    /// class they go before ordinary ones while they may.
    Newcomer,
    /// As [`Lane::Admitted`], and it begins a page, whose parts will follow.
    Page,
}

impl Lane {
    /// Whether it is of a session under way.
    pub fn is_of_session(self) -> bool {
        matches!(self, Self::Admitted | Self::Page)
    }

    /// Whether the parts of a page will follow.
    pub fn begins_page(self) -> bool {
        matches!(self, Self::Newcomer | Self::Page)
    }

    /// A lane of each chain in the list.
    pub(crate) const CHAINS: [Self; 3] = [Self::Ordinary, Self::Admitted, Self::Newcomer];

    /// Its chain in the list: requests of admitted sessions are served in order of arrival.
    fn chain(self) -> usize {
        match self {
            Self::Ordinary => 0,
            Self::Admitted | Self::Page => 1,
            Self::Newcomer => 2,
        }
    }
}

/// A request that waits for a free in-flight slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    pub id: u64,
    pub class: ClassId,
    pub lane: Lane,
    pub cost: Cost,
    pub since: Timestamp,
    /// From this time on its visitor does not wait for the answer any more.
    pub until: Option<Timestamp>,
    /// Its number in the order of arrival over all classes. Unique, also for arrivals of one microsecond.
    pub turn: u64,
}

/// The queue is at its bound; nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("queue full: expected room for one more, got {len} of {len}")]
pub struct Full {
    pub len: usize,
}

/// An end of a queue in order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Oldest,
    Newest,
}

/// The waiting requests of one class. Memory grows with the longest queue ever seen and is then reused.
#[derive(Debug)]
pub struct List {
    slab: Vec<Node>,
    /// Head of the list of unused nodes, linked by `next`.
    free: u32,
    /// By [`Lane::chain`].
    chains: [Chain; 3],
}

#[derive(Clone, Copy, Debug)]
struct Chain {
    head: u32,
    tail: u32,
    len: usize,
}

const EMPTY: Chain = Chain { head: NIL, tail: NIL, len: 0 };

/// A waiting request in the queue of its class. It finds nothing once that request has left, even if another
/// one uses the same node (unless exactly 2^32 requests have arrived since). A decision fits two registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueHandle {
    slot: u32,
    /// The low half of the request's turn.
    turn: u32,
    class: ClassId,
}

impl QueueHandle {
    fn new(slot: u32, waiting: &Waiting) -> Self {
        Self { slot, turn: waiting.turn as u32, class: waiting.class }
    }

    /// The class whose queue it is in.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// The index of its node: unique in its class, and less than the greatest length that the queue ever had.
    pub fn slot(&self) -> usize {
        self.slot as usize
    }
}

#[derive(Debug)]
#[repr(align(64))]
struct Node {
    waiting: Waiting,
    /// The node's own index while it is unused.
    prev: u32,
    next: u32,
}

const _: () = assert!(size_of::<Node>() == 64, "a node is one cache line");

const NIL: u32 = u32::MAX;

impl Default for List {
    fn default() -> Self {
        Self { slab: Vec::new(), free: NIL, chains: [EMPTY; 3] }
    }
}

impl List {
    /// Appends a request at the newest end of its lane.
    ///
    /// # Errors
    /// The slab is addressed by 32 bits.
    pub fn push(&mut self, waiting: Waiting) -> Result<QueueHandle, Full> {
        let len = self.chains.iter().map(|chain| chain.len).sum();
        if len >= NIL as usize {
            return Err(Full { len });
        }
        let slot = self.allocate(waiting);
        let chain = &mut self.chains[waiting.lane.chain()];
        match chain.tail {
            NIL => chain.head = slot,
            t => self.slab[t as usize].next = slot,
        }
        chain.tail = slot;
        chain.len += 1;
        Ok(QueueHandle::new(slot, &waiting))
    }

    /// The request at an end of the ordinary lane.
    pub fn at(&self, end: End) -> Option<&Waiting> {
        self.waiting(self.end(end))
    }

    /// Removes the request at an end of the ordinary lane.
    pub fn pop(&mut self, end: End) -> Option<(QueueHandle, Waiting)> {
        self.take(self.end(end))
    }

    /// The oldest request of a lane.
    pub fn first_of(&self, lane: Lane) -> Option<&Waiting> {
        self.waiting(self.chains[lane.chain()].head)
    }

    /// Removes the oldest request of a lane.
    pub fn pop_of(&mut self, lane: Lane) -> Option<(QueueHandle, Waiting)> {
        self.take(self.chains[lane.chain()].head)
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

    /// Removes a request from wherever it is. `None`: it has left before.
    pub fn remove(&mut self, handle: QueueHandle) -> Option<Waiting> {
        let node = self.slab.get(handle.slot())?;
        (node.waiting.turn as u32 == handle.turn && node.prev != handle.slot)
            .then(|| self.unlink(handle.slot))
    }

    /// Requests in the ordinary lane.
    pub fn len(&self) -> usize {
        self.chains[Lane::Ordinary.chain()].len
    }

    /// Whether the ordinary lane is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests in a lane.
    pub fn len_of(&self, lane: Lane) -> usize {
        self.chains[lane.chain()].len
    }

    fn end(&self, end: End) -> u32 {
        let chain = &self.chains[Lane::Ordinary.chain()];
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
        let chain = &mut self.chains[waiting.lane.chain()];
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
        let node = Node { waiting, prev: self.chains[waiting.lane.chain()].tail, next: NIL };
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
