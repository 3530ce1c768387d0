//! A tier's load average, as operating systems keep it for processes: requests at work or in line, averaged
//! over time.
//!
//! A utilisation stops at 1, and a figure that stands still correlates with nothing. The load goes on growing
//! with what is asked of the tier. Porter & Katz took the database's from sysstat.
//!
//! Two forms: an average with a time constant of a second, and the sum over time, from which whoever reads it
//! twice has the exact mean between the two. The kernel's average has a constant of a minute, too slow for
//! what changes from second to second.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::times::micros;

/// Time constant of the average.
const OVER: Duration = Duration::from_secs(1);

pub(super) struct Load(Mutex<State>);

/// The pure part, with the time as an argument.
#[derive(Clone, Copy, Debug)]
struct State {
    present: u32,
    average: f64,
    /// In request-microseconds.
    sum_us: u64,
    at: Instant,
}

impl Load {
    pub fn new() -> Self {
        Self(Mutex::new(State::new(Instant::now())))
    }

    pub fn add(&self) {
        self.0.lock().change(1, Instant::now());
    }

    pub fn remove(&self) {
        self.0.lock().change(-1, Instant::now());
    }

    /// The average, and the sum over time in request-microseconds.
    pub fn read(&self) -> (f64, u64) {
        let mut state = self.0.lock();
        state.change(0, Instant::now());
        (state.average, state.sum_us)
    }
}

impl State {
    fn new(now: Instant) -> Self {
        Self { present: 0, average: 0.0, sum_us: 0, at: now }
    }

    fn change(&mut self, by: i32, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        let kept = (-passed.as_secs_f64() / OVER.as_secs_f64()).exp();
        self.average = self.average * kept + f64::from(self.present) * (1.0 - kept);
        self.sum_us += u64::from(self.present) * micros(passed);
        self.at = now;
        debug_assert!(by >= 0 || self.present > 0, "a request left that had not come");
        self.present = self.present.saturating_add_signed(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_grows_beyond_the_servers_and_fades_within_seconds() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut state = State::new(start);
        (0..10).for_each(|_| state.change(1, after(1_000)));
        state.change(0, after(2_000));
        assert!((state.average - 10.0 * (1.0 - (-1.0f64).exp())).abs() < 1e-9, "{state:?}");
        assert_eq!(state.sum_us, 10_000_000, "ten for a second");
        state.change(0, after(30_000));
        assert!((state.average - 10.0).abs() < 1e-6, "{state:?}");
        (0..10).for_each(|_| state.change(-1, after(30_000)));
        state.change(0, after(40_000));
        assert!(state.average < 0.001, "{state:?}");
        assert_eq!(state.sum_us, 290_000_000);
    }

    #[test]
    fn the_average_does_not_depend_on_how_often_it_is_read() {
        let start = Instant::now();
        let mut states = [State::new(start), State::new(start)];
        for state in &mut states {
            state.change(1, start);
        }
        (0..500).for_each(|ms| states[0].change(0, start + Duration::from_millis(ms)));
        for state in &mut states {
            state.change(1, start + Duration::from_millis(500));
            state.change(0, start + Duration::from_millis(900));
        }
        let [often, once] = states;
        assert!((often.average - once.average).abs() < 1e-9, "{often:?} {once:?}");
        assert_eq!((often.sum_us, once.sum_us), (1_300_000, 1_300_000));
    }
}
