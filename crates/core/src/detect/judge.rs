//! From a figure to a level: thresholds with hysteresis.
//!
//! ```text
//! up:    at once, when the figure reaches a threshold
//! down:  when it was below threshold - hysteresis × |threshold| for the time `calm` without interruption
//! ```
//!
//! The band keeps a figure that rests on its threshold from changing the level with its noise; the time keeps
//! one that swings through the whole band from doing so. So within any time T a resource stops being red at
//! most T / `calm` + 1 times, whatever the figure does. The level rises at once.
//!
//! Where red lies below orange, smaller is worse: free memory, for example.

use std::time::Duration;

use super::adaptive::{Adaptive, AdaptiveConfig, Thresholds};
use super::{Congestion, Level, plausible};
use crate::units::Timestamp;

/// The source of the thresholds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Limit {
    /// Configured. Orange begins at `orange` (`None`: there is no orange), red at `red`.
    Fixed {
        orange: Option<f64>,
        red: f64,
    },
    Adaptive(AdaptiveConfig),
}

/// Parameters of [`Judge`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct JudgeConfig {
    pub limit: Limit,
    /// The band below a threshold, as a share of it.
    pub hysteresis: f64,
    /// How long a figure must be below the band before the level falls.
    pub calm: Duration,
}

/// A level and what it follows from.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Judgement {
    pub level: Level,
    /// The figure judged; `None`: unknown.
    pub figure: Option<f64>,
    /// The figure as a share of the red threshold, 0..=1.
    pub fraction: Option<f64>,
    /// The same without the upper bound: 1.5 is half too much.
    pub load: Option<f64>,
    pub orange: Option<f64>,
    /// The red threshold; `None`: not learned yet.
    pub red: Option<f64>,
}

impl Judgement {
    /// The two values of the paper.
    pub fn congestion(&self) -> Congestion {
        Congestion { fraction: self.fraction, level: self.level }
    }
}

/// Judges one resource.
#[derive(Clone, Debug)]
pub struct Judge {
    config: JudgeConfig,
    adaptive: Option<Adaptive>,
    last: Judgement,
    below: Option<Below>,
}

/// The figure is below the level in force.
#[derive(Clone, Copy, Debug)]
struct Below {
    since: Timestamp,
    /// The highest level of the figures since.
    highest: Level,
}

impl Judge {
    /// A judge without data.
    pub fn new(config: &JudgeConfig) -> Self {
        let adaptive = match config.limit {
            Limit::Fixed { .. } => None,
            Limit::Adaptive(adaptive) => Some(Adaptive::new(adaptive)),
        };
        Self { config: *config, adaptive, last: Judgement::default(), below: None }
    }

    /// Goes over to other parameters with the level in force, the time it has been calm, and what is learned.
    pub fn retune(&mut self, config: &JudgeConfig, now: Timestamp) {
        self.adaptive = match (config.limit, self.adaptive) {
            (Limit::Fixed { .. }, _) => None,
            (Limit::Adaptive(config), Some(learned)) => Some(learned.with(config)),
            (Limit::Adaptive(config), None) => Some(Adaptive::new(config)),
        };
        self.config = *config;
        self.take(self.last.figure, now);
    }

    /// The last judgement.
    pub fn verdict(&self) -> Judgement {
        self.last
    }

    /// Judges the present figure. An implausible one counts as unknown.
    pub fn take(&mut self, figure: Option<f64>, now: Timestamp) {
        let figure = figure.and_then(plausible);
        let thresholds = match &self.config.limit {
            Limit::Fixed { orange, red } => Some(Thresholds { orange: *orange, red: *red }),
            Limit::Adaptive(_) => self.adaptive.and_then(|learned| learned.thresholds()),
        };
        let (orange, red) = (thresholds.and_then(|t| t.orange), thresholds.map(|t| t.red));
        self.last = match (figure, thresholds) {
            (Some(x), Some(thresholds)) => {
                let level = self.step(x, &thresholds, now);
                let load = thresholds.load(x);
                Judgement { level, figure, fraction: Some(load.min(1.0)), load: Some(load), orange, red }
            }
            _ => {
                self.below = None;
                Judgement { level: Level::Unknown, figure, fraction: None, load: None, orange, red }
            }
        };
        if let Some(adaptive) = &mut self.adaptive {
            match figure {
                Some(x) if self.last.level < Level::Red => adaptive.learn(x, now),
                _ => adaptive.pass_over(now),
            }
        }
    }

    fn step(&mut self, x: f64, thresholds: &Thresholds, now: Timestamp) -> Level {
        let was = self.last.level;
        let target = self.target(x, thresholds);
        if target >= was {
            self.below = None;
            return target;
        }
        let mut below = self.below.unwrap_or(Below { since: now, highest: target });
        below.highest = below.highest.max(target);
        if now.since(below.since) >= self.config.calm {
            self.below = None;
            return below.highest;
        }
        self.below = Some(below);
        was
    }

    /// The level of a figure by the thresholds, with the band below the level in force.
    fn target(&self, x: f64, thresholds: &Thresholds) -> Level {
        let Thresholds { orange, red } = *thresholds;
        let sign = thresholds.sign();
        let reaches = |threshold: f64, has: bool| {
            let band = if has { self.config.hysteresis * threshold.abs() } else { 0.0 };
            sign * x >= sign * threshold - band
        };
        let was = self.last.level;
        if reaches(red, was == Level::Red) {
            Level::Red
        } else if orange.is_some_and(|orange| reaches(orange, was >= Level::Orange)) {
            Level::Orange
        } else {
            Level::Green
        }
    }
}
