//! The papers' figures, played again: one file per figure says what the paper did and found; here it is
//! played, over real processes or in virtual time, and the two are laid side by side.
//!
//! ```text
//!  experiments/*.toml ─► catalog ─► select ─► play ─┬─► sim            in this process
//!                        (read)                     └─► real ─► child  origin, gate, load: this binary,
//!                                                        │             on loopback
//!                       output ◄─ report ◄─ formula ◄─ outcomes
//! ```
//!
//! An experiment's file is a scenario, playable as it is by `load`, `origin` and `sim`, with one more
//! section: which runs of that scenario make the figure (gate on or off, keys set, a key swept), which
//! quantities follow from them and what the paper says they were. Nothing is computed outside the file's
//! formulas. A tournament ([`crate::tournament`]) replaces runs and quantities where hundreds of runs are
//! compared. A file with a section `[testbed]` describes no scenario but a [`crate::testbed`] of network
//! namespaces, with runs and quantities as any other.

use std::path::PathBuf;

use crate::outcome::Way;
use crate::scenario::{Mistakes, Scenario};
use crate::testbed::Testbed;
use crate::tournament::Tournament;

pub mod catalog;
pub mod expect;
mod findings;
pub mod formula;
mod gate_watch;
pub(crate) mod known;
pub mod output;
mod page;
pub mod play;
mod read;
mod real;
pub mod report;
mod standings;

#[cfg(test)]
mod tests;

use expect::Expectation;
use formula::Formula;
pub(crate) use gate_watch::get as admin;
pub use read::seeds;

/// A figure of a paper: how it is made again, and what the paper says.
#[derive(Clone, Debug)]
pub struct Experiment {
    pub name: String,
    pub paper: String,
    /// The paper's figure or section.
    pub figure: String,
    /// Its claim, and how our set-up differs from the paper's.
    pub about: String,
    /// How it can be played; the first has the experiment's plain name.
    pub ways: Vec<Way>,
    /// The file whose scenario its runs play: its own, or that of the experiment it takes them from.
    pub source: ScenarioText,
    /// Whether that file describes a testbed and not a scenario.
    pub on_testbed: bool,
    /// At least one, unless it is a tournament.
    pub runs: Vec<Run>,
    /// At least one, unless it is a tournament.
    pub quantities: Vec<Quantity>,
    pub plots: Vec<PlotSpec>,
    pub expectations: Vec<Expectation>,
    pub tournament: Option<Tournament>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioText {
    pub name: String,
    pub text: String,
    pub dir: PathBuf,
}

/// The scenario, played once or once per value of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub name: String,
    /// How it is played; `None`: as the experiment is.
    pub way: Option<Way>,
    /// Whether the visitors meet the gate, or the service itself.
    pub gate: bool,
    /// Keys of the scenario that this run sets, as TOML.
    pub set: Vec<(String, String)>,
    /// A key that takes several values, one after another.
    pub sweep: Option<Sweep>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    pub key: String,
    /// At least two, rising.
    pub values: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    pub name: String,
    /// `1` for shares and ratios.
    pub unit: String,
    pub paper: Option<f64>,
    pub of: Formula,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlotSpec {
    pub name: String,
    pub title: String,
    pub x: String,
    pub y: String,
    pub log_y: bool,
    pub lines: Vec<(String, Formula)>,
    pub levels: Vec<(String, Formula)>,
}

impl Experiment {
    /// Its name in results when played this way: plain for the first, with the way behind it for the other.
    pub fn name_as(&self, way: Way) -> String {
        match (self.ways.first() == Some(&way), way) {
            (true, _) => self.name.clone(),
            (false, Way::Sim) => format!("{}-sim", self.name),
            (false, Way::Real) => format!("{}-real", self.name),
        }
    }

    /// The runs that its quantities and plots use, in the file's order.
    pub fn needed_runs(&self) -> Vec<&Run> {
        let quantities = self.quantities.iter().map(|quantity| &quantity.of);
        let lines =
            self.plots.iter().flat_map(|plot| plot.lines.iter().chain(&plot.levels)).map(|(_, of)| of);
        let names: Vec<&str> = quantities.chain(lines).flat_map(Formula::runs).collect();
        self.runs.iter().filter(|run| names.contains(&run.name.as_str())).collect()
    }

    /// The scenario of a run, of a sweep at the given value.
    pub fn scenario(&self, run: &Run, value: Option<f64>) -> Result<Scenario, Mistakes> {
        let mut scenario = self.source.scenario(&run.settings(value))?;
        if !run.gate {
            scenario.gate = None;
        }
        Ok(scenario)
    }

    /// The testbed of a run, of a sweep at the given value.
    pub fn testbed(&self, run: &Run, value: Option<f64>) -> Result<Testbed, Mistakes> {
        self.source.testbed(&run.settings(value))
    }
}

impl ScenarioText {
    /// The scenario with these keys set.
    pub(crate) fn scenario(&self, set: &[(String, String)]) -> Result<Scenario, Mistakes> {
        Scenario::parse(&self.text, &format!("{}.toml", self.name), &self.dir, set)
    }

    /// The testbed with these keys set.
    pub(crate) fn testbed(&self, set: &[(String, String)]) -> Result<Testbed, Mistakes> {
        Testbed::parse(&self.text, &format!("{}.toml", self.name), set)
    }
}

impl Run {
    /// Everything that the run sets, of a sweep at the given value.
    pub fn settings(&self, value: Option<f64>) -> Vec<(String, String)> {
        // Without a point where there is no fraction: a key may want a whole number.
        let swept = self.sweep.iter().zip(value).map(|(sweep, value)| (sweep.key.clone(), value.to_string()));
        self.set.iter().cloned().chain(swept).collect()
    }

    /// The values to play it at: one that is none, unless it is a sweep.
    pub fn values(&self) -> Vec<Option<f64>> {
        let sweep = |sweep: &Sweep| sweep.values.iter().copied().map(Some).collect();
        self.sweep.as_ref().map_or_else(|| vec![None], sweep)
    }
}
