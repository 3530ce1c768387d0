//! The whole way: files, one time axis, statistics.

use std::cell::Cell;
use std::io::Read as _;
use std::path::PathBuf;

use jiff::tz::TimeZone;
use tidegate_core::correlate::templates::{OTHER, RequestType};
use tidegate_core::correlate::{self, Finding, Settings};

use crate::align::{Grid, Shift, find_shift};
use crate::choice::{self, Choice, NEAR};
use crate::figures::{self, Series};
use crate::input::{self, OnRead};
use crate::log::{self, Tally};
use crate::show::{instant, number, printable, span};
use crate::types::{By, Types};

/// Most intervals. With the most types they take 80 MB while a log is read, and twice that afterwards.
const MAX_INTERVALS: i64 = 100_000;
/// Figures are small beside logs: a day at 1 s with every figure of sysstat is some 300 MB.
const MAX_FIGURES_BYTES: u64 = 1 << 30;
/// Shortest interval, and the default.
pub const SECOND_US: i64 = 1_000_000;

/// Types by which the clocks are compared, each at every shift: some seconds for a day at 1 s.
const TELLING_TYPES: usize = 20;

/// What is analysed, and how.
pub struct Request {
    pub logs: Vec<PathBuf>,
    /// `None`: found by the first lines.
    pub log_format: Option<log::Format>,
    /// Of times in JSON logs that name no offset.
    pub log_zone: TimeZone,
    pub figures: Vec<PathBuf>,
    /// Of figures' times that name no offset.
    pub figures_zone: TimeZone,
    /// `None`: a second, or the figure's step where that is longer.
    pub interval_us: Option<i64>,
    /// `None`: the one that looks most like the bottleneck's.
    pub figure: Option<String>,
    pub by: By,
    /// The clocks' difference is looked for within this, in seconds.
    pub shift_within_s: u32,
    /// It is taken back, and not only reported.
    pub apply_shift: bool,
    pub settings: Settings,
}

/// A type of requests and what it has to do with the figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub name: String,
    pub requests: f64,
    pub finding: Finding,
    /// Requests per second while the figure is near its maximum.
    pub busy_rate: f64,
    /// Per interval.
    pub counts: Vec<f64>,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Report {
    pub tally: Tally,
    pub log_formats: Vec<String>,
    /// Name and form of each file.
    pub figure_files: Vec<(String, &'static str)>,
    pub notes: Vec<String>,
    pub figure: String,
    pub figure_why: String,
    /// In each interval; NaN where it was not measured.
    pub figure_values: Vec<f64>,
    /// The intervals that log and figure share.
    pub grid: Grid,
    pub shift: Option<Shift>,
    pub shift_applied: bool,
    pub settings: Settings,
    pub by: By,
    /// Requests outside these intervals.
    pub outside: u64,
    /// Culprits first, then by r.
    pub rows: Vec<Row>,
}

impl Report {
    pub fn culprits(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.finding.is_culprit)
    }

    /// The largest value of the figure.
    pub fn figure_max(&self) -> f64 {
        self.figure_values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Intervals in which the figure is near its maximum.
    pub fn busy_intervals(&self) -> Vec<usize> {
        let most = self.figure_max();
        let is_near = |index: &usize| self.figure_values[*index] >= NEAR * most;
        (0..self.figure_values.len()).filter(is_near).collect()
    }
}

/// Reads the files and finds the culprits. `on_read` is told of every read of a log.
///
/// # Errors
/// A file cannot be read or makes no sense; log and figures share too little time; the figure is constant.
pub fn analyse(request: &Request, on_read: OnRead<'_>) -> Result<Report, String> {
    let read = read_figures(request)?;
    let choice = match &request.figure {
        Some(name) => choice::named(&read.series, name)?,
        None => {
            choice::best(&read.series).ok_or("no figure varies: nothing can correlate with a constant")?
        }
    };
    let series = &read.series[choice.series];
    let step_us = series.step_us().ok_or_else(|| {
        format!("figure {}: one sample only; expected values over time", printable(&series.name))
    })?;
    let interval_us = interval(request.interval_us, step_us, &series.name)?;
    let margin = match i64::from(request.shift_within_s) * SECOND_US / interval_us {
        margin if margin > 0 => margin,
        _ => 1,
    };
    let wide = grid_of(series, step_us, interval_us, margin)?;
    let counted = count(request, &wide, on_read)?;
    let values = wide.values(series, step_us);
    relate(request, read, &choice, Measured { step_us, wide, values }, counted)
}

struct FiguresRead {
    series: Vec<Series>,
    files: Vec<(String, &'static str)>,
    notes: Vec<String>,
    used_zone: bool,
}

fn read_figures(request: &Request) -> Result<FiguresRead, String> {
    let mut read = FiguresRead { series: Vec::new(), files: Vec::new(), notes: Vec::new(), used_zone: false };
    for path in &request.figures {
        let name = path.display().to_string();
        let mut text = Vec::new();
        let from = input::open(path, &|_| {})?;
        from.take(MAX_FIGURES_BYTES + 1).read_to_end(&mut text).map_err(|e| format!("{name}: {e}"))?;
        if text.len() as u64 > MAX_FIGURES_BYTES {
            return Err(format!("{name}: more than 1 GiB of figures; leave out what you do not look for"));
        }
        let file = figures::read(&name, &text, &request.figures_zone)?;
        read.files.push((name.clone(), file.format.name()));
        read.notes.extend(file.notes.into_iter().map(|note| format!("{name}: {note}")));
        if file.unparsed > 0 {
            read.notes.push(format!("{name}: {} rows could not be read", file.unparsed));
        }
        read.used_zone |= file.used_zone;
        for series in file.series {
            // The same figure in the files of several days is one figure.
            match read.series.iter_mut().find(|known| known.name == series.name) {
                Some(known) => {
                    known.points.extend(series.points);
                    known.points.sort_by_key(|point| point.0);
                    known.points.dedup_by_key(|point| point.0);
                }
                None => read.series.push(series),
            }
        }
    }
    Ok(read)
}

fn interval(asked: Option<i64>, step_us: i64, figure: &str) -> Result<i64, String> {
    match asked {
        None => Ok(step_us.max(SECOND_US)),
        Some(asked) if asked >= step_us => Ok(asked),
        Some(asked) => Err(format!(
            "--interval: expected at least {}, the time between two samples of {}, got {}",
            span(step_us),
            printable(figure),
            span(asked),
        )),
    }
}

/// The intervals of the figure, with a margin on both sides for clocks that differ.
fn grid_of(series: &Series, step_us: i64, interval_us: i64, margin: i64) -> Result<Grid, String> {
    let (Some(first), Some(last)) = (series.points.first(), series.points.last()) else {
        return Err("the figure has no values".into());
    };
    let start_us = first.0 - step_us - margin * interval_us;
    let count = (last.0 - start_us) / interval_us + margin + 1;
    if count > MAX_INTERVALS {
        return Err(format!(
            "the figures cover {count} intervals of {}: at most {MAX_INTERVALS} can be analysed at once; use a longer \
             --interval or figures of a shorter time",
            span(interval_us)
        ));
    }
    Ok(Grid { start_us, interval_us, count: usize::try_from(count).map_err(|e| e.to_string())? })
}

fn add(to: &mut Vec<u32>, column: &[u32]) {
    to.resize(to.len().max(column.len()), 0);
    to.iter_mut().zip(column).for_each(|(to, count)| *to += count);
}

struct Counted {
    types: Types,
    /// Of each type, per interval; a column ends where its last request is.
    columns: Vec<Vec<u32>>,
    tally: Tally,
    formats: Vec<String>,
    without_class: u64,
}

fn count(request: &Request, grid: &Grid, on_read: OnRead<'_>) -> Result<Counted, String> {
    let mut types = Types::new(request.by);
    let mut columns: Vec<Vec<u32>> = Vec::new();
    let (mut tally, mut formats) = (Tally::default(), Vec::new());
    let without_class = Cell::new(0);
    for path in &request.logs {
        let name = path.display().to_string();
        let from = input::open(path, on_read)?;
        let format = log::read(&name, from, request.log_format, &request.log_zone, &mut tally, |line| {
            let Some(interval) = grid.index(line.at_us).filter(|_| !line.kept_from_origin) else { return };
            let Some(RequestType { index: number, is_new }) = types.of(line) else {
                without_class.set(without_class.get() + 1);
                return;
            };
            if columns.len() <= number {
                columns.resize_with(number + 1, Vec::new);
            }
            if is_new {
                // What the type before had is of no type now.
                let before = std::mem::take(&mut columns[number]);
                add(&mut columns[OTHER], &before);
            }
            let column = &mut columns[number];
            if column.len() <= interval {
                column.resize(interval + 1, 0);
            }
            column[interval] += 1;
        })?;
        formats.push(format!("{name}: {}", format.map_or("empty".into(), |format| format.to_string())));
    }
    if tally.requests == 0 {
        let example =
            tally.examples.first().map_or(String::new(), |example| format!("; for example {example}"));
        return Err(format!(
            "no request in the log: {} lines, none of which could be read{example}",
            tally.lines
        ));
    }
    Ok(Counted { types, columns, tally, formats, without_class: without_class.get() })
}

/// The figure in intervals that reach beyond it on both sides.
struct Measured {
    step_us: i64,
    wide: Grid,
    values: Vec<f64>,
}

fn relate(
    request: &Request,
    read: FiguresRead,
    choice: &Choice,
    measured: Measured,
    counted: Counted,
) -> Result<Report, String> {
    let Measured { step_us, wide, mut values } = measured;
    let series = &read.series[choice.series];
    let Counted { types, columns, tally, formats, without_class } = counted;
    let mut notes = read.notes;
    if without_class > 0 {
        notes.push(format!(
            "{without_class} requests name no class: --by class needs Tidegate's own JSON log"
        ));
    }
    let span = tally.span_us.unwrap_or_default();
    let within = wide.position(span.0).max(0)..wide.position(span.1).min(wide.count as i64 - 1) + 1;
    // Where there is no log, the counts say nothing.
    let logged = |at: usize| within.contains(&(at as i64));
    let most = usize::try_from(i64::from(request.shift_within_s) * SECOND_US / wide.interval_us).unwrap_or(0);
    let shift = find_shift(&telling(&columns, wide.count, logged), &values, most, request.settings.max_lag);
    let shift_applied = request.apply_shift && shift.is_some();
    if let Some(shift) = shift.filter(|_| shift_applied) {
        let moved = |at: usize| at as i64 + shift.intervals;
        let value =
            |at: i64| usize::try_from(at).ok().and_then(|at| values.get(at)).copied().unwrap_or(f64::NAN);
        values = (0..wide.count).map(|at| value(moved(at))).collect();
    }
    let shared = |at: &usize| logged(*at) && !values[*at].is_nan();
    let (Some(first), Some(last)) = ((0..wide.count).find(shared), (0..wide.count).rev().find(shared)) else {
        return Err(no_overlap(span, series, step_us, read.used_zone));
    };
    let figure_values = values[first..=last].to_vec();
    let grid = Grid { start_us: wide.time_us(first), interval_us: wide.interval_us, count: last + 1 - first };
    if let Some(value) = constant(&figure_values) {
        return Err(format!(
            "figure {} is constant ({}) in the {} intervals that log and figures share: nothing can correlate with \
             it; --figure takes another",
            printable(&series.name),
            number(value),
            grid.count,
        ));
    }
    let counts: Vec<Vec<f64>> =
        columns.iter().map(|column| (first..=last).map(|at| f64::from(of(column, at))).collect()).collect();
    let findings = correlate::analyse(&counts, &figure_values, &request.settings);
    let analysed: f64 = counts.iter().flatten().sum();
    let outside = tally.requests - tally.kept_from_origin - without_class - analysed as u64;
    let mut report = Report {
        tally,
        log_formats: formats,
        figure_files: read.files,
        notes,
        figure: series.name.clone(),
        figure_why: choice.why.clone(),
        figure_values,
        grid,
        shift,
        shift_applied,
        settings: request.settings,
        by: request.by,
        outside,
        rows: Vec::new(),
    };
    report.rows = rows(&report, counts, findings, &types.names());
    Ok(report)
}

/// The only value of a figure.
fn constant(values: &[f64]) -> Option<f64> {
    let mut measured = values.iter().copied().filter(|value| !value.is_nan());
    let first = measured.next()?;
    measured.all(|other| other == first).then_some(first)
}

/// The types that came, culprits first, then by r.
fn rows(report: &Report, counts: Vec<Vec<f64>>, findings: Vec<Finding>, names: &[String]) -> Vec<Row> {
    let busy = report.busy_intervals();
    let busy_s = busy.len() as f64 * report.grid.interval_us as f64 / 1e6;
    let rows = counts.into_iter().zip(findings).zip(names).map(|((counts, finding), name)| Row {
        name: name.clone(),
        requests: counts.iter().sum(),
        finding,
        busy_rate: busy.iter().map(|at| counts[*at]).sum::<f64>() / busy_s,
        counts,
    });
    let mut rows: Vec<Row> = rows.filter(|row| row.requests > 0.0).collect();
    let r = |row: &Row| row.finding.correlation.map_or(f64::NEG_INFINITY, |found| found.r);
    rows.sort_by(|a, b| {
        let culprits = b.finding.is_culprit.cmp(&a.finding.is_culprit);
        culprits.then(r(b).total_cmp(&r(a))).then(a.name.cmp(&b.name))
    });
    rows
}

/// The columns by which clocks are compared: all requests together, and the most frequent types.
fn telling(columns: &[Vec<u32>], intervals: usize, logged: impl Fn(usize) -> bool) -> Vec<Vec<f64>> {
    let known = |at: usize, count: u32| if logged(at) { f64::from(count) } else { f64::NAN };
    let all = |at| columns.iter().map(|column| of(column, at)).sum();
    let mut frequent: Vec<&Vec<u32>> = columns.iter().collect();
    frequent.sort_by_key(|column| std::cmp::Reverse(column.iter().map(|n| u64::from(*n)).sum::<u64>()));
    let total = (0..intervals).map(|at| known(at, all(at))).collect();
    let types = frequent.iter().take(TELLING_TYPES);
    let types = types.map(|column| (0..intervals).map(|at| known(at, of(column, at))).collect());
    std::iter::once(total).chain(types).collect()
}

fn of(column: &[u32], at: usize) -> u32 {
    column.get(at).copied().unwrap_or(0)
}

/// Both spans, and the offset that would bring them together if it is one of a time zone.
fn no_overlap(log: (i64, i64), series: &Series, step_us: i64, used_zone: bool) -> String {
    let first = series.points.first().map_or(0, |point| point.0) - step_us;
    let last = series.points.last().map_or(0, |point| point.0);
    let [log_from, log_to, from, to] = [log.0, log.1, first, last].map(instant);
    let mut text = format!(
        "log and figures share no time: the log is of {log_from} to {log_to}, the figure {} of {from} to {to}",
        printable(&series.name)
    );
    const QUARTER_US: i64 = 900 * SECOND_US;
    // By how much the figures' middle is ahead, in quarters of an hour, as time zones are.
    let ahead = ((first + last) - (log.0 + log.1)) / 2;
    let quarters = (ahead as f64 / QUARTER_US as f64).round() as i64;
    let overlaps = log.0.max(first - quarters * QUARTER_US) < log.1.min(last - quarters * QUARTER_US);
    if used_zone && quarters != 0 && quarters.abs() <= 56 && overlaps {
        text += &format!(
            "; they would with {}{:02}:{:02} between them: is --figures-timezone right?",
            if quarters > 0 { '+' } else { '-' },
            quarters.abs() / 4,
            quarters.abs() % 4 * 15
        );
    }
    text
}
