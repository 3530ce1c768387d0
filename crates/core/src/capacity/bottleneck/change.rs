//! Tests for changes of the origin ([`Changes`]), the noise they must exceed ([`Dispersion`]), [`Pauses`].

use std::time::Duration;

use crate::units::Timestamp;

/// The means of the tests, relative to the fit.
const SLOWER: f64 = 1.4;
const FASTER: f64 = 0.7;
/// Nats at which a fall is believed, and a rise: 60,000 and 8,000 samples between false alarms. A false rise
/// costs a short ramp, a false fall goodput. ln(X/100) is added: a busy origin has as few an hour.
const SLOWER_NATS: f64 = 11.0;
const FASTER_NATS: f64 = 9.0;
/// Nats after which the next probe up follows at once.
const LEANS_NATS: f64 = 2.0;
/// A single response counts as at most so many times the expected one: one of a minute proves nothing.
const MOST_EXPECTED: f64 = 6.0;

/// Sums of samples since a test was last zero, which is the likeliest beginning of the change.
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Slower,
    Faster,
    Unsaturated,
}

/// Three tests for a change: cumulative sums of log-likelihood ratios (CUSUM, Page 1954).
///
/// Let y be the response time over that of the fit, so that its mean is 1 while the fit holds. The evidence
/// of a sample for a mean of r is −ln r + y (1 − 1/r), the log-likelihood ratio of two exponential
/// distributions, divided by the dispersion. Each test sums this, restarts at zero, and fires at a threshold
/// h. False alarms come about every e^h samples. A true change is found after h over its information per
/// sample, which is optimal for that rate of false alarms.
///
/// | test | r | detects |
/// |---|---|---|
/// | slower | 1.4 | a fall of the capacity |
/// | faster | 0.7 | a rise of the workers' speed |
/// | unsaturated | 1/m(n) | a rise of their number: requests beyond the knee do not wait any more |
///
/// Rejected: comparing windows of fixed length, which finds large changes late and small ones never.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Changes {
    slower: Cusum,
    faster: Cusum,
    unsaturated: Cusum,
    /// The open block, and the sum of its y.
    open: Onset,
    open_y: f64,
}

impl Changes {
    /// One sample; `expected_s` is what the fit predicts for each of its requests. The tests see means of
    /// blocks of `at_least` samples, because requests that end together have waited alike.
    pub fn add(&mut self, sample: &Onset, expected_s: f64, dispersion: f64, at_least: f64) {
        self.open.add(sample);
        self.open_y += sample.count * (sample.response_s / sample.count / expected_s).min(MOST_EXPECTED);
        if self.open.count < at_least {
            return;
        }
        let (block, y) = (std::mem::take(&mut self.open), std::mem::take(&mut self.open_y));
        let weight = block.count / dispersion;
        self.slower.add(weight * evidence(SLOWER, y / block.count), &block);
        self.faster.add(weight * evidence(FASTER, y / block.count), &block);
    }

    /// A round at one limit: requests took `y` times what was expected, which was `slowdown` times the base.
    pub fn add_round(&mut self, round: &Onset, y: f64, slowdown: f64, dispersion: f64) {
        // Tests a mean of 1/m against the mean m/m = 1.
        self.unsaturated.add(round.count / dispersion * evidence(1.0 / slowdown, y), round);
    }

    /// The first test that has fired, at a throughput in requests per second.
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

    /// Whether some evidence that requests beyond the knee do not wait makes another probe up useful.
    pub fn leans_up(&self) -> bool {
        self.unsaturated.sum > LEANS_NATS
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Evidence, in nats, of a response of `y` times the expected one for a mean of `ratio` times it.
fn evidence(ratio: f64, y: f64) -> f64 {
    -ratio.ln() + y * (1.0 - 1.0 / ratio)
}

/// Bounds of the dispersion. The lower one keeps bounds of tests above zero for an origin regular as a clock.
pub(super) const FLOOR: f64 = 0.08;
const CEILING: f64 = 20.0;
const BATCHES: f64 = 40.0;
const SINGLES: f64 = 200.0;
/// Single samples are cut at so many times the mean: a stream of a minute is no service time.
const MOST_MEANS: f64 = 12.0;

#[derive(Clone, Copy, Default, Debug)]
struct Batch {
    count: f64,
    response_s: f64,
    expected_s: f64,
}

/// How noisy response times are, in the measure that matters for means: φ = N · Var(mean of N) / mean².
///
/// φ is 1 for exponential service, near 0 for constant service, and cv² for independent service times.
/// Requests that wait in one line depend on each other, so φ is taken from means of batches longer than the
/// line; until there are some batches, from single samples. Each batch is compared with the one before at
/// the same level (von Neumann 1941), not with the fit: otherwise a change of the origin would count as
/// noise, and the larger it is, the later the tests would notice it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Dispersion {
    batch: Batch,
    last_mean: Option<f64>,
    batches: f64,
    of_batches: f64,
    singles: f64,
    of_singles: f64,
    mean_expected_s: f64,
}

impl Dispersion {
    pub fn new() -> Self {
        Self { of_singles: 1.0, ..Self::default() }
    }

    /// `count` requests took `response_s` each instead of `expected_s`; a batch closes at `at_least` samples.
    /// Costly requests weigh more, as they do in a throughput.
    pub fn add(&mut self, count: f64, response_s: f64, expected_s: f64, at_least: f64) {
        let response_s = response_s.min(MOST_MEANS * expected_s);
        if self.mean_expected_s <= 0.0 {
            self.mean_expected_s = expected_s;
        }
        self.mean_expected_s += 0.01 * (expected_s - self.mean_expected_s);
        let off = (response_s - expected_s) / self.mean_expected_s;
        self.learn(count, off * off);
        self.batch.count += count;
        self.batch.response_s += count * response_s;
        self.batch.expected_s += count * expected_s;
        if self.batch.count >= at_least {
            let batch = std::mem::take(&mut self.batch);
            let mean = batch.response_s / batch.expected_s;
            if let Some(last) = self.last_mean.replace(mean) {
                let off = mean - last;
                self.batches = (self.batches + 1.0).min(BATCHES);
                self.of_batches += (0.5 * batch.count * off * off - self.of_batches) / self.batches;
            }
        }
    }

    /// `count` samples of one level had this squared coefficient of variation. More than are remembered
    /// replace all others.
    pub fn learn(&mut self, count: f64, squared: f64) {
        self.singles = (self.singles + count).min(SINGLES);
        // The prior is ten samples of exponential service.
        let weight = (count / (self.singles + 10.0)).min(1.0);
        self.of_singles += weight * (squared - self.of_singles);
    }

    /// The level or the origin has changed: a batch must not span the change, nor be compared with one from
    /// before it. The fit may be better at one level than at another, and that difference is no noise.
    pub fn start_anew(&mut self) {
        (self.batch, self.last_mean) = (Batch::default(), None);
    }

    pub fn get(&self) -> f64 {
        let trust = (self.batches / 16.0).min(1.0);
        (self.of_singles + trust * (self.of_batches - self.of_singles)).clamp(FLOOR, CEILING)
    }
}

/// A gap is a pause if it is longer than the time of so many completions and of so many responses.
const GAP_COMPLETIONS: f64 = 15.0;
const GAP_RESPONSES: f64 = 1.25;
/// Least samples between two pauses: in multiples of the limit, and in all.
const APART_LIMITS: f64 = 2.0;
const APART: f64 = 20.0;
/// Seconds over which the share of pauses is averaged, and of a prior without any.
const MEMORY_S: f64 = 120.0;
const PRIOR_S: f64 = 5.0;

/// Throughput and response time that are expected of the origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub per_second: f64,
    pub response_s: f64,
}

/// Pauses: the origin answers nobody for a while (garbage collection, a checkpoint), then goes on as before.
///
/// ```text
/// no completion for more than max(15/X, 5/4 · mean response time)      X completions per second
/// ```
///
/// With independent service times one gap in e^15 is that long by chance; where all workers serve in step, a
/// gap is as long as a response without a wait. A pause too short to be detected takes its time from the
/// throughput. There should be few: some hundred samples contain one or none.
///
/// Requests that were in flight have waited for the pause, so their response times say nothing of the knee,
/// and the samples are ignored. This happens only once per so many samples: otherwise an origin that has
/// become slow would seem to pause all the time.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pauses {
    last_end: Option<Timestamp>,
    /// Begin and end of the last pause.
    from: Timestamp,
    until: Timestamp,
    /// Requests that ended since then.
    since: f64,
    pub count: u64,
    paused_s: f64,
    watched_s: f64,
}

impl Pauses {
    /// `count` requests that were sent at `sent` ended at `ended`. Returns for how many seconds they waited
    /// for a pause; `None` if they did not.
    pub fn paused_s(
        &mut self,
        sent: Timestamp,
        ended: Timestamp,
        count: f64,
        expected: &Expected,
        limit: f64,
    ) -> Option<f64> {
        // Only the time with this request at the origin counts: a time without visitors is no pause.
        let gap = self.last_end.map_or(Duration::ZERO, |last| ended.since(last.max(sent)));
        self.skip(ended);
        let long = (GAP_COMPLETIONS / expected.per_second).max(GAP_RESPONSES * expected.response_s);
        let apart = self.since >= (APART_LIMITS * limit).max(APART);
        if apart && gap.as_secs_f64() > long {
            (self.from, self.until) = (ended.saturating_sub(gap), ended);
            self.since = 0.0;
            self.count += 1;
            self.paused_s += gap.as_secs_f64();
        }
        self.watched_s += gap.as_secs_f64();
        if self.watched_s > MEMORY_S {
            self.watched_s *= 0.5;
            self.paused_s *= 0.5;
        }
        if sent < self.until {
            return Some(self.until.since(self.from.max(sent)).as_secs_f64());
        }
        self.since += count;
        None
    }

    /// A request ended at `ended` that is not to be tested.
    pub fn skip(&mut self, ended: Timestamp) {
        self.last_end = self.last_end.max(Some(ended));
    }

    /// Share of the time in which the origin does not pause.
    pub fn up_share(&self) -> f64 {
        1.0 - self.paused_s / (self.watched_s + PRIOR_S)
    }
}
