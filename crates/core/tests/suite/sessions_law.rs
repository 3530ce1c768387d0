//! The session cap controller in a closed loop: WAC's server (4.1: seven requests of 0.28 s on average, read
//! for 2 to 4 s each, a timeout of 15 s), three times as many new sessions as it can serve, and an estimate
//! of its capacity that is right, wrong or missing.

use std::collections::HashMap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tidegate_core::capacity::Trust;
use tidegate_core::gate::*;
use tidegate_core::policies::TierId;
use tidegate_core::queue::Lane;
use tidegate_core::session::*;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const STEP_MS: u64 = 10;
const SERVICE_MS: [u64; 7] = [250, 390, 610, 50, 30, 390, 250];
/// Sessions per minute that the server can serve: 60 s over 1.97 s.
const MOST_PER_MIN: f64 = 60_000.0 / 1_970.0;
/// Its capacity, in requests per second.
const CAPACITY: f64 = 7_000.0 / 1_970.0;

struct World {
    sessions: Sessions,
    gate: Gate,
    rng: SmallRng,
    now_ms: u64,
    /// The estimate of the server's capacity.
    capacity: Rate,
    is_measured: bool,
    /// Requests answered, by session.
    sent: HashMap<u64, usize>,
    /// When a session sends its next request, and which.
    thinking: Vec<(u64, u64)>,
    /// By session: when its request in progress was sent.
    asked: HashMap<u64, (u64, SessionRequest)>,
    /// Sessions whose requests share the server, and the milliseconds left of each.
    served: Vec<(u64, f64)>,
    newcomers: u64,
    whole: u64,
    longest_ms: u64,
}

impl World {
    fn new(cap: Cap, capacity: Rate, most_at_server: u32) -> Self {
        let timeout = Duration::from_secs(15);
        let config = SessionConfig { timeout, cap, ..SessionConfig::default() };
        let gate = GateConfig { max_in_flight: Some(most_at_server), ..GateConfig::default() };
        Self {
            sessions: Sessions::new(&config, now(0)),
            gate: Gate::new(&gate),
            rng: SmallRng::seed_from_u64(7),
            now_ms: 0,
            capacity,
            is_measured: true,
            sent: HashMap::new(),
            thinking: Vec::new(),
            asked: HashMap::new(),
            served: Vec::new(),
            newcomers: 0,
            whole: 0,
            longest_ms: 0,
        }
    }

    fn step(&mut self, newcomers_per_s: f64) {
        self.now_ms += STEP_MS;
        let at = now(self.now_ms);
        if self.rng.random_bool(newcomers_per_s * STEP_MS as f64 / 1_000.0) {
            self.newcomers += 1;
            if let Ok(request) = self.sessions.admit(key(self.newcomers), TierId(0), Cost::ONE, at) {
                self.send(self.newcomers, request);
            }
        }
        let each = STEP_MS as f64 / self.served.len().max(1) as f64;
        self.served.iter_mut().for_each(|(_, left)| *left -= each);
        for (session, _) in self.served.extract_if(.., |(_, left)| *left <= 0.0).collect::<Vec<_>>() {
            self.gate.finish(ClassId(0), Cost::ONE, at);
            self.answered(session);
        }
        let due: Vec<u64> =
            self.thinking.iter().filter(|(at, _)| *at <= self.now_ms).map(|(_, s)| *s).collect();
        self.thinking.retain(|(at, _)| *at > self.now_ms);
        for session in due {
            let (_, request) = self.sessions.touch(key(session), Cost::ONE, at);
            self.send(session, request.expect("an admitted session was refused"));
        }
        while let Some(leaving) = self.gate.next(at) {
            let Leaving::Forward(woken) = leaving else {
                panic!("a session's request is refused: {leaving:?}")
            };
            self.serve(woken.id);
        }
        if self.now_ms.is_multiple_of(100) {
            let gate = self.gate.totals();
            let (capacity, is_measured) = (self.capacity, self.is_measured);
            self.sessions.tick(&SessionInputs { capacity, is_measured, gate: &gate, waiting: 0 }, at);
        }
    }

    fn send(&mut self, session: u64, request: SessionRequest) {
        self.asked.insert(session, (self.now_ms, request));
        let request = Request { id: session, class: ClassId(0), cost: Cost::ONE };
        match self.gate.arrive_as(request, Lane::Admitted, None, now(self.now_ms)) {
            QueueDecision::Forward => self.serve(session),
            QueueDecision::Queued(_) => {}
            QueueDecision::Shed(reason) => panic!("a session's request is refused: {reason:?}"),
        }
    }

    fn serve(&mut self, session: u64) {
        let step = *self.sent.entry(session).or_default();
        self.served.push((session, SERVICE_MS[step] as f64));
    }

    fn answered(&mut self, session: u64) {
        let (asked_ms, request) = self.asked.remove(&session).expect("a request in progress");
        self.sessions.finish(request, now(self.now_ms));
        self.longest_ms = self.longest_ms.max(self.now_ms - asked_ms);
        let sent = self.sent.entry(session).or_default();
        *sent += 1;
        if *sent == SERVICE_MS.len() {
            self.whole += 1;
            self.sent.remove(&session);
            return;
        }
        self.thinking.push((self.now_ms + self.rng.random_range(2_000..4_000), session));
    }

    /// Whole sessions per minute, and the longest response time in milliseconds.
    fn play(&mut self, minutes: u64, newcomers_per_s: f64) -> (f64, u64) {
        let before = self.whole;
        self.longest_ms = 0;
        for _ in 0..minutes * 60_000 / STEP_MS {
            self.step(newcomers_per_s);
        }
        ((self.whole - before) as f64 / minutes as f64, self.longest_ms)
    }
}

fn now(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + ms)
}

fn key(session: u64) -> SessionKey {
    SessionKey(u128::from(session).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn capacity(share: f64) -> Rate {
    Rate::per_second(CAPACITY * share).unwrap()
}

/// New sessions per second, where half a session per second can be served.
const RUSH: f64 = 1.5;

#[test]
fn the_learned_cap_uses_the_server_and_keeps_responses_fast() {
    // Without an estimate the queue alone bounds the cap, which fills the server to the brim.
    // An estimate that is twice too high lets too many in at first.
    let table = [(capacity(1.0), 6_000), (capacity(0.5), 6_000), (capacity(2.0), 7_000), (Rate::MAX, 10_000)];
    for (estimate, most_ms) in table {
        let mut world = World::new(Cap::Discovered, estimate, 1);
        let (_, first_ms) = world.play(5, RUSH);
        let (per_min, longest_ms) = world.play(20, RUSH);
        assert!(per_min >= 0.95 * MOST_PER_MIN, "{estimate:?}: {per_min} of {MOST_PER_MIN} a minute");
        assert!(longest_ms.max(first_ms) <= most_ms, "{estimate:?}: {first_ms} ms at first, {longest_ms} ms");
    }
}

#[test]
fn a_cap_of_ten_is_too_restrictive_as_in_the_paper() {
    let (fixed, _) = World::new(Cap::Fixed(10), capacity(1.0), 1).play(20, RUSH);
    let mut world = World::new(Cap::Discovered, capacity(1.0), 1);
    world.play(5, RUSH);
    let (learned, _) = world.play(20, RUSH);
    assert!(learned > 1.2 * fixed, "{learned} a minute learned, {fixed} with ten");
}

#[test]
fn a_light_load_is_never_refused() {
    let mut world = World::new(Cap::Discovered, capacity(1.0), 1);
    world.play(10, 0.2);
    let refused = world.sessions.state().refused;
    world.play(10, 0.2);
    assert_eq!(world.sessions.state().refused, refused);
}

#[test]
fn a_too_high_in_flight_limit_does_not_raise_the_cap() {
    let mut world = World::new(Cap::Discovered, capacity(1.0), 13);
    // A light load first, in which the lowest response time is learned.
    world.play(5, 0.2);
    world.play(5, RUSH);
    let (per_min, longest_ms) = world.play(20, RUSH);
    assert!(per_min >= 0.85 * MOST_PER_MIN, "{per_min} of {MOST_PER_MIN} a minute");
    assert!(longest_ms <= 10_000, "{longest_ms} ms");
}

/// No request ever waits at this gate, so the capacity cannot be measured.
#[test]
fn an_initial_estimate_is_refuted_once_requests_wait_at_the_origin() {
    for (estimate, newcomers_per_s) in [(3.0, RUSH), (30.0, RUSH), (300.0, RUSH), (300.0, 0.8)] {
        let mut world = World::new(Cap::Discovered, capacity(estimate), 200);
        world.is_measured = false;
        world.play(5, 0.2);
        world.play(5, newcomers_per_s);
        let (per_min, longest_ms) = world.play(20, newcomers_per_s);
        let case = format!("{estimate} times, {newcomers_per_s}/s");
        assert!(per_min >= 0.8 * MOST_PER_MIN, "{case}: {per_min} of {MOST_PER_MIN} a minute");
        assert!(longest_ms <= 10_000, "{case}: {longest_ms} ms");
        // Measured at last.
        (world.capacity, world.is_measured) = (capacity(1.0), true);
        let (per_min, longest_ms) = world.play(10, newcomers_per_s);
        assert!(per_min >= 0.8 * MOST_PER_MIN && longest_ms <= 10_000, "{case}: {per_min}, {longest_ms} ms");
    }
}

#[test]
fn the_number_of_sessions_survives_a_restart() {
    let mut before = World::new(Cap::Discovered, Rate::per_second(CAPACITY).unwrap(), 1);
    (0..60_000).for_each(|_| before.step(1.5));
    let learned = before.sessions.learned().expect("the load of a session");
    let load = |trust: Trust| {
        let mut world = World::new(Cap::Discovered, Rate::per_second(CAPACITY).unwrap(), 1);
        world.sessions.resume(&learned, trust);
        // Nobody is here yet: it comes from what was learned alone.
        (0..10).for_each(|_| world.step(0.0));
        world.sessions.learned().map(|learned| learned.work.0 / learned.work.1)
    };
    let per_session = learned.work.0 / learned.work.1;
    let is_close = |load: Option<f64>| load.is_some_and(|load| (load / per_session - 1.0).abs() < 0.01);
    assert!(is_close(load(Trust::Trusted)) && is_close(load(Trust::Checked)));
    assert_eq!(load(Trust::Forgotten), None);
    let weight = |trust| {
        let sessions =
            Sessions::new(&SessionConfig { cap: Cap::Discovered, ..SessionConfig::default() }, now(0));
        sessions.resume(&LearnedSessions { correction: 0.5, ..learned }, trust);
        (sessions.learned().expect("known").work.0, sessions.state().correction)
    };
    let ((trusted, kept), (checked, anew)) = (weight(Trust::Trusted), weight(Trust::Checked));
    assert!(checked < trusted / 2.0, "the first sessions outweigh what is checked: {checked}, {trusted}");
    assert_eq!((kept, anew), (0.5, 1.0));
}
