//! Claims a ticket from the tokencheck that owns it, and decides again with the answer. It decides nothing.

use tidegate_core::admission::Progress;
use tidegate_http::RequestHead;

use crate::proxy::context::RequestContext;
use crate::proxy::stages::admission::Asked;
use crate::proxy::stages::room::{Claiming, Outcome};
use crate::shared::peers::ClaimGuard;

impl RequestContext {
    /// The decision after the owner's answer. The claim goes with an entered request, until its ticket is
    /// used up; otherwise it is dropped, and others may be granted the ticket.
    pub(crate) async fn decide_with_owner(
        &mut self,
        claiming: Claiming,
        head: &RequestHead,
        url_ticket: Option<&str>,
    ) -> (Outcome, Option<ClaimGuard>) {
        let Claiming { ticket, owner, waits } = claiming;
        let mut claim = ClaimGuard::new(&self.worker.shared, &ticket, owner);
        self.is_prompt = false;
        let answer = claim.ask().await;
        let progress = Progress::Claimed { answer, waits };
        let asked = Asked { head, url_ticket, policies: None, is_plain: false, progress, may_be_held: false };
        let outcome = self.decide(&asked);
        let is_redeemed = matches!(&outcome, Outcome::Enter { ticket: Some(_), .. });
        if is_redeemed {
            claim.redeemed();
        }
        (outcome, is_redeemed.then_some(claim))
    }
}
