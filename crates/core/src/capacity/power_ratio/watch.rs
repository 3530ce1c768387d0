//! Change detection (section IV-D): is the power ratio still on the fitted curve?
//!
//! ```text
//! off the curve:  |γ - fit(load)| > 2 * E,   E = max |γ_i - fit(c_i)| over the discovery's points
//! ```
//!
//! Departures from the paper:
//! - *E from points near the peak* (±20 %), where the service operates and the error of the fit is only
//!   noise. Points in deep overload are off any cubic and increase E. (Probes are broken off early, so they
//!   are few: worth one fall in sixty.) A load outside that window is compared with the E of all points.
//! - *Two epochs in a row.* E is the largest of some dozen errors, which chance exceeds. Taken literally, 12
//!   of 60 runs have a false alarm within half an hour of watching, instead of one.
//! - *At the goodput, if few come.* "Any subsequent epoch" includes those with little load, whose power ratio
//!   is low because g is. The curve is then read at g, and no rise is inferred, because nobody waits for it.
//!
//! Limits: a service that became slower or faster by less than the noise is not noticed, nor one with added
//! workers, which answers at the old load as before. The paper says so and asks for an external trigger.

use super::PowerRatioConfig;
use super::cubic::Cubic;
use super::epoch::Epoch;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Rise,
    Fall,
}

/// The curve of a finished discovery, and how far epochs have been off it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Watch {
    fit: Cubic,
    peak: f64,
    window: f64,
    /// Largest error of the fit near the peak, and anywhere.
    pub error_near: f64,
    error_all: f64,
    suspect: Option<Change>,
    in_a_row: u32,
}

impl Watch {
    pub fn new(fit: Cubic, points: &[(f64, f64)], config: &PowerRatioConfig) -> Self {
        let (peak, _) = fit.peak();
        let window = peak * config.peak_window;
        let errors = points.iter().map(|(load, power)| ((load - peak).abs(), (power - fit.at(*load)).abs()));
        let error_all = errors.clone().fold(0.0, |most: f64, (_, error)| most.max(error));
        let near = errors.filter(|(away, _)| *away <= window);
        let error_near = near.fold(f64::NAN, |most: f64, (_, error)| most.max(error));
        let error_near = if error_near.is_nan() { error_all } else { error_near };
        Self { fit, peak, window, error_near, error_all, suspect: None, in_a_row: 0 }
    }

    /// An epoch at `load`; `is_close`: the goodput was close to it.
    pub fn epoch(
        &mut self,
        epoch: &Epoch,
        load: f64,
        is_close: bool,
        config: &PowerRatioConfig,
    ) -> Option<Change> {
        let suspect = self.suspicion(epoch, load, is_close, config);
        self.in_a_row = if suspect.is_some() && suspect == self.suspect { self.in_a_row + 1 } else { 1 };
        self.suspect = suspect;
        suspect.filter(|_| epoch.broken_off || self.in_a_row >= config.alarms)
    }

    /// Quality of the fit near its peak: 1 if exact, 0 if its error is the peak's height.
    pub fn confidence(&self) -> f64 {
        let (_, height) = self.fit.peak();
        if height > 0.0 { (1.0 - self.error_near / height).clamp(0.0, 1.0) } else { 0.0 }
    }

    pub fn suspicious_epochs(&self) -> u32 {
        if self.suspect.is_some() { self.in_a_row } else { 0 }
    }

    fn suspicion(
        &self,
        epoch: &Epoch,
        load: f64,
        is_close: bool,
        config: &PowerRatioConfig,
    ) -> Option<Change> {
        let power = epoch.power()?;
        let at = if is_close { load } else { epoch.goodput.min(load) };
        // Below the probed loads the curve is unknown.
        if at < self.fit.range().0 {
            return None;
        }
        let error = if (at - self.peak).abs() <= self.window { self.error_near } else { self.error_all };
        let off = power - self.fit.at(at);
        if off > config.alarm_factor * error && is_close {
            Some(Change::Rise)
        } else if off < -config.alarm_factor * error {
            Some(Change::Fall)
        } else {
            None
        }
    }
}
