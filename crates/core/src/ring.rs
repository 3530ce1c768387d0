//! A ring of seconds: how many visitors and how much work belong to each, lock-free.
//!
//! WebQ (III-D) keeps a circular array that is shifted once a second. Here nothing is shifted: a second `s` lives in
//! the cell `s mod N`, and the cell carries the lap `s / N` it was written in. A cell of an earlier lap is empty; the
//! next writer replaces it in the same compare-and-swap that adds to it. One word holds everything:
//!
//! ```text
//!  63      48 47         28 27                 0
//! [ lap (16) | visitors (20) | cost (28, in 1/100) ]
//! ```
//!
//! Rejected: the low bits of the second itself as the tag (an idle gate would meet its own cells again after 65,536 s;
//! laps come back after years); a mutex per cell (two dependent cache misses and a wait); clearing cells on a timer
//! (a thread that stalls between reading the time and writing would write into a cleared cell).

use crate::sync::{AtomicU64, Ordering};
use crate::units::Cost;

const COST_BITS: u32 = 28;
const VISITOR_BITS: u32 = 20;
const LAP_SHIFT: u32 = COST_BITS + VISITOR_BITS;

/// Most work a second can hold: 2.68 million cost units, above [`crate::units::Rate::MAX`] overbooked.
pub(crate) const MAX_COST: u64 = (1 << COST_BITS) - 1;
/// Most visitors a second can hold; a second with that many is full whatever they cost.
pub(crate) const MAX_VISITORS: u64 = (1 << VISITOR_BITS) - 1;

/// What belongs to one second, or to a stretch of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Load {
    /// How many visitors.
    pub visitors: u64,
    /// How much work.
    pub cost: Cost,
}

/// The cells. Addressed by absolute seconds; only a window of `len` seconds exists at a time.
pub(crate) struct Ring {
    cells: Box<[AtomicU64]>,
    shift: u32,
}

impl Ring {
    /// At least `seconds` cells (rounded up to a power of two), all empty, for use from `second` on.
    pub(crate) fn new(seconds: u64, second: u64) -> Self {
        let len = seconds.next_power_of_two();
        let shift = len.trailing_zeros();
        // Half of what counts as earlier: a restored schedule may begin laps ago.
        let stale = lap_of(second >> shift).wrapping_sub(0x4000);
        let empty = u64::from(stale) << LAP_SHIFT;
        Self { cells: (0..len).map(|_| AtomicU64::new(empty)).collect(), shift }
    }

    /// How many seconds it holds.
    pub(crate) fn len(&self) -> u64 {
        self.cells.len() as u64
    }

    fn cell(&self, second: u64) -> &AtomicU64 {
        &self.cells[(second & (self.len() - 1)) as usize]
    }

    /// What `word` says about `second`; `None` if the cell has moved on to a later lap.
    fn decode(&self, word: u64, second: u64) -> Option<Load> {
        let age = lap_of(second >> self.shift).wrapping_sub((word >> LAP_SHIFT) as u16) as i16;
        match age {
            0 => Some(Load {
                visitors: (word >> COST_BITS) & MAX_VISITORS,
                cost: Cost::from_hundredths(word & MAX_COST),
            }),
            1.. => Some(Load::default()),
            _ => None,
        }
    }

    fn encode(&self, load: Load, second: u64) -> u64 {
        let visitors = load.visitors.min(MAX_VISITORS);
        let cost = load.cost.hundredths().min(MAX_COST);
        (u64::from(lap_of(second >> self.shift)) << LAP_SHIFT) | (visitors << COST_BITS) | cost
    }

    /// What belongs to `second`; nothing if its cell has moved on.
    pub(crate) fn load(&self, second: u64) -> Load {
        self.decode(self.cell(second).load(Ordering::Acquire), second).unwrap_or_default()
    }

    /// Replaces what belongs to `second` by what `f` makes of it, atomically, and returns `f`'s second result. `None`,
    /// and no change, if `f` says so or if the cell has moved on.
    pub(crate) fn update<T>(&self, second: u64, mut f: impl FnMut(Load) -> Option<(Load, T)>) -> Option<T> {
        let cell = self.cell(second);
        let mut word = cell.load(Ordering::Acquire);
        loop {
            let (load, result) = f(self.decode(word, second)?)?;
            let new = self.encode(load, second);
            match cell.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(result),
                Err(current) => word = current,
            }
        }
    }

    /// What belongs to the seconds `from..to`, at most one lap. A status poll sums up the whole wait: this is the loop that must be
    /// tight, so it looks at the words only.
    pub(crate) fn sum(&self, from: u64, to: u64) -> Load {
        let (mut visitors, mut cost) = (0, 0);
        let mut second = from;
        let to = to.min(from.saturating_add(self.len()));
        while second < to {
            // Cells lie side by side up to the end of the lap.
            let start = second & (self.len() - 1);
            let count = (self.len() - start).min(to - second);
            let lap = u64::from(lap_of(second >> self.shift));
            for cell in &self.cells[start as usize..(start + count) as usize] {
                let word = cell.load(Ordering::Acquire);
                let word = if word >> LAP_SHIFT == lap { word } else { 0 };
                visitors += (word >> COST_BITS) & MAX_VISITORS;
                cost += word & MAX_COST;
            }
            second += count;
        }
        Load { visitors, cost: Cost::from_hundredths(cost) }
    }

    /// Adds to `second`; lost if its cell has moved on, cut at what a cell can hold.
    pub(crate) fn add(&self, second: u64, load: Load) {
        self.update(second, |old| {
            let sum = Load { visitors: old.visitors + load.visitors, cost: old.cost + load.cost };
            Some((sum, ()))
        });
    }
}

/// Laps are compared modulo 2^16: with 4,096 cells they repeat after eight years.
fn lap_of(lap: u64) -> u16 {
    (lap & 0xffff) as u16
}
