//! What is done with every sample: O(1), without allocation.

use super::steer::CONTENDING_RANGE;
use super::{Bottleneck, Hinge, Onset, Purpose, Sample, Work};

/// Up to so many knees a sample tells of the throughput.
const RANGE: f64 = 1.8;

impl Bottleneck {
    /// A sample that was sent while others waited.
    pub(super) fn judge(&mut self, sample: &Sample, units: f64) {
        let count = sample.count as f64;
        let n = (f64::from(sample.in_flight) - self.standing.level()).max(1.0);
        let whole_s = sample.response.as_secs_f64().max(1e-6);
        let response_s = self.standing.split(count, whole_s, self.expected().1);
        let sent = sample.ended.saturating_sub(sample.response);
        if self.pauses.forgives(sent, sample.ended, self.expected(), f64::from(self.limit)) {
            return;
        }
        self.ticked.judged += sample.count;
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
}
