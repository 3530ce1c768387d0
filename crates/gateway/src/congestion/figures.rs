//! Figures of the gate that conditions may name, beside those of detectors; and the time.

use jiff::tz::TimeZone;
use tidegate_core::units::{Rate, Timestamp};

use crate::driver::Figures;

/// A figure of the last second.
pub struct Figure {
    /// As in `figures.NAME`.
    pub name: &'static str,
    /// What it is, with its unit.
    pub about: &'static str,
    /// `None`: not known.
    pub get: fn(&Figures) -> Option<f64>,
}

fn seconds(time: Option<std::time::Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

/// All of them.
pub const FIGURES: &[Figure] = &[
    Figure {
        name: "offered_per_s",
        about: "Requests that came, per second.",
        get: |f| Some(f.window.total().offered_per_s),
    },
    Figure {
        name: "admitted_per_s",
        about: "Requests sent to the origin, per second.",
        get: |f| Some(f.window.total().admitted_per_s),
    },
    Figure {
        name: "goodput_per_s",
        about: "Requests served, per second.",
        get: |f| Some(f.window.total().goodput_per_s),
    },
    Figure {
        name: "errors_per_s",
        about: "Requests the origin failed, per second.",
        get: |f| Some(f.window.total().errors_per_s),
    },
    Figure {
        name: "response_mean",
        about: "Mean response time of the origin, in seconds.",
        get: |f| seconds(f.window.total().response.mean),
    },
    Figure {
        name: "response_p95",
        about: "95th percentile of it, in seconds.",
        get: |f| seconds(f.window.total().response.p95),
    },
    Figure {
        name: "response_p99",
        about: "99th percentile of it, in seconds.",
        get: |f| seconds(f.window.total().response.p99),
    },
    Figure { name: "in_flight", about: "Requests at the origin.", get: |f| Some(f.gate.in_flight.into()) },
    Figure {
        name: "queued",
        about: "Admitted requests that wait for the origin.",
        get: |f| Some(f.gate.queued as f64),
    },
    Figure { name: "waiting", about: "Visitors in the waiting room.", get: |f| Some(f.room.waiting as f64) },
    Figure {
        name: "newcomer_wait",
        about: "What a newcomer would wait there, in seconds.",
        get: |f| Some(f.room.wait.as_secs_f64()),
    },
    Figure {
        name: "capacity",
        about: "Capacity in force, in cost units per second; unknown while there is no limit.",
        get: |f| Some(f.tunables.capacity).filter(|rate| *rate < Rate::MAX).map(Rate::get),
    },
    Figure {
        name: "overloaded",
        about: "1 if more work comes than fits (docs/tuning.md), else 0.",
        get: |f| Some(f64::from(u8::from(f.is_overloaded))),
    },
];

/// Parts of the time, in UTC: as in `time.NAME`. Weekdays from 1, Monday, to 7.
pub const TIMES: [&str; 5] = ["hour", "minute", "weekday", "day", "month"];

/// The parts of this time, as in [`TIMES`].
pub fn times(now: Timestamp) -> [f64; TIMES.len()] {
    let us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    // Beyond the calendar (the year 9999) it is its beginning.
    let at = jiff::Timestamp::from_microsecond(us).unwrap_or_default().to_zoned(TimeZone::UTC);
    [at.hour(), at.minute(), at.weekday().to_monday_one_offset(), at.day(), at.month()].map(f64::from)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_names_and_differ() {
        let names: HashSet<_> = FIGURES.iter().map(|figure| figure.name).collect();
        assert_eq!(names.len(), FIGURES.len());
        assert!(FIGURES.iter().all(|figure| figure.about.ends_with('.')));
    }

    #[test]
    fn time_is_of_the_calendar() {
        // 2026-11-22T07:08:09Z, a Sunday.
        assert_eq!(times(Timestamp::from_secs(1_795_331_289)), [7.0, 8.0, 7.0, 22.0, 11.0]);
        assert_eq!(times(Timestamp::from_micros(u64::MAX)), [0.0, 0.0, 4.0, 1.0, 1.0]);
    }
}
