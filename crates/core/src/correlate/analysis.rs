//! What the window of a figure says about each type, for people and for those who throttle.

use std::sync::Arc;

use super::suggestion::{Culprit, Situation, Suggestion, suggest};
use super::type_name::TypeName;
use super::{Finding, Settings, analyse};

/// A figure is near its maximum from this part of it on.
const NEAR: f64 = 0.9;

/// Requests by type, and a figure, in the same intervals.
#[derive(Clone, Debug)]
pub struct Columns {
    /// The figure's name.
    pub figure: Arc<str>,
    /// Every type with its requests per interval.
    pub types: Vec<(TypeName, Vec<f64>)>,
    /// NaN where the figure is not known.
    pub values: Vec<f64>,
}

/// What was found about the types, the most culpable first.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The figure's name.
    pub figure: Arc<str>,
    pub settings: Settings,
    /// Those that had requests.
    pub types: Vec<TypeAnalysis>,
    /// The figure per interval, NaN where it is not known.
    pub values: Vec<f64>,
    pub interval_s: f64,
}

/// What was found about a type.
#[derive(Clone, Debug)]
pub struct TypeAnalysis {
    pub name: TypeName,
    pub finding: Finding,
    /// Requests per second in the window, and while the figure was near its maximum.
    pub per_s: f64,
    pub busy_per_s: f64,
    /// Requests per interval.
    pub counts: Vec<f64>,
}

impl Columns {
    /// Takes types² × intervals steps (see [`analyse`]).
    pub fn analyse(self, settings: &Settings, interval_s: f64) -> Analysis {
        let Self { figure, types, values } = self;
        let came = types.into_iter().filter(|(_, counts)| counts.iter().any(|count| *count > 0.0));
        let (names, counts): (Vec<_>, Vec<_>) = came.unzip();
        let findings = analyse(&counts, &values, settings);
        let busy = busy(&values);
        let mean = |sum: f64, intervals: usize| sum / (intervals.max(1) as f64 * interval_s);
        let each = names.into_iter().zip(counts).zip(findings);
        let mut types: Vec<_> = each
            .map(|((name, counts), finding)| TypeAnalysis {
                name,
                finding,
                per_s: mean(counts.iter().sum(), counts.len()),
                busy_per_s: mean(busy.iter().map(|at| counts[*at]).sum(), busy.len()),
                counts,
            })
            .collect();
        let key = |of: &TypeAnalysis| {
            let Finding { is_culprit, is_significant, correlation, .. } = of.finding;
            (is_culprit, is_significant, correlation.map_or(f64::NEG_INFINITY, |found| found.r))
        };
        types.sort_by(|a, b| {
            let (a_key, b_key) = (key(a), key(b));
            let guilt = (b_key.0, b_key.1).cmp(&(a_key.0, a_key.1));
            guilt.then(b_key.2.total_cmp(&a_key.2)).then_with(|| a.name.cmp(&b.name))
        });
        Analysis { figure, settings: *settings, types, values, interval_s }
    }
}

/// Intervals in which the figure is near its maximum.
fn busy(values: &[f64]) -> Vec<usize> {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (0..values.len()).filter(|at| values[*at] >= NEAR * most).collect()
}

impl Analysis {
    pub fn culprits(&self) -> impl Iterator<Item = &TypeAnalysis> {
        self.types.iter().filter(|of| of.finding.is_culprit)
    }

    /// The share of all requests that are of culprits.
    pub fn correlated_share(&self) -> f64 {
        self.culprits().fold(0.0, |sum, of| sum + of.finding.share)
    }

    /// Requests per second in the window.
    pub fn per_s(&self) -> f64 {
        self.types.iter().fold(0.0, |sum, of| sum + of.per_s)
    }

    pub fn of(&self, name: &TypeName) -> Option<&TypeAnalysis> {
        self.types.iter().find(|of| of.name == *name)
    }

    /// The mean cost of a request: that of each type counts by its share, and types whose cost is not known
    /// are left out. `None`: no cost is known, or all are zero.
    pub fn mean_cost(&self) -> Option<f64> {
        let known = || self.types.iter().filter_map(|of| Some((of.finding.share, of.finding.cost?)));
        let (share, cost) = known().fold((0.0, 0.0), |(share, cost), (part, of_type)| {
            (share + part, cost + part * of_type.per_request)
        });
        Some(cost / share).filter(|mean| mean.is_finite() && *mean > 0.0)
    }

    /// What throttling the culprits would do. `red`: from here on the figure is too high. `spared`: types
    /// that are not throttled, as [`TypeName::Other`] never is: its paths have nothing in common. `None`:
    /// there is no other culprit.
    pub fn suggestion(&self, red: Option<f64>, spared: impl Fn(&TypeName) -> bool) -> Option<Suggestion> {
        let is_spared = |name: &TypeName| *name == TypeName::Other || spared(name);
        let throttled: Vec<&TypeAnalysis> = self.culprits().filter(|of| !is_spared(&of.name)).collect();
        let culprits: Vec<_> = throttled
            .iter()
            .map(|of| Culprit {
                per_s: of.busy_per_s,
                cost: of.finding.cost.map(|cost| cost.per_request * self.interval_s),
            })
            .collect();
        let busy = busy(&self.values);
        let mean = busy.iter().map(|at| self.values[*at]).sum::<f64>() / busy.len().max(1) as f64;
        let most = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let names = throttled.iter().map(|of| of.name.clone()).collect();
        (!culprits.is_empty()).then(|| suggest(&Situation { mean, most, red }, &culprits, names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A figure that one type loads: 10 per request, on a base of 100.
    fn columns() -> Columns {
        let heavy: Vec<f64> = (0..60).map(|at| f64::from(at * 7 % 13)).collect();
        let light: Vec<f64> = (0..60).map(|at| f64::from(at * 5 % 11)).collect();
        let values = heavy.iter().zip(0..).map(|(x, at)| 100.0 + 10.0 * x + f64::from(at % 3)).collect();
        let named = |name: &str, counts| (TypeName::parse(name).unwrap(), counts);
        let types = vec![
            named("path:/light", light),
            named("class:heavy", heavy),
            named("path:/none", vec![0.0; 60]),
        ];
        Columns { figure: "cpu".into(), types, values }
    }

    #[test]
    fn culprits_come_first_and_types_without_requests_do_not_come() {
        let found = columns().analyse(&Settings::default(), 1.0);
        let names: Vec<_> = found.types.iter().map(|of| of.name.to_string()).collect();
        assert_eq!(names, ["class:heavy", "path:/light"]);
        assert_eq!(found.culprits().count(), 1);
        let heavy = &found.types[0];
        assert!((found.correlated_share() - heavy.finding.share).abs() < 1e-12);
        assert!((found.per_s() - found.types.iter().map(|of| of.per_s).sum::<f64>()).abs() < 1e-12);
        assert!(heavy.busy_per_s > 10.0 && heavy.per_s < 7.0, "it has most at the maximum: {heavy:?}");
    }

    #[test]
    fn the_mean_cost_is_that_of_a_request() {
        let found = columns().analyse(&Settings::default(), 1.0);
        let share = found.types[0].finding.share;
        let [heavy, light] = [0, 1].map(|at| found.types[at].finding.cost.expect("a cost").per_request);
        assert!((heavy - 10.0).abs() < 0.1 && light < 0.1, "{heavy} and {light}");
        let mean = found.mean_cost().expect("a mean");
        assert!((mean - (share * heavy + (1.0 - share) * light)).abs() < 1e-9);
        let nothing = Columns { types: Vec::new(), ..columns() }.analyse(&Settings::default(), 1.0);
        assert_eq!(nothing.mean_cost(), None);
    }

    #[test]
    fn nothing_is_suggested_without_a_culprit() {
        let found = columns().analyse(&Settings::default(), 1.0);
        let all = found.suggestion(None, |_| false).expect("a suggestion");
        assert_eq!(all.throttles.len(), 1);
        assert_eq!(all.throttles[0].name.to_string(), "class:heavy");
        assert!(all.throttles[0].rate < found.types[0].busy_per_s);
        assert!(found.suggestion(None, |name| name.kind() == "class").is_none());
    }
}
