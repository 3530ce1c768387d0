//! What the core's share of a request costs: `cargo bench -p tidegate-core`, nanoseconds per call.

use std::collections::VecDeque;
use std::hint::black_box;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tidegate_core::bucket::SharedBucket;
use tidegate_core::gate::{
    BucketConfig, ClassConfig, Decision, Gate, GateConfig, Leaving, Request, Scheduling,
};
use tidegate_core::room::{Arrival, Room, RoomConfig};
use tidegate_core::slots::Slots;
use tidegate_core::ticket::{Binding, BindingKinds, KeyRing, Presenter, Ticket};
use tidegate_core::units::{ClassId, Cost, Rate, Share, Timestamp};

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
    for (name, scheduler) in [
        ("priority", Scheduling::Priority),
        ("round-robin", Scheduling::RoundRobin),
        ("deficit", Scheduling::Deficit),
    ] {
        for queued in [100, 100_000] {
            gate(name, scheduler, queued);
        }
    }
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

/// One ends, the next goes, and another comes, while so many wait in 16 classes with limits, buckets and guarantees.
fn gate(name: &str, scheduler: Scheduling, queued: u64) {
    const CLASSES: u64 = 16;
    let class = |k: u64| ClassConfig {
        priority: (k % 3) as u8,
        weight: k as u32 + 1,
        guarantee: Share::from_fraction(1.0 / 32.0).expect("a share"),
        max_in_flight: Some(100),
        egress: BucketConfig { rate: Rate::MAX, burst: Cost::MAX },
        ..ClassConfig::default()
    };
    let mut gate = Gate::new(&GateConfig {
        max_in_flight: Some(8),
        max_queue: 200_000,
        max_queue_wait: Duration::from_secs(3_600),
        scheduler,
        classes: (0..CLASSES).map(class).collect(),
    });
    let mut now = Timestamp::from_secs(1_800_000_000);
    let request = |id: u64| Request { id, class: ClassId((id % CLASSES) as u8), cost: Cost::ONE };
    let mut at_origin = VecDeque::new();
    for id in 0..queued + 8 {
        if gate.arrive(request(id), now) == Decision::Forward {
            at_origin.push_back(request(id).class);
        }
    }
    let mut id = queued + 8;
    bench(&format!("gate {name}, {queued} queued"), || {
        now = now + Duration::from_micros(100);
        let ended = at_origin.pop_front().expect("somebody is at the origin");
        gate.finish(ended, Cost::ONE, now);
        match gate.next(now) {
            Some(Leaving::Forward(woken)) => {
                at_origin.push_back(woken.class);
                // As many of each class as before.
                let next = Request { id, class: woken.class, cost: Cost::ONE };
                black_box(gate.arrive(next, now));
                id += 1;
            }
            other => unreachable!("{other:?}"),
        }
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

/// A room whose newcomers wait for `wait` and a little more with every call.
fn room(wait: Duration) {
    let now = Timestamp::from_secs(1_800_000_000);
    let config = RoomConfig {
        max_wait: Duration::from_secs(86_400),
        grace: Duration::from_secs(60),
        tolerance: Duration::ZERO,
        burst: Duration::from_millis(200),
        overbook_max: 1.0,
        rise_to_newcomers: false,
        after_restart_accept: true,
        class_costs: vec![Cost::ONE],
    };
    let room = Room::new(config, Rate::per_second(CAPACITY).expect("a rate"), now);
    let mut nonce = 0;
    let mut arrive = || {
        nonce += 1;
        room.arrive(ClassId(0), nonce, None, now)
    };
    for _ in 0..wait.as_secs() * CAPACITY as u64 {
        arrive();
    }
    let Arrival::Wait(ticket, _) = arrive() else { panic!("a full room lets nobody in at once") };
    // The hand is moved by the tick alone: from the second one on the schedule runs on work.
    for tick in 1..=2 {
        room.tick(now + Duration::from_millis(100 * tick), Cost::ZERO);
    }
    let name = format!("at {} s of wait", wait.as_secs());
    bench(&format!("room look {name}"), || {
        black_box(room.look(black_box(&ticket), now));
    });
    // A newcomer takes a place: the wait grows by 2,100 s over all rounds.
    bench(&format!("room arrive {name}"), || {
        black_box(arrive());
    });
}
