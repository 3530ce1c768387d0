//! A visitor on the simulator's agenda, with what a browser would keep in cookies.
//!
//! A million of them wait at once, so the ticket is kept packed. It is the ticket itself, not its sealed
//! text: sealing and opening the tickets of honest visitors a million times would check nothing. Altered and
//! replayed tickets do go through the key ring.

use std::time::Duration;

use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Cost, Timestamp};

use crate::visitor::Visitor;

/// A ticket in half its size: times in whole milliseconds, as its sealed form has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packed {
    nonce: u64,
    issued_ms: u64,
    wait_ms: u32,
    before_ms: u32,
    cost: u32,
    class: u8,
}

impl Packed {
    pub(crate) fn new(ticket: &Ticket) -> Self {
        let issued_ms = ticket.issued.as_millis();
        Self {
            nonce: ticket.nonce,
            issued_ms,
            wait_ms: ticket.wait.as_millis() as u32,
            before_ms: (issued_ms - ticket.arrived.as_millis()) as u32,
            cost: ticket.cost.hundredths() as u32,
            class: ticket.class.0,
        }
    }

    pub(crate) fn ticket(&self) -> Ticket {
        let issued = Timestamp::from_millis(self.issued_ms);
        Ticket {
            class: ClassId(self.class),
            cost: Cost::from_hundredths(u64::from(self.cost)),
            issued,
            wait: Duration::from_millis(u64::from(self.wait_ms)),
            arrived: issued.saturating_sub(Duration::from_millis(u64::from(self.before_ms))),
            nonce: self.nonce,
        }
    }
}

pub(crate) const NONE: u32 = u32::MAX;

pub(crate) struct Client {
    pub(crate) visitor: Visitor,
    ticket: Packed,
    pub(crate) request: u32,
    flags: u8,
}

/// The ticket is shown with the next request.
const HOLDS: u8 = 1;
/// The ticket has been redeemed; kept because the visitor will show it again.
const USED: u8 = 2;
/// The next request goes to tokencheck.
const AT_CHECK: u8 = 4;
/// The request under way was sent on from the other process: it is the same request.
const HOPS: u8 = 8;
/// The request under way is held until its turn, which comes in a moment: it is the same request.
const HELD: u8 = 16;

impl Client {
    pub(crate) fn new(visitor: Visitor) -> Self {
        Self { visitor, ticket: Packed::default(), request: NONE, flags: 0 }
    }

    /// Something of its first bytes and of its last, wherever the compiler has put them.
    pub(crate) fn ends(&self) -> u64 {
        let at = self.visitor.at().subsec_nanos();
        u64::from(at) ^ self.ticket.nonce ^ u64::from(self.request) ^ u64::from(self.flags)
    }

    pub(crate) fn held(&self) -> Option<Ticket> {
        (self.flags & HOLDS != 0).then(|| self.ticket.ticket())
    }

    pub(crate) fn used(&self) -> Option<Ticket> {
        (self.flags & USED != 0).then(|| self.ticket.ticket())
    }

    pub(crate) fn hold(&mut self, ticket: &Ticket) {
        self.ticket = Packed::new(ticket);
        self.flags = (self.flags | HOLDS) & !USED;
    }

    /// The answer that comes with an entry takes the ticket away.
    pub(crate) fn use_up(&mut self) {
        if self.flags & HOLDS != 0 {
            self.flags = (self.flags | USED) & !HOLDS;
        }
    }

    pub(crate) fn drop_ticket(&mut self) {
        self.flags &= !(HOLDS | USED);
    }

    pub(crate) fn is_at_check(&self) -> bool {
        self.flags & AT_CHECK != 0
    }

    pub(crate) fn go_to_check(&mut self, there: bool) {
        self.flags = if there { self.flags | AT_CHECK } else { self.flags & !AT_CHECK };
    }

    pub(crate) fn hold_back(&mut self) {
        self.flags |= HELD;
    }

    pub(crate) fn take_held_back(&mut self) -> bool {
        let is_held = self.flags & HELD != 0;
        self.flags &= !HELD;
        is_held
    }

    pub(crate) fn hop(&mut self) {
        self.flags |= HOPS;
    }

    /// Whether the request that arrives was sent on; asks once.
    pub(crate) fn take_hop(&mut self) -> bool {
        let hops = self.flags & HOPS != 0;
        self.flags &= !HOPS;
        hops
    }
}

const _: () = assert!(size_of::<Option<Client>>() <= 96, "a million of them wait at once");
