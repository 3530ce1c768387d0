//! The result of an experiment: each quantity beside the paper's value, and the figure's plots.

use std::rc::Rc;

use serde_json::{Map, Value as Json, json};

use super::formula::{Formula, Source, Value};
use super::{Experiment, PlotSpec};
use crate::outcome::{COLUMNS, Outcome, Second, Way};
use crate::plot::{Line, Plot, Style};

/// Points beyond which a curve is drawn as steps: a run's seconds, not a sweep's few values.
const STEPS_FROM: usize = 30;

/// A run as it was played: once, or once for every value of its sweep.
#[derive(Clone, Debug)]
pub struct Played {
    pub name: String,
    /// The sweep's values, if it is one, and what came of each.
    pub points: Vec<(Option<f64>, Outcome)>,
    pub missing: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Report {
    pub name: String,
    pub paper: String,
    pub figure: String,
    pub about: String,
    pub way: Way,
    /// How long that took, in seconds of this world.
    pub seconds: f64,
    pub figures: Vec<Figure>,
    pub plots: Vec<(String, Plot)>,
    pub runs: Vec<Rc<Played>>,
    /// In a tournament: tables instead of hundreds of quantities.
    pub tables: Vec<Table>,
    /// In a tournament: which estimator was first, by scenario.
    pub verdicts: Vec<(String, Json)>,
    /// Missing parts that the runs do not mention.
    pub broken: Vec<String>,
}

/// A table for people: the first column is text, the others are figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub title: String,
    pub note: String,
    pub head: Vec<String>,
    /// As many cells each as there are columns.
    pub rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub name: String,
    /// `1` for shares and ratios.
    pub unit: String,
    pub paper: Option<f64>,
    /// `None` if the runs did not give it.
    pub ours: Option<f64>,
    pub of: String,
}

impl Figure {
    /// Ours over the paper's, if both are there and the latter is not zero.
    pub fn ratio(&self) -> Option<f64> {
        let ratio = self.ours? / self.paper?;
        ratio.is_finite().then_some(ratio)
    }
}

impl Report {
    pub fn new(experiment: &Experiment, way: Way, seconds: f64, runs: Vec<Rc<Played>>) -> Self {
        let source = runs.as_slice();
        let figures = experiment.quantities.iter().map(|quantity| Figure {
            name: quantity.name.clone(),
            unit: quantity.unit.clone(),
            paper: quantity.paper,
            ours: quantity.of.evaluate(source).number(),
            of: quantity.of.to_string(),
        });
        Self {
            name: experiment.name_as(way),
            paper: experiment.paper.clone(),
            figure: experiment.figure.clone(),
            about: experiment.about.clone(),
            way,
            seconds,
            figures: figures.collect(),
            plots: experiment.plots.iter().map(|spec| (spec.name.clone(), plot(spec, source))).collect(),
            runs,
            tables: Vec::new(),
            verdicts: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// Missing parts, run by run; empty if everything is complete.
    pub fn missing(&self) -> Vec<String> {
        self.runs.iter().flat_map(|run| &run.missing).chain(&self.broken).cloned().collect()
    }

    /// One element of `experiments`. `partial` is there only if something is missing.
    pub fn json(&self) -> Json {
        let figure =
            |f: &Figure| (f.name.clone(), json!({ "unit": f.unit, "paper": f.paper, "ours": f.ours }));
        let mut object = Map::from_iter([
            ("name".to_owned(), json!(self.name)),
            ("paper".to_owned(), json!(self.paper)),
            ("figure".to_owned(), json!(self.figure)),
            ("mode".to_owned(), json!(self.way.name())),
            ("seconds".to_owned(), json!(self.seconds)),
            ("quantities".to_owned(), Json::Object(self.figures.iter().map(figure).collect())),
        ]);
        if !self.verdicts.is_empty() {
            object.insert("verdicts".into(), Json::Object(self.verdicts.iter().cloned().collect()));
        }
        let missing = self.missing();
        if !missing.is_empty() {
            object.insert("partial".into(), json!(missing));
        }
        Json::Object(object)
    }
}

impl Source for [Rc<Played>] {
    fn key(&self, run: &str, key: &str) -> Option<Value> {
        let played = self.iter().find(|played| played.name == run)?;
        let figure = |outcome: &Outcome| outcome.summary.get(key).copied().unwrap_or(f64::NAN);
        Some(match played.points.as_slice() {
            [(None, outcome)] => Value::Number(figure(outcome)),
            points => Value::Curve(
                points.iter().filter_map(|(x, outcome)| x.map(|x| (x, figure(outcome)))).collect(),
            ),
        })
    }

    fn column(&self, run: &str, column: &str) -> Option<Vec<(f64, f64)>> {
        let played = self.iter().find(|played| played.name == run)?;
        let (_, outcome) = played.points.first()?;
        if let Some(times) = outcome.times.get(column) {
            return Some(times.clone());
        }
        let value = COLUMNS.iter().find(|(name, _)| *name == column).map(|(_, value)| value);
        let point = |second: &Second| (second.t as f64, value.map_or(f64::NAN, |value| value(second)));
        Some(outcome.series.iter().map(point).collect())
    }
}

fn plot(spec: &PlotSpec, runs: &[Rc<Played>]) -> Plot {
    let line = |(name, of): &(String, Formula)| {
        let points = of.evaluate(runs).curve();
        let style = if points.len() > STEPS_FROM { Style::Steps } else { Style::Line };
        Line { name: name.clone(), points, style }
    };
    let level = |(name, of): &(String, Formula)| Some((name.clone(), of.evaluate(runs).number()?));
    Plot {
        title: spec.title.clone(),
        x_label: spec.x.clone(),
        y_label: spec.y.clone(),
        log_y: spec.log_y,
        lines: spec.lines.iter().map(line).collect(),
        h_lines: spec.levels.iter().filter_map(level).collect(),
        ..Plot::default()
    }
}
