//! The estimator `power-ratio`: the capacity is the load with the greatest power ratio (WebQ, section IV).
//!
//! ```text
//! γ_i = g_i / r_i           goodput over mean response time of epoch i (8 s), at a load of c_i per second
//! coarse:      c_i = α c_(i-1) from c0, until the cubic fitted to (c, γ) peaks inside the range;  C̄ = c_i
//! stabilise:   c = β C̄ until |g - c| / g < ε for N_s epochs, whose γ are ignored
//! fine:        c_i = c_(i-1) + δ C̄, until the peak was inside once, and then N_f times
//! C            the fit's peak; stabilise; then watch for γ off the fit by twice its largest error:
//!              above: discover anew from C;  below: from c0
//! everywhere:  no step forward unless |g - c| / g < ε: with few visitors, discovery pauses
//! ```
//!
//! The paper leaves points open. The table lists how they are read here and the effect without it: how many
//! of sixty seeds complete the discovery in front of ten workers with exponential work, from cold in 300 s
//! and after a fall in 420 s. With all readings: 59 and 59, and one false alarm in thirty hours.
//!
//! | reading | where | without it |
//! |---|---|---|
//! | a peak needs six loads and a drop of a tenth behind it | [`PowerRatio::sees_the_peak`] | 29 and 22 |
//! | overload is not low load | [`PowerRatio::judge`] | 56 and 45; 22 of 60 rises with fixed work |
//! | the sample of a paused epoch is dropped | `phases` | with few visitors a dent in the curve |
//! | the samples of both phases are fitted together | `add_point` | C is 87 instead of 76 |
//! | the largest error is that of points near the peak | `watch` | 58 falls |
//! | a change takes two epochs in a row | `watch` | 12 false alarms |
//! | stabilise after the fine phase too | `phases` | 12 false alarms, 53 falls |
//! | a load far below what was served before is doubted | `escape` | workers that return are not found |
//! | relief, and breaking off epochs | `phases`, [`PowerRatio::crowd`] | 1, not 52 (contention 0.3) |
//!
//! c_i is what arrives, not what was promised: the room's virtual clock admits c_i per second as soon as c_i
//! changes, and g and r are those of requests that ended in the epoch, so earlier promises do not count.
//!
//! Further departures, whose effect was not measured apart:
//! - The guard ends with an epoch in overload (`fine`).
//! - A service that refuses what it cannot serve has its capacity behind it (`fails_past_the_peak`).
//! - A discovery that begins in overload begins again lower ([`LOWER`]).
//! - A share of failures above ε pauses it like low load.
//! - Relief ends after an epoch in which it had no effect (`relieve`).
//! - Epochs with missing ticks or a clock that went back are discarded, and samples beyond [`MAX_POINTS`].
//! - The response time of an epoch that was broken off follows from Little's law (`epoch`).
//! - A rise is inferred only at the load itself; an epoch broken off while watching is a change (`watch`).
//!
//! Limits:
//! - It needs 25 epochs (200 s) with more visitors than the service can serve, and overloads it for some.
//! - The peak lies below what a service of bounded concurrency serves: 80 of 100 per second with ten workers.
//! - Added workers do not change γ at the old load, so that rise goes unnoticed, unless far more was served
//!   before.
//! - γ mixes classes, so a change of the mix looks like a change of the capacity.
//! - Once settled, it does not notice a service that refuses at once: errors are no goodput, but γ of the few
//!   requests served quickly is on the curve at their goodput, as with few visitors.

use crate::units::{Rate, Timestamp};

use super::{Estimate, Estimator, GateLoad, Phase, Sample, State};

mod config;
mod cubic;
mod epoch;
mod escape;
mod phases;
mod watch;

pub use config::PowerRatioConfig;

use cubic::Cubic;
use epoch::{Epoch, Sums};
use escape::Escape;
use watch::Watch;

const CURVE: u32 = 24;
/// Most points kept, the latest: over two per load from 15 to a million per second, and a long fine phase.
const MAX_POINTS: usize = 256;
/// Least load probed: one request in a hundred seconds.
const LEAST_LOAD: f64 = 0.01;
/// A discovery that began too high at c0 itself begins again at this share of it.
const LOWER: f64 = 0.25;
/// Least bound on the requests at the service: bursts of visitors and short pauses stay below.
const LEAST_CROWD: f64 = 32.0;
/// Most times that relief reduces the load by its factor.
const MAX_RELIEF: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Coarse,
    Fine,
    Watch,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    Coarse,
    Stabilising {
        then: Then,
        /// Consecutive epochs with the goodput close to the load.
        close: u32,
        relieved: bool,
    },
    /// Little is admitted until the service has worked off its backlog.
    Relieving {
        then: Then,
        epochs: u32,
        /// Requests at the service at which relief ends.
        enough: f64,
        /// More than these were there.
        crowded: bool,
        /// Requests at the service at the end of the last epoch.
        present: u32,
    },
    Fine {
        /// Epochs after the one that saw the peak; `None` before.
        guard: Option<u32>,
    },
    Watching(Watch),
}

/// The outcome of an epoch: how its goodput compares with the load.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Outcome {
    /// |g - c| / g < ε.
    Close,
    /// Less, because the service cannot serve more.
    Overloaded,
    /// Less, because fewer came.
    Low,
    /// More: requests admitted earlier are still being served.
    Ahead,
    /// A share of failures that makes goodput meaningless, without longer response times.
    Failing {
        share: f64,
    },
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    Start,
    Requested,
    Set,
    Rise,
    Fall,
    TooHigh,
    ServedMore,
}

/// The estimator `power-ratio`; see the module.
#[derive(Clone, Debug)]
pub struct PowerRatio {
    config: PowerRatioConfig,
    /// c_i.
    load: f64,
    stage: Stage,
    cause: Cause,
    began_with: f64,
    /// C̄.
    coarse_end: f64,
    /// (c_i, γ_i), in order of their epochs.
    points: Vec<(f64, f64)>,
    fit: Option<Cubic>,
    /// Least mean response time of an epoch of this discovery, seconds.
    best: Option<f64>,
    sums: Sums,
    outcome: Option<Outcome>,
    failing: u32,
    escape: Escape,
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
            outcome: None,
            failing: 0,
            escape: Escape::new(),
        }
    }

    fn begin(&mut self, load: f64, cause: Cause, stage: Stage) {
        let load = load.clamp(LEAST_LOAD, Rate::MAX.get());
        let (sums, escape) = (std::mem::take(&mut self.sums), self.escape);
        *self = Self { cause, stage, sums, escape, ..Self::new(self.config, Rate::per_second(load)) };
    }

    /// Compares the goodput of an epoch with the load.
    ///
    /// The paper's check, goodput close to c, is meant for low load, but an overloaded service fails it too.
    /// Taken literally, discovery stops for good at the first load that is more than ε too high. The
    /// difference shows in two figures: visitors wait, and the response time is much longer than the best.
    fn judge(&self, epoch: &Epoch) -> Outcome {
        let Some(response) = epoch.response else {
            return if epoch.failed > 0 { Outcome::Failing { share: 1.0 } } else { Outcome::Nothing };
        };
        let slow = self.best.is_some_and(|best| response > self.config.overload * best);
        let share = epoch.failed as f64 / (epoch.failed as f64 + epoch.served as f64);
        if epoch.broken_off {
            Outcome::Overloaded
        } else if epoch.is_close(self.load, self.config.closeness) {
            Outcome::Close
        } else if epoch.goodput < self.load && slow && epoch.waited {
            Outcome::Overloaded
        } else if share > self.config.closeness {
            Outcome::Failing { share }
        } else if epoch.goodput < self.load {
            Outcome::Low
        } else {
            Outcome::Ahead
        }
    }

    /// Whether the fit peaks inside the range probed, so that the load has passed the capacity.
    ///
    /// The paper requires no more, and four points define a cubic. With noise that cubic peaks inside by
    /// chance: half of the discoveries then follow peaks that the next sample removes, and some end at a
    /// quarter of the capacity. So more loads are required, and a drop behind the peak that exceeds the
    /// noise, in the fit and, while loads are far apart, in the last sample itself. The range ends at the
    /// greatest load probed, also after backtracking, because its sample is kept.
    fn sees_the_peak(&self) -> bool {
        let (Some(fit), Some((_, last))) = (&self.fit, self.points.last()) else { return false };
        let (lo, hi) = fit.range();
        let (at, peak) = fit.peak();
        let dropped = (1.0 - self.config.below_peak) * peak;
        let raw = self.stage != Stage::Coarse || *last <= dropped;
        self.points.len() >= self.config.least_points && lo < at && at < hi && fit.at(hi) <= dropped && raw
    }

    /// Fits the samples of both phases together ("fitted over all observations"). Those of the fine phase
    /// alone span a quarter of the range, and a cubic through their noise peaks near the end of the range.
    fn add_point(&mut self, power: f64) {
        if self.points.len() == MAX_POINTS {
            self.points.remove(0);
        }
        self.points.push((self.load, power));
        self.fit = Cubic::fit(&self.points).ok();
    }

    /// Requests at the service at which an epoch is broken off.
    ///
    /// Not in the paper. With contention a service slows down with the square of its backlog: after eight
    /// seconds of overload it takes minutes to recover, after one second it takes seconds, and one is enough
    /// to show that the load is too high.
    fn crowd(&self) -> f64 {
        match (self.stage, self.best) {
            (Stage::Relieving { .. }, _) | (_, None) => f64::INFINITY,
            (_, Some(best)) => (self.config.break_off * self.load * best).max(LEAST_CROWD),
        }
    }

    /// The rate admitted: c_i, or less during relief.
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

    fn set(&mut self, capacity: Rate, _now: Timestamp) {
        self.begin(capacity.get(), Cause::Set, Stage::Coarse);
        (self.escape, self.sums) = (Escape::new(), Sums::default());
    }

    /// The paper's external trigger: discovers anew from the estimate, or from the first load of a discovery.
    fn rediscover(&mut self, _now: Timestamp) {
        let from = if self.is_found() { self.load } else { self.began_with };
        self.begin(from, Cause::Requested, Stage::Coarse);
        (self.escape, self.sums) = (Escape::new(), Sums::default());
    }

    fn state(&self) -> State {
        let mut figures = vec![("load_per_s", self.load), ("epoch_s", self.config.epoch.as_secs_f64())];
        if let Some(best) = self.best {
            figures.push(("response_best_ms", best * 1e3));
        }
        if let Some(fit) = &self.fit {
            let (at, power) = fit.peak();
            figures.extend([("peak_load_per_s", at), ("peak_power_ratio", power)]);
        }
        if let Stage::Watching(watch) = &self.stage {
            figures.push(("largest_error", watch.error_near));
        }
        State {
            reason: self.reason(),
            samples: self.points.len() as u64,
            figures,
            points: self.points.clone(),
            curve: self.curve(),
        }
    }
}

impl PowerRatio {
    /// Whether the load is a capacity found by a discovery.
    fn is_found(&self) -> bool {
        matches!(
            self.stage,
            Stage::Watching(_)
                | Stage::Stabilising { then: Then::Watch, .. }
                | Stage::Relieving { then: Then::Watch, .. }
        )
    }

    fn phase(&self) -> Phase {
        match self.outcome {
            Some(Outcome::Failing { .. }) => Phase::Paused,
            // A capacity that was found is held even with few visitors.
            Some(Outcome::Low | Outcome::Nothing) if !self.is_found() => Phase::Paused,
            // Relief admits far less than the capacity.
            _ if self.is_found() && !matches!(self.stage, Stage::Relieving { .. }) => Phase::Settled,
            _ => Phase::Searching,
        }
    }

    /// Zero before the peak was seen; the confidence in a capacity found follows from the error of the fit.
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

    fn reason(&self) -> String {
        let stage = self.stage_text();
        match self.outcome {
            Some(Outcome::Nothing | Outcome::Low) if self.is_found() => stage,
            Some(Outcome::Nothing) => format!("paused: nothing to serve ({stage})"),
            Some(Outcome::Low) => format!("paused: offered load below the estimate ({stage})"),
            Some(Outcome::Failing { share: 1.0 }) => format!("errors only: holding ({stage})"),
            Some(Outcome::Failing { share }) => {
                format!("paused: {:.0} % of the requests fail ({stage})", share * 100.0)
            }
            _ => stage,
        }
    }

    fn stage_text(&self) -> String {
        let load = self.load;
        match self.stage {
            Stage::Coarse => format!("coarse: probing {load:.1}/s{}", self.cause.suffix()),
            Stage::Relieving { .. } => {
                format!("stabilising: relieved to {:.1}/s of {load:.1}/s", self.rate())
            }
            Stage::Stabilising { then, close, .. } => {
                let (name, of) = match then {
                    Then::Watch => ("settled, cooling off", self.config.stable_epochs),
                    Then::Coarse | Then::Fine => ("stabilising", self.config.stable_epochs),
                };
                format!("{name}: {close} of {of} epochs close to {load:.1}/s{}", self.cause.suffix())
            }
            Stage::Fine { guard: None } => format!("fine: probing {load:.1}/s"),
            Stage::Fine { guard: Some(epochs) } => {
                let of = self.config.guard_epochs;
                format!("fine: guard epoch {} of {of}, probing {load:.1}/s", epochs + 1)
            }
            Stage::Watching(watch) => match watch.suspicious_epochs() {
                0 => "settled: the power ratio is on its curve".into(),
                epochs => format!("settled: off the curve for {epochs} of {} epochs", self.config.alarms),
            },
        }
    }

    fn curve(&self) -> Vec<(f64, f64)> {
        let Some(fit) = &self.fit else { return Vec::new() };
        let (lo, hi) = fit.range();
        let load = |i: u32| lo + (hi - lo) * f64::from(i) / f64::from(CURVE);
        (0..=CURVE).map(|i| (load(i), fit.at(load(i)))).collect()
    }
}

impl Cause {
    fn suffix(self) -> &'static str {
        match self {
            Self::Start => "",
            Self::Requested => ", as requested",
            Self::Set => ", from the capacity that was set",
            Self::Rise => ", since the capacity rose",
            Self::Fall => ", since the capacity fell",
            Self::TooHigh => ", since the start was too high",
            Self::ServedMore => ", since far more was served before",
        }
    }
}
