//! A request that was admitted: in the gate's queue, or at the origin.

use std::time::Duration;

use tidegate_core::histogram::{Histogram, Recorder};
use tidegate_core::queue::{Lane, QueueHandle};
use tidegate_core::session::{SessionKey, SessionRequest};
use tidegate_core::ticket::{Pass, Ticket};
use tidegate_core::units::{ClassId, Cost, Timestamp};
use tidegate_gateway::upstream::balance::InFlight;

use crate::model;

/// The session of a request that was let in.
#[derive(Clone, Copy)]
pub(crate) struct SessionOf {
    pub(crate) key: SessionKey,
    pub(crate) begins: bool,
}

#[derive(Default)]
pub(crate) struct Passage {
    pub(crate) ticket: Option<Ticket>,
    /// The answer brings cookies.
    pub(crate) cookies: bool,
    pub(crate) session: Option<SessionOf>,
    /// The same in the table.
    pub(crate) under_way: Option<SessionRequest>,
}

/// A request's number in the slab: the lower half of its identity.
pub(crate) fn slot(id: u64) -> u32 {
    id as u32
}

/// What tells a request from those that had its number before: the upper half of its identity.
pub(crate) fn generation(id: u64) -> u32 {
    (id >> 32) as u32
}

pub(crate) fn identity(slot: u32, generation: u32) -> u64 {
    (u64::from(generation) << 32) | u64::from(slot)
}

pub(crate) struct Request {
    pub(crate) client: u32,
    /// It asks for a part of a page; its visitor may have left.
    pub(crate) is_part: bool,
    /// Tells it from earlier requests with the same number.
    pub(crate) generation: u32,
    pub(crate) class: ClassId,
    /// At the gate.
    pub(crate) lane: Lane,
    pub(crate) cost: Cost,
    pub(crate) path: u32,
    pub(crate) idempotent: bool,
    pub(crate) ticket: Option<Ticket>,
    /// The answer brings cookies: the ticket goes, a pass comes.
    pub(crate) cookies: bool,
    /// Its session, if it is of one that is admitted.
    pub(crate) session: Option<SessionOf>,
    /// The same in the table, which it keeps alive.
    pub(crate) under_way: Option<SessionRequest>,
    pub(crate) arrived: Timestamp,
    pub(crate) sent_us: u64,
    /// Requests at the origin then, this one included.
    pub(crate) in_flight: u32,
    /// Where it waits at the gate, or did.
    pub(crate) spot: Option<QueueHandle>,
    /// Where it is; `None`: in the gate's queue.
    pub(crate) at: Option<AtOrigin>,
    /// When the head of its answer came.
    pub(crate) head_us: Option<u64>,
    /// Its answer goes on, and its in-flight slot is another's.
    pub(crate) streams: bool,
    pub(crate) retried: bool,
    /// Its visitor has left. It keeps its in-flight slot until the origin has answered.
    pub(crate) has_left: bool,
}

pub(crate) struct AtOrigin {
    pub(crate) replica: usize,
    pub(crate) ticket: model::Ticket,
    /// Counts it at the replica, for the choice of others; `None` without a gate.
    pub(crate) flight: Option<InFlight>,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct PartCounts {
    pub(crate) asked: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
}

/// Response times of sessions' requests while visitors wait, from their arrival at the gate.
#[derive(Default)]
pub(crate) struct SessionTimes {
    /// Of requests that began a session, and of all others.
    newcomers: Recorder,
    others: Recorder,
}

impl SessionTimes {
    pub(crate) fn record(&self, session: SessionOf, took: Duration) {
        if session.begins { &self.newcomers } else { &self.others }.record(took);
    }

    /// In milliseconds, with their names in a summary.
    pub(crate) fn figures(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let quantile = |recorder: &Recorder, q| {
            let mut times = Histogram::default();
            times.absorb(recorder);
            times.quantile(q).map(|time| time.as_secs_f64() * 1e3)
        };
        let figures = [
            ("newcomers_p50_while_waiting_ms", quantile(&self.newcomers, 0.5)),
            ("newcomers_p99_while_waiting_ms", quantile(&self.newcomers, 0.99)),
            ("sessions_p50_while_waiting_ms", quantile(&self.others, 0.5)),
            ("sessions_p99_while_waiting_ms", quantile(&self.others, 0.99)),
        ];
        figures.into_iter().filter_map(|(name, figure)| Some((name, figure?)))
    }
}

pub(crate) struct Page {
    pub(crate) visitor: u32,
    pub(crate) kind: u32,
    pub(crate) step: u8,
    pub(crate) pass: Option<Pass>,
}
