//! The round-robin archives and how seconds become hours: pure, without a database and without a clock.
//!
//! Every archive is fed by the next finer one: an interval that is over is added to the coarser interval it lies in. So after
//! a restart the open intervals can be put together again from what the finer archives hold, and a crash in the middle of an
//! hour costs the hour nothing.
//!
//! A clock that jumps ahead (or a gate that was down) leaves a gap: intervals without a measured second are never written.
//! A clock that jumps back ends all open intervals as they are; what is measured again overwrites what was there.

use std::sync::Arc;

use super::aggregate::{Aggregate, Sum};
use super::metrics::Scope;

/// One archive: so many intervals of one length, the newest in place of the oldest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Archive {
    /// Length of an interval, in seconds.
    pub step: u64,
    /// How many are kept.
    pub rows: u64,
}

/// Finest first; each step is a multiple of the one before.
pub const ARCHIVES: [Archive; 5] = [
    Archive { step: 1, rows: 15 * 60 },
    Archive { step: 5, rows: 2 * 3600 / 5 },
    Archive { step: 60, rows: 2 * 24 * 60 },
    Archive { step: 600, rows: 30 * 24 * 6 },
    Archive { step: 3600, rows: 365 * 24 },
];

impl Archive {
    /// Where the interval lies that begins at `at`.
    pub const fn slot(&self, at: u64) -> u64 {
        at / self.step % self.rows
    }

    /// Beginning of the interval that holds second `at`.
    pub const fn start(&self, at: u64) -> u64 {
        at - at % self.step
    }

    /// How far back it reaches, in seconds.
    pub const fn span(&self) -> u64 {
        self.step * self.rows
    }

    /// Beginning of the oldest interval that it still has at time `now`.
    pub const fn oldest(&self, now: u64) -> u64 {
        (self.start(now) + self.step).saturating_sub(self.span())
    }
}

/// Whose figures: the name in the file, and what figures it has.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Series(Arc<str>);

impl Series {
    /// All requests.
    pub fn all() -> Self {
        Self("all".into())
    }

    /// The gate and its host.
    pub fn gate() -> Self {
        Self("gate".into())
    }

    /// A class, by its name.
    pub fn class(name: &str) -> Self {
        Self(format!("class:{name}").into())
    }

    /// As an operator names it: `all`, or a class's name; `class:all` for a class of that name.
    pub fn named(name: &str) -> Self {
        match name {
            "" | "all" => Self::all(),
            name => Self::class(name.strip_prefix("class:").unwrap_or(name)),
        }
    }

    /// As the file names it.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The class's name, if it is one.
    pub fn class_name(&self) -> Option<&str> {
        self.0.strip_prefix("class:")
    }

    /// What figures it has.
    pub fn scope(&self) -> Scope {
        if &*self.0 == "gate" { Scope::Gate } else { Scope::Class }
    }
}

/// As a file names it.
impl From<&str> for Series {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

/// One measured second.
#[derive(Clone, PartialEq, Debug)]
pub struct Second {
    /// Seconds since the Unix epoch.
    pub at: u64,
    /// Values of every series, in the order of [`Scope::metrics`]; NaN: not known.
    pub series: Vec<(Series, Vec<f32>)>,
}

/// An interval that is over, or one second: what is to be kept.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Index in [`ARCHIVES`].
    pub archive: usize,
    /// Its beginning.
    pub at: u64,
    /// Whose it is.
    pub series: Series,
    /// What it holds.
    pub data: Aggregate,
}

/// Makes rows of seconds.
#[derive(Default)]
pub struct Consolidator {
    first: Option<u64>,
    last: Option<u64>,
    /// Of every archive but the finest.
    open: [Option<Open>; ARCHIVES.len() - 1],
}

struct Open {
    at: u64,
    sums: Vec<(Series, Sum)>,
}

impl Open {
    fn add(&mut self, series: &Series, data: &Aggregate) {
        match self.sums.iter_mut().find(|(s, _)| s == series) {
            Some((_, sum)) => sum.add(data),
            None => {
                let mut sum = Sum::new(series.scope());
                sum.add(data);
                self.sums.push((series.clone(), sum));
            }
        }
    }
}

impl Open {
    fn join(&mut self, series: &Series, other: &Sum) {
        match self.sums.iter_mut().find(|(s, _)| s == series) {
            Some((_, sum)) => sum.merge(other),
            None => self.sums.push((series.clone(), other.clone())),
        }
    }
}

impl Consolidator {
    /// Takes a second in; what is over now goes to `out`.
    pub fn push(&mut self, second: &Second, out: &mut Vec<Row>) {
        if self.last.is_some_and(|last| second.at <= last) {
            self.end_all(out);
        }
        self.first.get_or_insert(second.at);
        self.last = Some(second.at);
        self.end_before(second.at, out);
        for (series, values) in &second.series {
            let row =
                Row { archive: 0, at: second.at, series: series.clone(), data: Aggregate::second(values) };
            self.feed(&row, out);
            out.push(row);
        }
    }

    /// Takes in a row of the file that lies in an interval not yet over when the file was last written; before the first
    /// second, finest archive first.
    pub fn restore(&mut self, row: &Row, out: &mut Vec<Row>) {
        self.feed(row, out);
    }

    /// Adds a row to the coarser interval that it lies in.
    fn feed(&mut self, row: &Row, out: &mut Vec<Row>) {
        let coarser = row.archive + 1;
        let Some(archive) = ARCHIVES.get(coarser) else { return };
        let at = archive.start(row.at);
        if self.open[coarser - 1].as_ref().is_some_and(|open| open.at != at) {
            self.end(coarser, out);
        }
        let open = self.open[coarser - 1].get_or_insert_with(|| Open { at, sums: Vec::new() });
        open.add(&row.series, &row.data);
    }

    /// Ends the open interval of an archive.
    fn end(&mut self, archive: usize, out: &mut Vec<Row>) {
        let Some(open) = self.open[archive - 1].take() else { return };
        for (series, sum) in open.sums {
            let row = Row { archive, at: open.at, series, data: sum.aggregate() };
            self.feed(&row, out);
            out.push(row);
        }
    }

    /// Ends what is over at second `now`; finest first, so that the coarser ones are whole.
    fn end_before(&mut self, now: u64, out: &mut Vec<Row>) {
        for (archive, Archive { step, .. }) in ARCHIVES.iter().enumerate().skip(1) {
            let is_over = |open: &Open| open.at + step <= now;
            if self.open[archive - 1].as_ref().is_some_and(is_over) {
                self.end(archive, out);
            }
        }
    }

    /// Takes over the intervals that another one has open: an earlier process's, whose file could not be had at once. What it has
    /// of an interval that is open here too joins it; what is over goes to `out`, finest first, as a part of its interval, which
    /// may have been ended here without it.
    pub fn absorb(&mut self, mut before: Self, out: &mut Vec<Row>) {
        for (level, Archive { step, .. }) in ARCHIVES.iter().enumerate().skip(1) {
            let Some(theirs) = &before.open[level - 1] else { continue };
            let is_over = self.last.is_some_and(|last| theirs.at + step <= last);
            match &mut self.open[level - 1] {
                Some(mine) if mine.at == theirs.at => {
                    theirs.sums.iter().for_each(|(series, sum)| mine.join(series, sum));
                }
                mine @ None if !is_over => *mine = before.open[level - 1].take(),
                // Into the coarser one that it lies in, too.
                _ => before.end(level, out),
            }
        }
    }

    /// The first second that was taken in.
    pub fn first(&self) -> Option<u64> {
        self.first
    }

    /// Ends all open intervals as they are.
    pub fn end_all(&mut self, out: &mut Vec<Row>) {
        (1..ARCHIVES.len()).for_each(|archive| self.end(archive, out));
    }
}

#[cfg(test)]
mod tests;
