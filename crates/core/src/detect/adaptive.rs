//! A threshold that learns what is normal: smoothed mean + k × deviation, as TCP's retransmission time-out.
//!
//! WAC 3.1: "An adaptive threshold should adapt itself to a value based on measured values … the well-known Retransmission Time-Out
//! (RTO) parameter". RFC 6298, 2.3, with R' the figure, α = 1/8 and β = 1/4 once per round trip:
//!
//! ```text
//! RTTVAR ← (1 - β) RTTVAR + β |SRTT - R'|      SRTT ← (1 - α) SRTT + α R'      RTO = SRTT + max(G, K RTTVAR)
//! ```
//!
//! Here figures come at any time, so the gains follow from the time that has passed: α = 1 - e^(-Δ/learn), β = 2α as in the RFC,
//! and while little is known the mean is that of all (α = Δ/T, T being how long was learned). Orange stands half as far above the
//! mean as red. G is a tenth of the mean: a figure that never moves would otherwise be congested by its first stir.
//!
//! **Congestion is not learned as normal.** A time-out may follow whatever the network does; a threshold that follows the overload
//! it is to tell of ends the alarm by itself. So nothing is learned while the level is red, from the figure on that made it red.
//! What this does not catch is a figure that rises more slowly than `learn`: it is learned, as growth should be, up to `ceiling`,
//! which bounds the threshold whatever was learned. And a new normal that came with a jump is red until somebody says that
//! it is normal: a detector that is made anew knows nothing.
//!
//! Rejected: learning with smaller weights while red (it ends the alarm all the same, later), and medians of the same hour of
//! other days (needs weeks, and the first campaign day is unlike any other).

use std::time::Duration;

use crate::units::Timestamp;

/// G of RFC 6298, as a share of the mean.
const GRANULARITY: f64 = 0.1;
/// Of `learn`: before, there is no threshold.
const WARM_UP: f64 = 0.125;
/// Longest stretch one figure stands for: after a silence the first word is not all.
const LONGEST: Duration = Duration::from_secs(2);

/// How it learns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdaptiveConfig {
    /// Deviations above the mean from which on it is red; RFC 6298: 4.
    pub k: f64,
    /// Over which the past fades.
    pub learn: Duration,
    /// Red is never below.
    pub floor: f64,
    /// Nor above; infinite: no bound.
    pub ceiling: f64,
}

/// What was learned.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive {
    config: AdaptiveConfig,
    mean: f64,
    deviation: f64,
    learned: Duration,
    at: Option<Timestamp>,
}

impl Adaptive {
    /// Nothing learned.
    pub fn new(config: AdaptiveConfig) -> Self {
        Self { config, mean: 0.0, deviation: 0.0, learned: Duration::ZERO, at: None }
    }

    /// The figure is this now, and normal.
    pub fn learn(&mut self, figure: f64, now: Timestamp) {
        let Some(at) = self.at.replace(now) else {
            (self.mean, self.deviation) = (figure, figure / 2.0);
            return;
        };
        let span = now.since(at).min(LONGEST);
        if span.is_zero() {
            return;
        }
        self.learned = self.learned.saturating_add(span);
        let fading = -(-span.as_secs_f64() / self.config.learn.as_secs_f64()).exp_m1();
        let of_all = span.as_secs_f64() / self.learned.as_secs_f64();
        // `max`, for a `learn` of zero divides by it: then the present is all.
        let alpha = fading.max(of_all).min(1.0);
        let beta = (2.0 * alpha).min(1.0);
        self.deviation += beta * ((self.mean - figure).abs() - self.deviation);
        self.mean += alpha * (figure - self.mean);
    }

    /// The figure is what it is because of congestion: time passes, and nothing is learned.
    pub fn pass_over(&mut self, now: Timestamp) {
        if self.at.is_some() {
            self.at = Some(now);
        }
    }

    /// From where on it is orange, and red; `None`: not enough is known.
    pub fn thresholds(&self) -> Option<(f64, f64)> {
        if self.at.is_none() || self.learned.as_secs_f64() < WARM_UP * self.config.learn.as_secs_f64() {
            return None;
        }
        let margin = (self.config.k * self.deviation).max(GRANULARITY * self.mean.abs());
        // Bounds that cross: the ceiling has the last word.
        let red = (self.mean + margin).max(self.config.floor).min(self.config.ceiling);
        Some(((self.mean + margin / 2.0).min(red), red))
    }
}
