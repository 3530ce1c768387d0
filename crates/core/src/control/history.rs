//! How the capacity in force came to be what it is: the last changes, for the operator's eye.
//!
//! A change is worth noting when the phase is another, or the capacity has moved by more than [`STEP`] since the last one that
//! was noted: an estimate trembles on every tick.

use std::collections::VecDeque;

use crate::capacity::Phase;
use crate::units::{Rate, Timestamp};

/// Least change worth noting, as a share: what an estimator's noise stays below.
const STEP: f64 = 0.05;
/// Changes kept: a day of a calm origin, some minutes of a search; a page of text.
const MAX_CHANGES: usize = 64;

/// A change of the capacity in force.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// When.
    pub at: Timestamp,
    /// Cost units per second before; the first entry has none.
    pub from: Option<Rate>,
    /// Cost units per second since.
    pub to: Rate,
    /// What the estimator was doing then.
    pub phase: Phase,
    /// Why, in its words.
    pub reason: String,
}

#[derive(Default)]
pub(super) struct History(VecDeque<Change>);

impl History {
    pub(super) fn is_news(&self, capacity: Rate, phase: Phase) -> bool {
        let Some(last) = self.0.back() else { return true };
        let (to, from) = (capacity.get(), last.to.get());
        phase != last.phase || (to - from).abs() > STEP * from
    }

    pub(super) fn note(&mut self, to: Rate, phase: Phase, reason: String, at: Timestamp) {
        if self.0.len() == MAX_CHANGES {
            self.0.pop_front();
        }
        let from = self.0.back().map(|last| last.to);
        self.0.push_back(Change { at, from, to, phase, reason });
    }

    pub(super) fn changes(&self) -> impl DoubleEndedIterator<Item = &Change> + ExactSizeIterator {
        self.0.iter()
    }
}
