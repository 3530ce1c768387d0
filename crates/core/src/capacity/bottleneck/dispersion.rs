//! How noisy response times are, in the only measure that matters for means: φ = N · Var(mean of N) / mean².
//!
//! φ is 1 for exponential service, near 0 for constant, cv² for service times that do not depend on each other. Those that wait
//! in one line do, so it is taken from means of batches longer than the line, not from single response times; until there
//! are some batches, from single ones. Batches are compared with the one before (von Neumann 1941), not with what the fit expects: a
//! change of the origin would be taken for noise, and the louder it is the later the tests would notice.

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
    /// Samples, and seconds taken and expected, of the batch that is open.
    batch: (f64, f64, f64),
    /// Of the batch before.
    last_mean: Option<f64>,
    batches: f64,
    of_batches: f64,
    singles: f64,
    of_singles: f64,
    mean_expected_s: f64,
}

impl Dispersion {
    pub fn new() -> Self {
        Self {
            batch: (0.0, 0.0, 0.0),
            last_mean: None,
            batches: 0.0,
            of_batches: 0.0,
            singles: 0.0,
            of_singles: 1.0,
            mean_expected_s: 0.0,
        }
    }

    /// `count` requests that took `response_s` each instead of `expected_s`; `at_least` samples make a batch.
    ///
    /// Costly ones count for more, as they do in a throughput.
    pub fn add(&mut self, count: f64, response_s: f64, expected_s: f64, at_least: f64) {
        let response_s = response_s.min(MOST * expected_s);
        if self.mean_expected_s <= 0.0 {
            self.mean_expected_s = expected_s;
        }
        self.mean_expected_s += 0.01 * (expected_s - self.mean_expected_s);
        let off = (response_s - expected_s) / self.mean_expected_s;
        self.learn(count, off * off);
        self.batch.0 += count;
        self.batch.1 += count * response_s;
        self.batch.2 += count * expected_s;
        if self.batch.0 >= at_least {
            let (count, sum, expected) = std::mem::take(&mut self.batch);
            let mean = sum / expected;
            if let Some(last) = self.last_mean.replace(mean) {
                let off = mean - last;
                self.batches = (self.batches + 1.0).min(BATCHES);
                self.of_batches += (0.5 * count * off * off - self.of_batches) / self.batches;
            }
        }
    }

    /// `count` samples of one level had this squared coefficient of variation.
    pub fn learn(&mut self, count: f64, squared: f64) {
        self.singles = (self.singles + count).min(SINGLES);
        // A prior of ten samples of exponential service.
        self.of_singles += count / (self.singles + 10.0) * (squared - self.of_singles);
    }

    /// A level changed: batches must not straddle it.
    pub fn cut(&mut self) {
        self.batch = (0.0, 0.0, 0.0);
    }

    /// φ.
    pub fn get(&self) -> f64 {
        let trust = (self.batches / 16.0).min(1.0);
        (self.of_singles + trust * (self.of_batches - self.of_singles)).clamp(FLOOR, CEILING)
    }
}
