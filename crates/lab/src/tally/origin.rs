//! The origin's load and the gate's control side as a simulation sees them. In a real run the origin's own
//! series and the gate's figures are added afterwards ([`crate::outcome::Outcome::set_door`],
//! [`crate::outcome::Outcome::set_gate`]).
//!
//! Answers are kept whole for the second under way, so that its 99th percentile is exact: a histogram a
//! second would take 200 kB each, a coarse one would hide what an in-flight limit does.

use std::time::Duration;

use super::Tally;
use crate::stats::percentile;
use crate::times::micros;

#[cfg(test)]
mod tests;

/// Time that the origin took for each answer of one second, in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    second: u64,
    us: Vec<u32>,
}

impl Answers {
    /// The second, and its 99th percentile: the least time that 99 of 100 answers do not exceed. `None`: no
    /// answers.
    pub fn p99_us(&mut self) -> Option<(u64, u32)> {
        Some((self.second, percentile(&mut self.us, 0.99)?))
    }

    /// Takes over another part's, of the same second or later ones. Only one part of a run sees the origin.
    pub fn merge(&mut self, other: &Self) {
        if other.second > self.second {
            self.us.clear();
            self.second = other.second;
        }
        if other.second == self.second {
            self.us.extend(&other.us);
        }
    }
}

impl Tally {
    #[inline]
    pub fn door(&mut self, at: Duration) {
        self.door += 1;
        self.row(at, |row| {
            row.door += 1;
            row.origin_present += 1;
        });
    }

    /// A request that reached the origin carries this many units of cost. Only the simulator knows: over
    /// sockets, the origin does not know a request's class.
    #[inline]
    pub fn door_units(&mut self, at: Duration, units: f64) {
        self.row(at, |row| row.door_units += units);
    }

    #[inline]
    pub fn origin_served(&mut self, at: Duration, took: Duration) {
        let us = micros(took);
        if at.as_secs() != self.answers.second {
            self.end_second();
            self.answers.second = at.as_secs();
        }
        self.answers.us.push(u32::try_from(us).unwrap_or(u32::MAX));
        self.row(at, |row| {
            row.origin_served += 1;
            row.origin_present -= 1;
            row.origin_us += us;
        });
    }

    /// A request has left the origin unserved: refused, lost in a crash, given up.
    #[inline]
    pub fn origin_lost(&mut self, at: Duration) {
        self.row(at, |row| row.origin_present -= 1);
    }

    /// The gate's estimate of the capacity from now on, in cost units per second (0: it does not know), and
    /// lets the origin work on so many requests at once (`None`: it sets no limit).
    pub fn capacity(&mut self, at: Duration, rps: f64, limit: Option<u32>) {
        self.row(at, |row| {
            row.capacity_rps = Some(rps);
            row.limit = Some(limit.unwrap_or(0));
        });
    }

    #[cold]
    fn end_second(&mut self) {
        if let Some((second, p99)) = self.answers.p99_us() {
            self.row(Duration::from_secs(second), |row| row.origin_p99_us = p99);
        }
        self.answers.us.clear();
    }
}
