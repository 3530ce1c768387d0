//! The two-process form (WebQ III-B): tokencheck's half of the room.
//!
//! Tokengen keeps the schedule and the virtual clock; tokencheck keeps the redeemed nonces and decides over
//! tickets with the virtual clock of the last update. When no updates come, the virtual clock follows the
//! wall clock: the schedule as promised, which is WebQ. The in-flight limit of the last update remains in
//! force: how many requests the origin can work on did not change because a link broke.

use std::sync::Mutex;
use std::time::Duration;

use super::origin_load::ORIGIN_GONE;
use super::ownership::{Claim, Member, OwnerAnswer, Ownership};
use super::report::{ControlUpdate, Feedback, add_shown, gather};
use super::settings::RoomConfig;
use super::ticket_admission::{TicketAdmission, TicketCheck};
use super::types::{AGAIN, MIN_WAIT, Redemption, RoomTargets, TicketStatus, Wait};
use crate::capacity::Sample;
use crate::class_costs::ClassCosts;
use crate::gate::Totals;
use crate::session::{ExpectedSessions, SessionPace};
use crate::sync::{Atomic, AtomicBool, AtomicU64, Ordering, lock};
use crate::ticket::Ticket;
use crate::units::{ClassId, Cost, Rate, Timestamp};
use crate::virtual_clock::VirtualTime;

/// Without an update for so long, the virtual clock follows the wall clock.
const UPDATE_HOLDS: Duration = Duration::from_secs(5);
/// Slot seconds in one report; more than the grace period spans.
pub(super) const MAX_SHOWN: usize = 4_096;
/// The virtual backlog keeps spare time of so many seconds.
const BURST_S: f64 = 1.0;

/// Tokencheck's half.
pub struct Checker {
    costs: ClassCosts,
    tickets: TicketAdmission,
    ticked_at: Atomic<Timestamp>,
    update: Mutex<Option<ControlUpdate>>,
    updated_at: Atomic<Timestamp>,
    /// Work admitted until the last report, in hundredths modulo 2^64.
    reported: AtomicU64,
    reported_at: Atomic<Timestamp>,
    /// For the next report: work redeemed by slot second, and ended requests.
    shown: Mutex<Vec<(u64, Cost)>>,
    samples: Mutex<Vec<Sample>>,
    sessions: Mutex<Option<SessionPace>>,
    expected: Mutex<Option<ExpectedSessions>>,
    is_origin_gone: AtomicBool,
    /// `None`: this is the only tokencheck.
    ownership: Option<Ownership>,
}

impl Checker {
    /// What requests of each class cost. Learned costs are those that tokengen charges.
    pub fn costs(&self) -> &ClassCosts {
        &self.costs
    }

    pub(crate) fn tickets(&self) -> &TicketAdmission {
        &self.tickets
    }

    /// A checker that follows the wall clock until it gets an update.
    pub fn new(config: &RoomConfig, capacity: Rate, now: Timestamp) -> Self {
        Self {
            costs: ClassCosts::new(&config.class_costs),
            tickets: TicketAdmission::new(config, capacity, now),
            ticked_at: Atomic::new(now),
            update: Mutex::default(),
            updated_at: Atomic::new(now),
            reported: AtomicU64::new(0),
            reported_at: Atomic::new(now),
            shown: Mutex::default(),
            samples: Mutex::default(),
            sessions: Mutex::default(),
            expected: Mutex::default(),
            is_origin_gone: AtomicBool::new(false),
            ownership: None,
        }
    }

    /// It is one of several tokenchecks. Nobody knows which tickets of visitors who first came before
    /// `unknown_before` this one has let in.
    #[must_use]
    pub fn one_of(mut self, member: Member, unknown_before: Timestamp) -> Self {
        self.ownership = Some(Ownership::new(member));
        self.tickets.refuse_arrived_before(unknown_before);
        self
    }

    /// The number of the other tokencheck that owns the ticket; `None`: this one does.
    pub fn other_owner(&self, ticket: &Ticket) -> Option<u16> {
        let member = self.ownership.as_ref()?.member;
        Some(member.owner_of(ticket.nonce)).filter(|owner| *owner != member.number)
    }

    /// Answers the claim of another tokencheck to a ticket that this one owns. What is granted must be noted
    /// where it outlives the process before the other one is told.
    pub fn grant(&self, claim: &Claim, now: Timestamp) -> OwnerAnswer {
        self.ownership.as_ref().map_or(OwnerAnswer::Unknown, |all| all.grant(claim, &self.tickets, now))
    }

    /// The tokencheck with this claim has not used the ticket.
    pub fn release(&self, claim: &Claim) {
        if let Some(all) = &self.ownership {
            all.release(claim, &self.tickets);
        }
    }

    /// Whether this process may claim the ticket from its owner now: it claims each ticket once at a time.
    pub(crate) fn begin_claim(&self, ticket: &Ticket) -> bool {
        self.ownership.as_ref().is_some_and(|all| all.begin_claim(ticket.nonce))
    }

    /// The visitor was let in, or was not.
    pub fn end_claim(&self, nonce: u64) {
        if let Some(all) = &self.ownership {
            all.end_claim(nonce);
        }
    }

    /// As [`super::Room::redeem`]. Visitors who enter at once are sent on with a ticket without a wait.
    pub fn redeem(&self, ticket: &Ticket, now: Timestamp) -> Redemption {
        let check = self.tickets.redeem(ticket, now);
        if check == TicketCheck::Enter {
            self.tickets.load.admit(ticket.cost);
            if !ticket.wait.is_zero() {
                self.note_shown(ticket.due().second(), ticket.cost);
            }
        }
        check.redemption(|| self.wait(ticket, now), now)
    }

    fn note_shown(&self, second: u64, cost: Cost) {
        let mut shown = lock(&self.shown);
        if !add_shown(&mut shown, second, cost) && shown.len() < MAX_SHOWN {
            shown.push((second, cost));
        }
    }

    /// As [`super::Room::status`].
    pub fn look(&self, ticket: &Ticket, now: Timestamp) -> TicketStatus {
        self.tickets.check(ticket, now).status(|| self.wait(ticket, now), now)
    }

    /// By the schedule: how much is promised before the ticket is only known to tokengen.
    fn wait(&self, ticket: &Ticket, now: Timestamp) -> Wait {
        let wait = ticket.due().since(self.tickets.clock.at(now)).max(MIN_WAIT);
        Wait { wait, position: 1 + wait.as_secs() / AGAIN.as_secs().max(1), due: now + wait }
    }

    /// As [`super::Room::is_late`].
    pub fn is_late(&self, ticket: &Ticket) -> bool {
        self.tickets.is_late(ticket)
    }

    /// As [`super::Room::give_back`].
    pub fn give_back(&self, ticket: &Ticket) {
        self.tickets.give_back(ticket);
    }

    /// As [`super::Room::charge`].
    pub fn charge(&self, cost: Cost) {
        self.tickets.load.admit(cost);
    }

    /// As [`super::Room::take_part`].
    pub(crate) fn take_part(&self, nonce: u64, now: Timestamp) -> bool {
        self.tickets.parts.take(nonce, now)
    }

    /// The control tick. `queued`: admitted work that waits for the origin.
    pub fn tick(&self, now: Timestamp, queued: Cost) {
        self.tickets.load.set_queued(queued);
        self.step(now);
    }

    /// The control tick, with all of the gate. Without a usable origin no one enters.
    pub fn tick_with(&self, gate: &Totals, is_origin_usable: bool, now: Timestamp) {
        self.tickets.load.observe(gate, now);
        self.is_origin_gone.store(!is_origin_usable, Ordering::Relaxed);
        if !is_origin_usable {
            self.tickets.load.set_queued(ORIGIN_GONE);
        }
        self.step(now);
    }

    fn step(&self, now: Timestamp) {
        let at = self.tickets.clock.at(now);
        if now.since(self.updated_at.load()) > UPDATE_HOLDS {
            self.tickets.clock.set(VirtualTime { at, follows_clock: true });
        }
        let dt_s = now.since(self.ticked_at.swap(now)).as_secs_f64();
        self.tickets.lateness.follow(self.tickets.clock.at(now), now, dt_s);
        self.tickets.load.backlog.forget_spare(now, BURST_S);
        let oldest = self.tickets.forget_old(now);
        if let Some(all) = &self.ownership {
            all.forget_before(oldest);
        }
    }

    /// As [`super::Room::pace_sessions`]; tokengen gets it with the next report.
    pub fn pace_sessions(&self, pace: Option<SessionPace>) {
        self.tickets.set_keeps_order(pace.is_some_and(|pace| pace.free.is_some()));
        *lock(&self.sessions) = pace;
    }

    /// As [`super::Room::expect_sessions`]; tokengen gets it with the next report.
    pub fn expect_sessions(&self, expected: Option<ExpectedSessions>) {
        *lock(&self.expected) = expected;
    }

    /// Requests that ended, for the next report.
    pub fn observe(&self, samples: &[Sample]) {
        let mut kept = lock(&self.samples);
        samples.iter().for_each(|sample| gather(&mut kept, sample));
    }

    /// What happened since the last call. A report that does not arrive is to be merged into the next.
    pub fn report(&self, gate: &Totals, now: Timestamp) -> Feedback {
        let total = self.tickets.load.mean_cost.work();
        let admitted = total.wrapping_sub(self.reported.swap(total, Ordering::Relaxed));
        let mut samples = std::mem::take(&mut *lock(&self.samples));
        samples.sort_by_key(|sample| sample.ended);
        // Requests that a class's own limits hold back do not concern tokengen.
        let (queued, queued_cost) = (gate.backlog(), gate.backlog_cost());
        let gate = Totals { queued, queued_cost, held: 0, held_cost: Cost::ZERO, ..*gate };
        Feedback {
            from: 0,
            at: now,
            admitted: Cost::from_hundredths(admitted),
            over: now.since(self.reported_at.swap(now)),
            queued: queued_cost,
            shown: std::mem::take(&mut *lock(&self.shown)),
            gate: Some(gate),
            is_origin_gone: self.is_origin_gone.load(Ordering::Relaxed),
            samples,
            sessions: *lock(&self.sessions),
            expected: *lock(&self.expected),
        }
    }

    /// Puts tokengen's update in force.
    pub fn follow(&self, update: ControlUpdate, now: Timestamp) {
        self.tickets.load.set_targets(&targets(&update), now);
        self.tickets.clock.set(update.clock);
        self.updated_at.store(now);
        *lock(&self.update) = Some(update);
    }

    /// Charges what tokengen charges, where the operator has given this process no number.
    pub fn follow_costs(&self, costs: impl IntoIterator<Item = (ClassId, Cost)>) {
        costs.into_iter().for_each(|(class, cost)| self.costs.charge(class, cost));
    }

    /// The last update, however old.
    pub fn last_update(&self) -> Option<ControlUpdate> {
        *lock(&self.update)
    }

    /// What decisions are based on: the last update.
    pub fn targets(&self) -> RoomTargets {
        self.last_update().as_ref().map_or_else(|| self.tickets.load.capacity().into(), targets)
    }
}

fn targets(update: &ControlUpdate) -> RoomTargets {
    RoomTargets { ceiling: update.ceiling, ..update.capacity.into() }
}
