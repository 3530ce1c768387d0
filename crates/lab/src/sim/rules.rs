//! Detectors and rules of a process, on the gateway's own congestion control, in virtual time.
//!
//! Left out: sources and signals (nobody reports to a simulated gate), and `control.overloaded`.

use std::sync::Arc;

use tidegate_core::capacity::Estimate;
use tidegate_core::control::Tunables;
use tidegate_core::detect::SessionCount;
use tidegate_core::gate::Totals;
use tidegate_core::measure::{Shard, Snapshot, Window};
use tidegate_core::room::RoomState;
use tidegate_core::units::Timestamp;
use tidegate_gateway::config::Config;
use tidegate_gateway::control::congestion::readings::Readings;
use tidegate_gateway::control::congestion::{Congestion, Measured, Publish};
use tidegate_gateway::shared::Drain;
use tidegate_gateway::shared::figures::Figures;
use tidegate_gateway::shared::policies::{PoliciesInForce, PublishedPolicies};
use tokio::sync::watch;

pub(crate) struct Rules {
    congestion: Congestion,
    published: PublishedPolicies,
    readings: Readings,
    wake: watch::Sender<Drain>,
    /// As of the last second.
    shown: Snapshot,
    in_force: Option<Arc<PoliciesInForce>>,
}

pub(crate) struct Known<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) sessions: Option<SessionCount>,
    pub(crate) room: RoomState,
    pub(crate) gate: &'a Totals,
    pub(crate) tunables: Tunables,
    pub(crate) estimate: Estimate,
}

impl Rules {
    /// `None`: the configuration has no rules.
    pub(crate) fn new(config: &Config, shard: &Shard, now: Timestamp) -> Option<Self> {
        (!config.plan.rules.is_empty()).then(|| Self {
            congestion: Congestion::new(config.plan.clone()),
            published: PublishedPolicies::default(),
            readings: Readings::default(),
            wake: watch::Sender::new(Drain::No),
            shown: Snapshot::take([shard], now),
            in_force: None,
        })
    }

    pub(crate) fn tick(&mut self, config: &Config, known: Known<'_>, now: Timestamp) {
        let snapshot = Snapshot::take([known.shard], now);
        if now.second() > self.shown.at.second() {
            let shown = std::mem::replace(&mut self.shown, snapshot.clone());
            self.congestion.second(&Figures {
                at: now,
                window: Window::between(&shown, &snapshot),
                total: snapshot.clone(),
                room: known.room,
                gate: *known.gate,
                loads: Vec::new(),
                costs: Vec::new(),
                tunables: known.tunables,
                estimate: known.estimate,
                rediscoveries: 0,
                is_overloaded: false,
            });
        }
        let (snapshot, readings) = (&snapshot, &self.readings);
        let measured = Measured { snapshot, connections: 0, sessions: known.sessions, readings };
        let publish = Publish { enforcement: &self.published, wake: &self.wake };
        self.congestion.tick(&config.plan, &measured, &publish, now);
        let in_force = self.published.standing();
        self.in_force = (!in_force.set.is_empty()).then_some(in_force);
    }

    pub(crate) fn in_force(&self) -> Option<&Arc<PoliciesInForce>> {
        self.in_force.as_ref()
    }
}
