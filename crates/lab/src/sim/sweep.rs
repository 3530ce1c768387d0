//! Many seeds of one scenario, on many threads. The result depends on the seeds only, not on the threads.

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;

use super::chance::perturb;
use super::record::Record;
use super::{SimError, SimOptions, SimRun, run};
use crate::oracle::Violation;
use crate::outcome::Way;
use crate::scenario::Scenario;
use crate::spread::{cause_of, spread};
use crate::tally::Tally;

#[derive(Debug, Default)]
pub struct SweepReport {
    pub runs: Vec<(u64, SimRun)>,
    pub events: u64,
    pub digest: u64,
}

impl SweepReport {
    pub fn broken(&self) -> impl Iterator<Item = &(u64, SimRun)> {
        self.runs.iter().filter(|(_, run)| !run.violations.is_empty())
    }
}

/// Plays the scenario once for each seed. `random_faults`: with what [`perturb`] draws from the seed; else as
/// it is.
///
/// # Errors
/// The scenario cannot be played; results of earlier seeds are lost.
pub fn sweep(
    scenario: &Scenario,
    seeds: RangeInclusive<u64>,
    threads: usize,
    random_faults: bool,
) -> Result<SweepReport, SimError> {
    let play = |seed: u64| {
        let mut result = run_seed(scenario, seed, random_faults);
        if let Ok(run) = &mut result {
            // A thousand series that nobody reads would fill the memory.
            run.outcome.series = Vec::new();
        }
        Ok((seed, result))
    };
    let mut report = SweepReport::default();
    for (seed, result) in spread(seeds, threads, &AtomicBool::new(false), play).into_iter().flatten() {
        let run = result?;
        report.events += run.events;
        report.digest = (report.digest ^ run.digest).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        report.runs.push((seed, run));
    }
    Ok(report)
}

fn run_seed(scenario: &Scenario, seed: u64, random_faults: bool) -> Result<SimRun, SimError> {
    let options = SimOptions::new(seed);
    let play =
        || if random_faults { run(&perturb(scenario, seed), &options) } else { run(scenario, &options) };
    // A sweep looks for failing assertions of the core, so the message must name the seed.
    catch_unwind(AssertUnwindSafe(play)).unwrap_or_else(|cause| {
        let what = cause_of(&*cause);
        let outcome =
            Tally::default().outcome(&scenario.name, Way::Sim, seed, Some(format!("panicked: {what}")));
        let violation = Violation { seed, at_us: 0, event: 0, rule: "panic", what, steps: Vec::new() };
        let (events, digest, steps, lead_s) = (0, 0, Vec::new(), (0.0, 0.0));
        let record = Record::default();
        Ok(SimRun { outcome, violations: vec![violation], events, digest, steps, lead_s, record })
    })
}
