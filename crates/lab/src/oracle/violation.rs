//! The report of a broken rule: enough to see why, and to reproduce it.

use std::fmt;
use std::time::Duration;

use crate::sim::trace::Step;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub seed: u64,
    /// When, in microseconds from the start.
    pub at_us: u64,
    pub event: u64,
    pub rule: &'static str,
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
