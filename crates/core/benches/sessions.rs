//! Cost of a session's request: `cargo bench -p tidegate-core --bench sessions`, nanoseconds per call.
//!
//! With few sessions and with a million, where every call meets a line of memory that has left the caches; by
//! one worker and by two at once. `tick` is the control thread's, per entry it looks at.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tidegate_core::gate::Totals;
use tidegate_core::policies::TierId;
use tidegate_core::session::{Cap, SessionConfig, SessionInputs, SessionKey, Sessions};
use tidegate_core::units::{Cost, Rate, Timestamp};

use session_keys::key;

#[path = "../tests/suite/session_keys.rs"]
mod session_keys;

const CALLS: u64 = 10_000;
const ROUNDS: u64 = 31;
const START: Timestamp = Timestamp::from_secs(1_800_000_000);

/// The median over the rounds, in nanoseconds a call.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn time(mut round: impl FnMut(u64)) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|number| {
            let start = Instant::now();
            round(number);
            start.elapsed().as_nanos() as f64 / CALLS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

fn filled(open: u64) -> Sessions {
    let config = SessionConfig { max_entries: 2_000_000, ..SessionConfig::default() };
    let sessions = Sessions::new(&config, START);
    for n in 0..open {
        let request = sessions.admit(key(n), TierId(0), Cost::ONE, START).expect("a slot");
        sessions.finish(request, START);
    }
    sessions
}

/// A request from its arrival to its end.
fn request(sessions: &Sessions, key: SessionKey) {
    if let (_, Some(request)) = black_box(sessions.touch(key, Cost::ONE, START)) {
        sessions.finish(request, START);
    }
}

fn main() {
    for open in [1_000, 1_000_000] {
        let sessions = filled(open);
        let any = |n: u64| key(n.wrapping_mul(7_919) % open);
        let show = |name: &str, ns: f64| println!("{:44} {ns:8.1} ns", format!("{name}, {open} open"));
        let touch = |round: u64| {
            for n in 0..CALLS {
                request(&sessions, any(round * CALLS + n));
            }
        };
        show("touch and finish", time(touch));
        let both = time(|round| {
            std::thread::scope(|scope| {
                for worker in 0..2 {
                    scope.spawn(move || touch(round + worker * ROUNDS));
                }
            });
        });
        show("touch and finish by two at once, each", both);
        let unknown = |round: u64| {
            for n in 0..CALLS {
                request(&sessions, key(open + 1 + round * CALLS + n));
            }
        };
        show("touch of one not known", time(unknown));
        show(
            "admit and void",
            time(|_| {
                for n in 0..CALLS {
                    if let Ok(request) = black_box(sessions.admit(key(open + n), TierId(0), Cost::ONE, START))
                    {
                        sessions.void(request, START);
                    }
                }
            }),
        );
        let gate = Totals::default();
        let mut now = START;
        let idle = time(|_| {
            now = now + Duration::from_millis(100);
            sessions.tick(
                &SessionInputs { capacity: Rate::MAX, is_measured: true, gate: &gate, waiting: 0 },
                now,
            );
        });
        show("tick of 100 ms, all of it", idle * CALLS as f64);
    }
    refused();
}

/// All slots are taken, as a crowd of new sessions finds it.
fn refused() {
    let config = SessionConfig { cap: Cap::Fixed(1), ..SessionConfig::default() };
    let sessions = Sessions::new(&config, START);
    let _under_way = sessions.admit(key(0), TierId(0), Cost::ONE, START).expect("a slot");
    let ns = time(|round| {
        for n in 0..CALLS {
            black_box(sessions.admit(key(1 + round * CALLS + n), TierId(0), Cost::ONE, START)).ok();
        }
    });
    println!("{:44} {ns:8.1} ns", "admit where no slot is free");
    let ns = time(|_| {
        for _ in 0..CALLS {
            black_box(sessions.has_slot(black_box(TierId(0))));
        }
    });
    println!("{:44} {ns:8.1} ns", "has_slot");
}
