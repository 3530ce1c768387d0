//! When the next newcomer may go: the first request of a session ([`Lane::Newcomer`](crate::queue::Lane)).
//!
//! When a visitor's first page has come, the browser requests all of its parts at once. Newcomers who go
//! whenever an in-flight slot is free go together, so their parts are requested together and queue behind
//! each other. So newcomers go one by one. With the newcomers' work per second `r` (`Room::newcomer_rate`)
//! the next one goes at
//!
//! ```text
//! t + c / r     where the last one went at t and cost c
//! ```
//!
//! That is a token bucket that holds one request. The last one is kept and not the instant, so that another
//! rate holds at once.

use std::time::Duration;

use crate::units::{Cost, Rate, Timestamp};

/// However low the rate is, a newcomer goes in so many seconds: nobody waits for longer than a minute for a
/// rate that may be wrong.
const LONGEST_S: f64 = 60.0;

#[derive(Default)]
pub(super) struct Spacing {
    /// Work of newcomers per second; `None`: they are not spaced.
    rate: Option<Rate>,
    last: Option<(Timestamp, Cost)>,
}

impl Spacing {
    /// `false`: it is the rate in force.
    pub(super) fn set(&mut self, rate: Option<Rate>) -> bool {
        let rate = rate.filter(|rate| *rate > Rate::ZERO);
        std::mem::replace(&mut self.rate, rate) != rate
    }

    /// A newcomer goes.
    pub(super) fn went(&mut self, cost: Cost, now: Timestamp) {
        self.last = Some((now, cost));
    }

    /// When the next newcomer may go; `None`: at once.
    pub(super) fn opens_at(&self, now: Timestamp) -> Option<Timestamp> {
        let (rate, (at, cost)) = (self.rate?, self.last?);
        let opens_at = at + Duration::from_secs_f64((cost.units() / rate.get()).min(LONGEST_S));
        Some(opens_at).filter(|at| *at > now)
    }

    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        self.opens_at(now).is_none()
    }
}
