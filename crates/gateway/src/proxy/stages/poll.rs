//! Answers the polls of waiting pages.

use std::time::Duration;

use http::Method;
use tidegate_core::admission::{Admission, Position, Presented, RETRY_DOWN};
use tidegate_core::measure::Event;
use tidegate_core::room::{TicketStatus, is_held};
use tidegate_core::units::Timestamp;
use tidegate_http::RequestHead;

use crate::config::{ClassTag, Config, page};
use crate::proxy::context::RequestContext;
use crate::proxy::respond::{self, OwnAnswer};
use crate::proxy::stages::room::{ShownTicket, people_ahead};

/// The content of the status document: the visitor's state, its wait, and how many are ahead. `usable`: a
/// replica is usable.
pub fn standing(look: TicketStatus, usable: bool) -> (page::State, Duration, u64) {
    match look {
        TicketStatus::Wait(w) if usable => (page::State::Waiting, w.wait, people_ahead(&w)),
        TicketStatus::Wait(w) => (page::State::Unavailable, w.wait, people_ahead(&w)),
        // Pages without a position must not reload again and again during an outage either.
        _ if !usable => (page::State::Unavailable, RETRY_DOWN, 0),
        TicketStatus::Ready => (page::State::Ready, Duration::ZERO, 0),
        TicketStatus::Redeemed => (page::State::Redeemed, Duration::ZERO, 0),
        TicketStatus::Expired => (page::State::Expired, Duration::ZERO, 0),
    }
}

fn look_at(
    admission: &Admission,
    live: &Config,
    shown: Presented,
    now: Timestamp,
) -> (TicketStatus, Duration) {
    match shown {
        Presented::Ticket(ticket) => {
            (admission.look_at(&live.ingress, &ticket, now), now.since(ticket.arrived))
        }
        _ => (TicketStatus::Expired, Duration::ZERO),
    }
}

impl RequestContext {
    /// The tiny document that a waiting page polls. Shortly before the visitor's turn it is held until then.
    pub(crate) async fn status(&mut self, head: &RequestHead, url_ticket: Option<&str>) -> OwnAnswer {
        self.worker.count(Event::StatusPolls);
        let class = head.query().and_then(|q| q.strip_prefix("c=")).and_then(|c| c.parse().ok());
        let known = class.and_then(|mark| self.config.marked(ClassTag(mark)));
        let (Some(class), true) = (known, matches!(*head.method(), Method::GET | Method::HEAD)) else {
            return respond::not_found();
        };
        self.class = class;
        let visitor = self.visitor(&head.fields, url_ticket);
        let shared = &self.worker.shared;
        let ShownTicket { shown, is_twice, .. } = visitor.ticket(&self.config);
        let usable = shared.has_somewhere_to_go(&self.config.settings.role);
        let (mut look, mut waited) = look_at(&shared.admission, &self.config, shown, self.started);
        if let (Presented::Ticket(ticket), TicketStatus::Wait(left)) = (shown, look)
            && usable
            && is_held(left.wait, Duration::ZERO)
        {
            Box::pin(self.hold(&ticket, left.wait)).await;
            (look, waited) = look_at(&self.worker.shared.admission, &self.config, shown, self.started);
        }
        let shared = &self.worker.shared;
        // The URL's ticket may go once the cookie's does.
        let ticket = (is_twice && matches!(look, TicketStatus::Wait(_) | TicketStatus::Ready)).then_some("");
        let (state, wait, place) = standing(look, usable);
        let spread = rand::Rng::random(&mut *self.worker.rng.borrow_mut());
        let poll = page::poll_interval(wait, &shared.admission.ask_every(), spread);
        if let (Presented::Ticket(ticket), TicketStatus::Wait(_)) = (&shown, look) {
            shared.admission.will_ask(ticket, Position::Kept, poll, self.started);
        }
        respond::status_document(&self.config, state, wait, place, poll, waited, ticket)
    }
}
