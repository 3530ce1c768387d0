//! Claims a ticket from the tokencheck that owns it, and decides again with the answer. It decides nothing.

use http::request;
use tidegate_core::admission::Progress;
use tidegate_core::ticket::Ticket;

use crate::proxy::context::RequestContext;
use crate::proxy::stages::admission::Asked;
use crate::proxy::stages::room::Outcome;
use crate::shared::peers::ClaimGuard;

/// A request that the core had claim its ticket.
pub(crate) struct Claiming {
    pub(crate) ticket: Ticket,
    pub(crate) owner: u16,
    pub(crate) waits: bool,
}

impl RequestContext {
    /// The decision after the owner's answer. The claim goes with an entered request, until its ticket is used
    /// up; otherwise it is dropped, and others may be granted the ticket.
    pub(crate) async fn decide_with_owner(
        &mut self,
        claiming: Claiming,
        parts: &request::Parts,
        url_ticket: Option<&str>,
    ) -> (Outcome, Option<ClaimGuard>) {
        let Claiming { ticket, owner, waits } = claiming;
        let mut claim = ClaimGuard::new(&self.worker.shared, &ticket, owner);
        let answer = claim.ask().await;
        let progress = Progress::Claimed { answer, waits };
        let outcome = self.decide(&Asked { parts, url_ticket, policies: None, is_plain: false, progress });
        let is_redeemed = matches!(&outcome, Outcome::Enter { ticket: Some(_), .. });
        if is_redeemed {
            claim.redeemed();
        }
        (outcome, is_redeemed.then_some(claim))
    }
}
