//! What the room goes by from one tick of the control side to the next.

use crate::units::Rate;

/// What the room goes by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Course {
    /// Cost units per second the origin can serve: what places and waits are reckoned with.
    pub capacity: Rate,
    /// Cost units per second let in to begin with: the capacity, or more while the origin is tried.
    pub outflow: Rate,
    /// Most cost units per second let in, whatever the origin could take; [`Rate::MAX`] for no bound.
    pub ceiling: Rate,
    /// The in-flight limit governs: a short queue is kept at the gate. Else the outflow governs.
    pub keeps_queue: bool,
}

impl From<Rate> for Course {
    /// A capacity that governs by itself.
    fn from(capacity: Rate) -> Self {
        Self { capacity, outflow: capacity, ceiling: Rate::MAX, keeps_queue: false }
    }
}
