//! Visitors who come a moment before their turn are held until it.
//!
//! **By whole seconds** come programs (`Retry-After`) and pages without JavaScript (`Refresh`). Whoever asks
//! at an instant and comes back whole seconds later comes at the same fraction of a second, however often.
//! Those who come in one tenth of a second are told waits that differ by less than a second, so rounded up,
//! they come back in one tenth of a second as well. At ten times the capacity that is a second's crowd, and
//! the origin has nothing to do until the next one.
//!
//! So waits are rounded down, and a visitor who is early by less than a second is held until its turn.
//! Everybody enters at the turn, and as many are held at a time as the origin takes in half a second.
//!
//! **Waiting pages** ask shortly before their turn, and the answer is held until it. So visitors come when
//! their turn has come and not up to 0.3 s later, each at another time, and the queue that the gate keeps to
//! bridge these gaps can be half as long (`queue_pacer.rs`).
//!
//! Rejected: rounding at random (measured: whoever is early comes again, and enters at the same instant as if
//! the wait had been rounded up; only those who are told too much are spread, and they are late).

use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Longest time that a visitor is held, if the virtual clock runs slower than was told.
const LONGEST: Duration = Duration::from_secs(2);

/// The whole seconds after which a visitor with this wait is to come again: at least one.
pub fn told_seconds(wait: Duration) -> u64 {
    wait.as_secs().max(1)
}

/// A visitor who is held is looked at this often: as often as the virtual clock is set. The wait that it was
/// told counts those in transit, and it may be let in before.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Whether a visitor who has come back, with this wait left, is held until then. `held`: so far.
pub fn is_held(left: Duration, held: Duration) -> bool {
    left < SECOND && held < LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::{Arrival, Redemption, Room, RoomConfig};
    use crate::units::{ClassId, Cost, Rate, Timestamp};

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);
    const CAPACITY: u64 = 100;

    /// What becomes of visitors who come back by whole seconds.
    #[derive(Debug)]
    struct Played {
        /// Share of them who enter in a tenth of a second with more than one and a half times of what the
        /// origin takes in it.
        crowded: f64,
        /// Mean time from the turn that was promised until the entry.
        late_s: f64,
    }

    /// A crowd of so many times the capacity, for so many seconds, in virtual time.
    fn play(overload: u64, seconds: u64, told: fn(Duration) -> u64, holds: bool) -> Played {
        let rate = Rate::per_second(CAPACITY as f64).expect("a rate");
        let room = Room::new(RoomConfig::default(), rate, START);
        let tick = Duration::from_millis(10);
        // When, with which ticket, and since when it is held.
        let mut comes: Vec<(Timestamp, crate::ticket::Ticket, Option<Timestamp>)> = Vec::new();
        let (mut entered, mut late_s, mut arrived) = (Vec::new(), 0.0, 0);
        let mut now = START;
        while now < START + Duration::from_secs(seconds) || !comes.is_empty() {
            if now.as_millis().is_multiple_of(100) {
                room.tick(now, Cost::ZERO);
            }
            let newcomers = overload * CAPACITY / 100;
            if now < START + Duration::from_secs(seconds) {
                for _ in 0..newcomers {
                    arrived += 1;
                    if let Arrival::Wait(ticket, wait) = room.arrive(ClassId(0), arrived, None, now) {
                        comes.push((now + Duration::from_secs(told(wait.wait)), ticket, None));
                    }
                }
            }
            comes.retain_mut(|(at, ticket, held)| {
                if now < *at {
                    return true;
                }
                match room.redeem(ticket, now) {
                    Redemption::Enter => {
                        entered.push(now);
                        late_s += now.since(ticket.due()).as_secs_f64();
                        false
                    }
                    Redemption::Wait(left)
                        if holds
                            && is_held(left.wait, held.map_or(Duration::ZERO, |since| now.since(since))) =>
                    {
                        held.get_or_insert(now);
                        *at = now + left.wait.min(LOOK_AGAIN);
                        true
                    }
                    Redemption::Wait(left) => {
                        *held = None;
                        *at = now + Duration::from_secs(told(left.wait));
                        true
                    }
                    other => panic!("{other:?}"),
                }
            });
            now = now + tick;
        }
        let mut slots = std::collections::HashMap::new();
        entered.iter().for_each(|at| *slots.entry(at.as_millis() / 100).or_insert(0) += 1);
        let visitors = entered.len() as f64;
        let crowded = slots.values().filter(|n| f64::from(**n) > 1.5 * CAPACITY as f64 / 10.0);
        Played { crowded: f64::from(crowded.sum::<u32>()) / visitors, late_s: late_s / visitors }
    }

    fn rounded_up(wait: Duration) -> u64 {
        wait.as_millis().div_ceil(1_000).max(1) as u64
    }

    #[test]
    fn those_who_come_by_whole_seconds_enter_evenly_and_at_their_turn() {
        for (overload, seconds) in [(2, 20), (10, 5)] {
            let before = play(overload, seconds, rounded_up, false);
            let after = play(overload, seconds, told_seconds, true);
            let told = format!("{overload} times the capacity, rounded up {before:?}, held {after:?}");
            println!("{told}");
            assert!(before.crowded > 0.7, "the crowd that this is for: {told}");
            assert!(after.crowded < before.crowded / 2.0 && after.late_s < before.late_s / 2.0, "{told}");
        }
    }

    #[test]
    fn nobody_is_told_more_than_the_wait_nor_to_come_at_once() {
        for (ms, told) in [(0, 1), (300, 1), (999, 1), (1_000, 1), (1_999, 1), (2_000, 2), (61_500, 61)] {
            assert_eq!(told_seconds(Duration::from_millis(ms)), told, "{ms} ms");
        }
    }
}
