//! What the halves of the two-process form send each other (WebQ III-B): tokencheck reports what it saw,
//! tokengen answers with what its decisions are to be based on.

use std::time::Duration;

use crate::capacity::Sample;
use crate::gate::Totals;
use crate::session::{ExpectedSessions, SessionPace};
use crate::units::{Cost, Rate, Timestamp};
use crate::virtual_clock::VirtualTime;

/// Tokencheck reports this often: pages ask about once a second near their turn; updates must not be older.
pub const REPORT_EVERY: Duration = Duration::from_millis(500);
/// Samples in a report: levels of load x classes x outcomes of half a second, some 20 kB on the wire.
pub const MAX_REPORTED_SAMPLES: usize = 512;
/// Slot seconds that wait to be reported: 25 minutes, in some 30 kB on the wire.
const MAX_SHOWN: usize = 1_500;

/// What tokencheck has seen since it last reported.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Feedback {
    /// Which tokencheck: any number that no other has. Those that give none are taken for one.
    pub from: u64,
    /// When it was made, by its clock.
    pub at: Timestamp,
    pub admitted: Cost,
    /// The time in which it was; at most [`REPORT_EVERY`] unless reports were lost.
    pub over: Duration,
    pub queued: Cost,
    /// Work redeemed, by slot second.
    pub shown: Vec<(u64, Cost)>,
    /// Its gate now; `None` from a version that does not report it.
    pub gate: Option<Totals>,
    pub is_origin_gone: bool,
    /// Ended requests, put together; at most [`MAX_REPORTED_SAMPLES`].
    pub samples: Vec<Sample>,
    /// How fast new sessions get session slots there; `None`: as fast as they come.
    pub sessions: Option<SessionPace>,
    /// What open sessions will ask for there; `None`: not known.
    pub expected: Option<ExpectedSessions>,
}

impl Feedback {
    /// Puts a later report of the same sender together with this one, which did not arrive. The room judges
    /// seconds for a minute at least, so the latest of them matter most.
    pub fn merge(&mut self, later: Self) {
        for (second, cost) in later.shown {
            if !add_shown(&mut self.shown, second, cost) {
                self.shown.push((second, cost));
            }
        }
        let excess = self.shown.len().saturating_sub(MAX_SHOWN);
        self.shown.drain(..excess);
        later.samples.iter().for_each(|sample| gather(&mut self.samples, sample));
        *self = Self {
            admitted: self.admitted + later.admitted,
            over: self.over.saturating_add(later.over),
            shown: std::mem::take(&mut self.shown),
            samples: std::mem::take(&mut self.samples),
            ..later
        };
    }
}

/// Adds to what was redeemed of `second`; `false` if it has no entry. Visitors of one second come together:
/// searched from the end, it is found at once.
pub(super) fn add_shown(shown: &mut [(u64, Cost)], second: u64, cost: Cost) -> bool {
    let entry = shown.iter_mut().rev().find(|(s, _)| *s == second);
    entry.map(|(_, sum)| *sum += cost).is_some()
}

/// What tokencheck's decisions are to be based on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ControlUpdate {
    /// Cost units per second the origin can serve.
    pub capacity: Rate,
    pub clock: VirtualTime,
    /// Requests it may have at the origin at once; `None`: no limit but its own.
    pub max_in_flight: Option<u32>,
    /// Of [`super::RoomTargets`].
    pub ceiling: Rate,
    pub is_waited: bool,
    /// The capacity was measured; else it is an initial estimate.
    pub is_measured: bool,
}

/// Puts a sample together with those of the same class and cost that ended among as many requests, with the
/// same outcome. Once there are [`MAX_REPORTED_SAMPLES`] entries, with the entry of its kind that is nearest
/// in load; if there is none, it is dropped.
pub(super) fn gather(into: &mut Vec<Sample>, sample: &Sample) {
    let is_like = |s: &Sample| {
        (s.class, s.cost, s.ok, s.backlog) == (sample.class, sample.cost, sample.ok, sample.backlog)
    };
    if let Some(same) = into.iter_mut().rev().find(|s| s.in_flight == sample.in_flight && is_like(s)) {
        return same.absorb(sample);
    }
    if into.len() < MAX_REPORTED_SAMPLES {
        return into.push(*sample);
    }
    let nearest =
        into.iter_mut().filter(|s| is_like(s)).min_by_key(|s| s.in_flight.abs_diff(sample.in_flight));
    if let Some(nearest) = nearest {
        let in_flight = nearest.in_flight;
        nearest.absorb(sample);
        nearest.in_flight = in_flight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_that_did_not_arrive_are_added_up_and_bounded() {
        let report = |second: u64, from| Feedback {
            from,
            admitted: Cost::ONE,
            over: REPORT_EVERY,
            shown: vec![(second, Cost::ONE), (0, Cost::ONE)],
            ..Feedback::default()
        };
        let mut sum = report(1, 1);
        sum.merge(report(2, 2));
        let two = Cost::from_hundredths(200);
        assert_eq!((sum.admitted, sum.over, sum.from), (two, 2 * REPORT_EVERY, 2));
        assert_eq!(sum.shown, [(1, Cost::ONE), (0, two), (2, Cost::ONE)]);
        (3..5_000).for_each(|second| sum.merge(report(second, 2)));
        assert_eq!(sum.shown.len(), MAX_SHOWN);
        assert!(sum.shown.iter().any(|(second, _)| *second == 4_999), "the oldest are dropped");
    }
}
