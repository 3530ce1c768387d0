//! The last intervals, and the correlations in them, kept up to date from interval to interval.
//!
//! ```text
//! intervals   │ oldest … │ newest … │
//! sums over     older[i]    newer        of interval i up to the end of its part
//!               r of the window = older.first + newer
//! ```
//!
//! Sums that add what comes and subtract what leaves would drift: after one interval with a huge figure, what
//! it cost in digits stays. Here nothing is ever subtracted. When an interval leaves, the sums from the next
//! one on are there already. When the older part is used up, all intervals become the older part, and their
//! sums are computed once. So a push costs O(types) on average, and O(types × intervals) once per window.
//!
//! The sums are means and deviations from them (Welford; two parts together: Chan, Golub & LeVeque, 1979).
//! The figure is counted from a reference near to it, as the mean of large figures that hardly vary has no
//! digits left for what they vary by. Three numbers per type and interval are kept: about 2 MB for 200 types
//! and 300 intervals.

use std::collections::VecDeque;

use super::pearson::{Correlation, correlation};
use super::{Finding, MIN_INTERVALS, Settings, analyse};

/// Five minutes of seconds: an r of 0.17 is significant among sixteen types, and a mix of an hour ago does
/// not count.
pub const DEFAULT_INTERVALS: usize = 300;

/// A bounded number of intervals, of which the oldest makes room for the newest.
#[derive(Clone, Debug)]
pub struct Window {
    max_intervals: usize,
    intervals: VecDeque<Interval>,
    types: usize,
    /// What the figures in the sums are counted from; `None` before the first.
    reference: Option<f64>,
    /// Of each interval of the older part, the newest first: the sums from it to the end of the part.
    older: Vec<Sums>,
    newer: Sums,
}

/// Requests of each type, where types that came later have none; and the figure, NaN if it was not measured.
#[derive(Clone, Debug)]
struct Interval {
    counts: Vec<f64>,
    figure: f64,
}

/// Means, and sums of products of deviations from them, of the intervals whose figure is known.
#[derive(Clone, Default, Debug)]
struct Sums {
    n: usize,
    figure_mean: f64,
    figure_squares: f64,
    types: Vec<TypeSums>,
}

/// All zero for a type that had no requests, however many intervals there were.
#[derive(Clone, Copy, Default, Debug)]
struct TypeSums {
    mean: f64,
    squares: f64,
    with_figure: f64,
}

impl Window {
    /// A window without data; it holds one interval at least.
    pub fn new(max_intervals: usize) -> Self {
        Self {
            max_intervals: max_intervals.max(1),
            intervals: VecDeque::new(),
            types: 0,
            reference: None,
            older: Vec::new(),
            newer: Sums::default(),
        }
    }

    /// Adds an interval: the requests of each type, of which later intervals may have more, and the figure.
    pub fn push(&mut self, counts: &[u64], figure: Option<f64>) {
        let interval = Interval {
            counts: counts.iter().map(|count| *count as f64).collect(),
            figure: figure.filter(|figure| figure.is_finite()).unwrap_or(f64::NAN),
        };
        self.types = self.types.max(counts.len());
        if self.intervals.len() == self.max_intervals {
            if self.older.is_empty() {
                self.rebuild();
            }
            self.older.pop();
            self.intervals.pop_front();
        }
        if interval.figure.is_finite() {
            self.newer.add(&interval, *self.reference.get_or_insert(interval.figure));
        }
        self.intervals.push_back(interval);
    }

    /// Forgets the requests of a type, whose place another type takes, in O(intervals).
    pub fn forget(&mut self, of_type: usize) {
        for count in self.intervals.iter_mut().filter_map(|interval| interval.counts.get_mut(of_type)) {
            *count = 0.0;
        }
        // The sums of a type without requests are zero.
        let sums = self.older.iter_mut().chain([&mut self.newer]);
        sums.filter_map(|sums| sums.types.get_mut(of_type)).for_each(|sums| *sums = TypeSums::default());
    }

    /// Intervals it holds.
    pub fn intervals(&self) -> usize {
        self.intervals.len()
    }

    /// r and p of each type, without lag, in O(types).
    pub fn correlations(&self) -> Vec<Option<Correlation>> {
        let oldest = self.older.last();
        let sums = oldest.map_or_else(|| self.newer.clone(), |older| older.joined(&self.newer));
        let figure_mean = sums.figure_mean + self.reference.unwrap_or_default();
        (0..self.types)
            .map(|index| {
                let of_type = sums.of_type(index);
                let (x, y) = ((of_type.mean, of_type.squares), (figure_mean, sums.figure_squares));
                correlation(sums.n, x, y, of_type.with_figure).filter(|found| found.n >= MIN_INTERVALS)
            })
            .collect()
    }

    /// Requests of each type per interval, and the figure in the same intervals, NaN where it is not known.
    pub fn columns(&self) -> (Vec<Vec<f64>>, Vec<f64>) {
        let column = |index: usize| {
            let count = |interval: &Interval| interval.counts.get(index).copied().unwrap_or_default();
            self.intervals.iter().map(count).collect()
        };
        let figure = self.intervals.iter().map(|interval| interval.figure).collect();
        ((0..self.types).map(column).collect(), figure)
    }

    /// What [`analyse`] finds in the window. The joint estimate takes types² × intervals steps: a matter of
    /// milliseconds, and not for every tick.
    pub fn findings(&self, settings: &Settings) -> Vec<Finding> {
        let (counts, figure) = self.columns();
        analyse(&counts, &figure, settings)
    }

    /// Makes all intervals the older part.
    fn rebuild(&mut self) {
        self.older.clear();
        // The smallest figure, since one that stands out to above would leave no digits to the others.
        let known = self.intervals.iter().map(|interval| interval.figure).filter(|figure| figure.is_finite());
        self.reference = known.min_by(|a, b| a.abs().total_cmp(&b.abs()));
        let mut sums = Sums::default();
        for interval in self.intervals.iter().rev() {
            if let Some(reference) = self.reference.filter(|_| interval.figure.is_finite()) {
                sums.add(interval, reference);
            }
            self.older.push(sums.clone());
        }
        self.newer = Sums::default();
    }
}

impl Default for Window {
    fn default() -> Self {
        Self::new(DEFAULT_INTERVALS)
    }
}

impl Sums {
    fn of_type(&self, index: usize) -> TypeSums {
        self.types.get(index).copied().unwrap_or_default()
    }

    fn add(&mut self, interval: &Interval, reference: f64) {
        self.n += 1;
        let n = self.n as f64;
        let figure = interval.figure - reference;
        let from_mean = figure - self.figure_mean;
        self.figure_mean += from_mean / n;
        let from_new_mean = figure - self.figure_mean;
        self.figure_squares += from_mean * from_new_mean;
        self.types.resize(self.types.len().max(interval.counts.len()), TypeSums::default());
        for (index, of_type) in self.types.iter_mut().enumerate() {
            let count = interval.counts.get(index).copied().unwrap_or_default();
            let from_mean = count - of_type.mean;
            of_type.mean += from_mean / n;
            of_type.squares += from_mean * (count - of_type.mean);
            of_type.with_figure += from_mean * from_new_mean;
        }
    }

    /// The sums over both.
    fn joined(&self, other: &Self) -> Self {
        let n = self.n + other.n;
        if n == 0 {
            return Self::default();
        }
        let part = other.n as f64 / n as f64;
        let weight = self.n as f64 * part;
        let apart = other.figure_mean - self.figure_mean;
        let joined_type = |index| {
            let (a, b) = (self.of_type(index), other.of_type(index));
            let types_apart = b.mean - a.mean;
            TypeSums {
                mean: a.mean + types_apart * part,
                squares: a.squares + b.squares + types_apart * types_apart * weight,
                with_figure: a.with_figure + b.with_figure + types_apart * apart * weight,
            }
        };
        Self {
            n,
            figure_mean: self.figure_mean + apart * part,
            figure_squares: self.figure_squares + other.figure_squares + apart * apart * weight,
            types: (0..self.types.len().max(other.types.len())).map(joined_type).collect(),
        }
    }
}
