//! A request that was admitted: in the gate's queue, or at the origin.

use tidegate_core::queue::QueueHandle;
use tidegate_core::session::SessionRequest;
use tidegate_core::ticket::Ticket as Place;
use tidegate_core::units::{ClassId, Cost, Timestamp};
use tidegate_gateway::upstream::balance::InFlight;

use super::seats::Seated;
use crate::model::Ticket;

pub(crate) struct Request {
    pub(crate) guest: u32,
    /// Told apart from earlier requests in the same place.
    pub(crate) generation: u32,
    pub(crate) class: ClassId,
    pub(crate) cost: Cost,
    pub(crate) path: u32,
    pub(crate) idempotent: bool,
    /// The ticket redeemed for it.
    pub(crate) ticket: Option<Place>,
    /// The answer brings cookies: the ticket goes, a pass comes.
    pub(crate) cookies: bool,
    /// Its session, if it is of one that is admitted.
    pub(crate) seated: Option<Seated>,
    /// The same in the table, which it keeps alive.
    pub(crate) under_way: Option<SessionRequest>,
    /// By the gate's clock.
    pub(crate) arrived: Timestamp,
    /// When it went to the origin.
    pub(crate) sent_us: u64,
    /// Requests at the origin then, this one included.
    pub(crate) in_flight: u32,
    /// Where it waits at the gate, or did.
    pub(crate) spot: Option<QueueHandle>,
    /// Where it is; `None`: in the gate's queue.
    pub(crate) at: Option<AtOrigin>,
    /// When the head of its answer came.
    pub(crate) head_us: Option<u64>,
    /// Its answer goes on, and its place at the gate is another's.
    pub(crate) streams: bool,
    /// It is a second attempt.
    pub(crate) retried: bool,
}

pub(crate) struct AtOrigin {
    pub(crate) replica: usize,
    pub(crate) ticket: Ticket,
    /// Counts it at the replica, for the choice of others; `None` without a gate.
    pub(crate) flight: Option<InFlight>,
}
