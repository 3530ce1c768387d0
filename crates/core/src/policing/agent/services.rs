//! How many connections per second TCP services can serve (`[[tcp]]`): nothing is known of what is asked
//! over a connection, so nothing but connections can be counted.
//!
//! While all slots of a service are taken, connections end as fast as it serves them: that is its capacity.
//! While a slot is free less is asked for, and the capacity that was found stays. It rises slowly then, so
//! that a service which has become faster is found out: as soon as it is given more than it can serve, its
//! slots are taken again. Until then the last priority lacks what it is given too much.
//!
//! ```text
//! slots taken at both ends of an interval:   C = (1 - alpha) C + alpha * (connections that end, per second)
//! a slot free at either end:                 C = 1.01 C
//! ```

use std::collections::BTreeMap;

use crate::decaying::Ewma;

/// By how much a capacity rises in an interval in which a slot is free: slower than the rates of rules
/// follow it (5 %), so that a rate changes once in five intervals at most while the capacity is probed.
const PROBE: f64 = 1.01;

/// A TCP service. Counters are cumulative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceState<'a> {
    pub name: &'a str,
    /// All of its slots are taken.
    pub is_full: bool,
    pub accepted: u64,
    /// Connections that have ended.
    pub ended: u64,
}

/// What is known of all services.
#[derive(Clone, Default, Debug)]
pub struct Services(BTreeMap<String, Service>);

#[derive(Clone, Debug)]
struct Service {
    was_full: bool,
    accepted: u64,
    ended: u64,
    /// Connections per second.
    capacity: Ewma,
    taken: Ewma,
}

impl Services {
    /// One interval: `per_s` is one over its seconds, `kept` what averages keep. Services that are no longer
    /// there are forgotten.
    pub fn update(&mut self, services: &[ServiceState<'_>], per_s: f64, kept: f64) {
        let mut known = std::mem::take(&mut self.0);
        for state in services {
            let (name, mut service) = known
                .remove_entry(state.name)
                .unwrap_or_else(|| (state.name.to_owned(), Service::new(state)));
            service.update(state, per_s, kept);
            self.0.insert(name, service);
        }
    }

    /// Connections per second that all of them can serve together. One that never had all of its slots taken
    /// counts with what it takes. `None`: none ever had.
    pub fn capacity(&self) -> Option<f64> {
        let is_known = self.0.values().any(|service| service.capacity.get().is_some());
        is_known.then(|| self.need())
    }

    /// As [`Services::capacity`], with what they take where no capacity is known.
    pub fn need(&self) -> f64 {
        let of = |service: &Service| service.capacity.get().or(service.taken.get()).unwrap_or(0.0);
        self.0.values().map(of).sum()
    }
}

impl Service {
    fn new(state: &ServiceState<'_>) -> Self {
        let (capacity, taken) = (Ewma::default(), Ewma::default());
        Self { was_full: false, accepted: state.accepted, ended: state.ended, capacity, taken }
    }

    fn update(&mut self, state: &ServiceState<'_>, per_s: f64, kept: f64) {
        let accepted = state.accepted.saturating_sub(self.accepted) as f64 * per_s;
        let ended = state.ended.saturating_sub(self.ended) as f64 * per_s;
        self.taken.add(accepted, kept);
        if self.was_full && state.is_full {
            self.capacity.add(ended, kept);
        } else if let Some(capacity) = self.capacity.get() {
            self.capacity = Ewma::default();
            self.capacity.add(PROBE * capacity, 0.0);
        }
        (self.was_full, self.accepted, self.ended) = (state.is_full, state.accepted, state.ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One second after another: whether the service `"db"` is full, and how many connections end in it.
    fn after(seconds: &[(bool, u64)]) -> Services {
        let mut services = Services::default();
        let mut ended = 7;
        services.update(&[ServiceState { name: "db", is_full: false, accepted: 9, ended }], 1.0, 0.5);
        for (i, (is_full, more)) in seconds.iter().enumerate() {
            ended += more;
            let accepted = 9 + 20 * (i as u64 + 1);
            services.update(&[ServiceState { name: "db", is_full: *is_full, accepted, ended }], 1.0, 0.5);
        }
        services
    }

    #[test]
    fn a_service_whose_slots_are_taken_shows_what_it_can_serve() {
        assert_eq!(after(&[(false, 50), (true, 80)]).capacity(), None, "not taken for a whole interval");
        assert_eq!(after(&[(true, 80), (true, 100)]).capacity(), Some(100.0));
        assert_eq!(after(&[(true, 80), (true, 100), (true, 60)]).capacity(), Some(80.0));
    }

    #[test]
    fn a_capacity_stays_and_is_probed_while_a_slot_is_free() {
        let probed = after(&[(true, 100), (true, 100), (false, 10), (true, 10)]);
        assert!((probed.capacity().unwrap_or_default() - 102.01).abs() < 1e-9, "{probed:?}");
    }

    #[test]
    fn services_without_a_known_capacity_count_with_what_they_take() {
        let mut services = after(&[(true, 100), (true, 100)]);
        let full = ServiceState { name: "db", is_full: true, accepted: 9 + 40, ended: 207 + 100 };
        let mut idle = ServiceState { name: "cache", is_full: false, accepted: 0, ended: 0 };
        services.update(&[full, idle], 1.0, 0.0);
        idle.accepted = 30;
        services.update(&[ServiceState { ended: full.ended + 100, ..full }, idle], 1.0, 0.0);
        assert_eq!((services.capacity(), services.need()), (Some(130.0), 130.0));
        services.update(&[idle], 1.0, 0.5);
        assert_eq!(services.capacity(), None, "the service with a known capacity is gone");
    }
}
