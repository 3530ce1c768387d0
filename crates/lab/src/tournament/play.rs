//! Plays a tournament: truths first, scenario by scenario, then every law on every seed.

use std::ops::RangeInclusive;
use std::sync::atomic::AtomicBool;

use super::figures::{Figures, Known, figures};
use super::stretch::stretches;
use super::summary::{FIXED, OURS, Standing};
use super::truth::{Effort, truth};
use super::{Setting, Tournament};
use crate::experiment::ScenarioText;
use crate::plot::{Line, Plot, Style};
use crate::scenario::{Mistakes, Scenario};
use crate::sim::{self, SimOptions};
use crate::spread::spread;

/// Beliefs beyond so many times the truth press all others flat: then the axis is logarithmic.
const LOG_FROM: f64 = 3.0;

pub struct Order<'a> {
    pub seeds: RangeInclusive<u64>,
    /// Threads; what comes out does not depend on them.
    pub threads: usize,
    /// Set from outside when everything shall end.
    pub stop: &'a AtomicBool,
}

#[derive(Clone, Debug, Default)]
pub struct Played {
    pub standings: Vec<Standing>,
    pub truths: Vec<(String, Vec<Known>)>,
    /// A plot for each scenario played: the laws' estimates over time, on the seed on which ours has its
    /// median.
    pub plots: Vec<(String, Plot)>,
    pub missing: Vec<String>,
}

/// A run of a law: its figures, and its belief at the end of each second.
type Ran = (Figures, Vec<f64>);

impl Setting {
    /// Its scenario, given the file's.
    pub fn scenario(&self, source: &ScenarioText) -> Result<Scenario, Mistakes> {
        let mut scenario = source.scenario(&self.set)?;
        scenario.name.clone_from(&self.name);
        Ok(scenario)
    }
}

/// Plays all of it. `say` takes a line of progress per scenario.
pub fn play(
    tournament: &Tournament,
    source: &ScenarioText,
    order: &Order,
    say: &mut dyn FnMut(&str),
) -> Played {
    let mut played = Played::default();
    let all = tournament.scenarios.len();
    for (number, setting) in tournament.scenarios.iter().enumerate() {
        match scenario(tournament, setting, source, order, &mut played) {
            Ok(()) => {
                say(&format!("{} ({} of {all}): {}", setting.name, number + 1, in_short(&played, setting)))
            }
            Err(why) => {
                say(&format!("{} ({} of {all}) failed: {why}", setting.name, number + 1));
                played.missing.push(format!("{}: {why}", setting.name));
            }
        }
    }
    played
}

fn scenario(
    tournament: &Tournament,
    setting: &Setting,
    source: &ScenarioText,
    order: &Order,
    played: &mut Played,
) -> Result<(), String> {
    let scenario = setting.scenario(source).map_err(|mistakes| mistakes.to_string())?;
    let Order { seeds, threads, stop } = order;
    let effort = Effort { requests: tournament.truth_requests, threads: *threads, stop };
    let known =
        stretches(&scenario).into_iter().map(|stretch| Ok((stretch, truth(&scenario, &stretch, &effort)?)));
    let known = known.collect::<Result<Vec<Known>, String>>()?;
    if known.is_empty() {
        return Err("expected a deadline: there is none".into());
    }
    let entrants: Vec<Scenario> =
        tournament.estimators.iter().map(|name| with_estimator(&scenario, name, &known)).collect();
    let jobs: Vec<(usize, u64)> =
        (0..entrants.len()).flat_map(|entrant| seeds.clone().map(move |seed| (entrant, seed))).collect();
    let mut results =
        spread(&jobs, *threads, stop, |(entrant, seed)| run(&entrants[*entrant], *seed, &known));
    let per_law = jobs.len() / entrants.len().max(1);
    if let Some(fixed) = tournament.estimators.iter().position(|name| name == FIXED) {
        compare(&mut results, per_law, fixed);
    }
    let mut beliefs = Vec::new();
    for (name, results) in tournament.estimators.iter().zip(results.chunks(per_law.max(1))) {
        for ((_, seed), why) in jobs.iter().zip(results).filter_map(|(job, r)| Some((job, r.as_ref().err()?)))
        {
            played.missing.push(format!("{name} in {}, seed {seed}: {why}", setting.name));
        }
        let runs: Vec<&Ran> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
        let figures: Vec<Figures> = runs.iter().map(|(figures, _)| figures.clone()).collect();
        played.standings.push(Standing::new(name, &setting.name, &figures));
        beliefs.push((name.as_str(), results));
    }
    played.plots.push((setting.name.clone(), plot(&setting.name, &known, &beliefs)));
    played.truths.push((setting.name.clone(), known));
    Ok(())
}

/// The scenario with this estimator; [`FIXED`] gets the truth: the greatest of all stretches, since one limit
/// and one rate are in force in all of them.
fn with_estimator(scenario: &Scenario, name: &str, known: &[Known]) -> Scenario {
    let mut scenario = scenario.clone();
    if let Some(gate) = &mut scenario.gate {
        let settings = &mut gate.settings;
        settings.capacity.estimator = name.into();
        if name == FIXED {
            settings.capacity.rate = known.iter().map(|(_, truth)| truth.capacity).fold(0.0, f64::max);
            settings.origin.max_in_flight =
                known.iter().map(|(_, truth)| truth.limit as usize).max().unwrap_or(0);
        }
    }
    scenario
}

/// Adds what each run served over what the one of number `fixed` served on the same seed. Chance, such as
/// that of pauses and stolen CPU, is the same in both.
fn compare(results: &mut [Result<Ran, String>], per_law: usize, fixed: usize) {
    let share = |result: &Result<Ran, String>| result.as_ref().ok()?.0.get("goodput_share").copied();
    let of_fixed: Vec<Option<f64>> = results.iter().skip(fixed * per_law).take(per_law).map(share).collect();
    for (at, result) in results.iter_mut().enumerate() {
        let of = share(result).zip(of_fixed[at % per_law]).map(|(ours, most)| ours / most);
        if let (Ok((figures, _)), Some(of)) = (result, of.filter(|of| of.is_finite())) {
            figures.insert("of_fixed", of);
        }
    }
}

fn run(scenario: &Scenario, seed: u64, known: &[Known]) -> Result<Ran, String> {
    // The oracle is off: the sweeps of the simulator's own tests check its rules, at a fifth of the speed.
    let options = SimOptions { check: false, record: true, ..SimOptions::new(seed) };
    let run = sim::run(scenario, &options).map_err(|error| error.to_string())?;
    let beliefs = run.outcome.series.iter().map(|second| second.capacity_rps).collect();
    Ok((figures(&run.record, &run.outcome.series, known), beliefs))
}

/// The laws' beliefs, on the seed on which ours (or the winner) has its median goodput.
fn plot(name: &str, known: &[Known], beliefs: &[(&str, &[Result<Ran, String>])]) -> Plot {
    let seed = median_run(beliefs);
    let over_time = |values: &[f64]| (0..).zip(values).map(|(t, value)| (f64::from(t), *value)).collect();
    let line = |(name, runs): &(&str, &[Result<Ran, String>])| {
        let points = match runs.get(seed) {
            Some(Ok((_, beliefs))) => over_time(beliefs),
            _ => Vec::new(),
        };
        Line { name: (*name).into(), points, style: Style::Line }
    };
    let mut lines: Vec<Line> = beliefs.iter().map(line).collect();
    let highest = known.iter().map(|(_, truth)| truth.capacity).fold(0.0, f64::max);
    let truth = known.iter().flat_map(|(stretch, truth)| {
        [(stretch.from.as_secs_f64(), truth.capacity), (stretch.to.as_secs_f64(), truth.capacity)]
    });
    lines.push(Line { name: "truth".into(), points: truth.collect(), style: Style::Line });
    let log_y = lines.iter().flat_map(|line| &line.points).any(|(_, y)| *y > LOG_FROM * highest);
    Plot {
        title: name.into(),
        x_label: "time (s)".into(),
        y_label: "believed capacity".into(),
        log_y,
        lines,
        ..Plot::default()
    }
}

/// Which of the seeds has the median goodput of our law, or of the first one.
fn median_run(beliefs: &[(&str, &[Result<Ran, String>])]) -> usize {
    let ours = beliefs.iter().find(|(name, _)| *name == OURS).or(beliefs.first());
    let runs = ours.map(|(_, runs)| *runs).unwrap_or_default();
    let share = |run: &Result<Ran, String>| run.as_ref().ok()?.0.get("goodput_share").copied();
    let mut order: Vec<(f64, usize)> =
        runs.iter().enumerate().filter_map(|(at, run)| Some((share(run)?, at))).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    order.get(order.len().saturating_sub(1) / 2).map_or(0, |(_, at)| *at)
}

/// A scenario in a line: each law's goodput share and response ratio.
fn in_short(played: &Played, setting: &Setting) -> String {
    let standings = played.standings.iter().filter(|standing| standing.scenario == setting.name);
    let shown = |figure: Option<f64>| figure.map_or("-".into(), |figure| format!("{figure:.3}"));
    let one = |standing: &Standing| {
        let (share, ratio) = (standing.figure("goodput_share"), standing.figure("mean_rt_ratio"));
        format!("{} {}/{}", standing.estimator, shown(share), shown(ratio))
    };
    standings.map(one).collect::<Vec<_>>().join(", ")
}
