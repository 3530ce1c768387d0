//! Plays an experiment's runs, one after another, and keeps what came of them: figures that share runs
//! (WebQ's 5, 6 and 7 are one measurement) are made from the same ones.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_gateway::base::clock::Clock;

use super::report::{Played, Report};
use super::{Experiment, Run, ScenarioText, known, real, standings};
use crate::outcome::{COLUMNS, Outcome, Way};
use crate::report::units::cell;
use crate::scenario::Scenario;
use crate::sim::{self, SimOptions};
use crate::tally::Tally;
use crate::testbed;
use crate::tournament::{self, Tournament};

/// Figures that are known before a run begins and that formulas may use beside those of the run.
const KNOWN: [&str; 2] = ["origin_capacity_rps", "gate_capacity_rps"];
/// Figures that only simulations have.
const OF_SIM: [&str; 2] = ["events", "violations"];

pub fn keys() -> Vec<String> {
    let empty = Tally::default().outcome("", Way::Sim, 0, None);
    let others = KNOWN.into_iter().chain(OF_SIM).chain(Tally::measured_keys()).map(str::to_owned);
    empty.summary.into_keys().chain(others).collect()
}

pub fn columns() -> Vec<String> {
    let mut names: Vec<String> = COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect();
    names.sort_unstable();
    names
}

pub struct Player<'a> {
    /// This program, which real runs start.
    pub program: PathBuf,
    /// The seed of all runs, if not the scenarios' own.
    pub seed: Option<u64>,
    /// The seeds of tournaments, if not the file's own.
    pub seeds: Option<RangeInclusive<u64>>,
    /// Whether tournaments are played on the fewer seeds of a run of everything.
    pub plays_all: bool,
    /// Threads for tournaments: everything else must not be disturbed.
    pub threads: usize,
    /// Set from outside when everything shall end.
    pub stop: Arc<AtomicBool>,
    pub say: &'a mut dyn FnMut(&str),
    clock: Clock,
    kept: Vec<(Part, Rc<Played>)>,
}

#[derive(PartialEq)]
struct Part {
    source: ScenarioText,
    way: Way,
    run: Run,
}

impl<'a> Player<'a> {
    pub fn new(
        program: PathBuf,
        seed: Option<u64>,
        stop: Arc<AtomicBool>,
        say: &'a mut dyn FnMut(&str),
    ) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (clock, kept) = (Clock::new(), Vec::new());
        Self { program, seed, seeds: None, plays_all: false, threads, stop, say, clock, kept }
    }

    /// Plays the runs that the experiment's figures need. What fails is missing in the report, with the
    /// reason.
    pub fn play(&mut self, experiment: &Experiment, way: Way) -> Report {
        let begun = self.clock.now();
        let name = experiment.name_as(way);
        if let Some(tournament) = &experiment.tournament {
            return self.tournament(experiment, tournament, way);
        }
        let needed = experiment.needed_runs();
        let runs: Vec<Rc<Played>> =
            needed.into_iter().map(|run| self.run(&name, experiment, run, run.way.unwrap_or(way))).collect();
        let seconds = self.clock.now().since(begun).as_secs_f64();
        Report::new(experiment, way, seconds, runs)
    }

    /// The seeds are those asked for, or the file's: all of them, or the fewer of a run of everything.
    fn tournament(&mut self, experiment: &Experiment, tournament: &Tournament, way: Way) -> Report {
        let begun = self.clock.now();
        let name = experiment.name_as(way);
        let own = if self.plays_all { &tournament.all_seeds } else { &tournament.seeds };
        let asked = self.seeds.clone().or(self.seed.map(|seed| seed..=seed));
        let seeds = asked.unwrap_or_else(|| own.clone());
        let shown = format!("{}..{}", seeds.start(), seeds.end());
        (self.say)(&format!("{name}: seeds {shown}, {} threads", self.threads));
        let order = tournament::play::Order { seeds, threads: self.threads, stop: &self.stop };
        let say = &mut self.say;
        let mut line = |line: &str| say(&format!("{name}: {line}"));
        let played = tournament::play::play(tournament, &experiment.source, &order, &mut line);
        let seconds = self.clock.now().since(begun).as_secs_f64();
        standings::report(experiment, way, seconds, &shown, played)
    }

    fn run(&mut self, name: &str, experiment: &Experiment, run: &Run, way: Way) -> Rc<Played> {
        let part = Part { source: experiment.source.clone(), way, run: run.clone() };
        if let Some((_, played)) = self.kept.iter().find(|(kept, _)| *kept == part) {
            (self.say)(&format!("{name}: run {} as already played", run.name));
            return Rc::clone(played);
        }
        let mut played = Played { name: run.name.clone(), points: Vec::new(), missing: Vec::new() };
        for value in run.values() {
            let title = match (value, &run.sweep) {
                (Some(value), Some(sweep)) => format!("{} at {} = {value}", run.name, sweep.key),
                _ => run.name.clone(),
            };
            if self.stop.load(Ordering::Relaxed) {
                played.missing.push(format!("{title}: interrupted"));
                continue;
            }
            (self.say)(&format!("{name}: run {title} ({})", way.name()));
            match self.point(experiment, run, value, way) {
                Ok(outcome) => {
                    played.missing.extend(outcome.partial.iter().map(|why| format!("{title}: {why}")));
                    (self.say)(&format!("{name}: run {title}: {}", in_short(&outcome)));
                    played.points.push((value, outcome));
                }
                Err(why) => {
                    (self.say)(&format!("{name}: run {title} failed: {why}"));
                    played.missing.push(format!("{title}: {why}"));
                }
            }
        }
        let played = Rc::new(played);
        self.kept.push((part, Rc::clone(&played)));
        played
    }

    fn point(
        &self,
        experiment: &Experiment,
        run: &Run,
        value: Option<f64>,
        way: Way,
    ) -> Result<Outcome, String> {
        if experiment.on_testbed {
            return self.on_testbed(experiment, run, value);
        }
        let mut scenario = experiment.scenario(run, value).map_err(|mistakes| mistakes.to_string())?;
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        let mut outcome = match way {
            Way::Sim => {
                let options = SimOptions::new(scenario.seed);
                sim::run(&scenario, &options).map_err(|error| error.to_string())?.outcome
            }
            Way::Real => {
                let mut set = run.settings(value);
                set.push(("seed".into(), scenario.seed.to_string()));
                let order = real::Order {
                    program: &self.program,
                    scenario: &scenario,
                    text: &experiment.source.text,
                    set: &set,
                    stop: &self.stop,
                    clock: &self.clock,
                };
                real::play(&order).map_err(|trouble| trouble.to_string())?
            }
        };
        add_known(&mut outcome, &scenario);
        Ok(outcome)
    }

    fn on_testbed(&self, experiment: &Experiment, run: &Run, value: Option<f64>) -> Result<Outcome, String> {
        let testbed = experiment.testbed(run, value).map_err(|mistakes| mistakes.to_string())?;
        let seed = self.seed.unwrap_or_default();
        let order = testbed::Order { testbed: &testbed, program: &self.program, seed, stop: &self.stop };
        testbed::play(&order).map_err(|trouble| trouble.to_string())
    }
}

fn add_known(outcome: &mut Outcome, scenario: &Scenario) {
    let figures = [known::origin_capacity_rps(scenario), known::gate_capacity_rps(scenario)];
    for (key, figure) in KNOWN.into_iter().zip(figures) {
        outcome.summary.insert(key.into(), figure);
    }
}

/// The few figures that tell a run that went well from one that did not.
fn in_short(outcome: &Outcome) -> String {
    if !outcome.summary.contains_key("offered") {
        // On a testbed: what each group of clients got.
        let rates = outcome.summary.iter().filter(|(key, _)| key.ends_with("_rps"));
        let shown: Vec<String> = rates.map(|(key, rate)| format!("{key} {}", cell(Some(*rate)))).collect();
        return format!("{:.0} s, {}", outcome.seconds, shown.join(", "));
    }
    format!(
        "{:.0} s, {} of {} visitors served, response {} ms, longest wait {} s{}",
        outcome.seconds,
        outcome.figure("done"),
        outcome.figure("offered"),
        cell(Some(outcome.figure("response_mean_ms"))),
        cell(Some(outcome.figure("wait_max_s"))),
        if outcome.partial.is_some() { " (partial)" } else { "" },
    )
}
