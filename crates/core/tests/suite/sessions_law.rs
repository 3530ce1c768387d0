//! The learned cap in a closed loop: WAC's server (4.1: seven requests of 0.28 s on the average, read for 2 to 4 s each, a timeout of
//! 15 s), three times as many newcomers as it can serve, and an estimate of its capacity that is right, wrong or missing.

use std::collections::HashMap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
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
    told: Rate,
    is_measured: bool,
    /// Requests each has sent, by session; and who sends the next when.
    sent: HashMap<u64, usize>,
    thinking: Vec<(u64, u64)>,
    /// By session: when its request was sent, and that it is under way.
    asked: HashMap<u64, (u64, SessionRequest)>,
    /// At the server, which they share: whose, and milliseconds of it that are still to do.
    served: Vec<(u64, f64)>,
    newcomers: u64,
    whole: u64,
    longest_ms: u64,
}

impl World {
    fn new(cap: Cap, told: Rate, most_at_server: u32) -> Self {
        let timeout = Duration::from_secs(15);
        let config = SessionConfig { timeout, cap, ..SessionConfig::default() };
        let gate = GateConfig { max_in_flight: Some(most_at_server), ..GateConfig::default() };
        Self {
            sessions: Sessions::new(&config, now(0)),
            gate: Gate::new(&gate),
            rng: SmallRng::seed_from_u64(7),
            now_ms: 0,
            told,
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
                self.ask(self.newcomers, request);
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
            self.ask(session, request.expect("an admitted session is turned away"));
        }
        while let Some(leaving) = self.gate.next(at) {
            let Leaving::Forward(woken) = leaving else {
                panic!("a session's request is refused: {leaving:?}")
            };
            self.serve(woken.id);
        }
        if self.now_ms.is_multiple_of(100) {
            let gate = self.gate.totals();
            let (capacity, is_measured) = (self.told, self.is_measured);
            self.sessions.tick(&SessionInputs { capacity, is_measured, gate: &gate, waiting: 0 }, at);
        }
    }

    fn ask(&mut self, session: u64, under_way: SessionRequest) {
        self.asked.insert(session, (self.now_ms, under_way));
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
        let (asked_ms, request) = self.asked.remove(&session).expect("who is answered has asked");
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

    /// Whole sessions per minute, and the longest answer in milliseconds.
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

fn told(share: f64) -> Rate {
    Rate::per_second(CAPACITY * share).unwrap()
}

/// 1.5 newcomers a second where half a session a second can be served.
const RUSH: f64 = 1.5;

#[test]
fn the_learned_cap_serves_as_many_sessions_as_can_be_and_each_of_them_well() {
    // Where nobody knows the capacity the queue alone decides, which fills the server to the brim.
    let table = [(told(1.0), 6_000), (told(0.5), 6_000), (told(2.0), 6_000), (Rate::MAX, 10_000)];
    for (capacity, most_ms) in table {
        let mut world = World::new(Cap::Discovered, capacity, 1);
        let (_, first_ms) = world.play(5, RUSH);
        let (per_min, longest_ms) = world.play(20, RUSH);
        assert!(per_min >= 0.88 * MOST_PER_MIN, "{capacity:?}: {per_min} of {MOST_PER_MIN} a minute");
        assert!(longest_ms.max(first_ms) <= most_ms, "{capacity:?}: {first_ms} ms at first, {longest_ms} ms");
    }
}

#[test]
fn a_cap_of_ten_is_too_restrictive_as_in_the_paper() {
    let (fixed, _) = World::new(Cap::Fixed(10), told(1.0), 1).play(20, RUSH);
    let mut world = World::new(Cap::Discovered, told(1.0), 1);
    world.play(5, RUSH);
    let (learned, _) = world.play(20, RUSH);
    assert!(learned > 1.2 * fixed, "{learned} a minute learned, {fixed} with ten");
}

#[test]
fn without_a_rush_nobody_is_turned_away() {
    let mut world = World::new(Cap::Discovered, told(1.0), 1);
    world.play(10, 0.2);
    let refused = world.sessions.state().refused;
    world.play(10, 0.2);
    assert_eq!(world.sessions.state().refused, refused);
}

#[test]
fn what_waits_at_the_origin_is_seen_where_the_gate_lets_too_many_there() {
    let mut world = World::new(Cap::Discovered, told(1.0), 13);
    // A quiet time, in which it shows how fast it can be.
    world.play(5, 0.2);
    world.play(5, RUSH);
    let (per_min, longest_ms) = world.play(20, RUSH);
    assert!(per_min >= 0.85 * MOST_PER_MIN, "{per_min} of {MOST_PER_MIN} a minute");
    assert!(longest_ms <= 10_000, "{longest_ms} ms");
}

/// Nothing ever waits at this gate, so that nobody can measure what the origin takes.
#[test]
fn a_guess_is_taken_back_once_something_waits_at_the_origin() {
    for (guess, newcomers_per_s) in [(3.0, RUSH), (30.0, RUSH), (300.0, RUSH), (300.0, 0.8)] {
        let mut world = World::new(Cap::Discovered, told(guess), 200);
        world.is_measured = false;
        world.play(5, 0.2);
        world.play(5, newcomers_per_s);
        let (per_min, longest_ms) = world.play(20, newcomers_per_s);
        let case = format!("{guess} times, {newcomers_per_s}/s");
        assert!(per_min >= 0.8 * MOST_PER_MIN, "{case}: {per_min} of {MOST_PER_MIN} a minute");
        assert!(longest_ms <= 10_000, "{case}: {longest_ms} ms");
        // Measured at last, it is what the paper's number goes by.
        (world.told, world.is_measured) = (told(1.0), true);
        let (per_min, longest_ms) = world.play(10, newcomers_per_s);
        assert!(per_min >= 0.8 * MOST_PER_MIN && longest_ms <= 10_000, "{case}: {per_min}, {longest_ms} ms");
    }
}
