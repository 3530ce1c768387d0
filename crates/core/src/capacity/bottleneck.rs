//! Tidegate's own estimator: it keeps as many requests in flight as the origin's bottleneck can work on, and
//! measures the throughput that results.
//!
//! An origin with K workers that is fed at a fixed rate must stay well below its capacity, or it queues. The
//! same origin fed from the gate's queue with K requests in flight runs at full capacity with its unloaded
//! response time, because requests wait in the gate instead. So the in-flight limit L is held at the knee K
//! of the curve of response time over requests in flight:
//!
//! ```text
//! R(n) = B · r (1 + a (r−1)²),  r = max(1, n/K)     fit.rs: the likeliest K, B and a
//! n: in flight when it was sent, or over its life   discipline.rs: the likelier of both
//! L    = argmax of throughput less the price of waiting   level.rs: the best whole L for an uncertain K
//! C    = Σ work / Σ R/n  for n >= K                 work.rs: throughput at saturation (Little's law)
//! ```
//!
//! Every sample is tested against the fit. [`change`] detects within some dozens of completions that the
//! origin has become slower or faster, excludes pauses, and measures the dispersion on which all error bounds
//! rest; [`costs`] separates a change of the origin from a change of the mix of classes. Samples without a
//! backlog, or from a time of free slots ([`occupancy`]), are ignored: they measure the load (BBR's
//! "application-limited").
//!
//! The idea is BBR's (Cardwell et al. 2016), with a fit in place of its minimum and maximum filters: with
//! variable service times the minimum is a fraction of the mean, and such a limit starves the origin.
//!
//! Limits of the method:
//! - It cannot learn without a backlog.
//! - The knee is known only as well as some hundred noisy samples allow. With contention this costs a few
//!   percent of the goodput in the first ten seconds.
//! - Added workers are noticed only by a probe up, because they do not change response times before.
//!
//! Rejected after measurement in the simulator:
//! - Four in flight to begin with: with contention among one or two workers the origin never recovers.
//! - One and then two, or two at first: one percent more goodput on drawn origins, but the first visitors of
//!   an origin of ten workers wait at the gate for five times as long as their requests take.
//! - n over the life of a request only: right for sharing, too high a limit in line (discipline.rs).
//! - Headroom by the knee's standard error alone: adds response time, since it ignores what each side costs.
//! - Power laws for contention: the knee comes out a tenth too low.
//! - A saturation test by response times: short requests end first, and rises seem to come that do not.
//! - Dispersion about the fit: a change is taken for noise.
//! - The samples that revealed a change of speed as the first of the new throughput: they are extreme by
//!   selection (after a fivefold rise the capacity was off by 2.3 % in the median, and is by 1.5 %).
//! - Samples that outlive their level count only up to its end: less goodput with bimodal or shared service.
//! - More probes up where service varies: with sharing they add a tenth to the response time.
//! - A ramp after a rise of the speed: with sharing it overshoots sixfold.
//! - Deeper or more probes down for sharing: less goodput, and the knee is no better.
//! - Scaling old samples by those that revealed a rise: some of them began before it, and the knee drifts up.
//! - Keeping the fit from before a fall, and samples from before a rise: the same goodput within 0.1 %.
//! - After a fall a wait of 5 s and a probe below the knee that remains if workers left: no more goodput.
//! - A ramp by rounds of as many requests as are in flight, each twice the last: slow origins wait for ten
//!   seconds and more for the slowest of a few requests (ramp.rs).

use super::{Estimate, Estimator, GateLoad, Learned, LearnedCost, Phase, Sample, State, Trust};
use crate::mutants::{self, Mutant};
use crate::units::{ClassId, Cost, Rate, Timestamp};

mod change;
mod costs;
mod discipline;
mod fit;
mod in_flight;
mod initial_estimate;
mod level;
mod long_lived;
mod occupancy;
mod plan;
mod ramp;
mod restart;
mod steps;
mod under_way;
mod work;

#[cfg(test)]
mod tests;

use change::{Change, Changes, Dispersion, Expected, Onset, Pauses};
use costs::{Costs, Mix};
use discipline::{Among, Curves};
use fit::Hinge;
use in_flight::InFlight;
use initial_estimate::InitialEstimate;
use long_lived::{Completions, LongLived};
use occupancy::Occupancy;
use plan::Purpose;
use ramp::Ramp;
use under_way::UnderWay;
use work::{Round, Work};

/// Ticks without a usable sample, or with errors only, after which the reason given is that.
const IDLE_TICKS: u32 = 10;
/// A sample counts for the throughput from so many knees to so many.
const ABOUT_KNEE: (f64, f64) = (0.98, 1.8);
/// Bounds of a response time in seconds: the resolution of a clock, and an hour.
const LEAST_S: f64 = 1e-6;
const MOST_S: f64 = 3600.0;
/// Completions per second expected while nothing is known: no gap is a pause then.
const LEAST_RATE: f64 = 0.01;

/// Parameters of [`Bottleneck`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BottleneckConfig {
    pub min_in_flight: u32,
    pub max_in_flight: u32,
    /// Samples over which a constant capacity is averaged, and that are kept on either side of the knee.
    pub memory: f64,
}

impl Default for BottleneckConfig {
    fn default() -> Self {
        Self { min_in_flight: 1, max_in_flight: 20_000, memory: 2500.0 }
    }
}

/// A fit, and the number of requests in flight that is best for it.
#[derive(Clone, Copy, Debug)]
struct Fitted {
    hinge: Hinge,
    level: f64,
}

/// The estimator `bottleneck`: in-flight limit at the knee of the response time curve.
pub struct Bottleneck {
    config: BottleneckConfig,
    initial: InitialEstimate,
    costs: Costs,
    curves: Curves,
    dispersion: Dispersion,
    changes: Changes,
    /// Work of late about the knee, since the cruise or the present speed began.
    throughput: Work,
    pauses: Pauses,
    /// The last fit, if it has a knee.
    fitted: Option<Fitted>,
    /// The level wanted, which may be fractional, and the limit in force.
    target: f64,
    limit: u32,
    under_way: UnderWay,
    purpose: Purpose,
    ramp: Ramp,
    /// Rounds since the cruise began.
    rounds: u32,
    round: Round,
    alarm: Option<(Change, Onset)>,
    /// Charged cost units per second at the end of the ramp so far.
    ramp_throughput: Option<f64>,
    mix: Mix,
    long_lived: LongLived,
    completions: Completions,
    ticks: Ticks,
    in_flight: InFlight,
    occupancy: Occupancy,
    reason: &'static str,
}

impl Bottleneck {
    /// An estimator that starts from `start` cost units per second, or from a default.
    pub fn new(config: BottleneckConfig, start: Option<Rate>) -> Self {
        let least = config.min_in_flight.max(1);
        let first = f64::from(least);
        Self {
            config,
            initial: InitialEstimate::new(start.map(Rate::get)),
            costs: Costs::new(),
            curves: Curves::new(),
            dispersion: Dispersion::new(),
            changes: Changes::default(),
            throughput: Work::default(),
            pauses: Pauses::default(),
            fitted: None,
            target: first,
            limit: first as u32,
            under_way: UnderWay::default(),
            purpose: Purpose::Ramp,
            ramp: Ramp::default(),
            rounds: 0,
            round: Round::new(Timestamp::default(), first as u32),
            alarm: None,
            ramp_throughput: None,
            mix: Mix::default(),
            long_lived: LongLived::default(),
            completions: Completions::default(),
            ticks: Ticks::default(),
            in_flight: InFlight::default(),
            occupancy: Occupancy::default(),
            reason: "looking for the knee",
        }
    }

    /// Seconds since the last tick. If the clock ran backwards, the round starts anew: otherwise everything
    /// would wait until the clock has caught up.
    fn elapsed_s(&mut self, now: Timestamp) -> f64 {
        let last = self.ticks.at.replace(now);
        if last.is_none() {
            // The first round begins with the first tick, not at time zero.
            self.round = Round::new(now, self.limit);
            self.under_way.begin(self.limit, now);
            self.ticks.first = now;
        }
        if last.is_some_and(|last| now < last) {
            self.ticks.first = now;
            self.pauses = Pauses::default();
            self.completions = Completions::default();
            self.under_way.clear();
            self.in_flight.start_anew(now);
            self.go(self.purpose, self.target, now);
        }
        last.map_or(0.0, |last| now.since(last).as_secs_f64())
    }

    fn hinge(&self) -> Option<Hinge> {
        self.fitted.map(|fitted| fitted.hinge)
    }

    fn phase(&self) -> Phase {
        if self.ticks.idle > IDLE_TICKS {
            Phase::Paused
        } else if self.purpose == Purpose::Ramp {
            Phase::Searching
        } else {
            Phase::Settled
        }
    }

    fn reason(&self) -> &'static str {
        if self.ticks.failing > IDLE_TICKS {
            "errors only: holding"
        } else if self.ticks.idle > IDLE_TICKS && self.fitted.is_some() {
            "nobody waits: holding"
        } else if self.ticks.idle > IDLE_TICKS {
            "not saturated so far: waiting for load"
        } else {
            self.reason
        }
    }

    /// One minus twice the relative standard error of the capacity.
    fn confidence(&self) -> f64 {
        let samples = self.throughput.count;
        if samples < 1.0 {
            return 0.0;
        }
        (1.0 - 2.0 * (self.dispersion.get() / samples).sqrt()).clamp(0.0, 1.0)
    }

    /// A response at the present level by the throughput of the ramp, in seconds; `None` before there is any.
    fn ramp_response_s(&self) -> Option<f64> {
        let cost = self.mix.units_per_request() * self.mix.cost_per_unit();
        self.ramp_throughput.map(|per_second| f64::from(self.limit) * cost / per_second)
    }

    /// The highest limit that is allowed.
    fn most(&self) -> f64 {
        f64::from(self.config.max_in_flight.max(self.config.min_in_flight).max(1))
    }

    /// Standard error of the wait that is subtracted from a response to learn what it costs, in learned cost
    /// units: that of the mean response by the fit, which all classes share.
    fn wait_error(&self) -> f64 {
        let slowdown = self.hinge().map_or(1.0, |hinge| hinge.slowdown(f64::from(self.limit)));
        let samples = self.curves.likelier().samples().max(1.0);
        self.mix.units_per_request() * slowdown * (self.dispersion.get() / samples).sqrt()
    }

    /// The mean charge of the present traffic has changed by this factor: what was measured in charged cost
    /// units is expressed in the new ones.
    fn recharge(&mut self, factor: f64) {
        self.mix.recharge(factor);
        self.ramp_throughput = self.ramp_throughput.map(|rate| rate * factor);
        self.initial.recharge(factor);
    }

    /// Learned units per second at the best level: measured, or by the fit while too few were served there.
    fn units_per_s(&self) -> Option<f64> {
        let by_fit = |Fitted { hinge, level }| level / (hinge.base_s * hinge.slowdown(level));
        self.throughput.rate().or_else(|| self.fitted.map(by_fit))
    }

    fn capacity(&self) -> f64 {
        let learned = self.units_per_s().map(|rate| rate * self.mix.cost_per_unit());
        match (self.purpose, learned, self.ramp_throughput) {
            (Purpose::Ramp, Some(learned), Some(now)) => learned.max(now),
            (_, Some(learned), _) => learned * self.pauses.up_share(),
            (_, None, Some(now)) => now,
            (_, None, None) => self.initial.rate,
        }
    }

    /// Throughput and response time that the fit predicts at the present limit; before there is one, those of
    /// the ramp.
    fn expected(&self) -> Expected {
        if let Some(hinge) = self.hinge() {
            let base = hinge.base_s * self.mix.units_per_request();
            let n = (f64::from(self.limit) - self.long_lived.level).max(1.0);
            Expected { per_second: n.min(hinge.knee) / base, response_s: base * hinge.slowdown(n) }
        } else if let Some(response_s) = self.ramp_response_s() {
            Expected { per_second: f64::from(self.limit) / response_s, response_s }
        } else {
            Expected { per_second: LEAST_RATE, response_s: f64::INFINITY }
        }
    }
}

/// What is done with every sample: a search among at most 1,024 changes (in_flight.rs), and O(1) else.
impl Bottleneck {
    /// Requests among which it was served; `None`: slots were free when it was sent.
    fn among(&self, sample: &Sample) -> Option<Among> {
        let sent = sample.ended.saturating_sub(sample.response);
        let slots = self.under_way.limit_at(sent).unwrap_or(self.limit);
        let at_sending = self.occupancy.among(sample.in_flight, slots)?;
        let over_life = self.in_flight.over(sent, sample.ended).unwrap_or(at_sending);
        Some(Among { at_sending, over_life })
    }

    /// `among`: requests among which it was served.
    fn measure(&mut self, sample: &Sample, units: f64, among: Among) {
        let count = sample.count as f64;
        let among = among.without(self.long_lived.level);
        let n = self.curves.n(among);
        let whole_s = sample.response.as_secs_f64().clamp(LEAST_S, MOST_S);
        let sent = sample.ended.saturating_sub(sample.response);
        let (expected, limit) = (self.expected(), f64::from(self.limit));
        // A request that waited for a pause may have been long-lived besides: the rest of its time is split.
        let paused_s = self.pauses.paused_s(sent, sample.ended, count, &expected, limit);
        let working_s = whole_s - paused_s.unwrap_or(0.0);
        let overtaken = self.completions.since(sent, sample.ended) / f64::from(sample.in_flight.max(1));
        let response_s = self.long_lived.split(count, working_s, expected.response_s, overtaken);
        if paused_s.is_some() {
            return;
        }
        self.ticks.judged += sample.count;
        // Errors among other answers take time from the capacity. While there are only errors, it is held.
        if !sample.ok && self.ticks.failing > 1 {
            return;
        }
        let ok = if sample.ok { count } else { 0.0 };
        let charged = self.costs.charged(sample.class, sample.cost.units());
        let work = Work { count: ok, units: ok * units, cost: ok * charged, time_s: count * response_s / n };
        if sent >= self.round.began {
            self.round.work.add(&work);
            self.round.response_s += count * response_s;
        }
        self.measure_throughput(n, &work);
        if !sample.ok {
            return self.curves.add_failed(among, count, response_s);
        }
        self.curves.add(among, count, units, response_s);
        self.mix.add(count, units, charged);
        if self.purpose == Purpose::Ramp {
            self.ramp.add(count, response_s / units);
        } else if let Some(hinge) = self.hinge() {
            self.test_against(&hinge, sample, n, units, response_s);
        }
    }

    /// Counts what was served at the level of the cruise and about the knee.
    fn measure_throughput(&mut self, n: f64, work: &Work) {
        let fitted = self.fitted.filter(|_| self.purpose != Purpose::Ramp);
        let Some(Fitted { hinge, level }) = fitted else { return };
        let (low, high) = ABOUT_KNEE;
        if n >= low * hinge.knee.min(level) && n <= (high * hinge.knee).max(level) {
            self.throughput.add(work);
            self.throughput.fade(self.config.memory);
        }
    }

    fn test_against(&mut self, hinge: &Hinge, sample: &Sample, n: f64, units: f64, response_s: f64) {
        let count = sample.count as f64;
        let slowdown = hinge.slowdown(n);
        let waited = self.mix.units_per_request() * (slowdown - 1.0);
        self.costs.learn(sample.class, count, response_s / hinge.base_s - waited);
        let expected_s = hinge.base_s * (units + waited);
        self.dispersion.add(count, response_s, expected_s, (2.0 * f64::from(self.limit)).max(16.0));
        let phi = self.dispersion.get() * (1.0 + 100.0 / (1.0 + self.throughput.count));
        let onset =
            Onset { count, in_flight: count * n, units: count * units, response_s: count * response_s };
        self.changes.add(&onset, expected_s, phi, self.round.limit);
        if self.alarm.is_none() {
            self.alarm = self.changes.fired(self.expected().per_second);
        }
    }
}

impl Estimator for Bottleneck {
    fn forget(&mut self, class: ClassId) {
        self.costs.forget(class);
    }

    fn charge(&mut self, class: ClassId, charged: Option<Cost>) {
        let factor = self.costs.charge(class, charged.map(Cost::units));
        if factor != 1.0 {
            self.recharge(factor);
        }
    }

    fn cost(&self, class: ClassId) -> Option<LearnedCost> {
        Some(self.costs.known(class, self.wait_error()))
    }

    fn observe(&mut self, sample: &Sample) {
        if sample.count == 0 {
            return;
        }
        let (count, cost) = (sample.count as f64, sample.cost.units());
        let units = self.costs.units(sample.class, cost);
        self.completions.add(count);
        let sent = sample.ended.saturating_sub(sample.response);
        self.under_way.replace(count, sent, sample.ended);
        self.in_flight.end(count, self.limit, sample.ended);
        if sample.ok {
            self.ticks.served += sample.count;
            self.initial.ended += self.costs.charged(sample.class, cost) * count;
            self.round.ended_units += units * count;
        } else {
            self.ticks.failed += sample.count;
        }
        // Of a request from before the first tick nobody knows how many have overtaken it.
        let among = self.among(sample).filter(|_| sample.backlog && sent >= self.ticks.first);
        let Some(among) = among else { return self.pauses.skip(sample.ended) };
        self.long_lived.linger(count, sample.lingered.as_secs_f64());
        self.measure(sample, units, among);
    }

    fn tick(&mut self, load: &GateLoad, now: Timestamp) -> Estimate {
        let elapsed_s = self.elapsed_s(now);
        self.in_flight.set(f64::from(load.in_flight), now);
        self.under_way.settle(load.in_flight, now.saturating_sub(load.age));
        self.occupancy.pass(load.in_flight, self.limit, elapsed_s);
        self.completions.tick(now);
        self.round.pass(load, elapsed_s);
        self.initial.tick(load, self.limit, elapsed_s);
        if load.backlog() {
            self.long_lived.tick(elapsed_s);
        }
        self.ticks.close();
        if let Some((change, onset)) = self.alarm.take() {
            self.on_change(change, &onset, now);
        } else if self.purpose == Purpose::Ramp {
            self.ramp_on(load, now);
        } else {
            let (limit, phi) = (f64::from(self.limit), self.dispersion.get());
            if self.round.work.count >= plan::round_length(self.purpose, limit, phi) {
                self.next_round(load, now);
            }
        }
        // Without a backlog the throughput is that of the load, so the initial estimate is the lower bound.
        let measured = self.fitted.is_some() || load.queued > 0;
        let capacity = if measured { self.capacity() } else { self.capacity().max(self.initial.rate) };
        let doubled = if mutants::is(Mutant::EstimateIsDoubled) { 2.0 } else { 1.0 };
        Estimate {
            capacity: Rate::per_second(doubled * capacity).unwrap_or(Rate::ZERO),
            gain: self.gain(),
            max_in_flight: Some(self.limit),
            phase: self.phase(),
            confidence: self.confidence(),
        }
    }

    fn set(&mut self, capacity: Rate, now: Timestamp) {
        self.initial = InitialEstimate::new(Some(capacity.get()));
        self.rediscover(now);
    }

    fn rediscover(&mut self, now: Timestamp) {
        let from = self.hinge().map_or(f64::from(self.limit), |hinge| plan::DOWN * hinge.knee);
        self.curves.clear();
        self.throughput = Work::default();
        self.changes.clear();
        self.dispersion.start_anew();
        (self.fitted, self.alarm, self.ramp_throughput) = (None, None, None);
        self.reason = "rediscovery requested";
        self.go(Purpose::Ramp, from, now);
    }

    fn learned(&self) -> Option<Learned> {
        self.to_keep()
    }

    fn resume(&mut self, learned: &Learned, trust: Trust, now: Timestamp) {
        self.begin_from(learned, trust, now);
    }

    fn state(&self) -> State {
        let cost_range = self.costs.range();
        let mut figures = vec![
            ("limit", f64::from(self.limit)),
            ("dispersion", self.dispersion.get()),
            ("throughput_samples", self.throughput.count),
            ("staying_in_flight", self.long_lived.level),
            ("pauses", self.pauses.count as f64),
            ("least_learned_cost", cost_range.least),
            ("greatest_learned_cost", cost_range.greatest),
        ];
        let mut curve = Vec::new();
        if let Some(hinge) = self.hinge() {
            figures.push(("knee", hinge.knee));
            figures.push(("base_response_ms", hinge.base_s * 1e3));
            figures.push(("contention", hinge.contention));
            let at = |n: f64| (n, 1e3 * hinge.base_s * hinge.slowdown(n));
            curve = (1..=40).map(|i| at(hinge.knee * f64::from(i) / 20.0)).collect();
        }
        State {
            reason: self.reason().into(),
            samples: self.curves.likelier().samples() as u64,
            figures,
            points: self.curves.likelier().points().map(|(n, seconds)| (n, seconds * 1e3)).collect(),
            curve,
        }
    }
}

/// Requests since the last tick, and for how many ticks some kind of them has been missing.
#[derive(Clone, Copy, Default, Debug)]
struct Ticks {
    first: Timestamp,
    at: Option<Timestamp>,
    judged: u64,
    served: u64,
    failed: u64,
    idle: u32,
    failing: u32,
}

impl Ticks {
    fn close(&mut self) {
        let next = |met: bool, ticks: u32| if met { ticks.saturating_add(1) } else { 0 };
        self.idle = next(self.judged == 0, self.idle);
        // Ticks without any answer leave it unchanged.
        if self.served + self.failed > 0 {
            self.failing = next(self.served == 0, self.failing);
        }
        (self.judged, self.served, self.failed) = (0, 0, 0);
    }
}
