//! The figures of one second.

use std::borrow::Cow;

use tidegate_core::capacity::{Estimate, LearnedCost};
use tidegate_core::class_costs::LEARNED_FROM;
use tidegate_core::control::Tunables;
use tidegate_core::gate::Totals;
use tidegate_core::measure::{ClassTotals, Snapshot, Window};
use tidegate_core::policies::TierId;
use tidegate_core::room::RoomState;
use tidegate_core::units::{ClassId, Cost, Timestamp};

use crate::config::{ClassFacts, Config};
use crate::shared::gate_keeper::ClassLoad;

/// The figures behind `/v1/state`, `/metrics`, rules and the status line.
#[derive(Clone)]
pub struct Figures {
    pub at: Timestamp,
    /// All counts since the start.
    pub total: Snapshot,
    /// The last second.
    pub window: Window,
    pub room: RoomState,
    pub gate: Totals,
    /// By class id.
    pub loads: Vec<ClassLoad>,
    pub costs: Vec<CostFigures>,
    pub tunables: Tunables,
    pub estimate: Estimate,
    pub rediscoveries: u64,
    /// As [`tidegate_core::tune::Overload`] defines it.
    pub is_overloaded: bool,
}

/// What a class costs.
#[derive(Clone, Copy, Debug)]
pub struct CostFigures {
    /// What a request is charged.
    pub charged: Cost,
    /// What the estimator knows; `None`: it learns no costs.
    pub learned: Option<LearnedCost>,
}

impl CostFigures {
    /// What the estimator knows, if it has seen requests of the class.
    pub fn known(&self) -> Option<LearnedCost> {
        self.learned.filter(|learned| learned.samples > 0.0)
    }
}

pub struct ClassShown<'f> {
    /// Its id in the configuration in force.
    pub id: ClassId,
    pub facts: &'f ClassFacts,
    /// Its counts since the start; `None`: it is not counted apart.
    pub totals: Option<Cow<'f, ClassTotals>>,
    pub load: ClassLoad,
    pub cost: CostFigures,
}

pub struct TierShown<'f> {
    pub id: TierId,
    pub name: &'f str,
    /// Its counts since the start.
    pub totals: Cow<'f, ClassTotals>,
}

impl Figures {
    /// The service levels in the order of the file, that of everybody else first; none where none is
    /// configured.
    pub fn tiers<'f>(&'f self, live: &'f Config) -> impl Iterator<Item = TierShown<'f>> {
        let all = (!live.tiers.is_empty()).then(|| live.tiers.all()).into_iter().flatten();
        all.map(|(id, name)| {
            let counted = self.total.tiers().get(usize::from(id.0));
            let totals =
                counted.map_or_else(|| Cow::Owned(ClassTotals::default()), |c| live.tier_totals(id, c));
            TierShown { id, name, totals }
        })
    }

    /// The classes in the order of the file, the default class last; then those that a reload has removed and
    /// that still have requests.
    pub fn classes<'f>(&'f self, live: &'f Config) -> impl Iterator<Item = ClassShown<'f>> {
        live.in_order().filter_map(|(id, facts)| {
            let load = self.loads.get(id.index()).copied().unwrap_or_default();
            let totals = self.total.classes().get(id.index()).map(|counted| facts.totals(counted));
            let is_left = !load.is_idle() || totals.as_ref().is_some_and(|t| t.in_flight() > 0);
            let unknown = CostFigures { charged: LEARNED_FROM, learned: None };
            let cost = self.costs.get(id.index()).copied().unwrap_or(unknown);
            (!facts.is_gone || is_left).then_some(ClassShown { id, facts, totals, load, cost })
        })
    }
}
