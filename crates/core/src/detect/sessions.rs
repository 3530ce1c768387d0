//! WAC 3.1 (f): "the number of concurrent (web)sessions exceeds a threshold value". Unknown where nobody counts sessions.

use super::connections::Level;
use super::{Common, DetectorInputs, Judgement, Resource};
use crate::units::Timestamp;

/// Sessions at once.
#[derive(Debug)]
pub struct Sessions(Level);

impl Sessions {
    /// See [`Common`].
    pub fn new(common: &Common) -> Self {
        Self(Level::new(common))
    }
}

impl Resource for Sessions {
    fn update(&mut self, seen: &DetectorInputs<'_>, now: Timestamp) {
        self.0.update(seen.sessions.map(|sessions| (sessions.open, sessions.begun)), now);
    }

    fn verdict(&self) -> Judgement {
        self.0.judge.verdict()
    }

    fn checks(&self) -> u64 {
        self.0.sampler.checks()
    }
}
