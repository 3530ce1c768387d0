//! Deficit round-robin (Shreedhar, Varghese, "Efficient fair queuing using deficit round-robin", IEEE/ACM ToN
//! 4(3), 1996), in work instead of bytes, with weights, one round per priority.
//!
//! ```text
//! a turn:   deficit += weight * unit;   requests are served while cost <= deficit;   deficit -= cost
//! ```
//!
//! The classes of one priority take turns in the order of their ids. A class keeps the deficit that a turn
//! leaves for its next turn, and loses it when its queue runs empty. `unit` is the dearest request per weight
//! seen, so that every turn serves at least one request and the choice costs O(1) (theorem 1 of the paper);
//! it changes between rounds only. Over any stretch of time in which classes i and j may both go
//!
//! ```text
//! | served_i / weight_i - served_j / weight_j |  <=  unit + dearest_i / weight_i + dearest_j / weight_j
//! ```
//!
//! Plain round-robin is the special case of equal costs, weights and priorities.

use crate::bits::Bits;
use crate::units::MAX_CLASSES;

#[derive(Debug)]
pub(super) struct Rounds {
    levels: Vec<Level>,
    occupied: Bits,
    classes: Vec<Class>,
    /// The deficit per weight of the next round.
    unit: u64,
}

#[derive(Clone, Debug)]
struct Level {
    ready: Bits,
    /// The class whose turn it is, or was last.
    cursor: u8,
    is_turn: bool,
    /// The deficit per weight of this round.
    unit: u64,
}

#[derive(Clone, Debug)]
struct Class {
    level: u8,
    weight: u64,
    deficit: u64,
    /// Cost of the next request, if the class is ready.
    cost: Option<u64>,
    dearest: u64,
}

impl Default for Rounds {
    fn default() -> Self {
        let level = Level { ready: Bits::default(), cursor: u8::MAX, is_turn: false, unit: 0 };
        let class = Class { level: 0, weight: 1, deficit: 0, cost: None, dearest: 0 };
        Self {
            levels: vec![level; 256],
            occupied: Bits::default(),
            classes: vec![class; MAX_CLASSES],
            unit: 0,
        }
    }
}

impl Rounds {
    /// Changes a class that is not ready.
    pub(super) fn configure(&mut self, class: usize, level: u8, weight: u32) {
        let state = &mut self.classes[class];
        (state.level, state.weight) = (level, u64::from(weight.max(1)));
        if state.deficit == 0 {
            state.dearest = 0;
        }
    }

    pub(super) fn update_unit(&mut self) {
        self.unit =
            self.classes.iter().map(|class| class.dearest.div_ceil(class.weight)).max().unwrap_or_default();
    }

    pub(super) fn ready(&mut self, class: usize, cost: u64) {
        let state = &mut self.classes[class];
        state.cost = Some(cost);
        if cost > state.dearest {
            state.dearest = cost;
            self.unit = self.unit.max(cost.div_ceil(state.weight));
        }
        let level = &mut self.levels[usize::from(state.level)];
        level.ready.insert(class);
        self.occupied.insert(state.level.into());
    }

    /// A class may not go although requests of it wait: it keeps its deficit.
    pub(super) fn blocked(&mut self, class: usize) {
        let state = &mut self.classes[class];
        state.deficit = state.deficit.min(state.dearest);
        self.remove(class);
    }

    /// The queue of a class is empty: it loses its deficit.
    pub(super) fn emptied(&mut self, class: usize) {
        self.classes[class].deficit = 0;
        self.remove(class);
    }

    fn remove(&mut self, class: usize) {
        let state = &mut self.classes[class];
        state.cost = None;
        let level = &mut self.levels[usize::from(state.level)];
        level.ready.remove(class);
        level.is_turn &= usize::from(level.cursor) != class;
        if level.ready.is_empty() {
            self.occupied.remove(state.level.into());
        }
    }

    pub(super) fn pick(&mut self) -> Option<usize> {
        let level = &mut self.levels[self.occupied.next_from(0)?];
        loop {
            let state = &mut self.classes[usize::from(level.cursor)];
            if level.is_turn && state.cost.is_some_and(|cost| cost <= state.deficit) {
                return Some(level.cursor.into());
            }
            let next = match level.ready.next_from(usize::from(level.cursor) + 1) {
                Some(next) => next,
                None => {
                    level.unit = self.unit;
                    level.ready.next_from(0)?
                }
            };
            (level.cursor, level.is_turn) = (next as u8, true);
            let state = &mut self.classes[next];
            state.deficit = state.deficit.saturating_add(state.weight.saturating_mul(level.unit));
        }
    }

    /// A request of a ready class was served.
    pub(super) fn charge(&mut self, class: usize, cost: u64) {
        let state = &mut self.classes[class];
        // A guarantee may serve a class ahead of its turn, beyond its deficit.
        state.deficit = state.deficit.saturating_sub(cost);
    }
}
