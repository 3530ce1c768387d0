//! Tests that look inside the room.

use std::time::Duration;

use super::{Arrival, Feedback, Room, RoomConfig, TicketStatus};
use crate::gate::Totals;
use crate::session::SessionPace;
use crate::units::{ClassId, Cost, Rate, Timestamp};

const TICK: Duration = Duration::from_millis(100);

fn start() -> Timestamp {
    Timestamp::from_secs(1_800_000_000)
}

fn room(per_s: f64, class_cost: Cost) -> Room {
    let config = RoomConfig { class_costs: vec![class_cost.into()], ..RoomConfig::default() };
    Room::new(config, Rate::per_second(per_s).unwrap_or_default(), start())
}

#[test]
fn the_mean_cost_of_the_cheapest_class_is_not_zero() {
    for hundredths in [1, 5, 9, 10, 100, 1_000_000] {
        let cost = Cost::from_hundredths(hundredths);
        let room = room(100.0, cost);
        for tick in 1..20 {
            room.charge(cost);
            room.tick(start() + TICK * tick, Cost::ZERO);
        }
        assert_eq!(room.tickets.load.mean_cost(), cost);
    }
}

#[test]
fn a_capacity_below_a_hundredth_per_second_is_no_closed_room() {
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
fn the_virtual_clock_does_not_go_back_when_it_stops_following_the_wall_clock() {
    let room = room(10.0, Cost::ONE);
    room.tick(start() + TICK, Cost::ZERO);
    // The origin is far behind, and a crowd waits from now on.
    room.charge(Cost::from_hundredths(100_000));
    for nonce in 0..50 {
        room.arrive(ClassId(0), nonce, None, start() + TICK);
    }
    let now = start() + 2 * TICK;
    let clock = &room.tickets.clock;
    let before = clock.at(now);
    room.tick(now, Cost::ZERO);
    assert!(!clock.value().follows_clock, "{:?}", room.state(now));
    assert!(clock.at(now) >= before, "{:?} after {before:?}", clock.at(now));
}

#[test]
fn after_a_restart_newcomers_are_due_after_all_promises_whatever_a_second_holds_then() {
    let before = room(10.0, Cost::ONE);
    let due = |room: &Room, nonce| match room.arrive(ClassId(0), nonce, None, start()) {
        Arrival::Wait(ticket, _) => Some(ticket.due()),
        _ => None,
    };
    let last = (0..36).filter_map(|nonce| due(&before, nonce)).max();
    let after = room(100.0, Cost::ONE);
    after.restore(&before.save(start()), start()).expect("what it saved");
    assert!(last.is_some() && due(&after, 36) > last, "{:?} after {last:?}", due(&after, 37));
}

#[test]
fn who_waits_for_the_origin_is_not_forgotten_when_session_slots_are_counted() {
    let before = room(10.0, Cost::ONE);
    let tickets: Vec<_> = (0..60)
        .filter_map(|nonce| match before.arrive(ClassId(0), nonce, None, start()) {
            Arrival::Wait(ticket, _) => Some(ticket),
            _ => None,
        })
        .collect();
    // From now on nothing but session slots is a bound, and one is free.
    let after = room(Rate::MAX.get(), Cost::ONE);
    after.restore(&before.save(start()), start()).expect("what it saved");
    after.pace_sessions(Some(SessionPace { free: Some(1), per_s: 0.0, next_s: 0.0 }));
    let now = start() + TICK;
    after.tick(now, Cost::ZERO);
    let due = tickets.iter().filter(|ticket| after.status(ticket, now) == TicketStatus::Ready);
    let due = due.count();
    assert!(due <= 10, "{due} of {} are due: more than a second of the schedule", tickets.len());
}

#[test]
fn while_tokenchecks_origin_is_gone_nobody_is_sent_away_for_long() {
    let room = room(10.0, Cost::ONE);
    room.sends_on();
    let mut now = start();
    let mut told = Duration::ZERO;
    for nonce in 0..100 {
        now = now + TICK;
        let report = Feedback {
            at: now,
            over: TICK,
            gate: Some(Totals::default()),
            is_origin_gone: true,
            ..Feedback::default()
        };
        room.feedback(&report);
        room.tick_with(&Totals::default(), true, now);
        if let Arrival::Wait(_, wait) = room.arrive(ClassId(0), nonce, None, now) {
            told = told.max(wait.wait);
        }
    }
    assert!(told > Duration::from_secs(30) && told < Duration::from_secs(60), "{told:?}");
}

/// A report without bounds, as a faulty tokencheck may send it.
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
        ..Feedback::default()
    }
}

#[test]
fn absurd_reports_are_believed_for_an_hour_at_most() {
    let room = room(100.0, Cost::ONE);
    let mut now = start();
    for round in 0..50 {
        now = now + TICK;
        for from in 0..3 {
            // Also of one that was started anew, and counts from nothing.
            let mut report = absurd(from, now);
            if round % 2 == 1 {
                report.gate = Some(Totals::default());
            }
            room.feedback(&report);
        }
        room.tick_with(&Totals::default(), true, now);
        let backlog_s = room.tickets.load.backlog.seconds(now);
        assert!(backlog_s <= 3_600.0, "{backlog_s} s");
    }
    // Once they are sane again the virtual clock goes on after that hour.
    for _ in 0..37_000 {
        now = now + TICK;
        let sane = Feedback { at: now, over: TICK, gate: Some(Totals::default()), ..Feedback::default() };
        room.feedback(&sane);
        room.tick_with(&Totals::default(), true, now);
    }
    assert!(matches!(room.arrive(ClassId(0), 1, None, now), Arrival::Enter), "{:?}", room.state(now));
}
