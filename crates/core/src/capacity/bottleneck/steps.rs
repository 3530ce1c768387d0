//! The steps of the estimator: the fit and the next level after a round is over or a test has fired.

use super::plan::{self, Purpose, RampRound};
use super::{Bottleneck, Change, Fitted, GateLoad, Hinge, Onset, Round, Timestamp, Work, level};

/// Nats per dispersion by which a knee must be likelier than none: to end a ramp, and to repeat its round.
const FOUND_NATS: f64 = 6.0;
const PASSED_NATS: f64 = 2.0;
/// Share of the level below which a fitted knee counts as passed.
const PASSED: f64 = 0.85;
/// Most that the knee moves per round; more while the cruise is new.
const STEP: f64 = 1.1;
const FRESH_STEP: f64 = 1.2;
const FRESH_ROUNDS: u32 = 20;
/// Added workers do not shorten responses below the base: below this share of it the workers are faster.
const BELOW_BASE: f64 = 0.9;
/// Samples remembered below the knee and above it.
const BELOW: f64 = 600.0;
const ABOVE: f64 = 2000.0;
/// With contention, a sample counts for the throughput up to so many knees.
pub(super) const CONTENDING_RANGE: f64 = 1.2;

impl Bottleneck {
    pub(super) fn on_change(&mut self, change: Change, onset: &Onset, now: Timestamp) {
        let Some(Fitted { hinge, level }) = self.fitted else { return };
        let n = onset.in_flight / onset.count;
        let ratio = onset.response_s / onset.units / (hinge.base_s * hinge.slowdown(n));
        let since = Work {
            count: onset.count,
            units: onset.units,
            cost: onset.units * self.mix.cost_per_unit(),
            time_s: onset.response_s / n,
        };
        let at_new_speed = Fitted { hinge: Hinge { base_s: hinge.base_s * ratio, ..hinge }, level };
        match change {
            Change::Slower => {
                self.meter.restart(since);
                self.curve.clear();
                self.curve.add(n, onset.count, onset.units / onset.count, onset.response_s / onset.count);
                self.fitted = Some(at_new_speed);
                self.reason = "origin slower: looking below";
                // After a probe down the throughput must be measured: the plan's first probes are omitted.
                self.rounds = plan::DOWN_AT[1];
                // A second alarm while holding is the same fall, measured better.
                let is_again = self.purpose == Purpose::Hold;
                self.fallen = if is_again { self.fallen * ratio } else { ratio };
                self.held_since = if is_again { self.held_since } else { now };
                if hinge.contends() {
                    self.go(Purpose::Down, 0.9 * hinge.knee / ratio, now);
                } else {
                    self.go(Purpose::Hold, self.target, now);
                }
            }
            Change::Faster if ratio * hinge.slowdown(n) > BELOW_BASE => {
                self.curve.clear();
                self.reason = "origin faster: looking for its knee";
                self.meter.restart(since);
                self.go(Purpose::Ramp, 0.8 * hinge.knee, now);
            }
            Change::Faster => {
                self.meter.restart(since);
                self.curve.clear();
                self.fitted = Some(at_new_speed);
                self.reason = "origin faster: holds its knee";
                self.rounds = plan::AT_NEW_SPEED;
                self.go(Purpose::Cruise, level, now);
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

    /// The round is over: fits, and goes to the next level of the plan. `is_cut`: it took too long, and fewer
    /// have ended than it needs.
    pub(super) fn next_round(&mut self, is_cut: bool, now: Timestamp) {
        self.costs.anchor();
        if self.purpose == Purpose::Ramp
            && let Some(squared) = self.round.variation()
        {
            self.dispersion.learn(self.round.work.count, squared);
        }
        if self.purpose == Purpose::Hold {
            let knee = self.hinge().map_or(self.target, |hinge| hinge.knee);
            let least = plan::FALLEN / self.fallen;
            let depth = plan::depth(least, plan::FALLEN_CONTRAST, self.dispersion.get());
            return self.go(Purpose::Down, depth * knee, now);
        }
        let phi = self.dispersion.get();
        // Within a cruise the open requests of one round are samples of the next, so that the bins miss none.
        let open_s = match (is_cut, self.round.is_first) {
            (true, _) => self.round.open_s(),
            (false, true) => self.round.censored_s(),
            (false, false) => 0.0,
        };
        let fitted = self.fit(open_s, phi);
        self.test_saturation(phi);
        if self.purpose == Purpose::Ramp {
            return self.ramp_on(fitted, phi, is_cut, now);
        }
        if let Some((change, onset)) = self.changes.fired(self.expected().per_second) {
            return self.on_change(change, &onset, now);
        }
        match fitted {
            Some(fitted) => self.cruise_on(&fitted, phi, now),
            None => self.go(self.purpose, self.target, now),
        }
    }

    /// Fits the samples. `open_s`: time of open requests, for this fit only: they become samples later.
    fn fit(&mut self, open_s: f64, phi: f64) -> Option<Fitted> {
        self.curve.add_failed(self.round.limit, 1.0, open_s);
        let hinge = self.curve.fit(phi);
        self.curve.add_failed(self.round.limit, 1.0, -open_s);
        let units = self.mix.units_per_request();
        hinge.map(|hinge| Fitted {
            hinge,
            level: level::best(self.curve.fitted_points(), phi, &hinge, hinge.base_s * units),
        })
    }

    /// Moves towards the fit, and on in the plan.
    fn cruise_on(&mut self, fitted: &Fitted, phi: f64, now: Timestamp) {
        let old = self.hinge().unwrap_or(fitted.hinge);
        let step = if self.rounds < FRESH_ROUNDS { FRESH_STEP } else { STEP };
        let Hinge { knee: fitted_knee, at_edge, .. } = fitted.hinge;
        let knee = fitted_knee.clamp(old.knee / step, old.knee * step);
        let mut fitted = *fitted;
        if knee != fitted_knee {
            let level = (fitted.level * knee / fitted_knee).round().max(1.0);
            fitted = Fitted { hinge: self.curve.fit_at(knee, fitted.hinge), level };
        }
        let Fitted { hinge, level: cruise } = fitted;
        self.fitted = Some(fitted);
        self.curve.fade(knee, BELOW, ABOVE);
        self.rounds += 1;
        self.reason = "holds the knee";
        let mut purpose = plan::after(self.rounds, hinge.contends(), phi);
        if at_edge && self.rounds % 3 == 1 {
            purpose = Purpose::Down;
        }
        if self.purpose == Purpose::Up && self.changes.leans_up() && !hinge.contends() {
            purpose = Purpose::Up;
        }
        if purpose == Purpose::Down && !at_edge && self.curve.error_below(knee, phi) < plan::KNOWN_BELOW {
            purpose = Purpose::Cruise;
        }
        let level = match purpose {
            Purpose::Up => (cruise * plan::up(hinge.contends(), phi)).max(cruise + 1.0),
            Purpose::Down if at_edge => plan::DOWN_AT_EDGE * knee,
            Purpose::Down => plan::depth(plan::DOWN, plan::DOWN_CONTRAST, phi) * knee,
            Purpose::Cruise | Purpose::Ramp | Purpose::Hold => cruise,
        };
        self.go(purpose, level, now);
    }

    fn ramp_on(&mut self, fitted: Option<Fitted>, phi: f64, is_cut: bool, now: Timestamp) {
        self.ramp_throughput = self.throughput_of_round();
        let level = self.target;
        let beyond = |nats: f64| {
            fitted.filter(|Fitted { hinge, .. }| hinge.knee < PASSED * level && hinge.gain / phi > nats)
        };
        if let Some(fitted) = beyond(FOUND_NATS) {
            return self.found(fitted, now);
        }
        if is_cut {
            return self.step_back(now);
        }
        let most = f64::from(self.config.max_in_flight.max(self.config.min_in_flight).max(1));
        if level >= most {
            // The ramp ends here: the level is held and watched, and old samples fade.
            if let Some(fitted) = fitted.filter(|fitted| fitted.hinge.knee >= PASSED * level) {
                return self.found(fitted, now);
            }
            self.curve.fade(level, BELOW, ABOVE);
        }
        // Chance among the first few samples must not hold the ramp.
        let may_have_passed = beyond(PASSED_NATS).is_some() && self.repeated < 2;
        self.repeated = if may_have_passed { self.repeated + 1 } else { 0 };
        let round = RampRound {
            slowdown: fitted.map_or(1.0, |fitted| fitted.hinge.slowdown(level)),
            may_have_passed,
            contends: self.hinge().is_some_and(|old| old.contends()),
            trips: self.round.work.count / self.round.limit,
        };
        let growth = round.growth();
        // Those sent one at a time were fine: two would hardly be more.
        let leaps = level < plan::DOUBLE && growth >= plan::DOUBLE;
        let next = level * growth;
        let next = if leaps { next.max(f64::from(self.config.start_in_flight)) } else { next };
        self.go(Purpose::Ramp, next, now);
    }

    /// Whether no request has ended for longer than chance allows, by the responses at lower levels. With
    /// contention among few workers, two levels beyond the knee a request takes dozens of times as long: the
    /// end of the round or of the first request would come too late. What another process has not reported
    /// yet is not overdue.
    pub(super) fn are_overdue(&self, load: &GateLoad, now: Timestamp) -> bool {
        let (known, units) = (now.saturating_sub(load.age), self.mix.units_per_request());
        let Some(base_s) = self.curve.mean_below(self.round.limit).or(self.typical_s) else { return false };
        let base_s = base_s * units;
        let silent_s = known.since(self.round.last_end).as_secs_f64();
        let missing = silent_s * self.round.limit.min(f64::from(load.in_flight)) / base_s;
        silent_s > plan::OVERDUE_RESPONSES * base_s && missing > plan::OVERDUE_COMPLETIONS
    }

    /// Whether a round of a ramp takes longer than its level explains, by the time in which its slots were
    /// taken, and hardly more requests end than at the lower levels. Where far more end, the round waits for
    /// requests and not for the origin: they come in bursts.
    pub(super) fn takes_long(&self) -> bool {
        let Some(base_s) = self.curve.mean_below(self.round.limit) else { return false };
        let below = self.curve.work_between(0.0, self.round.limit - 1.0);
        let full_s = self.round.full_s;
        full_s > plan::LONG_S + plan::LONG_RESPONSES * base_s * self.mix.units_per_request()
            && self.round.ended_units < plan::LONG_SERVED * below.rate() * full_s
    }

    /// Goes back a level. Nothing is concluded: what is overdue ends, and is fitted like all others.
    pub(super) fn step_back(&mut self, now: Timestamp) {
        if self.limit > self.config.min_in_flight.max(1) {
            self.reason = "requests do not come back: fewer in flight";
            self.go(Purpose::Ramp, self.target / plan::DOUBLE, now);
        }
    }

    /// The ramp has passed the knee: its samples beyond are the first measurement of the throughput.
    fn found(&mut self, fitted: Fitted, now: Timestamp) {
        self.fitted = Some(fitted);
        (self.rounds, self.repeated) = (0, 0);
        let hinge = fitted.hinge;
        let most = if hinge.contends() { CONTENDING_RANGE } else { 2.0 };
        let mut seen = self.curve.work_between(0.98 * hinge.knee, most * hinge.knee);
        seen.time_s += self.round.censored_s() / self.round.limit;
        seen.cost = seen.units * self.mix.cost_per_unit();
        self.meter.restart(seen);
        self.changes.clear();
        self.reason = "knee found";
        self.go(Purpose::Cruise, fitted.level, now);
    }

    /// Tests whether requests beyond the knee still wait: by rounds, so that those still open count.
    fn test_saturation(&mut self, phi: f64) {
        let (Some(hinge), round) = (self.hinge(), &self.round) else { return };
        if self.purpose == Purpose::Ramp || round.work.count < 1.0 {
            return;
        }
        let n = (round.limit - self.long_lived.level).max(1.0);
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

    pub(super) fn go(&mut self, purpose: Purpose, level: f64, now: Timestamp) {
        let (least, most) = (self.config.min_in_flight.max(1), self.config.max_in_flight.max(1));
        let level = if level.is_finite() { level } else { f64::from(self.limit) };
        self.target = level.clamp(f64::from(least), f64::from(most.max(least)));
        self.limit_before = self.limit;
        self.limit = ((self.target + self.long_lived.level).round() as u32).clamp(least, most.max(least));
        let is_first = self.purpose != purpose || purpose != Purpose::Cruise;
        if is_first {
            self.dispersion.cut();
        }
        self.purpose = purpose;
        self.round = Round::new(now, self.limit, self.in_flight);
        self.round.is_first = is_first;
    }
}
