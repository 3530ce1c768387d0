//! The estimate of tokengen while it receives no reports from tokencheck.
//!
//! ```text
//! silent for t <= 5 s:  C = the last estimate
//! then                  C = floor + (C - floor) * exp(-(t - 5 s) / 10 s)
//! ```
//!
//! The estimator is not asked meanwhile, because it would take an origin without samples for idle. It
//! continues from its last state when reports resume. Rejected: holding for ever (an origin that has become
//! slower would be flooded), and falling at once (every restart of a link would cost throughput). A
//! configured capacity needs no reports and stays.

use std::time::Duration;

use crate::capacity::{Estimate, Phase};
use crate::decaying::keep;
use crate::units::Rate;

/// The last estimate holds for as long as tokencheck follows the last update; reconnecting takes 1 or 2 s.
const HOLD: Duration = Duration::from_secs(5);
/// Time constant of the decay in seconds: slower than origins fail, faster than a crowd passes.
const DECAY_S: f64 = 10.0;
/// The floor over the last estimate, if the operator gave none: few origins lose more, and visitors get in.
const FLOOR: f64 = 0.1;

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Silence(Duration);

impl Silence {
    pub(super) fn new(silence: Duration, last: &Estimate) -> Self {
        Self(if last.phase == Phase::Configured { Duration::ZERO } else { silence })
    }

    pub(super) fn decayed(&self, last: &Estimate, floor: Rate) -> Estimate {
        if self.0.is_zero() {
            return *last;
        }
        let known = last.capacity.get();
        let floor = if floor > Rate::ZERO { floor.get().min(known) } else { known * FLOOR };
        let over_s = self.0.saturating_sub(HOLD).as_secs_f64();
        let left = floor + (known - floor) * keep(over_s, DECAY_S);
        Estimate {
            capacity: Rate::per_second(left).unwrap_or_default(),
            gain: 1.0,
            phase: Phase::Paused,
            confidence: if known > 0.0 { last.confidence * left / known } else { 0.0 },
            ..*last
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        !self.0.is_zero()
    }

    pub(super) fn reason(&self) -> Option<String> {
        let s = self.0.as_secs();
        match self.0 {
            Duration::ZERO => None,
            silence if silence <= HOLD => Some(format!("no report of tokencheck's gate for {s} s: holding")),
            _ => Some(format!("no report of tokencheck's gate for {s} s: falling to the floor")),
        }
    }
}
