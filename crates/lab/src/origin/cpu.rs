//! Burns CPU time: a demand is what the thread's own CPU clock says, so that a crowded machine takes longer
//! in real time.

use std::hint::black_box;
use std::time::Duration;

/// Turns of the loop between two looks at the clock: about a microsecond of work for some 200 ns of system
/// call.
const TURNS: u32 = 2000;

/// Burns `demand` of this thread's CPU time, or until `stop` says so; looks at both at least every few
/// microseconds.
pub(crate) fn burn(demand: Duration, stop: impl Fn() -> bool) {
    let end = thread_time().saturating_add(demand);
    let mut x = 1u64;
    while thread_time() < end && !stop() {
        for _ in 0..TURNS {
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

pub(super) fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to, and the call touches nothing else.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "every Linux has a CPU clock per thread");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burns_the_given_time_and_stops_on_request() {
        let start = thread_time();
        burn(Duration::from_millis(20), || false);
        let burnt = thread_time() - start;
        assert!(burnt >= Duration::from_millis(20), "{burnt:?}");
        burn(Duration::MAX, || true);
    }
}
