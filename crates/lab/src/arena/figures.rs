//! How good a run was, against the truth of each stretch.
//!
//! With C the oracle's goodput in a stretch, R0 and P0 mean and 99th percentile of its unloaded response
//! time:
//!
//! | figure | meaning |
//! |---|---|
//! | `settle_s` | from the start of the stretch (or of saturation in it) until the mean of the capacity over the next 5 s is within 5 % of C, and is so for every such 5 s that begins in the 10 s from then (or fits before the end); infinite: never |
//! | `error_pct` | mean capacity over the last third, how far from C |
//! | `error_1s_pct`, `error_5s_pct`, `error_10s_pct` | mean capacity over the second around that time after saturation began, how far from C |
//! | `goodput_share` | cost units served, over what a queue at rate C would have served |
//! | `p99_ratio` | 99th percentile of the response time in the last third, over P0 |
//! | `mean_rt_ratio` | mean response time over R0 |
//! | `overshoot_pct` | most that the mean capacity of a second exceeds C; in a stretch which begins above C, from when it first is down within 5 % |
//! | `oscillation_pct` | 1.96 standard deviations of the capacity over its mean, last third |
//!
//! A stretch is *saturated* from the second in which a queue served at rate C would hold half a second's
//! work. Where that never happens the origin's capacity cannot be seen, and the figures of the capacity are
//! absent.
//!
//! The 5 s of `settle_s` lie ahead, not behind: the mean of those behind would still remember the time before
//! a change.

use super::{Stretch, Trace};
use crate::arena::trace::p99_s;

/// Settled: within this share of the truth.
const WITHIN: f64 = 0.05;
/// Time the capacity is averaged over to tell whether it has settled, in seconds.
const MEAN_S: f64 = 5.0;
/// Time it must stay so, in seconds.
const STAYS_S: f64 = 10.0;
/// Seconds after which the first errors are reported.
pub const EARLY_S: [f64; 3] = [1.0, 5.0, 10.0];
/// A queue of so many seconds of work: saturated.
const SATURATED_S: f64 = 0.5;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figures {
    /// Seconds; `None`: never saturated.
    pub settle_s: Option<f64>,
    /// Percent; `None`: never saturated.
    pub error_pct: Option<f64>,
    /// Percent, after each of [`EARLY_S`]; `None`: never saturated, or not for so long.
    pub early_error_pct: [Option<f64>; 3],
    pub goodput_share: f64,
    /// Ratio; `None`: nothing was served.
    pub p99_ratio: Option<f64>,
    /// Ratio; `None`: nothing was served.
    pub mean_rt_ratio: Option<f64>,
    /// Percent; `None`: never saturated.
    pub overshoot_pct: Option<f64>,
    /// Percent; `None`: never saturated.
    pub oscillation_pct: Option<f64>,
}

/// The figures of a run: those of every stretch, and goodput and response time of the whole.
#[derive(Clone, PartialEq, Debug)]
pub struct Score {
    pub stretches: Vec<Figures>,
    /// Cost units served in the whole run, over the oracle's.
    pub goodput_share: f64,
    /// Mean over all requests of the response time over R0 of their stretch; `None`: nothing was served.
    pub mean_rt_ratio: Option<f64>,
}

pub fn score(trace: &Trace, truth: &[Stretch]) -> Score {
    let best = best_possible(trace, truth);
    let share = |from: usize, to: usize| {
        let to = to.min(trace.seconds.len());
        let served: f64 = trace.seconds[from..to].iter().map(|s| s.goodput).sum();
        let possible: f64 = best[from..to].iter().map(|b| b.served).sum();
        if possible > 0.0 { served / possible } else { 1.0 }
    };
    let stretches = truth.iter().map(|stretch| {
        let begins = (stretch.from_s..stretch.to_s.min(best.len())).find(|s| best[*s].saturated);
        let goodput_share = share(stretch.from_s, stretch.to_s);
        let belief = begins.map(|from| Belief::new(trace, stretch, from));
        Figures { goodput_share, ..figures(trace, stretch, belief) }
    });
    let (mut expected_s, mut took_s) = (0.0, 0.0);
    for stretch in truth {
        for second in &trace.seconds[stretch.from_s..stretch.to_s.min(trace.seconds.len())] {
            took_s += second.response_s;
            expected_s += second.served as f64 * stretch.unloaded_s;
        }
    }
    Score {
        stretches: stretches.collect(),
        goodput_share: share(0, trace.seconds.len()),
        mean_rt_ratio: (expected_s > 0.0).then(|| took_s / expected_s),
    }
}

fn figures(trace: &Trace, stretch: &Stretch, belief: Option<Belief<'_>>) -> Figures {
    let to = stretch.to_s.min(trace.seconds.len());
    let last_third = to - (to - stretch.from_s) / 3;
    let p99 = p99_s(trace.responses_us(last_third, to));
    let seconds = &trace.seconds[stretch.from_s..to];
    let (served, took_s) = seconds.iter().fold((0, 0.0), |(n, sum), s| (n + s.served, sum + s.response_s));
    Figures {
        settle_s: belief.as_ref().map(Belief::settle_s),
        error_pct: belief.as_ref().map(Belief::error_pct),
        early_error_pct: EARLY_S.map(|after_s| belief.as_ref()?.error_after_pct(after_s)),
        goodput_share: 0.0,
        p99_ratio: p99.map(|p99| p99 / stretch.unloaded_p99_s),
        mean_rt_ratio: (served > 0).then(|| took_s / served as f64 / stretch.unloaded_s),
        overshoot_pct: belief.as_ref().map(Belief::overshoot_pct),
        oscillation_pct: belief.as_ref().map(Belief::oscillation_pct),
    }
}

/// One second of a queue that is served at the truth's rate.
struct Possible {
    served: f64,
    saturated: bool,
}

fn best_possible(trace: &Trace, truth: &[Stretch]) -> Vec<Possible> {
    let mut queue = 0.0;
    let at = |second: usize| truth.iter().find(|s| (s.from_s..s.to_s).contains(&second));
    let seconds = trace.seconds.iter().enumerate().map(|(i, second)| {
        let capacity = at(i).map_or(0.0, |stretch| stretch.capacity);
        let Some(offered) = second.offered else { return Possible { served: capacity, saturated: true } };
        queue += offered;
        let served = capacity.min(queue);
        queue -= served;
        Possible { served, saturated: queue >= SATURATED_S * capacity }
    });
    seconds.collect()
}

/// Estimates in the saturated part of a stretch, tick by tick, as multiples of the truth.
struct Belief<'a> {
    capacity: &'a [f64],
    truth: f64,
    per_s: f64,
}

impl<'a> Belief<'a> {
    fn new(trace: &'a Trace, stretch: &Stretch, from_s: usize) -> Self {
        let per_s = 1.0 / trace.tick.as_secs_f64();
        let tick = |second: usize| ((second as f64 * per_s).round() as usize).min(trace.capacity.len());
        Self { capacity: &trace.capacity[tick(from_s)..tick(stretch.to_s)], truth: stretch.capacity, per_s }
    }

    /// Means over `span_s` from every tick on, over the truth; only whole spans.
    fn means(&self, span_s: f64) -> Vec<f64> {
        let span = ((span_s * self.per_s).round() as usize).max(1);
        self.capacity.windows(span).map(|w| w.iter().sum::<f64>() / span as f64 / self.truth).collect()
    }

    fn settle_s(&self) -> f64 {
        let off: Vec<bool> = self.means(MEAN_S).iter().map(|mean| (mean - 1.0).abs() > WITHIN).collect();
        let stays = (STAYS_S * self.per_s).round() as usize;
        let settled = (0..off.len()).find(|i| !off[*i..off.len().min(i + stays)].contains(&true));
        settled.map_or(f64::INFINITY, |tick| tick as f64 / self.per_s)
    }

    fn last_third(&self) -> &[f64] {
        &self.capacity[self.capacity.len() - self.capacity.len() / 3..]
    }

    fn error_pct(&self) -> f64 {
        (mean(self.last_third()) / self.truth - 1.0).abs() * 100.0
    }

    /// Of the mean of the second around that time.
    fn error_after_pct(&self, after_s: f64) -> Option<f64> {
        let at = |s: f64| (s * self.per_s).round() as usize;
        let around = self.capacity.get(at(after_s - 0.5)..at(after_s + 0.5))?;
        Some((mean(around) / self.truth - 1.0).abs() * 100.0)
    }

    fn overshoot_pct(&self) -> f64 {
        let means = self.means(1.0);
        let down = means.iter().position(|mean| *mean <= 1.0 + WITHIN).unwrap_or(0);
        (means[down.min(means.len())..].iter().copied().fold(1.0, f64::max) - 1.0) * 100.0
    }

    fn oscillation_pct(&self) -> f64 {
        let last = self.last_third();
        let middle = mean(last);
        let variance = last.iter().map(|c| (c - middle).powi(2)).sum::<f64>() / last.len() as f64;
        1.96 * variance.sqrt() / middle * 100.0
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
