//! What the core's share of a request costs: `cargo bench -p tidegate-core`, nanoseconds per call.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tidegate_core::bucket::BucketConfig;
use tidegate_core::bucket::SharedBucket;
use tidegate_core::room::{Arrival, Room, RoomConfig};
use tidegate_core::slots::Slots;
use tidegate_core::ticket::{Binding, BindingKinds, KeyRing, Presenter, Ticket};
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const CALLS: u32 = 10_000;
const ROUNDS: usize = 21;
/// Visitors per second of schedule.
const CAPACITY: f64 = 100.0;

/// Prints the median over the rounds.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn bench(name: &str, mut call: impl FnMut()) {
    let mut rounds: Vec<u128> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..CALLS).for_each(|_| call());
            start.elapsed().as_nanos() / u128::from(CALLS)
        })
        .collect();
    rounds.sort_unstable();
    println!("{name:36} {:8} ns", rounds[ROUNDS / 2]);
}

fn main() {
    seals();
    slots();
    for wait in [1, 30 * 60, 12 * 3600] {
        room(Duration::from_secs(wait));
    }
    bucket();
}

fn bucket() {
    let config = BucketConfig { rate: Rate::per_second(35.0).expect("a rate"), burst: Cost::ONE };
    let shared = SharedBucket::new(&config).expect("a limit");
    let mut now = Timestamp::from_secs(1_800_000_000);
    bench("bucket take", || {
        now = now + Duration::from_millis(20);
        black_box(shared.take(Cost::ONE, now)).ok();
    });
}

fn seals() {
    let ring = KeyRing::generate(1, [7; 32]);
    let ip = IpAddr::from([192, 0, 2, 1]);
    let issued = Timestamp::from_secs(1_800_000_000);
    let wait = Duration::from_secs(90);
    let ticket = Ticket { class: ClassId(0), cost: Cost::ONE, issued, wait, arrived: issued, nonce: 42 };
    let binding = Binding::IpPrefix(ip);
    bench("ticket seal", || {
        black_box(ring.seal(black_box(&ticket), &binding));
    });
    let sealed = ring.seal(&ticket, &binding);
    let presenter = Presenter { ip, cookie: None };
    bench("ticket open", || {
        black_box(ring.open(black_box(sealed.as_bytes()), &presenter, BindingKinds::IP_PREFIX)).ok();
    });
}

fn slots() {
    let now = Timestamp::from_secs(1_800_000_000);
    let slots = Slots::new(90_000, Duration::from_secs(86_400), now);
    slots.set_limit(Cost::from_hundredths(10_000));
    bench("slots take", || {
        black_box(slots.take(Cost::ONE, now, now));
    });
}

/// A room whose newcomers wait for `wait`, and a little more with every call.
fn room(wait: Duration) {
    let now = Timestamp::from_secs(1_800_000_000);
    let config =
        RoomConfig { max_wait: Duration::from_secs(86_400), overbook_max: 1.0, ..RoomConfig::default() };
    let room = Room::new(config, Rate::per_second(CAPACITY).expect("a rate"), now);
    let mut nonce = 0;
    let mut arrive = || {
        nonce += 1;
        room.arrive(ClassId(0), nonce, None, now)
    };
    for _ in 0..wait.as_secs() * CAPACITY as u64 {
        arrive();
    }
    let Arrival::Wait(ticket, _) = arrive() else { panic!("no one enters a full room at once") };
    // Only the tick moves the virtual clock: from the second one on it runs on work.
    for tick in 1..=2 {
        room.tick(now + Duration::from_millis(100 * tick), Cost::ZERO);
    }
    let name = format!("at {} s of wait", wait.as_secs());
    bench(&format!("room status {name}"), || {
        black_box(room.status(black_box(&ticket), now));
    });
    // Every newcomer takes a slot: the wait grows by 2,100 s over all rounds.
    bench(&format!("room arrive {name}"), || {
        black_box(arrive());
    });
}
