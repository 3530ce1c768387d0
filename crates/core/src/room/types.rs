//! What goes into the room and what comes out of it.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use thiserror::Error;

use crate::ticket::Ticket;
use crate::units::{ClassId, Cost, Rate, Timestamp};

/// Shortest wait that is announced: one control tick.
pub(super) const MIN_WAIT: Duration = Duration::from_millis(100);
/// Longest wait that is announced: a wait that cannot be known is not more than a day.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);
/// When a visitor comes again whose turn it is while the origin is behind.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Newcomer {
    pub(crate) class: ClassId,
    /// The nonce of the ticket that it may get.
    pub(crate) nonce: u64,
    /// When it first came, if it had a ticket before.
    pub(crate) arrived: Option<Timestamp>,
    /// It waits in any case, at least until then.
    pub(crate) held: Option<Timestamp>,
    /// Its address, if positions are bounded by address.
    pub(crate) client: Option<IpAddr>,
}

/// What happens to a visitor without a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    Enter,
    Wait(Ticket, Wait),
    /// The schedule is full up to the longest wait.
    Full {
        /// When it is worth coming again: once there is a position, and not at the same time as others.
        retry_after: Duration,
    },
}

/// What happens to a visitor with an authentic ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Redemption {
    /// Enters; the ticket is used up.
    Enter,
    /// Too early, or the origin is behind; the ticket remains valid.
    Wait(Wait),
    /// The ticket has been used.
    Replayed,
    /// Too late. Give a new ticket: [`super::Room::arrive`] with this ticket's `arrived`.
    Expired,
}

/// The tickets that an earlier process has redeemed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RedeemedEarlier {
    /// Pairs of the slot second and the nonce.
    pub redeemed: Vec<(u64, u64)>,
    /// The nonces of those whose visitors may have got no answer, since the process was killed just then.
    /// They get a new ticket for the same turn.
    pub in_doubt: HashSet<u64>,
}

/// What a status poll returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TicketStatus {
    /// The ticket would be redeemed now.
    Ready,
    Wait(Wait),
    Redeemed,
    Expired,
}

/// An honest wait: what is expected now, not what was expected when the ticket was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    pub wait: Duration,
    /// Number in line; 1 is next.
    pub position: u64,
    /// When the wait ends.
    pub due: Timestamp,
}

impl Wait {
    /// Of a visitor whose turn it is while the origin is behind.
    pub(super) fn again(now: Timestamp) -> Self {
        Self { wait: AGAIN, position: 1, due: now + AGAIN }
    }
}

/// What the room's decisions are based on, from one tick to the next.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoomTargets {
    /// Cost units per second the origin can serve: what positions and waits are computed with.
    pub capacity: Rate,
    /// Cost units per second let in to begin with: the capacity, or more while the origin is probed.
    pub outflow: Rate,
    /// Most cost units per second let in: the outflow, or where an estimator's in-flight limit decides what
    /// the origin does, the operator's bound; [`Rate::MAX`] for no bound.
    pub ceiling: Rate,
}

impl From<Rate> for RoomTargets {
    fn from(capacity: Rate) -> Self {
        Self { capacity, outflow: capacity, ceiling: capacity }
    }
}

/// The room in figures, for metrics and the API. No decision uses it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RoomState {
    /// Visitors with a due time that the virtual clock has not reached.
    pub waiting: u64,
    /// Of these, visitors whose page will ask again shortly.
    pub present: u64,
    /// Work promised from the virtual clock on.
    pub promised: Cost,
    /// Wait of a newcomer.
    pub wait: Duration,
    /// Seconds by which the virtual clock is ahead of the wall clock; negative: behind.
    pub lead_s: f64,
    /// Share of the promised work that comes to be redeemed.
    pub show_up: f64,
    /// Promises per second as a multiple of capacity.
    pub overbook: f64,
    /// First second of the schedule that may have room.
    pub frontier: u64,
    /// Work admitted beyond what the capacity has done, as seconds at capacity.
    pub backlog_s: f64,
    /// Nonces of redeemed tickets that are kept.
    pub redeemed: usize,
}

/// The settings need a longer schedule: [`super::Room::restore`] what this room saves into a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("max_wait and grace need a schedule of {needed_s} s, this room has {has_s} s")]
pub struct NeedsNewRoom {
    pub needed_s: u64,
    pub has_s: u64,
}
