//! The session cap controller: how many sessions there may be.
//!
//! WAC (4.3) sets the cap at 90 % of Little's law: the sessions served per minute times the mean session
//! length. That is 90 % of the capacity over the work per second of an open session. Most sessions that hold
//! a slot are of visitors who have left, and all that a crowd has just begun are not: the same number of
//! slots is then several times the load. So the cap bounds the *active* sessions of `session/forecast.rs`:
//!
//! ```text
//! n*   =  k (1 - s) 0.9 C / c          active sessions that 0.9 C serves, newcomers included
//! cap  =  open sessions + n* - n                at least 1
//! W           seconds of admitted sessions' work that wait at the gate
//! W*          what keeps the origin busy (`queue_target.rs`), 1.6 times as long where visitors without a
//!             slot are refused; at most a tenth of the longest wait at the gate, at least two requests
//! hold        from W > 1.5 W* on until W < W*: no slot is given
//! e           W~ / W* - 1, at most 2
//! k' = -0.3 k e / L          while W~ > W*, or visitors are refused or wait and all slots are taken or kept
//!                            for visitors who waited and are on their way (those who begin in a second)
//! k  -> 1 in ten minutes     while no visitor is refused
//! k' = -0.3 k o / L          instead of a rise, down to 1, while o = min(2, 2 (S - 1.5 S0) / W*) is above 1
//! L           (1 - s) / (c s): mean time that a session is active
//! S, S0       mean time of a request at the origin, of late and at its lowest
//! ```
//!
//! `C` is the capacity; `n`, `c` and `s` are those of the forecast. The estimated capacity may be wrong, so
//! the gate's queue corrects the cap: "limiting the maximum number of simultaneous sessions at 10 appears to
//! be too restrictive" (4.2). `W*` is 0.8 s at 3.5 requests a second, 0.2 s at 100 and 0.13 s at 1,000: a
//! tenth of a second, and one standard deviation of the requests that come in a second. `W~` is `W` over
//! twenty requests, at least two seconds. `k` follows it in the life of a session, because the load of a
//! session comes over its whole life. The hold is for crowds. From one tick to the next no more slots are
//! given than the origin serves requests in `W*`, or ten.
//! Before the forecast is known, which takes some twenty requests of visitors who came back, this and the
//! queue alone bound the cap.
//!
//! Where the gate lets too many requests to the origin at once, they wait there and not at the gate. `S`
//! shows it: by Little's law it is what is in flight over what leaves. It counts against a negative `e` and
//! only takes back the rise of `k`: at `k` = 1 the cap is the paper's, and an origin that has become slower
//! or gets other requests is not punished. `S0` is forgotten in ten minutes while no visitor is refused.
//! Where `C` is an initial estimate (`session/lower_bound.rs`), `o` above 1 refutes it: `C` is then at most
//! twice `B`, the best load that was served, and `k` may fall to `B / C`, until `C` is measured.
//!
//! With a cap fixed by the operator the controller only learns how fast slots become free.
//!
//! Rejected: 90 % of the capacity over the work of an open session as the cap (crowds of `browse.toml`, which
//! `lab/tests/sim` plays: 0.83 of the goodput, and waits that are told six times too long); mean length times
//! mean work of sessions that ended (the short ones end first); refusing by the queue alone (it fills the
//! origin to the brim, and every later session waits `W*` with each of its requests, where 90 % wait next to
//! nothing); a cap that rises whenever the queue is empty (it is unbounded after a calm night, when the
//! morning's crowd comes); a dead band from a tenth of `W*` to `W*` with a fast fall above and a slow rise
//! below (one short queue takes a third of the slots, and giving them back takes minutes: 0.8 of the goodput
//! of this controller at the paper's service); as much waiting at an origin whose capacity is an initial
//! estimate as at the gate (up to 29 good sessions per minute where it has 25, and 17 as often); `W*` 1.6
//! times as long where visitors wait, too (`wac-fig6-7` with a waiting room and 40 clients: 3 % fewer good
//! sessions).

use std::time::Duration;

use super::forecast::ExpectedSessions;
use super::lower_bound::LowerBound;
use super::slot_pool::{PoolLimit, UNBOUNDED};
use super::table::Sums;
use super::turnover::{OpenSessions, Turnover, TurnoverSample};
use super::types::{Cap, SessionInputs};
use crate::capacity::Trust;
use crate::decaying::{DecayingRatio, Ewma, keep};
use crate::origin_flow::OriginFlow;
use crate::queue_target::queue_target;
use crate::units::{Cost, Rate, Timestamp};

/// Part of the capacity that sessions may use (WAC 4.3).
const SHARE: f64 = 0.9;
/// W* where visitors are refused, over what keeps the origin busy. They are lost to the origin for a while,
/// so a slot too few costs more: at 1.4 an origin of 3.5 requests a second serves 94 % of the sessions that
/// it could.
const TARGET_REFUSED: f64 = 1.6;
/// Greatest W* as a part of the longest wait at the gate.
const TARGET_SHARE: f64 = 0.1;
/// Least W* in average requests, where one takes long.
const TARGET_REQUESTS: f64 = 2.0;
/// Memory of the queue's wait and outflow: the longer of so many seconds and so many requests.
const WAIT_MEMORY_S: f64 = 2.0;
const WAIT_MEMORY: f64 = 20.0;
/// The hold begins at so many W* and ends at one.
const HOLD: f64 = 1.5;
/// Memory of the time at the origin, in seconds, or [`WAIT_MEMORY`] requests if they take longer.
const ORIGIN_MEMORY_S: f64 = 10.0;
/// Requests over which the lowest is a mean: over 20 the lowest of some minutes is half of the usual one by
/// chance, and requests seem to wait ever after.
const LOWEST_MEMORY: f64 = 100.0;
/// Multiple of the lowest time at the origin up to which no request waits there.
const AT_EASE: f64 = 1.5;
/// A wait at the origin counts as so much of W*: unlike the gate's queue it keeps nothing busy.
const ORIGIN_TARGET: f64 = 0.5;
/// Longest memory of the gate's and the origin's figures, in seconds.
const MEMORY_S: f64 = 60.0;
/// Change of the correction in a session's life per unit of error, and the greatest error.
const PACE: f64 = 0.3;
const MOST_OVER: f64 = 2.0;
/// Limits of a session's life that the correction uses, in seconds.
const LIFE_RANGE: std::ops::RangeInclusive<f64> = 10.0..=300.0;
/// Time in which the correction is forgotten while no visitor is refused, in seconds.
const REST_S: f64 = 600.0;
const CORRECTION_RANGE: std::ops::RangeInclusive<f64> = 0.1..=10.0;
/// A slot is given to a visitor about so many seconds before the visitor comes.
const IN_TRANSIT_S: f64 = 1.0;
/// A visitor who was refused still wants a slot for so long.
const WANTED: Duration = Duration::from_secs(2);
/// Slots that one tick may always add.
const LEAST_STEP: f64 = 10.0;

pub(super) struct Tick<'a> {
    pub(super) now: Timestamp,
    pub(super) dt_s: f64,
    /// Sessions begun since the last tick.
    pub(super) begun: f64,
    pub(super) inputs: SessionInputs<'a>,
    pub(super) sums: Sums,
    /// Common slots that are taken.
    pub(super) open: u32,
    /// Slots of single tiers that are taken.
    pub(super) elsewhere: u32,
    pub(super) open_sessions: OpenSessions,
    /// New sessions refused since the start.
    pub(super) refused: u64,
    pub(super) timeout: Duration,
    pub(super) expected: Option<ExpectedSessions>,
}

impl Tick<'_> {
    /// Mean cost of the requests that wait, in cost units.
    fn mean_cost(&self) -> f64 {
        match self.inputs.gate.admitted {
            0 => Cost::ONE.units(),
            waiting => self.inputs.gate.admitted_cost.units() / waiting as f64,
        }
    }
}

/// Whether visitors want slots that they do not get.
#[derive(Default)]
struct Demand {
    refused: u64,
    /// When a visitor was last refused or waited.
    wanted: Option<Timestamp>,
    /// When a visitor last waited.
    waited: Option<Timestamp>,
}

impl Demand {
    fn learn(&mut self, tick: &Tick<'_>) {
        let before = std::mem::replace(&mut self.refused, tick.refused);
        if tick.inputs.waiting > 0 {
            (self.wanted, self.waited) = (Some(tick.now), Some(tick.now));
        } else if tick.refused > before {
            self.wanted = Some(tick.now);
        }
    }

    fn is_wanted(&self, now: Timestamp) -> bool {
        self.wanted.is_some_and(|at| now.since(at) <= WANTED)
    }

    fn is_waiting(&self, now: Timestamp) -> bool {
        self.waited.is_some_and(|at| now.since(at) <= WANTED)
    }
}

/// Time of a request at the origin, in seconds: S and S0.
#[derive(Default)]
struct OriginTime {
    mean: DecayingRatio,
    /// Over more requests, and the lowest that it has been.
    long_mean: DecayingRatio,
    lowest_s: Option<f64>,
    /// Integral of the work in flight so far (`gate/totals.rs`).
    in_flight_cost_us: Option<u64>,
}

impl OriginTime {
    /// Learns from the work in flight and the work `sent` in a tick; `kept` is left of the memory. While
    /// slots are not wanted the lowest time is forgotten slowly.
    fn learn(&mut self, tick: &Tick<'_>, sent: f64, kept: f64, is_wanted: bool) {
        let now = tick.inputs.gate.in_flight_cost_us(tick.now);
        let cost_s = now.wrapping_sub(self.in_flight_cost_us.replace(now).unwrap_or(now)) as f64 / 1e8;
        self.mean.decay_and_add(kept, cost_s, sent);
        let many = LOWEST_MEMORY * tick.mean_cost();
        self.long_mean.decay_and_add(kept.max(many / (many + sent)), cost_s, sent);
        // A few requests make no mean.
        let is_known = self.long_mean.over >= WAIT_MEMORY / 2.0 * tick.mean_cost();
        let Some(mean_s) = self.long_mean.get().filter(|_| is_known) else { return };
        let lowest_s = self.lowest_s.get_or_insert(mean_s);
        if mean_s < *lowest_s {
            *lowest_s = mean_s;
        } else if !is_wanted {
            *lowest_s += (mean_s - *lowest_s) * (1.0 - keep(tick.dt_s, REST_S));
        }
    }

    /// S - 1.5 S0: time that requests wait at the origin.
    fn wait_s(&self) -> f64 {
        let (Some(mean_s), Some(lowest_s)) = (self.mean.get(), self.lowest_s) else { return 0.0 };
        mean_s - AT_EASE * lowest_s
    }
}

#[derive(Default)]
pub(super) struct CapController {
    cap: Cap,
    timeout_s: f64,
    sums: Sums,
    forwarded: OriginFlow,
    demand: Demand,
    lower_bound: LowerBound,
    /// Work that leaves the gate's queue per second, and sessions that begin.
    flow: DecayingRatio,
    begun: DecayingRatio,
    /// W~, in seconds.
    wait_s: Ewma,
    origin: OriginTime,
    is_held: bool,
    /// k
    pub(super) correction: f64,
    /// What open sessions will ask for; `None`: too little is known.
    expected: Option<ExpectedSessions>,
    /// Estimated cost units per second; `None`: no estimate.
    capacity: Option<f64>,
    pub(super) turnover: Turnover,
    /// Common slots; `None`: nothing is learned yet.
    bound: Option<f64>,
}

impl CapController {
    pub(super) fn new(cap: Cap) -> Self {
        Self { cap, correction: 1.0, ..Self::default() }
    }

    pub(super) fn configure(&mut self, cap: Cap, timeout: Duration) {
        self.timeout_s = timeout.as_secs_f64();
        if cap != self.cap {
            (self.cap, self.is_held, self.correction, self.bound) = (cap, false, 1.0, None);
        }
    }

    pub(super) fn limit(&self, max_entries: u64) -> PoolLimit {
        let most = u32::try_from(max_entries).unwrap_or(UNBOUNDED).clamp(1, UNBOUNDED - 1);
        match self.cap {
            Cap::None => PoolLimit::open(UNBOUNDED),
            Cap::Fixed(slots) => PoolLimit::open(slots.clamp(1, most)),
            Cap::Discovered => {
                // Also before the first tick, when a crowd may be there already.
                let bound = self.bound.unwrap_or(LEAST_STEP) as u32;
                PoolLimit { bound: bound.clamp(1, most), is_closed: self.is_held }
            }
        }
    }

    pub(super) fn tick(&mut self, tick: &Tick<'_>) {
        self.timeout_s = tick.timeout.as_secs_f64();
        let capacity = tick.inputs.capacity;
        self.expected = tick.expected;
        self.capacity = (capacity > Rate::ZERO && capacity < Rate::MAX).then(|| capacity.get());
        self.learn_sessions(tick);
        self.demand.learn(tick);
        let is_wanted = self.demand.is_wanted(tick.now);
        let sent = self.forwarded.observe(tick.inputs.gate, tick.now).work;
        if self.lower_bound.learn(sent, tick.dt_s, tick.inputs.is_measured) {
            self.correction = 1.0;
        }
        let target_s = self.learn_gate(tick, sent);
        let kept = self.keep(tick, ORIGIN_MEMORY_S);
        self.origin.learn(tick, sent, kept, is_wanted);
        if self.cap != Cap::Discovered || tick.dt_s <= 0.0 {
            return;
        }
        self.correct(tick, target_s, is_wanted);
        let served = self.flow.get().unwrap_or(0.0) * target_s / tick.mean_cost();
        let most = f64::from(tick.open) + served.max(LEAST_STEP);
        let cap = self.free().map(|free| f64::from(tick.open) + free);
        self.bound = Some(cap.map_or(most, |cap| cap.min(most)).max(1.0));
    }

    /// Learns the length and work of whole sessions.
    fn learn_sessions(&mut self, tick: &Tick<'_>) {
        let (before, sums) = (std::mem::replace(&mut self.sums, tick.sums), &tick.sums);
        let open_s = f64::from(tick.open + tick.elsewhere) * tick.dt_s;
        self.turnover.learn(&TurnoverSample {
            ended: sums.whole.saturating_sub(before.whole) as f64,
            early: sums.endings.early().saturating_sub(before.endings.early()) as f64,
            held_s: sums.held_ms.saturating_sub(before.held_ms) as f64 / 1e3,
            open_s,
            work: sums.whole_work.saturating_sub(before.whole_work) as f64 / 100.0,
            open: tick.open_sessions,
        });
    }

    /// What a tick leaves of a memory of so many seconds, or of [`WAIT_MEMORY`] requests if they take longer.
    fn keep(&self, tick: &Tick<'_>, least_s: f64) -> f64 {
        let requests_s = WAIT_MEMORY * tick.mean_cost() / self.flow_per_s(tick).max(1e-3);
        keep(tick.dt_s, least_s.max(requests_s).min(MEMORY_S))
    }

    /// Learns the wait at the gate and sets the hold. Returns W*, in seconds.
    fn learn_gate(&mut self, tick: &Tick<'_>, sent: f64) -> f64 {
        let gate = tick.inputs.gate;
        let kept = self.keep(tick, WAIT_MEMORY_S);
        self.flow.decay_and_add(kept, sent, tick.dt_s);
        self.begun.decay_and_add(kept, tick.begun, tick.dt_s);
        let per_s = self.flow_per_s(tick).max(1e-6);
        let wait_s = if gate.admitted == 0 { 0.0 } else { gate.admitted_cost.units() / per_s };
        let target_s = self.target_s(tick, per_s);
        self.wait_s.add(wait_s.min(100.0 * target_s), kept);
        self.is_held = wait_s > if self.is_held { target_s } else { HOLD * target_s };
        target_s
    }

    /// W*, in seconds, at a gate that requests leave at `per_s` cost units per second.
    fn target_s(&self, tick: &Tick<'_>, per_s: f64) -> f64 {
        let mean_cost = tick.mean_cost();
        let kept_s = queue_target(per_s, mean_cost, f64::MAX) / per_s;
        let most_s = tick.inputs.gate.max_queue_wait.as_secs_f64() * TARGET_SHARE;
        let times = if self.demand.is_waiting(tick.now) { 1.0 } else { TARGET_REFUSED };
        (times * kept_s).min(most_s).max(TARGET_REQUESTS * mean_cost / per_s)
    }

    /// Work per second that the origin takes: as seen, but at least a quarter of the estimate. The estimate
    /// lags behind an origin that has become slow, and where no requests come nothing is seen.
    fn flow_per_s(&self, tick: &Tick<'_>) -> f64 {
        let seen_per_s = self.flow.get().unwrap_or(0.0);
        if tick.inputs.capacity >= Rate::MAX {
            return seen_per_s;
        }
        seen_per_s.max(self.lower_bound.capacity(tick.inputs.capacity.get()) / 4.0)
    }

    fn correct(&mut self, tick: &Tick<'_>, target_s: f64, is_wanted: bool) {
        let over = self.wait_s.get().unwrap_or(0.0) / target_s - 1.0;
        let is_waiting = self.demand.is_waiting(tick.now);
        let in_transit = if is_waiting { self.begun.get().unwrap_or(0.0) * IN_TRANSIT_S } else { 0.0 };
        let is_full = self.free().is_some_and(|free| free < 1.0 + in_transit);
        let life_s = self.expected.map_or(*LIFE_RANGE.end(), |expected| expected.life_s());
        let life_s = life_s.clamp(*LIFE_RANGE.start(), *LIFE_RANGE.end());
        let at_origin = self.origin.wait_s() / (target_s * ORIGIN_TARGET);
        // An empty queue at the gate is no room for more as far as requests wait at the origin.
        let error = if over < 0.0 { (over + at_origin.max(0.0)).min(0.0) } else { over };
        let (mut least, most) = (*CORRECTION_RANGE.start(), *CORRECTION_RANGE.end());
        let rate = if at_origin > 1.0 && over <= 0.0 {
            // Not below the paper's number on this evidence, for the load that the origin has shown to serve.
            self.lower_bound.refute();
            least = self.correction.min(self.lower_bound.certain(tick.inputs.capacity.get()));
            -PACE * at_origin.min(MOST_OVER) / life_s
        } else if over > 0.0 || is_wanted && is_full {
            -PACE * error.min(MOST_OVER) / life_s
        } else if !is_wanted {
            -self.correction.ln() / REST_S
        } else {
            0.0
        };
        self.correction = (self.correction * (rate * tick.dt_s).exp()).clamp(least, most);
    }

    /// The correction, and the length of sessions.
    pub(super) fn learned(&self) -> (f64, DecayingRatio) {
        (self.correction, self.turnover.length)
    }

    /// Trusted, the values weigh what they did; to be checked, the length counts for one session and the
    /// correction begins anew.
    pub(super) fn resume(&mut self, correction: f64, length: DecayingRatio, trust: Trust) {
        self.turnover.length = length;
        if trust == Trust::Trusted {
            self.correction = correction.clamp(*CORRECTION_RANGE.start(), *CORRECTION_RANGE.end());
        } else {
            self.turnover.length.decay(1.0 / length.over.max(1.0));
        }
    }

    /// Work per second that sessions may ask for, newcomers included.
    fn work_per_s(&self) -> Option<f64> {
        let capacity = self.lower_bound.capacity(self.capacity?);
        Some(self.correction * SHARE * capacity)
    }

    /// Sessions that may begin; negative if too many are active; `None`: too little is known.
    fn free(&self) -> Option<f64> {
        let ExpectedSessions { per_s, each_per_s, newcomers_share, .. } = self.expected?;
        Some(((1.0 - newcomers_share) * self.work_per_s()? - per_s) / each_per_s)
    }

    /// Of so many slots, those that become free per second.
    pub(super) fn per_s(&self, slots: u32) -> f64 {
        let begin_per_s = |expected: ExpectedSessions| {
            Some(expected.newcomers_share * self.work_per_s()? / (expected.first * expected.first_page_ratio))
        };
        let foreseen = self.expected.filter(|_| self.cap == Cap::Discovered).and_then(begin_per_s);
        foreseen.unwrap_or_else(|| self.turnover.per_s(slots, self.timeout_s))
    }

    /// Seconds before the first of them becomes free.
    pub(super) fn next_s(&self) -> f64 {
        // Slots of a cap that is discovered need not become free: the cap follows the visitors who leave.
        if self.cap == Cap::Discovered { 0.0 } else { self.turnover.next_s() }
    }

    /// Whether too little is known to count slots: the room goes by the capacity alone.
    pub(super) fn is_blind(&self) -> bool {
        self.cap == Cap::Discovered && self.free().is_none()
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held && self.cap == Cap::Discovered
    }
}
