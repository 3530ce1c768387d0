//! Is it this ticket's turn? The part of the room that tokencheck has too.
//!
//! A ticket is redeemed when the virtual clock has reached its due time and the origin is not behind, once,
//! and within the grace period. All is decided from atomics that the tick publishes and the redeemed nonces.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::Duration;

use super::lateness::{Lateness, Punctuality};
use super::origin_load::OriginLoad;
use super::page_parts::PageParts;
use super::settings::RoomConfig;
use super::types::{RedeemedEarlier, Redemption, TicketStatus, Wait};
use crate::mutants::{self, Mutant};
use crate::redeem::{Recorded, RedeemedNonces};
use crate::sync::{Atomic, AtomicBool, Ordering};
use crate::ticket::Ticket;
use crate::units::{Cost, Rate, Timestamp};
use crate::virtual_clock::{VirtualClock, VirtualTime};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TicketCheck {
    Enter,
    Early,
    /// Its turn has come, but the origin is behind: come again soon.
    Behind,
    Replayed,
    Expired,
}

impl TicketCheck {
    /// As the answer to a request; `wait` computes the wait until the ticket's turn.
    pub(super) fn redemption(self, wait: impl FnOnce() -> Wait, now: Timestamp) -> Redemption {
        match self {
            Self::Enter => Redemption::Enter,
            Self::Early => Redemption::Wait(wait()),
            Self::Behind => Redemption::Wait(Wait::again(now)),
            Self::Replayed => Redemption::Replayed,
            Self::Expired => Redemption::Expired,
        }
    }

    /// As the answer to a status poll.
    pub(super) fn status(self, wait: impl FnOnce() -> Wait, now: Timestamp) -> TicketStatus {
        match self {
            Self::Enter => TicketStatus::Ready,
            Self::Early => TicketStatus::Wait(wait()),
            Self::Behind => TicketStatus::Wait(Wait::again(now)),
            Self::Replayed => TicketStatus::Redeemed,
            Self::Expired => TicketStatus::Expired,
        }
    }
}

pub(crate) struct TicketAdmission {
    pub(super) clock: VirtualClock,
    pub(super) load: OriginLoad,
    pub(super) lateness: Lateness,
    pub(super) redeemed: RedeemedNonces,
    pub(super) parts: PageParts,
    /// Session slots are counted: the order is kept also where the origin takes all.
    keeps_order: AtomicBool,
    /// Nonces among the redeemed ones.
    in_doubt: OnceLock<HashSet<u64>>,
    /// Nobody knows which tickets of visitors who first came before this instant were used.
    unknown_before: Atomic<Timestamp>,
    /// Work of admitted visitors who were asked to come again, since the last tick.
    pub(super) deferred: Atomic<Cost>,
}

impl TicketAdmission {
    pub(super) fn new(config: &RoomConfig, capacity: Rate, now: Timestamp) -> Self {
        Self {
            clock: VirtualClock::new(VirtualTime { at: now, follows_clock: true }),
            load: OriginLoad::new(capacity, now),
            lateness: Lateness::new(config, now),
            redeemed: RedeemedNonces::default(),
            parts: PageParts::default(),
            keeps_order: AtomicBool::new(false),
            in_doubt: OnceLock::new(),
            unknown_before: Atomic::new(Timestamp::default()),
            deferred: Atomic::new(Cost::ZERO),
        }
    }

    pub(super) fn set_keeps_order(&self, keeps_order: bool) {
        self.keeps_order.store(keeps_order, Ordering::Relaxed);
    }

    /// Decides without redeeming.
    pub(super) fn check(&self, ticket: &Ticket, now: Timestamp) -> TicketCheck {
        if self.is_redeemed(ticket) { TicketCheck::Replayed } else { self.check_unused(ticket, now) }
    }

    /// Redeems the ticket if its turn has come: once, also if others show it at the same time. The caller
    /// charges its work with [`OriginLoad::admit`].
    pub(super) fn redeem(&self, ticket: &Ticket, now: Timestamp) -> TicketCheck {
        match self.check_unused(ticket, now) {
            // Recording it finds out whether it was there: one search, not two.
            TicketCheck::Enter => match self.record(ticket) {
                Recorded::First => TicketCheck::Enter,
                Recorded::Duplicate => TicketCheck::Replayed,
                Recorded::Full => TicketCheck::Behind,
            },
            _ if self.is_redeemed(ticket) => TicketCheck::Replayed,
            check => check,
        }
    }

    /// Redeems a ticket whatever its turn, for a visitor with a session slot that no one else in line could
    /// take. `false`: it has been used, or cannot be recorded.
    pub(super) fn redeem_out_of_turn(&self, ticket: &Ticket) -> bool {
        self.record(ticket) == Recorded::First
    }

    /// Undoes a redemption whose request never reached the origin.
    pub(super) fn give_back(&self, ticket: &Ticket) {
        if !mutants::is(Mutant::GiveBackIsForgotten) {
            self.redeemed.remove(ticket.due().second(), ticket.nonce);
        }
        self.load.cancel(ticket.cost);
    }

    fn record(&self, ticket: &Ticket) -> Recorded {
        self.redeemed.record(ticket.due().second(), ticket.nonce)
    }

    fn is_redeemed(&self, ticket: &Ticket) -> bool {
        self.redeemed.contains(ticket.due().second(), ticket.nonce)
    }

    /// Decides over a ticket as if it had not been redeemed.
    fn check_unused(&self, ticket: &Ticket, now: Timestamp) -> TicketCheck {
        let due = ticket.due();
        if let Some(void) = self.is_void(due, ticket.arrived, now) {
            return void;
        }
        let capacity = self.load.capacity();
        if capacity >= Rate::MAX && !self.keeps_order.load(Ordering::Relaxed) {
            return TicketCheck::Enter;
        }
        // A ticket without a wait was made for a visitor who could enter at once, by the clock of the process
        // that made it: the schedule does not matter. The origin's load does. While all replicas are down
        // tokengen goes on sending visitors, who must not all enter the moment one is back.
        let is_for_now = ticket.wait.is_zero();
        let early = Duration::from_secs(mutants::is(Mutant::TurnASecondEarly).into());
        if !is_for_now && due > self.clock.at(now) + self.lateness.tolerance.load() + early {
            return TicketCheck::Early;
        }
        if capacity == Rate::ZERO || self.load.is_behind(self.lateness.of(due), now) {
            self.deferred.add(ticket.cost);
            return TicketCheck::Behind;
        }
        TicketCheck::Enter
    }

    /// Whether a ticket is too old, or may have been used without this process knowing. Such a visitor gets
    /// a new ticket, whose first arrival must be after the unknown time by the other process's clock too:
    /// until then it waits, or it would be sent to and fro.
    pub(super) fn is_void(&self, due: Timestamp, arrived: Timestamp, now: Timestamp) -> Option<TicketCheck> {
        if self.lateness.is_expired(due) {
            return Some(TicketCheck::Expired);
        }
        let unknown_before = self.unknown_before.load();
        if arrived >= unknown_before {
            return None;
        }
        let is_settled = now >= unknown_before + self.lateness.tolerance.load();
        Some(if is_settled { TicketCheck::Expired } else { TicketCheck::Behind })
    }

    /// Refuses the tickets of all visitors who first came before `instant`.
    pub(super) fn refuse_arrived_before(&self, instant: Timestamp) {
        self.unknown_before.store(instant);
    }

    /// Whether the ticket is shown longer after its turn than a page needs to react.
    pub(super) fn is_late(&self, ticket: &Ticket) -> bool {
        self.lateness.of(ticket.due()) == Punctuality::Late
    }

    /// The tickets that an earlier process has redeemed.
    pub(crate) fn restore_redeemed(&self, earlier: RedeemedEarlier) {
        for &(second, nonce) in &earlier.redeemed {
            // A full set refuses later tickets until it has room again.
            let _ = self.redeemed.record(second, nonce);
        }
        // Only a new room restores.
        let _ = self.in_doubt.set(earlier.in_doubt);
        self.lateness.set_knows_redeemed();
    }

    /// The ticket that takes the place of one of which nobody knows whether its visitor was answered before
    /// the process was killed. It is always the same one, and so admits once.
    pub(crate) fn successor(&self, ticket: &Ticket) -> Option<Ticket> {
        let is_in_doubt = self.in_doubt.get()?.contains(&ticket.nonce);
        let nonce = ticket.nonce.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        is_in_doubt.then_some(Ticket { nonce, ..*ticket })
    }

    /// The redeemed tickets that could still be shown.
    pub(crate) fn redeemed(&self) -> Vec<(u64, u64)> {
        self.redeemed.all()
    }

    /// The oldest second of the schedule whose tickets are good.
    pub(crate) fn oldest_valid(&self, now: Timestamp) -> u64 {
        self.lateness.oldest_valid(now)
    }

    /// On a tick: forgets tickets that are no longer good. Returns the oldest second whose tickets are.
    pub(super) fn forget_old(&self, now: Timestamp) -> u64 {
        let oldest = self.oldest_valid(now);
        self.redeemed.forget_before(oldest);
        oldest
    }
}
