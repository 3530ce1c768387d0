//! Guaranteed shares: a class with a guarantee g gets at least the part g of the work sent to the origin
//! while one of its requests may go, whatever the scheduler prefers otherwise.
//!
//! *Worst-case fair weighted fair queueing* (Bennett, Zhang, "WF2Q", INFOCOM 1996), with the work dispatched
//! as its clock. With W the work dispatched so far, a class's next request of cost c
//!
//! ```text
//! is owed from    S = max(S of the one before + its cost / g, W when the class could go again)
//! to be sent by   F = S + c / g
//! ```
//!
//! Of the owed requests (S <= W) the one with the earliest F goes first; while none is owed the scheduler is
//! free. As the guarantees sum to at most one, this is earliest-deadline-first on deadlines that can be met:
//! over any stretch in which work V is sent and the class may always go, it gets at least
//!
//! ```text
//! g V - g * (dearest of all) - 2 * (its own dearest)
//! ```
//!
//! Work that a class gets beyond its share is not held against it: after a service S is at most W + c / g.

use super::tournament::Tournament;
use crate::mutants::{self, Mutant};
use crate::units::{MAX_CLASSES, Share};

/// Work is counted in 2^-32 of a hundredth, so that rounding c / g does not matter.
const SCALE: u32 = 32;

#[derive(Debug)]
pub(super) struct Floors {
    /// Work of all classes that was dispatched.
    done: u128,
    floors: Vec<Floor>,
    /// Classes that are not owed yet, by S.
    early: Tournament,
    /// Classes that are owed, by F.
    owed: Tournament,
}

#[derive(Clone, Copy, Debug, Default)]
struct Floor {
    share: Share,
    /// Work of all classes that may be dispatched per hundredth of this class, in 2^-32 of a hundredth.
    stretch: u64,
    start: u128,
    /// Cost of the next request, if the class is ready.
    cost: Option<u64>,
}

impl Default for Floors {
    fn default() -> Self {
        let floors = vec![Floor::default(); MAX_CLASSES];
        Self { done: 0, floors, early: Tournament::default(), owed: Tournament::default() }
    }
}

impl Floor {
    fn new(share: Share) -> Self {
        let whole = u64::from(Share::ALL.millionths()) << SCALE;
        Self { share, stretch: whole / u64::from(share.millionths().max(1)), start: 0, cost: None }
    }

    /// Work of all classes that may be dispatched while `cost` of this class is.
    fn length(&self, cost: u64) -> u128 {
        u128::from(cost) * u128::from(self.stretch)
    }
}

impl Floors {
    /// Changes a class that is not ready.
    pub(super) fn configure(&mut self, class: usize, share: Share) {
        if self.floors[class].share != share {
            self.floors[class] = Floor::new(share);
        }
    }

    pub(super) fn ready(&mut self, class: usize, cost: u64) {
        let floor = &mut self.floors[class];
        if floor.share == Share::ZERO || mutants::is(Mutant::GuaranteeIsIgnored) {
            return;
        }
        if floor.cost.is_none() {
            floor.start = floor.start.max(self.done);
        }
        floor.cost = Some(cost);
        self.file(class);
    }

    pub(super) fn unready(&mut self, class: usize) {
        self.floors[class].cost = None;
        self.file(class);
    }

    /// Puts a class into the tree it belongs to.
    fn file(&mut self, class: usize) {
        let floor = self.floors[class];
        let is_owed = floor.start <= self.done;
        let by = |when: u128, here: bool| floor.cost.filter(|_| here).map(|_| when);
        self.early.set(class, by(floor.start, !is_owed));
        self.owed.set(class, by(floor.start + floor.length(floor.cost.unwrap_or_default()), is_owed));
    }

    /// The class whose turn it is by its guarantee.
    pub(super) fn pick(&mut self) -> Option<usize> {
        while let Some((class, start)) = self.early.first()
            && start <= self.done
        {
            self.file(class);
        }
        self.owed.first().map(|(class, _)| class)
    }

    /// Work of a class was dispatched, for whatever reason.
    pub(super) fn charge(&mut self, class: usize, cost: u64) {
        let floor = &mut self.floors[class];
        if floor.share > Share::ZERO {
            let from = if floor.cost.is_some() { floor.start.min(self.done) } else { self.done };
            floor.start = from + floor.length(cost);
        }
        self.done += u128::from(cost) << SCALE;
        if self.floors[class].cost.is_some() {
            self.file(class);
        }
    }
}
