//! `GET /v1/history`: any figure over any time of the last year, as JSON or CSV.

use std::fmt::Write;

use http::header::ACCEPT;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Number, json};

use super::answer::{Outcome, Problem, document, whole};
use super::call::Call;
use super::route::{Param, Place};
use crate::control::driver::Control;
use crate::history::aggregate::Spread;
use crate::history::archive::{ARCHIVES, Series};
use crate::history::metrics::{self, Metric, Scope, Weight};
use crate::history::query::{Point, Points, Query};
use crate::history::store;
use tidegate_settings::kind::parse_duration;

/// Seconds that a query without `from` covers.
const DEFAULT_SPAN: u64 = 15 * 60;

const fn param(name: &'static str, about: &'static str) -> Param {
    Param { name, place: Place::Query, about, schema: || json!({ "type": "string" }) }
}

pub(super) const PARAMS: &[Param] = &[
    param("metric", "Which figure; without one the answer lists all there are."),
    param("class", "Of which class; `all` (the default): of all together."),
    param("tier", "Of which service level, instead of a class."),
    param("detector", "Of which detector; needed for `detector_...`."),
    param(
        "from",
        "Unix seconds, RFC 3339, `now`, or a time before now like `-1h30m`; a quarter of an hour before `to` if not given.",
    ),
    param("to", "As `from`; now if not given."),
    param(
        "step",
        "Seconds, or a duration like `2m`; the finest that is kept of the whole stretch if not given.",
    ),
    param("format", "`json` or `csv`; as `Accept` has it if not given."),
];

pub(super) fn get(call: &Call) -> Outcome {
    let control = call.control();
    if !control.history().health().enabled {
        return Err(Problem::not_found("no history is kept: history.enabled is false"));
    }
    let now = control.shared().clock.now().second();
    let accept = call.header(ACCEPT).unwrap_or_default();
    let query = PARAMS.iter().filter_map(|param| {
        let value = call.query(param.name)?.as_str()?;
        Some((param.name.to_owned(), value.to_owned()))
    });
    answered(control, &parse(query, accept, now).map_err(Problem::bad_request)?)
}

/// The answer of `GET /v1/history`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Answer {
    Figure(Figure),
    /// All there are, without `metric`.
    All(All),
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Figure {
    /// The figure.
    metric: String,
    /// The class; null: a figure of the whole gate, of a service level or of a detector.
    class: Option<String>,
    /// The service level; null: it is not of one.
    tier: Option<String>,
    /// The detector; null: it is not of one.
    detector: Option<String>,
    unit: &'static str,
    /// Seconds.
    step: u64,
    /// at (Unix seconds), average, min, max.
    columns: [&'static str; 4],
    /// As `columns` has them; null: nothing was measured.
    rows: Vec<[Option<Number>; 4]>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct All {
    /// Whether the file is in use; else only the last minutes are kept.
    on_disk: bool,
    file: String,
    /// Its size.
    bytes: u64,
    /// The most it may have.
    most_bytes: u64,
    archives: Vec<ArchiveShown>,
    classes: Vec<String>,
    tiers: Vec<String>,
    detectors: Vec<String>,
    metrics: Vec<MetricShown>,
}

#[derive(Serialize, JsonSchema)]
struct ArchiveShown {
    /// Seconds.
    step: u64,
    intervals: u64,
}

#[derive(Serialize, JsonSchema)]
struct MetricShown {
    name: &'static str,
    unit: &'static str,
    of: &'static str,
    /// The figure by which averages are weighted; null: time.
    weighted_by: Option<&'static str>,
    help: &'static str,
}

#[derive(Debug, PartialEq)]
enum Asked {
    List,
    Figure { query: Query, csv: bool },
}

fn parse(query: impl Iterator<Item = (String, String)>, accept: &str, now: u64) -> Result<Asked, String> {
    let (mut metric, mut class, mut tier, mut detector, mut format) = (None, None, None, None, None);
    let (mut from, mut to, mut step) = (None, None, None);
    for (name, value) in query {
        match &*name {
            "metric" => metric = Some(value),
            "class" => class = Some(value),
            "tier" => tier = Some(value),
            "detector" => detector = Some(value),
            "from" => from = Some(instant("from", &value, now)?),
            "to" => to = Some(instant("to", &value, now)?),
            "step" => step = Some(seconds(&value)?),
            "format" => format = Some(value),
            other => {
                return Err(format!(
                    "unknown parameter {other:?}: expected metric, class, tier, detector, from, to, step or format"
                ));
            }
        }
    }
    let csv = match format.as_deref() {
        None => accept.split(',').any(|kind| kind.split(';').next().unwrap_or_default().trim() == "text/csv"),
        Some("json") => false,
        Some("csv") => true,
        Some(other) => return Err(format!("format: expected json or csv, got {other:?}")),
    };
    let series = match (class, tier, detector) {
        (None, Some(tier), None) => Series::tier(&tier),
        (None, None, Some(detector)) => Series::detector(&detector),
        (class, None, None) => Series::named(class.as_deref().unwrap_or("all")),
        (_, Some(_), _) => return Err("tier: expected one of class, tier and detector, got several".into()),
        (_, _, Some(_)) => {
            return Err("detector: expected one of class, tier and detector, got several".into());
        }
    };
    let Some(metric) = metric else { return Ok(Asked::List) };
    let to = to.unwrap_or(now);
    let from = from.unwrap_or(to.saturating_sub(DEFAULT_SPAN));
    Ok(Asked::Figure { query: Query { metric, series, from, to, step }, csv })
}

/// Unix seconds, RFC 3339, `now`, or a time before now like `-1h30m`.
fn instant(name: &str, text: &str, now: u64) -> Result<u64, String> {
    let past = text.strip_prefix('-').and_then(parse_duration).map(|ago| now.saturating_sub(ago.as_secs()));
    let unix = || text.parse::<f64>().ok().filter(|s| (0.0..1e12).contains(s)).map(|s| s as u64);
    // An unescaped plus sign was decoded to a blank.
    let date =
        || text.replace(' ', "+").parse::<Timestamp>().ok().and_then(|t| t.as_second().try_into().ok());
    let now = (text == "now").then_some(now);
    past.or(now).or_else(unix).or_else(date).ok_or_else(|| {
        format!(
            "{name}: expected Unix seconds, RFC 3339, now, or a time before now like -1h30m; got {text:?}"
        )
    })
}

fn seconds(text: &str) -> Result<u64, String> {
    let duration = || parse_duration(text).filter(|d| d.subsec_nanos() == 0).map(|d| d.as_secs());
    text.parse()
        .ok()
        .or_else(duration)
        .ok_or_else(|| format!("step: expected whole seconds, or a duration like 2m; got {text:?}"))
}

fn answered(control: &Control, asked: &Asked) -> Outcome {
    match asked {
        Asked::List => Ok(document(&Answer::All(All::new(control)))),
        Asked::Figure { query, csv } => {
            let points = control.history().query(query).map_err(|e| Problem::bad_request(e.to_string()))?;
            Ok(match csv {
                true => whole("text/csv; charset=utf-8", comma_separated(query, &points)),
                false => document(&Answer::Figure(Figure::new(query, &points))),
            })
        }
    }
}

impl All {
    fn new(control: &Control) -> Self {
        let (series, health) = (control.history().series(), control.history().health());
        let metrics = Scope::ALL.into_iter().flat_map(|scope| {
            scope.metrics().iter().map(move |&Metric { name, unit, weight, help, .. }| {
                let weighted_by = match weight {
                    Weight::Seconds => None,
                    Weight::Requests(by) => Some(by),
                };
                MetricShown { name, unit, of: scope.name(), weighted_by, help }
            })
        });
        Self {
            on_disk: health.on_disk,
            file: health.file.display().to_string(),
            bytes: health.bytes,
            most_bytes: store::most_bytes(series.len()),
            archives: ARCHIVES.map(|a| ArchiveShown { step: a.step, intervals: a.rows }).into(),
            classes: series.iter().filter_map(|s| s.class_name().map(str::to_owned)).collect(),
            tiers: series.iter().filter_map(|s| s.tier_name().map(str::to_owned)).collect(),
            detectors: series.iter().filter_map(|s| s.detector_name().map(str::to_owned)).collect(),
            metrics: metrics.collect(),
        }
    }
}

impl Figure {
    fn new(query: &Query, points: &Points) -> Self {
        let (scope, unit) = metrics::find(&query.metric)
            .map_or((Scope::Class, ""), |(scope, at)| (scope, scope.metrics()[at].unit));
        let of_one = scope == Scope::Class;
        let tier = query.series.tier_name().filter(|_| of_one).map(str::to_owned);
        let detector = query.series.detector_name().filter(|_| scope == Scope::Detector).map(str::to_owned);
        let class = (of_one && tier.is_none()).then(|| query.series.class_name().unwrap_or("all").to_owned());
        // The shortest digits of a value; those of NaN, where nothing was measured, are no number.
        let number = |value: f32| value.to_string().parse().ok();
        let rows = points.points.iter().map(|Point { at, value: Spread { average, min, max } }| {
            [Some((*at).into()), number(*average), number(*min), number(*max)]
        });
        let columns = ["at", "average", "min", "max"];
        Self {
            metric: query.metric.clone(),
            class,
            tier,
            detector,
            unit,
            step: points.step,
            columns,
            rows: rows.collect(),
        }
    }
}

fn comma_separated(query: &Query, points: &Points) -> String {
    let number = |v: f32| if v.is_finite() { v.to_string() } else { String::new() };
    let name = &query.metric;
    let mut out = format!("at,time,{name},{name}_min,{name}_max\n");
    for point in &points.points {
        let time = i64::try_from(point.at).ok().and_then(|at| Timestamp::from_second(at).ok());
        let time = time.map(|t| t.to_string()).unwrap_or_default();
        let [average, min, max] = [point.value.average, point.value.min, point.value.max].map(number);
        _ = writeln!(out, "{},{time},{average},{min},{max}", point.at);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn parse(text: &str, accept: &str, now: u64) -> Result<Asked, String> {
        super::parse(form_urlencoded::parse(text.as_bytes()).into_owned(), accept, now)
    }

    fn figure(text: &str) -> Query {
        match parse(text, "*/*", NOW) {
            Ok(Asked::Figure { query, csv: false }) => query,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn times_may_be_written_in_several_ways() {
        let cases = [
            ("from=-1h30m", NOW - 5_400, NOW),
            ("from=1700000000&to=1700000060.9", 1_700_000_000, 1_700_000_060),
            ("from=2023-11-14T22:13:20Z&to=now", 1_700_000_000, NOW),
            ("from=2023-11-14T23:13:20%2B01:00", 1_700_000_000, NOW),
            ("from=2023-11-14T23:13:20+01:00", 1_700_000_000, NOW),
            ("to=1700000900", 1_700_000_000, 1_700_000_900),
            ("", NOW - 900, NOW),
        ];
        for (text, from, to) in cases {
            let query = figure(&format!("metric=goodput&{text}"));
            assert_eq!((query.from, query.to), (from, to), "{text}");
        }
        assert_eq!(figure("metric=x&step=2m").step, Some(120));
        assert_eq!(figure("metric=x&step=90").step, Some(90));
    }

    #[test]
    fn a_class_named_all_differs_from_all_classes() {
        for (text, series) in [
            ("", Series::all()),
            ("&class=all", Series::all()),
            ("&class=search", Series::class("search")),
            ("&class=class:all", Series::class("all")),
            ("&tier=gold", Series::tier("gold")),
            ("&detector=all", Series::detector("all")),
        ] {
            assert_eq!(figure(&format!("metric=goodput{text}")).series, series, "{text}");
        }
    }

    #[test]
    fn mistakes_in_the_query_name_the_parameter() {
        for text in [
            "from=yesterday",
            "to=1h",
            "step=1.5",
            "step=500ms",
            "format=xml",
            "metrics=goodput",
            "from=-1",
            "tier=a&class=b",
            "detector=a&class=b",
            "detector=a&tier=b",
        ] {
            let why = parse(&format!("metric=goodput&{text}"), "", NOW).unwrap_err();
            let name = text.split('=').next().unwrap();
            assert!(why.contains(name) && why.contains("expected"), "{text}: {why}");
        }
        assert_eq!(parse("", "", NOW), Ok(Asked::List));
    }

    #[test]
    fn csv_is_chosen_by_format_or_accept() {
        let csv = |text: &str, accept: &str| match parse(text, accept, NOW) {
            Ok(Asked::Figure { csv, .. }) => csv,
            other => panic!("{other:?}"),
        };
        assert!(csv("metric=a&format=csv", ""));
        assert!(csv("metric=a", "application/xml, text/csv;q=0.9"));
        assert!(!csv("metric=a&format=json", "text/csv"));
        assert!(!csv("metric=a", "*/*"));
    }
}
