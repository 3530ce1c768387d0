//! The last value that a source or another application reported for each detector. The tasks that ask sources
//! and the API write it, the tick reads it.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::detect::{Reading, plausible};
use tidegate_core::units::Timestamp;

/// One entry a detector: bounded by the number of detectors.
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
    /// Notes a value for a detector, valid from `at` for `good_for`.
    pub fn say(&self, detector: &str, value: f64, at: Timestamp, good_for: Duration) {
        let mut inside = self.0.lock();
        inside.number += 1;
        let number = inside.number;
        let said = inside.said.entry(detector.into()).or_default();
        said.reading = Some(Reading { value, at, good_for, number });
        said.trouble = plausible(value).is_none().then(|| format!("it said {value}"));
    }

    /// Notes why a detector's source cannot be read. Whether it could be read before.
    pub fn fail(&self, detector: &str, why: String) -> bool {
        let mut inside = self.0.lock();
        let said = inside.said.entry(detector.into()).or_default();
        said.failures += 1;
        said.trouble.replace(why).is_none()
    }

    pub fn reading(&self, detector: &str) -> Option<Reading> {
        self.0.lock().said.get(detector)?.reading
    }

    pub fn trouble(&self, detector: &str) -> Option<String> {
        self.0.lock().said.get(detector)?.trouble.clone()
    }

    pub fn failures(&self, detector: &str) -> u64 {
        self.0.lock().said.get(detector).map_or(0, |said| said.failures)
    }

    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.0.lock().said.retain(|detector, _| keep(detector));
    }
}
