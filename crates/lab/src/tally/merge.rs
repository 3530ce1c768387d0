//! Two parts of one run, such as the threads of a load, as one.

use super::{Failures, Sums, Tally};

impl Tally {
    /// Adds the figures of another part of the same run, its times counting from the same start: the threads of one
    /// load. Exactly what one tally of both would hold.
    pub fn merge(&mut self, other: &Self) {
        self.offered += other.offered;
        self.done += other.done;
        self.failed += other.failed;
        self.no_shows += other.no_shows;
        self.tired += other.tired;
        self.told += other.told;
        self.waiting += other.waiting;
        self.in_flight += other.in_flight;
        self.requests += other.requests;
        self.polls += other.polls;
        self.served += other.served;
        self.full += other.full;
        self.attacks_sent += other.attacks_sent;
        self.attacks_let_in += other.attacks_let_in;
        self.failures.add(&other.failures);
        self.given_up += other.given_up;
        self.door += other.door;
        for (mine, theirs) in [
            (&mut self.response_us, &other.response_us),
            (&mut self.wait_ms, &other.wait_ms),
            (&mut self.lag_us, &other.lag_us),
        ] {
            mine.add(theirs).expect("histograms of the same bounds");
        }
        self.lasted = self.lasted.max(other.lasted);
        self.present += other.present;
        self.sums.add(&other.sums);
        self.rows.merge(&other.rows);
        self.bins.merge(&other.bins);
        self.answers.merge(&other.answers);
        self.kinds.merge(&other.kinds);
        match (&mut self.measured, &other.measured) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (None, theirs) => self.measured = theirs.clone(),
            (Some(_), None) => {}
        }
    }
}

impl Failures {
    fn add(&mut self, other: &Self) {
        self.refused += other.refused;
        self.connect += other.connect;
        self.broken += other.broken;
        self.patience += other.patience;
        self.bench += other.bench;
    }
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.response_us += other.response_us;
        self.given_up_us += other.given_up_us;
        self.wait_us += other.wait_us;
        self.response_max_us = self.response_max_us.max(other.response_max_us);
        self.wait_max_us = self.wait_max_us.max(other.wait_max_us);
        self.at_once += other.at_once;
    }
}
