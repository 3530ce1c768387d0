//! What is done when a round is over, or a test has fired: the fit, and where to go next.

use super::plan::{self, Purpose};
use super::{Bottleneck, Change, Hinge, Onset, Round, Timestamp, Work};

/// Nats per unit of dispersion by which a knee must be likelier than none to end a ramp, and to hold it for another round.
const FOUND_NATS: f64 = 6.0;
const PASSED_NATS: f64 = 2.0;
/// Most that the knee moves per round; more while the cruise is new.
const STEP: f64 = 1.1;
const FRESH_STEP: f64 = 1.2;
const FRESH_ROUNDS: u32 = 20;
/// Most that probes up may add to the headroom: where everybody is served at once they seem to gain what they do not.
const ADJUSTED_MOST: f64 = 0.05;
/// An origin is what it was if responses take what they took, to this factor.
const AS_BEFORE: f64 = 1.25;
/// More workers let nobody take less than the base: who takes less than this share of it has faster ones.
const BELOW_BASE: f64 = 0.9;
/// What was seen at another speed counts for so many samples below the knee, and above it.
const KEPT: f64 = 150.0;
/// Samples remembered below the knee and above it.
const BELOW: f64 = 600.0;
const ABOVE: f64 = 2000.0;
/// Up to so many knees a sample tells of the throughput, under contention.
pub(super) const CONTENDING_RANGE: f64 = 1.2;

impl Bottleneck {
    /// The origin is not what it was.
    pub(super) fn on_change(&mut self, change: Change, onset: &Onset, now: Timestamp) {
        let Some(hinge) = self.hinge else { return };
        let n = onset.in_flight / onset.count;
        let ratio = onset.response_s / onset.units / (hinge.base_s * hinge.slowdown(n));
        let since = Work {
            count: onset.count,
            units: onset.units,
            cost: onset.units * self.mix.cost_per_unit(),
            time_s: onset.response_s / n,
        };
        if change != Change::Slower && self.is_as_before(onset) {
            return self.restore(since, now);
        }
        if change != Change::Faster {
            self.kept = None;
        }
        match change {
            Change::Slower => {
                self.meter.restart(since);
                // A fit that has not been probed on both sides may simply have been wrong.
                if self.before.is_none() && self.rounds >= plan::DOWN_AT[1] {
                    self.before = Some(hinge);
                    std::mem::swap(&mut self.curve, &mut self.spare);
                }
                self.curve.clear();
                self.curve.add(n, onset.count, onset.units / onset.count, onset.response_s / onset.count);
                self.hinge = Some(Hinge { base_s: hinge.base_s * ratio, ..hinge });
                self.reason = "origin slower: looking below";
                // It is about to be looked below, and then the throughput must be learned: the plan's first probes are left out.
                self.rounds = plan::DOWN_AT[1];
                // Told again while it stays: the same fall, seen better.
                let is_again = self.purpose == Purpose::Stay;
                self.fallen = if is_again { self.fallen * ratio } else { ratio };
                self.stays_since = if is_again { self.stays_since } else { now };
                if hinge.contends() {
                    self.go(Purpose::Down, 0.9 * hinge.knee / ratio, now);
                } else {
                    self.go(Purpose::Stay, self.wanted, now);
                }
            }
            Change::Faster if ratio * hinge.slowdown(n) > BELOW_BASE => {
                self.kept = None;
                self.curve.clear();
                self.reason = "origin faster: looking for its knee";
                self.meter.restart(since);
                self.go(Purpose::Ramp, 0.8 * hinge.knee, now);
            }
            Change::Faster => {
                self.meter.restart(since);
                self.keep_knee(hinge);
                self.hinge = Some(Hinge { base_s: hinge.base_s * ratio, ..hinge });
                self.reason = "origin faster: holds its knee";
                self.rounds = plan::AT_NEW_SPEED;
                self.go(Purpose::Cruise, hinge.knee * plan::headroom(&hinge, self.adjusted), now);
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

    /// An origin that works faster works on as many at once. What was seen of it waits for the first round at the new speed.
    fn keep_knee(&mut self, hinge: Hinge) {
        if self.kept.is_none() {
            self.kept = Some(hinge);
            std::mem::swap(&mut self.curve, &mut self.spare);
        }
        self.curve.clear();
    }

    /// What was seen before the origin became faster, as it would be seen now: `round_s` is what a unit took in the first round since.
    fn scale_kept(&mut self, round_s: f64) {
        let Some(kept) = self.kept.take() else { return };
        let n = (self.round.limit - self.standing.level()).max(1.0);
        let ratio = round_s / (kept.base_s * kept.slowdown(n));
        if !ratio.is_finite() || ratio <= 0.0 {
            return;
        }
        std::mem::swap(&mut self.curve, &mut self.spare);
        self.curve.scale_times(ratio);
        self.curve.fade(kept.knee, KEPT, KEPT);
        let work = self.round.work;
        self.curve.add(n, work.count, work.units / work.count, round_s * work.units / work.count);
    }

    /// Whether responses take again what they took before the origin became slower. Asked once: the next rise is another one.
    fn is_as_before(&mut self, onset: &Onset) -> bool {
        let Some(before) = self.before else { return false };
        let n = onset.in_flight / onset.count;
        let ratio = onset.response_s / onset.units / (before.base_s * before.slowdown(n));
        let is_so = (1.0 / AS_BEFORE..AS_BEFORE).contains(&ratio);
        if !is_so {
            self.before = None;
        }
        is_so
    }

    /// A neighbour has gone: what was known before needs no ramp to be found again.
    fn restore(&mut self, since: Work, now: Timestamp) {
        let Some(before) = self.before.take() else { return };
        self.kept = None;
        self.meter.restart(since);
        std::mem::swap(&mut self.curve, &mut self.spare);
        self.hinge = Some(before);
        self.reason = "origin as before";
        let headroom = plan::headroom(&before, self.adjusted);
        self.go(Purpose::Cruise, before.knee * headroom, now);
        self.changes.clear();
        self.dispersion.cut();
    }

    /// The round is over: fits, and goes where the plan says.
    pub(super) fn next_round(&mut self, now: Timestamp) {
        self.costs.anchor();
        if self.purpose == Purpose::Ramp
            && let Some(squared) = self.round.variation()
        {
            self.dispersion.learn(self.round.work.count, squared);
        }
        if self.purpose == Purpose::Stay {
            let knee = self.hinge.map_or(self.wanted, |hinge| hinge.knee);
            let least = plan::FALLEN / self.fallen;
            let depth = plan::depth(least, plan::FALLEN_CONTRAST, self.dispersion.get());
            return self.go(Purpose::Down, depth * knee, now);
        }
        let phi = self.dispersion.get();
        // A cruise goes on from round to round: there the bins miss nobody.
        let mut open_s = if self.round.is_first { self.round.censored_s() } else { 0.0 };
        let level = self.round.limit;
        if self.kept.is_some() {
            self.scale_kept((self.round.response_s + open_s) / self.round.work.units);
            // It is in there.
            open_s = 0.0;
        }
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
        match fitted {
            Some(fitted) => self.cruise_on(&fitted, phi, now),
            None => self.go(self.purpose, self.wanted, now),
        }
    }

    /// Moves towards the fit and on in the plan.
    fn cruise_on(&mut self, fitted: &Hinge, phi: f64, now: Timestamp) {
        let old = self.hinge.unwrap_or(*fitted);
        let step = if self.rounds < FRESH_ROUNDS { FRESH_STEP } else { STEP };
        let knee = fitted.knee.clamp(old.knee / step, old.knee * step);
        let hinge = if knee == fitted.knee { *fitted } else { self.curve.fit_at(knee, *fitted) };
        self.hinge = Some(hinge);
        self.curve.fade(knee, BELOW, ABOVE);
        self.rounds += 1;
        self.reason = "holds the knee";
        let mut purpose = plan::after(self.rounds, hinge.contends(), phi);
        if fitted.at_edge && self.rounds % 3 == 1 {
            purpose = Purpose::Down;
        }
        if self.purpose == Purpose::Up && self.changes.leans_up() && !hinge.contends() {
            purpose = Purpose::Up;
        }
        let cruise = knee * plan::headroom(&hinge, self.adjusted);
        let level = match purpose {
            Purpose::Up => (cruise * plan::up(hinge.contends(), phi)).max(cruise + 1.0),
            Purpose::Down if fitted.at_edge => plan::DOWN_AT_EDGE * knee,
            Purpose::Down => plan::depth(plan::DOWN, plan::DOWN_CONTRAST, phi) * knee,
            Purpose::Cruise | Purpose::Ramp | Purpose::Stay => cruise,
        };
        self.go(purpose, level, now);
    }

    fn ramp_on(&mut self, fitted: Option<Hinge>, phi: f64, now: Timestamp) {
        self.seen = self.throughput_of_round();
        let level = self.wanted;
        let beyond = |nats: f64| fitted.filter(|hinge| hinge.knee < 0.85 * level && hinge.gain / phi > nats);
        if let Some(hinge) = beyond(FOUND_NATS) {
            return self.found(hinge, now);
        }
        let most = f64::from(self.config.max_in_flight.max(self.config.min_in_flight).max(1));
        if level >= most {
            // It goes no further: what was seen is held and watched, and fades.
            if let Some(hinge) = fitted.filter(|hinge| hinge.knee >= 0.85 * level) {
                return self.found(hinge, now);
            }
            self.curve.fade(level, BELOW, ABOVE);
        }
        let slowdown = fitted.map_or(1.0, |hinge| hinge.slowdown(level));
        // Chance among the first few samples must not hold the ramp.
        let passed = beyond(PASSED_NATS).is_some() && self.repeated < 2;
        self.repeated = if passed { self.repeated + 1 } else { 0 };
        let hurts = self.hinge.is_some_and(|old| old.contends());
        let trips = self.round.work.count / self.round.limit;
        self.go(Purpose::Ramp, level * plan::ramp_growth(slowdown, passed, hurts, trips), now);
    }

    /// The ramp has passed the knee: what it saw beyond is the first estimate of the throughput.
    fn found(&mut self, hinge: Hinge, now: Timestamp) {
        (self.hinge, self.before) = (Some(hinge), None);
        (self.rounds, self.repeated, self.adjusted, self.gained) = (0, 0, 0.0, 0.0);
        let most = if hinge.contends() { CONTENDING_RANGE } else { 2.0 };
        let mut seen = self.curve.work_between(0.98 * hinge.knee, most * hinge.knee);
        seen.time_s += self.round.censored_s() / self.round.limit;
        seen.cost = seen.units * self.mix.cost_per_unit();
        self.meter.restart(seen);
        self.changes.clear();
        self.reason = "knee found";
        self.go(Purpose::Cruise, hinge.knee * plan::headroom(&hinge, 0.0), now);
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
        self.adjusted = (self.adjusted + step).clamp(0.0, ADJUSTED_MOST);
    }

    pub(super) fn go(&mut self, purpose: Purpose, level: f64, now: Timestamp) {
        let (least, most) = (self.config.min_in_flight.max(1), self.config.max_in_flight.max(1));
        let level = if level.is_finite() { level } else { f64::from(self.limit) };
        self.wanted = level.clamp(f64::from(least), f64::from(most.max(least)));
        // The fraction is carried over, so that the mean over rounds is the level wanted.
        let carried = self.wanted + self.standing.level() + self.carried;
        self.limit_before = self.limit;
        self.limit = (carried.round() as u32).clamp(least, most.max(least));
        self.carried = (carried - f64::from(self.limit)).clamp(-0.5, 0.5);
        let is_first = self.purpose != purpose || purpose != Purpose::Cruise;
        if is_first {
            self.dispersion.cut();
        }
        self.purpose = purpose;
        self.round = Round::new(now, self.limit, self.in_flight);
        self.round.is_first = is_first;
    }
}
