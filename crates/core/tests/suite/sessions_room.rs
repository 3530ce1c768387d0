//! Admission with sessions and a waiting room: no visitor enters without a session slot, visitors enter in
//! order, and the announced waits are honest.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_core::admission::{
    Admission, AdmissionRequest, Decision, Entrance, Position, Presented, SessionAsk, WhenFull,
};
use tidegate_core::gate::Totals;
use tidegate_core::ingress::Ingress;
use tidegate_core::policies::TierId;
use tidegate_core::room::{Arrival, Checker, Redemption, Room, RoomConfig, RoomTargets, TicketStatus};
use tidegate_core::session::*;
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const GOLD: TierId = TierId(1);

fn at(ms: u64) -> Timestamp {
    START + Duration::from_millis(ms)
}

fn key(n: u64) -> SessionKey {
    SessionKey(u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn config() -> RoomConfig {
    RoomConfig { max_wait: Duration::from_secs(600), ..RoomConfig::default() }
}

struct World {
    admission: Admission,
    sessions: Sessions,
    when_full: WhenFull,
    now_ms: u64,
}

impl World {
    fn new(cap: u32, per_second: f64, when_full: WhenFull) -> Self {
        let room = Room::new(config(), Rate::per_second(per_second).unwrap(), START);
        let sessions = SessionConfig {
            timeout: Duration::from_secs(10),
            cap: Cap::Fixed(cap),
            pools: vec![(GOLD, 1)],
            ..SessionConfig::default()
        };
        let sessions = Sessions::new(&sessions, START);
        Self { admission: Admission::Room(Box::new(room)), sessions, when_full, now_ms: 0 }
    }

    fn now(&self) -> Timestamp {
        at(self.now_ms)
    }

    fn ask(&self, n: u64, tier: TierId, shown: Presented) -> Decision {
        let asking = AdmissionRequest { class: ClassId(0), cost: Cost::ONE, shown, sends_on: false };
        let session_ask = SessionAsk::new(&self.sessions, key(n), tier, self.when_full);
        let (ingress, max_wait) = (&Ingress::default(), Duration::ZERO);
        let entrance = Entrance {
            ingress,
            max_wait,
            waits: true,
            returns: true,
            client: None,
            owner: None,
            may_be_held: false,
        };
        let decision =
            self.admission.ask_for(&entrance, &asking, Some(&session_ask), &mut || n, &|_| {}, self.now());
        session_ask
            .under_way
            .take()
            .into_iter()
            .for_each(|request| self.sessions.finish(request, self.now()));
        let has_place = self.sessions.status(key(n), self.now()) == SessionStatus::Admitted;
        assert_eq!(has_place, matches!(decision, Decision::Enter { .. }), "{n}: {decision:?}");
        decision
    }

    /// A request of a session that may be admitted; it ends at once.
    fn touch(&self, n: u64) {
        if let (_, Some(request)) = self.sessions.touch(key(n), Cost::ONE, self.now()) {
            self.sessions.finish(request, self.now());
        }
    }

    fn come(&self, n: u64) -> Decision {
        self.ask(n, TierId(0), Presented::Nothing)
    }

    /// The ticket of a visitor who has to wait, and the announced wait.
    fn waits(&self, n: u64) -> (Ticket, Duration) {
        match self.come(n) {
            Decision::Wait { ticket, wait, position: Position::New } => (ticket, wait.wait),
            other => panic!("{n} was to wait, got {other:?}"),
        }
    }

    /// Passes so many ticks of 100 ms.
    fn pass(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.now_ms += 100;
            self.tick();
        }
    }

    fn tick(&self) {
        let (gate, capacity) = (Totals::default(), self.admission.capacity());
        let waiting = u64::from(self.admission.busy(self.now()));
        self.sessions.tick(&SessionInputs { capacity, is_measured: true, gate: &gate, waiting }, self.now());
        self.admission.pace_sessions(self.sessions.pace());
        self.admission.tick(&gate, true, self.now());
    }

    /// Another process goes on with what the room has saved. Of the sessions nothing is left.
    fn restart(&mut self, cap: u32, per_second: f64) {
        let saved = self.admission.room().expect("a room").save(self.now());
        let now_ms = self.now_ms;
        *self = Self { now_ms, ..Self::new(cap, per_second, self.when_full) };
        self.admission.pace_sessions(self.sessions.pace());
        self.admission.room().expect("a room").restore(&saved, self.now()).expect("what it saved");
    }

    fn end(&self, n: u64) {
        assert!(self.sessions.end(key(n), Ender::Origin, self.now()), "{n} is open");
    }
}

fn enters(decision: Decision) -> bool {
    matches!(decision, Decision::Enter { .. })
}

#[test]
fn visitors_wait_for_a_slot_in_order() {
    for per_second in [100.0, Rate::MAX.get()] {
        let mut world = World::new(2, per_second, WhenFull::Room);
        world.pass(1);
        assert!(enters(world.come(1)) && enters(world.come(2)));
        let tickets: Vec<_> = (3..6).map(|n| (n, world.waits(n).0)).collect();
        // No turn comes while all slots are taken, even at an idle origin.
        for _ in 0..9 {
            world.pass(1);
            for (n, ticket) in &tickets {
                let decision = world.ask(*n, TierId(0), Presented::Ticket(*ticket));
                assert!(
                    matches!(decision, Decision::Wait { position: Position::Kept, .. }),
                    "{n}: {decision:?}"
                );
            }
            assert!(!enters(world.come(1_000 + world.now_ms)), "past those who wait");
        }
        // One free slot admits one visitor: the first.
        for (left, (n, ticket)) in [1, 2, 3].into_iter().zip(&tickets) {
            world.end(left);
            world.pass(1);
            for (other, waiting) in tickets.iter().filter(|(other, _)| other > n) {
                assert!(
                    !enters(world.ask(*other, TierId(0), Presented::Ticket(*waiting))),
                    "{other} before {n}"
                );
            }
            assert!(
                enters(world.ask(*n, TierId(0), Presented::Ticket(*ticket))),
                "{n} is next, at {per_second}"
            );
            world.pass(20);
        }
    }
}

#[test]
fn who_finds_no_slot_before_the_first_tick_waits_for_the_next_one() {
    let mut world = World::new(1, Rate::MAX.get(), WhenFull::Room);
    world.now_ms = 500;
    assert!(enters(world.come(1)));
    let (ticket, _) = world.waits(2);
    world.end(1);
    world.tick();
    world.pass(1);
    assert!(enters(world.ask(2, TierId(0), Presented::Ticket(ticket))));
}

#[test]
fn slots_are_given_in_order_after_a_restart() {
    for per_second in [100.0, Rate::MAX.get()] {
        let mut world = World::new(1, per_second, WhenFull::Room);
        world.pass(1);
        assert!(enters(world.come(1)));
        let tickets: Vec<_> = (2..20).map(|n| (n, world.waits(n).0)).collect();
        world.restart(1, per_second);
        for (n, ticket) in &tickets {
            let mut ticks = 0;
            loop {
                world.pass(1);
                ticks += 1;
                for (other, waiting) in tickets.iter().rev().filter(|(other, _)| other > n) {
                    let decision = world.ask(*other, TierId(0), Presented::Ticket(*waiting));
                    assert!(!enters(decision), "{other} before {n}, at {per_second}");
                }
                if enters(world.ask(*n, TierId(0), Presented::Ticket(*ticket))) {
                    break;
                }
                assert!(ticks < 30, "{n} is next, at {per_second}");
            }
            world.end(*n);
        }
    }
}

#[test]
fn a_due_ticket_is_not_redeemed_without_a_slot() {
    let mut world = World::new(1, 100.0, WhenFull::Room);
    world.pass(1);
    assert!(enters(world.come(1)));
    let (ticket, _) = world.waits(2);
    world.end(1);
    world.pass(1);
    // A session from before a restart comes back and takes the slot.
    assert!(world.sessions.readmit(key(9), TierId(0), world.now(), world.now()).is_some());
    let Decision::Wait { ticket: same, wait, position: Position::Kept } =
        world.ask(2, TierId(0), Presented::Ticket(ticket))
    else {
        panic!("there is no slot")
    };
    assert_eq!((same, wait.wait), (ticket, Duration::from_secs(1)));
    world.end(9);
    world.pass(1);
    assert!(enters(world.ask(2, TierId(0), Presented::Ticket(ticket))));
    // The ticket is redeemed; the slot belongs to its session.
    assert!(!enters(world.ask(3, TierId(0), Presented::Ticket(ticket))));
    assert_eq!(world.sessions.count().open, 1);
}

#[test]
fn new_sessions_are_refused_where_they_do_not_wait() {
    let mut world = World::new(1, 100.0, WhenFull::Refuse);
    world.pass(1);
    assert!(enters(world.come(1)));
    world.pass(1);
    let Decision::NoSessionSlot { retry_after } = world.come(2) else { panic!("refused") };
    assert!((Duration::from_secs(1)..=Duration::from_secs(60)).contains(&retry_after), "{retry_after:?}");
    assert_eq!(world.sessions.state().refused, 1);
    world.end(1);
    assert!(enters(world.come(2)), "the slot is given again at once");
}

#[test]
fn a_tier_with_slots_of_its_own_does_not_wait_for_common_ones() {
    let mut world = World::new(1, 100.0, WhenFull::Room);
    world.pass(1);
    assert!(enters(world.come(1)));
    let (ticket, _) = world.waits(2);
    world.waits(3);
    world.pass(1);
    assert!(enters(world.ask(4, GOLD, Presented::Nothing)), "the tier's own slot");
    assert!(!enters(world.ask(5, GOLD, Presented::Nothing)), "there was one only");
    world.end(4);
    // A visitor who has waited may show the ticket.
    assert!(enters(world.ask(2, GOLD, Presented::Ticket(ticket))));
    assert!(!enters(world.ask(6, GOLD, Presented::Ticket(ticket))), "it is used up");
}

#[test]
fn a_class_that_never_waits_needs_a_slot_only_with_a_session() {
    let world = World::new(1, 100.0, WhenFull::Room);
    let asking =
        AdmissionRequest { class: ClassId(0), cost: Cost::ONE, shown: Presented::Nothing, sends_on: false };
    let (ingress, max_wait) = (&Ingress::default(), Duration::ZERO);
    let entrance = Entrance {
        ingress,
        max_wait,
        waits: false,
        returns: false,
        client: None,
        owner: None,
        may_be_held: false,
    };
    let ask = |session_ask: Option<&SessionAsk<'_>>| {
        world.admission.ask_for(&entrance, &asking, session_ask, &mut || 1, &|_| {}, world.now())
    };
    let session_ask = |n| SessionAsk::new(&world.sessions, key(n), TierId(0), WhenFull::Room);
    assert!(enters(ask(None)) && world.sessions.count().open == 0);
    assert!(enters(ask(Some(&session_ask(1)))) && world.sessions.count().open == 1);
    assert!(matches!(ask(Some(&session_ask(2))), Decision::NoSessionSlot { .. }), "it cannot wait");
}

/// Thirty slots; each session lasts 8 s and its timeout of 10 s, so 1.67 slots a second become free. A crowd
/// of 200 comes at once.
#[test]
fn announced_waits_follow_the_slots_that_become_free() {
    let mut world = World::new(30, 1_000.0, WhenFull::Room);
    let mut rng = 1_u64;
    let mut busy: VecDeque<(u64, u64)> = VecDeque::new();
    // Two minutes of ordinary load: lengths are learned.
    for tick in 0..1_200 {
        world.pass(1);
        busy.retain(|(n, until)| {
            world.touch(*n);
            *until > world.now_ms
        });
        if tick % 7 == 0 && enters(world.come(tick)) {
            busy.push_back((tick, world.now_ms + 8_000));
        }
    }
    // The crowd. Each visitor asks again every 500 to 1,500 ms.
    let mut crowd: Vec<(u64, Ticket, u64, u64)> = Vec::new();
    for n in 10_000..10_200 {
        match world.come(n) {
            Decision::Wait { ticket, wait, .. } => {
                crowd.push((n, ticket, world.now_ms + wait.wait.as_millis() as u64, world.now_ms + 1_000));
            }
            Decision::Enter { .. } => busy.push_back((n, world.now_ms + 8_000)),
            other => panic!("{other:?}"),
        }
    }
    let began = world.now_ms;
    let (mut errors, mut order, mut open) = (Vec::new(), Vec::new(), Vec::new());
    while !crowd.is_empty() {
        world.pass(1);
        busy.retain(|(n, until)| {
            if *until > world.now_ms {
                world.touch(*n);
            }
            *until > world.now_ms
        });
        if world.now_ms > began + 3_000 && crowd.len() > 10 {
            open.push(world.sessions.count().open as f64);
        }
        let now_ms = world.now_ms;
        crowd.retain_mut(|(n, ticket, told, asks)| {
            if *asks > now_ms {
                return true;
            }
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *asks = now_ms + 500 + (rng >> 33) % 1_000;
            let entered = enters(world.ask(*n, TierId(0), Presented::Ticket(*ticket)));
            if entered {
                errors.push((now_ms as f64 - *told as f64) / (*told - began) as f64);
                order.push(*n);
                busy.push_back((*n, now_ms + 8_000));
            }
            !entered
        });
        assert!(world.now_ms < began + 300_000, "{} still wait", crowd.len());
    }
    let open = open.iter().sum::<f64>() / open.len() as f64;
    assert!(open >= 28.0, "{open} of 30 slots in use while visitors wait");
    let late = order.iter().enumerate().map(|(i, n)| order[..i].iter().filter(|m| *m > n).count()).max();
    assert!(late <= Some(8), "{late:?} overtook one");
    errors.sort_by(f64::total_cmp);
    let (worst, median) = (errors[errors.len() * 9 / 10].abs(), errors[errors.len() / 2].abs());
    assert!(median < 0.15 && worst < 0.3, "told waits: median error {median}, nine tenths within {worst}");
}

/// Thirty slots, taken by a crowd before anything is learned; each session sends requests for 8 s, so its
/// slot is free after 18 s. Others come when the first are about to end.
#[test]
fn the_first_announced_waits_are_honest() {
    let mut world = World::new(30, 1_000.0, WhenFull::Room);
    let mut busy: Vec<(u64, u64)> = Vec::new();
    let mut crowd: Vec<(u64, Ticket, u64, Duration)> = Vec::new();
    let mut come = 0_u64;
    while come < 130 || !crowd.is_empty() {
        world.pass(1);
        assert!(world.now_ms < 120_000, "{} still wait", crowd.len());
        busy.retain(|(_, until)| *until > world.now_ms);
        for (n, _) in &busy {
            world.touch(*n);
        }
        crowd.retain(|(n, ticket, came_ms, told)| {
            let entered = enters(world.ask(*n, TierId(0), Presented::Ticket(*ticket)));
            if entered {
                busy.push((*n, world.now_ms + 8_000));
                let waited = Duration::from_millis(world.now_ms - came_ms);
                // At first the length of sessions is unknown.
                let most = if *n < 100 { *told * 2 } else { *told * 5 / 4 };
                let is_honest = (*told / 2..=most).contains(&waited);
                assert!(is_honest, "{n} was told {told:?} at {came_ms} ms and waited {waited:?}");
            }
            !entered
        });
        // A hundred within two seconds, the others at 17 s.
        let until = if world.now_ms < 17_000 { 100.min(world.now_ms / 20) } else { 130 };
        for n in come..until {
            match world.come(n) {
                Decision::Enter { .. } => busy.push((n, world.now_ms + 8_000)),
                Decision::Wait { ticket, wait, .. } => crowd.push((n, ticket, world.now_ms, wait.wait)),
                other => panic!("{other:?}"),
            }
        }
        come = until;
    }
    // Five rounds of 18 s, the last of ten sessions: no slot was free for long.
    assert!(world.now_ms < 80_000, "all were in after {} ms", world.now_ms);
}

/// Tokengen sends on only as many as tokencheck has slots for; a visitor without a slot keeps the ticket.
#[test]
fn two_processes_use_the_slots_of_tokencheck() {
    let world = World::new(2, 100.0, WhenFull::Room);
    let generator = &world.admission;
    let room = generator.room().expect("a room");
    let rate = Rate::per_second(100.0).unwrap();
    let checker = Checker::new(&config(), rate, START);
    let check = Admission::Checker { checker, capacity: std::sync::Mutex::new(rate) };
    let Admission::Checker { checker, .. } = &check else { unreachable!() };
    let gate = Totals::default();
    let exchange = |now: Timestamp| {
        world
            .sessions
            .tick(&SessionInputs { capacity: rate, is_measured: true, gate: &gate, waiting: 0 }, now);
        check.pace_sessions(world.sessions.pace());
        check.tick(&gate, true, now);
        checker.follow(room.feedback(&checker.report(&gate, now)), now);
        generator.tick(&gate, true, now);
        checker.follow(room.control_update(), now);
    };
    let ask = |n: u64, shown, now| {
        let asking = AdmissionRequest { class: ClassId(0), cost: Cost::ONE, shown, sends_on: true };
        generator.ask(&asking, &mut || n, &|_| {}, now)
    };
    let enter = |n: u64, ticket, now| {
        let asking = AdmissionRequest {
            class: ClassId(0),
            cost: Cost::ONE,
            shown: Presented::Ticket(ticket),
            sends_on: false,
        };
        let (ingress, max_wait) = (&Ingress::default(), Duration::ZERO);
        let entrance = Entrance {
            ingress,
            max_wait,
            waits: true,
            returns: true,
            client: None,
            owner: None,
            may_be_held: false,
        };
        let session_ask = SessionAsk::new(&world.sessions, key(n), TierId(0), WhenFull::Room);
        check.ask_for(&entrance, &asking, Some(&session_ask), &mut || n, &|_| {}, now)
    };
    exchange(at(100));
    let sent: Vec<_> = (1..=4).map(|n| ask(n, Presented::Nothing, at(110))).collect();
    let on: Vec<_> = sent.iter().filter(|decision| matches!(decision, Decision::SendOn { .. })).collect();
    assert_eq!(on.len(), 2, "{sent:?}");
    for (n, decision) in (1..).zip(on) {
        let Decision::SendOn { ticket, .. } = decision else { unreachable!() };
        assert!(enters(enter(n, *ticket, at(120))));
    }
    let Decision::Wait { ticket, .. } = sent[2] else { panic!("the third waits") };
    for ms in (200..3_000).step_by(100) {
        exchange(at(ms));
        assert!(matches!(ask(3, Presented::Ticket(ticket), at(ms)), Decision::Wait { .. }), "at {ms}");
    }
    // A visitor who comes all the same is not admitted, and keeps the ticket.
    let for_now = Ticket { issued: at(3_000), wait: Duration::ZERO, arrived: at(3_000), nonce: 77, ..ticket };
    assert!(matches!(enter(9, for_now, at(3_000)), Decision::Wait { position: Position::Kept, .. }));
    assert!(world.sessions.end(key(1), Ender::Operator, at(3_000)));
    exchange(at(3_100));
    let Decision::SendOn { ticket, redeemed: Some(_) } = ask(3, Presented::Ticket(ticket), at(3_110)) else {
        panic!("its turn")
    };
    assert!(enters(enter(3, ticket, at(3_120))));
}

/// Pages that ask seconds after their turn are a crowd when they come, and each brings a session.
#[test]
fn visitors_whose_turn_has_come_and_who_are_not_here_count_as_the_sessions_they_will_begin() {
    let capacity = Rate::per_second(100.0).unwrap();
    let targets = RoomTargets { capacity, outflow: capacity, ceiling: Rate::MAX };
    let turns = |each_per_s: Option<f64>| {
        let room = Room::new(config(), capacity, START);
        room.set_targets(&targets, START);
        let expected = |each_per_s| ExpectedSessions {
            per_s: 0.0,
            each_per_s,
            newcomers_share: 0.05,
            first: 1.0,
            first_page_ratio: 1.0,
        };
        room.expect_sessions(each_per_s.map(expected));
        let tickets: Vec<_> = (0..1_000)
            .filter_map(|nonce| match room.arrive(ClassId(0), nonce, None, at(1)) {
                Arrival::Wait(ticket, _) => Some(ticket),
                _ => None,
            })
            .collect();
        // The origin has nothing to do, and nobody asks.
        let idle = Totals { limit: Some(10), ..Totals::default() };
        (100..=3_000).step_by(100).for_each(|ms| room.tick_with(&idle, true, at(ms)));
        tickets.iter().filter(|ticket| room.status(ticket, at(3_000)) == TicketStatus::Ready).count()
    };
    let (alone, with_sessions) = (turns(None), turns(Some(10.0)));
    assert!(alone > 500, "as many as the origin takes, and more while nobody comes: {alone}");
    // 400 requests a second at most are sent to look for those who are missing, which 40 sessions make;
    // half a second later they are thought to have come.
    assert!((60..200).contains(&with_sessions), "{with_sessions} turns");
}

/// While visitors wait, a second of the schedule holds what newcomers get of the capacity. So a ticket that
/// only an earlier process knew, due behind them all, waits for as many seconds as it is due later.
#[test]
fn behind_all_who_wait_a_ticket_is_due_in_as_many_seconds_as_it_says() {
    let capacity = Rate::per_second(100.0).unwrap();
    let room = Room::new(config(), capacity, START);
    let (each_per_s, newcomers_share, first_page_ratio) = (0.5, 0.5, 10.0);
    let expected =
        ExpectedSessions { per_s: 50.0, each_per_s, newcomers_share, first: 1.0, first_page_ratio };
    room.expect_sessions(Some(expected));
    (0..300).for_each(|nonce| _ = room.arrive(ClassId(0), 100 + nonce, None, START));
    (100..=3_000).step_by(100).for_each(|ms| room.tick_with(&Totals::default(), true, at(ms)));
    assert!(room.busy(at(3_000)));
    let (issued, wait) = (at(1_000), Duration::from_secs(22));
    let ticket = Ticket { class: ClassId(0), cost: Cost::ONE, issued, wait, arrived: issued, nonce: 7 };
    let TicketStatus::Wait(left) = room.status(&ticket, at(3_000)) else { panic!("twenty seconds early") };
    // At five first requests a second.
    assert!((15.0..30.0).contains(&left.wait.as_secs_f64()), "{left:?}");
}

/// After a crowd that came while little capacity was known, the virtual clock is minutes ahead. Pages that
/// have not asked for twenty seconds are gone; programs sleep until the time that they were told.
#[test]
fn where_sessions_are_admitted_who_left_is_known_although_the_virtual_clock_is_ahead() {
    let capacity = |per_s| Rate::per_second(per_s).unwrap();
    let show_up = |expected: Option<ExpectedSessions>| {
        let room = Room::new(config(), capacity(1.0), START);
        room.expect_sessions(expected);
        (0..500).for_each(|nonce| _ = room.arrive(ClassId(0), nonce, None, START));
        room.set_capacity(capacity(1_000.0), at(100));
        (200..=28_000).step_by(100).for_each(|ms| room.tick(at(ms), Cost::ZERO));
        assert!(!room.busy(at(28_000)), "all have had their turn");
        room.state(at(28_000)).show_up
    };
    let (each_per_s, newcomers_share) = (0.5, 0.5);
    let expected =
        ExpectedSessions { per_s: 0.0, each_per_s, newcomers_share, first: 1.0, first_page_ratio: 1.0 };
    let (pages, programs) = (show_up(Some(expected)), show_up(None));
    assert!(pages < 0.6 && programs > 0.9, "{pages} {programs}");
}

/// That all come is believed until a third of a second's newcomers have shown otherwise. Of a large capacity
/// that is little where each newcomer brings a page.
#[test]
fn where_newcomers_get_a_part_of_the_capacity_few_of_them_show_how_many_come() {
    let room = Room::new(config(), Rate::per_second(1_000.0).unwrap(), START);
    let expected = ExpectedSessions {
        per_s: 0.0,
        each_per_s: 0.5,
        newcomers_share: 1.0,
        first: 12.0,
        first_page_ratio: 12.0,
    };
    let mut who_come = Vec::new();
    for nonce in 0..6_000 {
        match room.arrive(ClassId(0), nonce, None, START) {
            Arrival::Wait(ticket, _) if nonce % 2 == 0 => who_come.push(ticket),
            _ => {}
        }
    }
    for ms in (100..=40_000).step_by(100) {
        room.expect_sessions(Some(expected));
        room.tick(at(ms), Cost::ZERO);
        who_come.retain(|ticket| room.redeem(ticket, at(ms)) != Redemption::Enter);
    }
    assert!(room.busy(at(40_000)));
    let show_up = room.state(at(40_000)).show_up;
    assert!(show_up < 0.55, "half of them come, and {show_up} is believed");
}
