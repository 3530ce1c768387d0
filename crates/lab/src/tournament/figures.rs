//! The figures of one run of a tournament: those of [`crate::arena::figures`], whose definitions count, and
//! one that only the whole simulator can give.
//!
//! | figure | what it is |
//! |---|---|
//! | `settle_s` … `oscillation_pct`, `p99_ratio` | of a stretch, as in the arena |
//! | `goodput_share`, `mean_rt_ratio` | of the whole run, as in the arena |
//! | `of_fixed` | `goodput_share` over that of the fixed limit and rate found offline, on the same seed |
//! | `false_shed_pct` | requests refused or kept waiting while the origin had capacity to spare, of all |
//!
//! With several stretches, each figure is the worst of those after the first change: scenarios without
//! changes show how a law starts. The oracle's goodput is that of a queue served at the truth, with the
//! visitors who really came. What a law could have reached in the very same run is `of_fixed`: there the
//! room, pauses and stolen CPU cost the yardstick as much as the law.
//!
//! **To spare**: over the last 5 s the origin served less than 95 % of what the oracle does. Then everybody
//! refused counts, and the shortfall, but at most the visitors from before the present second who wait at its
//! end. A second alone would not do: at 100 requests per second of exponential service, one in four falls
//! short by 5 % by chance.

use std::collections::BTreeMap;
use std::time::Duration;

use super::stretch::Stretch;
use super::truth::Truth;
use crate::arena::figures::{Figures as Judged, score};
use crate::arena::{self, Trace};
use crate::outcome::Second;
use crate::sim::record::{Answered, Record};
use crate::stats::ratio;
use tidegate_core::control::TICK;

/// Figure and unit, in the order in which they are listed.
pub const FIGURES: [(&str, &str); 12] = [
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
    ("of_fixed", "1"),
    ("false_shed_pct", "%"),
];

/// Less than this of the oracle's rate leaves capacity to spare.
const SPARE: f64 = 0.95;
/// Seconds over which that is measured.
const SPARE_OVER: usize = 5;

/// Figures by name. One that has no sense in a run is not there; one that was never reached is infinite.
pub type Figures = BTreeMap<&'static str, f64>;

/// A stretch and what is true of it.
pub type Known = (Stretch, Truth);

/// The figures of a run of a scenario with these stretches, of which there is at least one.
pub fn figures(record: &Record, series: &[Second], known: &[Known]) -> Figures {
    let truth: Vec<arena::Stretch> = known.iter().map(stretch).collect();
    let score = score(&trace(record, series, known), &truth);
    let mut figures = Figures::from([("goodput_share", score.goodput_share)]);
    figures.extend(score.mean_rt_ratio.map(|ratio| ("mean_rt_ratio", ratio)));
    figures.extend(false_shed(series, known).map(|share| ("false_shed_pct", share * 100.0)));
    let scored = if known.len() > 1 { 1 } else { 0 };
    for judged in score.stretches.iter().skip(scored) {
        for (name, value) in named(judged) {
            figures.entry(name).and_modify(|worst| *worst = worst.max(value)).or_insert(value);
        }
    }
    figures.retain(|_, value| !value.is_nan());
    figures
}

fn named(judged: &Judged) -> impl Iterator<Item = (&'static str, f64)> {
    let [after_1s, after_5s, after_10s] = judged.early_error_pct;
    let all = [
        ("settle_s", judged.settle_s),
        ("error_pct", judged.error_pct),
        ("error_1s_pct", after_1s),
        ("error_5s_pct", after_5s),
        ("error_10s_pct", after_10s),
        ("overshoot_pct", judged.overshoot_pct),
        ("oscillation_pct", judged.oscillation_pct),
        ("p99_ratio", judged.p99_ratio),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?)))
}

fn stretch((stretch, truth): &Known) -> arena::Stretch {
    arena::Stretch {
        from_s: stretch.from.as_secs_f64().ceil() as usize,
        to_s: stretch.to.as_secs_f64().ceil() as usize,
        limit: truth.limit,
        capacity: truth.capacity,
        unloaded_s: truth.unloaded_ms / 1000.0,
        unloaded_p99_s: truth.unloaded_p99_ms / 1000.0,
    }
}

fn trace(record: &Record, series: &[Second], known: &[Known]) -> Trace {
    let tick_us = TICK.as_micros() as u64;
    let (mut believed, mut now) = (record.believed.iter().peekable(), 0.0);
    let mut belief = |tick: u64| {
        while let Some(next) = believed.next_if(|next| next.at_us <= tick * tick_us) {
            now = next.capacity.unwrap_or(0.0);
        }
        now
    };
    let all = seconds(known);
    let capacity = (0..all as u64 * 1_000_000 / tick_us).map(&mut belief).collect();
    let sum = |of: fn(&Second) -> f64| series.iter().map(of).sum::<f64>();
    let cost = ratio(sum(|s| s.door_units), sum(|s| s.door as f64));
    let mut answered = record.answered.as_slice();
    let second = |t: usize| {
        let until = answered.partition_point(|answer| answer.at_us < (t as u64 + 1) * 1_000_000);
        let (within, later) = answered.split_at(until);
        answered = later;
        let offered = series.get(t).map_or(0.0, |second| second.offered as f64) * cost;
        of_second(t, offered, within)
    };
    let seconds = (0..all).map(second).collect();
    let responses_us = record.answered.iter().map(|answer| answer.took_us).collect();
    Trace { tick: TICK, capacity, seconds, responses_us }
}

fn of_second(t: usize, offered: f64, answered: &[Answered]) -> arena::Second {
    arena::Second {
        t: t as f64,
        served: answered.len() as u64,
        goodput: answered.iter().map(|answer| answer.cost.units()).sum(),
        offered: Some(offered),
        response_s: answered.iter().map(|answer| f64::from(answer.took_us) / 1e6).sum(),
        ..arena::Second::default()
    }
}

/// Share of all who came that were refused or kept waiting for no good reason.
fn false_shed(series: &[Second], known: &[Known]) -> Option<f64> {
    let (mut came, mut shed) = (0.0, 0.0);
    for (t, second) in series.iter().enumerate().take(seconds(known)) {
        let (stretch, truth) = at(known, t);
        came += second.offered as f64;
        let from = (t + 1).saturating_sub(SPARE_OVER).max(stretch.from.as_secs() as usize).min(t);
        let served = series[from..=t].iter().map(|s| s.origin_served as f64).sum::<f64>();
        let short = SPARE * truth.goodput_rps - served / (t + 1 - from) as f64;
        let waited = second.waiting.saturating_sub(second.offered) as f64;
        if short > 0.0 {
            let refused = second.failed.saturating_sub(second.given_up) + second.full;
            shed += short.min(waited) + refused as f64;
        }
    }
    (came > 0.0).then(|| shed / came)
}

fn at(known: &[Known], second: usize) -> &Known {
    let now = Duration::from_secs(second as u64);
    &known[known.partition_point(|(stretch, _)| stretch.from <= now).saturating_sub(1)]
}

fn seconds(known: &[Known]) -> usize {
    known.last().map_or(0, |(stretch, _)| stretch.to.as_secs() as usize)
}
