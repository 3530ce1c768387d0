//! How many connections per second can be served: the least of what is known.
//!
//! | bound | connections per second | while |
//! | --- | --- | --- |
//! | capacity | capacity / (requests per connection) | a capacity is known |
//! | CPU | accepted * `max_cpu` / CPU | from the moment in which the CPU is above `max_cpu` |
//! | level | 0.9 * accepted, and so on while it is red | a detector is red, and neither of the others is known |
//!
//! **CPU.** The formula takes the load to be proportional to connections. Neither a constant part of it
//! (another program) nor one that is above 1 and cannot be seen matters: each interval applies the formula
//! again, to what was accepted under the bound before, and that settles where the load is `max_cpu`.
//!
//! ```text
//! begins:  S = accepted * max_cpu / CPU                       averages, CPU > max_cpu
//! falls:   S = S * max_cpu / (last reading of the CPU)        while average and last reading > max_cpu
//! rises:   S = S + alpha * (accepted * max_cpu / CPU - S)     averages, while it is below
//! rests:   while the average is within 2 % of max_cpu
//! ```
//!
//! It falls by the last reading because averages follow too late: in a model whose load follows connections
//! after 5 s, averages alone took 28 s to relieve the CPU from 2.5 times what it can do, and the last
//! reading 14 s. The bound stays when the load is back below `max_cpu`, because it is the reason for that.
//! It is forgotten when the demand fits into it.
//!
//! **Level.** A detector says that something is congested and not by how much: what was accepted is cut, and
//! cut again after n intervals if it is still red, as TCP does. It grows while all is green and rests while
//! it is orange, so a detector with an orange band wider than the cut comes to rest there.

use super::AgentConfig;
use super::averages::alpha;
use crate::detect::Level;

/// Connections per second below which the CPU's load says nothing about connections.
const LEAST_ACCEPTED: f64 = 1.0;
/// Share of what was accepted at first, below which the bounds by CPU and level never go. If a tenth of the
/// connections does not relieve the host, it is not connections that load it: a backup does, and shutting
/// everybody out would not help.
const LEAST_SHARE: f64 = 0.1;
/// Least load that is divided by. Idle hosts have more.
const LEAST_CPU: f64 = 0.01;
/// Most by which the formula may raise the bound: at little load it divides by noise.
const MOST_RISE: f64 = 2.0;
/// Share of `max_cpu` around it in which the bound rests: the loop would else hunt for the last percent.
const REST: f64 = 0.02;
/// What is accepted while a detector is red: the least decrease that is sure to be seen in n intervals.
const CUT: f64 = 0.9;
/// What is accepted more after n intervals of green: half of the cut, so that a cut is not undone at once.
const GROWTH: f64 = 1.05;
/// Averages without a reading of the CPU, until its bound is forgotten: the source is gone.
const SILENCE: u32 = 10;

/// Where a limit comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// The capacity, through the requests per connection.
    Capacity,
    /// The load of the CPU.
    Cpu,
    /// A detector that is red.
    Level,
}

impl Bound {
    /// Its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Cpu => "cpu",
            Self::Level => "level",
        }
    }
}

/// What can be served.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limit {
    /// Connections per second.
    pub per_s: f64,
    pub bound: Bound,
}

/// The load of the CPU, 0..=1.
#[derive(Clone, Copy, Debug)]
pub struct CpuLoad {
    pub average: f64,
    pub last: f64,
}

/// The figures that limits follow from.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Connections accepted per second, averaged.
    pub accepted: f64,
    /// `None`: no reading in this interval.
    pub cpu: Option<CpuLoad>,
    /// Requests per connection, averaged.
    pub mix: Option<f64>,
    /// Requests per second.
    pub capacity: Option<f64>,
    pub level: Level,
}

/// The bounds that are remembered from one interval to the next.
#[derive(Clone, Default, Debug)]
pub struct Limits {
    cpu: Option<Held>,
    level: Option<Held>,
    /// Intervals without a reading of the CPU.
    silent: u32,
}

#[derive(Clone, Debug)]
struct Held {
    per_s: f64,
    least: f64,
    /// Intervals until it may change again.
    rests: u32,
}

impl Held {
    fn new(per_s: f64, accepted: f64, rests: u32) -> Self {
        Self { per_s, least: LEAST_SHARE * accepted, rests }
    }

    fn set(&mut self, per_s: f64) {
        self.per_s = per_s.max(self.least);
    }
}

impl Limits {
    /// One interval. `None`: nothing is known.
    pub fn update(&mut self, load: &Load, config: &AgentConfig) -> Option<Limit> {
        self.follow_cpu(load, config);
        self.follow_level(load, config);
        let capacity = load.capacity.zip(load.mix).map(|(capacity, mix)| capacity / mix);
        let held = |held: &Option<Held>| held.as_ref().map(|held| held.per_s);
        let bounds =
            [(Bound::Capacity, capacity), (Bound::Cpu, held(&self.cpu)), (Bound::Level, held(&self.level))];
        let known = bounds.into_iter().filter_map(|(bound, per_s)| Some(Limit { per_s: per_s?, bound }));
        known.filter(|limit| limit.per_s > 0.0).min_by(|a, b| a.per_s.total_cmp(&b.per_s))
    }

    /// Everything fits: what was concluded from overload is over.
    pub fn forget(&mut self) {
        (self.cpu, self.level) = (None, None);
    }

    fn follow_cpu(&mut self, load: &Load, config: &AgentConfig) {
        let Some(cpu) = load.cpu else {
            self.silent = self.silent.saturating_add(1);
            if self.silent > SILENCE * config.intervals {
                self.cpu = None;
            }
            return;
        };
        self.silent = 0;
        let most = config.max_cpu;
        let figure = load.accepted * most / cpu.average.max(LEAST_CPU);
        match &mut self.cpu {
            Some(held) if cpu.average > most * (1.0 + REST) => {
                // The average may still tell of the time before the last fall.
                held.set(held.per_s * most / cpu.last.max(most));
            }
            Some(held) if cpu.average < most * (1.0 - REST) => {
                let rise = figure.min(MOST_RISE * held.per_s) - held.per_s;
                held.set(held.per_s + alpha(config.intervals) * rise.max(0.0));
            }
            None if cpu.average > most && load.accepted >= LEAST_ACCEPTED => {
                self.cpu = Some(Held::new(figure, load.accepted, 0));
            }
            _ => {}
        }
    }

    fn follow_level(&mut self, load: &Load, config: &AgentConfig) {
        if load.capacity.is_some() || self.cpu.is_some() {
            self.level = None;
            return;
        }
        match &mut self.level {
            Some(held) if held.rests > 0 => held.rests -= 1,
            Some(held) => {
                match load.level {
                    Level::Red => held.set(CUT * held.per_s.min(load.accepted)),
                    Level::Green => held.set(GROWTH * held.per_s),
                    Level::Orange | Level::Unknown => return,
                }
                held.rests = config.intervals;
            }
            None if load.level == Level::Red && load.accepted >= LEAST_ACCEPTED => {
                self.level = Some(Held::new(CUT * load.accepted, load.accepted, config.intervals));
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CONFIG: AgentConfig =
        AgentConfig { every: Duration::from_secs(1), intervals: 3, min_share: 0.05, max_cpu: 0.9 };
    const fn cpu(load: f64) -> Option<CpuLoad> {
        Some(CpuLoad { average: load, last: load })
    }

    const CALM: Load =
        Load { accepted: 100.0, cpu: cpu(0.5), mix: Some(4.0), capacity: None, level: Level::Green };

    fn bound(limits: &mut Limits, load: Load) -> Option<(Bound, f64)> {
        limits.update(&load, &CONFIG).map(|limit| (limit.bound, (limit.per_s * 100.0).round() / 100.0))
    }

    #[test]
    fn nothing_known_is_no_limit() {
        let mut limits = Limits::default();
        assert_eq!(bound(&mut limits, CALM), None);
        for level in [Level::Unknown, Level::Orange] {
            assert_eq!(bound(&mut limits, Load { level, cpu: None, mix: None, ..CALM }), None);
        }
        let hardly_used = Load { accepted: 0.5, cpu: cpu(1.0), level: Level::Red, ..CALM };
        assert_eq!(bound(&mut limits, hardly_used), None, "it is not connections that load it");
    }

    #[test]
    fn the_least_bound_counts() {
        let mut limits = Limits::default();
        let known = Load { capacity: Some(800.0), ..CALM };
        assert_eq!(bound(&mut limits, known), Some((Bound::Capacity, 200.0)));
        assert_eq!(bound(&mut limits, Load { mix: None, ..known }), None);
        let loaded = Load { cpu: cpu(1.0), ..known };
        assert_eq!(bound(&mut limits, loaded), Some((Bound::Cpu, 90.0)));
        assert_eq!(bound(&mut limits, Load { level: Level::Red, ..loaded }), Some((Bound::Cpu, 81.0)));
        limits.forget();
        assert_eq!(bound(&mut limits, Load { level: Level::Red, ..known }), Some((Bound::Capacity, 200.0)));
    }

    #[test]
    fn the_bound_by_cpu_settles_where_the_load_is_as_configured() {
        // A third of the load is another program's: 0.3 + connections / 1000.
        let mut limits = Limits::default();
        let mut accepted = 700.0;
        for _ in 0..60 {
            let load = Load { accepted, cpu: cpu(0.3 + accepted / 1000.0), ..CALM };
            accepted = limits.update(&load, &CONFIG).map_or(accepted, |limit| limit.per_s);
        }
        let load = 0.3 + accepted / 1000.0;
        assert!((load / 0.9 - 1.0).abs() <= REST, "{load}");
    }

    #[test]
    fn a_load_that_connections_do_not_cause_does_not_shut_everybody_out() {
        let mut limits = Limits::default();
        let mut accepted = 500.0;
        for _ in 0..100 {
            let load = Load { accepted, cpu: cpu(1.0), ..CALM };
            accepted = limits.update(&load, &CONFIG).map_or(accepted, |limit| limit.per_s);
        }
        assert_eq!(accepted, 50.0);
    }

    #[test]
    fn a_silent_source_is_believed_for_a_while() {
        let mut limits = Limits::default();
        assert_eq!(bound(&mut limits, Load { cpu: cpu(1.0), ..CALM }), Some((Bound::Cpu, 90.0)));
        let silent = Load { cpu: None, ..CALM };
        for interval in 1..=SILENCE * CONFIG.intervals {
            assert_eq!(bound(&mut limits, silent), Some((Bound::Cpu, 90.0)), "{interval}");
        }
        assert_eq!(bound(&mut limits, silent), None);
    }

    #[test]
    fn a_red_level_cuts_until_it_is_not_red_and_green_gives_back() {
        let mut limits = Limits::default();
        let mut course = String::new();
        for level in ["red"; 6].into_iter().chain(["orange"; 5]).chain(["green"; 9]) {
            let level = Level::ALL.into_iter().find(|known| known.name() == level).expect("a level");
            let found = bound(&mut limits, Load { level, cpu: None, ..CALM });
            course += &format!("{} ", found.expect("a limit").1);
        }
        let rests = "90 90 90 90 81 81 | 81 81 81 81 81 | 85.05 85.05 85.05 85.05 89.3 89.3 89.3 89.3 93.77";
        assert_eq!(course.trim_end(), rests.replace("| ", ""));
    }
}
