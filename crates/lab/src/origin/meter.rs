//! Requests that reached the origin and how they ended, second by second of the wall clock.
//!
//! Seconds are whole ones of Unix time, so that several origins' series, and a load generator's, can be laid
//! over one another. The first second is the one in which the origin started. A second in which nothing
//! happened is there too.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_gateway::base::clock::Clock;

use super::Stats;

/// Seconds kept: a day, some 4 MB. Older ones go.
const MAX_SECONDS: usize = 24 * 3600;
const SECOND_US: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DoorSecond {
    pub t: u64,
    /// Requests that came: the offered load.
    pub arrived: u64,
    pub served: u64,
    /// Requests refused, or answered with an error.
    pub refused: u64,
    pub wasted: u64,
    /// Requests there at its end; of the present second: now.
    pub present: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Series {
    /// Beginning of second 0, in microseconds of Unix time.
    pub started_us: u64,
    /// The seconds, without a gap; the oldest may be gone.
    pub seconds: Vec<DoorSecond>,
}

/// The pure part: seconds and totals, with the time as an argument.
struct Counts {
    started_us: u64,
    seconds: VecDeque<DoorSecond>,
    total: DoorSecond,
    peak: u64,
}

impl Counts {
    fn new(now_us: u64) -> Self {
        Self {
            started_us: now_us - now_us % SECOND_US,
            seconds: VecDeque::from([DoorSecond::default()]),
            total: DoorSecond::default(),
            peak: 0,
        }
    }

    /// Opens every second up to that of `now_us`; requests present stay present.
    fn roll(&mut self, now_us: u64) -> &mut DoorSecond {
        let t = now_us.saturating_sub(self.started_us) / SECOND_US;
        let last = self.seconds.back().map_or(0, |second| second.t);
        // After a leap of the clock only what will be kept is written.
        let first = (last + 1).max((t + 1).saturating_sub(MAX_SECONDS as u64));
        for t in first..=t {
            if self.seconds.len() == MAX_SECONDS {
                self.seconds.pop_front();
            }
            self.seconds.push_back(DoorSecond { t, present: self.total.present, ..DoorSecond::default() });
        }
        let end = self.seconds.len() - 1;
        &mut self.seconds[end]
    }

    fn note(&mut self, now_us: u64, note: impl Fn(&mut DoorSecond)) {
        note(self.roll(now_us));
        note(&mut self.total);
        self.peak = self.peak.max(self.total.present);
    }
}

/// Counts requests; shared by all replicas of an origin.
pub struct Meter {
    clock: Clock,
    counts: Mutex<Counts>,
}

impl Meter {
    pub fn new() -> Arc<Self> {
        let clock = Clock::new();
        let counts = Mutex::new(Counts::new(clock.now().as_micros()));
        Arc::new(Self { clock, counts })
    }

    pub fn arrive(self: &Arc<Self>) -> Visit {
        self.note(|second| {
            second.arrived += 1;
            second.present += 1;
        });
        Visit { meter: Arc::clone(self), outcome: |second| second.wasted += 1 }
    }

    pub fn series(&self) -> Series {
        let mut counts = self.counts.lock();
        counts.roll(self.clock.now().as_micros());
        Series { started_us: counts.started_us, seconds: counts.seconds.iter().copied().collect() }
    }

    /// The totals, for a service that does not keep its own: requests present count as in service.
    pub fn stats(&self) -> Stats {
        let counts = self.counts.lock();
        let DoorSecond { arrived, served, refused, wasted, present, .. } = counts.total;
        Stats {
            submitted: arrived,
            served,
            refused,
            wasted,
            in_service: present as usize,
            peak: counts.peak as usize,
            ..Stats::default()
        }
    }

    fn note(&self, note: impl Fn(&mut DoorSecond)) {
        let now_us = self.clock.now().as_micros();
        self.counts.lock().note(now_us, note);
    }
}

/// A request that is there. To be kept for as long as it is worked on; dropped without an outcome, its
/// visitor has left and the work was in vain.
#[must_use]
pub struct Visit {
    meter: Arc<Meter>,
    outcome: fn(&mut DoorSecond),
}

impl Visit {
    pub fn served(mut self) {
        self.outcome = |second| second.served += 1;
    }

    pub fn refused(mut self) {
        self.outcome = |second| second.refused += 1;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.meter.note(|second| {
            (self.outcome)(second);
            second.present -= 1;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_seconds_are_there_and_old_ones_go() {
        let start = 1_700_000_000 * SECOND_US;
        let mut counts = Counts::new(start + 400_000);
        assert_eq!(counts.started_us, start);
        let arrive = |second: &mut DoorSecond| {
            second.arrived += 1;
            second.present += 1;
        };
        counts.note(start + 500_000, arrive);
        counts.note(start + 999_999, arrive);
        counts.note(start + 3_000_000, |second| {
            second.served += 1;
            second.present -= 1;
        });
        counts.roll(start + 4_500_000);
        let seen: Vec<_> = counts.seconds.iter().map(|s| (s.t, s.arrived, s.served, s.present)).collect();
        assert_eq!(seen, [(0, 2, 0, 2), (1, 0, 0, 2), (2, 0, 0, 2), (3, 0, 1, 1), (4, 0, 0, 1)]);
        assert_eq!((counts.total.arrived, counts.peak), (2, 2));

        let later = MAX_SECONDS as u64 * 3;
        counts.note(start + later * SECOND_US, arrive);
        assert_eq!(counts.seconds.len(), MAX_SECONDS);
        assert_eq!(counts.seconds.front().map(|s| s.t), Some(later + 1 - MAX_SECONDS as u64));
        assert_eq!(counts.seconds.back().map(|s| (s.t, s.arrived, s.present)), Some((later, 1, 2)));
    }

    #[test]
    fn a_visit_ends_once() {
        let meter = Meter::new();
        let (served, refused, left) = (meter.arrive(), meter.arrive(), meter.arrive());
        let there = meter.arrive();
        served.served();
        refused.refused();
        drop(left);
        let stats = meter.stats();
        assert_eq!((stats.submitted, stats.served, stats.refused, stats.wasted), (4, 1, 1, 1));
        assert_eq!((stats.present(), stats.peak), (1, 4));
        drop(there);
        let series = meter.series();
        let wasted: u64 = series.seconds.iter().map(|second| second.wasted).sum();
        assert_eq!((wasted, series.seconds.last().map(|second| second.present)), (2, Some(0)));
    }
}
