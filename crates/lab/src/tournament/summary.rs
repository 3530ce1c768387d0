//! Summary of many runs: medians over the seeds, means over the scenarios, and the winners.

use super::Tournament;
use super::figures::{FIGURES, Figures};
use super::truth::MOST_RESPONSE;
use crate::stats::percentile;

/// The law whose rule is checked: this project's own, and its default.
pub const OURS: &str = "bottleneck";
/// The fixed limit and rate found offline. It shows what foresight gets, and is no law that could be first.
pub const FIXED: &str = "fixed";
/// How far behind the first it may be, as a part of the first one's goodput share.
pub const NEAR_FIRST: f64 = 0.02;
/// Figures that are also given at their 90th percentile over the seeds.
const WITH_P90: [&str; 8] = [
    "settle_s",
    "error_pct",
    "error_1s_pct",
    "error_5s_pct",
    "error_10s_pct",
    "oscillation_pct",
    "p99_ratio",
    "mean_rt_ratio",
];

/// A figure over the seeds, by name, with its unit. Infinite where most runs never got there.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedFigure {
    /// `ESTIMATOR.SCENARIO.FIGURE`
    pub name: String,
    /// `1` for shares and ratios.
    pub unit: &'static str,
    /// `None` where it has no sense.
    pub value: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    pub estimator: String,
    pub scenario: String,
    pub median: Figures,
    pub p90: Figures,
    /// Goodput share that nine of ten seeds reach.
    pub worst_goodput: Option<f64>,
    /// Share of the seeds in which the belief settled; `None` if it could not.
    pub settled: Option<f64>,
}

/// Whether our law is first or near the first in a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub scenario: String,
    /// Highest goodput share among the laws that keep the response time, and whose it is; `None`: none keeps
    /// it.
    pub first: Option<(String, f64)>,
    /// Our goodput share, whether or not it counts; `None`: there is none.
    pub ours: Option<f64>,
    pub prompt: bool,
    /// Whether it does, and is first or within 2 % of the first.
    pub holds: bool,
}

impl Standing {
    pub fn new(estimator: &str, scenario: &str, runs: &[Figures]) -> Self {
        let over = |share: f64| {
            let of = |(name, _): &(&'static str, &str)| Some((*name, self::over(runs, name, share)?));
            FIGURES.iter().filter_map(of).collect::<Figures>()
        };
        let settle: Vec<f64> = runs.iter().filter_map(|run| run.get("settle_s").copied()).collect();
        let settled = settle.iter().filter(|s| s.is_finite()).count() as f64 / settle.len() as f64;
        Self {
            estimator: estimator.into(),
            scenario: scenario.into(),
            median: over(0.5),
            p90: over(0.9),
            worst_goodput: self::over(runs, "goodput_share", 0.1),
            settled: (!settle.is_empty()).then_some(settled),
        }
    }

    /// Whether the law keeps the mean response time within what the oracle may take.
    pub fn is_prompt(&self) -> bool {
        self.median.get("mean_rt_ratio").is_some_and(|ratio| *ratio <= MOST_RESPONSE)
    }

    pub fn figure(&self, name: &str) -> Option<f64> {
        self.median.get(name).copied()
    }

    pub fn told(&self) -> Vec<NamedFigure> {
        let name = |figure: &str| format!("{}.{}.{figure}", self.estimator, self.scenario);
        let mut told = Vec::new();
        for (figure, unit) in FIGURES {
            told.push(NamedFigure { name: name(figure), unit, value: self.figure(figure) });
            if WITH_P90.contains(&figure) {
                let value = self.p90.get(figure).copied();
                told.push(NamedFigure { name: name(&format!("{figure}_p90")), unit, value });
            }
        }
        told.push(NamedFigure { name: name("goodput_share_p10"), unit: "1", value: self.worst_goodput });
        let settled = self.settled.map(|share| share * 100.0);
        told.push(NamedFigure { name: name("settled_pct"), unit: "%", value: settled });
        told
    }
}

fn over(runs: &[Figures], name: &str, share: f64) -> Option<f64> {
    let mut values: Vec<f64> = runs.iter().filter_map(|run| run.get(name).copied()).collect();
    percentile(&mut values, share)
}

/// Means over the scenarios, and what a mean hides: the worst scenario and the worst tenth.
pub fn overall(standings: &[Standing]) -> Vec<NamedFigure> {
    let mut told = Vec::new();
    for estimator in names(standings) {
        let values = |figure: &str| -> Vec<f64> {
            let of = standings.iter().filter(|standing| standing.estimator == estimator);
            of.filter_map(|standing| standing.figure(figure)).collect()
        };
        let mut tell = |figure: &str, unit, value| {
            told.push(NamedFigure { name: format!("{estimator}.all.{figure}"), unit, value });
        };
        let (mut shares, mut ratios) = (values("goodput_share"), values("mean_rt_ratio"));
        let mut of_fixed = values("of_fixed");
        let mean =
            |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        tell("goodput_share", "1", mean(&shares));
        tell("mean_rt_ratio", "1", mean(&ratios));
        tell("goodput_share_p10", "1", percentile(&mut shares, 0.1));
        tell("goodput_share_worst", "1", percentile(&mut shares, 0.0));
        tell("mean_rt_ratio_worst", "1", percentile(&mut ratios, 1.0));
        tell("of_fixed", "1", mean(&of_fixed));
        tell("of_fixed_p10", "1", percentile(&mut of_fixed, 0.1));
        tell("of_fixed_worst", "1", percentile(&mut of_fixed, 0.0));
        let settle = values("settle_s");
        let settled = settle.iter().filter(|s| s.is_finite()).count() as f64 / settle.len() as f64;
        tell("settled_pct", "%", (!settle.is_empty()).then_some(settled * 100.0));
    }
    told
}

/// The share of the scenarios in which the rule holds.
pub fn near_first(verdicts: &[Verdict]) -> Option<NamedFigure> {
    let holds = verdicts.iter().filter(|verdict| verdict.holds).count() as f64;
    let value = (!verdicts.is_empty()).then(|| holds / verdicts.len() as f64 * 100.0);
    verdicts.iter().any(|verdict| verdict.ours.is_some()).then_some(NamedFigure {
        name: near_first_name(),
        unit: "%",
        value,
    })
}

fn near_first_name() -> String {
    format!("{OURS}.all.near_first_pct")
}

pub fn figure_names(tournament: &Tournament) -> Vec<String> {
    let with = |estimator: &String| {
        tournament
            .scenarios
            .iter()
            .map(|setting| Standing::new(estimator, &setting.name, &[]))
            .collect::<Vec<_>>()
    };
    let standings: Vec<Standing> = tournament.estimators.iter().flat_map(with).collect();
    let told = standings.iter().flat_map(Standing::told).chain(overall(&standings));
    told.map(|told| told.name).chain([near_first_name()]).collect()
}

/// The laws, in the order in which they appear.
pub fn names(standings: &[Standing]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for standing in standings {
        if !names.contains(&standing.estimator.as_str()) {
            names.push(&standing.estimator);
        }
    }
    names
}

pub fn verdicts(standings: &[Standing]) -> Vec<Verdict> {
    let mut by_scenario: Vec<(&str, Vec<&Standing>)> = Vec::new();
    for standing in standings {
        match by_scenario.iter_mut().find(|(name, _)| *name == standing.scenario) {
            Some((_, all)) => all.push(standing),
            None => by_scenario.push((&standing.scenario, vec![standing])),
        }
    }
    by_scenario.into_iter().map(|(scenario, all)| verdict(scenario, &all)).collect()
}

fn verdict(scenario: &str, all: &[&Standing]) -> Verdict {
    let share = |standing: &Standing| standing.figure("goodput_share");
    let prompt = all.iter().filter(|standing| standing.is_prompt() && standing.estimator != FIXED);
    let first = prompt
        .filter_map(|standing| Some((standing.estimator.clone(), share(standing)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let ours = all.iter().find(|standing| standing.estimator == OURS).copied();
    let prompt = ours.is_some_and(Standing::is_prompt);
    let (best, ours) = (first.as_ref().map(|(_, share)| *share), ours.and_then(share));
    let is_near = best.zip(ours).is_some_and(|(best, ours)| ours >= best * (1.0 - NEAR_FIRST));
    Verdict { scenario: scenario.into(), first, ours, prompt, holds: prompt && is_near }
}
