//! A world in steps of one second: clients who try again, buckets, queues by priority, a server.
//!
//! Numbers of connections are real numbers, and nothing is random but where a test asks for it.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use rand::Rng as _;
use rand::rngs::StdRng;
use tidegate_core::detect::Level;
use tidegate_core::policing::agent::{Agent, AgentConfig, Change, Inputs, RuleState, ServiceState};
use tidegate_core::policing::{Filter, SynRule};
use tidegate_core::units::Timestamp;

/// SYNs of a client: the first and six more, after 1, 2, 4, ... seconds (Linux).
const TRIES: usize = 7;
/// Connections that wait to be accepted, of one rule.
const BACKLOG: f64 = 500.0;

pub const CONFIG: AgentConfig =
    AgentConfig { every: Duration::from_secs(1), intervals: 5, min_share: 0.05, max_cpu: 0.9 };

/// A rule, the clients it is about, and what it has done.
pub struct Aggregate {
    pub rule: SynRule,
    /// Clients who begin per second.
    pub fresh: f64,
    /// SYNs of the coming seconds, by the number of the try.
    retries: VecDeque<[f64; TRIES]>,
    tokens: f64,
    seen: f64,
    passed: f64,
    queue: f64,
    /// Connections accepted in the last second.
    pub accepted: f64,
}

impl Aggregate {
    pub fn new(name: &str, priority: u8, fresh: f64) -> Self {
        let rule = SynRule { priority, ..SynRule::new(name, Filter::default(), f64::INFINITY, 1_000_000) };
        Self {
            rule,
            fresh,
            retries: VecDeque::new(),
            tokens: 0.0,
            seen: 0.0,
            passed: 0.0,
            queue: 0.0,
            accepted: 0.0,
        }
    }

    pub fn preferred(mut self) -> Self {
        self.rule.is_preferred = true;
        self
    }

    /// With a rate configured, and the burst to it.
    pub fn limited(mut self, rate: f64, burst: u32) -> Self {
        (self.rule.rate, self.rule.max_rate, self.rule.burst) = (rate, rate, burst);
        self
    }

    pub fn at_least(mut self, min_rate: f64) -> Self {
        self.rule.min_rate = min_rate;
        self
    }

    /// Clients send SYNs; those that are dropped will come again. `backlog`: connections that may wait.
    /// `noise`: by how many standard deviations of a Poisson process more come than on average.
    fn second(&mut self, backlog: f64, noise: f64) {
        let mut syns = self.retries.pop_front().unwrap_or_default();
        syns[0] += (self.fresh + noise * self.fresh.sqrt()).max(0.0);
        let seen: f64 = syns.iter().sum();
        let available = self.tokens + self.rule.rate;
        let passed = seen.min(available);
        self.tokens = (available - passed).min(f64::from(self.rule.burst));
        self.seen += seen;
        self.passed += passed;
        // The queue is full: the stack drops them as policing does.
        let queued = passed.min(backlog - self.queue);
        self.queue += queued;
        let dropped = if seen > 0.0 { 1.0 - queued / seen } else { 0.0 };
        for (number, syns) in syns.iter().enumerate().take(TRIES - 1) {
            let after = 1 << number;
            while self.retries.len() < after {
                self.retries.push_back([0.0; TRIES]);
            }
            self.retries[after - 1][number + 1] += syns * dropped;
        }
    }
}

/// Clients, policing, a server and the agent.
pub struct World {
    pub aggregates: Vec<Aggregate>,
    /// Connections per second that no rule is about.
    pub beside: f64,
    /// Connections per second that the server has time for.
    pub serves: f64,
    /// Whether connections wait until the server has time for them. If not, the gate accepts all of them.
    pub is_queued: bool,
    /// Requests per connection: one at once, the others during its life.
    pub mix: f64,
    /// Mean time in which a connection makes its requests.
    pub life_s: f64,
    /// Load of the CPU by others.
    pub base_cpu: f64,
    pub has_cpu: bool,
    /// Whether the capacity is known.
    pub is_known: bool,
    /// The server is a TCP service: nothing is known but which connections have ended. For `is_queued`.
    pub is_tcp: bool,
    /// Load above which a detector is orange, and red.
    pub levels: Option<(f64, f64)>,
    /// Makes arrivals random.
    pub noise: Option<StdRng>,
    pub agent: Option<Agent>,
    pub load: f64,
    requests_to_come: f64,
    totals: (f64, f64, f64),
    now_s: u64,
}

impl World {
    pub fn new(aggregates: Vec<Aggregate>, serves: f64) -> Self {
        Self {
            aggregates,
            beside: 0.0,
            serves,
            is_queued: false,
            mix: 4.0,
            life_s: 1.0,
            base_cpu: 0.0,
            has_cpu: false,
            is_known: false,
            is_tcp: false,
            levels: None,
            noise: None,
            agent: Some(Agent::new(CONFIG)),
            load: 0.0,
            requests_to_come: 0.0,
            totals: (0.0, 0.0, 0.0),
            now_s: 1_000,
        }
    }

    pub fn aggregate(&mut self, name: &str) -> &mut Aggregate {
        self.aggregates.iter_mut().find(|aggregate| aggregate.rule.name == name).expect("one of this name")
    }

    pub fn accepted(&self) -> f64 {
        self.aggregates.iter().map(|aggregate| aggregate.accepted).sum()
    }

    /// One second, and the agent's decision at its end.
    pub fn second(&mut self) -> Vec<Change> {
        let backlog = if self.is_queued { BACKLOG } else { f64::INFINITY };
        for aggregate in &mut self.aggregates {
            // The sum of twelve uniform numbers has the variance 1.
            let mut normal = |rng: &mut StdRng| (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
            aggregate.second(backlog, self.noise.as_mut().map_or(0.0, &mut normal));
        }
        self.accept();
        let accepted = self.accepted() + self.beside;
        let ended = 1.0 - (-1.0 / self.life_s).exp();
        self.requests_to_come += accepted * (self.mix - 1.0);
        let later = self.requests_to_come * ended;
        self.requests_to_come -= later;
        let requests = accepted + later;
        self.load = self.base_cpu + (1.0 - self.base_cpu) * requests / (self.mix * self.serves);
        let (all, asked, beside) = self.totals;
        self.totals = (all + accepted, asked + requests, beside + self.beside);
        self.now_s += 1;
        let changes = self.ask();
        for change in &changes {
            let rule = &mut self.aggregate(&change.name).rule;
            (rule.rate, rule.burst) = (change.rate, change.burst);
        }
        changes
    }

    /// By priority; in a priority, as many of each as wait.
    fn accept(&mut self) {
        let mut left = if self.is_queued { self.serves } else { f64::INFINITY };
        for priority in 0..=u8::MAX {
            let of = |aggregate: &Aggregate| aggregate.rule.priority == priority;
            let waiting: f64 = self.aggregates.iter().filter(|a| of(a)).map(|a| a.queue).sum();
            let part = if waiting > left { left / waiting } else { 1.0 };
            for aggregate in self.aggregates.iter_mut().filter(|a| of(a)) {
                aggregate.accepted = aggregate.queue * part;
                aggregate.queue -= aggregate.accepted;
                left -= aggregate.accepted;
            }
        }
    }

    fn waiting(&self, priority: u8) -> f64 {
        let of = self.aggregates.iter().filter(|aggregate| aggregate.rule.priority == priority);
        of.map(|aggregate| aggregate.queue).sum()
    }

    fn ask(&mut self) -> Vec<Change> {
        let level = match self.levels {
            None => Level::Unknown,
            Some((_, red)) if self.load > red => Level::Red,
            Some((orange, _)) if self.load > orange => Level::Orange,
            Some(_) => Level::Green,
        };
        let mut rules = Vec::new();
        for Aggregate { rule, seen, passed, .. } in &self.aggregates {
            rules.push(RuleState { rule, seen: seen.round() as u64, passed: passed.round() as u64 });
        }
        let (accepted, requests, unmatched) = self.totals;
        // Who waits, waits for a slot. Connections of a service end in the second in which they are accepted.
        let is_full = self.aggregates.iter().any(|aggregate| aggregate.queue > 0.0);
        let waiting =
            self.is_tcp.then(|| (0..=u8::MAX).map(|priority| self.waiting(priority).round() as u64));
        let waiting: Vec<u64> = waiting.into_iter().flatten().collect();
        let (all, name) = (accepted.round() as u64, "server");
        let service = [ServiceState { name, is_full, accepted: all, ended: all }];
        let inputs = Inputs {
            rules: &rules,
            unmatched: unmatched.round() as u64,
            accepted: all,
            requests: if self.is_tcp { 0 } else { requests.round() as u64 },
            cpu: self.has_cpu.then(|| self.load.min(1.0)),
            capacity: if self.is_tcp { Some(0.0) } else { self.is_known.then_some(self.serves * self.mix) },
            services: if self.is_tcp { &service } else { &[] },
            waiting: &waiting,
            level,
        };
        let now = Timestamp::from_secs(self.now_s);
        self.agent.as_mut().map(|agent| agent.tick(&inputs, now)).unwrap_or_default()
    }

    /// Plays `seconds`; returns the last one in which something changed, and how much did.
    pub fn play(&mut self, seconds: u64) -> Option<(u64, usize)> {
        (0..seconds).filter_map(|second| Some((second, self.second().len())).filter(|(_, n)| *n > 0)).last()
    }

    /// Plays `seconds` and writes a line for each of them in which something changes, and the last: the
    /// limit, and for each rule the rate and burst that follow and the connections accepted.
    pub fn trace(&mut self, seconds: u64) -> String {
        let mut text = String::from("    s  limit");
        for aggregate in &self.aggregates {
            let _ = write!(text, " |{:>9} burst accepted", aggregate.rule.name);
        }
        text.push('\n');
        for second in 1..=seconds {
            let changes = self.second();
            if changes.is_empty() && second != seconds {
                continue;
            }
            let view = self.agent.as_ref().map(Agent::view).unwrap_or_default();
            let limit = view.limit.map_or("-".into(), |limit| format!("{:.1}", limit.per_s));
            let _ = write!(text, "{second:>5} {limit:>6}");
            for aggregate in &self.aggregates {
                let (rate, burst) = (aggregate.rule.rate, aggregate.rule.burst);
                let rate = if rate.is_finite() { format!("{rate:.1}") } else { "-".into() };
                let burst = if rate == "-" { "-".into() } else { burst.to_string() };
                let _ = write!(text, " |{rate:>9} {burst:>5} {:>8.1}", aggregate.accepted);
            }
            text.push('\n');
        }
        text
    }
}
