//! The key ring: the first key signs, all verify, so that tickets stay valid while a key is rotated.
//!
//! To rotate: add the new key in front, and remove the old one when its last ticket has expired
//! (`room.max_wait` + `room.grace`). With several gates, add the new key *behind* the old everywhere first.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::mutants::{self, Mutant};

pub(super) const TAG_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
const BLOCK: usize = 64;

/// The purpose of a signature: a ticket is never valid as a pass, nor a pass as a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Domain {
    Ticket,
    Pass,
}

impl Domain {
    /// The name, padded to a whole block: hashed once per key, not once per ticket.
    fn block(self) -> [u8; BLOCK] {
        let name: &[u8] = match self {
            Self::Ticket => b"tidegate ticket v1\0",
            Self::Pass => b"tidegate pass v1\0",
        };
        let mut block = [0; BLOCK];
        block[..name.len()].copy_from_slice(name);
        block
    }
}

/// Holds only the states that HMAC derives from the secret, so that nothing can print the secret.
#[derive(Clone)]
pub(super) struct Key {
    id: u8,
    /// By [`Domain`].
    states: [Hmac<Sha256>; 2],
}

impl Key {
    fn new(id: u8, secret: &[u8; SECRET_BYTES]) -> Self {
        let states = [Domain::Ticket, Domain::Pass].map(|domain| {
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
            mac.update(&domain.block());
            mac
        });
        Self { id, states }
    }

    fn tag(&self, domain: Domain, payload: &[u8], binding: &[u8]) -> [u8; TAG_BYTES] {
        let mut mac = self.states[domain as usize].clone();
        mac.update(payload);
        mac.update(binding);
        let full = mac.finalize().into_bytes();
        full[..TAG_BYTES].try_into().expect("SHA-256 has 32 bytes")
    }

    /// Whether `tag` is what this key makes of it, compared in constant time.
    pub(super) fn check(
        &self,
        domain: Domain,
        payload: &[u8],
        binding: &[u8],
        tag: &[u8; TAG_BYTES],
    ) -> bool {
        let is_authentic = bool::from(self.tag(domain, payload, binding).ct_eq(tag));
        is_authentic || mutants::is(Mutant::AnyTagIsAuthentic)
    }
}

/// The keys that sign and verify tickets and passes.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::ticket::{Binding, BindingKinds, KeyRing, Presenter, Ticket};
/// use tidegate_core::units::{ClassId, Cost, Timestamp};
///
/// let ring = KeyRing::generate(1, [7; 32]); // In earnest: 32 random bytes.
/// let issued = Timestamp::from_secs(1_700_000_000);
/// let wait = Duration::from_secs(90);
/// let ticket = Ticket { class: ClassId(0), cost: Cost::ONE, issued, wait, arrived: issued, nonce: 42 };
/// let visitor = Presenter { ip: [192, 0, 2, 1].into(), cookie: None };
///
/// let sealed = ring.seal(&ticket, &Binding::IpPrefix(visitor.ip));
/// assert_eq!(ring.open(sealed.as_bytes(), &visitor, BindingKinds::IP_PREFIX), Ok(ticket));
/// ```
#[derive(Clone)]
pub struct KeyRing {
    /// Not empty; ids are unique, so there are at most 256 and a search by id is short.
    keys: Vec<Key>,
}

impl KeyRing {
    /// Reads a ring: `ID:SECRET` entries, separated by white space or commas; the first signs.
    ///
    /// `ID` is 0..=255, `SECRET` 64 hexadecimal digits (32 bytes).
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let entries = text.split(|c: char| c.is_whitespace() || c == ',').filter(|e| !e.is_empty());
        let mut keys: Vec<Key> = Vec::new();
        for (entry, text) in entries.enumerate() {
            let (id, secret) = text.split_once(':').ok_or(KeyError::Form { entry })?;
            let id = id.parse::<u8>().map_err(|_| KeyError::Id { entry })?;
            let secret = from_hex(secret).ok_or(KeyError::Secret { entry })?;
            if keys.iter().any(|k| k.id == id) {
                return Err(KeyError::Duplicate { entry, id });
            }
            keys.push(Key::new(id, &secret));
        }
        if keys.is_empty() { Err(KeyError::Empty) } else { Ok(Self { keys }) }
    }

    /// A ring of one key. `secret` must come from a cryptographic random generator.
    pub fn generate(id: u8, secret: [u8; SECRET_BYTES]) -> Self {
        Self { keys: vec![Key::new(id, &secret)] }
    }

    /// The text that [`KeyRing::parse`] reads, for keeping a generated key. It is the secret itself.
    pub fn entry(id: u8, secret: &[u8; SECRET_BYTES]) -> String {
        let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{id}:{digits}")
    }

    /// Ids in the ring; the first is that of the signing key.
    pub fn ids(&self) -> impl Iterator<Item = u8> + '_ {
        self.keys.iter().map(|k| k.id)
    }

    pub(super) fn signing_id(&self) -> u8 {
        self.keys[0].id
    }

    pub(super) fn sign(&self, domain: Domain, payload: &[u8], binding: &[u8]) -> [u8; TAG_BYTES] {
        self.keys[0].tag(domain, payload, binding)
    }

    pub(super) fn key(&self, id: u8) -> Result<&Key, super::TicketError> {
        self.keys.iter().find(|k| k.id == id).ok_or(super::TicketError::UnknownKey)
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRing(ids ")?;
        f.debug_list().entries(self.ids()).finish()?;
        write!(f, ", secrets hidden)")
    }
}

fn from_hex(text: &str) -> Option<[u8; SECRET_BYTES]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * SECRET_BYTES {
        return None;
    }
    let mut out = [0; SECRET_BYTES];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = (high << 4 | low) as u8;
    }
    Some(out)
}

/// Why a key ring is invalid; `entry` is an index. Never contains the text, which may be a secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    #[error("expected at least one key `ID:64 hexadecimal digits`, got none")]
    Empty,
    #[error("key {entry}: expected `ID:64 hexadecimal digits`, got no `:`")]
    Form { entry: usize },
    #[error("key {entry}: expected an id of 0 to 255 before the `:`")]
    Id { entry: usize },
    #[error("key {entry}: expected 64 hexadecimal digits after the `:`")]
    Secret { entry: usize },
    #[error("key {entry}: id {id} is already in the ring")]
    Duplicate { entry: usize, id: u8 },
}
