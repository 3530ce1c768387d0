//! A lock-free ring of seconds: the number of visitors and the work of each.
//!
//! WebQ (III-D) keeps a circular array that is shifted once a second. Here nothing is shifted: a second `s`
//! lives in the cell `s mod N`, which carries the lap `s / N` it was written in. A cell of an earlier lap is
//! empty; the next writer replaces it in the compare-and-swap that adds to it. One word holds everything:
//!
//! ```text
//!  63      48 47         28 27                 0
//! [ lap (16) | visitors (20) | cost (28, in 1/100) ]
//! ```
//!
//! **Totals.** The honest wait sums up everything promised before a visitor, and every answer to a waiting
//! visitor has one. So blocks of 32 and of 1,024 seconds ([`BLOCKS`]) also have a total, in two words of
//! their own, which a writer corrects after the cell: a sum over a whole day reads some 300 words, not
//! 86,400. (With blocks of 128 seconds alone it read up to 1,600.) A reader in between misses what writers
//! are just adding: at most one visitor per worker. Totals are kept modulo 2^48 and read as signed numbers,
//! so that a correction which overtakes an earlier one (a promise taken back before its writer has come to
//! the total) leaves no trace.
//!
//! Rejected: the low bits of the second as the tag (an idle gateway would meet its own cells again after
//! 65,536 s; laps come back after years); a mutex per cell (two dependent cache misses and a wait); clearing
//! cells on a timer (a thread that stalls between reading the time and writing would write into one).

use crate::sync::{AtomicU64, Ordering};
use crate::units::Cost;

const COST_BITS: u32 = 28;
const VISITOR_BITS: u32 = 20;
const LAP_SHIFT: u32 = COST_BITS + VISITOR_BITS;
const TOTAL_MASK: u64 = (1 << LAP_SHIFT) - 1;

/// Most work a second can hold: 2.68 million cost units, above [`crate::units::Rate::MAX`] overbooked.
pub(crate) const MAX_COST: u64 = (1 << COST_BITS) - 1;
/// Most visitors a second can hold; a second with that many is full whatever they cost.
pub(crate) const MAX_VISITORS: u64 = (1 << VISITOR_BITS) - 1;

/// Seconds of the blocks that have a total, each a multiple of the one before it: a sum reads the cells of at
/// most two blocks of the shortest kind, and totals in between.
#[cfg(not(loom))]
const BLOCKS: [u64; 2] = [32, 1024];
/// Under the model checker even its tiny rings have totals.
#[cfg(loom)]
const BLOCKS: [u64; 2] = [2, 4];

/// What belongs to one second, or to several.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SlotLoad {
    pub visitors: u64,
    pub cost: Cost,
}

/// The cells. Addressed by absolute seconds; only a window of `len` seconds exists at a time.
pub(crate) struct Ring {
    cells: Box<[AtomicU64]>,
    /// For each length in [`BLOCKS`] one per block; none in a ring that is shorter than a block.
    totals: [Box<[BlockTotal]>; BLOCKS.len()],
    shift: u32,
}

impl Ring {
    /// At least `seconds` cells (rounded up to a power of two), all empty, for use from `second` on.
    pub(crate) fn new(seconds: u64, second: u64) -> Self {
        let len = seconds.next_power_of_two();
        let shift = len.trailing_zeros();
        // Half of the range that counts as earlier: a restored schedule may begin laps ago.
        let stale = lap_of(second >> shift).wrapping_sub(0x4000);
        let empty = u64::from(stale) << LAP_SHIFT;
        Self {
            cells: (0..len).map(|_| AtomicU64::new(empty)).collect(),
            totals: BLOCKS.map(|length| (0..len / length).map(|_| BlockTotal::new(empty)).collect()),
            shift,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.cells.len() as u64
    }

    fn cell(&self, second: u64) -> &AtomicU64 {
        &self.cells[(second & (self.len() - 1)) as usize]
    }

    /// What `word` holds for `second`; `None` if the cell has moved on to a later lap.
    fn decode(&self, word: u64, second: u64) -> Option<SlotLoad> {
        let age = lap_of(second >> self.shift).wrapping_sub((word >> LAP_SHIFT) as u16) as i16;
        match age {
            0 => Some(SlotLoad {
                visitors: (word >> COST_BITS) & MAX_VISITORS,
                cost: Cost::from_hundredths(word & MAX_COST),
            }),
            1.. => Some(SlotLoad::default()),
            _ => None,
        }
    }

    fn encode(&self, load: SlotLoad, second: u64) -> u64 {
        let visitors = load.visitors.min(MAX_VISITORS);
        let cost = load.cost.hundredths().min(MAX_COST);
        (u64::from(lap_of(second >> self.shift)) << LAP_SHIFT) | (visitors << COST_BITS) | cost
    }

    /// What belongs to `second`; nothing if its cell has moved on.
    pub(crate) fn load(&self, second: u64) -> SlotLoad {
        self.decode(self.cell(second).load(Ordering::Acquire), second).unwrap_or_default()
    }

    /// Replaces what belongs to `second` by what `f` makes of it, atomically, and returns `f`'s second
    /// result. `None`, and no change, if `f` returns `None` or if the cell has moved on.
    pub(crate) fn update<T>(
        &self,
        second: u64,
        mut f: impl FnMut(SlotLoad) -> Option<(SlotLoad, T)>,
    ) -> Option<T> {
        let cell = self.cell(second);
        let mut word = cell.load(Ordering::Acquire);
        loop {
            let before = self.decode(word, second)?;
            let (load, result) = f(before)?;
            let new = self.encode(load, second);
            match cell.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let lap = lap_of(second >> self.shift);
                    let visitors = ((new >> COST_BITS) & MAX_VISITORS).wrapping_sub(before.visitors);
                    let cost = (new & MAX_COST).wrapping_sub(before.cost.hundredths());
                    for total in (0..BLOCKS.len()).filter_map(|kind| self.total(kind, second)) {
                        total.visitors.correct(lap, visitors);
                        total.cost.correct(lap, cost);
                    }
                    return Some(result);
                }
                Err(current) => word = current,
            }
        }
    }

    /// Of the block with `second` of the length `BLOCKS[kind]`.
    fn total(&self, kind: usize, second: u64) -> Option<&BlockTotal> {
        self.totals[kind].get(((second & (self.len() - 1)) / BLOCKS[kind]) as usize)
    }

    /// The longest block that begins at `second` and ends by `to`: its length and total.
    fn whole_block(&self, second: u64, to: u64) -> Option<(u64, &BlockTotal)> {
        (0..BLOCKS.len()).rev().find_map(|kind| {
            let length = BLOCKS[kind];
            let is_whole = second.is_multiple_of(length) && to - second >= length;
            self.total(kind, second).filter(|_| is_whole).map(|total| (length, total))
        })
    }

    /// What belongs to the seconds `from..to`, at most one lap. Computed for every answer to a waiting
    /// visitor, so the loop only looks at the words.
    pub(crate) fn sum(&self, from: u64, to: u64) -> SlotLoad {
        let (mut visitors, mut cost) = (0, 0);
        let mut second = from;
        let to = to.min(from.saturating_add(self.len()));
        while second < to {
            // A block lies within one lap, as do the cells of a ring shorter than a block.
            let lap = lap_of(second >> self.shift);
            if let Some((length, total)) = self.whole_block(second, to) {
                visitors += total.visitors.read(lap);
                cost += total.cost.read(lap);
                second += length;
                continue;
            }
            let start = second & (self.len() - 1);
            let count = (self.len() - start).min(BLOCKS[0] - second % BLOCKS[0]).min(to - second);
            let load = sum_cells(&self.cells[start as usize..(start + count) as usize], lap);
            visitors += load.visitors as i64;
            cost += load.cost.hundredths() as i64;
            second += count;
        }
        SlotLoad { visitors: visitors.max(0) as u64, cost: Cost::from_hundredths(cost.max(0) as u64) }
    }

    /// Adds to `second`; lost if its cell has moved on, cut at what a cell can hold.
    pub(crate) fn add(&self, second: u64, load: SlotLoad) {
        self.update(second, |old| {
            let sum = SlotLoad { visitors: old.visitors + load.visitors, cost: old.cost + load.cost };
            Some((sum, ()))
        });
    }
}

fn sum_cells(cells: &[AtomicU64], lap: u16) -> SlotLoad {
    let (mut visitors, mut cost) = (0, 0);
    for cell in cells {
        let word = cell.load(Ordering::Acquire);
        let word = if word >> LAP_SHIFT == u64::from(lap) { word } else { 0 };
        visitors += (word >> COST_BITS) & MAX_VISITORS;
        cost += word & MAX_COST;
    }
    SlotLoad { visitors, cost: Cost::from_hundredths(cost) }
}

struct BlockTotal {
    visitors: Total,
    cost: Total,
}

impl BlockTotal {
    fn new(empty: u64) -> Self {
        Self { visitors: Total::new(empty), cost: Total::new(empty) }
    }
}

/// A sum of one lap: `{lap: 16, signed number: 48}`.
struct Total(AtomicU64);

impl Total {
    fn new(empty: u64) -> Self {
        Self(AtomicU64::new(empty))
    }

    /// Adds what may be negative (modulo 2^64) to the number of `lap`. As for a cell: a word of an earlier
    /// lap is empty, and one of a later lap is left alone.
    fn correct(&self, lap: u16, by: u64) {
        if by == 0 {
            return;
        }
        _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |seen| {
            let base = match lap.wrapping_sub((seen >> LAP_SHIFT) as u16) as i16 {
                0 => seen,
                1.. => 0,
                _ => return None,
            };
            Some((u64::from(lap) << LAP_SHIFT) | (base.wrapping_add(by) & TOTAL_MASK))
        });
    }

    fn read(&self, lap: u16) -> i64 {
        let word = self.0.load(Ordering::Acquire);
        let sign_extended = ((word << (64 - LAP_SHIFT)) as i64) >> (64 - LAP_SHIFT);
        if word >> LAP_SHIFT == u64::from(lap) { sign_extended } else { 0 }
    }
}

/// Laps are compared modulo 2^16: with 4,096 cells they repeat after eight years.
fn lap_of(lap: u64) -> u16 {
    (lap & 0xffff) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(visitors: u64, hundredths: u64) -> SlotLoad {
        SlotLoad { visitors, cost: Cost::from_hundredths(hundredths) }
    }

    /// Second by second, without totals.
    fn one_by_one(ring: &Ring, from: u64, to: u64) -> SlotLoad {
        (from..to).map(|s| ring.load(s)).fold(SlotLoad::default(), |sum, l| {
            load(sum.visitors + l.visitors, sum.cost.hundredths() + l.cost.hundredths())
        })
    }

    #[test]
    fn totals_are_the_sum_of_their_seconds_over_laps() {
        let first = 1_800_000_000;
        let ring = Ring::new(2048, first);
        for second in first..first + 5_000 {
            ring.add(second, load(second % 7, second % 1_001));
            if second % 3 == 0 {
                // Taken back in part, as by a promise that did not fit.
                ring.update(second, |l| Some((load(l.visitors / 2, l.cost.hundredths() / 3), ())));
            }
            for length in [1, 31, 32, 33, 300, 1_023, 1_024, 1_100, 2_000] {
                let from = (second - length).max(first);
                assert_eq!(
                    ring.sum(from, second + 1),
                    one_by_one(&ring, from, second + 1),
                    "{second} {length}"
                );
            }
        }
    }

    #[test]
    fn a_correction_may_overtake_another() {
        let total = Total::new(0);
        total.correct(9, 5u64.wrapping_neg());
        assert_eq!(total.read(9), -5);
        total.correct(9, 5);
        assert_eq!((total.read(9), total.read(8)), (0, 0));
        total.correct(8, 1);
        assert_eq!(total.read(9), 0, "of an earlier lap: not counted");
        total.correct(10, 3);
        assert_eq!((total.read(10), total.read(9)), (3, 0));
    }
}
