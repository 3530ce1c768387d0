//! The report of a tournament: every figure by its name, two tables for people, and who was first where.

use serde_json::{Map, Value as Json, json};

use super::Experiment;
use super::report::{Figure, Report, Table};
use crate::outcome::Way;
use crate::report::units::cell;
use crate::tournament::play::Played;
use crate::tournament::summary::{
    NEAR_FIRST, NamedFigure, OURS, Standing, Verdict, names, near_first, overall, verdicts,
};
use crate::tournament::truth::MOST_RESPONSE;

/// Puts a tournament's results into a report. `seeds`: how they were chosen, in words.
pub(super) fn report(experiment: &Experiment, way: Way, seconds: f64, seeds: &str, played: Played) -> Report {
    let standings = &played.standings;
    let verdicts = verdicts(standings);
    let told =
        standings.iter().flat_map(Standing::told).chain(overall(standings)).chain(near_first(&verdicts));
    let figure = |told: NamedFigure| Figure {
        unit: told.unit.into(),
        paper: None,
        // A figure that most seeds never got is none.
        ours: told.value.filter(|value| value.is_finite()),
        of: format!("over seeds {seeds}"),
        name: told.name,
    };
    Report {
        figures: told.map(figure).collect(),
        tables: tables(&played, &verdicts, seeds),
        verdicts: verdicts.iter().map(verdict_json).collect(),
        plots: played.plots,
        broken: played.missing,
        ..Report::new(experiment, way, seconds, Vec::new())
    }
}

fn verdict_json(verdict: &Verdict) -> (String, Json) {
    let first = verdict.first.as_ref();
    let object = Map::from_iter([
        ("first".to_owned(), json!(first.map(|(name, _)| name))),
        ("goodput_share".to_owned(), json!(first.map(|(_, share)| share))),
        (OURS.to_owned(), json!(verdict.ours)),
        ("prompt".to_owned(), json!(verdict.prompt)),
        ("holds".to_owned(), json!(verdict.holds)),
    ]);
    (verdict.scenario.clone(), Json::Object(object))
}

fn tables(played: &Played, verdicts: &[Verdict], seeds: &str) -> Vec<Table> {
    let laws = names(&played.standings);
    let with = |first: &str, last: &str| -> Vec<String> {
        let all = [first].into_iter().chain(laws.iter().copied()).chain([last]);
        all.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let rows = |cell: fn(&Standing) -> String| -> Vec<Vec<String>> {
        let row = |verdict: &Verdict| {
            let of = |law: &&str| {
                let standing =
                    played.standings.iter().find(|s| s.scenario == verdict.scenario && s.estimator == **law);
                standing.map_or("-".into(), cell)
            };
            std::iter::once(verdict.scenario.clone()).chain(laws.iter().map(of)).collect()
        };
        verdicts.iter().map(row).collect()
    };
    let share =
        |standing: &Standing| shares(standing.figure("goodput_share"), standing.figure("mean_rt_ratio"));
    let mut shares = rows(share);
    for (row, verdict) in shares.iter_mut().zip(verdicts) {
        row.push(rule_cell(verdict));
    }
    shares.push(means(played, &laws, verdicts));
    vec![
        Table {
            title: "Goodput as a share of the oracle's / mean response time over unloaded".into(),
            note: format!(
                "Medians over seeds {seeds}. In brackets: a mean response time of more than {MOST_RESPONSE} times the \
                 unloaded one, which the oracle does not take. The rule: {OURS} is first or within {:.0} % of the first of \
                 the others.",
                NEAR_FIRST * 100.0
            ),
            head: with("scenario", "rule"),
            rows: shares,
        },
        Table {
            title: "Goodput share that nine of ten seeds reach".into(),
            note: "A law that collapses now and then has a good median and a bad worst tenth.".into(),
            head: with("scenario", ""),
            rows: rows(|standing| decimals(standing.worst_goodput, 3)),
        },
        Table {
            title: "Settle time (s) / error (%) / oscillation (%)".into(),
            note: "Medians: until the believed capacity stays within 5 % of the truth (never: in most seeds it does not), \
                   its error and 1.96 standard deviations over the last third. With changes, the worst stretch after \
                   the first; a dash: nobody ever had to wait for long."
                .into(),
            head: with("scenario", ""),
            rows: rows(belief_cell),
        },
        summary(played, &laws),
        truths(played),
    ]
}

/// What a mean hides, law by law.
fn summary(played: &Played, laws: &[&str]) -> Table {
    let told = overall(&played.standings);
    let row = |law: &&str| {
        let of = |figure: &str| {
            let name = format!("{law}.all.{figure}");
            told.iter().find(|told| told.name == name).and_then(|told| told.value)
        };
        let three = |figure: &str| {
            let all = ["", "_p10", "_worst"].map(|which| decimals(of(&format!("{figure}{which}")), 3));
            all.join(" / ")
        };
        let ratios = ["mean_rt_ratio", "mean_rt_ratio_worst"].map(|figure| decimals(of(figure), 2));
        vec![(*law).to_owned(), three("goodput_share"), three("of_fixed"), ratios.join(" / ")]
    };
    Table {
        title: "Over all scenarios".into(),
        note: "Goodput as a share of the oracle's, and over that of the fixed limit and rate found offline, on the same \
               seeds: mean, worst tenth, worst. Response time over unloaded: mean, worst."
            .into(),
        head: ["estimator", "goodput", "over fixed", "response"].map(str::to_owned).to_vec(),
        rows: laws.iter().map(row).collect(),
    }
}

fn means(played: &Played, laws: &[&str], verdicts: &[Verdict]) -> Vec<String> {
    let told = overall(&played.standings);
    let of = |name: String| told.iter().find(|told| told.name == name).and_then(|told| told.value);
    let cell = |law: &&str| {
        let (share, ratio) = (of(format!("{law}.all.goodput_share")), of(format!("{law}.all.mean_rt_ratio")));
        shares(share, ratio)
    };
    let held = verdicts.iter().filter(|verdict| verdict.holds).count();
    let rule = format!("{held} of {}", verdicts.len());
    std::iter::once("mean".to_owned()).chain(laws.iter().map(cell)).chain([rule]).collect()
}

/// In brackets if bought with response time.
fn shares(share: Option<f64>, ratio: Option<f64>) -> String {
    let text = format!("{} / {}", decimals(share, 3), decimals(ratio, 2));
    if ratio.is_some_and(|ratio| ratio <= MOST_RESPONSE) { text } else { format!("({text})") }
}

fn belief_cell(standing: &Standing) -> String {
    let figures = ["settle_s", "error_pct", "oscillation_pct"].map(|name| standing.figure(name));
    match figures {
        [None, None, None] => "-".into(),
        figures => figures.map(|figure| decimals(figure, 1)).join(" / "),
    }
}

fn rule_cell(verdict: &Verdict) -> String {
    let (Some((first, most)), Some(ours)) = (&verdict.first, verdict.ours) else { return "-".into() };
    let behind = (ours / most - 1.0) * 100.0;
    match verdict.holds {
        true if first == OURS => "first".into(),
        true => format!("{behind:+.1} % of {first}"),
        false if !verdict.prompt => "NO: too slow".into(),
        false => format!("NO: {behind:+.1} % of {first}"),
    }
}

fn truths(played: &Played) -> Table {
    let mut rows = Vec::new();
    for (scenario, known) in &played.truths {
        for (stretch, truth) in known {
            let time = format!("{}-{}", stretch.from.as_secs(), stretch.to.as_secs());
            let limit = truth.limit.to_string();
            let figures = [truth.capacity, truth.response_ms, truth.unloaded_ms, truth.unloaded_p99_ms];
            let [capacity, response, unloaded, p99] = figures.map(|figure| cell(Some(figure)));
            rows.push(vec![scenario.clone(), time, capacity, limit, response, unloaded, p99]);
        }
    }
    let head =
        ["scenario", "from-to (s)", "capacity (/s)", "limit", "response (ms)", "unloaded (ms)", "p99 (ms)"];
    Table {
        title: "The oracle".into(),
        note: format!(
            "The best fixed number of requests in flight of each stretch: highest goodput with a mean response time of \
             at most {MOST_RESPONSE} times the unloaded one."
        ),
        head: head.map(str::to_owned).to_vec(),
        rows,
    }
}

fn decimals(figure: Option<f64>, decimals: usize) -> String {
    match figure {
        None => "-".into(),
        Some(figure) if figure.is_infinite() => "never".into(),
        Some(figure) => format!("{figure:.decimals$}"),
    }
}
