//! `/v1/correlation`: which types of requests load which figure (docs/correlation.md).

use std::time::Duration;

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_core::class_costs::ClassCosts;
use tidegate_core::correlate::{Analysis, Cost, TypeAnalysis, TypeName, Verdict};
use tidegate_core::detect::Level;

use super::answer::{Outcome, Problem, document};
use super::call::Call;
use super::route::{Param, Place, Reply};
use super::schema::{exactly, whole_number, why};
use super::state::ConfiguredCost;
use crate::config::Config;
use crate::control::correlation::FigureNow;
use crate::control::correlation::confirm::{NoTrial, Suspicion, Trial};
use tidegate_settings::kind::parse_duration;
use tidegate_settings::{Correlate, DEFAULT, INTERVAL, did_you_mean, tree};

pub(super) const FIGURE: Param = Param {
    name: "figure",
    place: Place::Query,
    about: "Its name; if not given, that of the reddest detector, or else the first one.",
    schema: || json!({ "type": "string", "minLength": 1, "maxLength": 64 }),
};

/// Intervals that `recent` may ask for: those of the default window.
const MAX_RECENT: u64 = 300;

pub(super) const RECENT: Param = Param {
    name: "recent",
    place: Place::Query,
    about: "How many of the last intervals are shown one by one; none if not given.",
    schema: || whole_number(0, MAX_RECENT, "Intervals."),
};

pub(super) const UNKNOWN: Reply = Reply::problem(
    StatusCode::NOT_FOUND,
    "There is no such figure, or none yet, or `correlate.enabled` is off.",
);

pub(super) fn get(call: &Call) -> Outcome {
    let live = call.shared().config.load_full();
    let settings = &live.settings.correlate;
    if !settings.enabled {
        return Err(Problem::not_found("nothing is counted: correlate.enabled is off"));
    }
    let correlation = call.control().correlation();
    let figures = correlation.figures();
    let asked = call.query("figure").and_then(|name| name.as_str());
    let name = match asked {
        Some(name) if !figures.iter().any(|(figure, _)| *figure.name == *name) => {
            return Err(unknown(name, &figures));
        }
        Some(name) => name.into(),
        None => reddest(&figures).ok_or_else(|| Problem::not_found("no second has ended yet"))?,
    };
    let gone = || unknown(&name, &figures);
    let found = correlation.analysis(&name).ok_or_else(gone)?;
    let recent = call.query_integer("recent").map_or(0, |recent| recent.min(MAX_RECENT) as usize);
    let at_ms = correlation.last_interval().map_or(0, |at| at.as_millis());
    let red = figures.iter().find(|(figure, _)| figure.name == name).and_then(|(figure, _)| figure.red);
    let mut shown = Correlation::new(&found, &figures, recent, at_ms, red, &live);
    shown.costs = costs(&found, &live, call.shared().admission.costs());
    shown.confirmation = correlation.with_trial(ConfirmationShown::new);
    let throttled = call.control().throttles().all();
    for of in &mut shown.types {
        of.throttle = throttled.iter().find(|throttle| *throttle.name == *of.of).map(|one| one.id.0);
    }
    Ok(document(&shown))
}

pub(super) const NONE: Reply = Reply::problem(StatusCode::NOT_FOUND, "There is no confirmation.");
pub(super) const NO_SUSPECT: Reply =
    Reply::problem(StatusCode::UNPROCESSABLE_ENTITY, "There is no such type or figure.");
pub(super) const NOT_NOW: Reply =
    Reply::problem(StatusCode::CONFLICT, "One is under way, or the type is throttled, or nothing is held.");

/// How long each phase is, if nobody says: enough for a t test, and short for those who are refused.
const USUAL: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(60);
const SHORTEST: Duration = Duration::from_secs(5);

/// `POST /v1/correlation/confirmation`
pub(super) fn confirm(call: &Call) -> Outcome {
    let correlation = call.control().correlation();
    let text = call.body["type"].as_str().unwrap_or_default();
    let name = TypeName::parse(text).ok().filter(|name| *name != TypeName::Other);
    let name = name.ok_or_else(|| {
        let got = tree::quoted(text);
        Problem::refused(format!("type: expected \"class:NAME\" or \"path:/TEMPLATE\"; got {got}."))
    })?;
    let lasts = match call.body["for"].as_str() {
        None => USUAL,
        Some(text) => {
            parse_duration(text).filter(|lasts| (SHORTEST..=LONGEST).contains(lasts)).ok_or_else(|| {
                let got = tree::quoted(text);
                Problem::refused(format!("for: expected a duration from 5s to 60s; got {got}."))
            })?
        }
    };
    let figures = correlation.figures();
    let figure = match call.body["figure"].as_str() {
        Some(name) => figures.iter().find(|(figure, _)| *figure.name == *name).map(|(of, _)| of.name.clone()),
        None => reddest(&figures),
    };
    let asked = call.body["figure"].as_str().unwrap_or_default();
    let figure = figure.ok_or_else(|| Problem::refused(no_figure(asked, &figures)))?;
    let keep = call.body["keep"].as_f64().unwrap_or(0.5);
    correlation.confirm(Suspicion { name, keep, figure, lasts }, call.by().who).map_err(|e| match e {
        NoTrial::NothingSeen | NoTrial::Throttle(_) => Problem::refused(e.to_string()),
        NoTrial::UnderWay | NoTrial::Throttled | NoTrial::Shadow => Problem::conflict(e.to_string()),
    })?;
    let shown = correlation.with_trial(ConfirmationShown::new);
    let mut answer = document(&shown.ok_or_else(|| Problem::conflict("it was ended meanwhile"))?);
    *answer.status_mut() = StatusCode::CREATED;
    Ok(answer)
}

/// `DELETE /v1/correlation/confirmation`
pub(super) fn end_confirmation(call: &Call) -> Outcome {
    let correlation = call.control().correlation();
    let shown = correlation.with_trial(ConfirmationShown::new);
    match shown {
        Some(shown) if correlation.end_confirmation(call.by()) => Ok(document(&shown)),
        _ => Err(Problem::not_found("there is no confirmation")),
    }
}

pub(super) fn suspicion() -> Value {
    let of = json!({
        "type": "string", "maxLength": 300, "description": "The suspect: `class:NAME` or `path:/TEMPLATE`.",
    });
    let keep = json!({
        "type": "number", "minimum": 0, "maximum": 0.9,
        "description": "The share of its requests that it keeps while it is held; 0.5 if left out.",
    });
    let lasts = json!({
        "type": "string", "maxLength": 32,
        "description": "How long each phase is, from \"5s\" to \"60s\"; \"10s\" if left out.",
    });
    let figure = json!({
        "type": "string", "maxLength": 64,
        "description": "The figure; if left out, that of the reddest detector, or else the first one.",
    });
    exactly(&[("type", of), ("keep", keep), ("for", lasts), ("figure", figure), ("why", why())], &["type"])
}

fn unknown(name: &str, figures: &[(FigureNow, usize)]) -> Problem {
    Problem::not_found(no_figure(name, figures))
}

fn no_figure(name: &str, figures: &[(FigureNow, usize)]) -> String {
    let hint = did_you_mean(name, figures.iter().map(|(figure, _)| &*figure.name)).unwrap_or_default();
    format!("there is no figure {}. {hint}", tree::quoted(name)).trim_end().to_owned()
}

/// The detector with the highest level above green, and among equals with the largest fraction; else the
/// first figure.
fn reddest(figures: &[(FigureNow, usize)]) -> Option<std::sync::Arc<str>> {
    let key = |figure: &FigureNow| (figure.level, figure.fraction.unwrap_or_default());
    let raised = figures.iter().map(|(figure, _)| figure).filter(|figure| figure.level > Some(Level::Green));
    let reddest = raised.reduce(|best, next| if key(next) > key(best) { next } else { best });
    reddest.or(figures.first().map(|(figure, _)| figure)).map(|figure| figure.name.clone())
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Correlation {
    /// The figure that the types are compared with.
    figure: String,
    /// Every figure there is.
    figures: Vec<FigureShown>,
    /// The end of the last interval, in milliseconds since 1970.
    at_ms: u64,
    /// Seconds of an interval.
    interval_s: f64,
    /// Intervals in the window so far.
    intervals: usize,
    /// Level of significance.
    alpha: f64,
    /// Whether the level bounds the share of false discoveries among all types.
    false_discovery: bool,
    /// Most intervals by which the figure may follow the requests.
    max_lag: usize,
    /// Requests that went to the origin, per second of the window.
    per_s: f64,
    /// The share of them that is of culprits.
    correlated_share: f64,
    /// The most culpable first; those without a request in the window are left out.
    types: Vec<TypeShown>,
    /// The figure in the last intervals, the oldest first; null: not known. Only with `recent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    recent: Option<Vec<Option<f64>>>,
    /// What throttling the culprits would do; null: there is none.
    suggestion: Option<SuggestionShown>,
    /// The one under way, or else the last one; null: there was none.
    confirmation: Option<ConfirmationShown>,
    /// What the work of a class costs, by the figure.
    costs: Vec<ClassCost>,
    auto: Auto,
}

#[derive(Serialize, JsonSchema)]
struct FigureShown {
    name: String,
    /// detector or gate.
    kind: &'static str,
    /// In the last second; null: not known.
    value: Option<f64>,
    /// red, orange, green or unknown; null: a figure of the gate has none.
    level: Option<&'static str>,
    /// Intervals in its window.
    intervals: usize,
}

#[derive(Serialize, JsonSchema)]
struct TypeShown {
    /// class:NAME, path:/TEMPLATE or other.
    #[serde(rename = "type")]
    of: String,
    /// class, path or other.
    kind: &'static str,
    /// Without the kind.
    name: String,
    /// Pearson's coefficient, -1 to 1; null: not enough data.
    r: Option<f64>,
    /// How likely chance alone makes such an r.
    p: Option<f64>,
    /// Intervals that it was computed from.
    n: usize,
    /// Intervals by which the figure follows the requests.
    lag: usize,
    /// Whether r is positive and p small enough.
    significant: bool,
    /// Whether it is significant, and costs something beside all others.
    culprit: bool,
    /// Of all requests, 0 to 1.
    share: f64,
    /// Requests per second of the window, and of the last interval.
    per_s: f64,
    last_per_s: f64,
    /// Null: not enough data, or not to be told from other types.
    cost: Option<CostShown>,
    /// The id of the throttle that it is under; null: none.
    throttle: Option<u32>,
    /// Requests per second in the last intervals. Only with `recent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    recent: Option<Vec<f64>>,
}

/// By how much one request raises the figure for an interval.
#[derive(Serialize, JsonSchema)]
struct CostShown {
    /// In the unit of the figure.
    per_request: f64,
    /// Ends of the 95 % confidence interval.
    low: f64,
    high: f64,
}

#[derive(Serialize, JsonSchema)]
struct SuggestionShown {
    /// The share of their requests that the culprits keep.
    keep: f64,
    /// In a sentence.
    why: String,
    throttles: Vec<ThrottleShown>,
    /// The same for the configuration file; null: nothing of it can be written there.
    toml: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct ThrottleShown {
    #[serde(rename = "type")]
    of: String,
    /// Requests per second that it had while the figure was near its maximum.
    had_per_s: f64,
    action: ActionShown,
}

#[derive(Serialize, JsonSchema)]
struct ActionShown {
    /// Requests per second that pass.
    rate: f64,
}

/// Whether the figure falls while a suspect is held.
#[derive(Serialize, JsonSchema)]
pub(super) struct ConfirmationShown {
    /// The suspect.
    #[serde(rename = "type")]
    of: String,
    /// The share of its requests that it keeps while it is held.
    keep: f64,
    figure: String,
    /// before, held, after or done.
    phase: &'static str,
    /// The figure's mean before, while the suspect is held, and after; null: not known yet.
    before: Option<f64>,
    during: Option<f64>,
    after: Option<f64>,
    /// confirmed, not confirmed or inconclusive; null: it is not done.
    verdict: Option<&'static str>,
    /// In milliseconds since 1970.
    began_ms: u64,
    ends_ms: u64,
}

impl ConfirmationShown {
    fn new(trial: &Trial) -> Self {
        let Trial { suspicion, confirmation, .. } = trial;
        let [before, during, after] = confirmation.means();
        Self {
            of: suspicion.name.to_string(),
            keep: suspicion.keep,
            figure: suspicion.figure.to_string(),
            phase: confirmation.phase().name(),
            before,
            during,
            after,
            verdict: confirmation.verdict().map(Verdict::name),
            began_ms: trial.began.as_millis(),
            ends_ms: trial.ends.as_millis(),
        }
    }
}

/// In multiples of the mean request's cost, as `class.cost` is.
#[derive(Serialize, JsonSchema)]
struct ClassCost {
    class: String,
    configured: ConfiguredCost,
    /// What a request is charged now.
    charged: f64,
    /// Null: the class is no type, or its cost is not known.
    measured: Option<f64>,
    /// Ends of the 95 % confidence interval.
    low: Option<f64>,
    high: Option<f64>,
}

/// `correlate.auto`.
#[derive(Serialize, JsonSchema)]
struct Auto {
    enabled: bool,
    /// Types that are never throttled.
    never: Vec<String>,
    /// The smallest share that a type keeps.
    keep: f64,
    /// How long a throttle lasts.
    for_s: f64,
    /// Detectors whose red is a reason; none: all are.
    figures: Vec<String>,
}

impl Correlation {
    fn new(
        found: &Analysis,
        figures: &[(FigureNow, usize)],
        recent: usize,
        at_ms: u64,
        red: Option<f64>,
        live: &Config,
    ) -> Self {
        let settings = &live.settings.correlate;
        let from = found.values.len().saturating_sub(recent);
        let known = found.values.iter().filter(|value| value.is_finite()).count();
        let values = found.values[from..].iter().map(|value| Some(*value).filter(|value| value.is_finite()));
        Self {
            figure: found.figure.to_string(),
            figures: figures.iter().map(FigureShown::new).collect(),
            at_ms,
            interval_s: INTERVAL.as_secs_f64(),
            intervals: found.values.len(),
            alpha: found.settings.alpha,
            false_discovery: found.settings.false_discovery,
            max_lag: found.settings.max_lag,
            per_s: found.per_s(),
            correlated_share: found.correlated_share(),
            types: found.types.iter().map(|of| TypeShown::new(of, known, recent)).collect(),
            recent: (recent > 0).then(|| values.collect()),
            suggestion: SuggestionShown::new(found, red, settings),
            confirmation: None,
            costs: Vec::new(),
            auto: Auto::new(settings),
        }
    }
}

impl FigureShown {
    fn new((figure, intervals): &(FigureNow, usize)) -> Self {
        Self {
            name: figure.name.to_string(),
            kind: if figure.is_detector { "detector" } else { "gate" },
            value: figure.value,
            level: figure.level.map(Level::name),
            intervals: *intervals,
        }
    }
}

impl TypeShown {
    fn new(of: &TypeAnalysis, known: usize, recent: usize) -> Self {
        let finding = &of.finding;
        let rate = |requests: &f64| requests / INTERVAL.as_secs_f64();
        let from = of.counts.len().saturating_sub(recent);
        Self {
            of: of.name.to_string(),
            kind: of.name.kind(),
            name: of.name.name().into(),
            r: finding.correlation.map(|found| found.r),
            p: finding.correlation.map(|found| found.p),
            n: finding.correlation.map_or(known, |found| found.n),
            lag: finding.lag,
            significant: finding.is_significant,
            culprit: finding.is_culprit,
            share: finding.share,
            per_s: of.per_s,
            last_per_s: of.counts.last().map_or(0.0, rate),
            cost: finding.cost.map(|Cost { per_request, low, high }| CostShown { per_request, low, high }),
            throttle: None,
            recent: (recent > 0).then(|| of.counts[from..].iter().map(rate).collect()),
        }
    }
}

impl SuggestionShown {
    fn new(found: &Analysis, red: Option<f64>, settings: &Correlate) -> Option<Self> {
        let suggestion = found.suggestion(red, |name| settings.auto.is_spared(name))?;
        let throttles = suggestion.throttles.iter().map(|throttled| ThrottleShown {
            of: throttled.name.to_string(),
            had_per_s: throttled.had,
            action: ActionShown { rate: throttled.rate },
        });
        Some(Self {
            keep: suggestion.keep,
            why: suggestion.why(&found.figure),
            throttles: throttles.collect(),
            toml: suggestion.toml(&found.figure),
        })
    }
}

/// Of the configured classes, in the order of the file.
fn costs(found: &Analysis, live: &Config, charged: &ClassCosts) -> Vec<ClassCost> {
    let mean = found.mean_cost();
    let classes = live.in_order().filter(|(_, facts)| !facts.is_gone);
    let of_class = |name: &std::sync::Arc<str>| {
        let cost = found.of(&TypeName::Class(name.clone()))?.finding.cost?;
        mean.map(|mean| [cost.per_request, cost.low, cost.high].map(|cost| cost / mean))
    };
    let shown = classes.filter_map(|(id, facts)| {
        let measured = of_class(&facts.name);
        let [per_request, low, high] = [0, 1, 2].map(|at| measured.map(|costs| costs[at]));
        // The default class is many types, unless classes alone are types.
        (*facts.name != *DEFAULT || measured.is_some()).then(|| ClassCost {
            class: facts.name.to_string(),
            configured: ConfiguredCost::new(facts.cost),
            charged: charged.charged(id).units(),
            measured: per_request,
            low,
            high,
        })
    });
    shown.collect()
}

impl Auto {
    fn new(settings: &Correlate) -> Self {
        let auto = &settings.auto;
        Self {
            enabled: auto.enabled,
            never: auto.never.clone(),
            keep: auto.keep,
            for_s: auto.lasts.as_secs_f64(),
            figures: auto.figures.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reddest_detector_is_shown_if_none_is_named() {
        let figure = |name: &str, level: Option<Level>, fraction| {
            let figure = FigureNow {
                name: name.into(),
                is_detector: level.is_some(),
                value: None,
                level,
                fraction: Some(fraction),
                red: None,
            };
            (figure, 9)
        };
        let (green, orange, red) = (Some(Level::Green), Some(Level::Orange), Some(Level::Red));
        let chosen = |figures: &[_]| reddest(figures).map(|name| name.to_string());
        let all = [figure("a", green, 0.99), figure("b", orange, 0.9), figure("c", red, 1.0)];
        assert_eq!(chosen(&all).as_deref(), Some("c"));
        assert_eq!(chosen(&all[..2]).as_deref(), Some("b"));
        let calm = [figure("a", green, 0.1), figure("b", green, 0.9), figure("gate", None, 0.0)];
        assert_eq!(chosen(&calm).as_deref(), Some("a"));
        let two = [figure("a", red, 0.5), figure("b", red, 0.9), figure("c", red, 0.9)];
        assert_eq!(chosen(&two).as_deref(), Some("b"));
        assert_eq!(chosen(&[]), None);
    }
}
