//! Throttles without asking (`correlate.auto`): while a detector is red and its culprits are known, they are
//! throttled as suggested, within the bounds that the operator has set.
//!
//! A detector must have been red for a time, and a type must have been a culprit in every analysis of some
//! time: of late, or before the detector became red. In an overload all requests stand in line together, the
//! figure follows no type any more, and little can be found out. If the detector is still red as long a time
//! after throttles were put for it, what else is sure by then is throttled too. A throttle ends by itself,
//! and its type is judged anew. The gate performs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::analysis::Analysis;
use super::suggestion::Throttled;
use super::type_name::TypeName;
use crate::units::Timestamp;

/// The operator's bounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AutoSettings {
    /// Smallest share of its requests that a type keeps.
    pub keep: f64,
    /// How long a throttle lasts.
    pub lasts: Duration,
    /// How long a detector must have been red, and a type a culprit.
    pub after: Duration,
    /// How long what was found before the detector became red is believed.
    pub remembers: Duration,
}

/// A detector, whose red may be a reason.
#[derive(Clone, Debug)]
pub struct Judged {
    pub analysis: Arc<Analysis>,
    pub is_red: bool,
    /// From here on its level is red; `None`: not known.
    pub threshold: Option<f64>,
}

/// What is remembered of a detector.
#[derive(Clone, Default, Debug)]
struct Watched {
    red_since: Option<Timestamp>,
    /// Since when each type was a culprit in every analysis.
    culprits: BTreeMap<TypeName, Timestamp>,
    /// The last analysis with sure culprits while it was not red, and those.
    before: Option<Before>,
    /// When each type was throttled for it last: who ends a throttle early does not want it again.
    throttled: BTreeMap<TypeName, Timestamp>,
}

#[derive(Clone, Debug)]
struct Before {
    at: Timestamp,
    analysis: Arc<Analysis>,
    sure: BTreeSet<TypeName>,
}

/// What is remembered of all detectors.
#[derive(Clone, Default, Debug)]
pub struct AutoThrottles {
    detectors: BTreeMap<Arc<str>, Watched>,
}

impl AutoThrottles {
    /// To be called after every analysis, with all detectors. Returns the throttles to put, for each the
    /// detector, the type and the rate. `spared`: types that are not throttled, or are already.
    pub fn decide(
        &mut self,
        detectors: &[Judged],
        settings: &AutoSettings,
        spared: impl Fn(&TypeName) -> bool,
        now: Timestamp,
    ) -> Vec<(Arc<str>, Throttled)> {
        self.detectors.retain(|name, _| detectors.iter().any(|one| one.analysis.figure == *name));
        // Of two detectors with the same culprit, the first throttles it.
        let mut put: Vec<(Arc<str>, Throttled)> = Vec::new();
        for Judged { analysis, is_red, threshold } in detectors {
            let watched = self.detectors.entry(analysis.figure.clone()).or_default();
            let sure = watched.see(analysis, *is_red, settings, now);
            if !watched.is_due(settings, now) {
                continue;
            }
            let throttled = &watched.throttled;
            let is_put = |name: &TypeName| put.iter().any(|(_, of)| of.name == *name);
            let mut found: Vec<Throttled> = Vec::new();
            for (analysis, sure) in
                watched.before.iter().map(|b| (&b.analysis, &b.sure)).chain([(analysis, &sure)])
            {
                let is_found = |name: &TypeName| found.iter().any(|of| of.name == *name);
                let is_done =
                    |name: &TypeName| is_found(name) || is_put(name) || throttled.contains_key(name);
                let is_spared = |name: &TypeName| !sure.contains(name) || is_done(name) || spared(name);
                let suggestion = analysis.suggestion(*threshold, is_spared);
                found.extend(suggestion.into_iter().flat_map(|suggestion| suggestion.throttles));
            }
            if found.is_empty() {
                continue;
            }
            watched.throttled.extend(found.iter().map(|of| (of.name.clone(), now)));
            put.extend(found.into_iter().map(|of| {
                let rate = of.rate.max(settings.keep * of.had);
                (analysis.figure.clone(), Throttled { rate, ..of })
            }));
        }
        put
    }
}

impl Watched {
    /// Takes in an analysis. Returns the types that are sure to be culprits by those of late.
    fn see(
        &mut self,
        analysis: &Arc<Analysis>,
        is_red: bool,
        settings: &AutoSettings,
        now: Timestamp,
    ) -> BTreeSet<TypeName> {
        let named = std::mem::take(&mut self.culprits);
        let since = |name: &TypeName| named.get(name).copied().unwrap_or(now);
        self.culprits = analysis.culprits().map(|of| (of.name.clone(), since(&of.name))).collect();
        let is_sure = |since: &Timestamp| now.since(*since) >= settings.after;
        let sure = self.culprits.iter().filter(|(_, since)| is_sure(since));
        let sure: BTreeSet<_> = sure.map(|(name, _)| name.clone()).collect();
        self.throttled.retain(|_, since| now.since(*since) < settings.lasts);
        self.before = self.before.take().filter(|before| now.since(before.at) < settings.remembers);
        if is_red {
            self.red_since.get_or_insert(now);
        } else {
            self.red_since = None;
            if !sure.is_empty() {
                self.before = Some(Before { at: now, analysis: analysis.clone(), sure: sure.clone() });
            }
        }
        sure
    }

    /// Whether it has been red for long enough, also since something was done about it.
    fn is_due(&self, settings: &AutoSettings, now: Timestamp) -> bool {
        let acted_at = self.throttled.values().max().copied().unwrap_or_default();
        let since = self.red_since.map(|since| since.max(acted_at));
        since.is_some_and(|since| now.since(since) >= settings.after)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Columns, Settings};
    use super::*;

    const SETTINGS: AutoSettings = AutoSettings {
        keep: 0.1,
        lasts: Duration::from_secs(300),
        after: Duration::from_secs(10),
        remembers: Duration::from_secs(300),
    };

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(1_800_000_000 + second)
    }

    /// A figure that `heavy` loads, if anything does; `light` does not.
    fn analysis(figure: &str, cost: f64) -> Arc<Analysis> {
        loaded_by(figure, cost, ["path:/heavy", "path:/light"])
    }

    /// A figure that the first type loads by `cost` per request, and the second does not.
    fn loaded_by(figure: &str, cost: f64, [loads, does_not]: [&str; 2]) -> Arc<Analysis> {
        let heavy: Vec<f64> = (0..60).map(|at| f64::from(at * 7 % 13)).collect();
        let light: Vec<f64> = (0..60).map(|at| f64::from(at * 5 % 11)).collect();
        let values = heavy.iter().zip(0..).map(|(x, at)| 0.2 + cost * x + 0.01 * f64::from(at % 3)).collect();
        let of = |name: &str| TypeName::parse(name).unwrap();
        let types = vec![(of(loads), heavy), (of(does_not), light)];
        Arc::new(Columns { figure: figure.into(), types, values }.analyse(&Settings::default(), 1.0))
    }

    fn judged(analysis: &Arc<Analysis>, is_red: bool, threshold: f64) -> Judged {
        Judged { analysis: analysis.clone(), is_red, threshold: Some(threshold) }
    }

    fn decide(auto: &mut AutoThrottles, red: &[&Arc<Analysis>], second: u64) -> Vec<(String, f64)> {
        let red: Vec<_> = red.iter().map(|analysis| judged(analysis, true, 0.8)).collect();
        act(auto, &red, second)
    }

    fn act(auto: &mut AutoThrottles, detectors: &[Judged], second: u64) -> Vec<(String, f64)> {
        let put = auto.decide(detectors, &SETTINGS, |_| false, at(second));
        put.into_iter().map(|(figure, of)| (format!("{figure} {}", of.name), of.rate)).collect()
    }

    #[test]
    fn the_culprit_of_a_detector_that_stays_red_is_throttled_once() {
        let (mut auto, db) = (AutoThrottles::default(), analysis("db", 0.06));
        for second in [0, 5, 9] {
            assert_eq!(decide(&mut auto, &[&db], second), [], "{second}");
        }
        let put = decide(&mut auto, &[&db], 10);
        assert_eq!((put.len(), put[0].0.as_str()), (1, "db path:/heavy"));
        let had = db.types[0].busy_per_s;
        assert!(put[0].1 >= 0.1 * had && put[0].1 < 0.9 * had, "{put:?} of {had}");
        for second in [15, 100, 309] {
            assert_eq!(decide(&mut auto, &[&db], second), [], "{second}: also where somebody has ended it");
        }
        assert_eq!(decide(&mut auto, &[&db], 310).len(), 1, "its throttle has ended: judged anew");
    }

    #[test]
    fn another_culprit_is_throttled_if_the_first_was_not_enough() {
        let (mut auto, calm, flooded) = (AutoThrottles::default(), analysis("db", 0.06), analysis("db", 0.0));
        let then = loaded_by("db", 0.06, ["path:/light", "path:/heavy"]);
        (0..=20).step_by(5).for_each(|second| {
            assert_eq!(act(&mut auto, &[judged(&calm, false, 0.8)], second), []);
        });
        assert_eq!([25, 30].map(|second| decide(&mut auto, &[&flooded], second).len()), [0, 0]);
        assert_eq!(decide(&mut auto, &[&flooded], 35)[0].0, "db path:/heavy");
        assert_eq!([40, 45].map(|second| decide(&mut auto, &[&then], second).len()), [0, 0], "not sure yet");
        let put = decide(&mut auto, &[&then], 50);
        assert_eq!((put.len(), put[0].0.as_str()), (1, "db path:/light"));
    }

    #[test]
    fn a_detector_that_was_not_red_meanwhile_begins_anew() {
        let (mut auto, db) = (AutoThrottles::default(), analysis("db", 0.06));
        decide(&mut auto, &[&db], 0);
        act(&mut auto, &[judged(&db, false, 0.8)], 5);
        assert_eq!(decide(&mut auto, &[&db], 12), []);
        assert_eq!(decide(&mut auto, &[&db], 22).len(), 1);
    }

    #[test]
    fn what_was_found_before_the_overload_is_throttled_in_it() {
        let (mut auto, calm, flooded) = (AutoThrottles::default(), analysis("db", 0.06), analysis("db", 0.0));
        let throttled = |auto: &mut AutoThrottles, red_from: u64, until: u64| {
            let seconds = (red_from..until).step_by(5);
            seconds.flat_map(|second| decide(auto, &[&flooded], second)).collect::<Vec<_>>()
        };
        for second in (0..=20).step_by(5) {
            assert_eq!(act(&mut auto, &[judged(&calm, false, 0.8)], second), [], "{second}: no reason");
        }
        let put = throttled(&mut auto.clone(), 25, 60);
        assert_eq!((put.len(), put[0].0.as_str()), (1, "db path:/heavy"));
        // What was found by one analysis may be chance, and what is old may be over.
        let mut chance = AutoThrottles::default();
        act(&mut chance, &[judged(&calm, false, 0.8)], 0);
        assert_eq!(throttled(&mut chance, 5, 60), []);
        assert_eq!(throttled(&mut auto, 400, 460), []);
    }

    #[test]
    fn a_type_must_have_been_a_culprit_all_the_time() {
        let (mut auto, db, innocent) = (AutoThrottles::default(), analysis("db", 0.06), analysis("db", 0.0));
        for (second, red) in [(0, &db), (6, &innocent), (12, &db), (18, &db)] {
            assert_eq!(decide(&mut auto, &[red], second), [], "{second}");
        }
        assert_eq!(decide(&mut auto, &[&db], 22).len(), 1);
    }

    #[test]
    fn the_operators_bounds_are_kept() {
        let db = analysis("db", 0.06);
        let red = [judged(&db, true, 0.05)];
        let put = |settings: &AutoSettings, spared: &dyn Fn(&TypeName) -> bool| {
            let mut auto = AutoThrottles::default();
            auto.decide(&red, settings, spared, at(0));
            auto.decide(&red, settings, spared, at(10))
        };
        assert_eq!(put(&SETTINGS, &|name| name.name() == "/heavy").len(), 0);
        let kept = put(&AutoSettings { keep: 0.7, ..SETTINGS }, &|_| false);
        assert!((kept[0].1.rate - 0.7 * kept[0].1.had).abs() < 1e-9, "{kept:?}");
    }

    #[test]
    fn two_detectors_throttle_a_type_once() {
        let (mut auto, a, b) = (AutoThrottles::default(), analysis("a", 0.06), analysis("b", 0.06));
        decide(&mut auto, &[&a, &b], 0);
        assert_eq!(decide(&mut auto, &[&a, &b], 10).len(), 1);
    }
}
