//! Throughput at saturation, from Little's law request by request, over as long a time as nothing has changed.
//!
//! A request that took R among n occupied 1/n of the origin for R: summed over requests R/n is the time that passed, free
//! of the error that counting completions between two ticks has when they come in bursts. Requests that failed occupied the origin
//! too: their time counts, their work does not.
//!
//! ```text
//! X = Σ units / Σ R/n
//! ```
//!
//! The window is adaptive (ADWIN, Bifet and Gavaldà 2007): blocks of samples, and whenever the recent ones differ from
//! the older by more than chance, the older are dropped. A step is forgotten at once and a drift is followed, yet in
//! steady state thousands of samples are averaged.

use std::collections::VecDeque;

/// Blocks kept; then the oldest neighbours are put together.
const BLOCKS: usize = 48;
/// Standard errors by which a recent part must differ from the older one.
const DIFFERS: f64 = 4.5;
/// Samples the recent part must have, at a dispersion of 1.
const RECENT: f64 = 50.0;

/// Sums over some samples.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct Work {
    pub count: f64,
    /// Of work, as learned.
    pub units: f64,
    /// Of work, as configured.
    pub cost: f64,
    /// Of R/n, seconds.
    pub time_s: f64,
}

impl Work {
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.units += other.units;
        self.cost += other.cost;
        self.time_s += other.time_s;
    }

    pub fn scale(&mut self, factor: f64) {
        self.count *= factor;
        self.units *= factor;
        self.cost *= factor;
        self.time_s *= factor;
    }

    fn rate(&self) -> f64 {
        self.units / self.time_s
    }
}

/// The window.
pub(super) struct Meter {
    blocks: VecDeque<Work>,
    /// Of the blocks.
    closed: Work,
    open: Work,
}

impl Meter {
    pub fn new() -> Self {
        Self { blocks: VecDeque::with_capacity(BLOCKS + 2), closed: Work::default(), open: Work::default() }
    }

    pub fn clear(&mut self) {
        self.blocks.clear();
        (self.closed, self.open) = (Work::default(), Work::default());
    }

    /// Starts anew with this.
    pub fn restart(&mut self, with: Work) {
        self.clear();
        if with.count > 0.0 {
            self.blocks.push_back(with);
            self.closed = with;
        }
    }

    /// Some work done; `at_least` samples make a block, `most` samples in all are remembered.
    pub fn add(&mut self, work: &Work, at_least: f64, most: f64, dispersion: f64) {
        self.open.add(work);
        if self.open.count < at_least {
            return;
        }
        self.blocks.push_back(std::mem::take(&mut self.open));
        self.sum_up();
        self.drop_outdated(dispersion);
        if self.blocks.len() > BLOCKS {
            self.put_together();
        }
        while self.blocks.len() > 1 && self.closed.count - self.blocks[0].count > most {
            self.blocks.pop_front();
            self.sum_up();
        }
    }

    /// Afresh, so that no rounding adds up.
    fn sum_up(&mut self) {
        self.closed = Work::default();
        self.blocks.iter().for_each(|block| self.closed.add(block));
    }

    /// All of it.
    pub fn total(&self) -> Work {
        let mut total = self.closed;
        total.add(&self.open);
        total
    }

    /// Units per second; `None` before anything was seen.
    pub fn rate(&self) -> Option<f64> {
        let rate = self.total().rate();
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// Lets what was seen count for no more than `most` samples.
    pub fn fade(&mut self, most: f64) {
        let count = self.total().count;
        if count > most {
            self.open.scale(most / count);
            self.blocks.iter_mut().for_each(|block| block.scale(most / count));
            self.sum_up();
        }
    }

    fn drop_outdated(&mut self, dispersion: f64) {
        let mut older = self.closed;
        let mut recent = Work::default();
        for at in (1..self.blocks.len()).rev() {
            let block = self.blocks[at];
            recent.add(&block);
            older.count -= block.count;
            older.units -= block.units;
            older.time_s -= block.time_s;
            let error = (dispersion * (1.0 / recent.count + 1.0 / older.count)).sqrt();
            let enough = recent.count >= RECENT * dispersion.max(0.3);
            if enough && (recent.rate() / older.rate()).ln().abs() > DIFFERS * error {
                self.blocks.drain(..at);
                return self.sum_up();
            }
        }
    }

    /// The neighbours that are smallest together, among the older half.
    fn put_together(&mut self) {
        let size = |at: &usize| self.blocks[*at].count + self.blocks[at + 1].count;
        let smallest = (0..BLOCKS / 2).min_by(|a, b| size(a).total_cmp(&size(b)));
        if let Some(at) = smallest
            && let Some(next) = self.blocks.remove(at + 1)
        {
            self.blocks[at].add(&next);
        }
    }
}
