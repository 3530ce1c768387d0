//! The other ones of several tokenchecks, as a request sees them: it claims its ticket from the tokencheck
//! that owns it (`tidegate_core::room::OwnerAnswer`). The control thread carries the messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_core::room::{Claim, Member, OwnerAnswer};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::Timestamp;
use tokio::sync::{mpsc, oneshot};

use crate::shared::Shared;
use tidegate_settings::Role;

pub enum PeerMessage {
    /// Answered through the channel; dropped without an answer if it is not known.
    Claim(Claim, oneshot::Sender<OwnerAnswer>),
    /// The ticket of this claim was not used.
    Release(Claim),
}

/// All tokenchecks, by their numbers.
pub struct Peers {
    pub member: Member,
    links: Vec<PeerLink>,
    /// Rises over restarts too, because it begins with the time.
    next_claim: AtomicU64,
}

struct PeerLink {
    outbox: mpsc::UnboundedSender<PeerMessage>,
    /// Until the control thread takes it.
    inbox: Mutex<Option<mpsc::UnboundedReceiver<PeerMessage>>>,
    is_reachable: AtomicBool,
}

impl Peers {
    /// `None`: this process is not one of several tokenchecks.
    pub fn new(role: &Role, now: Timestamp) -> Option<Self> {
        let member = member(role)?;
        let link = |_| {
            let (outbox, inbox) = mpsc::unbounded_channel();
            PeerLink { outbox, inbox: Mutex::new(Some(inbox)), is_reachable: AtomicBool::new(true) }
        };
        let links = (0..member.count).map(link).collect();
        Some(Self { member, links, next_claim: now.as_micros().into() })
    }

    fn link(&self, number: u16) -> &PeerLink {
        &self.links[usize::from(number - 1)]
    }

    /// The messages for this tokencheck; once.
    pub fn take_inbox(&self, number: u16) -> Option<mpsc::UnboundedReceiver<PeerMessage>> {
        self.link(number).inbox.lock().take()
    }

    /// Whether the last message to this tokencheck was answered. Returns what was known before.
    pub fn set_reachable(&self, number: u16, is_reachable: bool) -> bool {
        self.link(number).is_reachable.swap(is_reachable, Ordering::Relaxed)
    }

    fn send(&self, number: u16, message: PeerMessage) {
        // The control thread ends after the last request.
        let _ = self.link(number).outbox.send(message);
    }
}

/// Which of several tokenchecks a process is.
pub fn member(role: &Role) -> Option<Member> {
    match role {
        Role::TokenCheck { peers, number, .. } if !peers.is_empty() => {
            Some(Member { number: *number, count: u16::try_from(peers.len()).unwrap_or(u16::MAX) })
        }
        _ => None,
    }
}

/// A claim from before it is sent until its ticket is used. If it is dropped before, the owner may grant the
/// ticket to others again.
pub struct ClaimGuard {
    shared: Arc<Shared>,
    owner: u16,
    claim: Claim,
    /// No other request of this process may claim the ticket.
    is_open: bool,
    /// The owner may have granted it.
    may_hold: bool,
}

impl ClaimGuard {
    /// For a request that the core had claim this ticket.
    pub fn new(shared: &Arc<Shared>, ticket: &Ticket, owner: u16) -> Self {
        let peers = shared.peers.as_ref();
        let claim = Claim {
            due: ticket.due(),
            arrived: ticket.arrived,
            nonce: ticket.nonce,
            by: peers.map_or(0, |peers| peers.member.number),
            number: peers.map_or(0, |peers| peers.next_claim.fetch_add(1, Ordering::Relaxed)),
        };
        Self { shared: shared.clone(), owner, claim, is_open: true, may_hold: false }
    }

    /// What the owner says. While it is known not to answer, it is not asked.
    pub async fn ask(&mut self) -> OwnerAnswer {
        let shared = self.shared.clone();
        let Some(peers) = &shared.peers else { return OwnerAnswer::Unknown };
        if !peers.link(self.owner).is_reachable.load(Ordering::Relaxed) {
            return OwnerAnswer::Unknown;
        }
        let (tell, told) = oneshot::channel();
        self.may_hold = true;
        peers.send(self.owner, PeerMessage::Claim(self.claim, tell));
        let answer = told.await.unwrap_or(OwnerAnswer::Unknown);
        self.may_hold = answer != OwnerAnswer::Used;
        answer
    }

    /// The ticket is redeemed here: from now on this process knows by itself that it is used.
    pub fn redeemed(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.shared.admission.end_claim(self.claim.nonce);
        }
    }

    /// The ticket is used up, unless it turns out that nothing was sent.
    pub fn spend(&mut self) {
        self.may_hold = false;
    }

    pub fn unspend(&mut self) {
        self.may_hold = true;
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        if let Some(peers) = self.shared.peers.as_ref().filter(|_| self.may_hold) {
            peers.send(self.owner, PeerMessage::Release(self.claim));
        }
        self.redeemed();
    }
}
