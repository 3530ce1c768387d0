//! The figures of one run of a tournament, each in one place.
//!
//! | figure | what it is |
//! |---|---|
//! | `settle_s` | from the begin of a stretch's saturation until the believed capacity is within 5 % of the truth, as a mean over 5 s, and stays so for 10 s or to the end; infinite: never |
//! | `error_pct` | deviation from the truth of the mean belief over the last third |
//! | `error_1s_pct`, `error_5s_pct`, `error_10s_pct` | deviation of the belief, as a mean over 1 s, so long after the begin |
//! | `overshoot_pct` | by how much the belief, as a mean over 1 s, exceeds the truth at most; after a fall that is the fall itself |
//! | `oscillation_pct` | 1.96 standard deviations of the belief over the last third, over its mean |
//! | `p99_ratio` | 99th percentile of the origin's response times in the last third over the unloaded one |
//! | `mean_rt_ratio` | mean over all answers of the run of the response time over the stretch's unloaded mean |
//! | `goodput_share` | requests served in the whole run over what the oracle serves |
//! | `false_shed_pct` | requests refused or kept waiting while the origin had capacity to spare, of all |
//!
//! The belief tells of the capacity only where the origin is saturated: the first six are over the longest time of each stretch in
//! which the oracle would have a queue. Of several stretches those after the first change count, the worst of them for each
//! figure: how a law starts is told by the scenarios without changes.
//!
//! **The oracle's goodput** is that of a queue which the origin serves at the stretch's true capacity, second by second, with
//! the visitors who really came. Rejected: to play the oracle's limits in the simulator as if it were a law, which would count
//! what the room costs against the oracle.
//!
//! **To spare**: over the last 5 s the origin served less than 95 % of what the oracle does, and visitors from before the present
//! second wait at its end. Then the shortfall, but at most those who wait, and everybody refused count. A second alone would
//! not do: at 100 requests per second of exponential service, one in four falls short by 5 % by chance.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::stretch::Stretch;
use super::truth::Truth;
use crate::outcome::Second;
use crate::sim::record::{Answered, Believed, Record};

/// Figure and unit, in the order in which they are listed.
pub const FIGURES: [(&str, &str); 11] = [
    ("settle_s", "s"),
    ("error_pct", "%"),
    ("error_1s_pct", "%"),
    ("error_5s_pct", "%"),
    ("error_10s_pct", "%"),
    ("overshoot_pct", "%"),
    ("oscillation_pct", "%"),
    ("p99_ratio", "1"),
    ("mean_rt_ratio", "1"),
    ("goodput_share", "1"),
    ("false_shed_pct", "%"),
];

/// Beliefs are looked at as often as the control side ticks.
const TICK_US: u64 = 100_000;
const PER_SECOND: usize = 10;
/// Deviation that counts as settled.
const WITHIN: f64 = 0.05;
/// Over which the belief is averaged to tell whether it has settled, in ticks.
const SETTLE_MEAN: usize = 5 * PER_SECOND;
/// For how long it must stay so, in ticks.
const SETTLE_STAYS: usize = 10 * PER_SECOND;
/// Shortest saturation that the belief is judged by, in seconds.
const LEAST_SATURATION: usize = 5;
/// Less than this of the oracle's rate leaves capacity to spare.
const SPARE: f64 = 0.95;
/// Seconds over which that is told.
const SPARE_OVER: usize = 5;

/// Figures by name. One that has no sense in a run is not there.
pub type Figures = BTreeMap<&'static str, f64>;

/// A stretch and what is true of it.
pub type Known = (Stretch, Truth);

/// The figures of a run of a scenario with these stretches, of which there is at least one.
pub fn figures(record: &Record, series: &[Second], known: &[Known]) -> Figures {
    let oracle = Oracle::new(series, known);
    let mut figures = Figures::new();
    let beliefs = ticks(&record.believed, known);
    let scored = if known.len() > 1 { 1 } else { 0 };
    for (of, saturated) in known.iter().zip(&oracle.saturated).skip(scored) {
        for (name, value) in of_stretch(&beliefs, &record.answered, of, saturated) {
            figures.entry(name).and_modify(|worst| *worst = worst.max(value)).or_insert(value);
        }
    }
    let served = record.answered.len() as f64;
    if oracle.served > 0.0 {
        figures.insert("goodput_share", served / oracle.served);
    }
    if served > 0.0 {
        let ratio = |a: &Answered| f64::from(a.took_us) / 1000.0 / at(known, a.at_us).1.unloaded_ms;
        figures.insert("mean_rt_ratio", record.answered.iter().map(ratio).sum::<f64>() / served);
    }
    if let Some(share) = false_shed(series, known) {
        figures.insert("false_shed_pct", share * 100.0);
    }
    figures.retain(|_, value| !value.is_nan());
    figures
}

/// What the oracle would have done with the visitors who came.
struct Oracle {
    /// Requests served.
    served: f64,
    /// Of each stretch, the seconds of its longest saturation.
    saturated: Vec<Range<usize>>,
}

impl Oracle {
    fn new(series: &[Second], known: &[Known]) -> Self {
        let (mut queue, mut served) = (0.0, 0.0);
        let mut saturated: Vec<Range<usize>> = known.iter().map(|_| 0..0).collect();
        let mut now = 0..0;
        let mut stretch = 0;
        for t in 0..seconds(known) {
            let next = stretch_at(known, t as u64 * 1_000_000);
            let rate = known[next].1.goodput_rps;
            queue += series.get(t).map_or(0.0, |second| second.offered as f64);
            let serves = f64::min(queue, rate);
            (queue, served) = (queue - serves, served + serves);
            if next != stretch || now.end != t {
                now = t..t;
                stretch = next;
            }
            if queue > 0.0 {
                now.end = t + 1;
                if now.len() > saturated[stretch].len() {
                    saturated[stretch] = now.clone();
                }
            }
        }
        Self { served, saturated }
    }
}

/// Figures that follow from one stretch.
fn of_stretch(
    beliefs: &[f64],
    answered: &[Answered],
    (stretch, truth): &Known,
    saturated: &Range<usize>,
) -> Figures {
    let mut figures = Figures::new();
    if saturated.len() < LEAST_SATURATION {
        return figures;
    }
    let ticks = saturated.start * PER_SECOND..saturated.end * PER_SECOND;
    // A stretch may begin within a second.
    let from = (stretch.from.as_micros() / u128::from(TICK_US)) as usize;
    let beliefs = &beliefs[ticks.start.max(from).min(ticks.end)..ticks.end.min(beliefs.len())];
    let off = |mean: f64| mean / truth.capacity - 1.0;
    let last = beliefs.len() * 2 / 3..beliefs.len();
    let (level, deviation) = mean_and_deviation(&beliefs[last]);
    figures.insert("settle_s", settle(beliefs, truth.capacity));
    figures.insert("error_pct", off(level).abs() * 100.0);
    for (name, second) in [("error_1s_pct", 1), ("error_5s_pct", 5), ("error_10s_pct", 10)] {
        let around = second * PER_SECOND - PER_SECOND / 2..second * PER_SECOND + PER_SECOND / 2;
        if let Some(beliefs) = beliefs.get(around) {
            figures.insert(name, off(mean_and_deviation(beliefs).0).abs() * 100.0);
        }
    }
    let highest = beliefs.windows(PER_SECOND).map(|second| mean_and_deviation(second).0).fold(0.0, f64::max);
    figures.insert("overshoot_pct", off(highest).max(0.0) * 100.0);
    if level > 0.0 {
        figures.insert("oscillation_pct", 1.96 * deviation / level * 100.0);
    }
    let last_us = (saturated.end - saturated.len() / 3) as u64 * 1_000_000..saturated.end as u64 * 1_000_000;
    let within = answered.iter().filter(|a| last_us.contains(&a.at_us));
    let mut took: Vec<u32> = within.map(|a| a.took_us).collect();
    if let Some(p99) = percentile(&mut took, 0.99) {
        figures.insert("p99_ratio", f64::from(p99) / 1000.0 / truth.unloaded_p99_ms);
    }
    figures
}

/// Seconds until the belief stays within 5 % of the truth.
fn settle(beliefs: &[f64], truth: f64) -> f64 {
    let means = beliefs.windows(SETTLE_MEAN).map(|window| mean_and_deviation(window).0);
    let within: Vec<bool> = means.map(|mean| (mean / truth - 1.0).abs() <= WITHIN).collect();
    // The mean that begins now looks 5 s ahead, the last one that must be within begins 5 s later.
    let looks = SETTLE_STAYS - SETTLE_MEAN + 1;
    let mut stays = 0;
    let mut settled = f64::INFINITY;
    for (at, within) in within.iter().enumerate().rev() {
        stays = if *within { stays + 1 } else { 0 };
        if stays >= looks.min(means_left(beliefs.len(), at)) {
            settled = at as f64 / PER_SECOND as f64;
        }
    }
    settled
}

/// Means that begin at `at` or later.
fn means_left(ticks: usize, at: usize) -> usize {
    (ticks + 1 - SETTLE_MEAN).saturating_sub(at).max(1)
}

/// Share of all who came that were refused or kept waiting for no good reason.
fn false_shed(series: &[Second], known: &[Known]) -> Option<f64> {
    let (mut came, mut shed) = (0.0, 0.0);
    for (t, second) in series.iter().enumerate().take(seconds(known)) {
        let now = stretch_at(known, t as u64 * 1_000_000);
        let (stretch, truth) = &known[now];
        came += second.offered as f64;
        let from = (t + 1).saturating_sub(SPARE_OVER).max(stretch.from.as_secs() as usize).min(t);
        let served =
            series[from..=t].iter().map(|s| s.origin_served as f64).sum::<f64>() / (t + 1 - from) as f64;
        let short = SPARE * truth.goodput_rps - served;
        let waited = second.waiting.saturating_sub(second.offered) as f64;
        if short > 0.0 && waited > 0.0 {
            let refused = second.failed.saturating_sub(second.given_up) + second.full;
            shed += short.min(waited) + refused as f64;
        }
    }
    (came > 0.0).then(|| shed / came)
}

/// The belief on every tick until the end; 0 where nothing is known.
fn ticks(believed: &[Believed], known: &[Known]) -> Vec<f64> {
    let (mut believed, mut now) = (believed.iter().peekable(), 0.0);
    let tick = |tick: usize| {
        while let Some(next) = believed.next_if(|next| next.at_us <= tick as u64 * TICK_US) {
            now = next.capacity.unwrap_or(0.0);
        }
        now
    };
    (0..seconds(known) * PER_SECOND).map(tick).collect()
}

/// The stretch of an instant and its truth.
fn at(known: &[Known], at_us: u64) -> &Known {
    &known[stretch_at(known, at_us)]
}

fn stretch_at(known: &[Known], at_us: u64) -> usize {
    let now = Duration::from_micros(at_us);
    known.partition_point(|(stretch, _)| stretch.from <= now).saturating_sub(1)
}

/// Whole seconds of the scenario.
fn seconds(known: &[Known]) -> usize {
    known.last().map_or(0, |(stretch, _)| stretch.to.as_secs() as usize)
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
    (mean, square.sqrt())
}

/// The least value that so large a share does not exceed (nearest rank); `None` of nothing.
pub fn percentile<T: Copy + PartialOrd>(values: &mut [T], share: f64) -> Option<T> {
    let at = ((values.len() as f64 * share).ceil() as usize).max(1).checked_sub(1)?;
    if at >= values.len() {
        return None;
    }
    let order = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal);
    let (_, value, _) = values.select_nth_unstable_by(at, order);
    Some(*value)
}
