//! One process of the gate: the core's admission, gate and control side, put together as the gateway puts
//! them together, on a clock of its own. A gate is one process; tokengen and tokencheck are two.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::admission::{Admission, ShadowRoom};
use tidegate_core::capacity::{Estimate, Sample};
use tidegate_core::control::Control;
use tidegate_core::gate::{Gate, ShedReason, Totals, Woken};
use tidegate_core::measure::Shard;
use tidegate_core::policies::PolicySet;
use tidegate_core::room::{Checker, Room};
use tidegate_core::session::{SessionInputs, SessionPace, Sessions};
use tidegate_core::ticket::KeyRing;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};
use tidegate_gateway::base::clock;
use tidegate_gateway::config::{Config, ConfigError};
use tidegate_gateway::control::driver::SAVE;
use tidegate_settings::{Role, Settings};

use super::rules::{Known, Rules};

/// When the simulation begins on every clock that does not drift, in microseconds since 1970 (some day in
/// 2027): no outcome depends on it.
const EPOCH_US: u64 = 1_800_000_000_000_000;

pub(crate) struct GateProcess {
    pub(crate) config: Config,
    pub(crate) admission: Admission,
    pub(crate) shadow_room: ShadowRoom,
    pub(crate) sessions: Option<Arc<Sessions>>,
    pub(crate) gate: Gate,
    pub(crate) shard: Shard,
    rules: Option<Rules>,
    steering: Control,
    /// The estimate of the origin's capacity, within the operator's bounds.
    pub(crate) believed: Rate,
    /// The estimate in force: the estimator's own, except at tokencheck, which follows tokengen's updates,
    /// and while reports are missing.
    pub(crate) estimate: Estimate,
    samples: Vec<Sample>,
    pub(crate) clock: DriftingClock,
    /// Since when visitors wait, as of the last tick.
    pub(crate) waiting_since: Option<Timestamp>,
    saved_at: Timestamp,
    /// The state saved last, which is left after a crash.
    saved: Option<Vec<u8>>,
}

/// A host's clock: follows a wall clock that may be wrong, as the gateway's does.
pub(crate) struct DriftingClock {
    base_us: Cell<u64>,
    disciplined_us: Cell<u64>,
    /// By how much the wall clock is ahead.
    ahead_us: i64,
}

impl DriftingClock {
    fn new(now_us: u64, ahead_us: i64) -> Self {
        Self {
            base_us: Cell::new(EPOCH_US.saturating_add_signed(ahead_us)),
            disciplined_us: Cell::new(now_us),
            ahead_us,
        }
    }

    pub(crate) fn at(&self, now_us: u64) -> Timestamp {
        Timestamp::from_micros(self.base_us.get() + now_us)
    }

    /// Returns whether the clock has stepped ahead.
    fn discipline(&self, now_us: u64) -> bool {
        let since = now_us - self.disciplined_us.replace(now_us);
        let wall = EPOCH_US.saturating_add_signed(self.ahead_us);
        let steered = clock::steer(self.base_us.get(), wall, since);
        clock::is_step(self.base_us.replace(steered), steered)
    }

    /// The wall clock is wrong by this from now on; it is followed as the gateway follows one.
    pub(crate) fn drift(&mut self, seconds: f64) {
        self.ahead_us = (seconds * 1e6) as i64;
    }
}

impl GateProcess {
    /// A process that starts at `now_us`, with what an earlier one saved.
    pub(crate) fn start(
        settings: Settings,
        key: &[u8; 32],
        now_us: u64,
        ahead_us: i64,
        saved: Option<Vec<u8>>,
    ) -> Result<Self, ConfigError> {
        let config = Config::new(settings, &[KeyRing::entry(1, key)])?;
        let clock = DriftingClock::new(now_us, ahead_us);
        let now = clock.at(now_us);
        let counts =
            config.settings.counts_sessions() && !matches!(config.settings.role, Role::TokenGen { .. });
        let sessions = counts.then(|| Arc::new(Sessions::new(&config.session_config(), now)));
        let pace = sessions.as_ref().and_then(|sessions| sessions.pace());
        let admission = admission(&config, saved.as_deref(), pace, now);
        let shard = Shard::new(config.classes.len());
        let mut steering = config.steering();
        // The gateway's driver does the same before the first visitor.
        let (first, estimate) = steering.tick(&[], &Default::default(), now);
        let mut gate = Gate::new(config.gate());
        gate.set_limit(first.max_in_flight);
        let (believed, samples) = (first.capacity, Vec::new());
        Ok(Self {
            admission,
            shadow_room: ShadowRoom::default(),
            sessions,
            gate,
            rules: Rules::new(&config, &shard, now),
            shard,
            steering,
            believed,
            estimate,
            samples,
            clock,
            waiting_since: None,
            saved_at: now,
            saved,
            config,
        })
    }

    pub(crate) fn now(&self, now_us: u64) -> Timestamp {
        self.clock.at(now_us)
    }

    pub(crate) fn policies_in_force(&self) -> Option<&PolicySet> {
        self.rules.as_ref()?.in_force().map(|policies| &policies.set)
    }

    pub(crate) fn forwards(&self) -> bool {
        !matches!(self.config.settings.role, Role::TokenGen { .. })
    }

    pub(crate) fn tick(
        &mut self,
        now_us: u64,
        is_origin_usable: bool,
        most_in_flight: Option<u32>,
    ) -> Vec<(Woken, ShedReason)> {
        let has_stepped = self.clock.discipline(now_us);
        let now = self.now(now_us);
        if has_stepped && let Some(sessions) = &self.sessions {
            sessions.clock_stepped(now);
        }
        let late = std::iter::from_fn(|| self.gate.tick(now)).collect();
        let gate = self.gate.totals();
        self.tick_sessions(&gate, now);
        self.samples.clear();
        self.gate.take_samples(&mut self.samples);
        let (tunables, estimate) =
            self.steering.steer(&self.admission, &gate, is_origin_usable, &self.samples, now);
        self.gate.set_limit([tunables.max_in_flight, most_in_flight].into_iter().flatten().min());
        self.estimate = estimate;
        self.believed = tunables.capacity;
        if let Some(rules) = &mut self.rules {
            let known = Known {
                shard: &self.shard,
                sessions: self.sessions.as_ref().map(|sessions| sessions.count()),
                room: self.admission.state(now),
                gate: &gate,
                tunables,
                estimate,
            };
            rules.tick(&self.config, known, now);
        }
        let is_busy = self.admission.busy(now);
        self.waiting_since = is_busy.then(|| self.waiting_since.unwrap_or(now));
        if now.since(self.saved_at) >= SAVE {
            self.saved = self.admission.room().map(|room| room.save(now));
            self.saved_at = now;
        }
        late
    }

    fn tick_sessions(&self, gate: &Totals, now: Timestamp) {
        let Some(sessions) = &self.sessions else { return };
        let waiting = u64::from(self.admission.is_waited(now));
        let (capacity, is_measured) = (self.admission.capacity(), self.estimate.confidence > 0.0);
        sessions.tick(&SessionInputs { capacity, is_measured, gate, waiting }, now);
        self.admission.pace_sessions(sessions.pace());
        self.admission.expect_sessions(sessions.expected());
    }

    /// Sessions that would still be open when every timeout has passed.
    pub(crate) fn open_after_all(&self, sessions: &Sessions, now_us: u64) -> u64 {
        let later = self.now(now_us) + self.config.settings.session.timeout + Duration::from_secs(10);
        self.tick_sessions(&Totals::default(), later);
        sessions.count().open
    }

    /// The process is killed and started again; only its saved state is left. Returns by how much its clock
    /// goes ahead with that: a new process believes the wall clock.
    pub(crate) fn restart(&mut self, key: &[u8; 32], now_us: u64) -> Result<Duration, ConfigError> {
        let (ahead, before) = (self.clock.ahead_us, self.now(now_us));
        *self = Self::start(self.config.settings.clone(), key, now_us, ahead, self.saved.take())?;
        Ok(self.now(now_us).since(before))
    }

    /// What a request of the class is charged now.
    pub(crate) fn cost(&self, class: ClassId) -> Cost {
        self.admission.costs().charged(class)
    }

    /// What a request of the dearest class is charged now.
    pub(crate) fn dearest(&self) -> Cost {
        let classes = (0..=u8::MAX).map(ClassId).take(self.config.classes.len());
        classes.map(|class| self.cost(class)).max().unwrap_or(Cost::ONE)
    }

    /// The capacity that positions and waits are computed with.
    pub(crate) fn capacity(&self) -> Rate {
        self.admission.capacity()
    }

    /// How early this process lets tickets in.
    pub(crate) fn tolerance(&self) -> Duration {
        self.config.room_config().tolerance
    }

    pub(crate) fn priority(&self, class: ClassId) -> u8 {
        self.config.gate().class(class).priority
    }
}

/// As the gateway makes it: session slots of this pace are counted from the first visitor on.
fn admission(config: &Config, saved: Option<&[u8]>, pace: Option<SessionPace>, now: Timestamp) -> Admission {
    let (of_room, capacity) = (config.room_config(), config.initial_capacity());
    if let Role::TokenCheck { .. } = config.settings.role {
        let checker = Checker::new(&of_room, capacity, now);
        checker.pace_sessions(pace);
        return Admission::Checker { checker, capacity: Mutex::new(capacity) };
    }
    let room = Room::new(of_room, capacity, now);
    room.pace_sessions(pace);
    if let Some(saved) = saved {
        room.restore(saved, now).expect("what a room saves, a room restores");
    }
    Admission::Room(Box::new(room))
}

/// The settings of the processes: one for a gate, two for tokengen and tokencheck. `replicas` are made up.
pub(crate) fn settings_of(settings: &Settings, split: bool, replicas: usize) -> Vec<Settings> {
    let mut base = settings.clone();
    base.origin.replicas = (0..replicas).map(|i| format!("replica-{i}.invalid:80")).collect();
    if !split {
        base.role = Role::Gate;
        return vec![base];
    }
    let mut generator = base.clone();
    generator.origin.replicas.clear();
    generator.role = Role::TokenGen { check_url: "http://check.invalid".into(), link_token: String::new() };
    base.role = Role::TokenCheck {
        gen_url: "http://gen.invalid".into(),
        feedback_url: "http://gen.invalid".into(),
        link_token: String::new(),
        peers: Vec::new(),
        number: 0,
    };
    vec![generator, base]
}
