//! Names that conditions of rules may use besides those of detectors: figures of the gate, and parts of the
//! time.
//!
//! Only the names are settings; the gateway's control side supplies the values.

macro_rules! figures {
    ($($(#[doc = $doc:literal])+ $figure:ident = $name:literal,)+) => {
        /// A figure of the gate over the last second, written `figures.NAME` in a condition.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum GateFigure {
            $($(#[doc = $doc])+ $figure,)+
        }

        impl GateFigure {
            /// All figures, in the order in which a compiled condition numbers them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$figure),+];

            /// The name in a condition.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$figure => $name,)+
                }
            }
        }
    };
}

figures! {
    /// Requests that arrived, per second.
    OfferedPerS = "offered_per_s",
    /// Requests sent to the origin, per second.
    AdmittedPerS = "admitted_per_s",
    /// Requests served, per second.
    GoodputPerS = "goodput_per_s",
    /// Requests the origin failed, per second.
    ErrorsPerS = "errors_per_s",
    /// Mean response time of the origin, in seconds.
    ResponseMean = "response_mean",
    /// 95th percentile of the origin's response time, in seconds.
    ResponseP95 = "response_p95",
    /// 99th percentile of the origin's response time, in seconds.
    ResponseP99 = "response_p99",
    /// Requests at the origin.
    InFlight = "in_flight",
    /// Admitted requests that wait in the gate's queues.
    Queued = "queued",
    /// Age of the oldest request that waits for its answer, at the gate or at the origin, in seconds.
    Oldest = "oldest",
    /// Visitors in the waiting room.
    Waiting = "waiting",
    /// The wait of a visitor who comes now, in seconds.
    NewcomerWait = "newcomer_wait",
    /// Capacity in force, in cost units per second; unknown while there is no limit.
    Capacity = "capacity",
    /// 1 if more work arrives than fits (docs/tuning.md), else 0.
    Overloaded = "overloaded",
}

impl GateFigure {
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
