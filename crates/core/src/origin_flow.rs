//! The flow of work to the origin: what the gate has forwarded from one observation to the next. Whoever
//! needs a rate averages it over a time of their own.

use crate::gate::Totals;
use crate::units::{Cost, Timestamp};

/// What went to the origin between two observations of the gate, in cost units.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Sent {
    pub(crate) work: f64,
    /// Of it, what was not of sessions under way.
    pub(crate) entering: f64,
    pub(crate) over_s: f64,
}

/// What the gate had forwarded when it was last observed.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct OriginFlow(Option<(Timestamp, Cost, Cost)>);

impl OriginFlow {
    /// Of a gate that has forwarded nothing until `now`.
    pub(crate) fn from(now: Timestamp) -> Self {
        Self(Some((now, Cost::ZERO, Cost::ZERO)))
    }

    /// Nothing at the first observation of a gate that may have forwarded before.
    pub(crate) fn observe(&mut self, gate: &Totals, now: Timestamp) -> Sent {
        let seen = (now, gate.forwarded_cost, gate.forwarded_entering);
        let (at, work, entering) = self.0.replace(seen).unwrap_or(seen);
        Sent {
            work: gate.forwarded_cost.saturating_sub(work).units(),
            entering: gate.forwarded_entering.saturating_sub(entering).units(),
            over_s: now.since(at).as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_forwarded_before_the_first_observation_counts_where_the_gate_is_known_to_be_new() {
        let gate = |hundredths| {
            let (all, entering) = (Cost::from_hundredths(hundredths), Cost::from_hundredths(hundredths / 10));
            Totals { forwarded_cost: all, forwarded_entering: entering, ..Totals::default() }
        };
        let at = Timestamp::from_secs;
        for (mut flow, first) in [(OriginFlow::default(), 0.0), (OriginFlow::from(at(8)), 7.0)] {
            assert_eq!(flow.observe(&gate(700), at(10)).work, first);
            let Sent { work, entering, over_s } = flow.observe(&gate(1_200), at(12));
            assert_eq!((work, entering, over_s), (5.0, 0.5, 2.0));
            assert_eq!(flow.observe(&gate(0), at(13)).work, 0.0, "a gate that was started anew");
        }
    }
}
