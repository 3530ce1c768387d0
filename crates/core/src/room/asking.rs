//! How often the waiting ask for news.
//!
//! Far from its turn a page learns nothing by asking often, so the interval grows with the wait. While the capacity is
//! looked for, though, it may be many times what the waits told were made with: pages that were told to come in a quarter of a
//! minute would leave an origin idle that could take them now. It does not end with the search: who was told to come in a second
//! just before, and whose turn comes at once, leaves a hole of a second behind.
//!
//! ```text
//! interval = max(0.3 s, time since the search ended, waiting / 20,000 per second),  20 s at most
//! ```

use std::time::Duration;

use super::Room;
use crate::sync::Ordering;
use crate::units::Timestamp;

/// Waiting pages ask for news at least this often, however long their wait.
pub const ASK_WITHIN: Duration = Duration::from_secs(20);
/// While the capacity is looked for, they ask at least this often: three ticks, in which it may have become many times what it was,
pub(super) const SOONER: Duration = Duration::from_millis(300);
/// as long as all together do not ask more often than this in a second: a question costs the gate some ten microseconds.
const MOST_PER_S: f64 = 20_000.0;

impl Room {
    /// Whether the capacity is being looked for. On every tick.
    pub fn look_out(&self, is_searching: bool, now: Timestamp) {
        if is_searching {
            self.searched.store(now.as_micros(), Ordering::Relaxed);
        }
        let since = now.since(Timestamp::from_micros(self.searched.load(Ordering::Relaxed)));
        let within = if since >= ASK_WITHIN {
            ASK_WITHIN
        } else {
            let waiting = self.slots.sum(self.door.hand.at(now).second()).visitors;
            let least = Duration::from_secs_f64(waiting as f64 / MOST_PER_S);
            since.max(least).clamp(SOONER, ASK_WITHIN)
        };
        self.ask_within_ms.store(within.as_millis() as u64, Ordering::Relaxed);
    }

    /// Longest time between two questions of a waiting page.
    pub fn ask_within(&self) -> Duration {
        Duration::from_millis(self.ask_within_ms.load(Ordering::Relaxed))
    }
}
