//! Tries an estimator in the arena and prints its figures, median and 90th percentile over seeds.
//!
//! ```console
//! $ cargo run --release -p tidegate-lab --example arena -- ESTIMATOR SCENARIO SEEDS [SECONDS]
//! $ cargo run --release -p tidegate-lab --example arena -- vegas all 101-120
//! $ cargo run --release -p tidegate-lab --example arena -- trace:vegas exponential 7
//! ```
//!
//! `SCENARIO`: a name, the beginning of some, or `all`. `SEEDS`: a number n for 1 to n, or a range. `trace:`
//! prints the first seed second by second instead. Figures as in `tidegate_lab::arena::figures`; `cold` is
//! the time to settle in the first stretch, all others but goodput and mean response are those of the last
//! one.

use std::ops::RangeInclusive;

use tidegate_core::capacity::{Options, by_name};
use tidegate_lab::arena::figures::{Score, score};
use tidegate_lab::arena::{ArenaSpec, Stretch, Trace, oracle, scenarios};

/// Runs at the same time.
const THREADS: usize = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [estimator, scenario, seeds, rest @ ..] = &arguments[..] else {
        return Err("expected: ESTIMATOR SCENARIO SEEDS [SECONDS]".into());
    };
    let seeds = range(seeds)?;
    let lasts_s = rest.first().map(|text| text.parse()).transpose()?;
    let (trace, estimator) =
        estimator.strip_prefix("trace:").map_or((false, &**estimator), |name| (true, name));
    by_name(estimator, &Options::default())?;
    let chosen = scenarios::named(scenario);
    if chosen.is_empty() {
        let known: Vec<_> = scenarios::ALL.iter().map(|s| s.name).collect();
        return Err(format!("expected one of {known:?} or all, got {scenario:?}").into());
    }
    if !trace {
        println!(
            "{:<15} {:>4} {:>7} | {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}",
            estimator, "L*", "C", "cold", "settle", "error%", "goodput", "p99", "mean_rt", "over%", "oscil%"
        );
    }
    for scenario in chosen {
        let spec = scenario.spec(lasts_s);
        if trace {
            let spec = ArenaSpec { seed: *seeds.start(), ..spec };
            print_trace(&spec.run(&mut *by_name(estimator, &Options::default())?));
            continue;
        }
        let truth = oracle(&spec);
        print_row(scenario.name, &truth, &play(estimator, &spec, &truth, seeds.clone()));
    }
    Ok(())
}

fn range(text: &str) -> Result<RangeInclusive<u64>, std::num::ParseIntError> {
    Ok(match text.split_once('-') {
        Some((from, to)) => from.parse()?..=to.parse()?,
        None => 1..=text.parse()?,
    })
}

fn play(estimator: &str, spec: &ArenaSpec, truth: &[Stretch], seeds: RangeInclusive<u64>) -> Vec<Score> {
    let one = |seed: u64| {
        let mut estimator = by_name(estimator, &Options::default()).expect("asked for before");
        score(&ArenaSpec { seed, ..spec.clone() }.run(&mut *estimator), truth)
    };
    let seeds: Vec<u64> = seeds.collect();
    std::thread::scope(|scope| {
        let part = |part: usize| seeds.iter().skip(part).step_by(THREADS).copied();
        let threads: Vec<_> =
            (0..THREADS).map(|n| scope.spawn(move || part(n).map(one).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a run")).collect()
    })
}

fn print_row(name: &str, truth: &[Stretch], scores: &[Score]) {
    let column = |of: &dyn Fn(&Score) -> Option<f64>, worst_is_low: bool| {
        let mut values: Vec<f64> = scores.iter().filter_map(of).collect();
        values.sort_by(f64::total_cmp);
        if worst_is_low {
            values.reverse();
        }
        let at =
            |share: f64| values.get(((share * values.len() as f64) as usize).min(values.len().max(1) - 1));
        match (at(0.5), at(0.9)) {
            (Some(median), Some(p90)) => format!("{}/{}", short(*median), short(*p90)),
            _ => "-".into(),
        }
    };
    let (Some(first), Some(last)) = (truth.first(), truth.last()) else { return };
    println!(
        "{:<15} {:>4} {:>7.1} | {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}",
        name,
        last.limit,
        last.capacity,
        if first == last { "".into() } else { column(&|s| s.stretches.first()?.settle_s, false) },
        column(&|s| s.stretches.last()?.settle_s, false),
        column(&|s| s.stretches.last()?.error_pct, false),
        column(&|s| Some(s.goodput_share), true),
        column(&|s| s.stretches.last()?.p99_ratio, false),
        column(&|s| s.mean_rt_ratio, false),
        column(&|s| s.stretches.last()?.overshoot_pct, false),
        column(&|s| s.stretches.last()?.oscillation_pct, false),
    );
}

fn short(value: f64) -> String {
    match value.abs() {
        v if v.is_infinite() => "inf".into(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn print_trace(trace: &Trace) {
    println!("t,capacity,limit,goodput,failed,mean_ms,p99_ms,queued,phase");
    for s in &trace.seconds {
        let limit = s.limit.map_or(String::new(), |limit| format!("{limit:.1}"));
        println!(
            "{},{:.1},{limit},{:.1},{},{:.1},{:.1},{},{}",
            s.t,
            s.capacity,
            s.goodput,
            s.failed,
            s.mean_response_s() * 1e3,
            s.p99_s * 1e3,
            s.queued,
            s.phase
        );
    }
}
