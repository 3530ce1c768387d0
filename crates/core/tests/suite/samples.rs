//! A sample that tests vary.

use std::time::Duration;

use tidegate_core::capacity::Sample;
use tidegate_core::units::{ClassId, Cost, Timestamp};

/// A request of cost 1 that was served alone, while others waited.
pub const SERVED: Sample = Sample {
    class: ClassId(0),
    cost: Cost::ONE,
    count: 1,
    ended: Timestamp::from_secs(0),
    response: Duration::ZERO,
    lingered: Duration::ZERO,
    in_flight: 1,
    ok: true,
    backlog: true,
};
