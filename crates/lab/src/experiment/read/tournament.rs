//! `[experiment.tournament]`: which estimators meet in which scenarios, over which seeds.

use std::ops::RangeInclusive;

use tidegate_core::capacity;
use tidegate_settings::did_you_mean;
use tidegate_settings::tree::{Value, quoted};

use super::{Keys, Reader};
use crate::tournament::drawn::drawn;
use crate::tournament::{Drawn, Setting, Tournament};

/// The estimator that estimates nothing is left out of a tournament, unless it is named.
const NOT_BY_ITSELF: &str = "fixed";
/// Most seeds: a hundred times what medians need.
const MAX_SEEDS: u64 = 10_000;
/// Requests at each limit that the oracle tries: the capacity of an exponential service is known to 0.7 %,
/// and after the last four seeds to 0.4 %.
const TRUTH_REQUESTS: u32 = 20_000;
const MAX_TRUTH_REQUESTS: i64 = 10_000_000;

impl Reader<'_> {
    /// The section; `None` if there is none.
    pub(super) fn tournament(&mut self, keys: &Keys) -> Option<Tournament> {
        let keys = self.table(keys, "tournament")?;
        let known = ["estimators", "seeds", "all_seeds", "tune_seeds", "truth_requests", "scenario", "drawn"];
        self.only(&keys, &known);
        let seeds = self.seeds(&keys, "seeds");
        let all_seeds =
            if keys.get("all_seeds").is_some() { self.seeds(&keys, "all_seeds") } else { seeds.clone() };
        let origins = self.drawn(&keys);
        let mut scenarios = self.scenarios(&keys);
        scenarios.extend(origins.iter().flat_map(|set| set.origins.clone()).map(drawn));
        let tournament = Tournament {
            estimators: self.estimators(&keys),
            scenarios,
            drawn: origins,
            all_seeds,
            tune_seeds: self.seeds(&keys, "tune_seeds"),
            seeds,
            truth_requests: self.truth_requests(&keys),
        };
        if tournament.scenarios.is_empty() {
            let expected =
                "at least one [experiment.tournament.scenario.NAME], or [experiment.tournament.drawn]";
            self.wrong(Some(keys.at), &keys.key("scenario"), expected, "none");
        }
        self.apart(&keys, ("seeds", &tournament.seeds), ("tune_seeds", &tournament.tune_seeds));
        Some(tournament)
    }

    /// Parameters must not be fixed on what is reported.
    fn apart(
        &mut self,
        keys: &Keys,
        (name, report): (&str, &RangeInclusive<u64>),
        (tuned, tune): (&str, &RangeInclusive<u64>),
    ) {
        if tune.start() <= report.end() && report.start() <= tune.end() {
            let expected =
                format!("other seeds than `{tuned}`: parameters must not be fixed on what is reported");
            self.wrong(Some(keys.at), &keys.key(name), &expected, shown(report));
        }
    }

    fn drawn(&mut self, keys: &Keys) -> Option<Drawn> {
        keys.get("drawn")?;
        let keys = self.table(keys, "drawn")?;
        self.only(&keys, &["origins", "tune_origins"]);
        let (origins, tune_origins) = (self.seeds(&keys, "origins"), self.seeds(&keys, "tune_origins"));
        self.apart(&keys, ("origins", &origins), ("tune_origins", &tune_origins));
        Some(Drawn { origins, tune_origins })
    }

    fn scenarios(&mut self, keys: &Keys) -> Vec<Setting> {
        let mut settings = Vec::new();
        for (name, table) in self.tables(keys, "scenario", '-') {
            self.only(&table, &["about", "set"]);
            let (about, set) = (self.text(&table, "about"), self.set(&table));
            settings.push(Setting { name, about, set });
        }
        settings
    }

    /// Every estimator but `fixed`, unless the file names some.
    fn estimators(&mut self, keys: &Keys) -> Vec<String> {
        let known = || capacity::names().filter(|name| *name != NOT_BY_ITSELF);
        let Some(node) = keys.get("estimators") else { return known().map(str::to_owned).collect() };
        let (key, names) = (keys.key("estimators"), capacity::names().collect::<Vec<_>>());
        let expected = format!("an array of estimators ({})", names.join(", "));
        let items = match &node.value {
            Value::List(items) if !items.is_empty() => items.as_slice(),
            other => {
                self.wrong(Some(node.at), &key, &expected, other.describe());
                &[]
            }
        };
        let mut chosen = Vec::new();
        for item in items {
            match &item.value {
                Value::Text(name) if names.contains(&name.as_str()) => chosen.push(name.clone()),
                Value::Text(name) => {
                    let hint = did_you_mean(name, names.iter().copied()).unwrap_or_default();
                    let expected = format!("{expected} {hint}");
                    self.wrong(Some(item.at), &key, expected.trim_end(), quoted(name));
                }
                other => self.wrong(Some(item.at), &key, &expected, other.describe()),
            }
        }
        chosen
    }

    fn seeds(&mut self, keys: &Keys, name: &str) -> RangeInclusive<u64> {
        let text = self.text(keys, name);
        seeds(&text).unwrap_or_else(|expected| {
            // A missing text has been reported already.
            if !text.is_empty() {
                self.wrong(keys.get(name).map(|node| node.at), &keys.key(name), &expected, quoted(&text));
            }
            1..=1
        })
    }

    fn truth_requests(&mut self, keys: &Keys) -> u32 {
        match keys.get("truth_requests").map(|node| (node.at, &node.value)) {
            None => TRUTH_REQUESTS,
            Some((_, Value::Integer(n))) if (100..=MAX_TRUTH_REQUESTS).contains(n) => *n as u32,
            Some((at, other)) => {
                let expected = format!("a number from 100 to {MAX_TRUTH_REQUESTS}");
                self.wrong(Some(at), &keys.key("truth_requests"), &expected, other.describe());
                TRUTH_REQUESTS
            }
        }
    }
}

/// Seeds as they are written: `A..B`, both included; `A` alone is one.
pub fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.trim_start_matches('=').trim().parse::<u64>().ok();
    match (number(from), number(to)) {
        (Some(from), Some(to)) if from <= to && to - from < MAX_SEEDS && i64::try_from(to).is_ok() => {
            Ok(from..=to)
        }
        _ => Err(format!("seeds A..B with A at most B, such as 101..200, {MAX_SEEDS} at most")),
    }
}

fn shown(seeds: &RangeInclusive<u64>) -> String {
    format!("{}..{}", seeds.start(), seeds.end())
}
