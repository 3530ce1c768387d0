//! Tidegate's own estimator: hold as many requests at the origin as its bottleneck can work on, and count what comes back.
//!
//! An origin of K workers driven at a rate must stay well below its capacity or queue. The same origin fed from the gate's
//! queue with K in flight runs at all of it with its unloaded response time, because the waiting happens in the gate. So the
//! in-flight limit L is held at the knee K of the curve of response time over requests in flight,
//!
//! ```text
//! R(n) = B · r (1 + a (r−1)²),  r = max(1, n/K)     curve.rs: which K, B, a are likeliest
//! L    = K · headroom                               headroom.rs: what is best while K is uncertain; plan.rs: how it is found, held, probed
//! C    = Σ work / Σ R/n  at n >= K                  meter.rs: what the origin serves there (Little's law)
//! ```
//!
//! and every sample is tested against the fit: [`change`] tells within some dozens of completions that the origin has become
//! slower or faster, [`costs`] what of it is the mix of classes, [`dispersion`] how sure all this can be, [`pause`] what is none of it.
//! Samples without a backlog, or sent while places were free, are not looked at: they tell of the load (application-limited, as BBR says).
//!
//! As BBR does for a path (Cardwell et al. 2016) but fitted instead of min- and max-filtered: with noisy service the
//! minimum response time is a fraction of the mean, and a limit that follows from it starves the origin.
//!
//! What it cannot do: learn without a backlog; know the knee better than the noise of a few hundred samples lets it, so that
//! with contention the first ten seconds cost a few percent; tell at once that workers were added (response times do not change until it
//! probes up); hold the mean response below half as much again where everybody is served at once and service is bimodal (what a request
//! was sent among is not what it lived among).
//!
//! Tried and lost: the mean of in-flight at both ends of a request (right for sharing, 2 % of goodput in a line); a headroom by the
//! knee's standard error alone (response time for nothing: what each side costs counts too); power laws for contention (knee a tenth too low); a test of saturation by
//! response times alone (short requests end first: false rises) or by counting alone (bursts); dispersion about the
//! fit (a change is taken for noise); less weight for the samples that betrayed a change; thresholds of 3.5 standard errors for the
//! window of the meter (cut by chance every minute); samples that outlive their level counted only up to its end (goodput with
//! bimodal service and with sharing); probes up more often where service varies (with sharing they raise the response time by a tenth);
//! a ramp after a rise of the speed (with sharing it overshoots sixfold); deeper or more probes down for sharing (goodput, and the knee
//! is no better); to scale what was seen by the samples that betrayed a rise (some began before it: the knee drifts up); shorter rounds of
//! the ramp where its samples vary little (half a thousandth of goodput, and wrong sooner with long tails).

use super::{Estimate, Estimator, GateLoad, Phase, Sample, State};
use crate::mutants::{self, Mutant};
use crate::units::{ClassId, Rate, Timestamp};

mod change;
mod costs;
mod curve;
mod dispersion;
mod headroom;
mod initial_estimate;
mod judge;
mod long_lived;
mod meter;
mod mix;
mod pause;
mod plan;
mod round;
mod steer;

#[cfg(test)]
mod tests;

use change::{Change, Changes, Onset};
use costs::Costs;
use curve::{Curve, Hinge};
use dispersion::Dispersion;
use initial_estimate::{InitialEstimate, starves};
use long_lived::LongLived;
use meter::{Meter, Work};
use mix::Mix;
use pause::Pauses;
use plan::Purpose;
use round::Round;

/// Ticks without a sample to judge, or with errors only, after which that is the reason.
const IDLE_TICKS: u32 = 10;
/// Growth per tick of what the room lets in beyond the plan while the origin has places free, and the most of it.
const STARVED_GROWTH: f64 = 1.1;
const STARVED_MOST: f64 = 4.0;

/// What may be set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BottleneckConfig {
    /// Least requests in flight.
    pub min_in_flight: u32,
    /// Most requests in flight.
    pub max_in_flight: u32,
    /// Requests in flight to begin with.
    pub start_in_flight: u32,
    /// Samples over which the capacity is averaged while nothing changes, at a dispersion of 1 (exponential service).
    pub memory: f64,
}

impl Default for BottleneckConfig {
    fn default() -> Self {
        Self { min_in_flight: 1, max_in_flight: 20_000, start_in_flight: 4, memory: 2500.0 }
    }
}

/// See the file's head.
pub struct Bottleneck {
    config: BottleneckConfig,
    guess: InitialEstimate,
    costs: Costs,
    curve: Curve,
    /// The fit before the origin became slower, and its samples: it may become what it was.
    before: Option<Hinge>,
    /// The fit before it became faster, whose samples are spared until the new speed has been measured.
    kept: Option<Hinge>,
    spare: Curve,
    dispersion: Dispersion,
    changes: Changes,
    meter: Meter,
    pauses: Pauses,
    /// The last fit, if it has a knee.
    hinge: Option<Hinge>,
    /// The limit wanted, with its fraction, and what is in force.
    wanted: f64,
    limit: u32,
    limit_before: u32,
    carried: f64,
    purpose: Purpose,
    /// Rounds of a ramp at the present level, beyond the first.
    repeated: u32,
    /// Rounds since the cruise began.
    rounds: u32,
    round: Round,
    /// The first samples, until there are enough to tell an ordinary response time by their median.
    early: Vec<Sample>,
    usual_s: Option<f64>,
    /// By how much the origin has become slower, while that is looked into.
    fallen: f64,
    /// And since when.
    stays_since: Timestamp,
    /// Correction of the headroom by what the probes up have shown.
    adjusted: f64,
    /// Mean log gain of throughput in probes up.
    gained: f64,
    /// How much more than planned the room lets in, because the origin has places free.
    starved: f64,
    alarm: Option<(Change, Onset)>,
    /// Throughput of the last round of a ramp, as configured.
    seen: Option<f64>,
    mix: Mix,
    standing: LongLived,
    ticked: Ticked,
    in_flight: u32,
    reason: &'static str,
}

impl Bottleneck {
    /// An estimator that starts from `start` cost units per second, or from little.
    pub fn new(config: BottleneckConfig, start: Option<Rate>) -> Self {
        let least = config.min_in_flight.max(1);
        let first = f64::from(config.start_in_flight.clamp(least, config.max_in_flight.max(least)));
        Self {
            config,
            guess: InitialEstimate::new(start.map(Rate::get)),
            costs: Costs::new(),
            curve: Curve::new(),
            before: None,
            kept: None,
            spare: Curve::new(),
            dispersion: Dispersion::new(),
            changes: Changes::default(),
            meter: Meter::new(),
            pauses: Pauses::default(),
            hinge: None,
            wanted: first,
            limit: first as u32,
            limit_before: first as u32,
            carried: 0.0,
            purpose: Purpose::Ramp,
            repeated: 0,
            rounds: 0,
            round: Round::new(Timestamp::default(), first as u32, 0),
            early: Vec::with_capacity(judge::EARLY),
            usual_s: None,
            fallen: 1.0,
            stays_since: Timestamp::default(),
            adjusted: 0.0,
            gained: 0.0,
            starved: 1.0,
            alarm: None,
            seen: None,
            mix: Mix::default(),
            standing: LongLived::default(),
            ticked: Ticked::default(),
            in_flight: 0,
            reason: "looking for the knee",
        }
    }

    /// Seconds since the last tick. A clock that ran backwards begins anew: nothing may wait for it to catch up.
    fn watch_the_clock(&mut self, now: Timestamp) -> f64 {
        let last = self.ticked.at.replace(now);
        if last.is_none() {
            // The first round began now, not when the clock did.
            self.round = Round::new(now, self.limit, self.in_flight);
        }
        if last.is_some_and(|last| now < last) {
            self.pauses = Pauses::default();
            self.go(self.purpose, self.wanted, now);
        }
        last.map_or(0.0, |last| now.since(last).as_secs_f64())
    }

    fn phase(&self) -> Phase {
        if self.ticked.idle > IDLE_TICKS {
            Phase::Paused
        } else if self.purpose == Purpose::Ramp {
            Phase::Searching
        } else {
            Phase::Settled
        }
    }

    fn reason(&self) -> &'static str {
        if self.ticked.failing > IDLE_TICKS {
            "errors only: holding"
        } else if self.ticked.idle > IDLE_TICKS && self.hinge.is_some() {
            "nobody waits: holding"
        } else if self.ticked.idle > IDLE_TICKS {
            "not saturated so far: waiting for load"
        } else {
            self.reason
        }
    }

    /// One minus twice the relative standard error of the capacity.
    fn confidence(&self) -> f64 {
        let samples = self.meter.total().count;
        if samples < 1.0 {
            return 0.0;
        }
        (1.0 - 2.0 * (self.dispersion.get() / samples).sqrt()).clamp(0.0, 1.0)
    }

    /// Cost units per second in the present round, once there are some samples: the lesser of what requests and counting say.
    fn throughput_of_round(&self) -> Option<f64> {
        let round = &self.round;
        if round.work.count < 10.0 {
            return None;
        }
        let by_request = round.work.cost / (round.work.time_s + round.censored_s() / round.limit);
        let rate = by_request.min(round.counted() * self.mix.cost_per_unit());
        Some(rate).filter(|rate| rate.is_finite())
    }

    /// How long a round of a ramp takes at the present level, in seconds; `None` before anything was seen.
    fn ramp_round_s(&self) -> Option<f64> {
        let per_second = self.throughput_of_round().or(self.seen)?;
        let cost = self.mix.units_per_request() * self.mix.cost_per_unit();
        let need = plan::round_length(Purpose::Ramp, f64::from(self.limit), self.dispersion.get(), 0.0);
        Some(need * cost / per_second)
    }

    /// Cost units per second, as configured.
    fn capacity(&self) -> f64 {
        let learned = self.meter.rate().map(|rate| rate * self.mix.cost_per_unit());
        let now = self.throughput_of_round().or(self.seen);
        match (self.purpose, learned, now) {
            (Purpose::Ramp, Some(learned), Some(now)) => learned.max(now),
            (_, Some(learned), _) => learned * self.pauses.up_share(),
            (_, None, Some(now)) => now,
            (_, None, None) => self.guess.rate(),
        }
    }
}

impl Estimator for Bottleneck {
    fn forget(&mut self, class: ClassId) {
        self.costs.forget(class);
    }

    fn observe(&mut self, sample: &Sample) {
        if sample.count == 0 {
            return;
        }
        let (count, cost) = (sample.count as f64, sample.cost.units());
        let units = self.costs.units(sample.class, cost);
        self.round.pass(sample.ended);
        if sample.ended.saturating_sub(sample.response) < self.round.began {
            self.round.old -= count;
        }
        if sample.ok {
            self.ticked.served += sample.count;
            self.guess.served(cost * count);
            self.round.ended_units += units * count;
        } else {
            self.ticked.failed += sample.count;
        }
        if sample.backlog && self.met_all(sample) {
            self.standing.linger(count, sample.lingered.as_secs_f64());
            self.take(sample, units);
        } else {
            self.pass_over(sample);
        }
    }

    fn tick(&mut self, load: &GateLoad, now: Timestamp) -> Estimate {
        let elapsed_s = self.watch_the_clock(now);
        self.in_flight = load.in_flight;
        self.round.pass(now);
        self.guess.tick(load, self.limit, elapsed_s);
        if load.backlog() {
            self.standing.tick(elapsed_s);
        } else {
            self.round.idle(elapsed_s);
        }
        self.ticked.close();
        if let Some((change, onset)) = self.alarm.take() {
            self.on_change(change, &onset, now);
        } else {
            let (limit, phi) = (f64::from(self.limit), self.dispersion.get());
            let need = plan::round_length(self.purpose, limit, phi, self.expected().0);
            let stays = self.purpose == Purpose::Stay
                && self.before.is_some()
                && now.since(self.stays_since).as_secs_f64() < plan::STAY_SECONDS;
            if self.round.work.count >= need && !stays {
                self.next_round(now);
            }
        }
        self.starved = if starves(load, self.limit) {
            (self.starved * STARVED_GROWTH).min(STARVED_MOST)
        } else {
            (self.starved / STARVED_GROWTH).max(1.0)
        };
        // Without a backlog the guess counts: what comes back tells of the load.
        let measured = self.hinge.is_some() || load.queued > 0;
        let doubled = if mutants::is(Mutant::EstimateIsDoubled) { 2.0 } else { 1.0 };
        let capacity = if measured { self.capacity() } else { self.capacity().max(self.guess.rate()) };
        Estimate {
            capacity: Rate::per_second(doubled * capacity).unwrap_or(Rate::ZERO),
            gain: self.purpose.gain(self.ramp_round_s()) * self.starved,
            max_in_flight: Some(self.limit),
            phase: self.phase(),
            confidence: self.confidence(),
        }
    }

    fn set(&mut self, capacity: Rate, now: Timestamp) {
        self.guess = InitialEstimate::new(Some(capacity.get()));
        self.rediscover(now);
    }

    fn rediscover(&mut self, now: Timestamp) {
        let from = self.hinge.map_or(f64::from(self.limit), |hinge| plan::DOWN * hinge.knee);
        self.curve.clear();
        self.meter.clear();
        self.changes.clear();
        self.dispersion.cut();
        (self.hinge, self.before, self.kept) = (None, None, None);
        (self.alarm, self.seen) = (None, None);
        self.reason = "told to look anew";
        self.go(Purpose::Ramp, from, now);
    }

    fn state(&self) -> State {
        let mut figures = vec![
            ("limit", f64::from(self.limit)),
            ("dispersion", self.dispersion.get()),
            ("throughput_samples", self.meter.total().count),
            ("staying_in_flight", self.standing.level()),
            ("pauses", self.pauses.count as f64),
            ("least_learned_cost", self.costs.range().0),
            ("greatest_learned_cost", self.costs.range().1),
        ];
        let mut curve = Vec::new();
        if let Some(hinge) = &self.hinge {
            figures.push(("knee", hinge.knee));
            figures.push(("base_response_ms", hinge.base_s * 1e3));
            figures.push(("contention", hinge.contention));
            let at = |n: f64| (n, 1e3 * hinge.base_s * hinge.slowdown(n));
            curve = (1..=40).map(|i| at(hinge.knee * f64::from(i) / 20.0)).collect();
        }
        State {
            reason: self.reason().into(),
            samples: self.curve.samples() as u64,
            figures,
            points: self.curve.points().map(|(n, seconds)| (n, seconds * 1e3)).collect(),
            curve,
        }
    }
}

/// What came since the last tick, and for how many ticks something has been missing.
#[derive(Clone, Copy, Default, Debug)]
struct Ticked {
    at: Option<Timestamp>,
    judged: u64,
    served: u64,
    failed: u64,
    idle: u32,
    failing: u32,
}

impl Ticked {
    fn close(&mut self) {
        let next = |met: bool, ticks: u32| if met { ticks.saturating_add(1) } else { 0 };
        self.idle = next(self.judged == 0, self.idle);
        // Ticks without an answer at all leave it as it is.
        if self.served + self.failed > 0 {
            self.failing = next(self.served == 0, self.failing);
        }
        (self.judged, self.served, self.failed) = (0, 0, 0);
    }
}
