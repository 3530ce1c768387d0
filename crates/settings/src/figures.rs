//! Names that conditions of rules may use besides those of detectors: figures of the gate, and parts of the
//! time.
//!
//! Only the names are settings; the gateway's control side supplies the values.

/// A figure of the gate over the last second, written `figures.NAME` in a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GateFigure {
    /// Requests that arrived, per second.
    OfferedPerS,
    /// Requests sent to the origin, per second.
    AdmittedPerS,
    /// Requests served, per second.
    GoodputPerS,
    /// Requests the origin failed, per second.
    ErrorsPerS,
    /// Mean response time of the origin, in seconds.
    ResponseMean,
    /// 95th percentile of the origin's response time, in seconds.
    ResponseP95,
    /// 99th percentile of the origin's response time, in seconds.
    ResponseP99,
    /// Requests at the origin.
    InFlight,
    /// Admitted requests that wait in the gate's queues.
    Queued,
    /// Visitors in the waiting room.
    Waiting,
    /// The wait of a visitor who comes now, in seconds.
    NewcomerWait,
    /// Capacity in force, in cost units per second; unknown while there is no limit.
    Capacity,
    /// 1 if more work arrives than fits (docs/tuning.md), else 0.
    Overloaded,
}

impl GateFigure {
    /// All figures, in the order in which a compiled condition numbers them.
    pub const ALL: [Self; 13] = [
        Self::OfferedPerS,
        Self::AdmittedPerS,
        Self::GoodputPerS,
        Self::ErrorsPerS,
        Self::ResponseMean,
        Self::ResponseP95,
        Self::ResponseP99,
        Self::InFlight,
        Self::Queued,
        Self::Waiting,
        Self::NewcomerWait,
        Self::Capacity,
        Self::Overloaded,
    ];

    /// The name in a condition.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OfferedPerS => "offered_per_s",
            Self::AdmittedPerS => "admitted_per_s",
            Self::GoodputPerS => "goodput_per_s",
            Self::ErrorsPerS => "errors_per_s",
            Self::ResponseMean => "response_mean",
            Self::ResponseP95 => "response_p95",
            Self::ResponseP99 => "response_p99",
            Self::InFlight => "in_flight",
            Self::Queued => "queued",
            Self::Waiting => "waiting",
            Self::NewcomerWait => "newcomer_wait",
            Self::Capacity => "capacity",
            Self::Overloaded => "overloaded",
        }
    }

    /// The figure of this name, with its index in [`GateFigure::ALL`].
    pub fn named(name: &str) -> Option<(usize, Self)> {
        Self::ALL.into_iter().enumerate().find(|(_, figure)| figure.name() == name)
    }
}

/// Parts of the time in UTC, written `time.NAME` in a condition. Weekdays count from 1, Monday, to 7.
pub const TIMES: [&str; 5] = ["hour", "minute", "weekday", "day", "month"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_found_by_its_name() {
        for (at, figure) in GateFigure::ALL.into_iter().enumerate() {
            assert_eq!(GateFigure::named(figure.name()), Some((at, figure)));
        }
        assert_eq!(GateFigure::named("no_such_figure"), None);
    }
}
