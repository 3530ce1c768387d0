//! What a second showed.

use std::borrow::Cow;

use tidegate_core::capacity::Estimate;
use tidegate_core::control::Tunables;
use tidegate_core::gate::Totals;
use tidegate_core::measure::{ClassTotals, Snapshot, Window};
use tidegate_core::room::RoomState;
use tidegate_core::units::{ClassId, Timestamp};

use crate::config::{ClassFacts, Config};

/// What `/v1/state`, `/metrics` and the status line show.
#[derive(Clone)]
pub struct Figures {
    /// When.
    pub at: Timestamp,
    /// All counts since the start.
    pub total: Snapshot,
    /// The last second.
    pub window: Window,
    /// The waiting room.
    pub room: RoomState,
    /// Tier 2.
    pub gate: Totals,
    /// By class: how many wait at the gate, and how many are at the origin.
    pub lines: Vec<(usize, u32)>,
    /// Capacity, outflow and in-flight limit in force.
    pub tunables: Tunables,
    /// What the estimator said last.
    pub estimate: Estimate,
    /// How often it began to look anew.
    pub rediscoveries: u64,
    /// As [`tidegate_core::tune::Overload`] defines it.
    pub is_overloaded: bool,
}

/// A class as it is shown.
pub struct ClassShown<'f> {
    /// Its id.
    pub id: ClassId,
    /// What it is.
    pub facts: &'f ClassFacts,
    /// What it has seen; `None`: it is not counted apart.
    pub totals: Option<Cow<'f, ClassTotals>>,
    /// Requests that wait at the gate.
    pub queued: usize,
    /// Requests at the origin.
    pub in_flight: u32,
}

impl Figures {
    /// The classes in the order of the file, the default class last; then those that a reload has removed while somebody of
    /// them is left.
    pub fn classes<'f>(&'f self, live: &'f Config) -> impl Iterator<Item = ClassShown<'f>> {
        live.in_order().filter_map(|(id, facts)| {
            let (queued, in_flight) = self.lines.get(id.index()).copied().unwrap_or_default();
            let totals = self.total.classes().get(id.index()).map(|counted| facts.totals(counted));
            let is_left = queued > 0 || in_flight > 0 || totals.as_ref().is_some_and(|t| t.in_flight() > 0);
            (!facts.is_gone || is_left).then_some(ClassShown { id, facts, totals, queued, in_flight })
        })
    }
}
