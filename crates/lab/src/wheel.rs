//! Timers by the microsecond, in exact order: by time, and among equal times by insertion.
//!
//! A radix queue (Ahuja, Mehlhorn, Orlin, Tarjan, "Faster algorithms for the shortest path problem", J. ACM
//! 37, 1990) over digits of six bits. `base` is the time popped last. An entry lies at the level of the
//! highest digit in which its time differs from `base`, in the slot of its own digit there:
//!
//! ```text
//!  level 2   64 slots of 4,096 µs      a slot holds a list in order of insertion and knows its earliest time
//!  level 1   64 slots of 64 µs
//!  level 0   64 slots of 1 µs          one slot, one instant: its list is the order to pop
//! ```
//!
//! When level 0 is empty, the first slot of the lowest level in use is dealt out to the levels below; they
//! are empty then, and dealing keeps the order, so equal times stay in order of insertion without a sequence
//! number or a sort. An entry moves at most once per level: a push and its pop cost O(1) of the number of
//! entries. Since only a pop deals, and slots know their earliest time, a look at the next time is free and
//! later, earlier pushes stay possible.
//!
//! Lists are chains of blocks from one arena, reused last in first out: an entry takes 16 bytes for `T =
//! u32`, there is no allocation once the arena is as large as the fullest moment, and dealing reads memory in
//! sequence. Rejected: a binary heap (a cache miss per level of a large heap, and a sequence number for the
//! order), a calendar queue (its bucket width must be tuned to the load, and a flash crowd changes it by four
//! orders of magnitude), a `Vec` per slot (keeps the capacity of the fullest moment of every slot).
//!
//! Measured (`cargo bench -p tidegate-lab --bench wheel`, two cores shared with other work): a pop and a push
//! with 10^6 entries spread over 60 s take 91 ns, `std::collections::BinaryHeap` 1,880 ns; with 10^5 over 1 s
//! 46 and 152, with 1,000 70 and 69. With the arena in one vector and the cores to itself it was 57 and
//! 1,161, 28 and 98, 33 and 37.

/// Bits of a digit. Six let one word say which slots of a level are in use.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;
/// Entries of a block: 512 bytes for `T = u32`. Slots in use waste half a block each.
const BLOCK: usize = 32;
/// Entries below this level are due soon: within 64 x 64 us.
const SOON: usize = 2;
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests;

/// A queue of timers. Not cancellable: an owner recognises stale items when they come out.
pub struct Wheel<T> {
    /// The time popped last: nothing earlier is left.
    base: u64,
    len: usize,
    /// Bit `l`: level `l` is in use.
    levels: u32,
    /// By level, bit `s`: slot `s` is in use.
    used: [u64; LEVELS],
    slots: Box<[Slot]>,
    /// The arena. Blocks never move: no push pays for copying a million entries.
    blocks: Vec<Box<[(u64, T); BLOCK]>>,
    /// By block: the next one of its list.
    next: Vec<u32>,
    /// First of the list of free blocks.
    free: u32,
}

/// A list of entries: the blocks `head` to `tail`, from entry `first` of the head to before entry `end` of
/// the tail.
#[derive(Clone, Copy)]
struct Slot {
    earliest: u64,
    head: u32,
    tail: u32,
    first: u32,
    end: u32,
}

const EMPTY: Slot = Slot { earliest: u64::MAX, head: NONE, tail: NONE, first: 0, end: 0 };

impl<T: Copy> Default for Wheel<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Wheel<T> {
    /// No timers; allocates 17 KB of slots.
    pub fn new() -> Self {
        Self {
            base: 0,
            len: 0,
            levels: 0,
            used: [0; LEVELS],
            slots: vec![EMPTY; LEVELS * SLOTS].into(),
            blocks: Vec::new(),
            next: Vec::new(),
            free: NONE,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets a timer. A time before the one popped last counts as that: it is due now, after what was due
    /// before.
    pub fn push(&mut self, at_us: u64, item: T) {
        self.place(at_us.max(self.base), item);
        self.len += 1;
    }

    pub fn peek(&self) -> Option<u64> {
        let (level, slot) = self.lowest()?;
        Some(self.slots[level * SLOTS + slot].earliest)
    }

    pub fn pop(&mut self) -> Option<(u64, T)> {
        self.pop_with(|_| {})
    }

    /// As [`Wheel::pop`]; first tells which entries have come within 4 ms or 64 us of being due, in no
    /// particular order, and not those that were set for so soon. Their owner may fetch from memory what they
    /// stand for, all at once.
    #[inline]
    pub fn pop_with(&mut self, soon: impl FnMut(T)) -> Option<(u64, T)> {
        let (mut level, mut slot) = self.lowest()?;
        if level > 0 {
            self.deal(level, slot, soon);
            (level, slot) = self.lowest()?;
        }
        debug_assert_eq!(level, 0, "what was dealt has its earliest entry at the bottom");
        let list = &mut self.slots[slot];
        let block = list.head as usize;
        let entry = self.blocks[block][list.first as usize];
        list.first += 1;
        let last = list.head == list.tail && list.first == list.end;
        if last {
            *list = EMPTY;
            self.unmark(0, slot);
            self.release(block);
        } else if list.first as usize == BLOCK {
            list.head = self.next[block];
            list.first = 0;
            self.release(block);
        }
        self.base = entry.0;
        self.len -= 1;
        Some(entry)
    }

    /// The first slot in use of the lowest level in use: it holds the earliest entry.
    fn lowest(&self) -> Option<(usize, usize)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        Some((level, self.used[level].trailing_zeros() as usize))
    }

    /// Moves the entries of a slot to the levels below, as seen from the earliest of them.
    fn deal(&mut self, level: usize, slot: usize, mut soon: impl FnMut(T)) {
        let list = std::mem::replace(&mut self.slots[level * SLOTS + slot], EMPTY);
        self.unmark(level, slot);
        self.base = list.earliest;
        let (mut block, mut first) = (list.head, list.first as usize);
        while block != NONE {
            let (end, next) = match block == list.tail {
                true => (list.end as usize, NONE),
                false => (BLOCK, self.next[block as usize]),
            };
            self.look_at(next);
            for i in first..end {
                let (at, item) = self.blocks[block as usize][i];
                if self.place(at, item) < SOON {
                    soon(item);
                }
            }
            self.release(block as usize);
            (block, first) = (next, 0);
        }
    }

    /// Reads a block that is soon to be dealt, all its lines at once: it was filled long ago and is in no
    /// cache, and misses that do not wait for each other overlap.
    fn look_at(&self, block: u32) {
        if let Some(entries) = self.blocks.get(block as usize) {
            let seen = entries.iter().step_by(2).fold(0, |seen, entry| seen ^ entry.0);
            // The result must not be optimised away.
            std::hint::black_box(seen);
        }
    }

    fn place(&mut self, at: u64, item: T) -> usize {
        let level = ((at ^ self.base) | 1).ilog2() / BITS;
        let slot = (at >> (level * BITS)) as usize % SLOTS;
        let level = level as usize;
        self.levels |= 1 << level;
        self.used[level] |= 1 << slot;
        let list = &self.slots[level * SLOTS + slot];
        if list.tail == NONE || list.end as usize == BLOCK {
            self.lengthen(level * SLOTS + slot, (at, item));
        }
        let list = &mut self.slots[level * SLOTS + slot];
        self.blocks[list.tail as usize][list.end as usize] = (at, item);
        list.end += 1;
        list.earliest = list.earliest.min(at);
        level
    }

    /// Gives a list one more block; `filler` is any entry, for memory that nobody reads.
    fn lengthen(&mut self, slot: usize, filler: (u64, T)) {
        if self.free == NONE {
            self.grow(filler);
        }
        let block = self.free;
        self.free = std::mem::replace(&mut self.next[block as usize], NONE);
        let list = &mut self.slots[slot];
        match list.tail {
            NONE => (list.head, list.first) = (block, 0),
            tail => self.next[tail as usize] = block,
        }
        (list.tail, list.end) = (block, 0);
    }

    fn grow(&mut self, filler: (u64, T)) {
        assert!(self.next.len() < NONE as usize, "more than 10^11 timers");
        self.blocks.push(Box::new([filler; BLOCK]));
        self.next.push(NONE);
        self.release(self.next.len() - 1);
    }

    fn release(&mut self, block: usize) {
        self.next[block] = self.free;
        self.free = block as u32;
    }

    fn unmark(&mut self, level: usize, slot: usize) {
        self.used[level] &= !(1 << slot);
        if self.used[level] == 0 {
            self.levels &= !(1 << level);
        }
    }
}
