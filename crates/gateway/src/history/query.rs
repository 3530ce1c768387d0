//! One figure over a time range: which archive answers, and how its intervals become the requested steps.
//!
//! Without a step, the finest archive that still has the beginning of the range answers. With a step, the
//! coarsest one whose intervals divide the step answers, if it reaches back far enough. Where nothing was
//! measured the value is nothing, not zero.

use super::aggregate::{Part, Spread};
use super::archive::{ARCHIVES, Archive, Series};
use super::layout::Layout;
use super::memory::Memory;
use super::metrics::{self, Scope};
use super::store::{Reader, StoreError};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    pub metric: String,
    /// The series; ignored for figures of the gateway.
    pub series: Series,
    pub from: u64,
    /// End, not included.
    pub to: u64,
    /// Length of the intervals, in seconds; `None`: the finest available.
    pub step: Option<u64>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum QueryError {
    #[error("no figure {0:?}; GET /v1/history without parameters lists them")]
    Metric(String),
    #[error("figure {0:?} is of a detector: expected `detector` with its name")]
    NoDetector(String),
    #[error("figure {0:?} is not of a detector: expected `class`, `tier`, or neither; got a detector")]
    Detector(String),
    #[error("`from` must lie before `to` and before now")]
    Empty,
    #[error("`step` must be at least a second, and at most the range asked for")]
    Step,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Its beginning, in seconds since the Unix epoch.
    pub at: u64,
    pub value: Spread,
}

/// The answer: every interval from the first to the last, gaps included.
#[derive(Clone, PartialEq, Debug)]
pub struct Points {
    /// Length of the intervals, in seconds.
    pub step: u64,
    pub points: Vec<Point>,
    /// The aggregate of the range; `None` if nothing was measured.
    pub whole: Option<Spread>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Index in [`ARCHIVES`].
    pub archive: usize,
    /// Length of the answer's intervals: a multiple of the archive's.
    pub step: u64,
    /// First interval, a multiple of the step.
    pub from: u64,
    /// End, a multiple of the step.
    pub to: u64,
}

/// Chooses the archive. Pure, so that it is tested without a file.
pub fn plan(from: u64, to: u64, step: Option<u64>, now: u64) -> Result<Plan, QueryError> {
    let to = to.min(now);
    if from >= to {
        return Err(QueryError::Empty);
    }
    if step.is_some_and(|step| step == 0 || step > to - from) {
        return Err(QueryError::Step);
    }
    // "The last 15 minutes" begin within the interval that is being overwritten now.
    let reaches = |a: &Archive| a.oldest(now) <= from + a.step;
    let fits = |a: &Archive| step.is_none_or(|step| step % a.step == 0);
    let coarsest = ARCHIVES.len() - 1;
    let archive = match step {
        Some(_) => ARCHIVES.iter().rposition(|a| reaches(a) && fits(a)),
        None => ARCHIVES.iter().position(reaches),
    };
    // If no archive is fine enough for the step, the finest that reaches back answers.
    let archive = archive.or_else(|| ARCHIVES.iter().position(reaches)).unwrap_or(coarsest);
    let Archive { step: grain, .. } = ARCHIVES[archive];
    let step = step.map_or(grain, |step| step.next_multiple_of(grain));
    // An interval that began before `from` is included; one that was overwritten is not.
    let first = from.max(ARCHIVES[archive].oldest(now));
    Ok(Plan { archive, step, from: first - first % step, to: to.next_multiple_of(step) })
}

/// Answers a query from the file, if there is one, and from memory, which is newer.
///
/// # Errors
/// Inner: the query is invalid. Outer: the file cannot be read.
pub fn answer(
    query: &Query,
    reader: Option<&Reader>,
    memory: &Memory,
    now: u64,
) -> Result<Result<Points, QueryError>, StoreError> {
    let Some((scope, figure)) = metrics::find(&query.metric) else {
        return Ok(Err(QueryError::Metric(query.metric.clone())));
    };
    let plan = match plan(query.from, query.to, query.step, now) {
        Ok(plan) => plan,
        Err(e) => return Ok(Err(e)),
    };
    let series = match (scope, query.series.scope()) {
        (Scope::Gate, _) => Series::gate(),
        (Scope::Detector, Scope::Class | Scope::Gate) => {
            return Ok(Err(QueryError::NoDetector(query.metric.clone())));
        }
        (Scope::Class, Scope::Detector | Scope::Gate) => {
            return Ok(Err(QueryError::Detector(query.metric.clone())));
        }
        (Scope::Class, Scope::Class) | (Scope::Detector, Scope::Detector) => query.series.clone(),
    };
    let grain = ARCHIVES[plan.archive].step;
    let mut sums = Sums::new(scope, figure, plan);
    // Complete intervals in memory (in the finest archive, every second) are newer than the file's.
    let first = memory.first().unwrap_or(u64::MAX);
    let held = first.checked_next_multiple_of(grain).unwrap_or(u64::MAX);
    // An interval that memory has only in part is taken from memory until it is over, then from the file.
    let (partial, mut is_over) = (first - first % grain, false);
    let held_to = memory.last().map_or(0, |last| last + 1);
    if let Some(reader) = reader {
        let layout = reader.layouts().of(scope);
        reader.read(plan.archive, &series, plan.from..plan.to, |at, bytes| {
            is_over |= at == partial;
            if !(held..held_to).contains(&at) {
                sums.add_row(at, layout, bytes);
            }
        })?;
    }
    for (at, values) in memory.read(&series, plan.from.max(if is_over { held } else { first }), plan.to) {
        sums.add_second(at, values);
    }
    Ok(Ok(sums.finish(now)))
}

/// The running sums of one figure, per step.
struct Sums {
    figure: usize,
    /// The figure that weights this one.
    by: Option<usize>,
    plan: Plan,
    steps: Vec<Part>,
}

impl Sums {
    fn new(scope: metrics::Scope, figure: usize, plan: Plan) -> Self {
        let steps = vec![Part::NOTHING; ((plan.to - plan.from) / plan.step) as usize];
        Self { figure, by: scope.weights()[figure], plan, steps }
    }

    fn part(&mut self, at: u64) -> Option<&mut Part> {
        let step = at.checked_sub(self.plan.from)? / self.plan.step;
        self.steps.get_mut(step as usize)
    }

    fn add_row(&mut self, at: u64, layout: &Layout, bytes: &[u8]) {
        let (value, seconds) = (layout.figure(bytes, self.figure), Layout::seconds(bytes));
        let requests = self.by.map(|by| layout.figure(bytes, by).average);
        if let Some(part) = self.part(at) {
            part.add(value, f64::from(seconds), requests);
        }
    }

    fn add_second(&mut self, at: u64, values: &[f32]) {
        let (value, requests) = (Spread::one(values[self.figure]), self.by.map(|by| values[by]));
        if let Some(part) = self.part(at) {
            part.add(value, 1.0, requests);
        }
    }

    fn finish(mut self, now: u64) -> Points {
        let Plan { step, from, .. } = self.plan;
        // The last interval is not over: while it is empty it is not shown as a gap.
        let last = from + step * (self.steps.len() as u64).saturating_sub(1);
        if last + step > now && self.steps.last().is_some_and(|part| part.spread().is_nothing()) {
            self.steps.pop();
        }
        let mut whole = Part::NOTHING;
        self.steps.iter().for_each(|part| whole.merge(part));
        let point = |(at, part): (u64, &Part)| Point { at, value: part.spread() };
        let points = (from..).step_by(step as usize).zip(&self.steps).map(point).collect();
        Points { step, points, whole: Some(whole.spread()).filter(|spread| !spread.is_nothing()) }
    }
}

#[cfg(test)]
mod tests;
