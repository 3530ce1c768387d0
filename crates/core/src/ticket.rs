//! Tickets and passes: signed proofs that visitors carry, so that the gate keeps no state per visitor.
//!
//! A ticket is WebQ's token (III-C): time stamp, wait, and a keyed hash over both. Departures from the paper:
//! class, cost and first arrival are signed too, so that a new ticket keeps the seniority of the old one;
//! a nonce makes redemption exactly-once possible; MD5 became HMAC-SHA-256 (RFC 2104) cut to 128 bits
//! (section 5 of the RFC allows half the output, and a forger has one online guess per request); the address
//! became a [`Binding`] of choice, because the addresses of one mobile visitor change while waiting.
//!
//! ```text
//! ticket  kind key issued wait before class cost nonce | tag
//! bytes    1    1    6     4     4      1    4     8   | 16
//! pass    kind key use issued age class nonce | tag
//! bytes    1    1   1    6     5    1     8   | 16
//!
//! tag = first 16 bytes of HMAC-SHA-256(key, domain padded with NUL to 64 ‖ payload ‖ binding)
//! ```
//!
//! Numbers are big-endian, times are milliseconds; `kind` holds the version (high half) and the kind of
//! binding (low half). Every part has a fixed length, so two different inputs of the MAC never have the same
//! bytes. The domain fills a whole SHA-256 block: it is hashed once per key, and payload and binding fit the
//! one block that remains, so that a seal costs two block operations. 45 and 39 bytes are multiples of three:
//! base64url has neither padding nor spare bits, and a ticket has exactly one spelling.
//!
//! Rejected: JWT (three times the size; the sender chooses the algorithm); encryption (nothing in a ticket is
//! a secret, only its authorship matters); signatures (only gates verify, and they can share a key).

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::units::{ClassId, Cost, Timestamp};

mod binding;
mod keys;

pub use binding::{Binding, BindingKinds, Presenter};
pub use keys::{KeyError, KeyRing};

use binding::Kind;
use keys::{Domain, TAG_BYTES};

const VERSION: u8 = 1;
const TICKET_PAYLOAD: usize = 29;
const PASS_PAYLOAD: usize = 23;
const TICKET_BYTES: usize = TICKET_PAYLOAD + TAG_BYTES;
const PASS_BYTES: usize = PASS_PAYLOAD + TAG_BYTES;
/// Largest time that six bytes of milliseconds hold (the year 10889).
const MAX_U48: u64 = (1 << 48) - 1;
const MAX_U40: u64 = (1 << 40) - 1;

/// A promise of the waiting room (WebQ III-C). Times are whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    pub class: ClassId,
    pub cost: Cost,
    pub issued: Timestamp,
    /// The wait announced then; the ticket is due at `issued + wait`.
    pub wait: Duration,
    /// When the visitor first arrived, at or before `issued`. A new ticket keeps it.
    pub arrived: Timestamp,
    /// Makes the ticket unique, so that it can be redeemed exactly once.
    pub nonce: u64,
}

impl Ticket {
    /// Characters of a sealed ticket.
    pub const TEXT_LEN: usize = TICKET_BYTES / 3 * 4;

    /// Whether the text says of itself that it is bound to an address. It may be forged.
    pub fn is_for_an_address(text: &[u8]) -> bool {
        let mut head = [0; 3];
        let decoded = text.get(..4).map(|start| URL_SAFE_NO_PAD.decode_slice(start, &mut head));
        matches!(decoded, Some(Ok(_)))
            && matches!(Kind::from_bits(head[0] & 0x0f), Some(Kind::Ip | Kind::IpPrefix))
    }

    /// When the ticket is due, by the schedule at the time of issue.
    pub fn due(&self) -> Timestamp {
        self.issued + self.wait
    }

    /// How long its visitor has waited at `now`, since it first arrived. `None`: it was never told to wait;
    /// tokengen sends visitors on with such a ticket while the room is empty.
    pub fn waited(&self, now: Timestamp) -> Option<Duration> {
        let has_waited = !self.wait.is_zero() || self.arrived < self.issued;
        has_waited.then(|| now.since(self.arrived))
    }

    /// Fields that exceed their bytes are cut to the largest value: a wait or a seniority of 49 days.
    fn payload(&self, kind: Kind, key: u8) -> [u8; TICKET_PAYLOAD] {
        let before = self.issued.as_millis().saturating_sub(self.arrived.as_millis());
        let mut w = Writer::<TICKET_PAYLOAD>::new(kind, key);
        w.put(self.issued.as_millis().min(MAX_U48), 6);
        w.put(u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX).min(u64::from(u32::MAX)), 4);
        w.put(before.min(u64::from(u32::MAX)), 4);
        w.put(u64::from(self.class.0), 1);
        w.put(self.cost.hundredths().min(u64::from(u32::MAX)), 4);
        w.put(self.nonce, 8);
        w.done()
    }

    /// When its visitor first arrived, by the text of a ticket whose key is unknown. Anybody could have
    /// written it: no decision may depend on it.
    pub fn claimed_arrival(text: &[u8]) -> Option<Timestamp> {
        let bytes = decode::<TICKET_BYTES>(text).ok()?;
        let payload = bytes[..TICKET_PAYLOAD].try_into().expect("TICKET_BYTES > TICKET_PAYLOAD");
        Some(Self::from_payload(&payload).arrived)
    }

    fn from_payload(payload: &[u8; TICKET_PAYLOAD]) -> Self {
        let mut r = Reader::after_head(payload);
        let issued = Timestamp::from_millis(r.take(6));
        let wait = Duration::from_millis(r.take(4));
        let arrived = issued.saturating_sub(Duration::from_millis(r.take(4)));
        let class = ClassId(r.take(1) as u8);
        let cost = Cost::from_hundredths(r.take(4));
        Self { class, cost, issued, wait, arrived, nonce: r.take(8) }
    }
}

/// What a [`Pass`] lets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassKind {
    /// Every request of an admitted session.
    Session,
    /// The sub-resources of an admitted page.
    Page,
}

/// Proof of admission: lets the next requests through without another wait. Times are whole milliseconds.
///
/// Its validity is decided where it is read (`session.timeout`, `session.max_age`), so that a changed
/// configuration applies to existing passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pass {
    pub kind: PassKind,
    /// The class whose ticket was redeemed.
    pub class: ClassId,
    /// When the pass was issued; renewed with activity.
    pub issued: Timestamp,
    /// When the session was admitted; not after `issued`, never renewed.
    pub first: Timestamp,
    /// Identifies the session; the same in every renewal.
    pub nonce: u64,
}

impl Pass {
    /// Characters of a sealed pass.
    pub const TEXT_LEN: usize = PASS_BYTES / 3 * 4;

    fn payload(&self, kind: Kind, key: u8) -> [u8; PASS_PAYLOAD] {
        let age = self.issued.as_millis().saturating_sub(self.first.as_millis());
        let mut w = Writer::<PASS_PAYLOAD>::new(kind, key);
        w.put(self.kind as u64, 1);
        w.put(self.issued.as_millis().min(MAX_U48), 6);
        w.put(age.min(MAX_U40), 5);
        w.put(u64::from(self.class.0), 1);
        w.put(self.nonce, 8);
        w.done()
    }

    fn from_payload(payload: &[u8; PASS_PAYLOAD]) -> Option<Self> {
        let mut r = Reader::after_head(payload);
        let kind = match r.take(1) {
            k if k == PassKind::Session as u64 => PassKind::Session,
            k if k == PassKind::Page as u64 => PassKind::Page,
            _ => return None,
        };
        let issued = Timestamp::from_millis(r.take(6));
        let first = issued.saturating_sub(Duration::from_millis(r.take(5)));
        Some(Self { kind, class: ClassId(r.take(1) as u8), issued, first, nonce: r.take(8) })
    }
}

/// Why a ticket or pass was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TicketError {
    #[error("malformed: not the text of a ticket")]
    Malformed,
    #[error("version: expected a ticket of version {VERSION}")]
    Version,
    /// The gate has lost the key with its state directory, or it was rotated away: its visitors did nothing
    /// wrong. A forger who names such a key gets what somebody without a ticket gets.
    #[error("unknown key: the ticket's key is not in the ring")]
    UnknownKey,
    /// The tag does not fit: altered, made with another key, carried by somebody else, or of a kind of
    /// binding that is not accepted. Which of these is not reported: it would help only a forger.
    #[error("forged: the ticket was altered or belongs to another visitor")]
    Forged,
}

/// The text of a sealed ticket or pass: base64url, ready for a cookie or a URL. Lives on the stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    text: [u8; Ticket::TEXT_LEN],
    len: u8,
}

impl Sealed {
    fn encode(payload: &[u8], tag: [u8; TAG_BYTES]) -> Self {
        let (mut bytes, len) = ([0; TICKET_BYTES], payload.len() + TAG_BYTES);
        bytes[..payload.len()].copy_from_slice(payload);
        bytes[payload.len()..len].copy_from_slice(&tag);
        let mut text = [0; Ticket::TEXT_LEN];
        let len = URL_SAFE_NO_PAD.encode_slice(&bytes[..len], &mut text).expect("the longest payload fits");
        Self { text, len: len as u8 }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("base64url is ASCII")
    }

    /// The text as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.len)]
    }
}

/// Hides the text, because it is the ticket itself and does not belong in logs.
impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} characters)", self.len)
    }
}

impl KeyRing {
    /// Signs `ticket` for the visitor that `binding` describes, with the ring's first key.
    ///
    /// A [`Ticket`] in whole milliseconds comes back from [`KeyRing::open`] as it was.
    pub fn seal(&self, ticket: &Ticket, binding: &Binding) -> Sealed {
        let payload = ticket.payload(binding.kind(), self.signing_id());
        Sealed::encode(&payload, self.sign(Domain::Ticket, &payload, &binding.bytes()))
    }

    /// Reads a sealed ticket shown by `presenter`. Only the kinds of binding in `accepted` count.
    pub fn open(
        &self,
        text: &[u8],
        presenter: &Presenter,
        accepted: BindingKinds,
    ) -> Result<Ticket, TicketError> {
        let payload =
            self.verify::<TICKET_BYTES, TICKET_PAYLOAD>(Domain::Ticket, text, presenter, accepted)?;
        Ok(Ticket::from_payload(&payload))
    }

    /// Signs `pass` for the visitor that `binding` describes.
    pub fn seal_pass(&self, pass: &Pass, binding: &Binding) -> Sealed {
        let payload = pass.payload(binding.kind(), self.signing_id());
        Sealed::encode(&payload, self.sign(Domain::Pass, &payload, &binding.bytes()))
    }

    /// Reads a sealed pass shown by `presenter`. Only the kinds of binding in `accepted` count.
    pub fn open_pass(
        &self,
        text: &[u8],
        presenter: &Presenter,
        accepted: BindingKinds,
    ) -> Result<Pass, TicketError> {
        let payload = self.verify::<PASS_BYTES, PASS_PAYLOAD>(Domain::Pass, text, presenter, accepted)?;
        Pass::from_payload(&payload).ok_or(TicketError::Malformed)
    }

    /// From text to authenticated payload. `ALL` is `PAYLOAD` plus the tag.
    fn verify<const ALL: usize, const PAYLOAD: usize>(
        &self,
        domain: Domain,
        text: &[u8],
        presenter: &Presenter,
        accepted: BindingKinds,
    ) -> Result<[u8; PAYLOAD], TicketError> {
        const { assert!(ALL == PAYLOAD + TAG_BYTES && ALL.is_multiple_of(3)) };
        let bytes = decode::<ALL>(text)?;
        let kind = Kind::from_bits(bytes[0] & 0x0f).ok_or(TicketError::Malformed)?;
        let key = self.key(bytes[1])?;
        let payload: [u8; PAYLOAD] = bytes[..PAYLOAD].try_into().expect("ALL > PAYLOAD");
        let tag: [u8; TAG_BYTES] = bytes[PAYLOAD..].try_into().expect("ALL - PAYLOAD = TAG_BYTES");
        let binding = if accepted.has(kind) { presenter.binding(kind) } else { None };
        let genuine = binding.is_some_and(|binding| key.check(domain, &payload, &binding.bytes(), &tag));
        if genuine { Ok(payload) } else { Err(TicketError::Forged) }
    }
}

/// The bytes of a ticket or pass, before anything about them is known to be authentic.
fn decode<const ALL: usize>(text: &[u8]) -> Result<[u8; ALL], TicketError> {
    if text.len() != ALL / 3 * 4 {
        return Err(TicketError::Malformed);
    }
    let mut bytes = [0; ALL];
    match URL_SAFE_NO_PAD.decode_slice_unchecked(text, &mut bytes) {
        Ok(n) if n == ALL => {}
        _ => return Err(TicketError::Malformed),
    }
    if bytes[0] >> 4 == VERSION { Ok(bytes) } else { Err(TicketError::Version) }
}

/// Writes numbers of fixed width one after the other.
struct Writer<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Writer<N> {
    fn new(kind: Kind, key: u8) -> Self {
        let mut bytes = [0; N];
        bytes[0] = VERSION << 4 | kind as u8;
        bytes[1] = key;
        Self { bytes, at: 2 }
    }

    fn put(&mut self, value: u64, width: usize) {
        self.bytes[self.at..self.at + width].copy_from_slice(&value.to_be_bytes()[8 - width..]);
        self.at += width;
    }

    fn done(self) -> [u8; N] {
        assert_eq!(self.at, N, "every byte of the payload is written");
        self.bytes
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn after_head(payload: &'a [u8]) -> Self {
        Self(&payload[2..])
    }

    fn take(&mut self, width: usize) -> u64 {
        let (head, rest) = self.0.split_at(width);
        self.0 = rest;
        head.iter().fold(0, |n, &b| n << 8 | u64::from(b))
    }
}
