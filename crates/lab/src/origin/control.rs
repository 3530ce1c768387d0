//! The replicas of a running origin as one thing: figures, and changes of capacity.

use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Stats;
use super::listen::Door;
use super::meter::Meter;
use super::service::Service;
use crate::scenario::Change;

/// Most workers of a replica, as in a scenario.
const MAX_WORKERS: u32 = 1_000_000;
/// Slowest and fastest that a change may ask for: beyond, it is a slip.
const SPEEDS: RangeInclusive<f64> = 0.001..=1000.0;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChangeError {
    #[error("{name}: expected {expected}, got {got}")]
    Value { name: &'static str, expected: String, got: f64 },
    /// The service cannot; other replicas may have changed.
    #[error("{0}")]
    Service(String),
}

pub(super) struct Control {
    pub doors: Vec<Door>,
    pub services: Vec<Arc<dyn Service>>,
    pub meter: Arc<Meter>,
    /// Changes are made one after another.
    changing: Mutex<()>,
}

impl Control {
    pub fn new(doors: Vec<Door>, services: Vec<Arc<dyn Service>>) -> Self {
        Self { doors, services, meter: Meter::new(), changing: Mutex::default() }
    }

    pub fn replicas(&self) -> usize {
        self.doors.iter().filter(|door| *door.open.borrow()).count()
    }

    /// All services together; what they do not count, the doors have.
    pub fn stats(&self) -> Stats {
        let add = |sum: Stats, service: &Arc<dyn Service>| service.stats().map(|stats| sum.plus(stats));
        self.services.iter().try_fold(Stats::default(), add).unwrap_or_else(|| self.meter.stats())
    }

    /// Takes the first `replicas` into service and the others out of it.
    pub fn set_replicas(&self, replicas: u32) {
        for (i, door) in self.doors.iter().enumerate() {
            door.open.send_replace(i < replicas as usize);
        }
    }

    pub fn change(&self, change: &Change) -> Result<(), ChangeError> {
        let Change { replicas, workers, speed, errors, .. } = *change;
        let wrong = |name, expected, got| Err(ChangeError::Value { name, expected, got });
        let most = self.doors.len();
        if let Some(replicas) = replicas.filter(|replicas| *replicas as usize > most) {
            let expected = format!("0 to {most}, as many as have had a port from the start");
            return wrong("replicas", expected, f64::from(replicas));
        }
        if let Some(workers) = workers.filter(|workers| *workers > MAX_WORKERS) {
            return wrong("workers", format!("0 to {MAX_WORKERS}"), f64::from(workers));
        }
        if let Some(speed) = speed.filter(|speed| !SPEEDS.contains(speed)) {
            return wrong("speed", format!("{} to {}", SPEEDS.start(), SPEEDS.end()), speed);
        }
        if let Some(errors) = errors.filter(|errors| !(0.0..=1.0).contains(errors)) {
            return wrong("errors", "a share from 0 to 1".into(), errors);
        }
        let _one = self.changing.lock();
        if workers.is_some() || speed.is_some() || errors.is_some() {
            for service in &self.services {
                service.change(change).map_err(ChangeError::Service)?;
            }
        }
        if let Some(replicas) = replicas {
            self.set_replicas(replicas);
        }
        tracing::info!(?replicas, ?workers, ?speed, ?errors, "the origin was changed");
        Ok(())
    }
}
