//! Performs a confirmation: the suspect is under a throttle while it is held (`tidegate_core::correlate`
//! decides).

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::correlate::{Confirmation, Phase, TypeName};
use tidegate_core::throttle::ThrottleId;
use tidegate_core::units::Timestamp;

use super::Correlation;
use crate::base::audit::By;
use crate::control::throttles::{Action, NewThrottle, ThrottleError};
use tidegate_settings::INTERVAL;

/// The throttle ends by itself this much later, should nobody end it.
const SPARE: Duration = Duration::from_secs(5);

/// What is asked for.
pub struct Suspicion {
    pub name: TypeName,
    /// The share of its requests that it keeps while it is held.
    pub keep: f64,
    pub figure: Arc<str>,
    /// How long each phase is.
    pub lasts: Duration,
}

/// A confirmation under way, or the last one.
pub struct Trial {
    pub suspicion: Suspicion,
    pub confirmation: Confirmation,
    pub began: Timestamp,
    pub ends: Timestamp,
    who: String,
    throttle: Option<ThrottleId>,
}

/// Why no confirmation begins.
#[derive(Debug, thiserror::Error)]
pub enum NoTrial {
    #[error("a confirmation is under way; end it first")]
    UnderWay,
    #[error("the type is throttled already: without that throttle it could not be told what holding it does")]
    Throttled,
    #[error("enforcement.shadow is on: nothing is held, so that nothing could be seen")]
    Shadow,
    #[error("there is no such figure, or the type had no request in its window")]
    NothingSeen,
    #[error(transparent)]
    Throttle(#[from] ThrottleError),
}

impl Correlation {
    /// Begins a confirmation. Waits for the audit's disk.
    ///
    /// # Errors
    /// It cannot begin; nothing has changed.
    pub fn confirm(&self, suspicion: Suspicion, who: &str) -> Result<(), NoTrial> {
        let live = self.shared.config.load();
        let found = self.analysis(&suspicion.figure).ok_or(NoTrial::NothingSeen)?;
        if found.of(&suspicion.name).is_none() {
            return Err(NoTrial::NothingSeen);
        }
        if live.settings.enforcement.shadow {
            return Err(NoTrial::Shadow);
        }
        let mut trial = self.trial.lock();
        if trial.as_ref().is_some_and(|trial| trial.confirmation.phase() != Phase::Done) {
            return Err(NoTrial::UnderWay);
        }
        let name = suspicion.name.to_string();
        if self.throttles.all().iter().any(|throttle| *throttle.name == *name) {
            return Err(NoTrial::Throttled);
        }
        let intervals = suspicion.lasts.as_secs_f64() / INTERVAL.as_secs_f64();
        let alpha = live.settings.correlate.alpha;
        let confirmation = Confirmation::new(intervals as usize, alpha, &found.values);
        let began = self.shared.clock.now();
        let ends = began + INTERVAL * u32::try_from(confirmation.left()).unwrap_or(u32::MAX);
        let mut new = Trial { suspicion, confirmation, began, ends, who: who.into(), throttle: None };
        self.follow(&mut new)?;
        *trial = Some(new);
        Ok(())
    }

    /// Ends the confirmation and forgets it; `false`: there is none.
    pub fn end_confirmation(&self, by: By<'_>) -> bool {
        let Some(trial) = self.trial.lock().take() else { return false };
        if let Some(id) = trial.throttle {
            self.throttles.remove(id, by);
        }
        true
    }

    /// What is known of the confirmation.
    pub fn with_trial<T>(&self, see: impl FnOnce(&Trial) -> T) -> Option<T> {
        self.trial.lock().as_ref().map(see)
    }

    /// An interval has ended, with this value of the figures.
    pub(super) fn confirm_interval(&self, value: impl Fn(&str) -> Option<f64>) {
        let mut locked = self.trial.lock();
        let Some(trial) = locked.as_mut() else { return };
        trial.confirmation.interval(value(&trial.suspicion.figure));
        if let Err(e) = self.follow(trial) {
            tracing::warn!(of = %trial.suspicion.name, error = %e, "the confirmation ends: it cannot be held");
            *locked = None;
        }
    }

    /// The suspect is under a throttle while it is held, and no longer.
    fn follow(&self, trial: &mut Trial) -> Result<(), ThrottleError> {
        let Suspicion { name, keep, figure, .. } = &trial.suspicion;
        let why = format!("confirmation: does {figure} fall?");
        let by = By { who: &trial.who, why: &why };
        match (trial.confirmation.phase(), trial.throttle) {
            (Phase::Held, None) => {
                let held = INTERVAL * u32::try_from(trial.confirmation.held_for()).unwrap_or(u32::MAX);
                let wanted = NewThrottle {
                    name: name.to_string(),
                    action: Action::Refuse(1.0 - keep),
                    lasts: Some(held + SPARE),
                };
                trial.throttle = Some(self.throttles.put(&wanted, by)?);
            }
            (Phase::Before | Phase::After | Phase::Done, Some(id)) => {
                self.throttles.remove(id, by);
                trial.throttle = None;
            }
            _ => {}
        }
        Ok(())
    }
}
