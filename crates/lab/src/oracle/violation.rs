//! The report of a broken rule: enough to see why, and to reproduce it.

use std::fmt;
use std::time::Duration;

use crate::sim::trace::Step;

/// Something that must never happen has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed that shows it.
    pub seed: u64,
    /// When, in microseconds from the start.
    pub at_us: u64,
    /// Events before it.
    pub event: u64,
    pub rule: &'static str,
    /// What was expected, and what was found.
    pub what: String,
    /// The steps that led there, the last one last.
    pub steps: Vec<Step>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Duration::from_micros(self.at_us);
        writeln!(
            f,
            "seed {}: {} broken at {at:?}, event {}: {}",
            self.seed, self.rule, self.event, self.what
        )?;
        for step in &self.steps {
            writeln!(f, "  {step}")?;
        }
        Ok(())
    }
}
