//! Breakwater: credits grow by one while the queueing delay is short, and shrink in proportion to its
//! excess.
//!
//! ```text
//! R             mean response time of a round;  R0: the least of these so far
//! d = R − R0    queueing delay                  d_t = 4 R0
//! d < d_t       C ← C + max(0.001 n, 1)         n clients
//! otherwise     C ← C max(1 − 0.02 (d − d_t) / d_t, 0.5)
//! ```
//! C does not grow while fewer than C/2 are in flight; C within 1..1000. Only served requests count.
//!
//! Source: Cho, Saeed, Fried, Park, Alizadeh and Belay, "Overload Control for µs-scale RPCs with
//! Breakwater", OSDI 2020, and the authors' code (`breakwater` in Caladan): both factors, the bound of one
//! half, and the target below. The reason for the law: a queueing delay says how much too much was admitted,
//! so the cut is as large as the excess, and a server that is just full is hardly cut at all.
//!
//! In spirit only, because a gateway sees neither the server's queue nor its clients:
//! - the delay is what the mean response time exceeds the least mean by (the server's own there). Rejected:
//!   the least single response time. It says what the shortest request takes, so where service times vary
//!   the delay is never short: 58 instead of 74 % of the goodput on the drawn origins 1 to 20, from four in
//!   flight;
//! - the credits are requests in flight, and the clients are the requests at the gate and at the origin and
//!   the visitors in transit. There each client holds some of the credits;
//! - a round takes as long as its mean response time, and at least a tick: the time after which a change
//!   shows (a round trip there);
//! - credits that nobody asks for are not handed out there; here C does not grow while half of it is unused;
//! - C starts with the number of cores there, which is unknown here: 20, as the other rivals. It never falls
//!   below that number there, and below one here;
//! - failed answers do not count: they return without having queued;
//! - speculation of demand, over-commitment and refusals by the server are left out: the gate knows who
//!   waits.
//!
//! The target: the authors recommend 45, 80 and 500 µs for services of 1, 10 and 100 µs and a round trip of
//! 10 µs. That is four to five times the response time without a queue.
//!
//! Limits: at the target most of the response time is queue, 4 of 5 R0. An origin that has become slower
//! looks like one with a queue for ever, because R0 only falls; it is cut only if it takes five times as
//! long. A round of a quiet origin has a request or two, and R0 is then what their luck says: where service
//! times vary and load begins low (`ramp-ps` of the tournament), the limit stays at the bottom. One credit a
//! round is slow while a crowd begins.

use std::time::Duration;

use super::throughput::Throughput;
use super::{Estimate, Estimator, GateLoad, Sample, State};
use crate::units::{Rate, Timestamp};

/// Most of the credits that one round takes away.
const LEAST_FACTOR: f64 = 0.5;

/// Parameters of [`Breakwater`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BreakwaterConfig {
    pub start_in_flight: u32,
    pub min_in_flight: u32,
    pub max_in_flight: u32,
    /// Credits that a round adds for each client; at least one in all.
    pub alpha: f64,
    /// Share of the credits that a round takes away for every target by which the delay exceeds its target.
    pub beta: f64,
    /// Queueing delay that is aimed at, as a multiple of the least response time.
    pub target: f64,
}

impl Default for BreakwaterConfig {
    fn default() -> Self {
        Self {
            start_in_flight: 20,
            min_in_flight: 1,
            max_in_flight: 1000,
            alpha: 0.001,
            beta: 0.02,
            target: 4.0,
        }
    }
}

/// The requests that were served since the round began.
#[derive(Clone, Copy, Default, Debug)]
struct Round {
    /// `None` before the first tick.
    began: Option<Timestamp>,
    served: f64,
    response_s: f64,
    most_in_flight: u32,
}

/// The estimator `breakwater`: the limit follows the excess of the queueing delay over its target.
#[derive(Clone, Debug)]
pub struct Breakwater {
    config: BreakwaterConfig,
    /// C.
    credits: f64,
    round: Round,
    /// R0 in seconds; `None` before the first round has ended.
    least_s: Option<f64>,
    delay_s: f64,
    throughput: Throughput,
}

impl Breakwater {
    /// An estimator that admits `start` cost units per second until it has measured the throughput.
    pub fn new(config: BreakwaterConfig, start: Option<Rate>) -> Self {
        Self {
            config,
            credits: f64::from(config.start_in_flight.max(1)),
            round: Round::default(),
            least_s: None,
            delay_s: 0.0,
            throughput: Throughput::new(start),
        }
    }

    fn step(&mut self, mean_s: f64, clients: f64) {
        let (config, credits) = (&self.config, self.credits);
        let least_s = self.least_s.map_or(mean_s, |least_s| least_s.min(mean_s));
        self.least_s = Some(least_s);
        self.delay_s = mean_s - least_s;
        let target_s = config.target * least_s;
        let wanted = if self.delay_s >= target_s {
            // Answers in no time have no target; they are not slow either, so they change nothing.
            let excess = if target_s > 0.0 { (self.delay_s - target_s) / target_s } else { 0.0 };
            credits * (1.0 - config.beta * excess).max(LEAST_FACTOR)
        } else if f64::from(self.round.most_in_flight) * 2.0 >= credits {
            credits + (config.alpha * clients).max(1.0)
        } else {
            credits
        };
        let (least, most) = (f64::from(config.min_in_flight.max(1)), f64::from(config.max_in_flight.max(1)));
        self.credits = wanted.min(most).max(least);
    }
}

impl Estimator for Breakwater {
    fn observe(&mut self, sample: &Sample) {
        self.throughput.observe(sample);
        if sample.ok {
            let round = &mut self.round;
            round.served += sample.count as f64;
            round.response_s += sample.response.as_secs_f64() * sample.count as f64;
            round.most_in_flight = round.most_in_flight.max(sample.in_flight);
        }
    }

    fn tick(&mut self, load: &GateLoad, now: Timestamp) -> Estimate {
        // A clock that was set back by an hour must not make the round last for that hour.
        let began = self.round.began.map_or(now, |began| began.min(now));
        self.round.began = Some(began);
        if self.round.served > 0.0 {
            let mean_s = self.round.response_s / self.round.served;
            if now.since(began) >= Duration::try_from_secs_f64(mean_s).unwrap_or(Duration::MAX) {
                let clients = load.queued as f64 + f64::from(load.in_flight) + f64::from(load.coming);
                self.step(mean_s, clients);
                self.round = Round { began: Some(now), ..Round::default() };
            }
        }
        self.throughput.tick(self.credits as u32, load, now)
    }

    fn set(&mut self, capacity: Rate, _now: Timestamp) {
        self.throughput.set(capacity);
    }

    fn rediscover(&mut self, _now: Timestamp) {
        let mut throughput = std::mem::take(&mut self.throughput);
        throughput.rediscover();
        *self = Self { throughput, ..Self::new(self.config, None) };
    }

    fn state(&self) -> State {
        let least_ms = self.least_s.unwrap_or(0.0) * 1e3;
        self.throughput.state(vec![
            ("limit", self.credits),
            ("least_ms", least_ms),
            ("delay_ms", self.delay_s * 1e3),
        ])
    }
}
