//! A bandwidth that several answers share.
//!
//! A token bucket in bytes per second, as a virtual schedule (compare [`crate::bucket`]): one number says
//! when the link is free again. An answer reserves the next slice of its body and sends it when its time
//! comes; it reserves no other slice before that one is sent. So answers that have something to send take
//! turns, with slices of one size: each gets the same share (round robin), and what one does not use the
//! others have (work-conserving), while a visitor who reads slowly reserves nothing.
//!
//! Over every stretch of time t at most `rate · (t + BURST)` bytes and one slice begin to be sent.
//!
//! Rejected: a rate of its own for each answer, the bandwidth divided by their number. What slow readers
//! leave would be lost, and a crowd of small answers would pass at any rate, because each is sent at once.

use std::time::Duration;

use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::units::Timestamp;

/// What may be sent at once after a pause, as a time: timers and threads that are late do not lower the rate.
const BURST: Duration = Duration::from_millis(50);
/// Slices per second, as far as the sizes below allow: all answers together wake so often.
const PER_S: u64 = 50;
/// Least and greatest size of a slice in bytes. Below, the framing costs more than it carries.
const LEAST: u64 = 64;
const MOST: u64 = 64 << 10;

/// The bandwidth, and who uses it now.
#[derive(Debug)]
pub struct Shaper {
    bytes_per_s: AtomicU64,
    /// When everything that is reserved has been sent, in nanoseconds since the Unix epoch.
    free_at: AtomicU64,
    /// Answers that wait for the time of their slice.
    waiting: AtomicU64,
    has_ended: AtomicBool,
}

impl Shaper {
    /// Of at least one byte per second.
    pub fn new(bytes_per_s: u64) -> Self {
        Self {
            bytes_per_s: AtomicU64::new(bytes_per_s.max(1)),
            free_at: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    fn rate(&self) -> u64 {
        self.bytes_per_s.load(Ordering::Relaxed)
    }

    /// Another rate from now on; what is reserved keeps its time.
    pub fn set_rate(&self, bytes_per_s: u64) {
        self.bytes_per_s.store(bytes_per_s.max(1), Ordering::Relaxed);
    }

    /// There is no bandwidth any more: answers that are under way need not wait.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Most bytes of an answer that are sent at once.
    pub fn slice(&self) -> usize {
        (self.rate() / PER_S).clamp(LEAST, MOST) as usize
    }

    /// Reserves the time for `bytes`, at most a slice. Returns when they may be sent, which may be before
    /// now.
    pub fn reserve(&self, bytes: usize, now: Timestamp) -> Timestamp {
        let nanos = |at: Timestamp| at.as_micros().saturating_mul(1_000);
        let earliest = nanos(now.saturating_sub(BURST));
        let takes = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(self.rate()));
        let takes = u64::try_from(takes).unwrap_or(u64::MAX);
        let mut seen = self.free_at.load(Ordering::Relaxed);
        loop {
            let start = seen.max(earliest);
            let after = start.saturating_add(takes);
            match self.free_at.compare_exchange_weak(seen, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Timestamp::from_micros(start.div_ceil(1_000)),
                Err(other) => seen = other,
            }
        }
    }

    /// An answer waits for the time of its slice.
    pub fn waits(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// It waits no more.
    pub fn waits_no_more(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// The share of each answer that has something to send, in bytes per second, with one that asks.
    pub fn share(&self) -> u64 {
        self.rate() / self.waiting.load(Ordering::Relaxed).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    /// Plays answers that each send a slice when its time has come and then reserve the next one, from `from`
    /// until `to` seconds. Returns the bytes of each.
    fn play(shaper: &Shaper, answers: &[(f64, f64)]) -> Vec<u64> {
        let at = |seconds: f64| NOW + Duration::from_secs_f64(seconds);
        let end = at(10.0);
        let mut next: Vec<_> = answers.iter().map(|(from, _)| (at(*from), false)).collect();
        let mut sent = vec![0; answers.len()];
        while let Some(one) = (0..next.len()).filter(|i| next[*i].0 < end).min_by_key(|i| next[*i]) {
            let (now, has_reserved) = next[one];
            sent[one] += if has_reserved { shaper.slice() as u64 } else { 0 };
            next[one] = match now < at(answers[one].1) {
                true => (shaper.reserve(shaper.slice(), now).max(now), true),
                false => (end, false),
            };
        }
        sent
    }

    fn is_near(bytes: u64, wanted: f64) -> bool {
        (bytes as f64 - wanted).abs() <= 0.02 * wanted + 0.06 * 100_000.0
    }

    #[test]
    fn one_answer_gets_the_whole_rate_and_two_get_half_of_it_each() {
        let sent = play(&Shaper::new(100_000), &[(0.0, 10.0)]);
        assert!(is_near(sent[0], 1e6), "{sent:?}");
        let sent = play(&Shaper::new(100_000), &[(0.0, 10.0), (0.0, 10.0)]);
        assert!(sent.iter().all(|bytes| is_near(*bytes, 5e5)), "{sent:?}");
    }

    #[test]
    fn what_one_does_not_use_the_others_have() {
        // The second is there for the middle fifth.
        let sent = play(&Shaper::new(100_000), &[(0.0, 10.0), (4.0, 6.0)]);
        assert!(is_near(sent[0], 9e5) && is_near(sent[1], 1e5), "{sent:?}");
    }

    #[test]
    fn never_more_than_the_rate_however_many_answers_there_are() {
        for rate in [1, 900, 4_096, 100_000, 125_000_000] {
            let shaper = Shaper::new(rate);
            let slice = shaper.slice() as u64;
            // A thousand small answers within a second, each at once.
            let due: Vec<_> = (0..1_000)
                .map(|n| {
                    let now = NOW + Duration::from_millis(n);
                    shaper.reserve(slice.min(500) as usize, now).max(now)
                })
                .collect();
            let until = |seconds: f64| {
                let end = NOW + Duration::from_secs_f64(seconds);
                due.iter().filter(|at| **at < end).count() as f64 * slice.min(500) as f64
            };
            for seconds in [0.1, 1.0, 5.0] {
                let most = rate as f64 * (seconds + BURST.as_secs_f64()) + slice as f64;
                assert!(until(seconds) <= most * 1.001, "{rate}: {} in {seconds} s", until(seconds));
            }
        }
    }

    #[test]
    fn a_pause_is_made_up_for_by_a_burst_and_no_more() {
        let shaper = Shaper::new(100_000);
        shaper.reserve(1_000, NOW);
        let later = NOW + Duration::from_secs(60);
        let at_once = (0..1_000).take_while(|_| shaper.reserve(1_000, later) <= later).count();
        assert_eq!(at_once, 6, "fifty milliseconds' worth and the one that begins now");
    }

    #[test]
    fn slices_are_small_and_not_too_small() {
        let slice = |rate| Shaper::new(rate).slice();
        assert_eq!([slice(0), slice(1_000), slice(125_000), slice(u64::MAX)], [64, 64, 2_500, 65_536]);
    }

    #[test]
    fn the_share_is_of_those_that_have_something_to_send() {
        let shaper = Shaper::new(90_000);
        assert_eq!(shaper.share(), 90_000);
        (0..3).for_each(|_| shaper.waits());
        assert_eq!(shaper.share(), 30_000);
        shaper.waits_no_more();
        assert_eq!(shaper.share(), 45_000);
    }
}
