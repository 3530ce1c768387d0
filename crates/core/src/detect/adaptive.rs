//! An adaptive threshold: smoothed mean + k × deviation, like TCP's retransmission time-out.
//!
//! WAC 3.1: "An adaptive threshold should adapt itself to a value based on measured values … the well-known
//! Retransmission Time-Out (RTO) parameter". RFC 6298, 2.3, with R' the figure, α = 1/8 and β = 1/4 once per
//! round trip:
//!
//! ```text
//! RTTVAR ← (1 - β) RTTVAR + β |SRTT - R'|      SRTT ← (1 - α) SRTT + α R'      RTO = SRTT + max(G, K RTTVAR)
//! ```
//!
//! Here figures come at any time, so the gains follow from the time passed: α = 1 - e^(-Δ/learn), β = 2α as
//! in the RFC. While little is known, the mean is that of all figures (α = Δ/T, T being the time learned).
//! Orange is half as far above the mean as red. G is a tenth of the mean: a still figure is not red at once.
//!
//! **Congestion is not learned as normal.** A time-out may follow whatever the network does; a threshold that
//! follows the overload ends the alarm by itself. So nothing is learned while the level is red, from the
//! first red figure on. Two cases remain. A figure that rises more slowly than `learn` is learned, like
//! growth, up to `ceiling`. A new normal that came with a jump stays red until an operator raises `floor`
//! above it for as long as it takes to learn it.
//!
//! Rejected: learning with smaller weights while red (it ends the alarm too, only later), and medians of the
//! same hour on other days (needs weeks, and the first day of a campaign is unlike any other).

use std::time::Duration;

use crate::units::Timestamp;

/// G of RFC 6298, as a share of the mean.
const GRANULARITY: f64 = 0.1;
/// Share of `learn` after which there are thresholds.
const WARM_UP: f64 = 0.125;
/// Longest time that one figure stands for: the first one after a gap must not replace the mean.
const LONGEST: Duration = Duration::from_secs(2);

/// Parameters of [`Adaptive`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdaptiveConfig {
    /// Deviations above the mean at which red begins; RFC 6298: 4.
    pub k: f64,
    pub learn: Duration,
    pub floor: f64,
    /// Bounds of the red threshold; an infinite ceiling is none.
    pub ceiling: f64,
}

/// The thresholds at which the levels begin.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Thresholds {
    /// Orange begins here; `None`: there is no orange.
    pub orange: Option<f64>,
    pub red: f64,
}

impl Thresholds {
    /// -1 where smaller is worse.
    pub(super) fn sign(&self) -> f64 {
        if self.orange.is_some_and(|orange| self.red < orange) { -1.0 } else { 1.0 }
    }

    /// The figure as a share of the red threshold, from 0 on.
    pub(super) fn load(&self, x: f64) -> f64 {
        let share = if self.sign() > 0.0 { x / self.red } else { self.red / x };
        // 0 of 0 has reached the threshold.
        if share.is_nan() { 1.0 } else { share.max(0.0) }
    }
}

/// A learned mean and deviation.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive {
    config: AdaptiveConfig,
    mean: f64,
    deviation: f64,
    learned: Duration,
    at: Option<Timestamp>,
}

impl Adaptive {
    /// A threshold without data.
    pub fn new(config: AdaptiveConfig) -> Self {
        Self { config, mean: 0.0, deviation: 0.0, learned: Duration::ZERO, at: None }
    }

    /// The same mean and deviation by other parameters. A longer `learn` begins no new warm-up: the
    /// thresholds would be unknown for its time.
    #[must_use]
    pub fn with(self, config: AdaptiveConfig) -> Self {
        let is_warm = self.thresholds().is_some();
        let learned = if is_warm { self.learned.max(config.learn.mul_f64(WARM_UP)) } else { self.learned };
        Self { config, learned, ..self }
    }

    /// Learns the present figure as normal.
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
        // At a `learn` of zero only the present counts: `fading` is NaN or 1, and `max` ignores NaN.
        let alpha = fading.max(of_all).min(1.0);
        let beta = (2.0 * alpha).min(1.0);
        self.deviation += beta * ((self.mean - figure).abs() - self.deviation);
        self.mean += alpha * (figure - self.mean);
    }

    /// Time passes in congestion: nothing is learned.
    pub fn pass_over(&mut self, now: Timestamp) {
        if self.at.is_some() {
            self.at = Some(now);
        }
    }

    /// The thresholds; `None` while too little is known.
    pub fn thresholds(&self) -> Option<Thresholds> {
        if self.at.is_none() || self.learned.as_secs_f64() < WARM_UP * self.config.learn.as_secs_f64() {
            return None;
        }
        let margin = (self.config.k * self.deviation).max(GRANULARITY * self.mean.abs());
        // If the bounds cross, the ceiling counts.
        let red = (self.mean + margin).max(self.config.floor).min(self.config.ceiling);
        Some(Thresholds { orange: Some((self.mean + margin / 2.0).min(red)), red })
    }
}
