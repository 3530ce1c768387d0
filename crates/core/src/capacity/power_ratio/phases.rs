//! The phases of the discovery (sections IV-B and IV-C): the transitions at the end of an epoch.

use crate::capacity::GateLoad;
use crate::units::Rate;

use super::epoch::Epoch;
use super::watch::{Change, Watch};
use super::{Cause, LEAST_LOAD, LOWER, MAX_RELIEF, Outcome, PowerRatio, Stage, Then};

impl PowerRatio {
    pub(super) fn end_of_epoch(&mut self, epoch: &Epoch) {
        // A response time of zero is no measurement: compared with it every other would count as slow.
        if let Some(response) = epoch.response.filter(|response| *response > 0.0) {
            self.best = Some(self.best.map_or(response, |best| best.min(response)));
        }
        let outcome = self.judge(epoch);
        // An epoch of relief does not measure the load.
        self.outcome = Some(outcome).filter(|_| !matches!(self.stage, Stage::Relieving { .. }));
        if matches!(outcome, Outcome::Close | Outcome::Overloaded) {
            self.escape.served(epoch.goodput);
        }
        if self.is_doubtful(epoch) {
            let from = self.load.max(self.config.first_load.get());
            return self.begin(from, Cause::ServedMore, Stage::Coarse);
        }
        self.failing = if matches!(outcome, Outcome::Failing { .. }) { self.failing + 1 } else { 0 };
        match self.stage {
            Stage::Coarse => self.coarse(epoch, outcome),
            Stage::Stabilising { then, close, relieved } => {
                self.stabilise(epoch, outcome, then, close, relieved);
            }
            Stage::Relieving { .. } => self.relieve(epoch),
            Stage::Fine { guard } => self.fine(epoch, outcome, guard),
            Stage::Watching(watch) => self.watch(epoch, outcome, watch),
        }
    }

    /// Whether the load has been far below what was served before for too long, without a reason.
    fn is_doubtful(&mut self, epoch: &Epoch) -> bool {
        let has_reason =
            !epoch.waited || self.is_slow(epoch) || matches!(self.stage, Stage::Relieving { .. });
        !has_reason && self.escape.doubts(self.load, self.config.floor)
    }

    /// Multiplicative steps, until the load has gone past the peak.
    fn coarse(&mut self, epoch: &Epoch, outcome: Outcome) {
        if !self.advances(epoch, outcome) {
            if self.fails_past_the_peak() {
                self.backtrack();
            }
        } else if self.sees_the_peak() {
            self.backtrack();
        } else if outcome == Outcome::Overloaded && self.points.len() < self.config.least_points {
            // Overloaded before the rising side of the curve was seen: the peak is at a lower load.
            let first = self.config.first_load.get();
            let lower = if self.began_with > first { first } else { self.began_with * LOWER };
            self.begin(lower, Cause::TooHigh, Stage::stabilising(Then::Coarse));
        } else {
            self.load = (self.load * self.config.growth).min(Rate::MAX.get());
        }
    }

    fn backtrack(&mut self) {
        self.coarse_end = self.load;
        self.load *= self.config.backtrack;
        self.stage = Stage::stabilising(Then::Fine);
    }

    /// Linear steps until the peak was seen in N_f more epochs in a row: otherwise it was noise.
    fn fine(&mut self, epoch: &Epoch, outcome: Outcome, guard: Option<u32>) {
        if !self.advances(epoch, outcome) {
            if self.fails_past_the_peak() {
                self.conclude();
            }
            return;
        }
        let guard = self.sees_the_peak().then(|| guard.map_or(0, |epochs| epochs + 1));
        self.stage = Stage::Fine { guard };
        // The guard excludes a peak made by noise. Goodput that stays behind the load is no noise, and
        // further epochs would only measure a service that is overloaded already.
        let is_sure = |epochs| epochs >= self.config.guard_epochs || outcome == Outcome::Overloaded;
        if guard.is_some_and(is_sure) {
            self.conclude();
        } else {
            self.load = (self.load + self.config.step * self.coarse_end).min(Rate::MAX.get());
        }
    }

    /// The capacity is the load at the fit's peak. The service must become stable there before changes are
    /// looked for: the first epochs still serve the requests of the last probes, far below the curve.
    fn conclude(&mut self) {
        if let Some(fit) = self.fit {
            self.load = fit.peak().0;
            self.stage = Stage::stabilising(Then::Watch);
        }
    }

    /// Adds the epoch's sample, if the load may advance. The sample of an epoch that pauses the discovery is
    /// dropped: it stands for fewer requests than c_i, and would look like the falling side of the curve.
    fn advances(&mut self, epoch: &Epoch, outcome: Outcome) -> bool {
        match epoch.power() {
            Some(power) if matches!(outcome, Outcome::Close | Outcome::Overloaded) => {
                self.add_point(power);
                true
            }
            _ => false,
        }
    }

    /// Whether the service sheds load itself: it served the loads before, and refuses so much of this one
    /// that goodput cannot follow, while its response time never rises. Its capacity is below this load.
    fn fails_past_the_peak(&self) -> bool {
        self.failing >= self.config.stable_epochs.max(1)
            && self.points.len() >= self.config.least_points
            && self.fit.is_some()
    }

    /// Waits for N_s epochs with the goodput close to the load. Their samples are ignored, as in the paper.
    ///
    /// The paper expects g > c while the service works off its backlog. A service with contention does not
    /// get that far: at β C̄ it stays overloaded for good, whether its goodput is close to c or not. So it is
    /// relieved of load until its response time is short again. If it then fails again, β applies once more.
    fn stabilise(&mut self, epoch: &Epoch, outcome: Outcome, then: Then, close: u32, relieved: bool) {
        let is_slow = self.is_slow(epoch) && epoch.waited;
        if is_slow && outcome != Outcome::Ahead {
            if relieved {
                self.load = (self.load * self.config.backtrack).max(LEAST_LOAD);
            }
            self.stage = Stage::relieving(then, self.bearable(self.load));
            return;
        }
        let close = if outcome == Outcome::Close { close + 1 } else { 0 };
        self.stage = if close < self.config.stable_epochs {
            Stage::Stabilising { then, close, relieved }
        } else {
            self.stable(then)
        };
    }

    fn stable(&self, then: Then) -> Stage {
        match (then, self.fit) {
            (Then::Fine, _) => Stage::Fine { guard: None },
            (Then::Watch, Some(fit)) => Stage::Watching(Watch::new(fit, &self.points, &self.config)),
            _ => Stage::Coarse,
        }
    }

    /// An epoch of relief is over. If it did not help, the load is reduced by the same factor again.
    ///
    /// Requests that stay while hardly anything is admitted and others are answered are long polls.
    fn relieve(&mut self, epoch: &Epoch) {
        let is_slow = self.is_slow(epoch);
        let Stage::Relieving { then, epochs, crowded, present, .. } = &mut self.stage else { return };
        let before = std::mem::replace(present, epoch.present);
        let is_all_tried = !is_slow || *epochs == MAX_RELIEF;
        let is_in_vain = is_all_tried && epoch.present >= before && epoch.response.is_some();
        if is_slow && !is_in_vain {
            *epochs = (*epochs + 1).min(MAX_RELIEF);
        } else if !*crowded || is_in_vain {
            self.stage = Stage::Stabilising { then: *then, close: 0, relieved: true };
        }
    }

    /// Ends the relief on the tick on which few enough requests are at the service. Where they are unknown
    /// (tokengen), the end of an epoch decides.
    pub(super) fn end_of_relief(&mut self, load: &GateLoad) {
        let Stage::Relieving { then, enough, crowded, .. } = &mut self.stage else { return };
        if f64::from(load.in_flight) > *enough {
            *crowded = true;
        } else if *crowded {
            if *then == Then::Coarse {
                // Response times so far were those before the fall.
                self.best = None;
            }
            self.stage = Stage::Stabilising { then: *then, close: 0, relieved: true };
            self.sums.restart();
        }
    }

    /// Requests at the service at a load, by Little's law with the response time that counts as slow.
    fn bearable(&self, load: f64) -> f64 {
        load * self.best.unwrap_or(0.0) * self.config.relieve
    }

    /// Whether the service needs relief. One that has requests and answers none of them counts as slow.
    fn is_slow(&self, epoch: &Epoch) -> bool {
        match (epoch.response, self.best) {
            (Some(response), Some(best)) => response > self.config.relieve * best,
            (Some(_), None) => false,
            (None, _) => epoch.present > 0 && epoch.failed == 0 && self.config.relieve.is_finite(),
        }
    }

    /// Holds the capacity found, and begins a discovery when the curve has changed.
    fn watch(&mut self, epoch: &Epoch, outcome: Outcome, mut watch: Watch) {
        // Failures without longer response times: the service is broken, and less load would not help.
        let change = match outcome {
            Outcome::Failing { .. } | Outcome::Nothing | Outcome::Ahead => None,
            _ => watch.epoch(epoch, self.load, outcome == Outcome::Close, &self.config),
        };
        self.stage = Stage::Watching(watch);
        match change {
            Some(Change::Rise) => self.begin(self.load, Cause::Rise, Stage::Coarse),
            // Requests admitted at the old capacity must be worked off first.
            Some(Change::Fall) => {
                let first = self.config.first_load.get();
                let enough = self.bearable(first);
                self.begin(first, Cause::Fall, Stage::relieving(Then::Coarse, enough));
            }
            None => {}
        }
    }
}
