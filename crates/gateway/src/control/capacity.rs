//! Runs the capacity estimator on the control tick, keeps its last estimate, and lets operators set,
//! rediscover and reconfigure the capacity.
//!
//! `tidegate_core::capacity` and `tidegate_core::control` decide. A reload keeps what was learned: a new
//! ceiling or floor does not touch the estimator, and a new estimator starts from the capacity in force.

use std::time::Duration;

use tidegate_core::capacity::{Estimate, GateLoad, Learned, LearnedCost, Phase, Sample, State, Trust};
use tidegate_core::control::{Change, Control as Steering, Tunables};
use tidegate_core::gate::Totals;
use tidegate_core::units::{ClassId, Rate, Timestamp};

use crate::config::Config;
use crate::control::learned::{Pushed, Saved, SavedCapacity};
use crate::shared::Shared;
use tidegate_settings::Role;

/// The longest time for which a capacity may be set.
pub const MOST_TTL: Duration = Duration::from_secs(24 * 3600);

pub struct Capacity {
    steering: Steering,
    tunables: Tunables,
    estimate: Estimate,
    rediscoveries: u64,
    /// Since its last search began.
    has_settled: bool,
    /// What was learned last, also by an earlier process.
    learned: Option<SavedCapacity>,
    /// What was set last, while it is in force.
    pushed: Option<Pushed>,
}

/// Why the capacity cannot be changed or looked for here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotHere {
    #[error("the capacity is kept by the tokengen process: ask there")]
    TokenCheck,
    #[error(
        "the capacity is given (capacity.rate, or PUT /v1/capacity), not discovered: \
         there is nothing to look for; capacity.estimator chooses an algorithm"
    )]
    Given,
}

impl Capacity {
    pub fn new(live: &Config, now: Timestamp) -> Self {
        let mut steering = live.steering();
        let (tunables, estimate) = steering.tick(&[], &GateLoad::default(), now);
        Self {
            steering,
            tunables,
            estimate,
            rediscoveries: 0,
            has_settled: false,
            learned: None,
            pushed: None,
        }
    }

    /// Begins from what an earlier process has learned, or was told later. Before the first tick.
    pub fn resume(&mut self, live: &Config, saved: &Saved, now: Timestamp) {
        if let Role::TokenCheck { .. } = live.settings.role {
            return;
        }
        let discovers = live.settings.discovers();
        let capacity = saved.capacity.as_ref().filter(|_| discovers);
        let pushed = saved.pushed.filter(|pushed| {
            let at = Timestamp::from_millis(pushed.at_ms);
            let is_newest = capacity.is_none_or(|learned| learned.at() <= at);
            // One that holds for longer than it may comes from a clock that was set back.
            let until = pushed.until_ms.map(Timestamp::from_millis);
            let holds = until.is_none_or(|until| until > now && until.since(now) <= MOST_TTL);
            // A time to live has no meaning where the number is only a start.
            let holds = holds && !(discovers && until.is_some());
            let is_usable = holds && Trust::of(at, now) != Trust::Forgotten;
            is_newest && is_usable && pushed.configured == configured(live)
        });
        if let Some((pushed, rate)) = pushed.and_then(|pushed| Some((pushed, Rate::per_second(pushed.rate)?)))
        {
            self.steering.set_capacity(rate, now);
            self.pushed = Some(pushed);
            let age_s = now.since(Timestamp::from_millis(pushed.at_ms)).as_secs();
            tracing::info!(per_second = pushed.rate, age_s, "capacity as it was set before the restart");
        } else if let Some((saved, learned)) = capacity.and_then(|saved| Some((saved, saved.learned(live)?)))
        {
            let trust = saved.trust(live, now);
            let age_s = now.since(saved.at()).as_secs();
            tracing::info!(
                per_second = learned.capacity.get(),
                age_s,
                ?trust,
                "capacity of before the restart"
            );
            if trust != Trust::Forgotten {
                self.steering.resume(&learned, trust, now);
                self.learned = Some(saved.clone());
            }
        } else {
            return;
        }
        (self.tunables, self.estimate) = self.steering.tick(&[], &GateLoad::default(), now);
    }

    /// When the capacity that was set is forgotten, in milliseconds since 1970.
    pub fn expires_at_ms(&self) -> Option<u64> {
        self.pushed?.until_ms
    }

    /// Forgets a capacity whose time is over: what is configured is in force again.
    fn expire(&mut self, live: &Config, now: Timestamp) {
        if self.expires_at_ms().is_some_and(|until_ms| until_ms <= now.as_millis()) {
            self.pushed = None;
            self.steering.replace(live.estimator(None));
            tracing::warn!("the capacity that was set has expired: {}", live.settings.explain_capacity());
        }
    }

    /// What a later process is to begin from. Only a settled estimator has learned something new.
    pub(crate) fn learned(
        &mut self,
        live: &Config,
        now: Timestamp,
    ) -> (Option<SavedCapacity>, Option<Pushed>) {
        let Estimate { capacity, phase, confidence, .. } = self.estimate;
        if phase == Phase::Settled && confidence > 0.0 {
            let simple = Learned { capacity, knee: None, costs: Vec::new() };
            let learned = self.steering.estimator().learned().unwrap_or(simple);
            self.learned = SavedCapacity::new(&learned, live, now).or(self.learned.take());
        }
        (self.learned.clone(), self.pushed)
    }

    /// One tick: learns from `samples` and those that the gate kept since the last tick, and sets room and
    /// gate accordingly.
    pub fn tick(&mut self, shared: &Shared, samples: &mut Vec<Sample>, now: Timestamp) -> Totals {
        self.expire(&shared.config.load(), now);
        let gate = shared.gate.totals();
        shared.gate.take_samples(samples);
        shared.sessions.tick(shared, &gate, self.estimate.confidence > 0.0, now);
        let usable = shared.has_somewhere_to_go(&shared.config.load().settings.role);
        (self.tunables, self.estimate) = self.steering.steer(&shared.admission, &gate, usable, samples, now);
        shared.gate.set_limit(usable_limit(self.tunables.max_in_flight, shared));
        self.count();
        gate
    }

    fn count(&mut self) {
        match self.estimate.phase {
            Phase::Settled => self.has_settled = true,
            Phase::Searching if self.has_settled => {
                self.has_settled = false;
                self.rediscoveries += 1;
            }
            Phase::Searching | Phase::Configured | Phase::Paused => {}
        }
    }

    /// `ttl`: for how long. It has no meaning where the capacity is discovered from there on.
    pub fn set(
        &mut self,
        shared: &Shared,
        rate: Rate,
        ttl: Option<Duration>,
        now: Timestamp,
    ) -> Result<(), NotHere> {
        let live = shared.config.load();
        if let Role::TokenCheck { .. } = live.settings.role {
            return Err(NotHere::TokenCheck);
        }
        self.steering.set_capacity(rate, now);
        let until_ms = ttl.filter(|_| !live.settings.discovers()).map(|ttl| (now + ttl).as_millis());
        let (rate, configured) = (rate.get(), configured(&live));
        self.pushed = Some(Pushed { at_ms: now.as_millis(), rate, configured, until_ms });
        self.tick(shared, &mut Vec::new(), now);
        Ok(())
    }

    pub fn rediscover(&mut self, live: &Config, now: Timestamp) -> Result<(), NotHere> {
        match live.settings.role {
            Role::TokenCheck { .. } => Err(NotHere::TokenCheck),
            _ if self.estimate.phase == Phase::Configured => Err(NotHere::Given),
            _ => {
                self.steering.rediscover(now);
                (self.learned, self.pushed) = (None, None);
                Ok(())
            }
        }
    }

    /// Follows a reload. In force from the next tick.
    pub fn reconfigure(&mut self, old: &Config, new: &Config, now: Timestamp) {
        let is_same = old.settings.estimator() == new.settings.estimator();
        let (before, after) = (&old.settings.capacity, &new.settings.capacity);
        // The operator's limit bounds the search.
        let is_bounded_alike = old.bounds().max_in_flight == new.bounds().max_in_flight;
        let is_tuned_alike = after.is_tuned_like(before, new.settings.estimator()) && is_bounded_alike;
        if !is_same || (new.settings.discovers() && !is_tuned_alike) {
            // "Unlimited" was not learned from any sample.
            let known = Some(self.estimate.capacity).filter(|rate| *rate > Rate::ZERO && *rate < Rate::MAX);
            self.steering.replace(new.estimator(known));
            (self.learned, self.pushed) = (None, None);
        } else if before.rate != after.rate && !new.settings.discovers() {
            self.pushed = None;
            match after.given() {
                Some(rate) => self.steering.set_capacity(rate, now),
                None => self.steering.replace(new.estimator(None)),
            }
        }
        self.steering.reconfigure(new.bounds());
    }

    /// What is known of the cost of a class; `None`: the estimator learns no costs.
    pub fn cost(&self, class: ClassId) -> Option<LearnedCost> {
        self.steering.cost(class)
    }

    pub fn forget(&mut self, class: ClassId) {
        self.steering.forget(class);
    }

    /// Applies changed bounds to the last estimate, without waiting for a tick: an extra tick would disturb
    /// estimators that step by ticks. Only a new estimator, or one that was set, has no estimate yet and gets
    /// a tick.
    pub fn put_in_force(&mut self, shared: &Shared, now: Timestamp) {
        match self.steering.reapply(&shared.admission, now) {
            Some(tunables) => {
                self.tunables = tunables;
                shared.gate.set_limit(usable_limit(tunables.max_in_flight, shared));
            }
            None => drop(self.tick(shared, &mut Vec::new(), now)),
        }
    }

    /// The in-flight limit under `live`'s bounds: the operator's or the last estimate, whichever is less.
    pub fn limit(&self, live: &Config) -> Option<u32> {
        [live.bounds().max_in_flight, self.estimate.max_in_flight].into_iter().flatten().min()
    }

    pub fn tunables(&self) -> Tunables {
        self.tunables
    }

    pub fn estimate(&self) -> Estimate {
        self.estimate
    }

    pub fn state(&self) -> State {
        self.steering.state()
    }

    /// The changes of the capacity in force, the latest last.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &Change> {
        self.steering.history()
    }

    /// How often the estimator began to search again after it had settled, by itself or on request.
    pub fn rediscoveries(&self) -> u64 {
        self.rediscoveries
    }
}

/// `capacity.rate` of the configuration.
fn configured(live: &Config) -> Option<f64> {
    live.settings.capacity.given().map(Rate::get)
}

/// A rate as JSON has it: `null` where it is unlimited.
pub(crate) fn finite(rate: Rate) -> Option<f64> {
    (rate < Rate::MAX).then(|| rate.get())
}

/// `limit`, or the in-flight limit of all usable replicas together if that is less.
pub(crate) fn usable_limit(limit: Option<u32>, shared: &Shared) -> Option<u32> {
    [limit, shared.replicas.in_flight_limit()].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::units::Cost;
    use tidegate_settings::Settings;

    fn live(capacity: &str) -> Config {
        let text = format!("origin.replicas = \"a:1\"\norigin.max_in_flight = 50\n[capacity]\n{capacity}\n");
        Config::new(Settings::parse(&text, "test").unwrap(), &[format!("1:{}", "00".repeat(32))]).unwrap()
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    /// An estimator, and the configuration that the last reload put in force.
    struct Reloaded {
        capacity: Capacity,
        live: Config,
        ms: u64,
    }

    impl Reloaded {
        fn start(text: &str) -> Self {
            let live = live(text);
            Self { capacity: Capacity::new(&live, at(0)), live, ms: 0 }
        }

        /// The tunables after a tick with these samples.
        fn tick(&mut self, samples: &[Sample]) -> Tunables {
            self.ms += 100;
            self.capacity.expire(&self.live, at(self.ms));
            let load = GateLoad { room_waits: true, coming: 0, queued: 9, in_flight: 4, age: Duration::ZERO };
            let (tunables, estimate) = self.capacity.steering.tick(samples, &load, at(self.ms));
            (self.capacity.tunables, self.capacity.estimate) = (tunables, estimate);
            self.capacity.count();
            tunables
        }

        fn reload(&mut self, text: &str) -> Tunables {
            let new = live(text);
            self.capacity.reconfigure(&self.live, &new, at(self.ms));
            self.live = new;
            self.tick(&[])
        }

        fn samples(&self) -> u64 {
            self.capacity.state().samples
        }
    }

    /// An origin that answers in 50 ms, however many there are: as many as `origin.max_in_flight` allows.
    fn served(ms: u64) -> Sample {
        Sample {
            class: ClassId(0),
            cost: Cost::ONE,
            count: 1,
            ended: at(ms),
            response: Duration::from_millis(50),
            lingered: Duration::ZERO,
            in_flight: 50,
            ok: true,
            backlog: true,
        }
    }

    #[test]
    fn a_reload_keeps_the_estimate() {
        let mut gate = Reloaded::start("rate = 80\nestimator = \"bottleneck\"");
        for k in 0..5 {
            let samples: Vec<_> = (0..8).map(|i| served(100 * k + 12 * i)).collect();
            gate.tick(&samples);
        }
        let learned = gate.samples();
        assert!(learned > 20, "{learned}");
        let bounded =
            gate.reload("rate = 90\nestimator = \"bottleneck\"\nceiling = 20\npower_ratio.epoch = \"4s\"");
        assert_eq!(
            (gate.samples(), bounded.capacity.get()),
            (learned, 20.0),
            "new bounds and parameters of other estimators"
        );
        let changes = gate.capacity.history().count();
        let found = gate.capacity.estimate().capacity.get();
        let tuned = gate.reload("estimator = \"bottleneck\"\nbottleneck.min_in_flight = 2");
        assert_eq!(gate.samples(), 0, "another estimator");
        assert!(
            (tuned.capacity.get() / found - 1.0).abs() < 0.05,
            "from the capacity in force: {tuned:?}, {found}"
        );
        assert!(gate.capacity.history().count() > changes, "the history stays");
    }

    #[test]
    fn a_given_capacity_follows_the_configuration() {
        let mut gate = Reloaded::start("rate = 80");
        assert_eq!(gate.tick(&[]).capacity.get(), 80.0);
        assert_eq!(gate.reload("rate = 60\nfloor = 1").capacity.get(), 60.0);
        gate.capacity.steering.set_capacity(Rate::per_second(70.0).unwrap(), at(gate.ms));
        assert_eq!(gate.reload("rate = 60\nfloor = 2").capacity.get(), 70.0, "what an operator set stays");
        assert_eq!(gate.reload("estimator = \"fixed\"\nrate = 1000000").capacity, Rate::MAX);
        let cold = gate.reload("");
        assert!(cold.capacity.get() < 1_000.0, "unlimited is no starting point: {cold:?}");
    }

    #[test]
    fn a_gate_to_which_a_capacity_will_be_given_does_not_begin_unlimited() {
        let mut gate = Reloaded::start("estimator = \"fixed\"");
        let first = gate.capacity.tunables();
        assert!(
            first.capacity.get() < 1_000.0 && first.max_in_flight.is_some_and(|most| most < 50),
            "{first:?}"
        );
        let live = live("estimator = \"fixed\"");
        assert_eq!(gate.capacity.rediscover(&live, at(gate.ms)), Ok(()));
        gate.tick(&(0..9).map(|i| served(12 * i)).collect::<Vec<_>>());
        assert!(gate.samples() > 0, "{:?}", gate.capacity.state());
        gate.capacity.steering.set_capacity(Rate::per_second(70.0).unwrap(), at(gate.ms));
        let given = gate.tick(&[]);
        assert_eq!((given.capacity.get(), given.max_in_flight), (70.0, Some(50)));
        assert_eq!(gate.capacity.rediscover(&live, at(gate.ms)), Err(NotHere::Given));
    }

    fn pushed_until(ms: u64) -> Pushed {
        let until_ms = Some(at(ms).as_millis());
        Pushed { at_ms: at(0).as_millis(), rate: 70.0, configured: None, until_ms }
    }

    #[test]
    fn a_capacity_with_a_time_to_live_is_forgotten_after_it() {
        for (text, after) in [("rate = 80", Some(80.0)), ("estimator = \"fixed\"", None)] {
            let mut gate = Reloaded::start(text);
            gate.capacity.steering.set_capacity(Rate::per_second(70.0).unwrap(), at(0));
            gate.capacity.pushed = Some(pushed_until(250));
            for expected in [Some(70.0), Some(70.0), after] {
                let tunables = gate.tick(&[]);
                match expected {
                    Some(rate) => assert_eq!(tunables.capacity.get(), rate, "{text}, {} ms", gate.ms),
                    None => assert!(tunables.max_in_flight.is_some_and(|most| most < 50), "{tunables:?}"),
                }
            }
            assert_eq!(gate.capacity.learned(&live(text), at(gate.ms)).1, None, "nor after a restart");
        }
    }

    #[test]
    fn a_reload_of_the_rate_ends_a_time_to_live_and_another_does_not() {
        let mut gate = Reloaded::start("rate = 80");
        gate.capacity.steering.set_capacity(Rate::per_second(70.0).unwrap(), at(0));
        gate.capacity.pushed = Some(pushed_until(10_000));
        assert_eq!(gate.reload("rate = 80\nfloor = 2").capacity.get(), 70.0);
        assert!(gate.capacity.expires_at_ms().is_some());
        assert_eq!(gate.reload("rate = 60").capacity.get(), 60.0);
        assert!(gate.capacity.expires_at_ms().is_none());
    }

    #[test]
    fn a_reload_keeps_the_limit_in_force() {
        let mut gate = Reloaded::start("estimator = \"bottleneck\"");
        let limit = gate.tick(&[]).max_in_flight.unwrap();
        assert!(limit < 50, "{limit}");
        assert_eq!(gate.capacity.limit(&live("rate = 5")), Some(limit));
        let mut given = Reloaded::start("rate = 5");
        given.tick(&[]);
        assert_eq!(given.capacity.limit(&given.live), Some(50));
    }

    #[test]
    fn each_search_counts_as_one_rediscovery() {
        let mut gate = Reloaded::start("rate = 5");
        use Phase::{Paused, Searching, Settled};
        for (phase, count) in [
            (Searching, 0),
            (Settled, 0),
            (Paused, 0),
            (Searching, 1),
            (Paused, 1),
            (Searching, 1),
            (Settled, 1),
            (Searching, 2),
        ] {
            gate.capacity.estimate.phase = phase;
            gate.capacity.count();
            assert_eq!(gate.capacity.rediscoveries(), count);
        }
    }
}
