//! What only the inside of the room shows.

use std::time::Duration;

use super::{Arrival, Feedback, Room, RoomConfig};
use crate::gate::Totals;
use crate::units::{ClassId, Cost, Rate, Timestamp};

const TICK: Duration = Duration::from_millis(100);

fn start() -> Timestamp {
    Timestamp::from_secs(1_800_000_000)
}

fn room(per_s: f64, class_cost: Cost) -> Room {
    let config = RoomConfig { class_costs: vec![class_cost], ..RoomConfig::default() };
    Room::new(config, Rate::per_second(per_s).unwrap_or_default(), start())
}

#[test]
fn the_average_visitor_of_the_cheapest_class_is_not_nothing() {
    for hundredths in [1, 5, 9, 10, 100, 1_000_000] {
        let cost = Cost::from_hundredths(hundredths);
        let room = room(100.0, cost);
        for tick in 1..20 {
            room.charge(cost);
            room.tick(start() + TICK * tick, Cost::ZERO);
        }
        assert_eq!(room.door.grain(), cost);
    }
}

#[test]
fn less_than_a_hundredth_per_second_is_no_closed_room() {
    let room = room(0.001, Cost::ONE);
    let waits = (0..5).filter_map(|nonce| match room.arrive(ClassId(0), nonce, None, start()) {
        Arrival::Enter => None,
        Arrival::Wait(_, wait) => Some(wait.wait),
        Arrival::Full { .. } => panic!("full"),
    });
    let waits: Vec<_> = waits.collect();
    assert!(waits.len() >= 4 && waits.is_sorted(), "{waits:?}");
}

#[test]
fn the_hand_does_not_go_back_when_it_stops_following_the_clock() {
    let room = room(10.0, Cost::ONE);
    room.tick(start() + TICK, Cost::ZERO);
    // The origin is far behind, and a crowd waits from now on.
    room.charge(Cost::from_hundredths(100_000));
    for nonce in 0..50 {
        room.arrive(ClassId(0), nonce, None, start() + TICK);
    }
    let now = start() + 2 * TICK;
    let before = room.door.hand.at(now);
    room.tick(now, Cost::ZERO);
    assert!(!room.door.hand.value().follows_clock, "{:?}", room.state(now));
    assert!(room.door.hand.at(now) >= before, "{:?} after {before:?}", room.door.hand.at(now));
}

/// What a tokencheck that has gone mad may say.
fn absurd(from: u64, now: Timestamp) -> Feedback {
    let most = Cost::from_hundredths(u64::MAX);
    let gate = Totals {
        queued: usize::MAX,
        queued_cost: most,
        in_flight: u32::MAX,
        in_flight_cost: most,
        forwarded_cost: most,
        limit: Some(u32::MAX),
        max_queue: usize::MAX,
        max_queue_wait: Duration::MAX,
        ..Totals::default()
    };
    Feedback {
        from,
        at: Timestamp::from_micros(u64::MAX),
        admitted: most,
        over: Duration::from_millis(500),
        queued: most,
        shown: (0..4).map(|second| (now.second() + second / 2, most)).collect(),
        gate: Some(gate),
        is_origin_gone: false,
        samples: Vec::new(),
        sessions: None,
    }
}

#[test]
fn absurd_reports_are_believed_for_an_hour_at_most() {
    let room = room(100.0, Cost::ONE);
    let mut now = start();
    for round in 0..50 {
        now = now + TICK;
        for from in 0..3 {
            // Also one that has been started anew, and counts from nothing.
            let mut report = absurd(from, now);
            if round % 2 == 1 {
                report.gate = Some(Totals::default());
            }
            room.feedback(&report);
        }
        room.tick_with(&Totals::default(), true, now);
        assert!(room.door.backlog.seconds(now) <= 3_600.0, "{} s", room.door.backlog.seconds(now));
    }
    // Once they are sane again the hand goes on after that hour.
    for _ in 0..37_000 {
        now = now + TICK;
        let sane = Feedback {
            from: 0,
            at: now,
            admitted: Cost::ZERO,
            over: TICK,
            queued: Cost::ZERO,
            shown: Vec::new(),
            gate: Some(Totals::default()),
            is_origin_gone: false,
            samples: Vec::new(),
            sessions: None,
        };
        room.feedback(&sane);
        room.tick_with(&Totals::default(), true, now);
    }
    assert!(matches!(room.arrive(ClassId(0), 1, None, now), Arrival::Enter), "{:?}", room.state(now));
}
