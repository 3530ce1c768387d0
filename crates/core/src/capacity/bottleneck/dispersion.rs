//! How noisy response times are, in the only measure that matters for means: φ = N · Var(mean of N) / mean².
//!
//! φ is 1 for exponential service, near 0 for constant, cv² for service times that do not depend on each other. Those that wait
//! in one line do, so it is taken from means of batches longer than the line, not from single response times; until there
//! are some batches, from single ones.

/// Least dispersion believed: bounds of tests must not shrink to nothing when the origin ticks like a clock.
pub(super) const FLOOR: f64 = 0.08;
const CEILING: f64 = 20.0;
/// Batches remembered.
const BATCHES: f64 = 40.0;
/// Single samples remembered.
const SINGLES: f64 = 200.0;
/// Single samples beyond so many times the mean are cut: a stream of a minute is no service time.
const MOST: f64 = 12.0;

/// A running estimate of φ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dispersion {
    batch: (f64, f64),
    batches: f64,
    of_batches: f64,
    singles: f64,
    of_singles: f64,
}

impl Dispersion {
    pub fn new() -> Self {
        Self { batch: (0.0, 0.0), batches: 0.0, of_batches: 0.0, singles: 0.0, of_singles: 1.0 }
    }

    /// A response of `y` times the expected one; `at_least` samples make a batch.
    pub fn add(&mut self, count: f64, y: f64, at_least: f64) {
        let y = y.min(MOST);
        self.singles = (self.singles + count).min(SINGLES);
        // A prior of ten samples of exponential service.
        self.of_singles += count / (self.singles + 10.0) * ((y - 1.0) * (y - 1.0) - self.of_singles);
        self.batch.0 += count;
        self.batch.1 += count * y;
        if self.batch.0 >= at_least {
            let (count, sum) = std::mem::take(&mut self.batch);
            let off = sum / count - 1.0;
            self.batches = (self.batches + 1.0).min(BATCHES);
            self.of_batches += (count * off * off - self.of_batches) / self.batches;
        }
    }

    /// A level changed: batches must not straddle it.
    pub fn cut(&mut self) {
        self.batch = (0.0, 0.0);
    }

    /// φ.
    pub fn get(&self) -> f64 {
        let trust = (self.batches / 16.0).min(1.0);
        (self.of_singles + trust * (self.of_batches - self.of_singles)).clamp(FLOOR, CEILING)
    }
}
