//! The capacity for algorithms that only choose an in-flight limit: cost units per second while others wait.
//!
//! ```text
//! saturated tick    requests were queued at the gate at its end, and whenever a request ended in it
//! C = Σ cost of requests served / Σ time      over the saturated ticks of the last 2 s
//! ```
//!
//! Aimd, vegas, gradient, gradient2, cinnamon and breakwater have no capacity of their own. Rejected:
//! L / mean response time. By Little's law it is the same number where L requests are always in flight, and
//! wrong where they are not.
//!
//! Without a backlog the last capacity holds, because throughput then measures the load. Ticks with failures
//! only are left out: an origin that only fails has not become slower. Rejected: holding wherever most
//! requests fail: a limit that the origin mostly refuses would never change.
//!
//! Nothing is known before the origin was saturated for the first time. The capacity then starts low, is at
//! least twice the throughput of any 2 s, and grows with every tick in which visitors wait in the room while
//! the gate has free slots: an idle origin must not keep anybody waiting. Slower growth corrects it later.
//!
//! Limits: 2 s at 100 requests per second are 200 requests, a standard error of 7 % with exponential service.
//! And the throughput under a bad limit is taken for the capacity.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Estimate, GateLoad, Phase, Sample, State};
use crate::units::{Rate, Timestamp};

const WINDOW: Duration = Duration::from_secs(2);
const LEAST: Duration = Duration::from_millis(500);
/// Requests for which [`LEAST`] is enough; with fewer it takes the whole window.
const ENOUGH: u64 = 20;
/// Requests served within the window at which the confidence is 1.
const CERTAIN: f64 = 400.0;
/// Cost units per second at the start, and the least ever: at zero nothing would show that there is capacity.
const START: f64 = 100.0;
const FLOOR: f64 = 1.0;
/// Growth per tick while visitors wait and slots are free: before the first measurement (×2 in 1.4 s), after.
const FAST: f64 = 1.05;
const SLOW: f64 = 1.01;
/// Growth ends at this multiple of the throughput: no-shows must not raise the capacity without bound.
const AHEAD: f64 = 4.0;
/// Gain while the gate's queue is empty and visitors wait in the room: the room must not be the bottleneck.
const GAIN: f64 = 1.1;

#[derive(Clone, Copy, Default, Debug)]
struct Tick {
    time: Duration,
    units: f64,
    served: u64,
    failed: u64,
    saturated: bool,
}

#[derive(Clone, Default, Debug)]
pub(super) struct Throughput {
    ticks: VecDeque<Tick>,
    now: Tick,
    ticked: Option<Timestamp>,
    capacity: f64,
    /// The origin was saturated at least once.
    known: bool,
    served: u64,
    reason: &'static str,
}

impl Throughput {
    /// Starts from `start` cost units per second, or from [`START`].
    pub(super) fn new(start: Option<Rate>) -> Self {
        Self {
            now: Tick { saturated: true, ..Tick::default() },
            capacity: start.map_or(START, Rate::get).max(FLOOR),
            reason: "nothing has ended yet",
            ..Self::default()
        }
    }

    pub(super) fn observe(&mut self, sample: &Sample) {
        self.now.saturated &= sample.backlog;
        if sample.ok {
            self.now.served = self.now.served.saturating_add(sample.count);
            self.now.units += sample.cost.units() * sample.count as f64;
        } else {
            self.now.failed = self.now.failed.saturating_add(sample.count);
        }
    }

    pub(super) fn tick(&mut self, limit: u32, load: &GateLoad, now: Timestamp) -> Estimate {
        self.turn(load, now);
        self.judge(limit, load);
        let gain = if load.room_waits && load.queued == 0 { GAIN } else { 1.0 };
        let phase = match (load.backlog(), self.known) {
            (false, _) => Phase::Paused,
            (true, false) => Phase::Searching,
            (true, true) => Phase::Settled,
        };
        let confidence = if self.known { (self.served as f64 / CERTAIN).min(1.0) } else { 0.0 };
        let capacity = Rate::per_second(self.capacity).unwrap_or_default();
        Estimate { capacity, gain, max_in_flight: Some(limit.max(1)), phase, confidence }
    }

    pub(super) fn set(&mut self, capacity: Rate) {
        self.capacity = capacity.get().max(FLOOR);
        self.rediscover();
        self.reason = "set by an operator";
    }

    /// Forgets the measurements; the capacity holds until there is a new one.
    pub(super) fn rediscover(&mut self) {
        self.ticks.clear();
        self.now = Tick { saturated: true, ..Tick::default() };
        self.known = false;
        self.reason = "rediscovery requested";
    }

    pub(super) fn state(&self, figures: Vec<(&'static str, f64)>) -> State {
        State { reason: self.reason.into(), samples: self.served, figures, ..State::default() }
    }

    fn turn(&mut self, load: &GateLoad, now: Timestamp) {
        let time = self.ticked.map_or(Duration::ZERO, |before| now.since(before));
        self.ticked = Some(now);
        if time.is_zero() {
            // The first tick, or the clock went backwards: requests that ended count in the next tick.
            return;
        }
        let errors_only = self.now.failed > 0 && self.now.served == 0;
        let saturated = self.now.saturated && load.queued > 0 && !errors_only;
        self.ticks.push_back(Tick { time, saturated, ..self.now });
        self.now = Tick { saturated: true, ..Tick::default() };
        let mut all: Duration = self.ticks.iter().map(|tick| tick.time).sum();
        while all > WINDOW && self.ticks.len() > 1 {
            all -= self.ticks.pop_front().map_or(Duration::ZERO, |tick| tick.time);
        }
    }

    fn judge(&mut self, limit: u32, load: &GateLoad) {
        let sum = |only_saturated: bool| {
            let ticks = self.ticks.iter().filter(|tick| tick.saturated || !only_saturated);
            ticks.fold(Tick::default(), |sum, tick| Tick {
                time: sum.time + tick.time,
                units: sum.units + tick.units,
                served: sum.served.saturating_add(tick.served),
                failed: sum.failed.saturating_add(tick.failed),
                saturated: true,
            })
        };
        let (all, saturated) = (sum(false), sum(true));
        self.served = saturated.served;
        let rate = |tick: &Tick| {
            let time = tick.time.max(LEAST).as_secs_f64();
            tick.units / time
        };
        if all.failed > 0 && all.served == 0 {
            self.reason = "errors only: holding";
            return;
        }
        // A window that lacks one tick counts as full.
        let full = saturated.time * 10 >= WINDOW * 9;
        let enough = saturated.served >= ENOUGH && saturated.time >= LEAST;
        if load.queued > 0 && (enough || full && (self.known || saturated.served > 0)) {
            self.known = true;
            self.capacity = rate(&saturated).max(FLOOR);
            self.reason = "throughput while requests wait";
            return;
        }
        let starved = load.room_waits && load.queued == 0 && load.in_flight < limit;
        if starved {
            let growth = if self.known { SLOW } else { FAST };
            let most = AHEAD * rate(&all).max(START);
            self.capacity = self.capacity.max((self.capacity * growth).min(most));
        }
        let proved = if self.known { 1.0 } else { 2.0 };
        self.capacity = self.capacity.max(proved * rate(&all));
        self.reason = match (starved, load.backlog()) {
            (true, _) => "the origin could take more: letting in more",
            (false, true) => "too few have ended while others waited: holding",
            (false, false) => "nobody waits: holding",
        };
    }
}

/// Pseudo-random numbers in 0..1 (multiples of the golden ratio), because the core has no randomness.
pub(super) fn jitter(turn: u32) -> f64 {
    (f64::from(turn) * 0.618_033_988_749_894_9).fract()
}

/// Steps for a sample of several requests; bounded, because a report may name any number.
pub(super) fn repeats(sample: &Sample) -> u64 {
    sample.count.min(1_000)
}

/// Most response times that are kept for a percentile: more than an origin completes in 100 ms, and of longer
/// windows a sample that is large enough. Further ones are ignored.
pub(super) const MAX_SAMPLES: usize = 1 << 16;

/// The percentile `share` (0 to 1) of response times in microseconds, at least one. Empties them.
pub(super) fn take_percentile(responses_us: &mut Vec<u64>, share: f64) -> Option<u64> {
    let count = responses_us.len();
    let last = count.checked_sub(1)?;
    let rank = ((share * count as f64).ceil() as usize).saturating_sub(1).min(last);
    let (_, value, _) = responses_us.select_nth_unstable(rank);
    let value = (*value).max(1);
    responses_us.clear();
    Some(value)
}
