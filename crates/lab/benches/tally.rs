//! What counting costs: `cargo bench -p tidegate-lab --bench tally`, nanoseconds per call.
//!
//! The simulator makes a few of these calls per event and is to play two million events a second: 500 ns
//! each.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tidegate_lab::tally::Tally;
use tidegate_lab::visitor_events::{End, Noted, RequestKind};

/// Ten thousand visitors a second for a hundred seconds.
const VISITS: u32 = 1_000_000;
const APART: Duration = Duration::from_micros(100);
const ROUNDS: usize = 7;

/// Prints the median over the rounds.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn bench(name: &str, mut prepare: impl FnMut(&mut Tally), mut call: impl FnMut(&mut Tally, u32, Duration)) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let mut tally = Tally::default();
            prepare(&mut tally);
            let start = Instant::now();
            for k in 0..VISITS {
                call(&mut tally, black_box(k), black_box(k * APART));
            }
            let nanos = start.elapsed().as_secs_f64() * 1e9;
            black_box(&tally);
            nanos / f64::from(VISITS)
        })
        .collect();
    rounds.sort_unstable_by(f64::total_cmp);
    println!("{name:24} {:6.1} ns", rounds[ROUNDS / 2]);
}

/// Response times and waits spread over a few decades, as real ones are.
fn spread(k: u32) -> Duration {
    Duration::from_micros(100 + u64::from(k.wrapping_mul(2_654_435_761) >> (8 + k % 8)))
}

fn served(k: u32, now: Duration, waited: Option<Duration>) -> Noted {
    let entered = now.saturating_sub(spread(k));
    Noted::Served { step: 0, entered, response: now - entered, waited, waited_since: entered }
}

fn main() {
    let send_all =
        |tally: &mut Tally| (0..VISITS).for_each(|k| tally.sent(RequestKind::Page, k * APART, k * APART));
    let arrive_all = |tally: &mut Tally| (0..VISITS).for_each(|k| tally.arrived(k * APART));
    bench("arrived", |_| {}, |tally, _, now| tally.arrived(now));
    bench("sent", |_| {}, |tally, _, now| tally.sent(RequestKind::Page, now, now));
    bench("ended", send_all, |tally, _, now| tally.ended(now));
    bench("gave_up", send_all, |tally, k, now| tally.gave_up(now.saturating_sub(spread(k)), now));
    bench("noted, nothing", |_| {}, |tally, _, now| tally.noted(&Noted::Nothing, false, false, now));
    bench("noted, served", |_| {}, |tally, k, now| tally.noted(&served(k, now, None), false, false, now));
    bench(
        "noted, told and served",
        |_| {},
        |tally, k, now| {
            let told = Noted::ToldToWait { wait: Some(spread(k)), at: now };
            tally.noted(&told, false, true, now);
            tally.noted(&served(k, now, Some(spread(k))), true, false, now);
        },
    );
    bench("left", arrive_all, |tally, _, now| tally.left(End::Done, false, now));
    bench(
        "door and origin_served",
        |_| {},
        |tally, k, now| {
            tally.door(now);
            tally.origin_served(now + spread(k), spread(k));
        },
    );
    bench(
        "a whole visit, waiting",
        |_| {},
        |tally, k, now| {
            let (wait, told) = (spread(k), Noted::ToldToWait { wait: Some(spread(k)), at: now });
            tally.arrived(now);
            tally.sent(RequestKind::Page, now, now);
            tally.ended(now);
            tally.noted(&told, false, true, now);
            tally.sent(RequestKind::Page, now + wait, now + wait);
            tally.door(now + wait);
            tally.origin_served(now + wait, spread(k));
            tally.ended(now + wait);
            tally.noted(&served(k, now + wait, Some(wait)), true, false, now + wait);
            tally.left(End::Done, false, now + wait);
        },
    );
}
