//! What is done with every sample: O(1), without allocation (but once, for the first ones).

use super::steer::CONTENDING_RANGE;
use super::{Bottleneck, Hinge, Onset, Purpose, Sample, Work};

/// Up to so many knees a sample tells of the throughput.
const RANGE: f64 = 1.8;
/// After a shift of the mix what was seen before counts for so many samples: costs may have been learned badly.
const SHIFTED: f64 = 150.0;
/// Share of the places that were taken when a sample was sent from which on it counts: a probe up fills its places at once.
const FULL: f64 = 0.9;
/// Samples by which an ordinary response time is first told.
pub(super) const EARLY: usize = 8;
/// Bounds of a response time, in seconds: of a clock's tick, and of what anybody waits for.
const LEAST_S: f64 = 1e-6;
const MOST_S: f64 = 3600.0;
/// Completions per second that are expected when nothing is known: no gap is a pause then.
const LEAST_RATE: f64 = 0.01;

impl Bottleneck {
    /// Whether hardly a place was free when a request was sent. Whoever comes at the begin of a burst meets few and lives among many: in
    /// the bin of the few its response time would make the base too slow and the knee too high, the more the slower the load rises.
    pub(super) fn met_all(&self, sample: &Sample) -> bool {
        let sent = sample.ended.saturating_sub(sample.response);
        let places = if sent >= self.round.began { self.limit } else { self.limit.min(self.limit_before) };
        f64::from(sample.in_flight) >= FULL * f64::from(places)
    }

    /// A sample that tells of the load.
    pub(super) fn pass_over(&mut self, sample: &Sample) {
        self.pauses.pass(sample.ended);
        if sample.backlog && sample.ended.saturating_sub(sample.response) >= self.round.began {
            self.round.leave_out(sample.count as f64 * sample.response.as_secs_f64());
        }
    }

    /// A sample from a time of backlog. The first ones wait until their median is known: a single one of a minute among them would hide
    /// the knee for long.
    pub(super) fn take(&mut self, sample: &Sample, units: f64) {
        if self.usual_s.is_some() {
            return self.judge(sample, units);
        }
        if sample.ok {
            self.early.push(*sample);
        }
        if self.early.len() < EARLY {
            return;
        }
        let mut early = std::mem::take(&mut self.early);
        early.sort_by_key(|sample| sample.response);
        self.usual_s = Some(early[EARLY / 2].response.as_secs_f64().max(LEAST_S));
        early.sort_by_key(|sample| sample.ended);
        for sample in &early {
            let units = self.costs.units(sample.class, sample.cost.units());
            self.judge(sample, units);
        }
    }

    /// A sample that was sent while others waited.
    fn judge(&mut self, sample: &Sample, units: f64) {
        let count = sample.count as f64;
        let n = (f64::from(sample.in_flight) - self.standing.level()).max(1.0);
        let whole_s = sample.response.as_secs_f64().clamp(LEAST_S, MOST_S);
        let sent = sample.ended.saturating_sub(sample.response);
        let (expected, limit) = (self.expected(), f64::from(self.limit));
        // What it stood still for is no stay, but it may have stayed besides.
        let paused_s = self.pauses.forgives(sent, sample.ended, count, expected, limit);
        let response_s = self.standing.split(count, whole_s - paused_s.unwrap_or(0.0), expected.1);
        if paused_s.is_some() {
            return;
        }
        self.ticked.judged += sample.count;
        // Errors among others take their time from the capacity; while there is nothing else, it is held.
        if !sample.ok && self.ticked.failing > 1 {
            return;
        }
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
        if self.mix.add(count, units, sample.cost.units()) {
            self.meter.fade(SHIFTED);
        }
        if let Some(hinge) = self.hinge.filter(|_| self.purpose != Purpose::Ramp) {
            self.compare(&hinge, sample, n, units, response_s);
        }
    }

    /// What the origin serves at saturation.
    fn weigh(&mut self, n: f64, work: &Work) {
        let Some(hinge) = self.hinge.filter(|_| self.purpose != Purpose::Ramp) else { return };
        let most = if hinge.contends() { CONTENDING_RANGE } else { RANGE };
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
    pub(super) fn expected(&self) -> (f64, f64) {
        match self.hinge {
            Some(hinge) => {
                let base = hinge.base_s * self.mix.units_per_request();
                let n = (f64::from(self.limit) - self.standing.level()).max(1.0);
                (n.min(hinge.knee) / base, base * hinge.slowdown(n))
            }
            None if self.round.work.count >= 8.0 => (
                self.round.work.count / self.round.work.time_s,
                self.round.response_s / self.round.work.count,
            ),
            None => (LEAST_RATE, self.usual_s.unwrap_or(f64::INFINITY)),
        }
    }
}
