//! Capacity as the load with the greatest power ratio: WebQ's discovery, section IV.
//!
//! ```text
//! γ_i = g_i / r_i           goodput over mean response time of epoch i (8 s), in which c_i per second were let in
//! coarse:      c_i = α c_(i-1) from c0, until the cubic fitted to (c, γ) has its peak inside the range probed;  C̄ = c_i
//! stabilise:   c = β C̄ until |g - c| / g < ε for N_s epochs, whose γ are ignored
//! fine:        c_i = c_(i-1) + δ C̄, until the peak was inside once, and then N_f times
//! C            the fit's peak; stabilise; then watch for γ off the fit by twice its largest error:
//!              above: discover anew from C;  below: from c0
//! everywhere:  no step forward unless |g - c| / g < ε: with few visitors, discovery pauses
//! ```
//!
//! What the paper leaves open, how it is read here, and what that is worth: complete of sixty seeds in front of ten workers with
//! exponential work (from cold in 300 s, after a fall in 420 s), against the same without. All of it: 59 and 59; one false alarm in
//! thirty hours of watching.
//!
//! | reading | where | without it |
//! |---|---|---|
//! | when a peak counts: six loads, a drop of a tenth behind it | [`PowerRatio::sees_the_peak`] | 29 and 22 |
//! | overload is not low load | [`PowerRatio::judge`] | 56 and 45; 22 of 60 rises of a service whose work is fixed (nothing, where epochs are broken off) |
//! | a paused epoch's sample is dropped | `phases` | nothing, while visitors wait; a dent in the curve, when they do not |
//! | what is fitted: all samples, of both phases | `add_point` | C is 87 instead of 76 |
//! | largest error: of points near the peak | `watch` | 58 falls |
//! | two epochs in a row are a change | `watch` | 12 false alarms |
//! | stabilise after the fine phase too ("a similar cool off period will also exist") | `phases` | 12 false alarms, 53 falls |
//! | a service that stays overloaded is relieved, a probe that fills it broken off | `phases`, [`PowerRatio::crowd`] | with contention .3, 1 of 60 instead of 52 |
//!
//! And c_i is what comes, not what was promised: the room's hand lets in c_i per second as soon as c_i changes, and g and r are taken
//! of requests that ended in the epoch, so that no promise made at an earlier c_i counts for this one.
//!
//! Not the paper's either, and not measured apart: the guard ends with an epoch in overload (`fine`); a service that refuses what it
//! cannot do has its capacity behind it (`fails_past_the_peak`); a discovery that begins in overload begins again lower
//! ([`LOWER`]); more than ε of failures pause it like low load; relief ends after an epoch in which it was of no use (`relieve`);
//! an epoch in which the clock went back or ticks were missing is thrown away, and so are the oldest of more than
//! [`MAX_POINTS`] samples; a load broken off has Little's law for its response time (`epoch`); a rise is inferred only at the load
//! itself, and a probe broken off while watching is a change at once (`watch`).
//!
//! What it cannot do: it needs 25 epochs (200 s) of more visitors than the service can take, and overloads it for some of them;
//! the peak lies below what a service run with bounded concurrency can serve (80 of 100 per second with ten workers); a
//! rise by added workers does not change γ at the old load and goes unnoticed; γ mixes classes, so that a change of mix is a
//! change of capacity. And once it is settled it does not leave a service that refuses at once what it cannot do: errors are no
//! goodput, but γ of the few that are served quickly is on the curve at their goodput, where few come just as well.

use crate::units::{Rate, Timestamp};

use super::cubic::Cubic;
use super::{Estimate, Estimator, GateLoad, Phase, Sample, State};

mod config;
mod epoch;
mod phases;
mod state;
mod watch;

pub use config::PowerRatioConfig;

use epoch::{Epoch, Sums};
use watch::Watch;

/// Most points kept: two for every load from 15 to a million per second and the longest fine phase seen are fewer. What
/// comes after replaces the oldest.
const MAX_POINTS: usize = 256;
/// Least load probed: one request in a hundred seconds.
const LEAST_LOAD: f64 = 0.01;
/// A discovery that began too high at c0 itself begins again at this share of it.
const LOWER: f64 = 0.25;
/// Requests at the service that are never too many: bursts of visitors, pauses of a slow service.
const LEAST_CROWD: f64 = 32.0;
/// Most times that the load is cut by the same share while the service is relieved.
const MAX_RELIEF: u32 = 3;

/// What comes after the service has become stable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Coarse,
    Fine,
    Watch,
}

/// Where the discovery stands.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    Coarse,
    Stabilising {
        then: Then,
        /// Consecutive epochs with the goodput close to the load.
        close: u32,
        /// The service was relieved before.
        relieved: bool,
    },
    /// Little is let in until the service has worked off what it has.
    Relieving {
        then: Then,
        /// Epochs of it so far.
        epochs: u32,
        /// Requests at the service that it bears.
        enough: f64,
        /// More than these were seen.
        crowded: bool,
        /// Requests at the service when the last epoch of it ended.
        present: u32,
    },
    Fine {
        /// Epochs after the one that saw the peak; `None` before.
        guard: Option<u32>,
    },
    Watching(Watch),
}

/// How an epoch's goodput compares with the load.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Seen {
    /// |g - c| / g < ε.
    Close,
    /// Less, since the service cannot do more.
    Overloaded,
    /// Less, since fewer came.
    Low,
    /// More: what was let in earlier is still being served.
    Ahead,
    /// So many of all failed that goodput says nothing of the load, but not with longer response times.
    Failing { share: f64 },
    /// Nothing ended.
    Nothing,
}

/// Why the present discovery began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    Start,
    Asked,
    Set,
    Rise,
    Fall,
    TooHigh,
}

/// The estimator `power-ratio`.
#[derive(Clone, Debug)]
pub struct PowerRatio {
    config: PowerRatioConfig,
    /// c_i.
    load: f64,
    stage: Stage,
    cause: Cause,
    /// The load that this discovery began with.
    began_with: f64,
    /// C̄.
    coarse_end: f64,
    /// (c_i, γ_i), in order of their epochs.
    points: Vec<(f64, f64)>,
    fit: Option<Cubic>,
    /// Least mean response time of an epoch of this discovery, seconds.
    best: Option<f64>,
    sums: Sums,
    /// Of the last epoch.
    seen: Option<Seen>,
    /// Epochs in a row that failed.
    failing: u32,
}

impl PowerRatio {
    /// Starts from `start`, or from [`PowerRatioConfig::first_load`].
    pub fn new(config: PowerRatioConfig, start: Option<Rate>) -> Self {
        let config = config.sane();
        let load = start.unwrap_or(config.first_load).get().max(LEAST_LOAD);
        Self {
            config,
            load,
            stage: Stage::Coarse,
            cause: Cause::Start,
            began_with: load,
            coarse_end: load,
            points: Vec::new(),
            fit: None,
            best: None,
            sums: Sums::default(),
            seen: None,
            failing: 0,
        }
    }

    /// Begins a discovery; with `calm_first` only after the service has become stable at its first load.
    fn begin(&mut self, load: f64, cause: Cause, calm_first: bool) {
        let load = load.clamp(LEAST_LOAD, Rate::MAX.get());
        let sums = std::mem::take(&mut self.sums);
        *self = Self { cause, sums, ..Self::new(self.config, Rate::per_second(load)) };
        if calm_first {
            self.stage = Stage::stabilising(Then::Coarse);
        }
    }

    /// What the epoch tells of the load.
    ///
    /// The paper's check, goodput close to c, is meant for low load, but an overloaded service fails it just as well: read to
    /// the letter, discovery stops at the first load that is more than ε too high, and stays there. Two things tell the
    /// difference: visitors wait, and the service takes much longer than it did.
    fn judge(&self, epoch: &Epoch) -> Seen {
        let Some(response) = epoch.response else {
            return if epoch.failed > 0 { Seen::Failing { share: 1.0 } } else { Seen::Nothing };
        };
        let slow = self.best.is_some_and(|best| response > self.config.overload * best);
        let share = epoch.failed as f64 / (epoch.failed as f64 + epoch.served as f64);
        if epoch.broken_off {
            Seen::Overloaded
        } else if epoch.is_close(self.load, self.config.closeness) {
            Seen::Close
        } else if epoch.goodput < self.load && slow && epoch.waited {
            Seen::Overloaded
        } else if share > self.config.closeness {
            Seen::Failing { share }
        } else if epoch.goodput < self.load {
            Seen::Low
        } else {
            Seen::Ahead
        }
    }

    /// Whether the fit's greatest value lies inside the range probed: the load has gone past the capacity.
    ///
    /// The paper asks for no more, and four points are a cubic. With noise in them that cubic peaks inside by chance: half of
    /// the discoveries then chase peaks that the next sample takes away, and some end at a quarter of the capacity. So: some more
    /// loads, and a drop behind the peak that noise does not make, in the fit and, while loads are far apart, in the last
    /// sample itself. "The range" ends with the greatest load probed, also after backtracking, since its sample is kept.
    fn sees_the_peak(&self) -> bool {
        let (Some(fit), Some((_, last))) = (&self.fit, self.points.last()) else { return false };
        let (lo, hi) = fit.range();
        let (at, peak) = fit.peak();
        let dropped = (1.0 - self.config.below_peak) * peak;
        let raw = self.stage != Stage::Coarse || *last <= dropped;
        self.points.len() >= self.config.least_points && lo < at && at < hi && fit.at(hi) <= dropped && raw
    }

    /// Fits the samples of both phases together ("fitted over all observations"): those of the fine phase alone span a quarter of the
    /// range, and a cubic through their noise peaks near the range's end.
    fn add_point(&mut self, power: f64) {
        if self.points.len() == MAX_POINTS {
            self.points.remove(0);
        }
        self.points.push((self.load, power));
        self.fit = Cubic::fit(&self.points).ok();
    }

    /// Requests at the service at which an epoch is broken off.
    ///
    /// Not the paper's. A service that suffers from overload does so with the square of what waits there: after eight seconds
    /// of it, it takes minutes to recover, where after one it takes seconds. And that it cannot take this load is as plain
    /// after one.
    fn crowd(&self) -> f64 {
        match (self.stage, self.best) {
            (Stage::Relieving { .. }, _) | (_, None) => f64::INFINITY,
            (_, Some(best)) => (self.config.break_off * self.load * best).max(LEAST_CROWD),
        }
    }

    /// What is let in: c_i, less while the service is relieved.
    fn rate(&self) -> f64 {
        match self.stage {
            Stage::Relieving { epochs, .. } => self.load * self.config.drain.powi(epochs as i32 + 1),
            _ => self.load,
        }
    }
}

impl Stage {
    fn stabilising(then: Then) -> Self {
        Self::Stabilising { then, close: 0, relieved: false }
    }

    fn relieving(then: Then, enough: f64) -> Self {
        Self::Relieving { then, epochs: 0, enough, crowded: false, present: u32::MAX }
    }
}

impl Estimator for PowerRatio {
    fn observe(&mut self, sample: &Sample) {
        self.sums.observe(sample);
    }

    fn tick(&mut self, load: &GateLoad, now: Timestamp) -> Estimate {
        if let Some(epoch) = self.sums.tick(load, self.config.epoch, self.crowd(), now) {
            self.end_of_epoch(&epoch);
        }
        self.end_of_relief(load);
        Estimate {
            capacity: Rate::per_second(self.rate()).unwrap_or(self.config.first_load),
            gain: 1.0,
            max_in_flight: None,
            phase: self.phase(),
            confidence: self.confidence(),
        }
    }

    /// Begins a discovery at the given load.
    fn set(&mut self, capacity: Rate, _now: Timestamp) {
        self.begin(capacity.get(), Cause::Set, false);
        self.sums.restart();
    }

    /// The paper's external trigger: discovers anew from the present estimate; while it is still discovering, from where
    /// that began.
    fn rediscover(&mut self, _now: Timestamp) {
        let from = if self.is_found() { self.load } else { self.began_with };
        self.begin(from, Cause::Asked, false);
        self.sums.restart();
    }

    fn state(&self) -> State {
        self.describe()
    }
}

impl PowerRatio {
    /// Whether the load is a capacity that was found.
    fn is_found(&self) -> bool {
        matches!(
            self.stage,
            Stage::Watching(_)
                | Stage::Stabilising { then: Then::Watch, .. }
                | Stage::Relieving { then: Then::Watch, .. }
        )
    }

    fn phase(&self) -> Phase {
        match self.seen {
            Some(Seen::Failing { .. }) => Phase::Paused,
            // A capacity that was found is held at any load.
            Some(Seen::Low | Seen::Nothing) if !self.is_found() => Phase::Paused,
            // Relief lets in far less than was found.
            _ if self.is_found() && !matches!(self.stage, Stage::Relieving { .. }) => Phase::Settled,
            _ => Phase::Searching,
        }
    }

    /// Nothing is known before the peak was seen once; a capacity found is as certain as the fit is close.
    fn confidence(&self) -> f64 {
        match self.stage {
            Stage::Watching(watch) => watch.confidence(),
            _ if self.is_found() => 0.5,
            Stage::Fine { guard } => {
                0.5 * f64::from(guard.unwrap_or(0)) / f64::from(self.config.guard_epochs.max(1))
            }
            Stage::Coarse | Stage::Stabilising { .. } | Stage::Relieving { .. } => 0.0,
        }
    }
}
