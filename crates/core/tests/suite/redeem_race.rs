//! Real threads at once: a ticket is redeemed once, and no promise is lost.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_core::redeem::{Recorded, RedeemedNonces};
use tidegate_core::room::{Arrival, Redemption, Room, RoomConfig, TicketStatus};
use tidegate_core::slots::Slots;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

fn config() -> RoomConfig {
    RoomConfig { tolerance: Duration::from_secs(1), ..RoomConfig::default() }
}

#[test]
fn threads_at_once_redeem_each_ticket_once() {
    const RACERS: usize = 64;
    let room = Room::new(config(), Rate::per_second(1_000.0).unwrap(), START);
    let mut tickets = Vec::new();
    for nonce in 0..400 {
        if let Arrival::Wait(ticket, _) = room.arrive(ClassId(0), nonce, None, START) {
            tickets.push(ticket);
        }
    }
    assert!(tickets.len() >= 100);
    tickets.truncate(100);
    let later = START + Duration::from_secs(1);
    let entered: Vec<AtomicUsize> = tickets.iter().map(|_| AtomicUsize::new(0)).collect();
    let barrier = Barrier::new(RACERS);
    thread::scope(|scope| {
        for _ in 0..RACERS {
            scope.spawn(|| {
                for (ticket, entered) in tickets.iter().zip(&entered) {
                    barrier.wait();
                    match room.redeem(ticket, later) {
                        Redemption::Enter => {
                            entered.fetch_add(1, Ordering::Relaxed);
                        }
                        other => assert_eq!(other, Redemption::Replayed),
                    }
                }
            });
        }
    });
    for (ticket, entered) in tickets.iter().zip(&entered) {
        assert_eq!(entered.load(Ordering::Relaxed), 1, "{ticket:?}");
        assert_eq!(room.status(ticket, later), TicketStatus::Redeemed);
    }
}

const THREADS: u64 = 8;
const TAKES: u64 = 20_000;
const LIMIT: u64 = 33_333;

/// Whether the first thread gives back every other promise.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GiveBack {
    Never,
    Half,
}

/// All threads take at once. Returns the work that is promised.
fn hammer(give_back: GiveBack) -> (Slots, u64) {
    let gives_back = give_back == GiveBack::Half;
    let slots = Slots::new(4_096, Duration::from_secs(1_800), START);
    slots.set_limit(Cost::from_hundredths(LIMIT));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let slots = &slots;
            scope.spawn(move || {
                let cost = Cost::from_hundredths(100 + thread * 13);
                let mut last = Timestamp::default();
                for i in 0..TAKES {
                    let placed = slots.take(cost, START, START).unwrap();
                    assert!(gives_back || placed.due > last, "in the thread's own order");
                    last = placed.due;
                    if gives_back && thread == 0 && i % 2 == 0 {
                        slots.give_back(placed.second, cost);
                    }
                }
            });
        }
    });
    let taken: u64 = (0..THREADS).map(|t| TAKES * (100 + t * 13)).sum();
    (slots, taken - if gives_back { TAKES / 2 * 100 } else { 0 })
}

#[test]
fn threads_at_once_lose_no_promise() {
    let loads = |slots: &Slots| -> Vec<u64> {
        (0..2_000).map(|s| slots.promised(START.second() + s).cost.hundredths()).collect()
    };
    let (slots, taken) = hammer(GiveBack::Never);
    assert_eq!(slots.sum(START.second()).cost.hundredths(), taken);
    let full = (taken / LIMIT) as usize;
    assert!(loads(&slots)[..full].iter().all(|load| *load == LIMIT), "full up to the end of the schedule");

    let (slots, taken) = hammer(GiveBack::Half);
    assert_eq!(slots.sum(START.second()).cost.hundredths(), taken);
    let loads = loads(&slots);
    assert!(loads.iter().all(|load| *load <= LIMIT));
    let first_room = loads.iter().position(|load| *load < LIMIT).unwrap() as u64;
    let next = slots.take(Cost::ONE, START, START).unwrap();
    assert_eq!(next.second, START.second() + first_room, "no room given back is hidden");
}

#[test]
fn the_set_is_bounded_and_forgets() {
    let set = RedeemedNonces::with_max(640);
    let mut recorded = 0;
    for nonce in 0..10_000 {
        match set.record(nonce / 100, nonce) {
            Recorded::First => recorded += 1,
            Recorded::Full => {}
            Recorded::Duplicate => panic!("a nonce that was never recorded"),
        }
    }
    assert_eq!((recorded, set.len()), (640, 640));
    assert_eq!(set.record(0, 5), Recorded::Duplicate);
    set.forget_before(3);
    assert!(!set.contains(2, 299) && set.contains(3, 300));
    set.forget_before(u64::MAX);
    assert!(set.is_empty());
}
