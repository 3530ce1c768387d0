//! Requests that meet the room: rules that random crowds once broke, one by one.

use std::time::Duration;

use tidegate_core::admission::{Admission, AdmissionRequest, Decision, EnteredBy, Position, Presented};
use tidegate_core::room::{Arrival, Checker, RedeemedEarlier, Redemption, Room, RoomConfig, TicketStatus};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

fn room(per_second: f64) -> Room {
    let config = RoomConfig { max_wait: Duration::from_secs(600), ..RoomConfig::default() };
    Room::new(config, Rate::per_second(per_second).unwrap_or_default(), START)
}

fn tokencheck(per_second: f64, started: Timestamp) -> Admission {
    let rate = Rate::per_second(per_second).unwrap_or_default();
    let checker = Checker::new(&RoomConfig::default(), rate, started);
    Admission::Checker { checker, capacity: rate.into() }
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
fn tokengen_lets_nobody_in_by_the_ticket_that_it_made_for_the_way_to_tokencheck() {
    let admission = Admission::Room(Box::new(room(10.0)));
    let in_transit = sent_on(ask(&admission, Presented::Nothing, true, 1, at(0)));
    assert!(in_transit.wait.is_zero());
    for nonce in 100..200 {
        ask(&admission, Presented::Nothing, true, nonce, at(10));
    }
    // The URL it was sent to, requested from tokengen instead: a new position, behind everybody.
    match ask(&admission, Presented::Ticket(in_transit), true, 2, at(1_500)) {
        Decision::Wait { ticket, position: Position::Replaced, .. } => {
            assert!(ticket.nonce == 2 && ticket.due() > at(8_000), "{ticket:?}");
        }
        other => panic!("expected a new position, got {other:?}"),
    }
}

/// A visitor who waited at tokengen: its ticket, the one for the way to tokencheck, and when that was made.
fn waited() -> (Ticket, Ticket, Timestamp) {
    let generator = Admission::Room(Box::new(room(10.0)));
    for nonce in 0..30 {
        ask(&generator, Presented::Nothing, true, nonce, at(0));
    }
    let Decision::Wait { ticket, .. } = ask(&generator, Presented::Nothing, true, 1_000, at(0)) else {
        panic!("it waits");
    };
    let turn = (0..).map(|n| at(100 * n)).find(|now| {
        generator.room().expect("a room").tick(*now, Cost::ZERO);
        generator.look(&ticket, *now) == TicketStatus::Ready
    });
    let turn = turn.expect("a turn");
    (ticket, sent_on(ask(&generator, Presented::Ticket(ticket), true, 2, turn)), turn)
}

#[test]
fn tokencheck_lets_a_visitor_in_by_its_own_ticket_or_by_the_one_for_the_way() {
    let (own, way, turn) = waited();
    let due = own.due().max(turn);
    for pair in [[own, way], [way, own]] {
        let check = tokencheck(10.0, due);
        let decisions = pair.map(|ticket| ask(&check, Presented::Ticket(ticket), false, 3, due));
        assert!(
            matches!(decisions, [Decision::Enter { .. }, Decision::SendBack]),
            "once for both: {decisions:?}"
        );
    }
    // The clock of this one is behind: what tokengen has called is for now all the same.
    let behind = turn.saturating_sub(Duration::from_secs(60));
    let check = tokencheck(10.0, behind);
    assert!(matches!(ask(&check, Presented::Ticket(own), false, 3, behind), Decision::Wait { .. }));
    assert!(matches!(ask(&check, Presented::Ticket(way), false, 3, behind), Decision::Enter { .. }));
}

#[test]
fn a_ticket_for_another_address_goes_back_to_be_bound_anew_and_keeps_its_turn() {
    let (_, way, turn) = waited();
    let check = tokencheck(10.0, turn);
    assert_eq!(ask(&check, Presented::OtherAddress, false, 3, turn), Decision::SendToRebind);
    assert_eq!(ask(&check, Presented::Forged, false, 3, turn), Decision::Forbidden);
    let generator = Admission::Room(Box::new(room(10.0)));
    let same = Decision::SendOn { ticket: way, redeemed: None };
    assert_eq!(ask(&generator, Presented::Rebind(way), true, 4, turn), same);
}

#[test]
fn a_ticket_that_is_due_by_the_clock_waits_until_the_schedule_comes_to_it() {
    let room = room(100.0);
    for nonce in 0..300 {
        room.arrive(ClassId(0), nonce, None, at(0));
    }
    // The origin is behind: the schedule stands still while the clock goes on.
    for ms in (100..=5_100).step_by(100) {
        room.tick(at(ms), Cost::from_hundredths(1_000_000));
    }
    let Arrival::Wait(ticket, _) = room.arrive(ClassId(0), 1_000, None, at(5_150)) else {
        panic!("nobody overtakes those who wait");
    };
    assert!(
        !ticket.wait.is_zero(),
        "a ticket for now would be let in whatever the schedule says: {ticket:?}"
    );
    room.tick(at(5_200), Cost::from_hundredths(1_000_000));
    assert!(matches!(room.redeem(&ticket, at(5_250)), Redemption::Wait(_)));
}

#[test]
fn tickets_for_now_do_not_flood_an_origin_that_is_behind() {
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
    // A hundred visitors sent on during an outage come at once: 10 s of work.
    let entered = (0..100).filter(|nonce| room.redeem(&for_now(*nonce), now) == Redemption::Enter).count();
    assert!((1..=30).contains(&entered), "{entered}");
}

#[test]
fn a_restart_knows_the_used_tickets_and_a_visitor_in_doubt_keeps_the_turn() {
    let waiting = |admission: &Admission| -> Vec<Ticket> {
        let all = (1..40).map(|nonce| ask(admission, Presented::Nothing, false, nonce, at(0)));
        let ticket =
            |decision| if let Decision::Wait { ticket, .. } = decision { Some(ticket) } else { None };
        all.filter_map(ticket).collect()
    };
    let before = Admission::Room(Box::new(room(10.0)));
    let tickets = waiting(&before);
    let (used, in_doubt, late) = (tickets[0], tickets[1], *tickets.last().expect("some wait"));
    let redeemed = [used, in_doubt].map(|ticket| (ticket.due().second(), ticket.nonce)).to_vec();
    let enters = |admission: &Admission, ticket, ms| {
        let decision = ask(admission, Presented::Ticket(ticket), false, 100, at(ms));
        matches!(decision, Decision::Enter { by: EnteredBy::Ticket(_) })
    };

    let config = RoomConfig { after_restart_accept: false, ..RoomConfig::default() };
    let after = Admission::Room(Box::new(Room::new(config, Rate::per_second(10.0).unwrap(), at(60_000))));
    assert!(!enters(&after, tickets[2], 60_000), "nobody knows whether it was used");
    let in_doubt_nonces = [in_doubt.nonce].into();
    after.restore_redeemed(RedeemedEarlier { redeemed, in_doubt: in_doubt_nonces });
    assert!(enters(&after, tickets[2], 60_000), "it was not used");
    let used_again = ask(&after, Presented::Ticket(used), false, 101, at(60_000));
    assert!(matches!(used_again, Decision::Wait { position: Position::Replaced, .. }), "{used_again:?}");

    // Of the one in doubt there is always the same successor, for the same turn. It admits once.
    let successor = |ms| match ask(&after, Presented::Ticket(in_doubt), false, 102, at(ms)) {
        Decision::Wait { ticket, position: Position::New, .. } => ticket,
        other => panic!("a ticket for the same turn, not {other:?}"),
    };
    let ticket = successor(60_000);
    assert_eq!((ticket, ticket.due()), (successor(60_010), in_doubt.due()));
    assert_ne!(ticket.nonce, in_doubt.nonce);
    assert!(enters(&after, ticket, 60_020));
    assert!(!enters(&after, ticket, 60_030));
    let again = ask(&after, Presented::Ticket(in_doubt), false, 103, at(60_040));
    assert!(matches!(again, Decision::Wait { position: Position::Replaced, .. }), "{again:?}");
    assert!(enters(&after, late, 60_050), "the others are good");
    let mut known = after.redeemed();
    known.sort_unstable();
    assert!(known.contains(&(used.due().second(), used.nonce)), "for the next restart: {known:?}");
}
