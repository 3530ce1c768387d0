//! The part of the requests that is too much: WAC's level as a fraction, acted upon.
//!
//! A level is a step: a rule that refuses at red refuses everybody, the figure falls, nobody is refused, and
//! it rises again. Here a rule refuses the part of the requests by which the red threshold is exceeded, so
//! that the figure comes to rest on the threshold. With the figure x, the threshold r and a time T,
//!
//! ```text
//! passes = kept × r / x            at least 1 %, at most all
//! d ln kept / dt = ln (r / x) / T    the logarithm within ±1, kept at most 1
//! ```
//!
//! The first factor acts at once: at 1.5 times the threshold a third is refused. It is all there is where the
//! figure does not feel the refusals: rates count refused requests too, and a signal is another's word. Any
//! other figure falls as requests are refused, and with it the first factor; what must still be refused is in
//! `kept`.
//!
//! **No oscillation.** Demand is a factor of x, so in logarithms the loop is the same at every overload. Of a
//! figure that follows the load with a lag L, it is L s² + 2 s + 1/T, which has no oscillation from T = L on.
//! An average over τ seconds, or a source that is read every τ, adds a lag of its own. [`ExcessConfig::time`]
//! is to be four times the longest of these.
//!
//! **Unknown is not normal.** While the figure is unknown the part stays what it was. Some requests always
//! pass: without any the figure would be unknown, or nothing would tell that the congestion is over.
//!
//! Rejected: a share that grows from none at orange to all at red (a rate that counts refused requests would
//! stop at all, and the gain grows with the demand), and additive increase with multiplicative decrease (a
//! saw). Following a response time: it is the sum of what was too much. With a measurement that is τ late the
//! loop is quiet only where the threshold is several τ, and thresholds are below one.

use std::time::Duration;

use super::{Judgement, Level};
use crate::units::Timestamp;

/// Least part that passes.
pub const LEAST: f64 = 0.01;
/// Longest time that one figure stands for: after a gap, the past must not count as if it had been so.
const LONGEST: Duration = Duration::from_secs(1);

/// How a resource reacts to refusals.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ExcessConfig {
    /// Whether the figure falls when requests are refused.
    pub feels_refusals: bool,
    /// T: four times as long as the figure takes to follow the load.
    pub time: Duration,
}

/// The part of the requests by which a resource exceeds its red threshold.
#[derive(Clone, Copy, Debug)]
pub struct Excess {
    kept: f64,
    passes: f64,
    at: Option<Timestamp>,
}

impl Default for Excess {
    fn default() -> Self {
        Self { kept: 1.0, passes: 1.0, at: None }
    }
}

impl Excess {
    /// Takes in a judgement. `acts`: requests are refused by the share now; otherwise the figure cannot show
    /// that it is too small.
    pub fn update(&mut self, judgement: &Judgement, acts: bool, config: &ExcessConfig, now: Timestamp) {
        let span = self.at.map_or(Duration::ZERO, |at| now.since(at)).min(LONGEST);
        self.at = Some(now);
        let Some(load) = judgement.load.filter(|_| judgement.level > Level::Unknown) else { return };
        let error = (1.0 / load).ln().clamp(-1.0, 1.0);
        let error = if acts { error } else { error.max(0.0) };
        if config.feels_refusals {
            let grown = self.kept * (error * span.as_secs_f64() / config.time.as_secs_f64()).exp();
            self.kept = grown.clamp(LEAST, 1.0);
        } else {
            self.kept = 1.0;
        }
        self.passes = (self.kept / load).clamp(LEAST, 1.0);
    }

    /// The share of the requests to refuse, 0..=1 − [`LEAST`].
    pub fn share(&self) -> f64 {
        1.0 - self.passes
    }
}
