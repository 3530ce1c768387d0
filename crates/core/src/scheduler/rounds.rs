//! Deficit round-robin (Shreedhar, Varghese, "Efficient fair queuing using deficit round-robin", IEEE/ACM ToN 4(3), 1996),
//! in work instead of bytes, with weights, one round per priority.
//!
//! ```text
//! a turn:   deficit += weight * unit;   requests are served while cost <= deficit;   deficit -= cost
//! ```
//!
//! The classes of one priority take turns in the order of their ids. What a turn leaves is kept for the next one; a class
//! that nobody waits for any more loses it. `unit` is the dearest request per weight seen, so that every turn serves at least
//! one request and the choice costs O(1) (theorem 1 there); it changes between rounds only. Over any stretch in which classes
//! i and j could both have gone all the time
//!
//! ```text
//! | served_i / weight_i - served_j / weight_j |  <=  unit + dearest_i / weight_i + dearest_j / weight_j
//! ```
//!
//! Plain round-robin is the same with every request costing one and all weights and priorities alike.

use crate::units::MAX_CLASSES;

/// A set of classes or priorities.
pub(super) type Bits = [u64; MAX_CLASSES / 64];

#[derive(Debug)]
pub(super) struct Rounds {
    levels: Vec<Level>,
    /// Levels with somebody in them.
    occupied: Bits,
    lines: Vec<Line>,
    /// For the next round.
    unit: u64,
}

/// The classes of one priority.
#[derive(Clone, Debug)]
struct Level {
    ready: Bits,
    /// Whose turn it is, or was last.
    cursor: u8,
    is_turn: bool,
    /// Of this round.
    unit: u64,
}

#[derive(Clone, Debug)]
struct Line {
    level: u8,
    weight: u64,
    deficit: u64,
    /// Of the next request, if it may go.
    cost: Option<u64>,
    /// The most a request has cost.
    dearest: u64,
}

impl Default for Rounds {
    fn default() -> Self {
        let level = Level { ready: Bits::default(), cursor: u8::MAX, is_turn: false, unit: 0 };
        let line = Line { level: 0, weight: 1, deficit: 0, cost: None, dearest: 0 };
        Self { levels: vec![level; 256], occupied: Bits::default(), lines: vec![line; MAX_CLASSES], unit: 0 }
    }
}

impl Rounds {
    /// Changes a class that is not ready.
    pub(super) fn configure(&mut self, class: usize, level: u8, weight: u32) {
        let line = &mut self.lines[class];
        (line.level, line.weight) = (level, u64::from(weight.max(1)));
        if line.deficit == 0 {
            line.dearest = 0;
        }
    }

    /// Weights have changed.
    pub(super) fn reckon_unit(&mut self) {
        self.unit =
            self.lines.iter().map(|line| line.dearest.div_ceil(line.weight)).max().unwrap_or_default();
    }

    pub(super) fn ready(&mut self, class: usize, cost: u64) {
        let line = &mut self.lines[class];
        line.cost = Some(cost);
        if cost > line.dearest {
            line.dearest = cost;
            self.unit = self.unit.max(cost.div_ceil(line.weight));
        }
        let level = &mut self.levels[usize::from(line.level)];
        level.ready[class / 64] |= 1 << (class % 64);
        self.occupied[usize::from(line.level) / 64] |= 1 << (line.level % 64);
    }

    /// A class may not go; `is_empty`: nobody of it waits.
    pub(super) fn unready(&mut self, class: usize, is_empty: bool) {
        let line = &mut self.lines[class];
        line.cost = None;
        line.deficit = if is_empty { 0 } else { line.deficit.min(line.dearest) };
        let level = &mut self.levels[usize::from(line.level)];
        level.ready[class / 64] &= !(1 << (class % 64));
        level.is_turn &= usize::from(level.cursor) != class;
        if level.ready == Bits::default() {
            self.occupied[usize::from(line.level) / 64] &= !(1 << (line.level % 64));
        }
    }

    pub(super) fn pick(&mut self) -> Option<usize> {
        let level = &mut self.levels[first_from(&self.occupied, 0)?];
        loop {
            let line = &mut self.lines[usize::from(level.cursor)];
            if level.is_turn && line.cost.is_some_and(|cost| cost <= line.deficit) {
                return Some(level.cursor.into());
            }
            let next = first_from(&level.ready, usize::from(level.cursor) + 1);
            let next = match next {
                Some(next) => next,
                None => {
                    level.unit = self.unit;
                    first_from(&level.ready, 0)?
                }
            };
            (level.cursor, level.is_turn) = (next as u8, true);
            let line = &mut self.lines[next];
            line.deficit = line.deficit.saturating_add(line.weight.saturating_mul(level.unit));
        }
    }

    /// One of a class that could go was served.
    pub(super) fn charge(&mut self, class: usize, cost: u64) {
        let line = &mut self.lines[class];
        // Ahead of its turn, for the sake of a guarantee, more may be taken than is there.
        line.deficit = line.deficit.saturating_sub(cost);
    }
}

/// The first of a set that is at least `from`.
fn first_from(bits: &Bits, from: usize) -> Option<usize> {
    let (word, bit) = (from / 64, from % 64);
    let rest = bits.get(word)? & (u64::MAX << bit);
    if rest != 0 {
        return Some(word * 64 + rest.trailing_zeros() as usize);
    }
    let (at, rest) = bits.iter().enumerate().skip(word + 1).find(|(_, rest)| **rest != 0)?;
    Some(at * 64 + rest.trailing_zeros() as usize)
}
