//! Several tokenchecks let each ticket in once among them: each ticket has one owner.
//!
//! The owner is one of the tokenchecks, by the ticket's nonce. Only the owner says that a ticket may be used,
//! from its own set of redeemed tickets. Another tokencheck that is shown the ticket when its turn has come
//! asks the owner, which grants it to one asker at most. While the owner cannot be asked the ticket waits: no
//! other tokencheck takes it over, because a process that cannot be reached may still let visitors in.
//!
//! **Numbers of claims** make messages harmless that are lost, late or repeated. A tokencheck claims a ticket
//! once at a time, with rising numbers also over its restarts. The owner keeps the number of the claim that
//! it granted. It grants the ticket again to the same tokencheck for a later claim, since that process knows
//! by itself whether it has used it; a release counts only for the claim that holds the ticket, so that one
//! which arrives late takes nothing away from a later claim.
//!
//! Rejected: a shared store (on a request's path, and one more thing that may be down); a redirect to the
//! owner (behind a balancer a visitor cannot choose); taking over from an owner that does not answer (it can
//! be made safe only by a lease from a majority, and then one that is cut off lets nobody in).

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;

use super::ticket_admission::{TicketAdmission, TicketCheck};
use crate::redeem::Recorded;
use crate::sync::lock;
use crate::units::Timestamp;

/// One of several tokenchecks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// From one.
    pub number: u16,
    /// How many there are.
    pub count: u16,
}

impl Member {
    /// The number of the tokencheck that owns the ticket with this nonce. Nonces are random, so all own as
    /// many tickets.
    pub fn owner_of(self, nonce: u64) -> u16 {
        1 + ((u128::from(nonce) * u128::from(self.count)) >> 64) as u16
    }
}

/// A tokencheck asks a ticket's owner whether it may let the ticket's visitor in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    pub due: Timestamp,
    pub arrived: Timestamp,
    pub nonce: u64,
    /// The number of the tokencheck that asks.
    pub by: u16,
    /// Greater than that of all claims before it of the same tokencheck.
    pub number: u64,
}

/// What became of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnerAnswer {
    /// The asker may let the visitor in, and nobody else may.
    Granted,
    /// The ticket was used, or is too old.
    Used,
    /// It cannot be known now: the owner does not answer, or keeps no more tickets.
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Holder {
    by: u16,
    claim: u64,
}

/// The part of a tokencheck that is one of several.
pub(super) struct Ownership {
    pub(super) member: Member,
    /// Tickets that were granted to others, by slot second and nonce. All of them are among the redeemed
    /// ones.
    granted: Mutex<BTreeMap<(u64, u64), Holder>>,
    /// Nonces of tickets that this process is asking about.
    asking: Mutex<HashSet<u64>>,
}

impl Ownership {
    pub(super) fn new(member: Member) -> Self {
        Self { member, granted: Mutex::default(), asking: Mutex::default() }
    }

    /// Grants a ticket of this owner's, or does not.
    pub(super) fn grant(&self, claim: &Claim, tickets: &TicketAdmission, now: Timestamp) -> OwnerAnswer {
        if self.member.owner_of(claim.nonce) != self.member.number {
            return OwnerAnswer::Unknown;
        }
        let mut granted = lock(&self.granted);
        let (key, new) = ((claim.due.second(), claim.nonce), Holder { by: claim.by, claim: claim.number });
        if let Some(holder) = granted.get_mut(&key) {
            let is_renewed = holder.by == new.by && holder.claim <= new.claim;
            if is_renewed {
                *holder = new;
            }
            return if is_renewed { OwnerAnswer::Granted } else { OwnerAnswer::Used };
        }
        match tickets.is_void(claim.due, claim.arrived, now) {
            None => {}
            Some(TicketCheck::Behind) => return OwnerAnswer::Unknown,
            Some(_) => return OwnerAnswer::Used,
        }
        match tickets.redeemed.record(key.0, key.1) {
            Recorded::First => {
                granted.insert(key, new);
                OwnerAnswer::Granted
            }
            Recorded::Duplicate => OwnerAnswer::Used,
            Recorded::Full => OwnerAnswer::Unknown,
        }
    }

    /// The holder has not used the ticket: it is good again.
    pub(super) fn release(&self, claim: &Claim, tickets: &TicketAdmission) {
        let mut granted = lock(&self.granted);
        let key = (claim.due.second(), claim.nonce);
        if granted.get(&key) == Some(&Holder { by: claim.by, claim: claim.number }) {
            granted.remove(&key);
            tickets.redeemed.remove(key.0, key.1);
        }
    }

    /// Whether this process may claim the ticket: it claims each ticket once at a time.
    pub(super) fn begin_claim(&self, nonce: u64) -> bool {
        lock(&self.asking).insert(nonce)
    }

    pub(super) fn end_claim(&self, nonce: u64) {
        lock(&self.asking).remove(&nonce);
    }

    /// Forgets tickets of seconds before `second`, as the redeemed ones are forgotten.
    pub(super) fn forget_before(&self, second: u64) {
        let mut granted = lock(&self.granted);
        if granted.first_key_value().is_some_and(|(oldest, _)| oldest.0 < second) {
            *granted = granted.split_off(&(second, 0));
        }
    }
}
