//! The room's rules, one by one, and random histories of all operations.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::gate::Totals;
use tidegate_core::room::{Arrival, Checker, Redemption, RestoreError, Room, RoomConfig, TicketStatus};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

fn config() -> RoomConfig {
    RoomConfig {
        max_wait: Duration::from_secs(600),
        tolerance: Duration::from_secs(1),
        class_costs: vec![Cost::ONE.into(), Cost::from_hundredths(300).into()],
        ..RoomConfig::default()
    }
}

fn rate(units: f64) -> Rate {
    Rate::per_second(units).unwrap()
}

fn after(ms: u64) -> Timestamp {
    START + Duration::from_millis(ms)
}

/// `n` newcomers at once: how many entered, and the tickets of the others.
fn crowd(room: &Room, n: u64, first_nonce: u64, now: Timestamp) -> (u64, Vec<Ticket>) {
    let (mut entered, mut tickets) = (0, Vec::new());
    for nonce in first_nonce..first_nonce + n {
        match room.arrive(ClassId(0), nonce, None, now) {
            Arrival::Enter => entered += 1,
            Arrival::Wait(ticket, _) => tickets.push(ticket),
            Arrival::Full { .. } => {}
        }
    }
    (entered, tickets)
}

/// Ticks every 100 ms up to `to_ms`, `visit` after each.
fn run(room: &Room, from_ms: u64, to_ms: u64, mut visit: impl FnMut(Timestamp)) {
    for ms in (from_ms + 100..=to_ms).step_by(100) {
        room.tick(after(ms), Cost::ZERO);
        visit(after(ms));
    }
}

#[test]
fn a_burst_of_a_second_is_the_papers_rule() {
    let config = RoomConfig { burst: Duration::from_secs(1), ..config() };
    let room = Room::new(config, rate(100.0), START);
    for (ms, expected) in [(0, 100), (900, 0), (1_000, 0), (5_950, 100)] {
        room.tick(after(ms), Cost::ZERO);
        let (entered, tickets) = crowd(&room, 100, ms * 1_000, after(ms));
        let seconds: Vec<u64> = tickets.iter().map(|t| t.due().second() - START.second()).collect();
        assert_eq!(entered, expected, "at {ms} ms");
        match ms {
            900 => assert!(seconds.iter().all(|s| *s == 1), "the next second"),
            1_000 => assert!(seconds.iter().all(|s| *s == 2), "this second is taken"),
            _ => {}
        }
    }
}

#[test]
fn a_short_burst_spreads_a_second() {
    let room = Room::new(config(), rate(1_000.0), START);
    let (entered, tickets) = crowd(&room, 3_000, 0, after(500));
    assert!((395..=405).contains(&entered), "200 ms back and 200 ms ahead: {entered}");
    let first = tickets[0];
    assert!(first.due().since(after(500)) >= Duration::from_millis(199), "{first:?}");
    let last = tickets[tickets.len() - 1];
    assert!(last.due().since(after(500)) <= Duration::from_millis(2_801), "{last:?}");
}

#[test]
fn no_newcomer_waits_below_capacity() {
    let room = Room::new(config(), rate(100.0), START);
    for i in 0..5_000u64 {
        let now = after(i * 12);
        if i % 8 == 0 {
            room.tick(now, Cost::ZERO);
        }
        assert_eq!(room.arrive(ClassId(0), i, None, now), Arrival::Enter, "visitor {i}");
    }
    assert!(!room.busy(after(60_000)));
}

/// When the `n`-th of 1,000 visitors is told to come again who find the room full. Their random bits are
/// spread evenly.
fn told(room: &Room, n: u64, now: Timestamp) -> Option<Duration> {
    match room.arrive(ClassId(0), n * (u64::MAX / 1_000), None, now) {
        Arrival::Full { retry_after } => Some(retry_after),
        Arrival::Enter | Arrival::Wait(..) => None,
    }
}

#[test]
fn a_full_room_is_asked_again_when_it_has_a_position_and_not_by_all_at_once() {
    let room = Room::new(config(), rate(10.0), START);
    crowd(&room, 5_000, 0, START);
    // What took 500 s takes 625 s now: newcomers go behind it, and the longest wait is 600 s.
    room.set_capacity(rate(8.0), START);
    let first = told(&room, 0, START).expect("full");
    assert!((first.as_secs_f64() - 26.0).abs() <= 1.0, "{first:?}");
    let mut per_ten_s = [0; 6];
    for n in 0..1_000 {
        let after = told(&room, n, START).expect("full") - first;
        per_ten_s[after.as_secs() as usize / 10] += 1;
    }
    assert!(per_ten_s.iter().all(|n| (160..=170).contains(n)), "{per_ten_s:?}");
    let early = START + (first - Duration::from_secs(1));
    assert_eq!(told(&room, 0, early), Some(Duration::from_secs(1)), "a second too early");
    assert_eq!(told(&room, 0, START + first), None, "in time");
}

#[test]
fn a_room_that_opens_late_or_at_an_unknown_time_is_asked_within_minutes() {
    let room = Room::new(config(), rate(100.0), START);
    crowd(&room, 50_000, 0, START);
    room.set_capacity(rate(1.0), START);
    assert_eq!(told(&room, 0, START), Some(Duration::from_secs(600)), "it opens in 14 hours, if it is so");
    room.set_capacity(Rate::ZERO, START);
    let closed = [0, 500, 1_000].map(|n| told(&room, n, START).expect("closed").as_secs_f64().round());
    assert_eq!(closed, [1.0, 31.0, 61.0]);
}

#[test]
fn closed_full_and_unlimited() {
    let room = Room::new(config(), Rate::ZERO, START);
    assert!(matches!(room.arrive(ClassId(0), 0, None, START), Arrival::Full { .. }));
    room.set_capacity(rate(1.0), START);
    let (entered, tickets) = crowd(&room, 1_000, 0, START);
    assert_eq!(
        entered as usize + tickets.len(),
        601,
        "one in every second of the longest wait, and in this one"
    );
    assert!(matches!(room.arrive(ClassId(0), 5_000, None, START), Arrival::Full { .. }));
    room.set_capacity(Rate::ZERO, START);
    assert!(
        matches!(room.status(&tickets[9], after(100_000)), TicketStatus::Wait(_)),
        "tickets remain valid while closed"
    );
    room.set_capacity(Rate::MAX, after(100));
    assert_eq!(room.arrive(ClassId(0), 6_000, None, after(100)), Arrival::Enter);
    assert_eq!(room.redeem(&tickets[500], after(100)), Redemption::Enter);
    assert_eq!(room.redeem(&tickets[500], after(100)), Redemption::Replayed);
}

#[test]
fn a_poll_consumes_nothing_and_an_early_ticket_remains_valid() {
    let room = Room::new(config(), rate(10.0), START);
    let (_, tickets) = crowd(&room, 200, 0, START);
    let ticket = tickets[100];
    let TicketStatus::Wait(early) = room.status(&ticket, START) else { panic!("it is early") };
    let expected = ticket.due().since(START).as_secs_f64();
    assert!((early.wait.as_secs_f64() - expected).abs() < 1.1, "{early:?} against {expected}");
    let position = ticket.due().since(START).as_millis() as u64 / 100;
    assert!(early.position.abs_diff(position) <= 1, "{early:?} {position}");
    assert!(matches!(room.redeem(&ticket, START), Redemption::Wait(_)));
    let mut entered_at = None;
    run(&room, 0, 30_000, |now| {
        let ready = room.status(&ticket, now);
        if entered_at.is_none() && ready == TicketStatus::Ready {
            assert_eq!(room.status(&ticket, now), TicketStatus::Ready);
            assert_eq!(room.redeem(&ticket, now), Redemption::Enter);
            assert_eq!(room.status(&ticket, now), TicketStatus::Redeemed);
            entered_at = Some(now);
        }
    });
    assert!(entered_at.unwrap() <= ticket.due() + Duration::from_millis(200));
    assert_eq!(room.redeem(&ticket, after(30_000)), Redemption::Replayed);
}

#[test]
fn late_within_grace_enters_before_newcomers_and_beyond_it_expires() {
    let room = Room::new(config(), rate(10.0), START);
    let (_, mut tickets) = crowd(&room, 900, 0, START);
    let late = tickets.remove(0);
    let too_late = tickets.remove(0);
    let mut next = tickets.into_iter().peekable();
    let mut come = |now: Timestamp| {
        while next.peek().is_some_and(|t| t.due() <= now) {
            room.redeem(&next.next().unwrap(), now);
        }
    };
    run(&room, 0, 40_000, &mut come);
    let Arrival::Wait(newcomer, wait) = room.arrive(ClassId(0), 10_000, None, after(40_000)) else {
        panic!()
    };
    assert!(wait.wait >= Duration::from_secs(25), "{wait:?}");
    let mut entered = None;
    run(&room, 40_000, 50_000, |now| {
        come(now);
        if entered.is_none() {
            match room.redeem(&late, now) {
                Redemption::Enter => entered = Some(now),
                other => assert!(matches!(other, Redemption::Wait(_)), "{other:?}"),
            }
        }
    });
    assert!(entered.unwrap() <= after(43_000), "{entered:?}");
    assert!(matches!(room.status(&newcomer, after(50_000)), TicketStatus::Wait(_)));
    run(&room, 50_000, 65_000, &mut come);
    assert_eq!(room.redeem(&too_late, after(65_000)), Redemption::Expired);
    let again = room.arrive(ClassId(0), 10_001, Some(too_late.arrived), after(65_000));
    let Arrival::Wait(ticket, _) = again else { panic!("{again:?}") };
    assert_eq!(ticket.arrived, too_late.arrived);
}

#[test]
fn a_fall_puts_newcomers_behind_all_promises() {
    let room = Room::new(config(), rate(100.0), START);
    let (entered, _) = crowd(&room, 2_000, 0, START);
    assert!(entered <= 40);
    room.set_capacity(rate(25.0), START);
    let Arrival::Wait(ticket, wait) = room.arrive(ClassId(0), 9_999, None, START) else { panic!() };
    // T' = 2,000 / 25 = 80 s: not before T' + 1.
    assert_eq!(ticket.due().second() - START.second(), 81);
    assert!((78.0..=82.0).contains(&wait.wait.as_secs_f64()), "the honest wait: {wait:?}");
}

#[test]
fn a_rise_goes_to_newcomers_or_not_as_set() {
    for (rise_to_newcomers, expected) in [(true, 0), (false, 20)] {
        let room = Room::new(RoomConfig { rise_to_newcomers, ..config() }, rate(100.0), START);
        crowd(&room, 2_000, 0, START);
        room.set_capacity(rate(200.0), after(300));
        let second = match room.arrive(ClassId(0), 9_999, None, after(300)) {
            Arrival::Enter => 0,
            Arrival::Wait(ticket, _) => ticket.due().second() - START.second(),
            Arrival::Full { .. } => panic!("full"),
        };
        assert_eq!(second, expected, "rise_to_newcomers = {rise_to_newcomers}");
    }
}

#[test]
fn bypass_traffic_holds_newcomers_back_only_for_a_while() {
    let room = Room::new(config(), rate(10.0), START);
    for _ in 0..50 {
        room.charge(Cost::ONE);
    }
    run(&room, 0, 1_500, |_| {});
    assert!(matches!(room.arrive(ClassId(0), 1, None, after(1_500)), Arrival::Wait(..)));
    run(&room, 1_500, 6_000, |_| {});
    assert_eq!(room.arrive(ClassId(0), 2, None, after(6_000)), Arrival::Enter);
}

#[test]
fn after_a_restart_due_tickets_are_accepted_or_not_as_set() {
    let before = Room::new(config(), rate(10.0), START);
    let (_, tickets) = crowd(&before, 200, 0, START);
    for (accept, expected) in [(true, Redemption::Enter), (false, Redemption::Expired)] {
        let config = RoomConfig { after_restart_accept: accept, ..config() };
        let room = Room::new(config, rate(10.0), after(5_000));
        let due = tickets.iter().rfind(|t| t.due() < after(5_000)).unwrap();
        assert_eq!(room.redeem(due, after(5_000)), expected);
        let later = tickets.iter().find(|t| t.due() > after(8_000)).unwrap();
        let Redemption::Wait(wait) = room.redeem(later, after(5_000)) else { panic!("early") };
        let left = later.due().since(after(5_000));
        assert_eq!(wait.wait, left, "without a saved schedule the ticket decides");
    }
}

#[test]
fn promises_that_were_not_saved_are_adopted_once_when_their_tickets_are_shown() {
    let capacity = 10.0;
    let config = || RoomConfig { tolerance: Duration::ZERO, ..config() };
    let before = Room::new(config(), rate(capacity), after(0));
    let (_, early) = crowd(&before, 60, 0, after(0));
    let saved = before.save(after(10));
    let (_, unsaved) = crowd(&before, 100, 1_000, after(20));
    let last = unsaved.iter().map(Ticket::due).max().expect("some wait");

    let room = Room::new(config(), rate(capacity), after(100));
    room.restore(&saved, after(100)).expect("what was saved");
    let promised = room.state(after(100)).promised;
    for _ in 0..3 {
        for ticket in early.iter().chain(&unsaved) {
            assert!(matches!(room.status(ticket, after(110)), TicketStatus::Wait(_)), "{ticket:?}");
        }
    }
    let unsaved_work = Cost::from_hundredths(100 * unsaved.len() as u64);
    assert_eq!(
        room.state(after(110)).promised,
        promised + unsaved_work,
        "each once, without those that were saved"
    );
    match room.arrive(ClassId(0), 9_999, None, after(120)) {
        Arrival::Wait(ticket, _) => assert!(ticket.due() >= last, "a newcomer overtook the crowd"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_is_due_last_and_asks_first_after_a_crash_opens_no_way_past_the_others() {
    let before = Room::new(config(), rate(10.0), after(0));
    let saved = before.save(after(0));
    let (_, mut tickets) = crowd(&before, 200, 0, after(10));
    let room = Room::new(config(), rate(10.0), after(100));
    room.restore(&saved, after(100)).expect("what was saved");
    let last = tickets.pop().expect("they wait");
    // For two seconds nobody else is known to wait, and the origin has time.
    let mut place = u64::MAX;
    run(&room, 100, 2_100, |now| {
        let TicketStatus::Wait(wait) = room.status(&last, now) else { panic!("all others are before it") };
        assert!(wait.position > 120, "{} of {}", wait.position, tickets.len());
        place = place.min(wait.position);
    });
    assert!(place < 195, "the others' turns come meanwhile");
    let Arrival::Wait(newcomer, _) = room.arrive(ClassId(0), 9_999, None, after(2_200)) else {
        panic!("a newcomer overtook the crowd")
    };
    assert!(newcomer.due() >= last.due());
    let waiting = tickets.iter().filter(|ticket| room.redeem(ticket, after(2_200)) != Redemption::Enter);
    assert!(waiting.count() > 120);
}

#[test]
fn a_saved_state_is_restored_and_garbage_is_refused() {
    let room = Room::new(config(), rate(10.0), START);
    let (_, tickets) = crowd(&room, 300, 0, START);
    run(&room, 0, 5_000, |now| {
        for ticket in tickets.iter().filter(|t| t.due() <= now) {
            room.redeem(ticket, now);
        }
    });
    let saved = room.save(after(5_000));
    let again = Room::new(config(), rate(10.0), after(9_000));
    again.restore(&saved, after(9_000)).unwrap();
    let (old, new) = (room.state(after(5_000)), again.state(after(9_000)));
    assert_eq!((old.waiting, old.promised), (new.waiting, new.promised));
    assert_eq!(new.frontier, old.frontier + 1, "newcomers are not due in the second of the last promise");
    assert!(
        (new.lead_s - old.lead_s + 4.0).abs() < 0.01,
        "the virtual clock resumes where it was: {old:?} {new:?}"
    );

    let fresh = || Room::new(config(), rate(10.0), after(9_000));
    assert_eq!(fresh().restore(b"", after(9_000)), Err(RestoreError::Unknown));
    assert_eq!(fresh().restore(b"TGROOM01", after(9_000)), Err(RestoreError::Damaged));
    assert_eq!(
        fresh().restore(&saved, after(0) + Duration::from_secs(900_000)),
        Err(RestoreError::OtherTime)
    );
    for cut in (0..saved.len()).step_by(7) {
        assert!(fresh().restore(&saved[..cut], after(9_000)).is_err(), "cut at {cut}");
        let mut changed = saved.clone();
        changed[cut] ^= 0x10;
        assert!(fresh().restore(&changed, after(9_000)).is_err(), "changed at {cut}");
    }
}

#[test]
fn settings_change_without_losing_promises() {
    let room = Room::new(config(), rate(10.0), START);
    let (_, tickets) = crowd(&room, 300, 0, START);
    let changed = RoomConfig { class_costs: vec![Cost::from_hundredths(500).into()], ..config() };
    room.reconfigure(changed, after(1_000)).unwrap();
    let Arrival::Wait(ticket, _) = room.arrive(ClassId(0), 1_000, None, after(1_000)) else { panic!() };
    assert_eq!(ticket.cost, Cost::from_hundredths(500));
    assert!(ticket.due() > tickets[tickets.len() - 1].due());
    let longer = RoomConfig { max_wait: Duration::from_secs(7_200), ..config() };
    assert!(room.reconfigure(longer, after(1_000)).unwrap_err().needed_s > 14_400);
}

#[test]
fn a_checker_follows_updates_and_falls_back_to_the_wall_clock() {
    let room = Room::new(config(), rate(10.0), START);
    let (_, tickets) = crowd(&room, 200, 0, START);
    let checker = Checker::new(&config(), rate(10.0), START);
    room.set_capacity(rate(1.0), START);
    checker.follow(room.control_update(), START);
    let ticket = tickets.iter().find(|t| t.due() > after(6_000)).unwrap();
    for ms in (100..=7_000).step_by(100) {
        room.tick(after(ms), Cost::ZERO);
        let update = room.feedback(&checker.report(&Totals::default(), after(ms)));
        checker.follow(update, after(ms));
        checker.tick(after(ms), Cost::ZERO);
    }
    assert!(matches!(checker.redeem(ticket, after(7_000)), Redemption::Wait(_)), "the virtual clock is slow");
    checker.tick(after(13_000), Cost::ZERO);
    assert_eq!(checker.redeem(ticket, after(13_000)), Redemption::Enter, "no updates: as promised");
    assert_eq!(checker.redeem(ticket, after(13_000)), Redemption::Replayed);
    let report = checker.report(&Totals::default(), after(13_000));
    assert_eq!((report.admitted, report.shown), (Cost::ONE, vec![(ticket.due().second(), Cost::ONE)]));
    assert_eq!(checker.report(&Totals::default(), after(13_500)).admitted, Cost::ZERO);
}

#[derive(Clone, Debug)]
enum Op {
    Arrive(u8),
    Redeem(usize),
    Forged(u64, u64, u64),
    Pass(u64),
    Tick(u64),
    Capacity(f64),
    Charge(u64),
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0u8..=2).prop_map(Op::Arrive),
        6 => any::<usize>().prop_map(Op::Redeem),
        1 => any::<(u64, u64, u64)>().prop_map(|(a, b, c)| Op::Forged(a, b, c)),
        3 => (0u64..=2_000_000).prop_map(Op::Pass),
        3 => prop_oneof![Just(0u64), 0u64..=5_000].prop_map(Op::Tick),
        1 => prop_oneof![Just(0.0), 0.05f64..=50.0, Just(1e9)].prop_map(Op::Capacity),
        1 => (0u64..=10_000).prop_map(Op::Charge),
        1 => Just(Op::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 5_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// In any order of operations: nothing panics, no ticket is redeemed twice by one process, a poll returns
    /// what a redemption then does, a wait is never zero, and the virtual clock never goes back.
    #[test]
    fn random_histories(ops in prop::collection::vec(op(), 1..80)) {
        let mut now = START;
        let mut room = Room::new(config(), rate(3.0), now);
        let mut used: HashMap<u64, u64> = HashMap::new();
        let mut tickets: Vec<Ticket> = Vec::new();
        let mut clock_at = room.control_update().clock.at;
        for (nonce, op) in ops.into_iter().enumerate() {
            match op {
                Op::Arrive(class) => match room.arrive(ClassId(class), nonce as u64, None, now) {
                    Arrival::Wait(ticket, wait) => {
                        prop_assert!(ticket.due() >= ticket.issued && ticket.arrived <= ticket.issued);
                        prop_assert!(wait.wait > Duration::ZERO && wait.position > 0);
                        tickets.push(ticket);
                    }
                    Arrival::Enter => {}
                    Arrival::Full { retry_after } => prop_assert!(retry_after > Duration::ZERO),
                },
                Op::Redeem(i) if !tickets.is_empty() => {
                    let ticket = tickets[i % tickets.len()];
                    let status = room.status(&ticket, now);
                    let redemption = room.redeem(&ticket, now);
                    match (status, redemption) {
                        (TicketStatus::Ready, Redemption::Enter) => {
                            prop_assert_eq!(used.insert(ticket.nonce, 1), None, "redeemed twice");
                        }
                        (TicketStatus::Wait(a), Redemption::Wait(b)) => prop_assert_eq!(a, b),
                        (TicketStatus::Redeemed, Redemption::Replayed) => {
                            prop_assert!(used.contains_key(&ticket.nonce));
                        }
                        (TicketStatus::Expired, Redemption::Expired) => {}
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                Op::Redeem(_) => {}
                Op::Forged(issued, wait, cost) => {
                    let ticket = Ticket {
                        class: ClassId(0),
                        cost: Cost::from_hundredths(cost % 1_000_000 + 1),
                        issued: Timestamp::from_micros(issued),
                        wait: Duration::from_micros(wait),
                        arrived: Timestamp::default(),
                        nonce: u64::MAX - nonce as u64,
                    };
                    room.status(&ticket, now);
                    room.redeem(&ticket, now);
                }
                Op::Pass(us) => now = now + Duration::from_micros(us),
                Op::Tick(queued) => room.tick(now, Cost::from_hundredths(queued)),
                Op::Capacity(units) => room.set_capacity(rate(units), now),
                Op::Charge(cost) => room.charge(Cost::from_hundredths(cost)),
                Op::Restart => {
                    let saved = room.save(now);
                    let capacity = room.capacity();
                    room = Room::new(config(), capacity, now);
                    prop_assert_eq!(room.restore(&saved, now), Ok(()));
                    used.clear();
                }
            }
            let at = room.control_update().clock.at;
            prop_assert!(at >= clock_at, "the virtual clock went back");
            clock_at = at;
            room.state(now);
        }
    }
}

/// An estimate may be absurd for a tick. Its effect on the schedule must not outlive it.
#[test]
fn a_capacity_that_was_next_to_zero_for_a_moment_has_no_later_effect() {
    for (busy_again_at_ms, capacity) in [(1_200, 10.0), (1_200, 30.0), (60_000, 10.0)] {
        let room = Room::new(config(), rate(10.0), START);
        let (_, tickets) = crowd(&room, 50, 0, START);
        room.set_capacity(rate(1e-8), after(1_000));
        room.set_capacity(rate(capacity), after(1_100));
        for ms in (1_200..=busy_again_at_ms).step_by(100) {
            room.tick(after(ms), Cost::ZERO);
            for ticket in tickets.iter().filter(|t| t.due() <= after(ms)) {
                room.redeem(ticket, after(ms));
            }
        }
        let now = after(busy_again_at_ms);
        match room.arrive(ClassId(0), 1_000, None, now) {
            Arrival::Enter => assert!(!room.busy(now), "before those who wait"),
            Arrival::Wait(ticket, wait) => {
                assert!(ticket.due() > tickets[tickets.len() - 1].due(), "before those who wait");
                assert!(wait.wait <= Duration::from_secs(10), "at {capacity}/s: {wait:?}");
            }
            Arrival::Full { .. } => panic!("full at {capacity}/s, {busy_again_at_ms} ms"),
        }
    }
}

#[test]
fn pages_ask_sooner_while_the_capacity_is_searched() {
    let room = Room::new(RoomConfig { max_wait: Duration::from_secs(7_200), ..config() }, rate(100.0), START);
    assert_eq!(
        room.poll_intervals().longest,
        Duration::from_millis(300),
        "nothing is known before the first tick"
    );
    room.look_out(false, START);
    let usual = room.poll_intervals().longest;
    room.look_out(true, START);
    assert_eq!(room.poll_intervals().longest, Duration::from_millis(300), "no one waits");
    room.look_out(false, START + Duration::from_secs(2));
    assert_eq!(room.poll_intervals().longest, Duration::from_secs(2), "the search ended as long ago");
    room.look_out(true, START);
    crowd(&room, 100_000, 0, START);
    room.look_out(true, START);
    let crowded = room.poll_intervals().longest;
    assert!(crowded > Duration::from_secs(4) && crowded < usual, "not too many at once: {crowded:?}");
    room.look_out(false, START + Duration::from_secs(3));
    assert!(room.poll_intervals().longest > Duration::from_secs(4), "still not too many at once");
    room.look_out(false, START + usual);
    assert_eq!(room.poll_intervals().longest, usual);
}
