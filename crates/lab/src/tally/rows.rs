//! Rows per second, and figures per hundredth of one. Both are bounded to a day: what comes later is counted
//! in the totals only, so that a clock gone wild cannot take the memory.

use std::time::Duration;

use crate::stats::add_fields;

/// Seconds kept: a day.
const MAX_SECONDS: usize = 24 * 3600;
/// Width of a bin: 0.25 % of a window of four seconds.
const BIN_MS: u64 = 10;
/// Bins kept: a day.
const MAX_BINS: usize = 24 * 3600 * 100;

/// One second. Levels are kept as the change within the second; see the parent module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub offered: u32,
    pub requests: u32,
    pub polls: u32,
    pub served: u32,
    pub failed: u32,
    pub full: u32,
    pub given_up: u32,
    pub waits: u32,
    pub told: u32,
    pub door: u32,
    pub origin_served: u32,
    pub waiting: i32,
    pub in_flight: i32,
    pub origin_present: i32,
    pub response_us: u64,
    pub given_up_us: u64,
    pub response_max_us: u64,
    pub wait_us: u64,
    pub wait_max_us: u64,
    pub told_us: u64,
    pub door_units: f64,
    pub origin_us: u64,
    pub origin_p99_us: u32,
    pub capacity_rps: Option<f64>,
    pub limit: Option<u32>,
}

impl Row {
    fn add(&mut self, other: &Self) {
        add_fields!(self, other; offered, requests, polls, served, failed, full, given_up, waits, told, door);
        add_fields!(self, other; origin_served, waiting, in_flight, origin_present, response_us, given_up_us);
        add_fields!(self, other; wait_us, told_us, door_units, origin_us; max response_max_us, wait_max_us);
        // One gate, one origin: at most one part of a run knows of them.
        self.origin_p99_us = self.origin_p99_us.max(other.origin_p99_us);
        self.capacity_rps = other.capacity_rps.or(self.capacity_rps);
        self.limit = other.limit.or(self.limit);
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rows(Vec<Row>);

impl Rows {
    /// The second that `at` falls into; `None` beyond what is kept.
    #[inline]
    pub fn at(&mut self, at: Duration) -> Option<&mut Row> {
        kept(&mut self.0, at.as_secs() as usize, MAX_SECONDS)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.0.iter()
    }

    pub fn merge(&mut self, other: &Self) {
        merge(&mut self.0, &other.0, Row::add);
    }
}

/// A hundredth of a second: what came to its end in it, and the change of how many wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bin {
    served: u32,
    waiting: i32,
}

/// Completions and waiting over time, finely enough to count completions while any visitor waited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bins(Vec<Bin>);

impl Bins {
    #[inline]
    pub fn served(&mut self, at: Duration) {
        if let Some(bin) = self.at(at) {
            bin.served += 1;
        }
    }

    #[inline]
    pub fn waiting(&mut self, at: Duration, change: i32) {
        if let Some(bin) = self.at(at) {
            bin.waiting += change;
        }
    }

    /// Requests served while anyone waited, and for how many seconds that was.
    pub fn while_waiting(&self) -> (u64, f64) {
        let (mut level, mut served, mut bins) = (0_i64, 0, 0_u32);
        for bin in &self.0 {
            let before = level;
            level += i64::from(bin.waiting);
            if before > 0 {
                served += u64::from(bin.served);
                bins += 1;
            }
        }
        (served, f64::from(bins) * (BIN_MS as f64 / 1000.0))
    }

    pub fn merge(&mut self, other: &Self) {
        merge(&mut self.0, &other.0, |mine, theirs| {
            add_fields!(mine, theirs; served, waiting);
        });
    }

    #[inline]
    fn at(&mut self, at: Duration) -> Option<&mut Bin> {
        let per_second = 1000 / BIN_MS;
        let index =
            at.as_secs().saturating_mul(per_second).saturating_add(u64::from(at.subsec_millis()) / BIN_MS);
        kept(&mut self.0, index as usize, MAX_BINS)
    }
}

#[inline]
fn kept<T: Clone + Default>(rows: &mut Vec<T>, index: usize, most: usize) -> Option<&mut T> {
    if index >= rows.len() {
        grow(rows, index, most)?;
    }
    rows.get_mut(index)
}

#[cold]
fn grow<T: Clone + Default>(rows: &mut Vec<T>, index: usize, most: usize) -> Option<()> {
    (index < most).then(|| rows.resize(index + 1, T::default()))
}

fn merge<T: Clone + Default>(mine: &mut Vec<T>, theirs: &[T], add: impl Fn(&mut T, &T)) {
    if mine.len() < theirs.len() {
        mine.resize(theirs.len(), T::default());
    }
    mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| add(mine, theirs));
}
