//! Spare time that tokengen's backlog has forgotten since tokencheck last reported (two-process form).
//!
//! While reports are lost, tokengen sees no work admitted and takes the origin for idle. The report that
//! comes in the end contains work that the origin did in that very time: booked as if admitted this instant,
//! `n` seconds without reports would hold the virtual clock for `n` seconds. Reports of one interval `d` each
//! would have left, for work `w` admitted evenly over `over`, what is booked here:
//!
//! ```text
//! max(w - the spare work forgotten, in over - d at most,  w * d / over)
//! ```
//!
//! The first is a backlog that stood all the time, the second an origin that was idle between any two
//! reports. A report of one interval is booked whole. Rejected: `w - C * (over - d)`, which takes the time
//! off a second time where a backlog from before the loss has used it.

use std::time::Duration;

use super::report::REPORT_EVERY;
use crate::units::{Cost, Rate};

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SpareTime {
    units: f64,
    seconds: f64,
    /// Whether there was a report before. The time before the first is not in the sums above: this process
    /// may have just started, in front of an origin that has been at work all along.
    is_measured: bool,
}

impl SpareTime {
    /// The backlog has forgotten `seconds` at `capacity`.
    pub(super) fn forgotten(&mut self, seconds: f64, capacity: Rate) {
        self.seconds += seconds;
        self.units += seconds * capacity.get();
    }

    /// What to book of work that was admitted over `over` and is reported now.
    pub(super) fn book(&mut self, admitted: Cost, over: Duration, capacity: Rate) -> Cost {
        let spare = std::mem::replace(self, Self { is_measured: true, ..Self::default() });
        if over <= REPORT_EVERY {
            return admitted;
        }
        let missed_s = (over - REPORT_EVERY).as_secs_f64();
        let done = if !spare.is_measured {
            capacity.get() * missed_s
        } else if spare.seconds > missed_s {
            spare.units * missed_s / spare.seconds
        } else {
            spare.units
        };
        let units = admitted.units();
        let last = units * REPORT_EVERY.as_secs_f64() / over.as_secs_f64();
        Cost::from_hundredths(((units - done).max(last) * 100.0).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_time_while_reports_are_lost_is_not_counted() {
        // Capacity 100/s, a report every 500 ms. (admitted, over ms, spare seconds forgotten, booked)
        let table = [
            (50, 500, 9.0, 50),
            (50, 0, 9.0, 50),
            (5_000, 500, 9.0, 5_000),
            // At capacity, and from a backlog that lasted half the time; all of it.
            (1_000, 10_000, 9.5, 50),
            (1_000, 10_000, 5.0, 500),
            (1_000, 10_000, 0.0, 1_000),
            // More than the capacity: the excess; less: the share of the last interval.
            (1_500, 10_000, 9.5, 550),
            (400, 10_000, 9.5, 20),
            (0, 10_000, 9.5, 0),
            // A report of less time than this room was without one: no more than its own.
            (400, 2_000, 50.0, 250),
            // An absurd clock of the sender: no more than was forgotten here.
            (5_000, u64::MAX, 9.5, 4_050),
        ];
        let capacity = Rate::per_second(100.0).unwrap_or_default();
        for (admitted, over_ms, seconds, expected) in table {
            let mut spare = SpareTime { is_measured: true, ..SpareTime::default() };
            spare.forgotten(seconds, capacity);
            let over = Duration::from_millis(over_ms);
            let booked = spare.book(Cost::from_hundredths(admitted * 100), over, capacity);
            assert_eq!(booked, Cost::from_hundredths(expected * 100), "{admitted} over {over_ms} ms");
            let again = spare.book(Cost::ONE, Duration::from_secs(60), capacity);
            assert_eq!(again, Cost::ONE, "spare time is used once");
        }
        let over = Duration::from_secs(20);
        let first = SpareTime::default().book(capacity.over(over), over, capacity);
        assert_eq!(first, capacity.over(REPORT_EVERY), "a tokengen that has just started");
        let closed = SpareTime::default().book(Cost::ONE, over, Rate::ZERO);
        assert_eq!(closed, Cost::ONE);
    }
}
