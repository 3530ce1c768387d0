//! Makes rows of the history from the figures of every second. Nothing here waits.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::measure::ClassTotals;
use tidegate_core::units::{ClassId, Timestamp};
use tidegate_settings::Detector;

use crate::config::ClassFacts;
use crate::control::congestion::Congestion;
use crate::history::archive::{Second, Series};
use crate::history::metrics::{
    ClassSecond, DetectorSecond, GateSecond, SynSecond, class_values, detector_values, gate_values,
};
use crate::shared::Shared;
use crate::shared::figures::{Figures, TierShown};
use crate::shared::sessions;

/// What one second's row needs of the seconds before.
#[derive(Default)]
pub struct Observer {
    classes: Vec<KnownClass>,
    /// The names of the service levels in the second before.
    tiers: Option<Vec<String>>,
    abandoned: u64,
    last: Option<u64>,
}

struct KnownClass {
    id: ClassId,
    name: Arc<str>,
    series: Series,
}

/// A late tick sees several seconds as one. Up to so many get equal rows; a longer gap stays a gap, since the
/// machine slept or its clock was set.
pub(crate) const LATE: u64 = 5;

impl Observer {
    /// Passes the seconds that ended since the last call to `keep`: one, unless the tick was late.
    pub fn observe(
        &mut self,
        f: &Figures,
        shared: &Shared,
        syns: Option<SynSecond>,
        detectors: Vec<(Series, Vec<f32>)>,
        mut keep: impl FnMut(Second),
    ) {
        let mut second = self.second(f, shared, syns);
        // Last: where there are more series than are kept, those of classes go first.
        second.series.extend(detectors);
        for at in unseen(self.last.replace(second.at), second.at) {
            keep(Second { at, ..second.clone() });
        }
        keep(second);
    }

    fn second(&mut self, f: &Figures, shared: &Shared, syns: Option<SynSecond>) -> Second {
        let span = f.window.span.as_secs_f64();
        let gone = f.gate.abandoned.saturating_sub(std::mem::replace(&mut self.abandoned, f.gate.abandoned));
        let gate = GateSecond {
            tunables: f.tunables,
            estimate: f.estimate,
            room: f.room,
            gate: f.gate,
            abandoned_per_s: if span > 0.0 { gone as f64 / span } else { 0.0 },
            connections: shared.connections.load(Ordering::Relaxed),
            sessions: sessions::counted(shared).map(|table| table.count().open),
            syns,
        };
        let mut series = vec![(Series::gate(), gate_values(&gate)), (Series::all(), class_values(&all(f)))];
        let live = shared.config.load();
        for shown in f.classes(&live) {
            if let (Some(its), Some(values)) =
                (self.series(shown.id, shown.facts), class(f, shown.id.index()))
            {
                series.push((its, class_values(&values)));
            }
        }
        let tiers: Vec<_> = f.tiers(&live).collect();
        let names: Vec<_> = tiers.iter().map(|tier| tier.name.to_owned()).collect();
        // In the second of a reload the counts of an id may be those of two levels.
        if self.tiers.as_ref().is_none_or(|before| *before == names) {
            let values = |tier: &TierShown<'_>| ClassSecond {
                figures: f.window.tier(tier.id),
                in_flight: tier.totals.in_flight(),
                queued: None,
            };
            series.extend(tiers.iter().map(|tier| (Series::tier(tier.name), class_values(&values(tier)))));
        }
        self.tiers = Some(names);
        Second { at: f.at.second().saturating_sub(1), series }
    }

    /// A class's series. `None`: its id was another class's in the second before, so the counts mix both.
    fn series(&mut self, id: ClassId, facts: &ClassFacts) -> Option<Series> {
        let known = self.classes.iter_mut().find(|known| known.id == id);
        if let Some(known) = &known
            && known.name == facts.name
        {
            return Some(known.series.clone());
        }
        let new = KnownClass { id, name: facts.name.clone(), series: Series::class(&facts.name) };
        match known {
            Some(known) => {
                *known = new;
                None
            }
            None => {
                self.classes.push(new);
                self.classes.last().map(|known| known.series.clone())
            }
        }
    }
}

/// The rows of the detectors; one that a reload adds or names anew has a series of its own from then on.
pub(crate) fn detectors(congestion: &Congestion, now: Timestamp) -> Vec<(Series, Vec<f32>)> {
    let row = |(detector, second): (&Detector, DetectorSecond)| {
        (Series::detector(&detector.name), detector_values(&second))
    };
    congestion.seconds(now).map(row).collect()
}

pub(crate) fn all(f: &Figures) -> ClassSecond {
    ClassSecond {
        figures: f.window.total(),
        in_flight: f.total.classes().iter().map(ClassTotals::in_flight).sum(),
        queued: Some(f.gate.queued as u64),
    }
}

/// The last second of one class; `None`: it is not counted apart.
pub(crate) fn class(f: &Figures, id: usize) -> Option<ClassSecond> {
    let totals = f.total.classes().get(id)?;
    let figures = f.window.class(ClassId(id as u8));
    let queued = f.loads.get(id).map(|load| load.queued as u64);
    Some(ClassSecond { figures, in_flight: totals.in_flight(), queued })
}

/// Seconds between the last one and `now` that a late tick has seen together with `now`.
fn unseen(last: Option<u64>, now: u64) -> Range<u64> {
    match last {
        Some(last) if last < now && now - last <= LATE => last + 1..now,
        _ => now..now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_tick_leaves_no_gap_and_a_sleeping_machine_does() {
        for (last, now, seconds) in [
            (None, 100, vec![]),
            (Some(99), 100, vec![]),
            (Some(97), 100, vec![98, 99]),
            (Some(95), 100, vec![96, 97, 98, 99]),
            (Some(94), 100, vec![]),
            (Some(100), 100, vec![]),
            (Some(200), 100, vec![]),
        ] {
            assert_eq!(Vec::from_iter(unseen(last, now)), seconds, "{last:?}");
        }
    }
}
