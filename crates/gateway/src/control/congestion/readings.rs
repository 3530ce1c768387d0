//! What sources and other applications have said, by the detector that asks for it: written by their tasks and the API, read on the
//! tick.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::detect::{Reading, plausible};
use tidegate_core::units::Timestamp;

/// One entry a detector: bounded by their number.
#[derive(Debug, Default)]
pub struct Readings(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    said: HashMap<String, Said>,
    number: u64,
}

#[derive(Debug, Default)]
struct Said {
    reading: Option<Reading>,
    trouble: Option<String>,
    failures: u64,
}

impl Readings {
    /// A detector's source says this now, and it holds for so long.
    pub fn say(&self, detector: &str, value: f64, at: Timestamp, good_for: Duration) {
        let mut inside = self.lock();
        inside.number += 1;
        let number = inside.number;
        let said = inside.said.entry(detector.into()).or_default();
        said.reading = Some(Reading { value, at, good_for, number });
        // What cannot be a figure is not believed either.
        said.trouble = plausible(value).is_none().then(|| format!("it said {value}"));
    }

    /// The source cannot be heard: why. Whether that is news.
    pub fn fail(&self, detector: &str, why: String) -> bool {
        let mut inside = self.lock();
        let said = inside.said.entry(detector.into()).or_default();
        said.failures += 1;
        said.trouble.replace(why).is_none()
    }

    /// What it said last.
    pub fn reading(&self, detector: &str) -> Option<Reading> {
        self.lock().said.get(detector)?.reading
    }

    /// Why it cannot be heard now.
    pub fn trouble(&self, detector: &str) -> Option<String> {
        self.lock().said.get(detector)?.trouble.clone()
    }

    /// How often it could not be heard.
    pub fn failures(&self, detector: &str) -> u64 {
        self.lock().said.get(detector).map_or(0, |said| said.failures)
    }

    /// Forgets detectors that are gone.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.lock().said.retain(|detector, _| keep(detector));
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
