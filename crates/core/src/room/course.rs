//! What the room goes by: its settings, and what the control side sets from one tick to the next.

use std::time::Duration;

use crate::units::{Cost, Rate};

/// Settings of the room; the meaning of each is in the configuration's `[room]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RoomConfig {
    /// Longest wait handed out.
    pub max_wait: Duration,
    /// How late a visitor may come and keep the place.
    pub grace: Duration,
    /// How early a visitor may come.
    pub tolerance: Duration,
    /// Capacity's worth of visitors that may enter in one instant, at most a second's.
    pub burst: Duration,
    /// Most promises per second, as a multiple of capacity.
    pub overbook_max: f64,
    /// Who gets the new room when capacity rises: newcomers (`true`, WebQ III-D) or the waiting in order.
    pub rise_to_newcomers: bool,
    /// Whether tickets due before this process started are still good.
    pub after_restart_accept: bool,
    /// Cost per class; a class without one costs [`Cost::ONE`].
    pub class_costs: Vec<Cost>,
}

impl Default for RoomConfig {
    /// What the settings' defaults say for a gate in one process, whose requests cost one unit each.
    fn default() -> Self {
        Self {
            max_wait: Duration::from_secs(30 * 60),
            grace: Duration::from_secs(60),
            tolerance: Duration::ZERO,
            burst: Duration::from_millis(200),
            overbook_max: 1.5,
            rise_to_newcomers: false,
            after_restart_accept: true,
            class_costs: Vec::new(),
        }
    }
}

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
