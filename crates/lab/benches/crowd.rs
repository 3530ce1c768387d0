//! What an arrival costs: `cargo bench -p tidegate-lab --bench crowd`, nanoseconds per person.
//!
//! The simulator draws a million arrivals per second of virtual time: they may not be what it spends its time
//! on.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tidegate_lab::crowd::Crowd;
use tidegate_lab::scenario::{Arrivals, Phase, Process, Shape};

const PEOPLE: usize = 5_000_000;
const ROUNDS: usize = 5;

/// Prints the median over the rounds.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn bench(name: &str, process: Process, rate: Shape, lasts: Duration, weights: &[f64]) {
    let phases = vec![Phase { rate, lasts, mix: Vec::new() }];
    let arrivals = Arrivals::Phases { process, phases, repeat: 1000 };
    let mut rounds: Vec<f64> = (0..ROUNDS as u64)
        .map(|seed| {
            let mut crowd = Crowd::new(seed, &arrivals, weights);
            let start = Instant::now();
            let people = crowd.by_ref().take(PEOPLE).map(black_box).count();
            start.elapsed().as_secs_f64() * 1e9 / people as f64
        })
        .collect();
    rounds.sort_unstable_by(f64::total_cmp);
    println!("{name:24} {:6.1} ns", rounds[ROUNDS / 2]);
}

fn main() {
    let (second, million) = (Duration::from_secs(1), 1e6);
    let day = Shape::Diurnal { low: 0.1 * million, high: million, period: Duration::from_secs(24) };
    for (process, name) in [(Process::Poisson, "poisson"), (Process::Constant, "constant")] {
        bench(&format!("{name} flat"), process, Shape::Flat(million), second, &[1.0]);
        bench(&format!("{name} flat, 4 kinds"), process, Shape::Flat(million), second, &[4.0, 3.0, 2.0, 1.0]);
        bench(&format!("{name} ramp"), process, Shape::Ramp(0.0, million), 10 * second, &[1.0]);
        bench(&format!("{name} diurnal"), process, day, 24 * second, &[1.0]);
    }
}
