//! The room's memory over a restart: promises, hand, show-up ratio.
//!
//! Redeemed nonces are not part of it: whether a ticket whose turn had come is taken again after a restart is the
//! setting `after_restart`. The hand resumes where it stood, so that who was waiting is let in later by the time the gate was
//! down, in order, and nobody expires because the gate was away.
//!
//! ```text
//! "TGROOM01" | saved at us | hand us | follows | reached us | last due us | floor | frontier | judged | promised | shown (f64) | rows n
//! n x { second | slots cost | slots visitors | waits cost | waits visitors | shown cost } | SHA-256, first 8 bytes
//! ```
//! All numbers are 64 bits, little-endian.

use std::time::Duration;

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::{MAX_WAIT, Room};
use crate::hand::HandValue;
use crate::ring::{Load, MAX_COST, MAX_VISITORS};
use crate::show_up::ShowUp;
use crate::sync::Ordering;
use crate::units::{Cost, Timestamp};

const MAGIC: &[u8; 8] = b"TGROOM01";
const HEAD_WORDS: usize = 11;
const ROW_WORDS: usize = 6;

/// Why a saved room was not restored; the room is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RestoreError {
    /// Not a saved room, or one of another version.
    #[error("expected a saved room that begins with TGROOM01")]
    Unknown,
    /// Cut short or changed.
    #[error("the saved room is damaged: length or checksum is wrong")]
    Damaged,
    /// Its times are not of this day.
    #[error(
        "the saved room is of another time: its schedule ended more than a day ago or lies in the future"
    )]
    OtherTime,
}

impl Room {
    /// Everything that must outlive the process.
    pub fn save(&self, now: Timestamp) -> Vec<u8> {
        let control = self.control();
        let hand = self.door.hand.value();
        let first = self.door.oldest_valid(now).min(self.judged.load(Ordering::Acquire));
        let last = self.last_due().second().max(self.slots.frontier()).max(now.second()) + 1;
        let first = first.max((last + 1).saturating_sub(self.slots.seconds()));
        let mut rows = Vec::new();
        let mut count = 0;
        for second in first..first + self.slots.seconds() {
            let (slots, waits) = (self.slots.promised(second), self.waits.load(second));
            let shown = self.shown.load(second);
            if slots != Load::default() || waits != Load::default() {
                let row = [
                    second,
                    slots.cost.hundredths(),
                    slots.visitors,
                    waits.cost.hundredths(),
                    waits.visitors,
                    shown.cost.hundredths(),
                ];
                rows.extend(row.iter().flat_map(|word| word.to_le_bytes()));
                count += 1;
            }
        }
        let head = [
            now.as_micros(),
            self.door.hand.at(now).as_micros(),
            u64::from(hand.follows_clock),
            self.door.reached().as_micros(),
            self.last_due().as_micros(),
            self.slots.floor(),
            self.slots.frontier(),
            self.judged.load(Ordering::Acquire),
            control.show_up.promised.to_bits(),
            control.show_up.shown.to_bits(),
            count,
        ];
        let mut bytes = MAGIC.to_vec();
        bytes.extend(head.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(rows);
        let sum = checksum(&bytes);
        bytes.extend(sum);
        bytes
    }

    /// Takes over what an earlier process saved. For a new room, before the first visitor.
    pub fn restore(&self, bytes: &[u8], now: Timestamp) -> Result<(), RestoreError> {
        let (head, rows) = parse(bytes)?;
        let [saved, hand, follows, reached, last_due, floor, frontier, judged, promised, shown, _] = head;
        let horizon = (now + 2 * MAX_WAIT).as_micros();
        let too_old = now.saturating_sub(2 * MAX_WAIT).as_micros();
        if hand > horizon || last_due > horizon || hand < too_old || floor.max(frontier) > horizon / 1_000_000
        {
            return Err(RestoreError::OtherTime);
        }
        self.adoption.saved_at(Timestamp::from_micros(saved));
        let control = &mut *self.control();
        let oldest = Timestamp::from_micros(hand.min(reached))
            .min(now)
            .saturating_sub(Duration::from_secs(60))
            .second();
        // A room whose ring is shorter keeps what it can: from the hand on.
        let window = oldest..oldest.saturating_add(self.slots.seconds());
        self.slots.keep_from(oldest);
        for row in rows.chunks_exact(ROW_WORDS) {
            let &[second, cost, visitors, wait_cost, wait_visitors, shown_cost] = row else { continue };
            if window.contains(&second) {
                self.slots.restore(second, load(cost, visitors));
                self.waits.add(second, load(wait_cost, wait_visitors));
                self.shown.add(second, load(shown_cost, 0));
            }
        }
        self.last_due.store(last_due, Ordering::Release);
        self.slots.set_floor(floor.max(frontier));
        self.judged.store(judged.clamp(oldest, now.second().max(oldest)), Ordering::Release);
        let (promised, shown) = (f64::from_bits(promised), f64::from_bits(shown));
        if (0.0..1e12).contains(&promised) && (0.0..1e12).contains(&shown) {
            control.show_up = ShowUp::saved(promised, shown);
        }
        let hand = Timestamp::from_micros(hand);
        let waiting = last_due > hand.as_micros();
        let at = if waiting { hand } else { hand.max(now) };
        // While the gate was down nobody became later.
        self.door.set_reached(Timestamp::from_micros(reached.max(too_old)).min(at).min(now));
        self.door.hand.set(HandValue { at, follows_clock: !waiting && follows == 1 });
        self.apply_show_up(control);
        Ok(())
    }
}

fn load(cost: u64, visitors: u64) -> Load {
    Load { visitors: visitors.min(MAX_VISITORS), cost: Cost::from_hundredths(cost.min(MAX_COST)) }
}

fn checksum(bytes: &[u8]) -> [u8; 8] {
    let mut sum = [0; 8];
    sum.copy_from_slice(&Sha256::digest(bytes)[..8]);
    sum
}

fn parse(bytes: &[u8]) -> Result<([u64; HEAD_WORDS], Vec<u64>), RestoreError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(RestoreError::Unknown)?;
    let (words, sum) = rest.split_at_checked(rest.len().saturating_sub(8)).ok_or(RestoreError::Damaged)?;
    if words.len() % 8 != 0 || checksum(&bytes[..MAGIC.len() + words.len()])[..] != *sum {
        return Err(RestoreError::Damaged);
    }
    let words: Vec<u64> = words
        .chunks_exact(8)
        .map(|word| word.iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)))
        .collect();
    let (head, rows) = words.split_first_chunk::<HEAD_WORDS>().ok_or(RestoreError::Damaged)?;
    if Some(rows.len()) != (head[HEAD_WORDS - 1] as usize).checked_mul(ROW_WORDS) {
        return Err(RestoreError::Damaged);
    }
    Ok((*head, rows.to_vec()))
}
