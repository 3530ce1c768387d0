//! What a waiting page that asks is told.

use std::time::Duration;

use tidegate_core::admission::{Admission, RETRY_DOWN};
use tidegate_core::room::TicketStatus;
use tidegate_core::units::Timestamp;

use crate::config::Config;
use crate::config::page;
use crate::proxy::stages::room::{Visitor, people_ahead};

/// What the status document says: where the visitor stands, how long it takes, how many are ahead. `usable`: there is a
/// replica to go to.
pub fn standing(look: TicketStatus, usable: bool) -> (page::State, Duration, u64) {
    match look {
        TicketStatus::Wait(w) if usable => (page::State::Waiting, w.wait, people_ahead(&w)),
        TicketStatus::Wait(w) => (page::State::Unavailable, w.wait, people_ahead(&w)),
        // Nor do those without a place load the whole page again and again during an outage.
        _ if !usable => (page::State::Unavailable, RETRY_DOWN, 0),
        TicketStatus::Ready => (page::State::Ready, Duration::ZERO, 0),
        TicketStatus::Redeemed => (page::State::Redeemed, Duration::ZERO, 0),
        TicketStatus::Expired => (page::State::Expired, Duration::ZERO, 0),
    }
}

/// What a status poll is told about `ticket`.
pub fn look(
    desk: &Admission,
    live: &Config,
    visitor: &Visitor<'_>,
    now: Timestamp,
) -> (TicketStatus, Duration) {
    match visitor.ticket(live) {
        Some(Ok(ticket)) => (desk.look_at(&live.ingress, &ticket, now), now.since(ticket.arrived)),
        _ => (TicketStatus::Expired, Duration::ZERO),
    }
}
