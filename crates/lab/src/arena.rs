//! The arena: an estimator against a model origin in a closed loop, without visitors. For tuning and for
//! tests of laws.
//!
//! ```text
//!            ┌── the crowd or the room ──┐      ┌─ limit ─┐
//!  feed ───► │ rate kind: released at    │ ───► │  gate   │ ──(delay)──► replica models
//!            │ capacity · gain           │      │ (core)  │                    │
//!            └─────────────▲─────────────┘      └────▲────┘ ◄── complete ──────┘
//!                          └── estimator: every sample, every tick ──┘
//! ```
//!
//! Gate, samples and estimator are the core's, the origin is [`crate::model`]. Visitors, tickets and the room
//! are left out: a run costs some hundred nanoseconds a request, so that a law can be tried on a hundred
//! seeds within seconds. The simulator shows how the room affects a law (late visitors, no-shows, the virtual
//! clock).
//!
//! **Feeds.** [`Feed::Backlog`]: there are always more who want in. The gate's queue never runs dry for an
//! estimator that sets an in-flight limit; for one that sets a rate only, requests are released at capacity ×
//! gain. [`Feed::Arrivals`]: Poisson arrivals at a rate over time; they queue at the gate without bound, or
//! wait to be released where the estimator sets a rate only.
//!
//! **Failures.** A request that finds a replica's backlog full, or no replica up, has failed [`REFUSAL_US`]
//! after being sent; those whose replica goes have failed at that instant. Nobody tries again.
//!
//! Time is in microseconds from the start. Same spec, same estimator: same trace. At one instant: what
//! changes, the origin's ends, then arrivals and releases, then the tick.

use std::time::Duration;

use tidegate_core::units::{ClassId, Cost};

use crate::scenario::{OriginSpec, Process};

mod feed;
pub mod figures;
mod oracle;
mod play;
pub mod scenarios;
mod trace;

#[cfg(test)]
mod tests;

pub use oracle::{Held, Stretch, oracle};
pub use trace::{Second, Trace};

/// Time a failed request takes at least, in microseconds: a connection refused and noticed on a busy host.
/// Without it a gate that lets in more than the origin can hold would fail an infinite number of requests in
/// no time.
pub const REFUSAL_US: u64 = 1_000;

#[derive(Clone, Debug)]
pub struct ArenaSpec {
    pub origin: OriginSpec,
    /// Kinds of requests; at least one.
    pub kinds: Vec<Kind>,
    /// Weights of the kinds from a time on, in order of time; the first from the start.
    pub mix: Vec<(Duration, Vec<f64>)>,
    pub feed: Feed,
    /// How a rate is released, where the estimator sets no in-flight limit.
    pub release: Process,
    /// From the gate to the origin; added to what the gate takes for the response time.
    pub delay: Duration,
    /// Most requests in flight, whatever the estimator says: an operator's bound, and that of the memory of a
    /// run.
    pub max_in_flight: u32,
    pub tick: Duration,
    pub lasts: Duration,
    pub seed: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Kind {
    /// As the gate sees it. Several kinds of one class: a class whose requests are unlike.
    pub class: ClassId,
    pub cost: Cost,
    /// Index into the origin's paths.
    pub path: usize,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Feed {
    /// Always more than can be served.
    Backlog,
    /// Requests per second at points of time, linear between them, constant before the first and after the
    /// last.
    Arrivals(Vec<(Duration, f64)>),
}

impl ArenaSpec {
    /// One kind of cost 1 on the origin's first path, backlog, a tick of 100 ms.
    pub fn new(origin: OriginSpec, lasts: Duration) -> Self {
        Self {
            origin,
            kinds: vec![Kind { class: ClassId(0), cost: Cost::ONE, path: 0 }],
            mix: vec![(Duration::ZERO, vec![1.0])],
            feed: Feed::Backlog,
            release: Process::Poisson,
            delay: Duration::ZERO,
            max_in_flight: 4096,
            tick: tidegate_core::control::TICK,
            lasts,
            seed: 1,
        }
    }

    pub fn run(&self, estimator: &mut dyn tidegate_core::capacity::Estimator) -> Trace {
        play::Play::new(self, estimator).run()
    }
}
