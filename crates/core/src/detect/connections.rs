//! WAC 3.1 (e): "the number of simultaneously active TCP/IP sessions exceeds a threshold value".

use super::{Common, DetectorInputs, Judge, Judgement, Mean, Resource, Sampler};
use crate::units::Timestamp;

/// Visitor connections open at once.
#[derive(Debug)]
pub struct Connections(Level);

impl Connections {
    /// See [`Common`].
    pub fn new(common: &Common) -> Self {
        Self(Level::new(common))
    }
}

impl Resource for Connections {
    fn update(&mut self, seen: &DetectorInputs<'_>, now: Timestamp) {
        self.0.update(Some((seen.open_connections, seen.connections_made())), now);
    }

    fn verdict(&self) -> Judgement {
        self.0.judge.verdict()
    }

    fn checks(&self) -> u64 {
        self.0.sampler.checks()
    }
}

/// How many there are of something that begins and ends, judged: what (e) and (f) share.
#[derive(Debug)]
pub(super) struct Level {
    pub sampler: Sampler,
    mean: Mean,
    pub judge: Judge,
}

impl Level {
    pub fn new(common: &Common) -> Self {
        Self {
            sampler: Sampler::new(common.sampling),
            mean: Mean::new(common.period),
            judge: Judge::new(&common.judge),
        }
    }

    /// How many there are, and how many have begun; `None`: nobody counts.
    pub fn update(&mut self, count: Option<(u64, u64)>, now: Timestamp) {
        let Some((open, begun)) = count else {
            self.mean.forget();
            return self.judge.take(None, now);
        };
        if let Some(since) = self.sampler.check(begun, now) {
            self.mean.add(open as f64, since.span);
            self.judge.take(self.mean.get(), now);
        }
    }
}
