//! The only clock of the process: wall time that never runs backwards.
//!
//! Tickets outlive the process and cross hosts, so decisions are made in wall time. But wall time may step
//! (an operator sets it, NTP corrects it), and a schedule must not. The clock therefore runs on the monotonic
//! timer, offset to wall time. [`Clock::discipline`], called on every control tick, moves the offset towards
//! wall time by at most 1 % of the time that passed, so that a visitor's second stays a second within 1 %.
//! Only a step forward of more than `STEP` is followed at once: the machine was suspended, and the visitors
//! have waited for all that time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_core::units::Timestamp;

/// A wall clock further ahead than this was set, or the machine was suspended: it is followed at once.
const STEP: Duration = Duration::from_secs(5);

pub struct Clock {
    start: Instant,
    /// Wall time at `start`, in µs since the Unix epoch, as steered so far.
    base_us: AtomicU64,
    /// Monotonic µs at the last correction.
    disciplined_us: AtomicU64,
    told_us: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads clocks")]
    pub fn new() -> Self {
        let start = Instant::now();
        Self {
            start,
            base_us: AtomicU64::new(wall_us()),
            disciplined_us: AtomicU64::new(0),
            told_us: AtomicU64::new(0),
        }
    }

    pub fn now(&self) -> Timestamp {
        let now_us = self.base_us.load(Ordering::Relaxed) + self.elapsed_us();
        // A correction may have moved the offset back since then, by a millisecond at most; until the
        // difference has passed, the clock stands still.
        let told_us = self.told_us.load(Ordering::Relaxed);
        let later_us =
            if now_us > told_us { self.told_us.fetch_max(now_us, Ordering::Relaxed) } else { told_us };
        Timestamp::from_micros(now_us.max(later_us))
    }

    /// Moves the offset towards wall time. Called by the control thread only. Returns whether the clock has
    /// stepped ahead.
    pub fn discipline(&self) -> bool {
        let elapsed = self.elapsed_us();
        let since = elapsed - self.disciplined_us.swap(elapsed, Ordering::Relaxed);
        let base = self.base_us.load(Ordering::Relaxed);
        let wall_base = wall_us().saturating_sub(elapsed);
        let steered = steer(base, wall_base, since);
        self.base_us.store(steered, Ordering::Relaxed);
        is_step(base, steered)
    }

    fn elapsed_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }
}

/// The next offset: `base` moved towards `target` by at most 1 % of `since`; `target` itself when it is more
/// than `STEP` ahead.
pub fn steer(base: u64, target: u64, since: u64) -> u64 {
    let most = since / 100;
    if is_step(base, target) { target } else { target.clamp(base.saturating_sub(most), base + most) }
}

/// Whether the offset `new` is followed at once from `old`.
pub fn is_step(old: u64, new: u64) -> bool {
    new > old + STEP.as_micros() as u64
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads clocks")]
fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// Wall time in whole seconds since the Unix epoch, as it was at the kernel's last tick: for the `Date` of
/// responses, which needs no more.
pub fn coarse_unix_s() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes a whole `timespec`, which lives until the call returns.
        let done = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut at) } == 0;
        if done && let Ok(seconds) = u64::try_from(at.tv_sec) {
            return seconds;
        }
    }
    wall_us() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_corrections_are_slewed_and_jumps_ahead_followed() {
        let second = 1_000_000;
        assert_eq!(steer(100 * second, 100 * second, second), 100 * second);
        assert_eq!(steer(100 * second, 101 * second, second), 100 * second + 10_000);
        assert_eq!(steer(100 * second, 99 * second, second), 100 * second - 10_000);
        assert_eq!(steer(100 * second, 100 * second + 500, second), 100 * second + 500);
        assert_eq!(steer(100 * second, 200 * second, second), 200 * second);
        assert_eq!(steer(100 * second, 10 * second, second), 100 * second - 10_000);
    }

    #[test]
    fn never_runs_backwards() {
        let clock = Clock::new();
        let mut last = clock.now();
        for _ in 0..1000 {
            clock.discipline();
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn a_correction_backwards_is_waited_out() {
        let clock = Clock::new();
        let mut last = clock.now();
        for _ in 0..1000 {
            // As much as one tick corrects.
            clock.base_us.fetch_sub(1_000, Ordering::Relaxed);
            let now = clock.now();
            assert!(now >= last, "{now:?} after {last:?}");
            last = now;
        }
    }
}
