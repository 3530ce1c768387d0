//! Things open at once: WAC 3.1 (e), "the number of simultaneously active TCP/IP sessions exceeds a threshold
//! value", and (f), "the number of concurrent (web)sessions exceeds a threshold value".

use super::{Common, DetectorInputs, Judge, Judgement, Mean, Resource, Sampler, SessionCount};
use crate::units::Timestamp;

/// (e) Visitor connections open at once.
#[derive(Debug)]
pub struct Connections(OpenLevel);

impl Connections {
    /// A detector without data.
    pub fn new(common: &Common) -> Self {
        Self(OpenLevel::new(common))
    }
}

impl Resource for Connections {
    fn update(&mut self, inputs: &DetectorInputs<'_>, now: Timestamp) {
        let count = SessionCount { open: inputs.open_connections, begun: inputs.connections_made() };
        self.0.update(Some(count), now);
    }

    fn verdict(&self) -> Judgement {
        self.0.judge.verdict()
    }

    fn checks(&self) -> u64 {
        self.0.sampler.checks()
    }
}

/// (f) Sessions open at once; unknown where sessions are not counted.
#[derive(Debug)]
pub struct Sessions(OpenLevel);

impl Sessions {
    /// A detector without data.
    pub fn new(common: &Common) -> Self {
        Self(OpenLevel::new(common))
    }
}

impl Resource for Sessions {
    fn update(&mut self, inputs: &DetectorInputs<'_>, now: Timestamp) {
        self.0.update(inputs.sessions, now);
    }

    fn verdict(&self) -> Judgement {
        self.0.judge.verdict()
    }

    fn checks(&self) -> u64 {
        self.0.sampler.checks()
    }
}

/// The judged number of things that begin and end.
#[derive(Debug)]
struct OpenLevel {
    sampler: Sampler,
    mean: Mean,
    judge: Judge,
}

impl OpenLevel {
    fn new(common: &Common) -> Self {
        Self {
            sampler: Sampler::new(common.sampling),
            mean: Mean::new(common.period),
            judge: Judge::new(&common.judge),
        }
    }

    /// `None`: they are not counted.
    fn update(&mut self, count: Option<SessionCount>, now: Timestamp) {
        let Some(SessionCount { open, begun }) = count else {
            self.mean.forget();
            return self.judge.take(None, now);
        };
        if let Some(since) = self.sampler.check(begun, now) {
            self.mean.add(open as f64, since.span);
            self.judge.take(self.mean.get(), now);
        }
    }
}
