//! The tick: whose time is over, what the law makes of it, and the figures.

use super::cap_controller::Ticked;
use super::slot_pool::UNBOUNDED;
use super::sums::{How, Sums};
use super::types::{PoolState, SessionInputs, SessionsState};
use super::{Part, Sessions, lock};
use crate::policies::TierId;
use crate::sync::Ordering;
use crate::units::Timestamp;

/// Entries that are looked at while their shard is locked: no worker waits for more than some microseconds.
const BATCH: usize = 64;

impl Sessions {
    /// The control tick, every 100 ms or so: ends sessions whose time is over, and learns how many there may be.
    pub fn tick(&self, seen: &SessionInputs<'_>, now: Timestamp) {
        let mut sums = Sums::default();
        for part in &self.shards {
            while !self.expire_some(&mut lock(part), now) {}
            sums.add(&lock(part).sums);
        }
        let everybody = self.pools[0].filled();
        let elsewhere = self.pools.iter().skip(1).map(|pool| pool.filled().taken).sum();
        let law = &mut *self.law();
        let lives = self.lives.get();
        let view = law.outlook.look(&self.shards, &lives, now);
        law.tick(
            &Ticked {
                seen: *seen,
                sums,
                open: everybody.taken,
                elsewhere,
                refused: self.refused.load(Ordering::Relaxed),
                timeout: lives.timeout,
                view,
            },
            now,
        );
        self.go_by(law);
    }

    /// `true`: there are no more.
    pub(super) fn expire_some(&self, part: &mut Part, now: Timestamp) -> bool {
        let (lives, mut most) = (self.lives.get(), BATCH);
        loop {
            match part.shard.expire(&lives, now, &mut most) {
                Ok(Some(entry)) => {
                    self.entries.fetch_sub(1, Ordering::Relaxed);
                    self.close(&mut part.sums, &entry, How::Over, now);
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// The sessions in figures.
    pub fn state(&self) -> SessionsState {
        let mut sums = Sums::default();
        for part in &self.shards {
            sums.add(&lock(part).sums);
        }
        let pools = (0_u8..).zip(&self.pools).map(|(tier, pool)| {
            let filled = pool.filled();
            let cap = (filled.bound != UNBOUNDED).then_some(filled.bound);
            PoolState { tier: TierId(tier), open: filled.taken, cap }
        });
        let pools = pools.filter(|pool| pool.tier.0 == 0 || pool.open > 0 || pool.cap != Some(0)).collect();
        let law = self.law();
        SessionsState {
            count: self.count(),
            readmitted: self.readmitted.load(Ordering::Relaxed),
            ended: sums.endings,
            refused: self.refused.load(Ordering::Relaxed),
            pools,
            entries: self.entries.load(Ordering::Relaxed),
            length_s: law.length_s(),
            work: law.work(),
            per_s: self.per_s(),
            is_held: law.is_held(),
            correction: law.correction(),
        }
    }

    /// Bytes of the heap that the table has taken.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|part| size_of_val(part) + lock(part).shard.bytes()).sum()
    }
}
