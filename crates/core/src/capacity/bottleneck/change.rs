//! Has the origin changed? Cumulative sums of log-likelihood ratios (CUSUM, Page 1954).
//!
//! With y = response time over what the fit expects (mean 1 while it holds), a sample speaks for a mean of r by
//! −ln r + y (1 − 1/r), the log-likelihood ratio of two exponential laws, over the dispersion. Each test sums this, starts anew
//! at zero, and fires at a threshold h: false alarms come every e^h samples or so, a true change is found after h
//! over its information per sample, which is the least that any test of that false alarm rate can do.
//!
//! | test | r | against |
//! |---|---|---|
//! | slower | 1.4 | a fall of the capacity |
//! | faster | 0.7 | a rise of the workers' speed |
//! | unsaturated | 1/m(n) | a rise of their number: those beyond the knee wait no longer |
//!
//! Rejected: comparing windows of fixed length, which finds large changes late and small ones never.

/// Sums of samples since a test last stood at zero: the likeliest beginning of the change.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct Onset {
    pub count: f64,
    pub in_flight: f64,
    pub units: f64,
    pub response_s: f64,
}

impl Onset {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.in_flight += other.in_flight;
        self.units += other.units;
        self.response_s += other.response_s;
    }
}

/// One test.
#[derive(Clone, Copy, Default, Debug)]
struct Cusum {
    sum: f64,
    since: Onset,
}

impl Cusum {
    fn add(&mut self, evidence: f64, sample: &Onset) {
        self.sum += evidence;
        if self.sum <= 0.0 {
            *self = Self::default();
        } else {
            self.since.add(sample);
        }
    }
}

/// What changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Slower,
    Faster,
    Unsaturated,
}

/// The three tests.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Changes {
    slower: Cusum,
    faster: Cusum,
    unsaturated: Cusum,
    /// The block that is open, and the sum of its y.
    open: Onset,
    open_y: f64,
}

const SLOWER: f64 = 1.4;
const FASTER: f64 = 0.7;
/// Nats at which a fall is believed, and a rise: 60,000 and 8,000 samples between false alarms. A false rise costs a short ramp, a
/// false fall costs goodput. A busy origin may have them as often per hour, not per sample: ln(X/100) is added.
const SLOWER_NATS: f64 = 11.0;
const FASTER_NATS: f64 = 9.0;
/// Nats after which one does not wait for the next probe.
const LEANS_NATS: f64 = 2.0;
/// A single response counts as at most so many times the expected one: one of a minute proves nothing.
const MOST: f64 = 6.0;

impl Changes {
    /// One sample; `expected_s` is what the fit expects of each of its requests. The tests see means of `at_least` samples: requests
    /// that ended together waited alike.
    pub fn add(&mut self, sample: &Onset, expected_s: f64, dispersion: f64, at_least: f64) {
        self.open.add(sample);
        self.open_y += sample.count * (sample.response_s / sample.count / expected_s).min(MOST);
        if self.open.count < at_least {
            return;
        }
        let (block, y) = (std::mem::take(&mut self.open), std::mem::take(&mut self.open_y));
        let weight = block.count / dispersion;
        self.slower.add(weight * speaks_for(SLOWER, y / block.count), &block);
        self.faster.add(weight * speaks_for(FASTER, y / block.count), &block);
    }

    /// A round at one limit, whose requests took `y` times what was expected, which was `slowdown` times as long as alone.
    pub fn add_round(&mut self, round: &Onset, y: f64, slowdown: f64, dispersion: f64) {
        // Against the mean m/m = 1 a mean of 1/m.
        self.unsaturated.add(round.count / dispersion * speaks_for(1.0 / slowdown, y), round);
    }

    /// The first test that has fired, at a throughput in samples per second.
    pub fn fired(&self, per_second: f64) -> Option<(Change, Onset)> {
        let busy = (per_second / 100.0).max(1.0).ln();
        if self.slower.sum > SLOWER_NATS + busy {
            Some((Change::Slower, self.slower.since))
        } else if self.unsaturated.sum > FASTER_NATS + busy {
            Some((Change::Unsaturated, self.unsaturated.since))
        } else if self.faster.sum > FASTER_NATS + busy {
            Some((Change::Faster, self.faster.since))
        } else {
            None
        }
    }

    /// Whether another probe up is worth while: there is some evidence that those beyond the knee do not wait.
    pub fn leans_up(&self) -> bool {
        self.unsaturated.sum > LEANS_NATS
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// How much a response of `y` times the expected one speaks for a mean of `ratio` times it, in nats.
fn speaks_for(ratio: f64, y: f64) -> f64 {
    -ratio.ln() + y * (1.0 - 1.0 / ratio)
}
