//! The round-robin archives, and how seconds are consolidated into hours. Pure: no database and no clock.
//!
//! Every archive is fed by the next finer one: an interval that is over is added to the coarser interval that
//! contains it. After a restart the open intervals are rebuilt from the finer archives, so that a crash
//! within an hour loses nothing of that hour.
//!
//! A clock that jumps ahead (or a gateway that was down) leaves a gap: intervals without a measured second
//! are never written. A clock that jumps back ends all open intervals; new measurements overwrite old ones.

use std::sync::Arc;

use super::aggregate::{Aggregate, Sum};
use super::metrics::Scope;

/// One archive: a ring of intervals of one length, where the newest overwrites the oldest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Archive {
    /// Length of an interval, in seconds.
    pub step: u64,
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
    /// The slot of the interval that begins at `at`.
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

    /// Beginning of the oldest interval that is kept at time `now`.
    pub const fn oldest(&self, now: u64) -> u64 {
        (self.start(now) + self.step).saturating_sub(self.span())
    }
}

/// The figures of one class, service level or detector, of all requests or of the gateway; by its name in the
/// file.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Series(Arc<str>);

impl Series {
    pub fn all() -> Self {
        Self("all".into())
    }

    /// The gateway and its host.
    pub fn gate() -> Self {
        Self("gate".into())
    }

    pub fn class(name: &str) -> Self {
        Self(format!("class:{name}").into())
    }

    /// A service level: the same figures as of a class.
    pub fn tier(name: &str) -> Self {
        Self(format!("tier:{name}").into())
    }

    pub fn detector(name: &str) -> Self {
        Self(format!("detector:{name}").into())
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

    pub fn tier_name(&self) -> Option<&str> {
        self.0.strip_prefix("tier:")
    }

    pub fn class_name(&self) -> Option<&str> {
        self.0.strip_prefix("class:")
    }

    pub fn detector_name(&self) -> Option<&str> {
        self.0.strip_prefix("detector:")
    }

    pub fn scope(&self) -> Scope {
        match &*self.0 {
            "gate" => Scope::Gate,
            name if name.starts_with("detector:") => Scope::Detector,
            _ => Scope::Class,
        }
    }
}

impl From<&str> for Series {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Second {
    /// Seconds since the Unix epoch.
    pub at: u64,
    /// Values of every series, in the order of [`Scope::metrics`]; NaN: not known.
    pub series: Vec<(Series, Vec<f32>)>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    pub archive: usize,
    /// Its beginning.
    pub at: u64,
    pub series: Series,
    pub data: Aggregate,
}

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

    fn join(&mut self, series: &Series, other: &Sum) {
        match self.sums.iter_mut().find(|(s, _)| s == series) {
            Some((_, sum)) => sum.merge(other),
            None => self.sums.push((series.clone(), other.clone())),
        }
    }
}

impl Consolidator {
    /// Adds a second; rows that are complete go to `out`.
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

    /// Adds a row of the file to the interval that was open when the file was last written. To be called
    /// before the first second, finest archive first.
    pub fn restore(&mut self, row: &Row, out: &mut Vec<Row>) {
        self.feed(row, out);
    }

    /// Adds a row to the coarser interval that contains it.
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

    fn end(&mut self, archive: usize, out: &mut Vec<Row>) {
        let Some(open) = self.open[archive - 1].take() else { return };
        for (series, sum) in open.sums {
            let row = Row { archive, at: open.at, series, data: sum.aggregate() };
            self.feed(&row, out);
            out.push(row);
        }
    }

    /// Ends the intervals that are over at second `now`; finest first, so that the coarser ones are complete.
    fn end_before(&mut self, now: u64, out: &mut Vec<Row>) {
        for (archive, Archive { step, .. }) in ARCHIVES.iter().enumerate().skip(1) {
            let is_over = |open: &Open| open.at + step <= now;
            if self.open[archive - 1].as_ref().is_some_and(is_over) {
                self.end(archive, out);
            }
        }
    }

    /// Adds the open intervals of an earlier process, whose file could not be opened at once. Where the same
    /// interval is open here, the two are joined. Intervals that are over go to `out`, finest first, as
    /// parts: they may have been ended here without the earlier process's part.
    pub fn absorb(&mut self, mut before: Self, out: &mut Vec<Row>) {
        for (level, Archive { step, .. }) in ARCHIVES.iter().enumerate().skip(1) {
            let Some(theirs) = &before.open[level - 1] else { continue };
            let is_over = self.last.is_some_and(|last| theirs.at + step <= last);
            match &mut self.open[level - 1] {
                Some(mine) if mine.at == theirs.at => {
                    theirs.sums.iter().for_each(|(series, sum)| mine.join(series, sum));
                }
                mine @ None if !is_over => *mine = before.open[level - 1].take(),
                // This adds it to the coarser interval too.
                _ => before.end(level, out),
            }
        }
    }

    pub fn first(&self) -> Option<u64> {
        self.first
    }

    pub fn end_all(&mut self, out: &mut Vec<Row>) {
        (1..ARCHIVES.len()).for_each(|archive| self.end(archive, out));
    }
}

#[cfg(test)]
mod tests;
