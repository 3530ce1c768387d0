//! The steps of the estimator: the fit and the next level after a round is over or a test has fired.
//!
//! An open request counts with half of the time up to what is usual, since it may be about to end, and with
//! all of the time beyond. That alone shows a knee where requests do not come back: with contention among few
//! workers a request takes dozens of times as long two levels beyond the knee. Where service is even, time up
//! to what is usual says nothing, so that at most φ² of it counts (φ: dispersion). With φ, many requests that
//! are open at once were taken for requests that wait: at 54 workers of a second 29 to 52 of 54 a second were
//! served after ten seconds, depending on the seed, and now 51 to 54.
//!
//! Short requests end first in a cruise as well, so that those at a level that has just been reached suggest
//! too short a response time. At 500 exponential workers of 50 ms the level and the knee pulled each other
//! down: of 60 capacities 24 were off by more than 5 % after five seconds, with open requests in the first
//! round after a probe only, and 11 with them in every fit.

use super::discipline::Among;
use super::level;
use super::plan::{self, Purpose};
use super::ramp::PASSED_NATS;
use super::{
    ABOUT_KNEE, Bottleneck, Change, Dispersion, Fitted, GateLoad, Hinge, Onset, Ramp, Round, Timestamp, Work,
    long_lived,
};

/// Weight of an open request's time up to a usual response, where service varies.
const OPEN: f64 = 0.5;
/// Most that the knee moves per round; more while the cruise is new, and may turn out to have begun too soon.
const STEP: f64 = 1.1;
const FRESH_STEP: f64 = 1.2;
const FRESH_ROUNDS: u32 = 20;
/// Added workers do not shorten responses below the base: below this share of it the workers are faster.
const BELOW_BASE: f64 = 0.9;

impl Bottleneck {
    pub(super) fn on_change(&mut self, change: Change, onset: &Onset, now: Timestamp) {
        let Some(Fitted { hinge, level }) = self.fitted else { return };
        let n = onset.in_flight / onset.count;
        let slowdown = hinge.slowdown(n);
        let ratio = onset.response_s / onset.units / (hinge.base_s * slowdown);
        match change {
            Change::Unsaturated => {
                self.curves.clear_above(hinge.knee);
                let (units, response_s) = (onset.units / onset.count, onset.response_s / onset.count);
                self.curves.add(Among::always(n), onset.count, units, response_s);
                self.throughput = Work {
                    count: onset.count,
                    units: onset.units,
                    cost: onset.units * self.mix.cost_per_unit(),
                    time_s: onset.response_s / n,
                };
                self.reason = "no wait beyond the knee: looking for more";
                self.go(Purpose::Ramp, 1.3 * f64::from(self.limit), now);
            }
            Change::Faster if ratio * slowdown > BELOW_BASE => {
                self.forget_speed();
                self.reason = "origin faster: looking for its knee";
                self.go(Purpose::Ramp, 0.8 * hinge.knee, now);
            }
            // The knee holds until it is measured anew: the speed has changed, or workers have left.
            Change::Slower | Change::Faster => {
                self.forget_speed();
                self.fitted = Some(Fitted { hinge: Hinge { base_s: hinge.base_s * ratio, ..hinge }, level });
                self.rounds = plan::AT_NEW_SPEED;
                self.reason = "origin slower or faster: holds the knee";
                self.go(Purpose::Cruise, level, now);
            }
        }
        self.changes.clear();
        self.dispersion.start_anew();
    }

    /// What was measured is of another speed. Until there is more, the throughput is that of the fit: samples
    /// that revealed a change are more extreme than others.
    fn forget_speed(&mut self) {
        self.curves.clear();
        self.throughput = Work::default();
    }

    /// The round is over: fits, and goes to the next level of the plan.
    pub(super) fn next_round(&mut self, load: &GateLoad, now: Timestamp) {
        self.costs.anchor();
        let phi = self.dispersion.get();
        let fitted = self.fit(load, now, phi);
        self.test_saturation(phi, now.saturating_sub(load.age));
        if let Some((change, onset)) = self.changes.fired(self.expected().per_second) {
            return self.on_change(change, &onset, now);
        }
        match fitted {
            Some(fitted) => self.cruise_on(&fitted, phi, now),
            None => self.go(self.purpose, self.target, now),
        }
    }

    /// Fits the samples, and the time for which others have been open.
    pub(super) fn fit(&mut self, load: &GateLoad, now: Timestamp, phi: f64) -> Option<Fitted> {
        // What another process has not reported yet may have ended.
        let now = now.saturating_sub(load.age);
        let units = self.mix.units_per_request();
        let usual_s = self.curves.likelier().base_s().map_or(f64::INFINITY, |base_s| base_s * units);
        for open in self.under_way.open(now) {
            let n = (f64::from(open.limit) - self.long_lived.level).max(1.0);
            if self.completions.since(open.sent, now) <= long_lived::LONG * n {
                let expected_s = OPEN.min(phi * phi) * open.mean_s.min(usual_s);
                self.curves.add_open(n, open.count * (expected_s + (open.mean_s - usual_s).max(0.0)));
            }
        }
        let hinge = self.curves.fit(phi, self.purpose != Purpose::Ramp);
        self.curves.clear_open();
        hinge.map(|hinge| Fitted {
            hinge,
            level: level::best(self.curves.fitted_points(), phi, &hinge, hinge.base_s * units),
        })
    }

    /// Moves towards the fit, and on in the plan.
    fn cruise_on(&mut self, fitted: &Fitted, phi: f64, now: Timestamp) {
        let old = self.hinge().unwrap_or(fitted.hinge);
        let step = if self.rounds < FRESH_ROUNDS { FRESH_STEP } else { STEP };
        let fitted_knee = fitted.hinge.knee;
        let knee = fitted_knee.clamp(old.knee / step, old.knee * step);
        let mut fitted = *fitted;
        if knee != fitted_knee {
            let level = (fitted.level * knee / fitted_knee).round().max(1.0);
            fitted = Fitted { hinge: self.curves.fit_at(knee, fitted.hinge), level };
        }
        let cruise = fitted.level;
        let is_doubtful = self.rounds < FRESH_ROUNDS && fitted.hinge.gain / phi < PASSED_NATS;
        if is_doubtful && self.ramp.ended_at < self.most() {
            // With the knee goes the noise about it: where its base was an eighth of the true one, φ was 20,
            // and a search that needs φ times the evidence never ended.
            (self.fitted, self.dispersion) = (None, Dispersion::new());
            self.reason = "the knee is not confirmed: looking on";
            return self.go(Purpose::Ramp, cruise, now);
        }
        self.fitted = Some(fitted);
        self.curves.fade(knee, self.config.memory);
        self.rounds += 1;
        self.reason = "holds the knee";
        let mut purpose = plan::after(self.rounds, phi);
        if self.purpose == Purpose::Up && self.changes.leans_up() {
            purpose = Purpose::Up;
        }
        if purpose == Purpose::Down && self.curves.likelier().error_below(knee, phi) < plan::KNOWN_BELOW {
            purpose = Purpose::Cruise;
        }
        let down = plan::DOWN * knee;
        let unsure = self.curves.likelier().unsure_below(&fitted.hinge, phi);
        // Rounded, a probe of a small knee would be at that knee, and never show what lies below.
        let deeper = unsure.filter(|level| purpose == Purpose::Down && *level < down.round());
        let level = match purpose {
            Purpose::Up => (cruise * plan::up(phi)).max(cruise + 1.0),
            Purpose::Down => deeper.unwrap_or(down),
            Purpose::Cruise | Purpose::Ramp => cruise,
        };
        self.go(purpose, level, now);
    }

    /// The ramp has passed the knee: its samples beyond are the first measurement of the throughput.
    pub(super) fn found(&mut self, fitted: Fitted, now: Timestamp) {
        self.fitted = Some(fitted);
        (self.rounds, self.ramp) = (0, Ramp::ended(self.target));
        let (low, high) = ABOUT_KNEE;
        let knee = fitted.hinge.knee;
        self.throughput = self.curves.likelier().work_between(low * knee, high * knee);
        self.throughput.cost = self.throughput.units * self.mix.cost_per_unit();
        self.changes.clear();
        self.reason = "knee found";
        self.go(Purpose::Cruise, fitted.level, now);
    }

    /// Tests whether requests beyond the knee still wait: by how many end in a round, since the short ones
    /// of those that were sent in it end first.
    fn test_saturation(&mut self, phi: f64, now: Timestamp) {
        let (Some(hinge), round) = (self.hinge(), &self.round) else { return };
        let Some(units_per_s) = round.units_per_s().filter(|_| round.work.count >= 1.0) else { return };
        let n = (round.limit - self.long_lived.level).max(1.0);
        let Work { count, units, .. } = round.work;
        // For exponential service (φ = 1) the mean under censoring, for constant service that of the ended.
        let sent_in_it = self.under_way.open(now).filter(|open| open.sent >= round.began);
        let open_s = sent_in_it.map(|open| open.count * open.mean_s).sum::<f64>().min(round.response_s);
        let response_s = round.response_s + phi.min(1.0) * open_s;
        let slowdown = hinge.slowdown(n);
        // By Little's law a unit took n/X.
        let y = n / units_per_s / (hinge.base_s * slowdown);
        self.changes.add_round(&Onset { count, in_flight: n * count, units, response_s }, y, slowdown, phi);
    }

    pub(super) fn go(&mut self, purpose: Purpose, level: f64, now: Timestamp) {
        let least = self.config.min_in_flight.max(1);
        let most = self.config.max_in_flight.max(least);
        let level = if level.is_finite() { level } else { f64::from(self.limit) };
        self.target = level.clamp(f64::from(least), f64::from(most));
        self.limit = ((self.target + self.long_lived.level).round() as u32).clamp(least, most);
        self.under_way.begin(self.limit, now);
        if self.purpose != purpose || purpose != Purpose::Cruise {
            self.dispersion.start_anew();
        }
        self.purpose = purpose;
        self.round = Round::new(now, self.limit);
        self.in_flight.fill(self.limit, now);
    }
}
