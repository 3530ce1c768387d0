//! Throttles without asking (`correlate.auto`): while a detector is red and its culprits are known, they are
//! throttled as suggested, within the bounds that the operator has set.
//!
//! A detector must have been red for a time, and a type must have been a culprit in every analysis of that
//! time. Nothing more is done for a detector until the throttles that were put for it have ended; then it is
//! judged anew. The gate performs: it puts the throttles, which end by themselves.

use std::collections::BTreeMap;
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
}

/// A red detector, whose red may be a reason.
#[derive(Clone, Copy, Debug)]
pub struct Red<'a> {
    pub analysis: &'a Analysis,
    /// From here on its level is red; `None`: not known.
    pub threshold: Option<f64>,
}

/// What is remembered of a red detector.
#[derive(Clone, Default, Debug)]
struct Watched {
    since: Timestamp,
    culprits: BTreeMap<TypeName, Timestamp>,
    /// Until then throttles are in force that were put for it.
    throttled_until: Option<Timestamp>,
}

/// What is remembered of all detectors.
#[derive(Clone, Default, Debug)]
pub struct AutoThrottles {
    detectors: BTreeMap<Arc<str>, Watched>,
}

impl AutoThrottles {
    /// To be called after every analysis, with all red detectors. Returns the throttles to put, for each the
    /// detector, the type and the rate. `spared`: types that are not throttled, or are already.
    pub fn decide(
        &mut self,
        red: &[Red<'_>],
        settings: &AutoSettings,
        spared: impl Fn(&TypeName) -> bool,
        now: Timestamp,
    ) -> Vec<(Arc<str>, Throttled)> {
        self.detectors.retain(|name, watched| {
            watched.throttled_until = watched.throttled_until.filter(|until| now < *until);
            red.iter().any(|one| one.analysis.figure == *name) || watched.throttled_until.is_some()
        });
        // Of two detectors with the same culprit, the first throttles it.
        let mut put: Vec<(Arc<str>, Throttled)> = Vec::new();
        for Red { analysis, threshold } in red {
            let new = || Watched { since: now, ..Watched::default() };
            let watched = self.detectors.entry(analysis.figure.clone()).or_insert_with(new);
            watched.see(analysis, now);
            if watched.throttled_until.is_some() || now.since(watched.since) < settings.after {
                continue;
            }
            let is_sure = |name: &TypeName| {
                watched.culprits.get(name).is_some_and(|since| now.since(*since) >= settings.after)
            };
            let is_put = |name: &TypeName| put.iter().any(|(_, of)| of.name == *name);
            let is_spared = |name: &TypeName| !is_sure(name) || is_put(name) || spared(name);
            let Some(suggestion) = analysis.suggestion(*threshold, is_spared) else { continue };
            watched.throttled_until = Some(now + settings.lasts);
            put.extend(suggestion.throttles.into_iter().map(|of| {
                let rate = of.rate.max(settings.keep * of.had);
                (analysis.figure.clone(), Throttled { rate, ..of })
            }));
        }
        put
    }
}

impl Watched {
    /// Takes in an analysis.
    fn see(&mut self, analysis: &Analysis, now: Timestamp) {
        let before = std::mem::take(&mut self.culprits);
        let since = |name: &TypeName| before.get(name).copied().unwrap_or(now);
        self.culprits = analysis.culprits().map(|of| (of.name.clone(), since(&of.name))).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Columns, Settings};
    use super::*;

    const SETTINGS: AutoSettings =
        AutoSettings { keep: 0.1, lasts: Duration::from_secs(300), after: Duration::from_secs(10) };

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(1_800_000_000 + second)
    }

    /// A figure that `heavy` loads, if anything does; `light` does not.
    fn analysis(figure: &str, cost: f64) -> Analysis {
        let heavy: Vec<f64> = (0..60).map(|at| f64::from(at * 7 % 13)).collect();
        let light: Vec<f64> = (0..60).map(|at| f64::from(at * 5 % 11)).collect();
        let values = heavy.iter().zip(0..).map(|(x, at)| 0.2 + cost * x + 0.01 * f64::from(at % 3)).collect();
        let of = |name: &str| TypeName::parse(name).unwrap();
        let types = vec![(of("path:/heavy"), heavy), (of("path:/light"), light)];
        Columns { figure: figure.into(), types, values }.analyse(&Settings::default(), 1.0)
    }

    fn decide(auto: &mut AutoThrottles, red: &[&Analysis], second: u64) -> Vec<(String, f64)> {
        let red: Vec<_> = red.iter().map(|analysis| Red { analysis, threshold: Some(0.8) }).collect();
        let put = auto.decide(&red, &SETTINGS, |_| false, at(second));
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
            assert_eq!(decide(&mut auto, &[&db], second), [], "{second}: it is in force");
        }
        assert_eq!(decide(&mut auto, &[&db], 310).len(), 1, "judged anew");
    }

    #[test]
    fn a_detector_that_was_not_red_meanwhile_begins_anew() {
        let (mut auto, db) = (AutoThrottles::default(), analysis("db", 0.06));
        decide(&mut auto, &[&db], 0);
        decide(&mut auto, &[], 5);
        assert_eq!(decide(&mut auto, &[&db], 12), []);
        assert_eq!(decide(&mut auto, &[&db], 22).len(), 1);
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
        let red = [Red { analysis: &db, threshold: Some(0.05) }];
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
