//! Every rule of [`decide`], one by one.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::time::Duration;

use tidegate_core::admission::{
    Admission, AdmissionSettings, Decision, EnteredBy, Facts, PAGE_IDLE, PAGE_PARTS_SETTLE, PAGE_PASS,
    PolicyStep, Position, Presented, Process, Progress, RETRY_DOWN, Requester, Role, SessionClaim,
    SessionRules, ShadowRoom, WhenFull, decide,
};
use tidegate_core::bucket::{BucketConfig, SharedBucket};
use tidegate_core::ingress::{Ingress, IngressConfig, Refusal};
use tidegate_core::measure::Event;
use tidegate_core::policies::*;
use tidegate_core::room::{Checker, Room, RoomConfig};
use tidegate_core::session::{Cap, SessionConfig, SessionKey, SessionRequest, SessionStatus, Sessions};
use tidegate_core::ticket::{Pass, PassKind, Ticket};
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const RULES: SessionRules =
    SessionRules { timeout: Duration::from_secs(60), max_age: Duration::from_secs(600) };
const SETTINGS: AdmissionSettings = AdmissionSettings {
    burst: Duration::from_millis(200),
    role: Role::Gate,
    has_room: true,
    max_wait: Duration::from_secs(600),
    session_rules: RULES,
    when_full: WhenFull::Room,
};

fn ago(time: Duration) -> Timestamp {
    NOW.saturating_sub(time)
}

fn rate(per_second: f64) -> Rate {
    Rate::per_second(per_second).unwrap_or_default()
}

/// Room for `per_second` visitors; 0: nobody enters.
fn room(per_second: f64) -> Admission {
    Admission::Room(Box::new(Room::new(RoomConfig::default(), rate(per_second), NOW)))
}

fn checker() -> Admission {
    let checker = Checker::new(&RoomConfig::default(), rate(10.0), NOW);
    Admission::Checker { checker, capacity: std::sync::Mutex::new(rate(10.0)) }
}

fn one_slot() -> Sessions {
    Sessions::new(&SessionConfig { cap: Cap::Fixed(1), ..SessionConfig::default() }, NOW)
}

/// One request at once, then one in a hundred seconds.
fn bucket(refusal: Refusal) -> Ingress {
    let bucket = BucketConfig { rate: rate(0.01), burst: Cost::ONE };
    Ingress::new(&[IngressConfig { is_on: true, bucket, refusal }])
}

fn process<'a>(admission: &'a Admission, ingress: &'a Ingress) -> Process<'a> {
    Process {
        settings: SETTINGS,
        admission,
        ingress,
        sessions: None,
        policies: None,
        waiting_since: None,
        shadow: None,
    }
}

fn process_of<'a>(role: Role, admission: &'a Admission, ingress: &'a Ingress) -> Process<'a> {
    Process { settings: AdmissionSettings { role, ..SETTINGS }, ..process(admission, ingress) }
}

fn facts() -> Facts<'static> {
    Facts {
        request: PolicyRequest {
            path: "/",
            query: "",
            class: ClassId(0),
            cost: Cost::ONE,
            tier: TierId(0),
            visitor: 0,
            is_new_session: true,
            is_plain: true,
        },
        class_waits: true,
        is_part_of_page: false,
        skips_room: false,
        quota: None,
        progress: Progress::Start,
        now: NOW,
    }
}

fn of_session(facts: Facts<'_>) -> Facts<'_> {
    Facts { request: PolicyRequest { is_new_session: false, ..facts.request }, ..facts }
}

struct Visitor {
    key: SessionKey,
    ticket: Presented,
    pass: Option<Pass>,
    is_origin_usable: bool,
    shows_ticket_twice: bool,
    client: Option<IpAddr>,
    begun: RefCell<Vec<SessionKey>>,
    policies: RefCell<Vec<(&'static str, u16)>>,
    events: RefCell<Vec<Event>>,
    opened: Cell<u32>,
}

fn visitor() -> Visitor {
    Visitor {
        key: SessionKey(77),
        ticket: Presented::Nothing,
        pass: None,
        is_origin_usable: true,
        shows_ticket_twice: false,
        client: None,
        begun: RefCell::default(),
        policies: RefCell::default(),
        events: RefCell::default(),
        opened: Cell::new(0),
    }
}

impl Requester for Visitor {
    fn ticket(&self) -> Presented {
        self.opened.set(self.opened.get() + 1);
        self.ticket
    }
    fn pass(&self) -> Option<Pass> {
        self.opened.set(self.opened.get() + 1);
        self.pass
    }
    fn shows_ticket_twice(&self) -> bool {
        self.shows_ticket_twice
    }
    fn can_return(&self) -> bool {
        true
    }
    fn client(&self) -> Option<IpAddr> {
        self.client
    }
    fn is_origin_usable(&self) -> bool {
        self.is_origin_usable
    }
    fn new_session_key(&self) -> SessionKey {
        self.key
    }
    fn random(&self) -> u64 {
        7
    }
    fn session_begins(&self, request: SessionRequest) {
        self.begun.borrow_mut().push(request.key());
    }
    fn would_decide(&self, policy: &ActivePolicy) {
        self.policies.borrow_mut().push(("shadow", policy.rule.0));
    }
    fn sent_to_room(&self, policy: &ActivePolicy) {
        self.policies.borrow_mut().push(("room", policy.rule.0));
    }
    fn count(&self, event: Event) {
        self.events.borrow_mut().push(event);
    }
}

fn enters(by: EnteredBy) -> Decision {
    Decision::Enter { by }
}

fn waits(decision: Decision) -> Ticket {
    match decision {
        Decision::Wait { ticket, .. } => ticket,
        other => panic!("expected a wait, got {other:?}"),
    }
}

fn policy(rule: u16, policy: Policy) -> ActivePolicy {
    let (scope, action) = (Scope::default(), Action::Answer { status: 503 });
    ActivePolicy { rule: RuleId(rule), scope, policy, action, is_shadow: false }
}

#[test]
fn a_class_that_never_waits_enters_without_its_seals_being_opened() {
    let (closed, ingress) = (room(0.0), Ingress::default());
    let never = Facts { class_waits: false, ..facts() };
    let who = visitor();
    assert_eq!(decide(&process(&closed, &ingress), &never, &who), enters(EnteredBy::Unasked));
    assert_eq!(who.opened.get(), 0);
    let tokengen = process_of(Role::TokenGen, &closed, &ingress);
    assert_eq!(decide(&tokengen, &never, &visitor()), Decision::SendOnUnasked, "it forwards nothing itself");
}

#[test]
fn a_class_that_never_waits_meets_its_ingress_bucket() {
    let (closed, ingress) = (room(0.0), bucket(Refusal::Shed));
    let process = process(&closed, &ingress);
    let never = || Facts { class_waits: false, ..facts() };
    assert_eq!(decide(&process, &never(), &visitor()), enters(EnteredBy::Ingress));
    let who = visitor();
    assert!(matches!(decide(&process, &never(), &who), Decision::Throttled { .. }));
    assert_eq!(*who.events.borrow(), [Event::IngressShed]);
}

#[test]
fn a_bucket_may_have_its_class_wait_in_the_room() {
    let (open, ingress) = (room(10.0), bucket(Refusal::Room));
    let process = process(&open, &ingress);
    let never = || Facts { class_waits: false, ..facts() };
    assert_eq!(decide(&process, &never(), &visitor()), enters(EnteredBy::Ingress));
    let ticket = waits(decide(&process, &never(), &visitor()));
    assert!(ticket.due() >= NOW + Duration::from_secs(99), "{ticket:?}");
}

#[test]
fn the_room_decides_whether_a_visitor_enters_or_waits() {
    let ingress = Ingress::default();
    let (open, closed) = (room(10.0), room(0.0));
    assert_eq!(decide(&process(&open, &ingress), &facts(), &visitor()), enters(EnteredBy::Room));
    assert!(matches!(decide(&process(&closed, &ingress), &facts(), &visitor()), Decision::Full { .. }));
    let forged = Visitor { ticket: Presented::Forged, ..visitor() };
    assert_eq!(decide(&process(&open, &ingress), &facts(), &forged), Decision::Forbidden);
}

#[test]
fn a_ticket_of_an_unknown_key_gets_a_new_position_and_keeps_only_the_time_waited() {
    let (open, ingress) = (room(10.0), Ingress::default());
    let unknown = |arrived| {
        let ticket = Presented::UnknownKey { claimed_arrival: arrived };
        Visitor { ticket, ..visitor() }
    };
    let here = process(&open, &ingress);
    while matches!(decide(&here, &facts(), &visitor()), Decision::Enter { .. }) {}
    let last = waits(decide(&here, &facts(), &visitor()));
    let longest = SETTINGS.max_wait * 2;
    let table = [
        (Some(ago(Duration::from_secs(90))), ago(Duration::from_secs(90))),
        (Some(ago(longest)), ago(longest)),
        (Some(ago(longest + Duration::from_millis(1))), NOW),
        (Some(NOW + Duration::from_millis(1)), NOW),
        (None, NOW),
    ];
    let mut before = last.due();
    for (claimed, arrived) in table {
        let who = unknown(claimed);
        let decision = decide(&here, &facts(), &who);
        assert!(matches!(decision, Decision::Wait { position: Position::New, .. }), "{decision:?}");
        let ticket = waits(decision);
        assert_eq!(ticket.arrived, arrived, "{claimed:?}");
        assert!(ticket.due() >= before, "a claim moves nobody forward");
        assert!(who.events.borrow().contains(&Event::TicketUnknownKey));
        before = ticket.due();
    }
    // A class that never waits does not care.
    let bucket = bucket(Refusal::Shed);
    let never = Facts { class_waits: false, ..facts() };
    assert_eq!(decide(&process(&open, &bucket), &never, &unknown(None)), enters(EnteredBy::Ingress));
    // Tokengen might send it back for ever.
    let (check, ingress) = (checker(), Ingress::default());
    let tokencheck = process_of(Role::TokenCheck, &check, &ingress);
    assert_eq!(decide(&tokencheck, &facts(), &unknown(None)), Decision::Forbidden);
}

#[test]
fn without_a_usable_origin_everybody_is_held_and_keeps_the_ticket() {
    let (open, ingress) = (room(10.0), Ingress::default());
    let down = || Visitor { is_origin_usable: false, ..visitor() };
    let Decision::Hold { wait, waited } = decide(&process(&open, &ingress), &facts(), &down()) else {
        panic!("expected to be held")
    };
    assert_eq!((wait.wait, waited), (RETRY_DOWN, Duration::ZERO));
    let ticket = Ticket {
        class: ClassId(0),
        cost: Cost::ONE,
        issued: ago(Duration::from_secs(9)),
        wait: Duration::from_secs(30),
        arrived: ago(Duration::from_secs(9)),
        nonce: 1,
    };
    let holder = Visitor { ticket: Presented::Ticket(ticket), ..down() };
    let Decision::Hold { waited, .. } = decide(&process(&open, &ingress), &facts(), &holder) else {
        panic!("expected to be held")
    };
    assert_eq!(waited, Duration::from_secs(9));
    // Tokengen forwards nothing and needs no origin.
    let tokengen = process_of(Role::TokenGen, &open, &ingress);
    assert!(!matches!(decide(&tokengen, &facts(), &down()), Decision::Hold { .. }));
    // A class that never waits is not held either: the origin's failure is its answer.
    let never = Facts { class_waits: false, ..facts() };
    assert_eq!(decide(&process(&open, &ingress), &never, &down()), enters(EnteredBy::Unasked));
}

#[test]
fn parts_of_a_page_pass_while_nobody_waits_and_until_the_first_crowd_has_settled() {
    let (closed, ingress) = (room(0.0), Ingress::default());
    let part = |now| Facts { is_part_of_page: true, now, ..facts() };
    let since = |since| Process { waiting_since: since, ..process(&closed, &ingress) };
    let settles = NOW + PAGE_PARTS_SETTLE;
    assert_eq!(decide(&since(None), &part(NOW), &visitor()), enters(EnteredBy::PartOfPage));
    assert_eq!(decide(&since(Some(NOW)), &part(settles), &visitor()), enters(EnteredBy::PartOfPage));
    let late = settles + Duration::from_micros(1);
    assert!(matches!(decide(&since(Some(NOW)), &part(late), &visitor()), Decision::Full { .. }));
    // Tokencheck does not know since when visitors wait.
    let check = checker();
    let tokencheck = process_of(Role::TokenCheck, &check, &ingress);
    assert_eq!(decide(&tokencheck, &part(NOW), &visitor()), Decision::SendBack);
}

#[test]
fn parts_of_a_page_pass_with_a_pass_that_holds() {
    let (closed, ingress) = (room(0.0), Ingress::default());
    let sessions = one_slot();
    let settled =
        || Process { waiting_since: Some(ago(Duration::from_secs(60))), ..process(&closed, &ingress) };
    let part = || Facts { is_part_of_page: true, ..facts() };
    let us = Duration::from_micros(1);
    let table = [
        (PassKind::Page, PAGE_IDLE, true),
        (PassKind::Page, PAGE_IDLE + us, false),
        (PassKind::Session, RULES.timeout, true),
        (PassKind::Session, RULES.timeout + us, false),
    ];
    for (kind, age, passes) in table {
        let issued = ago(age);
        let pass = Some(Pass { kind, class: ClassId(0), issued, first: issued, nonce: 1 });
        let decision = decide(&settled(), &part(), &Visitor { pass, ..visitor() });
        assert_eq!(decision == enters(EnteredBy::PartOfPage), passes, "{kind:?} of {age:?}: {decision:?}");
    }
    // Where sessions are counted, only the page that ended one has such a pass, and not for long.
    let counted = || Process { sessions: Some(&sessions), ..settled() };
    for (age, passes) in [(PAGE_PASS, true), (PAGE_PASS + us, false)] {
        let issued = ago(age);
        let pass = Some(Pass { kind: PassKind::Page, class: ClassId(0), issued, first: issued, nonce: 2 });
        let decision = decide(&counted(), &part(), &Visitor { pass, ..visitor() });
        assert_eq!(decision == enters(EnteredBy::PartOfPage), passes, "{age:?}: {decision:?}");
    }
    // Where sessions are counted, the table says whether one is admitted.
    let pass = Some(Pass { kind: PassKind::Session, class: ClassId(0), issued: NOW, first: NOW, nonce: 1 });
    let decision = decide(&counted(), &part(), &Visitor { pass, ..visitor() });
    assert!(matches!(decision, Decision::Full { .. }), "{decision:?}");
}

/// How many of a thousand requests pass as parts of pages.
fn passing_parts(process: &Process<'_>, visitor: &Visitor) -> usize {
    let part = || Facts { is_part_of_page: true, ..facts() };
    (0..1_000).filter(|_| decide(process, &part(), visitor) == enters(EnteredBy::PartOfPage)).count()
}

#[test]
fn pages_that_are_called_parts_pass_only_as_far_as_one_page_has_parts() {
    let (closed, check, ingress) = (room(0.0), checker(), Ingress::default());
    let since = Some(ago(Duration::from_secs(60)));
    let pass = |nonce| Pass { kind: PassKind::Page, class: ClassId(0), issued: NOW, first: NOW, nonce };
    for process in [process(&closed, &ingress), process_of(Role::TokenCheck, &check, &ingress)] {
        let settled = Process { waiting_since: since, ..process };
        for nonce in [1, 2] {
            let with_pass = Visitor { pass: Some(pass(nonce)), ..visitor() };
            assert_eq!(passing_parts(&settled, &with_pass), 300, "pass {nonce}");
            assert_eq!(passing_parts(&settled, &with_pass), 0);
        }
    }
}

#[test]
fn a_page_of_before_the_crowd_has_its_parts_and_gathered_passes_gain_nothing() {
    let ingress = Ingress::default();
    let before = ago(Duration::from_secs(90));
    let with_pass = |nonce, address: [u8; 4]| {
        let pass = Pass { kind: PassKind::Page, class: ClassId(0), issued: before, first: before, nonce };
        Visitor { pass: Some(pass), client: Some(address.into()), ..visitor() }
    };
    for (capacity, of_one_address) in [(0.0, 100), (200.0, 500)] {
        let room = room(capacity);
        let settled =
            Process { waiting_since: Some(ago(Duration::from_secs(60))), ..process(&room, &ingress) };
        for neighbour in 1..=50 {
            let honest = with_pass(neighbour.into(), [192, 0, neighbour, 1]);
            let part = || Facts { is_part_of_page: true, ..facts() };
            for _ in 0..10 {
                assert_eq!(decide(&settled, &part(), &honest), enters(EnteredBy::PartOfPage), "{capacity}");
            }
        }
        let gathered = (100..200).map(|nonce| passing_parts(&settled, &with_pass(nonce, [198, 51, 100, 1])));
        assert_eq!(gathered.sum::<usize>(), of_one_address, "{capacity}/s");
    }
}

#[test]
fn pages_that_are_called_parts_do_not_pass_without_bound_when_a_crowd_comes() {
    let ingress = Ingress::default();
    let from = |address: [u8; 4]| Visitor { client: Some(address.into()), ..visitor() };
    for (capacity, of_one, of_its_neighbours) in [(0.0, 300, 0), (200.0, 500, 250)] {
        let room = room(capacity);
        let begins = Process { waiting_since: Some(NOW), ..process(&room, &ingress) };
        assert_eq!(passing_parts(&begins, &from([192, 0, 2, 1])), of_one, "{capacity}/s");
        assert_eq!(passing_parts(&begins, &from([192, 0, 2, 1])), 0);
        assert_eq!(passing_parts(&begins, &from([192, 0, 2, 2])), of_its_neighbours, "of the same /24");
        assert_eq!(passing_parts(&begins, &from([192, 0, 3, 1])), of_one, "others have their own share");
        // Nobody waits: a request for a page would be let in too.
        assert_eq!(passing_parts(&process(&room, &ingress), &from([192, 0, 2, 1])), 1_000);
    }
}

#[test]
fn parts_of_a_page_do_not_pass_for_nothing_where_no_session_slot_is_free() {
    let (closed, ingress) = (room(0.0), Ingress::default());
    let sessions = one_slot();
    let process = Process { sessions: Some(&sessions), ..process(&closed, &ingress) };
    let part = || Facts { is_part_of_page: true, ..facts() };
    assert_eq!(decide(&process, &part(), &visitor()), enters(EnteredBy::PartOfPage));
    _ = sessions.admit(SessionKey(1), TierId(0), Cost::ONE, NOW).expect("a slot");
    assert!(matches!(decide(&process, &part(), &visitor()), Decision::Full { .. }));
}

#[test]
fn a_part_of_a_page_does_not_wait_for_a_bucket() {
    let (open, ingress) = (room(10.0), bucket(Refusal::Room));
    let process = process(&open, &ingress);
    let part = || Facts { is_part_of_page: true, ..facts() };
    assert_eq!(decide(&process, &part(), &visitor()), enters(EnteredBy::PartOfPage));
    assert!(matches!(decide(&process, &part(), &visitor()), Decision::Throttled { .. }));
}

#[test]
fn a_service_level_that_skips_the_room_never_waits_and_takes_a_session_slot_if_one_is_free() {
    let (closed, ingress) = (room(0.0), Ingress::default());
    let sessions = one_slot();
    let gold = || Facts { skips_room: true, is_part_of_page: true, ..facts() };
    assert_eq!(decide(&process(&closed, &ingress), &gold(), &visitor()), enters(EnteredBy::Unasked));
    let counted = Process { sessions: Some(&sessions), ..process(&closed, &ingress) };
    let first = visitor();
    assert_eq!(decide(&counted, &gold(), &first), enters(EnteredBy::Unasked));
    assert_eq!(*first.begun.borrow(), [SessionKey(77)]);
    let second = Visitor { key: SessionKey(78), ..visitor() };
    assert_eq!(decide(&counted, &gold(), &second), enters(EnteredBy::Unasked), "without a session");
    assert!(second.begun.borrow().is_empty());
    // Its class's bucket holds for it too.
    let ingress = bucket(Refusal::Shed);
    let guarded = process(&closed, &ingress);
    assert_eq!(decide(&guarded, &gold(), &visitor()), enters(EnteredBy::Ingress));
    assert!(matches!(decide(&guarded, &gold(), &visitor()), Decision::Throttled { .. }));
}

#[test]
fn an_admitted_session_enters_past_room_and_bucket_which_is_charged() {
    let (closed, ingress) = (room(0.0), bucket(Refusal::Shed));
    let sessions = one_slot();
    let process = Process { sessions: Some(&sessions), ..process(&closed, &ingress) };
    assert_eq!(decide(&process, &of_session(facts()), &visitor()), enters(EnteredBy::Session));
    assert!(ingress.take(ClassId(0), Cost::ONE, NOW).is_err(), "the bucket is charged");
    assert_eq!(decide(&process, &of_session(facts()), &visitor()), enters(EnteredBy::Session));
    // Where no origin is usable, a page of an admitted session is held as well; what never waits is not.
    let down = || Visitor { is_origin_usable: false, ..visitor() };
    assert!(matches!(decide(&process, &of_session(facts()), &down()), Decision::Hold { .. }));
    let never = Facts { class_waits: false, ..facts() };
    assert_eq!(decide(&process, &of_session(never), &down()), enters(EnteredBy::Session));
    let part = Facts { is_part_of_page: true, ..facts() };
    assert_eq!(decide(&process, &of_session(part), &down()), enters(EnteredBy::Session));
}

#[test]
fn a_newcomer_begins_a_session_with_a_slot_and_waits_or_is_refused_without() {
    let ingress = Ingress::default();
    for when_full in [WhenFull::Room, WhenFull::Refuse] {
        let (open, sessions) = (room(10.0), one_slot());
        let settings = AdmissionSettings { when_full, ..SETTINGS };
        let process = Process { settings, sessions: Some(&sessions), ..process(&open, &ingress) };
        let first = visitor();
        assert_eq!(decide(&process, &facts(), &first), enters(EnteredBy::Room));
        assert_eq!(*first.begun.borrow(), [SessionKey(77)]);
        let second = decide(&process, &facts(), &Visitor { key: SessionKey(78), ..visitor() });
        match when_full {
            WhenFull::Room => assert_eq!(waits(second).nonce, 7),
            WhenFull::Refuse => assert!(matches!(second, Decision::NoSessionSlot { .. }), "{second:?}"),
        }
    }
}

#[test]
fn sessions_are_recognised_by_the_table_or_readmitted_by_their_pass() {
    let sessions = one_slot();
    let recognise = |pass: Option<&Pass>| {
        let (key, tier, cost) = (SessionKey(5), TierId(0), Cost::ONE);
        SessionClaim { sessions: &sessions, rules: RULES, key, pass, tier, cost }.recognise(NOW)
    };
    let pass = |issued, first| Pass { kind: PassKind::Session, class: ClassId(0), issued, first, nonce: 5 };
    let (status, request) = recognise(None);
    assert!(status == SessionStatus::New && request.is_none());
    for spent in [
        pass(ago(RULES.timeout + Duration::from_secs(1)), ago(Duration::from_secs(100))),
        pass(NOW, ago(RULES.max_age + Duration::from_secs(1))),
        Pass { kind: PassKind::Page, ..pass(NOW, NOW) },
    ] {
        assert_eq!(recognise(Some(&spent)).0, SessionStatus::New, "{spent:?}");
    }
    let (status, request) = recognise(Some(&pass(NOW, NOW)));
    assert_eq!(status, SessionStatus::Admitted);
    sessions.finish(request.expect("a request of the session"), NOW);
    let (status, request) = recognise(None);
    assert_eq!(status, SessionStatus::Admitted, "known from now on");
    sessions.finish(request.expect("a request of the session"), NOW);
}

#[test]
fn a_quota_that_is_used_up_refuses_before_all_else_and_is_charged_once() {
    let (open, ingress) = (room(10.0), Ingress::default());
    let quota = SharedBucket::new(&BucketConfig { rate: rate(1.0), burst: Cost::ONE }).expect("a bucket");
    let policies = PolicySet::new(vec![policy(0, Policy::Ask(AuthoriserId(0))), policy(1, Policy::Refuse)]);
    let process = Process { policies: Some(&policies), ..process(&open, &ingress) };
    let bought = || Facts { quota: Some(&quota), ..facts() };
    let asked = Decision::Perform { policy: 0, step: PolicyStep::Authorise(AuthoriserId(0)) };
    assert_eq!(decide(&process, &bought(), &visitor()), asked);
    // Again after the authoriser's answer: the quota has been charged.
    let again = Facts { progress: Progress::After(0), ..bought() };
    let refused = Decision::RefusedByPolicy { policy: 1, retry_after: None };
    assert_eq!(decide(&process, &again, &visitor()), refused);
    assert!(matches!(decide(&process, &bought(), &visitor()), Decision::OverQuota { .. }));
    // In shadow it counts, and the decision goes on.
    let shadow = ShadowRoom::default();
    let process = Process { shadow: Some(&shadow), ..process };
    let who = visitor();
    assert_eq!(decide(&process, &bought(), &who), asked);
    assert_eq!(*who.events.borrow(), [Event::QuotaWouldRefuse]);
}

#[test]
fn policies_are_performed_outside_and_the_decision_goes_on_with_the_answer() {
    let (open, ingress) = (room(10.0), Ingress::default());
    let period = Duration::from_secs(1);
    let policies = PolicySet::new(vec![
        policy(0, Policy::Ask(AuthoriserId(3))),
        policy(1, Policy::Multicast { period, ignores_cookies: None }),
        policy(2, Policy::Reroute(RouteId(4))),
        ActivePolicy { is_shadow: true, ..policy(3, Policy::Refuse) },
    ]);
    let process = Process { policies: Some(&policies), ..process(&open, &ingress) };
    let at = |progress| Facts { progress, ..facts() };
    let who = visitor();
    let performs = |progress, policy, step| {
        assert_eq!(decide(&process, &at(progress), &who), Decision::Perform { policy, step }, "{progress:?}");
    };
    performs(Progress::Start, 0, PolicyStep::Authorise(AuthoriserId(3)));
    performs(Progress::After(0), 1, PolicyStep::Coalesce { period });
    performs(Progress::After(1), 2, PolicyStep::Reroute(RouteId(4)));
    assert!(who.policies.borrow().is_empty());
    assert_eq!(decide(&process, &at(Progress::After(2)), &who), enters(EnteredBy::Room));
    assert_eq!(*who.policies.borrow(), [("shadow", 3)]);
    let denied = Decision::RefusedByPolicy { policy: 0, retry_after: None };
    assert_eq!(decide(&process, &at(Progress::Denied(0)), &who), denied);
    assert_eq!(decide(&process, &at(Progress::Over), &visitor()), enters(EnteredBy::Room));
}

#[test]
fn a_rule_refuses_admitted_sessions_only_where_it_is_for_them_too() {
    let (open, ingress) = (room(10.0), Ingress::default());
    let sessions = one_slot();
    let mut newcomers = policy(0, Policy::Refuse);
    newcomers.scope.new_sessions = true;
    let policies = PolicySet::new(vec![newcomers]);
    let process =
        Process { sessions: Some(&sessions), policies: Some(&policies), ..process(&open, &ingress) };
    let refused = Decision::RefusedByPolicy { policy: 0, retry_after: None };
    assert_eq!(decide(&process, &facts(), &visitor()), refused);
    assert_eq!(decide(&process, &of_session(facts()), &visitor()), enters(EnteredBy::Session));
}

#[test]
fn a_policy_sends_to_the_room_whatever_the_class_and_refuses_where_there_is_none() {
    let (closed, ingress) = (room(0.0), Ingress::default());
    let policies = PolicySet::new(vec![policy(6, Policy::Room)]);
    let sent = Process { policies: Some(&policies), ..process(&closed, &ingress) };
    for facts in [
        Facts { class_waits: false, ..facts() },
        Facts { skips_room: true, ..facts() },
        Facts { is_part_of_page: true, ..facts() },
    ] {
        let who = visitor();
        assert!(matches!(decide(&sent, &facts, &who), Decision::Full { .. }));
        assert_eq!(*who.policies.borrow(), [("room", 6)]);
    }
    let settings = AdmissionSettings { has_room: false, ..SETTINGS };
    let without = Process { settings, ..sent };
    let refused = Decision::RefusedByPolicy { policy: 0, retry_after: None };
    assert_eq!(decide(&without, &facts(), &visitor()), refused);
}

#[test]
fn a_visitor_who_keeps_its_ticket_in_a_cookie_is_shown_the_url_without_it() {
    let (open, ingress) = (room(10.0), Ingress::default());
    let twice = || Visitor { shows_ticket_twice: true, ..visitor() };
    assert_eq!(decide(&process(&open, &ingress), &facts(), &twice()), Decision::ShowCleanUrl);
    // Where nobody looks at tickets, nothing is done about them.
    let never = Facts { class_waits: false, ..facts() };
    assert_eq!(decide(&process(&open, &ingress), &never, &twice()), enters(EnteredBy::Unasked));
}

#[test]
fn tokengen_sends_on_and_tokencheck_sends_back() {
    let (open, ingress, check) = (room(10.0), Ingress::default(), checker());
    let tokengen = process_of(Role::TokenGen, &open, &ingress);
    let gold = Facts { skips_room: true, ..facts() };
    assert_eq!(decide(&tokengen, &gold, &visitor()), Decision::SendOnUnasked);
    let part = Facts { is_part_of_page: true, ..facts() };
    assert_eq!(decide(&tokengen, &part, &visitor()), Decision::SendOnUnasked);
    let tokencheck = process_of(Role::TokenCheck, &check, &ingress);
    assert_eq!(decide(&tokencheck, &facts(), &visitor()), Decision::SendBack);
    // Rooms of the two-process form hand tickets for the way out once tokencheck has reported; before,
    // everybody waits.
    let decision = decide(&tokengen, &facts(), &visitor());
    let is_sent = matches!(decision, Decision::SendOn { redeemed: None, .. });
    let waits = matches!(decision, Decision::Wait { position: Position::New, .. });
    assert!(is_sent || waits, "{decision:?}");
}

/// One newcomer in shadow after `ms`: the decision, and what is counted.
fn passes(process: &Process<'_>, facts: &Facts<'_>, ms: u64, key: u128) -> (Decision, Vec<Event>) {
    let who = Visitor { key: SessionKey(key), ..visitor() };
    let now = NOW + Duration::from_millis(ms);
    let decision = decide(process, &Facts { request: facts.request, now, ..*facts }, &who);
    (decision, who.events.into_inner())
}

#[test]
fn in_shadow_everybody_enters_and_who_would_have_waited_is_counted() {
    let (two_a_second, ingress, shadow) = (room(2.0), Ingress::default(), ShadowRoom::default());
    let settings = AdmissionSettings { max_wait: Duration::from_secs(5), ..SETTINGS };
    let process = Process { settings, shadow: Some(&shadow), ..process(&two_a_second, &ingress) };
    // Ten a second for three seconds: fifteen seconds' work, of which those beyond five would be refused.
    let mut counts = [0; 3];
    for n in 0..30 {
        let (decision, events) = passes(&process, &facts(), n * 100, 77);
        assert_eq!(decision, enters(EnteredBy::Room), "{n}");
        let at = match events[..] {
            [] => 0,
            [Event::RoomWouldWait] => 1,
            [Event::RoomWouldRefuse] => 2,
            _ => panic!("{events:?}"),
        };
        counts[at] += 1;
    }
    let [entered, waited, refused] = counts;
    assert_eq!(entered, 1);
    assert!((13..=16).contains(&waited) && (13..=16).contains(&refused), "{counts:?}");
    // Nobody was promised anything, so that nothing is left when the shadow ends.
    let after = Process { shadow: None, ..process };
    assert_eq!(passes(&after, &facts(), 3_100, 77).0, enters(EnteredBy::Room));
    // The work that was taken is done in the end, and nobody would wait.
    assert_eq!(passes(&process, &facts(), 20_000, 77), (enters(EnteredBy::Room), vec![]));
}

#[test]
fn in_shadow_bypass_traffic_takes_of_the_capacity_and_parts_of_pages_are_no_visitors() {
    let (two_a_second, ingress, shadow) = (room(2.0), Ingress::default(), ShadowRoom::default());
    let process = Process { shadow: Some(&shadow), ..process(&two_a_second, &ingress) };
    let part = Facts { is_part_of_page: true, ..facts() };
    let never = Facts { class_waits: false, ..facts() };
    assert_eq!(passes(&process, &part, 0, 77), (enters(EnteredBy::PartOfPage), vec![]));
    assert_eq!(passes(&process, &never, 0, 77), (enters(EnteredBy::Unasked), vec![]));
    assert_eq!(passes(&process, &facts(), 0, 77).1, [Event::RoomWouldWait]);
    assert_eq!(passes(&process, &part, 0, 77), (enters(EnteredBy::PartOfPage), vec![]));
    // With no replica to go to, the gate holds nobody either.
    let down = Visitor { is_origin_usable: false, ..visitor() };
    assert_eq!(decide(&process, &facts(), &down), enters(EnteredBy::Room));
    // A full room, and one that is not limited.
    let full = room(0.0);
    let fresh = ShadowRoom::default();
    let full = Process { admission: &full, shadow: Some(&fresh), ..process };
    let events = [0, 1].map(|ms| passes(&full, &facts(), ms, 77).1);
    assert_eq!(events[1], [Event::RoomWouldRefuse]);
    let endless = Admission::Room(Box::new(Room::new(RoomConfig::default(), Rate::MAX, NOW)));
    let endless = Process { admission: &endless, ..full };
    assert!((0..100).all(|_| passes(&endless, &facts(), 0, 77).1.is_empty()));
}

#[test]
fn in_shadow_the_session_cap_and_buckets_that_hold_hold_nobody() {
    let (open, ingress, shadow, sessions) =
        (room(100.0), Ingress::default(), ShadowRoom::default(), one_slot());
    let process = Process { sessions: Some(&sessions), shadow: Some(&shadow), ..process(&open, &ingress) };
    for (when_full, event) in
        [(WhenFull::Room, Event::RoomWouldWait), (WhenFull::Refuse, Event::SessionsWouldRefuse)]
    {
        let settings = AdmissionSettings { when_full, ..SETTINGS };
        let process = Process { settings, ..process };
        let first = passes(&process, &facts(), 0, 1);
        assert_eq!(first.0, enters(EnteredBy::Room));
        let (decision, events) = passes(&process, &facts(), 500, 2);
        assert_eq!((decision, events), (enters(EnteredBy::Room), vec![event]));
    }
    assert_eq!(sessions.count().open, 2, "both have a session, beyond the one slot");
    for key in [1, 2] {
        assert_eq!(sessions.status(SessionKey(key), NOW), SessionStatus::Admitted);
    }
    // A bucket that sends to the room holds nobody; one that refuses does.
    for (refusal, is_let_in) in [(Refusal::Room, true), (Refusal::Shed, false)] {
        let ingress = bucket(refusal);
        let process = Process { ingress: &ingress, sessions: None, ..process };
        assert_eq!(passes(&process, &facts(), 1_000, 7).0, enters(EnteredBy::Room));
        let (decision, events) = passes(&process, &facts(), 2_000, 7);
        match is_let_in {
            true => assert_eq!((decision, events), (enters(EnteredBy::Room), vec![Event::RoomWouldWait])),
            false => assert!(matches!(decision, Decision::Throttled { .. }), "{decision:?}"),
        }
    }
}
