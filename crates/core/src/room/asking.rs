//! How often the waiting ask for news.
//!
//! Far from its turn a page learns nothing by asking often, so the interval grows with the wait. While the capacity is
//! looked for, though, it may be many times what the waits told were made with: pages that were told to come in a quarter of a
//! minute would leave an origin idle that could take them now. It does not end with the search: who was told to come in a second
//! just before, and whose turn comes at once, leaves a hole of a second behind.
//!
//! ```text
//! longest interval  = max(0.3 s, time since the search ended, waiting / 20,000 per second),  20 s at most
//! shortest interval = waiting / 10,000 per second              for those told more than H = max(8 s, this)
//!                     near / 10,000 per second                 for the near, who are told H at most
//! ```
//!
//! So all together ask at most 20,000 times a second, however their waits are spread: what each group may do is divided among
//! as many as are in it. Nobody far is kept from asking until after the turn, since H is not less than the interval. The near do
//! ask late for their turn, once more than 1,250 visitors a second are let in: that many questions is what the bound is for.
//!
//! Rejected: one shortest interval for all, `waiting / 20,000 per second`. With a hundred thousand waiting, it has those come
//! five seconds late whose turn is next, and the hand, which is steered by who comes, swings.

use std::time::Duration;

use super::Room;
use crate::hand::advance;
use crate::ring::Load;
use crate::sync::Ordering;
use crate::units::{Rate, Timestamp};

/// Waiting pages ask for news at least this often, however long their wait.
pub const ASK_WITHIN: Duration = Duration::from_secs(20);
/// While the capacity is looked for, they ask at least this often: three ticks, in which it may have become many times what it was,
pub(super) const SOONER: Duration = Duration::from_millis(300);
/// as long as all together do not ask more often than this in a second: a question costs the gate some ten microseconds.
const MOST_PER_S: f64 = 20_000.0;

/// Waits up to which every second counts, where few enough wait.
const NEAR: Duration = Duration::from_secs(8);
/// Bits of each of three intervals, in milliseconds: half an hour.
const BITS: u32 = 21;

/// How often the waiting may and should ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AskEvery {
    /// At least this often, however long the wait.
    pub within: Duration,
    near: Duration,
    far: Duration,
}

impl AskEvery {
    /// Of so many that wait, some of them near their turn: told [`AskEvery::is_near`] waits.
    pub fn new(within: Duration, near: u64, waiting: u64) -> Self {
        let share = |visitors: u64| Duration::from_secs_f64(visitors as f64 / (MOST_PER_S / 2.0));
        Self { within, near: share(near), far: share(waiting) }
    }

    /// No more often than this if `wait` is left.
    pub fn least(&self, wait: Duration) -> Duration {
        if wait <= self.horizon() { self.near } else { self.far }
    }

    /// Longest wait of those who are near.
    pub fn horizon(&self) -> Duration {
        NEAR.max(self.far)
    }

    pub(super) fn pack(self) -> u64 {
        let ms = |span: Duration| (span.as_millis() as u64).min((1 << BITS) - 1);
        ms(self.within) << (2 * BITS) | ms(self.near) << BITS | ms(self.far)
    }

    fn unpack(word: u64) -> Self {
        let ms = |at: u32| Duration::from_millis((word >> at) & ((1 << BITS) - 1));
        Self { within: ms(2 * BITS), near: ms(BITS), far: ms(0) }
    }
}

impl Default for AskEvery {
    fn default() -> Self {
        Self::new(ASK_WITHIN, 0, 0)
    }
}

impl Room {
    /// Whether the capacity is being looked for. On every tick.
    pub fn look_out(&self, is_searching: bool, now: Timestamp) {
        if is_searching {
            self.searched.store(now.as_micros(), Ordering::Relaxed);
        }
        let since = now.since(Timestamp::from_micros(self.searched.load(Ordering::Relaxed)));
        let waiting = self.slots.ahead_of(self.door.hand.at(now)).visitors + self.called_visitors(now);
        let within = if since >= ASK_WITHIN {
            ASK_WITHIN
        } else {
            let least = Duration::from_secs_f64(waiting as f64 / MOST_PER_S);
            since.max(least).clamp(SOONER, ASK_WITHIN)
        };
        let horizon = AskEvery::new(within, 0, waiting).horizon();
        let every = AskEvery::new(within, self.told_at_most(horizon, now), waiting);
        self.ask_every.store(every.pack(), Ordering::Relaxed);
    }

    /// Visitors whose wait is `wait` at most, or who were called and have not come.
    fn told_at_most(&self, wait: Duration, now: Timestamp) -> u64 {
        let (hand, last) = (self.door.hand.at(now), self.last_due());
        if self.door.capacity() == Rate::ZERO {
            return 0;
        }
        // What is behind the hand only makes waits longer: counted with those who are near, it does no harm.
        let work = self.left_of(self.door.capacity()) / self.show_up_told() * wait.as_secs_f64() * 100.0;
        let (until, _) = advance(hand, last, work, |second| {
            let load = self.slots.promised(second);
            (load.cost.hundredths(), self.slots.density(second, load))
        });
        let until = if self.door.hand.value().follows_clock { until.max(hand + wait) } else { until };
        self.slots.between(hand, until).visitors + self.called_visitors(now)
    }

    /// Visitors who were called in seconds that are not judged for no-shows, and have not come.
    fn called_visitors(&self, now: Timestamp) -> u64 {
        let (first, last) = (self.judged.load(Ordering::Acquire), self.door.hand.at(now).second());
        let (waits, shown): (Load, Load) = (self.waits.sum(first, last + 1), self.shown.sum(first, last + 1));
        waits.visitors.saturating_sub(shown.visitors)
    }

    /// How often waiting pages are to ask.
    pub fn ask_every(&self) -> AskEvery {
        AskEvery::unpack(self.ask_every.load(Ordering::Relaxed))
    }
}
