//! What the halves of the two-process form tell each other (WebQ III-B): tokencheck reports what it saw, tokengen answers with
//! what to go by.

use std::time::Duration;

use crate::capacity::Sample;
use crate::gate::Totals;
use crate::hand::HandValue;
use crate::session::SessionPace;
use crate::units::{Cost, Rate, Timestamp};

/// Tokencheck reports this often: a visitor's page asks about once a second near its turn, orders must not be older.
pub const REPORT_EVERY: Duration = Duration::from_millis(500);
/// Samples in a report: as many as levels of load, classes and ends make up in half a second, in some 20 kB on the wire.
pub const MAX_REPORTED_SAMPLES: usize = 512;
/// Slot seconds that wait to be reported: 25 minutes, in some 30 kB on the wire.
const MAX_SHOWN: usize = 1_500;

/// What tokencheck has seen since it last reported.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Feedback {
    /// Which tokencheck: any number that no other has. Those that give none are taken for one.
    pub from: u64,
    /// When, by its clock.
    pub at: Timestamp,
    /// Work admitted.
    pub admitted: Cost,
    /// The time in which it was; at most [`REPORT_EVERY`] unless reports were lost.
    pub over: Duration,
    /// Work that waits for the origin now.
    pub queued: Cost,
    /// Work redeemed, by slot second.
    pub shown: Vec<(u64, Cost)>,
    /// Its gate now; `None` from a version that does not tell.
    pub gate: Option<Totals>,
    /// It has no replica to send anybody to.
    pub is_origin_gone: bool,
    /// What the origin made of requests, put together; at most [`MAX_REPORTED_SAMPLES`].
    pub samples: Vec<Sample>,
    /// How fast new sessions find places there; `None`: as fast as they come.
    pub sessions: Option<SessionPace>,
}

impl Feedback {
    /// Puts a later report of the same sender with this one, which did not arrive. The room judges seconds for a minute at
    /// least, so the latest of them matter most.
    pub fn merge(&mut self, later: Self) {
        self.admitted += later.admitted;
        self.over = self.over.saturating_add(later.over);
        for (second, cost) in later.shown {
            match self.shown.iter_mut().rev().find(|(s, _)| *s == second) {
                Some((_, sum)) => *sum += cost,
                None => self.shown.push((second, cost)),
            }
        }
        let excess = self.shown.len().saturating_sub(MAX_SHOWN);
        self.shown.drain(..excess);
        later.samples.iter().for_each(|sample| gather(&mut self.samples, sample));
        let Self { from, at, queued, gate, is_origin_gone, sessions, .. } = later;
        let (admitted, over, shown, samples) =
            (self.admitted, self.over, std::mem::take(&mut self.shown), std::mem::take(&mut self.samples));
        *self = Self { from, at, admitted, over, queued, shown, gate, is_origin_gone, samples, sessions };
    }
}

/// What tokencheck is to go by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Orders {
    /// What the origin can serve.
    pub capacity: Rate,
    /// Where the schedule's hand stands.
    pub hand: HandValue,
    /// Requests it may have at the origin at once; `None`: no limit but its own.
    pub max_in_flight: Option<u32>,
    /// That limit governs: its gate's queue is what counts, not the capacity.
    pub keeps_queue: bool,
    /// Most cost units per second let in; [`Rate::MAX`] for no bound.
    pub ceiling: Rate,
    /// Somebody waits in the room.
    pub is_waited: bool,
    /// The capacity is no guess.
    pub is_measured: bool,
}

/// Puts a sample with those that ended in like manner: of the same class and cost, among as many, with the same outcome. Once
/// there are [`MAX_REPORTED_SAMPLES`] of them, with the one nearest in load; where there is none of its kind, it is dropped.
pub(crate) fn gather(into: &mut Vec<Sample>, sample: &Sample) {
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
