//! Bounds of an experiment's quantities, which its file states and `--check` compares with a report.

use std::fmt;

use super::Experiment;
use super::report::Report;
use crate::outcome::Way;

/// A bound on a quantity; at least one side is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    pub quantity: String,
    /// The mode it is for; `None`: every one.
    pub way: Option<Way>,
    pub min: Option<f64>,
    pub max: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Breach {
    pub experiment: String,
    pub expected: Expectation,
    /// The value; `None`: the run gave none.
    pub got: Option<f64>,
}

impl Expectation {
    fn holds(&self, value: Option<f64>) -> bool {
        value.is_some_and(|value| {
            self.min.is_none_or(|min| value >= min) && self.max.is_none_or(|max| value <= max)
        })
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "{min} to {max}"),
            (Some(min), None) => write!(f, "at least {min}"),
            (None, Some(max)) => write!(f, "at most {max}"),
            (None, None) => f.write_str("a value"),
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { experiment, expected, got } = self;
        write!(f, "{experiment}: {}: expected {expected}; got ", expected.quantity)?;
        match got {
            Some(value) => write!(f, "{value}"),
            None => f.write_str("no value"),
        }
    }
}

/// The bounds of the experiment that do not hold in its report. A quantity without a value breaks its bounds.
pub fn breaches(experiment: &Experiment, report: &Report) -> Vec<Breach> {
    let in_force = |expected: &&Expectation| expected.way.is_none_or(|way| way == report.way);
    let breach = |expected: &Expectation| {
        let figure = report.figures.iter().find(|figure| figure.name == expected.quantity);
        let got = figure.and_then(|figure| figure.ours);
        (!expected.holds(got)).then(|| Breach {
            experiment: report.name.clone(),
            expected: expected.clone(),
            got,
        })
    };
    experiment.expectations.iter().filter(in_force).filter_map(breach).collect()
}
