//! From a figure to a level: thresholds with hysteresis.
//!
//! ```text
//! up:    at once, when the figure reaches a threshold
//! down:  when it has been below threshold - hysteresis × |threshold| for `calm` without a break
//! ```
//!
//! The band keeps a figure that rests on its threshold from changing the level with its noise, the time one that swings
//! through the whole band. So within any stretch T a resource stops being red at most T / `calm` + 1 times, whatever the figure
//! does. It goes up at once, because overload does not wait.
//!
//! Where red lies below orange, less is worse: free memory, for one.

use std::time::Duration;

use super::adaptive::{Adaptive, AdaptiveConfig};
use super::{Congestion, Level, plausible};
use crate::units::Timestamp;

/// Where the thresholds come from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Limit {
    /// Given.
    Fixed {
        /// From here on it is orange; `None`: it never is.
        orange: Option<f64>,
        /// From here on it is red.
        red: f64,
    },
    /// Learned.
    Adaptive(AdaptiveConfig),
}

/// How a figure is judged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct JudgeConfig {
    /// The thresholds.
    pub limit: Limit,
    /// The band below a threshold, as a share of it.
    pub hysteresis: f64,
    /// How long a figure must be below the band.
    pub calm: Duration,
}

/// A level and how it came about.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Judgement {
    /// The level.
    pub level: Level,
    /// What was judged; `None`: unknown.
    pub figure: Option<f64>,
    /// The figure as a share of what is red, 0..=1.
    pub fraction: Option<f64>,
    /// From here on it is orange.
    pub orange: Option<f64>,
    /// From here on it is red; `None`: not learned yet.
    pub red: Option<f64>,
}

impl Judgement {
    /// The paper's two of it.
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
    /// Since when the figure is below the level, and the highest level it would have had since.
    below: Option<(Timestamp, Level)>,
}

impl Judge {
    /// One that has seen nothing.
    pub fn new(config: &JudgeConfig) -> Self {
        let adaptive = match config.limit {
            Limit::Fixed { .. } => None,
            Limit::Adaptive(adaptive) => Some(Adaptive::new(adaptive)),
        };
        Self { config: *config, adaptive, last: Judgement::default(), below: None }
    }

    /// What it said last.
    pub fn verdict(&self) -> Judgement {
        self.last
    }

    /// The figure is this now. What cannot be a figure is none.
    pub fn take(&mut self, figure: Option<f64>, now: Timestamp) {
        let figure = figure.and_then(plausible);
        let thresholds = match &self.config.limit {
            Limit::Fixed { orange, red } => Some((*orange, *red)),
            Limit::Adaptive(_) => self
                .adaptive
                .and_then(|learned| learned.thresholds())
                .map(|(orange, red)| (Some(orange), red)),
        };
        let (orange, red) = (thresholds.and_then(|t| t.0), thresholds.map(|t| t.1));
        self.last = match (figure, thresholds) {
            (Some(x), Some((orange_at, red_at))) => {
                let level = self.step(x, orange_at, red_at, now);
                Judgement { level, figure, fraction: share(x, red_at, orange_at), orange, red }
            }
            _ => {
                self.below = None;
                Judgement { level: Level::Unknown, figure, fraction: None, orange, red }
            }
        };
        if let Some(adaptive) = &mut self.adaptive {
            match figure {
                Some(x) if self.last.level < Level::Red => adaptive.learn(x, now),
                _ => adaptive.pass_over(now),
            }
        }
    }

    fn step(&mut self, x: f64, orange: Option<f64>, red: f64, now: Timestamp) -> Level {
        let was = self.last.level;
        let target = self.target(x, orange, red);
        if target >= was {
            self.below = None;
            return target;
        }
        let (since, highest) = self.below.map_or((now, target), |(since, level)| (since, level.max(target)));
        if now.since(since) >= self.config.calm {
            self.below = None;
            return highest;
        }
        self.below = Some((since, highest));
        was
    }

    /// The level that this figure has by itself, given the one it comes from.
    fn target(&self, x: f64, orange: Option<f64>, red: f64) -> Level {
        let sign = sign(red, orange);
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

/// -1 where less is worse.
fn sign(red: f64, orange: Option<f64>) -> f64 {
    if orange.is_some_and(|orange| red < orange) { -1.0 } else { 1.0 }
}

fn share(x: f64, red: f64, orange: Option<f64>) -> Option<f64> {
    let share = if sign(red, orange) > 0.0 { x / red } else { red / x };
    // 0 of 0: it is reached.
    Some(if share.is_nan() { 1.0 } else { share.clamp(0.0, 1.0) })
}
