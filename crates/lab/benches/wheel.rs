//! The timer queue against the standard heap: `cargo bench -p tidegate-lab --bench wheel`, nanoseconds per
//! pop and push.
//!
//! The hold model: a queue of constant size; whatever comes out goes in again some random time later.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_lab::wheel::Wheel;

const TURNS: u32 = 5_000_000;
const ROUNDS: usize = 5;

/// Prints the median over the rounds, without the first half of the turns of each: they bring the queue into
/// its steady state.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn bench(name: &str, entries: u32, span_us: u64, mut hold: impl FnMut(u32, &mut dyn FnMut() -> u64)) {
    let mut rng = StdRng::seed_from_u64(1);
    // Random numbers drawn ahead: what is timed is the queue.
    let gaps: Vec<u64> = (0..1 << 16).map(|_| rng.random_range(0..span_us)).collect();
    let mut i = 0usize;
    let mut gap = || {
        i += 1;
        gaps[i % gaps.len()]
    };
    hold(TURNS, &mut gap);
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            hold(TURNS, &mut gap);
            start.elapsed().as_secs_f64() * 1e9 / f64::from(TURNS)
        })
        .collect();
    rounds.sort_unstable_by(f64::total_cmp);
    println!("{name:8} {entries:9} entries over {:>7} ms {:8.1} ns", span_us / 1000, rounds[ROUNDS / 2]);
}

fn main() {
    for (entries, span_us) in
        [(1_000, 1_000_000), (100_000, 1_000_000), (1_000_000, 1_000_000), (1_000_000, 60_000_000)]
    {
        let mut rng = StdRng::seed_from_u64(2);
        let mut wheel = Wheel::new();
        let mut heap = BinaryHeap::new();
        let mut inserted = 0u64;
        for item in 0..entries {
            let at = rng.random_range(0..span_us);
            wheel.push(at, item);
            heap.push(Reverse((at, inserted, item)));
            inserted += 1;
        }
        bench("wheel", entries, span_us, |turns, gap| {
            for _ in 0..turns {
                let (at, item) = wheel.pop().expect("never empty");
                wheel.push(at + gap(), black_box(item));
            }
        });
        bench("heap", entries, span_us, |turns, gap| {
            for _ in 0..turns {
                let Reverse((at, _, item)) = heap.pop().expect("never empty");
                heap.push(Reverse((at + gap(), inserted, black_box(item))));
                inserted += 1;
            }
        });
    }
}
