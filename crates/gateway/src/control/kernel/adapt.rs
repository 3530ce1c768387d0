//! Gives the adaptation agent what it looks at, and takes down what it decides (Voigt et al., section 5).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_core::capacity::Phase;
use tidegate_core::detect::Level;
use tidegate_core::measure::{Event, Snapshot};
use tidegate_core::policing::SynRule;
use tidegate_core::policing::agent::{Agent, AgentConfig, Change, Inputs, RuleState, ServiceState, View};
use tidegate_core::units::{Rate, Timestamp};
use tidegate_settings::{Kernel, Watched};
use tokio::sync::watch;

use super::state::KernelState;
use crate::control::congestion::CongestionMonitor;
use crate::shared::Shared;
use crate::shared::figures::Figures;
use crate::shared::tcp::TcpService;

/// From this confidence on a capacity is more than a guess to begin with.
const SURE: f64 = 0.5;

/// Where the agent's figures come from.
#[derive(Clone)]
pub struct Sources {
    pub shared: Arc<Shared>,
    pub congestion: Arc<CongestionMonitor>,
    pub figures: watch::Receiver<Arc<Figures>>,
}

/// The agent, while it is wanted.
#[derive(Default)]
pub struct Adapter {
    agent: Option<Agent>,
    ran_at: Timestamp,
}

impl Adapter {
    /// Follows the settings; `configured`: the rules without what the agent has set. Whether the agent has
    /// just been switched off.
    pub fn follow(&mut self, settings: &Kernel, configured: &[SynRule]) -> bool {
        let config = AgentConfig {
            every: settings.adapt_every,
            intervals: settings.adapt_intervals,
            min_share: settings.min_share,
            max_cpu: settings.max_cpu,
        };
        match (&mut self.agent, settings.adapt) {
            (agent, false) => agent.take().is_some(),
            (Some(agent), true) => {
                agent.reconfigure(config, configured);
                false
            }
            (agent, true) => {
                *agent = Some(Agent::new(config));
                false
            }
        }
    }

    /// Time until it is to decide again; `None`: it is off.
    pub fn left(&self, every: Duration, now: Timestamp) -> Option<Duration> {
        self.agent.as_ref()?;
        Some(every.saturating_sub(now.since(self.ran_at)))
    }

    /// One decision, by counters of now.
    pub fn decide(&mut self, sources: &Sources, state: &KernelState, now: Timestamp) -> Vec<Change> {
        let Some(agent) = &mut self.agent else { return Vec::new() };
        self.ran_at = now;
        let rules = state.rules.iter().map(|(ruled, counters)| RuleState {
            rule: &ruled.rule,
            seen: counters.seen,
            passed: counters.passed,
        });
        let rules: Vec<_> = rules.collect();
        let services = sources.shared.tcp.list();
        let names: Vec<_> = services.iter().map(|service| service.name()).collect();
        let services: Vec<_> = names.iter().zip(&*services).map(service_state).collect();
        let accepts = &sources.shared.accepts;
        let (cpu, level) = sources.hosts(now);
        let inputs = Inputs {
            rules: &rules,
            unmatched: state.totals.unmatched,
            accepted: accepts.by_priority().into_iter().fold(0, u64::wrapping_add),
            requests: sources.requests(now),
            cpu,
            capacity: sources.capacity(),
            waiting: &accepts.waiting(),
            services: &services,
            level,
        };
        agent.tick(&inputs, now)
    }

    pub fn view(&self) -> Option<View> {
        self.agent.as_ref().map(Agent::view)
    }
}

impl Sources {
    /// Requests so far, without polls of visitors who wait.
    fn requests(&self, now: Timestamp) -> u64 {
        let total = Snapshot::take(self.shared.shards.iter().map(|shard| &**shard), now);
        total.event(Event::Requests).saturating_sub(total.event(Event::StatusPolls))
    }

    /// The greatest load of a CPU that a detector reads, and the worst level of all detectors.
    fn hosts(&self, now: Timestamp) -> (Option<f64>, Level) {
        let congestion = self.congestion.lock();
        let mut greatest: Option<f64> = None;
        let mut worst = Level::Unknown;
        for (detector, second) in congestion.seconds(now) {
            worst = worst.max(second.judgement.level);
            let is_cpu = detector.kind == Watched::Host && matches!(&*detector.figure, "" | "cpu");
            if let Some(load) = second.reading.filter(|_| is_cpu) {
                greatest = Some(greatest.map_or(load, |before| before.max(load)));
            }
        }
        (greatest, worst)
    }

    /// What the origin serves, if more than a guess is known; 0: there is none. A request costs one unit on
    /// average.
    fn capacity(&self) -> Option<f64> {
        if self.shared.config.load().settings.is_for_tcp_only() {
            return Some(0.0);
        }
        let figures = self.figures.borrow();
        let (capacity, estimate) = (figures.tunables.capacity, figures.estimate);
        let is_known = estimate.phase == Phase::Configured || estimate.confidence >= SURE;
        (is_known && capacity < Rate::MAX).then(|| capacity.get())
    }
}

fn service_state<'a>((name, service): (&'a String, &Arc<TcpService>)) -> ServiceState<'a> {
    let most = service.in_force().settings.max_connections;
    let (open, accepted) = (service.figures.open.load(Relaxed), service.figures.accepted.load(Relaxed));
    let ended = accepted.saturating_sub(open as u64);
    ServiceState { name, is_full: most > 0 && open >= most, accepted, ended }
}
