//! Admission: decisions on requests that meet the room. Each test is a rule that a random crowd once broke.

use std::time::Duration;

use tidegate_core::admission::{Admission, AdmissionRequest, Decision, Position, Presented};
use tidegate_core::room::{Arrival, Redemption, Room, RoomConfig};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

fn room(per_second: f64) -> Room {
    let config = RoomConfig { max_wait: Duration::from_secs(600), ..RoomConfig::default() };
    Room::new(config, Rate::per_second(per_second).unwrap_or_default(), START)
}

fn at(ms: u64) -> Timestamp {
    START + Duration::from_millis(ms)
}

fn ask(admission: &Admission, shown: Presented, sends_on: bool, nonce: u64, now: Timestamp) -> Decision {
    let asking = AdmissionRequest { class: ClassId(0), cost: Cost::ONE, shown, sends_on };
    admission.ask(&asking, &mut || nonce, &|_| {}, now)
}

fn sent_on(decision: Decision) -> Ticket {
    match decision {
        Decision::SendOn { ticket, .. } => ticket,
        other => panic!("expected to be sent on, got {other:?}"),
    }
}

#[test]
fn tokengen_gives_a_new_position_for_a_ticket_that_was_sent_on() {
    let admission = Admission::Room(Box::new(room(10.0)));
    let sent = sent_on(ask(&admission, Presented::Nothing, true, 1, at(0)));
    assert!(sent.wait.is_zero());
    for nonce in 100..200 {
        ask(&admission, Presented::Nothing, true, nonce, at(10));
    }
    // The URL of tokencheck, requested at tokengen instead: a new position at the end.
    match ask(&admission, Presented::Ticket(sent), true, 2, at(1_500)) {
        Decision::Wait { ticket, place: Position::Replaced, .. } => {
            assert!(ticket.nonce == 2 && ticket.due() > at(8_000), "{ticket:?}");
        }
        other => panic!("expected a new position, got {other:?}"),
    }
}

#[test]
fn a_ticket_due_by_the_wall_clock_waits_for_the_virtual_clock() {
    let room = room(100.0);
    for nonce in 0..300 {
        room.arrive(ClassId(0), nonce, None, at(0));
    }
    // The origin is behind: the virtual clock stands still while the wall clock goes on.
    for ms in (100..=5_100).step_by(100) {
        room.tick(at(ms), Cost::from_hundredths(1_000_000));
    }
    let Arrival::Wait(ticket, _) = room.arrive(ClassId(0), 1_000, None, at(5_150)) else {
        panic!("a newcomer must not overtake those who wait");
    };
    assert!(
        !ticket.wait.is_zero(),
        "a ticket for now would be admitted whatever the virtual clock: {ticket:?}"
    );
    room.tick(at(5_200), Cost::from_hundredths(1_000_000));
    assert!(matches!(room.redeem(&ticket, at(5_250)), Redemption::Wait(_)));
}

#[test]
fn tickets_without_a_wait_do_not_flood_an_origin_that_is_behind() {
    let room = room(10.0);
    let now = at(5_000);
    let for_now = |nonce| Ticket {
        class: ClassId(0),
        cost: Cost::ONE,
        issued: at(1_000),
        wait: Duration::ZERO,
        arrived: at(1_000),
        nonce,
    };
    room.tick(now, Cost::ZERO);
    // A hundred visitors who were sent on during an outage come at once: 10 s of work.
    let entered = (0..100).filter(|nonce| room.redeem(&for_now(*nonce), now) == Redemption::Enter).count();
    assert!((1..=30).contains(&entered), "{entered}");
}
