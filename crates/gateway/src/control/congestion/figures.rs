//! Values of the figures and times that conditions may name.

use jiff::tz::TimeZone;
use tidegate_core::units::{Rate, Timestamp};

use crate::shared::figures::Figures;
use tidegate_settings::figures::{GateFigure, TIMES};

/// What a figure of the gate is by the figures of the last second; `None`: not known.
pub(crate) fn value(figure: GateFigure, f: &Figures) -> Option<f64> {
    let total = || f.window.total();
    let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64());
    match figure {
        GateFigure::OfferedPerS => Some(total().offered_per_s),
        GateFigure::AdmittedPerS => Some(total().admitted_per_s),
        GateFigure::GoodputPerS => Some(total().goodput_per_s),
        GateFigure::ErrorsPerS => Some(total().errors_per_s),
        GateFigure::ResponseMean => seconds(total().response.mean),
        GateFigure::ResponseP95 => seconds(total().response.p95),
        GateFigure::ResponseP99 => seconds(total().response.p99),
        GateFigure::InFlight => Some(f.gate.in_flight.into()),
        GateFigure::Queued => Some(f.gate.queued as f64),
        GateFigure::Waiting => Some(f.room.waiting as f64),
        GateFigure::NewcomerWait => Some(f.room.wait.as_secs_f64()),
        GateFigure::Capacity => Some(f.tunables.capacity).filter(|rate| *rate < Rate::MAX).map(Rate::get),
        GateFigure::Overloaded => Some(f64::from(u8::from(f.is_overloaded))),
    }
}

/// The parts of this time, as in [`TIMES`].
pub fn times(now: Timestamp) -> [f64; TIMES.len()] {
    let us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    // A time beyond the calendar (after the year 9999) counts as the calendar's beginning.
    let at = jiff::Timestamp::from_microsecond(us).unwrap_or_default().to_zoned(TimeZone::UTC);
    [at.hour(), at.minute(), at.weekday().to_monday_one_offset(), at.day(), at.month()].map(f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_of_the_calendar() {
        // 2026-11-22T07:08:09Z, a Sunday.
        assert_eq!(times(Timestamp::from_secs(1_795_331_289)), [7.0, 8.0, 7.0, 22.0, 11.0]);
        assert_eq!(times(Timestamp::from_micros(u64::MAX)), [0.0, 0.0, 4.0, 1.0, 1.0]);
    }
}
