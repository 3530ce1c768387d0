//! What a waiting page that asks is told.

use std::time::Duration;

use tidegate_core::desk::{Desk, RETRY_DOWN};
use tidegate_core::room::Look;
use tidegate_core::units::Timestamp;

use super::{Visitor, people_ahead};
use crate::live::Live;
use crate::page;

/// What the status document says: where the visitor stands, how long it takes, how many are ahead. `usable`: there is a
/// replica to go to.
pub fn standing(look: Look, usable: bool) -> (page::State, Duration, u64) {
    match look {
        Look::Wait(w) if usable => (page::State::Waiting, w.wait, people_ahead(&w)),
        Look::Wait(w) => (page::State::Unavailable, w.wait, people_ahead(&w)),
        // Nor do those without a place load the whole page again and again during an outage.
        _ if !usable => (page::State::Unavailable, RETRY_DOWN, 0),
        Look::Ready => (page::State::Ready, Duration::ZERO, 0),
        Look::Redeemed => (page::State::Redeemed, Duration::ZERO, 0),
        Look::Expired => (page::State::Expired, Duration::ZERO, 0),
    }
}

/// What a status poll is told about `ticket`.
pub fn look(desk: &Desk, live: &Live, visitor: &Visitor<'_>, now: Timestamp) -> (Look, Duration) {
    match visitor.ticket(live) {
        Some(Ok(ticket)) => (desk.look_at(&live.ingress, &ticket, now), now.since(ticket.arrived)),
        _ => (Look::Expired, Duration::ZERO),
    }
}
