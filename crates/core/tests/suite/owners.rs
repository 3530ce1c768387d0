//! Several tokenchecks: whatever becomes of the messages between them and of the processes themselves, a
//! ticket lets one visitor in.

use std::time::Duration;

use tidegate_core::admission::{Admission, AdmissionRequest, Decision, EnteredBy, Entrance, Presented};
use tidegate_core::ingress::Ingress;
use tidegate_core::room::{Checker, Claim, Member, OwnerAnswer, RedeemedEarlier, RoomConfig};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const TICKETS: u64 = 12;
const COUNT: u16 = 3;

/// Tickets that are due now, of different owners.
fn ticket(number: u64) -> Ticket {
    let nonce = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (class, cost, wait) = (ClassId(0), Cost::ONE, Duration::ZERO);
    Ticket { class, cost, issued: NOW, wait, arrived: NOW, nonce }
}

fn tokencheck(number: u16, unknown_before: Timestamp) -> Admission {
    let checker = Checker::new(&RoomConfig::default(), Rate::MAX, NOW);
    let checker = checker.one_of(Member { number, count: COUNT }, unknown_before);
    Admission::Checker { checker, capacity: Rate::MAX.into() }
}

fn checker(admission: &Admission) -> &Checker {
    match admission {
        Admission::Checker { checker, .. } => checker,
        Admission::Room(_) => unreachable!("all are tokenchecks"),
    }
}

fn shows(at: &Admission, ticket: Ticket, owner: Option<OwnerAnswer>, now: Timestamp) -> Decision {
    let shown = Presented::Ticket(ticket);
    let asking = AdmissionRequest { class: ClassId(0), cost: Cost::ONE, shown, sends_on: false };
    let (ingress, max_wait) = (&Ingress::default(), Duration::ZERO);
    let entrance =
        Entrance { ingress, max_wait, waits: true, returns: true, client: None, owner, may_be_held: false };
    at.ask_for(&entrance, &asking, None, &mut || 1, &|_| {}, now)
}

#[derive(Clone, Copy)]
enum Message {
    Claim(Claim, usize),
    /// The owner's answer, or that none came.
    Answer(Claim, usize, OwnerAnswer),
    Release(Claim, usize),
}

/// Three tokenchecks and a network that reorders, and perhaps loses and repeats.
struct World {
    checks: Vec<Admission>,
    /// What outlives each process: tickets whose visitors were answered, or that were granted.
    logs: Vec<Vec<(u64, u64)>>,
    /// Claims that each process waits for.
    open: Vec<Vec<Claim>>,
    net: Vec<Message>,
    claims: u64,
    entered: [u32; TICKETS as usize],
    random: u64,
    loses: bool,
}

impl World {
    fn new(seed: u64, loses: bool) -> Self {
        Self {
            checks: (1..=COUNT).map(|number| tokencheck(number, NOW)).collect(),
            logs: vec![Vec::new(); COUNT.into()],
            open: vec![Vec::new(); COUNT.into()],
            net: Vec::new(),
            claims: 0,
            entered: [0; TICKETS as usize],
            random: seed.wrapping_mul(0xD129_0C2B_5F4A_9E31) | 1,
            loses,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn number_of(claim: &Claim) -> u64 {
        (0..TICKETS).find(|number| ticket(*number).nonce == claim.nonce).expect("a ticket")
    }

    /// A visitor comes to one of them.
    fn visit(&mut self, number: u64, at: usize) {
        let shown = ticket(number);
        match shows(&self.checks[at], shown, None, NOW) {
            Decision::Enter { by: EnteredBy::Ticket(_) } => self.enters(number, at, None),
            Decision::AskOwner { ticket, owner, .. } => {
                self.claims += 1;
                let Ticket { arrived, nonce, .. } = ticket;
                let by = at as u16 + 1;
                let claim = Claim { due: ticket.due(), arrived, nonce, by, number: self.claims };
                self.open[at].push(claim);
                self.net.push(Message::Claim(claim, usize::from(owner) - 1));
            }
            Decision::Wait { .. } | Decision::SendBack => {}
            other => panic!("{other:?}"),
        }
    }

    /// The request goes to the origin, or never does.
    fn enters(&mut self, number: u64, at: usize, claim: Option<(Claim, usize)>) {
        let is_unsent = self.random(4) == 0;
        if is_unsent {
            self.checks[at].give_back(&ticket(number));
            self.net.extend(claim.map(|(claim, owner)| Message::Release(claim, owner)));
        } else {
            self.entered[number as usize] += 1;
            self.logs[at].push((ticket(number).due().second(), ticket(number).nonce));
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Claim(claim, owner) => {
                let answer = checker(&self.checks[owner]).grant(&claim, NOW);
                if answer == OwnerAnswer::Granted {
                    self.logs[owner].push((claim.due.second(), claim.nonce));
                }
                self.net.push(Message::Answer(claim, owner, answer));
            }
            Message::Release(claim, owner) => checker(&self.checks[owner]).release(&claim),
            Message::Answer(claim, owner, answer) => {
                let at = usize::from(claim.by) - 1;
                // A second answer, or one to a process that has been killed, finds nobody.
                let Some(open) = self.open[at].iter().position(|open| *open == claim) else { return };
                self.open[at].swap_remove(open);
                let number = Self::number_of(&claim);
                let decision = shows(&self.checks[at], ticket(number), Some(answer), NOW);
                if matches!(decision, Decision::Enter { .. }) {
                    self.checks[at].end_claim(claim.nonce);
                    self.enters(number, at, Some((claim, owner)));
                } else {
                    if answer != OwnerAnswer::Used {
                        self.net.push(Message::Release(claim, owner));
                    }
                    self.checks[at].end_claim(claim.nonce);
                }
            }
        }
    }

    /// `kill -9`, and the same tokencheck again with what it has noted.
    fn restart(&mut self, at: usize) {
        self.checks[at] = tokencheck(at as u16 + 1, NOW);
        let redeemed = self.logs[at].clone();
        self.checks[at].restore_redeemed(RedeemedEarlier { redeemed, ..RedeemedEarlier::default() });
        self.open[at].clear();
    }

    fn step(&mut self) {
        let kind = self.random(16);
        if kind < 6 || self.net.is_empty() {
            let (number, at) = (self.random(TICKETS), self.random(COUNT.into()) as usize);
            return self.visit(number, at);
        }
        if self.loses && kind == 6 {
            let at = self.random(COUNT.into()) as usize;
            return self.restart(at);
        }
        let at = self.random(self.net.len() as u64) as usize;
        let message = self.net[at];
        let fate = if self.loses { self.random(8) } else { 7 };
        if fate != 0 {
            self.net.swap_remove(at);
        }
        match message {
            // No answer in time; the claim may still arrive.
            Message::Claim(claim, owner) if fate == 1 => {
                self.net.extend([Message::Answer(claim, owner, OwnerAnswer::Unknown), message]);
            }
            Message::Claim(claim, owner) if fate == 2 => {
                self.net.push(Message::Answer(claim, owner, OwnerAnswer::Unknown));
            }
            Message::Answer(claim, owner, _) if fate == 2 => {
                self.net.push(Message::Answer(claim, owner, OwnerAnswer::Unknown));
            }
            Message::Release(..) if fate == 2 => {}
            message => self.deliver(message),
        }
    }
}

#[test]
fn a_ticket_lets_one_visitor_in_whatever_is_lost_late_or_killed() {
    let mut entered = 0;
    for seed in 1..=3_000 {
        let mut world = World::new(seed, true);
        for _ in 0..400 {
            world.step();
            assert!(world.entered.iter().all(|n| *n <= 1), "seed {seed}: {:?}", world.entered);
        }
        entered += world.entered.iter().sum::<u32>();
    }
    // Losses cost some visitors their tickets, but not most of them.
    assert!(entered > 3_000 * TICKETS as u32 / 2, "{entered}");
}

#[test]
fn nobody_loses_a_ticket_while_messages_arrive_at_last() {
    for seed in 1..=500 {
        let mut world = World::new(seed, false);
        for _ in 0..2_000 {
            world.step();
        }
        assert_eq!(world.entered, [1; TICKETS as usize], "seed {seed}");
    }
}

#[test]
fn all_own_as_many_tickets() {
    let mut random = World::new(1, false);
    let mut owned = [0; COUNT as usize];
    for _ in 0..30_000 {
        let nonce = random.random(u64::MAX);
        owned[usize::from(Member { number: 1, count: COUNT }.owner_of(nonce)) - 1] += 1;
    }
    assert!(owned.iter().all(|n| (9_500..10_500).contains(n)), "{owned:?}");
    let last = Member { number: 1, count: 64 };
    assert_eq!((last.owner_of(0), last.owner_of(u64::MAX)), (1, 64));
}

#[test]
fn a_tokencheck_that_forgot_what_it_let_in_refuses_those_who_came_before() {
    let since = NOW + Duration::from_secs(1);
    let own = (0..TICKETS)
        .map(ticket)
        .find(|ticket| Member { number: 1, count: COUNT }.owner_of(ticket.nonce) == 1);
    let own = own.expect("a ticket of the first");
    let anew = tokencheck(1, since);
    // Until its clock and that of tokengen must be past it, they wait: a new ticket would be refused too.
    assert!(matches!(shows(&anew, own, None, NOW), Decision::Wait { .. }));
    let claim = Claim { due: own.due(), arrived: own.arrived, nonce: own.nonce, by: 2, number: 1 };
    assert_eq!(checker(&anew).grant(&claim, NOW), OwnerAnswer::Unknown);
    let tolerance = RoomConfig::default().tolerance;
    assert_eq!(checker(&anew).grant(&claim, since + tolerance), OwnerAnswer::Used);
    assert_eq!(shows(&anew, own, None, since + tolerance), Decision::SendBack);
    let later = Ticket { arrived: since, issued: since, ..own };
    assert!(matches!(shows(&anew, later, None, since), Decision::Enter { .. }));
}

#[test]
fn one_request_at_a_time_claims_a_ticket() {
    let check = tokencheck(1, NOW);
    let other = (0..TICKETS).map(ticket).find(|ticket| checker(&check).other_owner(ticket).is_some());
    let other = other.expect("a ticket of another one");
    assert!(matches!(shows(&check, other, None, NOW), Decision::AskOwner { .. }));
    assert!(matches!(shows(&check, other, None, NOW), Decision::Wait { .. }), "it comes again");
    assert!(matches!(shows(&check, other, Some(OwnerAnswer::Unknown), NOW), Decision::Wait { .. }));
    check.end_claim(other.nonce);
    assert!(matches!(shows(&check, other, None, NOW), Decision::AskOwner { .. }));
    assert_eq!(shows(&check, other, Some(OwnerAnswer::Used), NOW), Decision::SendBack);
    // A claim of a ticket that belongs to somebody else is not granted.
    let claim = Claim { due: NOW, arrived: NOW, nonce: other.nonce, by: 3, number: 1 };
    assert_eq!(checker(&check).grant(&claim, NOW), OwnerAnswer::Unknown);
}
