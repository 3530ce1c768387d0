//! Requests under way: for how long those that have not ended yet have been open, by the limit they were
//! sent at.
//!
//! Short requests end first. While the limit grows, most requests of the highest levels are open, and those
//! that have ended suggest too short a response time, the more so the more service varies.
//!
//! The gate does not tell when it sends a request. With a backlog one is sent whenever another ends, and as
//! many as the limit rises by, at the next tick. The number in flight at every tick corrects what that
//! misses.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::Timestamp;

/// Most spans: a ramp begins one with every tick. Of older requests nothing is known.
const SPANS: usize = 64;
/// Open requests of a span below which it is over: a rounding error.
const NONE: f64 = 0.01;

/// The time in which one limit was in force.
#[derive(Clone, Copy, Debug)]
struct Span {
    began: Timestamp,
    limit: u32,
    /// Requests that were sent in it and have not ended.
    open: f64,
    /// Sum of the times from `began` until they were sent, in seconds.
    sent_s: f64,
}

/// The open requests that were sent at one limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub limit: u32,
    pub count: f64,
    /// For how long each has been open, on average, in seconds.
    pub mean_s: f64,
    /// When they were sent, on average.
    pub sent: Timestamp,
}

#[derive(Clone, Default, Debug)]
pub(super) struct UnderWay {
    spans: VecDeque<Span>,
}

impl UnderWay {
    /// Another limit is in force from now on.
    pub fn begin(&mut self, limit: u32, now: Timestamp) {
        self.spans.retain(|span| span.open > NONE);
        if self.spans.len() == SPANS {
            self.spans.pop_front();
        }
        self.spans.push_back(Span { began: now, limit, open: 0.0, sent_s: 0.0 });
    }

    /// The limit at which a request was sent; `None`: it is too long ago.
    pub fn limit_at(&self, sent: Timestamp) -> Option<u32> {
        self.spans.iter().rev().find(|span| span.began <= sent).map(|span| span.limit)
    }

    /// `count` requests that were sent at `sent` ended at `ended`, and others took their places. At the very
    /// instant at which a span begins, a request may have been sent in the one before.
    pub fn replace(&mut self, count: f64, sent: Timestamp, ended: Timestamp) {
        let mut left = count;
        for span in self.spans.iter_mut().rev().filter(|span| span.began <= sent) {
            let gone = left.min(span.open);
            left -= gone;
            span.open -= gone;
            span.sent_s -= gone * sent.since(span.began).as_secs_f64();
        }
        self.send(count, ended);
    }

    /// So many are in flight at `now`.
    pub fn settle(&mut self, in_flight: u32, now: Timestamp) {
        let mut excess = self.spans.iter().map(|span| span.open).sum::<f64>() - f64::from(in_flight);
        self.send((-excess).max(0.0), now);
        // Those that were not sent in the end are among the last.
        for span in self.spans.iter_mut().rev() {
            let gone = excess.min(span.open);
            if gone > 0.0 {
                excess -= gone;
                span.sent_s *= 1.0 - gone / span.open;
                span.open -= gone;
            }
        }
    }

    pub fn clear(&mut self) {
        self.spans.clear();
    }

    pub fn open(&self, now: Timestamp) -> impl Iterator<Item = Open> {
        self.spans.iter().filter(|span| span.open > NONE).map(move |span| {
            let sent_after_s = (span.sent_s / span.open).max(0.0);
            let sent = span.began + Duration::from_secs_f64(sent_after_s);
            let mean_s = (now.since(span.began).as_secs_f64() - sent_after_s).max(0.0);
            Open { limit: span.limit, count: span.open, mean_s, sent }
        })
    }

    fn send(&mut self, count: f64, now: Timestamp) {
        if let Some(span) = self.spans.back_mut() {
            span.open += count;
            span.sent_s += count * now.since(span.began).as_secs_f64();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn open(under_way: &UnderWay, now: u64) -> Vec<(u32, f64, f64)> {
        let rounded = |x: f64| (x * 1e6).round() / 1e6;
        let of = |open: Open| (open.limit, rounded(open.count), rounded(open.mean_s));
        under_way.open(ms(now)).map(of).collect()
    }

    #[test]
    fn open_requests_are_those_that_replaced_others_or_filled_the_limit() {
        let mut under_way = UnderWay::default();
        under_way.begin(2, ms(1000));
        under_way.settle(2, ms(1000));
        assert_eq!(open(&under_way, 1500), [(2, 2.0, 0.5)]);
        under_way.replace(1.0, ms(1000), ms(1500));
        assert_eq!(open(&under_way, 2000), [(2, 2.0, 0.75)], "one of 1 s, one of 0.5 s");
        under_way.begin(4, ms(2000));
        under_way.settle(4, ms(2100));
        assert_eq!(open(&under_way, 3000), [(2, 2.0, 1.75), (4, 2.0, 0.9)]);
        under_way.replace(2.0, ms(1000), ms(3000));
        assert_eq!(open(&under_way, 3000), [(4, 4.0, 0.45)]);
    }

    #[test]
    fn a_request_that_replaced_another_when_a_span_began_is_of_the_one_before() {
        let mut under_way = UnderWay::default();
        under_way.begin(1, ms(0));
        under_way.settle(1, ms(0));
        under_way.replace(1.0, ms(0), ms(1000));
        under_way.begin(2, ms(1000));
        under_way.settle(2, ms(1000));
        assert_eq!(open(&under_way, 2000), [(1, 1.0, 1.0), (2, 1.0, 1.0)]);
        under_way.begin(2, ms(1500));
        (0..2).for_each(|_| under_way.replace(1.0, ms(1000), ms(2000)));
        assert_eq!(open(&under_way, 2000), [(2, 2.0, 0.0)], "none is left in the first span");
    }

    #[test]
    fn what_was_not_sent_after_all_is_taken_from_the_last() {
        let mut under_way = UnderWay::default();
        under_way.begin(2, ms(0));
        under_way.settle(2, ms(0));
        under_way.begin(4, ms(1000));
        under_way.settle(4, ms(1000));
        under_way.settle(3, ms(1000));
        assert_eq!(open(&under_way, 2000), [(2, 2.0, 2.0), (4, 1.0, 1.0)]);
        under_way.settle(1, ms(2000));
        assert_eq!(open(&under_way, 2000), [(2, 1.0, 2.0)]);
        under_way.settle(0, ms(2000));
        assert_eq!(open(&under_way, 2000), []);
    }

    #[test]
    fn the_limit_at_which_a_request_was_sent_is_remembered() {
        let mut under_way = UnderWay::default();
        assert_eq!(under_way.limit_at(ms(5)), None);
        for (at, limit) in [(0, 1), (100, 2), (200, 4)] {
            under_way.begin(limit, ms(at));
            under_way.settle(limit, ms(at));
        }
        let limits = [50, 100, 199, 1000].map(|at| under_way.limit_at(ms(at)));
        assert_eq!(limits, [Some(1), Some(2), Some(2), Some(4)]);
        (0..2 * SPANS).for_each(|_| under_way.begin(9, ms(300)));
        assert_eq!(under_way.limit_at(ms(50)), Some(1), "requests of it are open");
    }
}
