//! What the discovery says of itself.

use crate::capacity::State;

use super::{Cause, PowerRatio, Seen, Stage, Then};

/// Points of the fitted curve.
const CURVE: u32 = 24;

impl PowerRatio {
    pub(super) fn describe(&self) -> State {
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

    fn reason(&self) -> String {
        let stage = self.stage_in_words();
        match self.seen {
            Some(Seen::Nothing | Seen::Low) if self.is_found() => stage,
            Some(Seen::Nothing) => format!("paused: nothing to serve ({stage})"),
            Some(Seen::Low) => format!("paused: offered load below the estimate ({stage})"),
            Some(Seen::Failing { share: 1.0 }) => format!("errors only: holding ({stage})"),
            Some(Seen::Failing { share }) => {
                format!("paused: {:.0} % of the requests fail ({stage})", share * 100.0)
            }
            _ => stage,
        }
    }

    fn stage_in_words(&self) -> String {
        let load = self.load;
        match self.stage {
            Stage::Coarse => format!("coarse: probing {load:.1}/s{}", self.cause.in_words()),
            Stage::Relieving { .. } => {
                format!("stabilising: relieved to {:.1}/s of {load:.1}/s", self.rate())
            }
            Stage::Stabilising { then, close, .. } => {
                let (name, of) = match then {
                    Then::Watch => ("settled, cooling off", self.config.stable_epochs),
                    Then::Coarse | Then::Fine => ("stabilising", self.config.stable_epochs),
                };
                format!("{name}: {close} of {of} epochs close to {load:.1}/s{}", self.cause.in_words())
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

    /// The fit at some loads of its range.
    fn curve(&self) -> Vec<(f64, f64)> {
        let Some(fit) = &self.fit else { return Vec::new() };
        let (lo, hi) = fit.range();
        let load = |i: u32| lo + (hi - lo) * f64::from(i) / f64::from(CURVE);
        (0..=CURVE).map(|i| (load(i), fit.at(load(i)))).collect()
    }
}

impl Cause {
    fn in_words(self) -> &'static str {
        match self {
            Self::Start => "",
            Self::Asked => ", as asked",
            Self::Set => ", from the capacity that was set",
            Self::Rise => ", since the capacity rose",
            Self::Fall => ", since the capacity fell",
            Self::TooHigh => ", since the start was too high",
        }
    }
}
