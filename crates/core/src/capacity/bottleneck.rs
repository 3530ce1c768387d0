//! Tidegate's own estimator: hold as many requests at the origin as its bottleneck can work on, and count what comes back.
//!
//! An origin of K workers driven at a rate must stay well below its capacity or queue. The same origin fed from the gate's
//! queue with K in flight runs at all of it with its unloaded response time, because the waiting happens in the gate. So the
//! in-flight limit L is held at the knee K of the curve of response time over requests in flight,
//!
//! ```text
//! R(n) = B · r (1 + a (r−1)²),  r = max(1, n/K)     curve.rs: which K, B, a are likeliest
//! L    = K · headroom                               plan.rs: how it is found, held and probed
//! C    = Σ work / Σ R/n  at n >= K                  meter.rs: what the origin serves there (Little's law)
//! ```
//!
//! and every sample is tested against the fit: [`change`] tells within some dozens of completions that the origin has become
//! slower or faster, [`costs`] what of it is the mix of classes, [`dispersion`] how sure all this can be, [`pause`] what is none of it.
//! Samples without a backlog are not looked at: they tell of the load (application-limited, as BBR says).
//!
//! As BBR does for a path (Cardwell et al. 2016) but fitted instead of min- and max-filtered: with noisy service the
//! minimum response time is a fraction of the mean, and a limit that follows from it starves the origin.
//!
//! What it cannot do: tell a knee from an origin that refuses beyond it without delay; learn without a backlog; find a change smaller than
//! the noise of some hundred samples.

use std::time::Duration;

use super::{Estimate, Estimator, Load, Phase, Sample, State};
use crate::units::{Rate, Timestamp};

mod change;
mod costs;
mod curve;
mod dispersion;
mod guess;
mod meter;
mod mix;
mod pause;
mod plan;
mod standing;

use change::{Change, Changes, Onset};
use costs::Costs;
use curve::{Curve, Hinge};
use dispersion::Dispersion;
use guess::{Guess, starves};
use meter::{Meter, Work};
use mix::Mix;
use pause::Pauses;
use plan::Purpose;
use standing::Standing;

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
    guess: Guess,
    costs: Costs,
    curve: Curve,
    dispersion: Dispersion,
    changes: Changes,
    meter: Meter,
    pauses: Pauses,
    /// The last fit, if it has a knee.
    hinge: Option<Hinge>,
    /// The limit wanted, with its fraction, and what is in force.
    wanted: f64,
    limit: u32,
    carried: f64,
    purpose: Purpose,
    /// Rounds of a ramp at the present level, beyond the first.
    repeated: u32,
    /// Rounds since the cruise began.
    rounds: u32,
    round: Round,
    /// By how much the origin has become slower, while that is looked into.
    fallen: f64,
    /// Correction of the headroom by what the probes up have shown.
    adjusted: f64,
    /// Mean log gain of throughput in probes up.
    gained: f64,
    gain: f64,
    alarm: Option<(Change, Onset)>,
    /// Throughput of the last round of a ramp, as configured.
    seen: Option<f64>,
    mix: Mix,
    standing: Standing,
    ticked: Option<Timestamp>,
    in_flight: u32,
    judged_in_tick: u64,
    idle_ticks: u32,
    errors: u64,
    served: u64,
    reason: &'static str,
}

/// What came of the present level: of requests that were sent since it began.
#[derive(Clone, Copy, Debug)]
struct Round {
    began: Timestamp,
    limit: f64,
    work: Work,
    /// Units of all that ended, whenever they were sent.
    ended_units: f64,
    response_s: f64,
    /// Of squared responses per unit.
    squares: f64,
    /// Requests in flight that were sent before, and what those sent since have spent at the origin, ended or not.
    old: f64,
    exposure_s: f64,
    until: Timestamp,
}

impl Round {
    fn new(began: Timestamp, limit: u32, in_flight: u32) -> Self {
        Self {
            began,
            limit: f64::from(limit),
            work: Work::default(),
            ended_units: 0.0,
            response_s: 0.0,
            squares: 0.0,
            old: f64::from(in_flight),
            exposure_s: 0.0,
            until: began,
        }
    }

    /// With a backlog all places are taken: by old requests, the rest by new ones.
    fn pass(&mut self, until: Timestamp) {
        let passed = until.since(self.until).as_secs_f64();
        self.until = self.until.max(until);
        self.exposure_s += passed * (self.limit - self.old).max(0.0);
    }

    /// Squared coefficient of variation of the response times.
    fn variation(&self) -> Option<f64> {
        let n = self.work.count;
        let mean = self.response_s / self.work.units;
        let squared = (self.squares / n - mean * mean) / (mean * mean) * n / (n - 1.0);
        (n >= 5.0 && squared.is_finite()).then(|| squared.max(0.0))
    }

    /// Units per second by counting: right also where those sent in the round end shortest first, but bursts fall into it or not.
    fn counted(&self) -> f64 {
        self.ended_units / self.until.since(self.began).as_secs_f64()
    }

    /// What those still at the origin have taken so far, in seconds.
    ///
    /// Short requests end first: the mean of those that have ended since a limit was raised is too short where
    /// response times vary. With an exponential law the time of those that have not belongs to the mean
    /// (maximum likelihood under censoring), with a constant one it does not: their squared variation says how much of it.
    fn censored_s(&self) -> f64 {
        let open = (self.exposure_s - self.response_s).clamp(0.0, self.response_s);
        open * self.variation().unwrap_or(0.0).min(1.0)
    }
}

impl Bottleneck {
    /// An estimator that starts from `start` cost units per second, or from little.
    pub fn new(config: BottleneckConfig, start: Option<Rate>) -> Self {
        let first =
            f64::from(config.start_in_flight.clamp(config.min_in_flight.max(1), config.max_in_flight.max(1)));
        Self {
            config,
            guess: Guess::new(start.map(Rate::get)),
            costs: Costs::new(),
            curve: Curve::new(),
            dispersion: Dispersion::new(),
            changes: Changes::default(),
            meter: Meter::new(),
            pauses: Pauses::default(),
            hinge: None,
            wanted: first,
            limit: first as u32,
            carried: 0.0,
            purpose: Purpose::Ramp,
            repeated: 0,
            rounds: 0,
            round: Round::new(Timestamp::default(), first as u32, 0),
            fallen: 1.0,
            adjusted: 0.0,
            gained: 0.0,
            gain: 1.0,
            alarm: None,
            seen: None,
            mix: Mix::default(),
            standing: Standing::default(),
            ticked: None,
            in_flight: 0,
            judged_in_tick: 0,
            idle_ticks: 0,
            errors: 0,
            served: 0,
            reason: "waiting for load",
        }
    }

    /// A sample that was sent while others waited.
    fn judge(&mut self, sample: &Sample, units: f64) {
        let count = sample.count as f64;
        let n = (f64::from(sample.in_flight) - self.standing.level()).max(1.0);
        let whole_s = sample.response.as_secs_f64().max(1e-6);
        let response_s = self.standing.split(count, whole_s, self.expected().1);
        let sent = sample.ended.saturating_sub(sample.response);
        if self.pauses.forgives(sent, sample.ended, self.expected(), f64::from(self.limit)) {
            return;
        }
        self.judged_in_tick += sample.count;
        let ok = if sample.ok { count } else { 0.0 };
        let work = Work {
            count: ok,
            units: ok * units,
            cost: ok * sample.cost.units(),
            time_s: count * response_s / n,
        };
        if sent >= self.round.began {
            self.round.work.add(&work);
            self.round.response_s += count * response_s;
            self.round.squares += ok * (response_s / units) * (response_s / units);
        }
        self.weigh(n, &work);
        if !sample.ok {
            return self.curve.add_failed(n, count, response_s);
        }
        self.curve.add(n, count, units, response_s);
        if let Some(hinge) = self.hinge.filter(|_| self.purpose != Purpose::Ramp) {
            self.compare(&hinge, sample, n, units, response_s);
        }
    }

    /// What the origin serves at saturation.
    fn weigh(&mut self, n: f64, work: &Work) {
        let Some(hinge) = self.hinge.filter(|_| self.purpose != Purpose::Ramp) else { return };
        let most = if hinge.contends() { 1.2 } else { 1.8 };
        if n < 0.98 * hinge.knee || n > most * hinge.knee {
            return;
        }
        let beyond = n / (hinge.knee * hinge.slowdown(n));
        let phi = self.dispersion.get();
        let memory = self.config.memory * phi.clamp(0.15, 4.0);
        let work = Work { time_s: work.time_s * beyond, ..*work };
        self.meter.add(&work, f64::from(self.limit).max(16.0), memory, phi);
    }

    /// A sample against the fit.
    fn compare(&mut self, hinge: &Hinge, sample: &Sample, n: f64, units: f64, response_s: f64) {
        let count = sample.count as f64;
        let slowdown = hinge.slowdown(n);
        let waited = self.mix.units_per_request() * (slowdown - 1.0);
        self.costs.learn(sample.class, count, response_s / hinge.base_s - waited);
        let expected_s = hinge.base_s * (units + waited);
        self.dispersion.add(count, response_s, expected_s, (2.0 * f64::from(self.limit)).max(16.0));
        let phi = self.dispersion.get() * (1.0 + 100.0 / (1.0 + self.meter.total().count));
        let onset =
            Onset { count, in_flight: count * n, units: count * units, response_s: count * response_s };
        self.changes.add(&onset, expected_s, phi, self.round.limit);
        if self.alarm.is_none() {
            self.alarm = self.changes.fired(self.expected().0);
        }
    }

    /// Requests per second and seconds per response to be expected, for the tests of pauses.
    fn expected(&self) -> (f64, f64) {
        match self.hinge {
            Some(hinge) => {
                let base = hinge.base_s * self.mix.units_per_request();
                let n = f64::from(self.limit);
                (n.min(hinge.knee) / base, base * hinge.slowdown(n))
            }
            None if self.round.work.count >= 8.0 => (
                self.round.work.count / self.round.work.time_s,
                self.round.response_s / self.round.work.count,
            ),
            None => (0.01, f64::INFINITY),
        }
    }

    /// The origin is not what it was.
    fn on_change(&mut self, change: Change, onset: &Onset, now: Timestamp) {
        let Some(hinge) = self.hinge else { return };
        let n = onset.in_flight / onset.count;
        let ratio = onset.response_s / onset.units / (hinge.base_s * hinge.slowdown(n));
        let since = Work {
            count: onset.count,
            units: onset.units,
            cost: onset.units * self.mix.cost_per_unit(),
            time_s: onset.response_s / n,
        };
        match change {
            Change::Slower => {
                self.meter.restart(since);
                self.curve.clear();
                self.curve.add(n, onset.count, onset.units / onset.count, onset.response_s / onset.count);
                self.hinge = Some(Hinge { base_s: hinge.base_s * ratio, ..hinge });
                self.reason = "origin slower: looking below";
                self.rounds = 0;
                self.fallen = ratio;
                if hinge.contends() {
                    self.go(Purpose::Down, 0.9 * hinge.knee / ratio, now);
                } else {
                    self.go(Purpose::Stay, self.wanted, now);
                }
            }
            Change::Faster => {
                self.curve.clear();
                self.reason = "origin faster: looking for its knee";
                self.meter.restart(since);
                self.go(Purpose::Ramp, 0.8 * hinge.knee, now);
            }
            Change::Unsaturated => {
                self.curve.clear_above(hinge.knee);
                self.curve.add(n, onset.count, onset.units / onset.count, onset.response_s / onset.count);
                self.reason = "no wait beyond the knee: looking for more";
                self.meter.restart(since);
                self.go(Purpose::Ramp, 1.3 * f64::from(self.limit), now);
            }
        }
        self.changes.clear();
        self.dispersion.cut();
    }

    /// The round is over: fits, and goes where the plan says.
    fn next_round(&mut self, now: Timestamp) {
        self.anchor();
        if self.purpose == Purpose::Ramp
            && let Some(squared) = self.round.variation()
        {
            self.dispersion.learn(self.round.work.count, squared);
        }
        if self.purpose == Purpose::Stay {
            let knee = self.hinge.map_or(self.wanted, |hinge| hinge.knee);
            return self.go(Purpose::Down, 0.9 * knee / self.fallen, now);
        }
        let phi = self.dispersion.get();
        let (level, open_s) = (self.round.limit, self.round.censored_s());
        self.curve.add_failed(level, 1.0, open_s);
        let fitted = self.curve.fit(phi);
        self.curve.add_failed(level, 1.0, -open_s);
        self.test_saturation(phi);
        if self.purpose == Purpose::Ramp {
            return self.ramp_on(fitted, phi, now);
        }
        if self.purpose == Purpose::Up {
            self.adjust();
        }
        if let Some((change, onset)) = self.changes.fired(self.expected().0) {
            return self.on_change(change, &onset, now);
        }
        let Some(fitted) = fitted else { return self.go(self.purpose, self.wanted, now) };
        let old = self.hinge.unwrap_or(fitted);
        let step = if self.rounds < 20 { 1.2 } else { 1.1 };
        let knee = fitted.knee.clamp(old.knee / step, old.knee * step);
        let hinge = if knee == fitted.knee { fitted } else { self.curve.fit_at(knee, fitted) };
        self.hinge = Some(hinge);
        self.curve.fade(knee, 600.0, 2000.0);
        self.rounds += 1;
        self.reason = "holds the knee";
        let mut purpose = plan::after(self.rounds, hinge.contends());
        if fitted.at_edge && self.rounds % 3 == 1 {
            purpose = Purpose::Down;
        }
        let cruise = knee * plan::headroom(hinge.contention, phi, self.adjusted, self.rounds);
        let level = match purpose {
            Purpose::Up => (cruise * plan::up(hinge.contends(), phi)).max(cruise + 1.0),
            Purpose::Down => plan::DOWN * knee,
            Purpose::Cruise | Purpose::Ramp | Purpose::Stay => cruise,
        };
        self.go(purpose, level, now);
    }

    fn ramp_on(&mut self, fitted: Option<Hinge>, phi: f64, now: Timestamp) {
        let open_s = self.round.censored_s() / self.round.limit;
        self.seen =
            Some(self.round.work.cost / (self.round.work.time_s + open_s)).filter(|rate| rate.is_finite());
        let level = self.wanted;
        let found = fitted.filter(|hinge| hinge.knee < 0.85 * level && hinge.gain / phi > 6.0);
        if let Some(hinge) = found {
            self.hinge = Some(hinge);
            self.rounds = 0;
            self.adjusted = 0.0;
            let most = if hinge.contends() { 1.2 } else { 2.0 };
            let (units, time_s, count) = self.curve.work_between(0.98 * hinge.knee, most * hinge.knee);
            let cost = units * self.mix.cost_per_unit();
            let time_s = time_s + self.round.censored_s() / self.round.limit;
            let seen = Work { count, units, cost, time_s };
            self.meter.restart(seen);
            self.changes.clear();
            self.reason = "knee found";
            return self.go(Purpose::Cruise, hinge.knee * plan::headroom(hinge.contention, phi, 0.0, 0), now);
        }
        let slowdown = fitted.map_or(1.0, |hinge| hinge.slowdown(level));
        let passed = fitted.is_some_and(|hinge| hinge.knee < 0.85 * level && hinge.gain / phi > 2.0);
        // Chance among the first few samples must not hold the ramp.
        let passed = passed && self.repeated < 2;
        self.repeated = if passed { self.repeated + 1 } else { 0 };
        self.go(
            Purpose::Ramp,
            level * plan::ramp_growth(slowdown, passed, self.hinge.is_some_and(|old| old.contends())),
            now,
        );
    }

    /// Tests whether those beyond the knee still wait: round by round, for the sake of those that have not ended yet.
    fn test_saturation(&mut self, phi: f64) {
        let (Some(hinge), round) = (self.hinge, &self.round) else { return };
        if self.purpose == Purpose::Ramp || round.work.count < 1.0 {
            return;
        }
        let n = (round.limit - self.standing.level()).max(1.0);
        let onset = Onset {
            count: round.work.count,
            in_flight: n * round.work.count,
            units: round.work.units,
            response_s: round.response_s + round.censored_s(),
        };
        let slowdown = hinge.slowdown(n);
        let by_request = onset.response_s / (hinge.base_s * slowdown * round.work.units);
        let by_count = n / (hinge.base_s * slowdown) / round.counted();
        self.changes.add_round(&onset, by_request.max(by_count), slowdown, phi);
    }

    /// Compares the throughput of a probe up with that of the cruise.
    fn adjust(&mut self) {
        let (round, Some(cruise)) = (&self.round, self.meter.rate()) else { return };
        let gain = (round.counted() / cruise).ln();
        if !gain.is_finite() {
            return;
        }
        let error = (self.dispersion.get() / round.work.count).sqrt();
        self.gained += 0.15 * (gain.clamp(-0.3, 0.3) - self.gained);
        let step = if self.gained > 0.03 && self.gained > 0.3 * error { 0.02 } else { -0.02 };
        self.adjusted = (self.adjusted + step).clamp(0.0, 0.2);
    }

    /// Learned costs keep their scale.
    fn anchor(&mut self) {
        let factor = self.costs.anchor(2000.0);
        if factor != 1.0 {
            self.curve.rescale_units(factor);
            self.meter.rescale_units(factor);
            self.mix.rescale_units(factor);
            if let Some(hinge) = &mut self.hinge {
                hinge.base_s /= factor;
            }
        }
    }

    fn go(&mut self, purpose: Purpose, level: f64, now: Timestamp) {
        let (least, most) = (self.config.min_in_flight.max(1), self.config.max_in_flight.max(1));
        let level = if level.is_finite() { level } else { f64::from(self.limit) };
        self.wanted = level.clamp(f64::from(least), f64::from(most.max(least)));
        // The fraction is carried over, so that the mean over rounds is the level wanted.
        let carried = self.wanted + self.standing.level() + self.carried;
        self.limit = (carried.round() as u32).clamp(least, most.max(least));
        self.carried = (carried - f64::from(self.limit)).clamp(-0.5, 0.5);
        if self.purpose != purpose {
            self.dispersion.cut();
        }
        self.purpose = purpose;
        self.round = Round::new(now, self.limit, self.in_flight);
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
    fn observe(&mut self, sample: &Sample) {
        if sample.count == 0 {
            return;
        }
        let units = self.costs.units(sample.class, sample.cost.units());
        self.round.pass(sample.ended);
        if sample.ended.saturating_sub(sample.response) < self.round.began {
            self.round.old -= sample.count as f64;
        }
        if sample.ok {
            self.served += sample.count;
            self.guess.served(sample.cost.units() * sample.count as f64);
            self.round.ended_units += units * sample.count as f64;
            if self.mix.add(sample.count as f64, units, sample.cost.units()) {
                self.meter.fade(150.0);
            }
        } else {
            self.errors += sample.count;
        }
        if sample.backlog {
            self.judge(sample, units);
        } else {
            self.pauses.pass(sample.ended);
        }
    }

    fn tick(&mut self, load: &Load, now: Timestamp) -> Estimate {
        let elapsed = self.ticked.map_or(Duration::ZERO, |last| now.since(last));
        self.ticked = Some(now);
        self.in_flight = load.in_flight;
        self.round.pass(now);
        let guess = self.guess.tick(load, self.limit, elapsed.as_secs_f64());
        if load.backlog() {
            self.standing.tick(elapsed.as_secs_f64());
        }
        self.idle_ticks = if self.judged_in_tick == 0 { self.idle_ticks.saturating_add(1) } else { 0 };
        self.judged_in_tick = 0;
        if let Some((change, onset)) = self.alarm.take() {
            self.on_change(change, &onset, now);
        } else {
            let phi = self.dispersion.get();
            let need = plan::round_length(self.purpose, f64::from(self.limit), phi, self.expected().0);
            if self.round.work.count >= need {
                self.next_round(now);
            }
        }
        self.gain =
            if starves(load, self.limit) { (self.gain * 1.1).min(4.0) } else { (self.gain * 0.9).max(1.0) };
        let searching = self.purpose == Purpose::Ramp;
        let pacing = match self.purpose {
            Purpose::Ramp => 2.0,
            Purpose::Up => 1.3,
            Purpose::Cruise | Purpose::Down | Purpose::Stay => 1.05,
        };
        // Without a backlog the guess counts: what comes back tells of the load.
        let measured = self.hinge.is_some() || load.queued > 0;
        let capacity = if measured { self.capacity() } else { self.capacity().max(guess) };
        Estimate {
            capacity: Rate::per_second(capacity).unwrap_or(Rate::ZERO),
            gain: pacing * self.gain,
            max_in_flight: Some(self.limit),
            phase: if self.idle_ticks > 10 {
                Phase::Paused
            } else if searching {
                Phase::Searching
            } else {
                Phase::Settled
            },
            confidence: self.confidence(),
        }
    }

    fn set(&mut self, capacity: Rate, now: Timestamp) {
        self.guess = Guess::new(Some(capacity.get()));
        self.rediscover(now);
    }

    fn rediscover(&mut self, now: Timestamp) {
        self.curve.clear();
        self.meter.clear();
        self.changes.clear();
        self.dispersion.cut();
        self.reason = "told to look anew";
        let from = self.hinge.map_or(f64::from(self.limit), |hinge| 0.8 * hinge.knee);
        self.hinge = None;
        self.alarm = None;
        self.go(Purpose::Ramp, from, now);
    }

    fn state(&self) -> State {
        let (mut figures, mut curve) = (Vec::new(), Vec::new());
        if let Some(hinge) = &self.hinge {
            figures.push(("knee", hinge.knee));
            figures.push(("base_response_ms", hinge.base_s * 1e3));
            figures.push(("contention", hinge.contention));
            let at = |n: f64| (n, 1e3 * hinge.base_s * hinge.slowdown(n));
            curve = (1..=40).map(|i| at(hinge.knee * f64::from(i) / 20.0)).collect();
        }
        figures.push(("dispersion", self.dispersion.get()));
        figures.push(("limit", f64::from(self.limit)));
        figures.push(("pauses", self.pauses.count as f64));
        State {
            reason: self.reason.into(),
            samples: self.curve.samples() as u64,
            figures,
            points: self.curve.points().map(|(n, s)| (n, s * 1e3)).collect(),
            curve,
        }
    }
}

impl Bottleneck {
    /// One minus twice the standard error of the capacity.
    fn confidence(&self) -> f64 {
        let samples = self.meter.total().count;
        if samples < 1.0 {
            return 0.0;
        }
        (1.0 - 2.0 * (self.dispersion.get() / samples).sqrt()).clamp(0.0, 1.0)
    }
}
