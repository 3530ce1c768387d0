//! The entries of one shard: a slab, an index over it by key, and a timer wheel of deadlines.
//!
//! ```text
//! index   4 bytes a cell, at most 7/8 full     bits of the key ─► number of the entry     (open addressing)
//! slab   48 bytes an entry                     links to its neighbours in a bucket of the wheel
//! wheel   4 bytes a bucket, 512 of 131 ms      deadline ─► entries that are due then
//! ```
//!
//! **Lazy wheel.** A request moves its entry's deadline but not the entry, which stays in the bucket of the
//! deadline it had when it was filed. When that bucket comes, an entry that is not over is filed again, for
//! its present deadline or the far end of the wheel. So a request touches one line of memory, and a session
//! is examined once in 67 s or once in its timeout, whichever is more often.
//!
//! **Requests in progress.** The end of a session's last request brings its deadline from `max_age` back to a
//! timeout from then. An entry with requests in progress is therefore filed as if they ended now: they end
//! later, so no deadline comes before its bucket, and no entry has to be filed again when a request ends.
//!
//! **Doubly linked buckets**, so that a session that ends early is removed at once. Otherwise the buckets
//! would hold memory for ended sessions, and a table filled by them would refuse new ones.
//!
//! Rejected: a `HashMap` of entries (a third of its cells is always empty, at 48 bytes each, and it gives no
//! number for the links); a heap (a request costs a logarithm); a hierarchical wheel (examining every entry
//! once in 67 s costs the control thread less than a thousandth of a second per second and million entries).

use super::entry::{Entry, Lifetimes, NIL, State, halves};
use super::types::SessionKey;
use crate::units::Timestamp;

/// Marks the `prev` of a bucket's first entry, which holds the bucket's number.
const HEAD: u32 = 1 << 31;
const BUCKETS: u64 = 512;
/// Microseconds of a bucket, as a power of two: 131 ms, about a tick.
const SPAN_BITS: u32 = 17;
/// Cells of the index for 7/8 as many entries.
const LEAST_CELLS: usize = 16;

/// The cell at which the search for a key begins. The low bits of the key chose the shard.
fn hash(key: [u64; 2]) -> usize {
    (key[1] >> 8 ^ key[0]) as usize
}

pub(super) struct Entries {
    cells: Vec<u32>,
    slab: Vec<Entry>,
    unused: u32,
    len: usize,
    /// Running number of sessions.
    number: u16,
    wheel: Box<[u32]>,
    /// Buckets before this one have been emptied.
    at: u64,
}

impl Entries {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            cells: Vec::new(),
            slab: Vec::new(),
            unused: NIL,
            len: 0,
            number: 0,
            wheel: vec![NIL; BUCKETS as usize].into(),
            at: bucket(now),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.cells.capacity() * size_of::<u32>()
            + self.slab.capacity() * size_of::<Entry>()
            + self.wheel.len() * size_of::<u32>()
    }

    pub(super) fn find(&mut self, key: SessionKey) -> Option<&mut Entry> {
        let cell = self.cell_of(halves(key))?;
        Some(&mut self.slab[self.cells[cell] as usize])
    }

    /// A running number that tells a session from others of the same millisecond.
    pub(super) fn number(&mut self) -> u16 {
        self.number = self.number.wrapping_add(1);
        self.number
    }

    /// Inserts an entry whose key is not present.
    pub(super) fn insert(&mut self, entry: Entry, lives: &Lifetimes, now: Timestamp) {
        debug_assert!(self.cell_of(entry.key).is_none(), "{:?} is here already", entry.key());
        if (self.len + 1) * 8 > self.cells.len() * 7 {
            self.grow();
        }
        let slot = self.allocate(entry);
        self.index(slot);
        self.len += 1;
        self.file(slot, lives, now);
    }

    pub(super) fn remove(&mut self, key: SessionKey) -> Option<Entry> {
        let cell = self.cell_of(halves(key))?;
        let slot = self.cells[cell];
        self.unlink(slot);
        self.close_gap(cell);
        let entry = self.slab[slot as usize];
        let unused = &mut self.slab[slot as usize];
        (unused.state, unused.next) = (State::Unused, self.unused);
        self.unused = slot;
        self.len -= 1;
        Some(entry)
    }

    /// Removes one entry that is over, if there is one. `most` counts down the entries that may be examined.
    ///
    /// # Errors
    /// `most` is zero and there may be more.
    pub(super) fn expire(
        &mut self,
        lives: &Lifetimes,
        now: Timestamp,
        most: &mut usize,
    ) -> Result<Option<Entry>, More> {
        let present = bucket(now);
        // After a long pause every bucket is examined once.
        self.at = self.at.max(present.saturating_sub(BUCKETS));
        while self.at < present {
            let slot = self.wheel[(self.at % BUCKETS) as usize];
            if slot == NIL {
                self.at += 1;
                continue;
            }
            if *most == 0 {
                return Err(More);
            }
            *most -= 1;
            let entry = self.slab[slot as usize];
            if entry.is_over(lives, now) {
                return Ok(self.remove(entry.key()));
            }
            self.unlink(slot);
            self.file(slot, lives, now);
        }
        Ok(None)
    }

    /// Files every entry again. To be called when deadlines have changed.
    pub(super) fn refile(&mut self, lives: &Lifetimes, now: Timestamp) {
        for slot in 0..self.slab.len() as u32 {
            if self.slab[slot as usize].state != State::Unused {
                self.unlink(slot);
                self.file(slot, lives, now);
            }
        }
    }

    /// Some entries of the slab, unused ones among them; `None`: the slab ends before.
    pub(super) fn stretch(&mut self, from: usize, count: usize) -> Option<&mut [Entry]> {
        let len = self.slab.len();
        (from < len).then(|| &mut self.slab[from..len.min(from.saturating_add(count))])
    }

    fn allocate(&mut self, entry: Entry) -> u32 {
        if self.unused != NIL {
            let slot = self.unused;
            self.unused = self.slab[slot as usize].next;
            self.slab[slot as usize] = entry;
            return slot;
        }
        if self.slab.len() == self.slab.capacity() {
            // Grow by a quarter, not twofold: unused entries of 48 bytes are expensive.
            self.slab.reserve_exact((self.slab.len() / 4).max(LEAST_CELLS));
        }
        self.slab.push(entry);
        (self.slab.len() - 1) as u32
    }

    fn grow(&mut self) {
        let cells = (self.cells.len() * 2).max(LEAST_CELLS);
        self.cells = vec![NIL; cells];
        for slot in 0..self.slab.len() as u32 {
            if self.slab[slot as usize].state != State::Unused {
                self.index(slot);
            }
        }
    }

    fn index(&mut self, slot: u32) {
        let mask = self.cells.len() - 1;
        let mut cell = hash(self.slab[slot as usize].key) & mask;
        while self.cells[cell] != NIL {
            cell = (cell + 1) & mask;
        }
        self.cells[cell] = slot;
    }

    fn cell_of(&self, key: [u64; 2]) -> Option<usize> {
        let mask = self.cells.len().checked_sub(1)?;
        let mut cell = hash(key) & mask;
        loop {
            match self.cells[cell] {
                NIL => return None,
                slot if self.slab[slot as usize].key == key => return Some(cell),
                _ => cell = (cell + 1) & mask,
            }
        }
    }

    /// Empties a cell and moves up the entries that follow only because it was taken.
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.cells.len() - 1;
        let mut cell = gap;
        loop {
            cell = (cell + 1) & mask;
            let slot = self.cells[cell];
            if slot == NIL {
                break;
            }
            let home = hash(self.slab[slot as usize].key) & mask;
            if cell.wrapping_sub(home) & mask >= cell.wrapping_sub(gap) & mask {
                self.cells[gap] = slot;
                gap = cell;
            }
        }
        self.cells[gap] = NIL;
    }

    /// Files an entry in the bucket of the time it is due, or in the last one of the wheel.
    fn file(&mut self, slot: u32, lives: &Lifetimes, now: Timestamp) {
        let due = bucket(self.slab[slot as usize].due(lives, now));
        // All entries of a bucket are over only when the whole bucket is past.
        let bucket = due.clamp(self.at, self.at + BUCKETS - 1) % BUCKETS;
        let first = std::mem::replace(&mut self.wheel[bucket as usize], slot);
        if first != NIL {
            self.slab[first as usize].prev = slot;
        }
        let entry = &mut self.slab[slot as usize];
        (entry.next, entry.prev) = (first, HEAD | bucket as u32);
    }

    fn unlink(&mut self, slot: u32) {
        let Entry { next, prev, .. } = self.slab[slot as usize];
        if prev & HEAD != 0 {
            self.wheel[(prev & !HEAD) as usize] = next;
        } else {
            self.slab[prev as usize].next = next;
        }
        if next != NIL {
            self.slab[next as usize].prev = prev;
        }
    }
}

#[derive(Debug)]
pub(super) struct More;

fn bucket(at: Timestamp) -> u64 {
    at.as_micros() >> SPAN_BITS
}
