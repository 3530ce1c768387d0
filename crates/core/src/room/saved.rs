//! The room's memory over a restart: promises, virtual clock, show-up ratio.
//!
//! Redeemed nonces are not part of it: they must be known to the last one, so each is kept as it is redeemed
//! ([`Admission::restore_redeemed`](crate::admission::Admission::restore_redeemed)). Where that was not
//! possible, the setting `after_restart_accept` decides whether a ticket whose turn had come is accepted
//! again. The virtual clock resumes where it stood: visitors who were waiting are let in
//! later by the time the gateway was down, in order, and no ticket expires because the gateway was away.
//!
//! ```text
//! "TGROOM01" | saved at us | virtual clock us | follows | reached us | last due us
//!            | floor | frontier | judged | promised (f64) | shown (f64) | rows n
//! n x { second | slots cost | slots visitors | waits cost | waits visitors | shown cost }
//! SHA-256, first 8 bytes
//! ```
//! All numbers are 64 bits, little-endian.

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::types::MAX_WAIT;
use crate::decaying::DecayingRatio;
use crate::ring::{MAX_COST, MAX_VISITORS, SlotLoad};
use crate::units::{Cost, Timestamp};
use crate::virtual_clock::VirtualTime;

const MAGIC: &[u8; 8] = b"TGROOM01";
const HEAD_WORDS: usize = 11;
const ROW_WORDS: usize = 6;
const SUM_BYTES: usize = 8;

/// Why a saved room was not restored; the room is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RestoreError {
    #[error("expected a saved room that begins with TGROOM01")]
    Unknown,
    #[error("the saved room is damaged: length or checksum is wrong")]
    Damaged,
    #[error(
        "the saved room is of another time: its schedule ended more than a day ago or lies in the future"
    )]
    OtherTime,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct SavedRoom {
    pub(super) saved_at: Timestamp,
    pub(super) clock: VirtualTime,
    /// From where lateness counts.
    pub(super) reached: Timestamp,
    pub(super) last_due: Timestamp,
    pub(super) floor: u64,
    pub(super) frontier: u64,
    /// Seconds before this one were judged for no-shows.
    pub(super) judged: u64,
    pub(super) show_up: DecayingRatio,
    pub(super) seconds: Vec<SavedSecond>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct SavedSecond {
    pub(super) second: u64,
    /// Everything promised for this second.
    pub(super) slots: SlotLoad,
    /// The part of `slots` that is promised to visitors who wait, not to those who entered at once.
    pub(super) waits: SlotLoad,
    /// The part of `waits` that was redeemed.
    pub(super) redeemed: Cost,
}

impl SavedRoom {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let head: [u64; HEAD_WORDS] = [
            self.saved_at.as_micros(),
            self.clock.at.as_micros(),
            u64::from(self.clock.follows_clock),
            self.reached.as_micros(),
            self.last_due.as_micros(),
            self.floor,
            self.frontier,
            self.judged,
            self.show_up.over.to_bits(),
            self.show_up.sum.to_bits(),
            self.seconds.len() as u64,
        ];
        let rows = self.seconds.iter().flat_map(|row| -> [u64; ROW_WORDS] {
            let SavedSecond { second, slots, waits, redeemed } = *row;
            let (slots_cost, waits_cost) = (slots.cost.hundredths(), waits.cost.hundredths());
            [second, slots_cost, slots.visitors, waits_cost, waits.visitors, redeemed.hundredths()]
        });
        let mut bytes = MAGIC.to_vec();
        bytes.extend(head.into_iter().chain(rows).flat_map(u64::to_le_bytes));
        bytes.extend(checksum(&bytes));
        bytes
    }

    /// Reads what [`SavedRoom::to_bytes`] wrote within the last days.
    pub(super) fn from_bytes(bytes: &[u8], now: Timestamp) -> Result<Self, RestoreError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(RestoreError::Unknown)?;
        let (body, sum) = rest.split_last_chunk::<SUM_BYTES>().ok_or(RestoreError::Damaged)?;
        let (words, []) = body.as_chunks::<8>() else { return Err(RestoreError::Damaged) };
        if checksum(&bytes[..MAGIC.len() + body.len()]) != *sum {
            return Err(RestoreError::Damaged);
        }
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (head, rows) = words.split_first_chunk::<HEAD_WORDS>().ok_or(RestoreError::Damaged)?;
        let [saved_at, clock, follows, reached, last_due, floor, frontier, judged, promised, shown, count] =
            *head;
        let (rows, rest) = rows.as_chunks::<ROW_WORDS>();
        if !rest.is_empty() || rows.len() as u64 != count {
            return Err(RestoreError::Damaged);
        }
        let saved = Self {
            saved_at: Timestamp::from_micros(saved_at),
            clock: VirtualTime { at: Timestamp::from_micros(clock), follows_clock: follows == 1 },
            reached: Timestamp::from_micros(reached),
            last_due: Timestamp::from_micros(last_due),
            floor,
            frontier,
            judged,
            show_up: DecayingRatio { sum: f64::from_bits(shown), over: f64::from_bits(promised) },
            seconds: rows.iter().map(SavedSecond::from_words).collect(),
        };
        let horizon = now + 2 * MAX_WAIT;
        let is_of_these_days = saved.clock.at >= now.saturating_sub(2 * MAX_WAIT)
            && saved.clock.at.max(saved.last_due) <= horizon
            && floor.max(frontier) <= horizon.second();
        if is_of_these_days { Ok(saved) } else { Err(RestoreError::OtherTime) }
    }
}

impl SavedSecond {
    fn from_words(words: &[u64; ROW_WORDS]) -> Self {
        let [second, slots_cost, slots_visitors, waits_cost, waits_visitors, redeemed] = *words;
        Self {
            second,
            slots: load(slots_cost, slots_visitors),
            waits: load(waits_cost, waits_visitors),
            redeemed: load(redeemed, 0).cost,
        }
    }
}

/// No more than a cell of the ring can hold.
fn load(cost: u64, visitors: u64) -> SlotLoad {
    SlotLoad { visitors: visitors.min(MAX_VISITORS), cost: Cost::from_hundredths(cost.min(MAX_COST)) }
}

fn checksum(bytes: &[u8]) -> [u8; SUM_BYTES] {
    let mut sum = [0; SUM_BYTES];
    sum.copy_from_slice(&Sha256::digest(bytes)[..SUM_BYTES]);
    sum
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn saved() -> SavedRoom {
        let row = |second, cost| SavedSecond {
            second: START.second() + second,
            slots: load(cost, 3),
            waits: load(200, 2),
            redeemed: Cost::ONE,
        };
        SavedRoom {
            saved_at: START,
            clock: VirtualTime { at: START + Duration::from_millis(7), follows_clock: true },
            reached: START,
            last_due: START + Duration::from_secs(2),
            floor: 5,
            frontier: START.second() + 2,
            judged: START.second(),
            show_up: DecayingRatio { sum: 7.5, over: 10.0 },
            seconds: vec![row(0, 300), row(1, MAX_COST)],
        }
    }

    #[test]
    fn a_saved_room_is_read_back() {
        let bytes = saved().to_bytes();
        assert_eq!(bytes.len(), 8 + 8 * (HEAD_WORDS + 2 * ROW_WORDS) + SUM_BYTES);
        assert_eq!(SavedRoom::from_bytes(&bytes, START), Ok(saved()));
    }

    #[test]
    fn the_format_is_as_documented() {
        let bytes = SavedRoom { seconds: Vec::new(), ..saved() }.to_bytes();
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
        assert_eq!(&bytes[..8], b"TGROOM01");
        assert_eq!((word(1), word(2), word(3)), (START.as_micros(), START.as_micros() + 7_000, 1));
        assert_eq!((word(9), word(10), word(11)), (10f64.to_bits(), 7.5f64.to_bits(), 0));
    }

    #[test]
    fn other_days_are_refused() {
        let bytes = saved().to_bytes();
        for (now, expected) in [
            (START + Duration::from_secs(172_800), Ok(saved())),
            (START + Duration::from_secs(172_801), Err(RestoreError::OtherTime)),
            (START.saturating_sub(Duration::from_secs(172_798)), Ok(saved())),
            (START.saturating_sub(Duration::from_secs(172_799)), Err(RestoreError::OtherTime)),
        ] {
            assert_eq!(SavedRoom::from_bytes(&bytes, now), expected);
        }
    }

    #[test]
    fn absurd_numbers_are_cut() {
        let mut room = saved();
        room.seconds[0].slots = SlotLoad { visitors: u64::MAX, cost: Cost::from_hundredths(u64::MAX) };
        let read = SavedRoom::from_bytes(&room.to_bytes(), START).expect("authentic");
        assert_eq!(read.seconds[0].slots, load(MAX_COST, MAX_VISITORS));
    }
}
