//! Closed loops with names: what an estimator is tried on.

use std::path::Path;
use std::time::Duration;

use tidegate_core::units::{ClassId, Cost};

use super::{ArenaSpec, Feed, Kind};
use crate::scenario::{OriginSpec, Scenario};

pub struct Named {
    pub name: &'static str,
    /// Its origin, as in a scenario file.
    origin: &'static str,
    lasts_s: u64,
    /// Class, configured cost and the path's index of each kind of request.
    kinds: &'static [(u8, f64, usize)],
    /// Weights of the kinds from a second on.
    mix: &'static [(u64, &'static [f64])],
    /// Requests per second at a second; none: backlog.
    arrivals: &'static [(u64, f64)],
}

const PLAIN: Named =
    Named { name: "", origin: "", lasts_s: 60, kinds: &[(0, 1.0, 0)], mix: &[(0, &[1.0])], arrivals: &[] };

/// Two classes of equal configured cost.
const TWO_CLASSES: &[(u8, f64, usize)] = &[(0, 1.0, 0), (1, 1.0, 1)];

const EXPONENTIAL: &str = "contention = 0\nservice = 'exponential(100ms)'";

/// All of them. Ten workers at 100 ms unless the name says otherwise; service is exponential in what is not
/// about service.
#[rustfmt::skip]
pub const ALL: &[Named] = &[
    Named { name: "deterministic", origin: "contention = 0", ..PLAIN },
    Named { name: "normal", origin: "contention = 0\nservice = 'normal(100ms, 20ms)'", ..PLAIN },
    Named { name: "exponential", origin: EXPONENTIAL, ..PLAIN },
    // Mean 100 ms, coefficient of variation 1.5.
    Named { name: "lognormal", origin: "contention = 0\nservice = 'lognormal(55.47ms, 1.0857)'", ..PLAIN },
    // One in ten takes 460 ms, the others 60.
    Named { name: "bimodal", origin: "contention = 0\n[[origin.path]]\npath = '/fast'\n\
        demand = { app = '60ms' }\n[[origin.path]]\npath = '/**'\ndemand = { app = '460ms' }",
        kinds: &[(0, 1.0, 0), (0, 1.0, 1)], mix: &[(0, &[0.9, 0.1])], ..PLAIN },
    Named { name: "fast-10k", origin: "contention = 0\nworkers = 40\nservice = 'exponential(4ms)'",
        lasts_s: 30, ..PLAIN },
    Named { name: "contention-0.3", origin: "contention = 0.3\nservice = 'exponential(100ms)'", ..PLAIN },
    Named { name: "contention-1", origin: "contention = 1\nservice = 'exponential(100ms)'", ..PLAIN },
    Named { name: "database", origin: "contention = 0\nworkers = 25\n[[origin.stage]]\nname = 'app'\n\
        servers = 20\n[[origin.stage]]\nname = 'db'\nservers = 5\n[[origin.path]]\npath = '/**'\n\
        demand = { app = 'exponential(50ms)', db = 'exponential(50ms)' }", ..PLAIN },
    Named { name: "rise-speed", origin: "contention = 0\nservice = 'exponential(125ms)'\n\
        [[origin.change]]\nat = '0s'\nspeed = 0.5\n[[origin.change]]\nat = '60s'\nspeed = 1.0",
        lasts_s: 120, ..PLAIN },
    Named { name: "fall-speed", origin: "contention = 0\nservice = 'exponential(125ms)'\n\
        [[origin.change]]\nat = '60s'\nspeed = 0.5", lasts_s: 120, ..PLAIN },
    Named { name: "rise-workers", origin: "contention = 0\nworkers = 5\nservice = 'exponential(125ms)'\n\
        [[origin.change]]\nat = '60s'\nworkers = 10", lasts_s: 120, ..PLAIN },
    // Two of five replicas go.
    Named { name: "fall-workers", origin: "contention = 0\nworkers = 4\nreplicas = 5\n\
        service = 'exponential(100ms)'\n[[origin.change]]\nat = '60s'\nreplicas = 3", lasts_s: 120, ..PLAIN },
    Named { name: "mix-shift", origin: "contention = 0\n[[origin.path]]\npath = '/light'\n\
        demand = { app = 'exponential(50ms)' }\n[[origin.path]]\npath = '/**'\n\
        demand = { app = 'exponential(200ms)' }",
        lasts_s: 120, kinds: TWO_CLASSES, mix: &[(0, &[0.9, 0.1]), (60, &[0.5, 0.5])], ..PLAIN },
    Named { name: "low-load", origin: EXPONENTIAL, arrivals: &[(0, 60.0)], ..PLAIN },
    Named { name: "low-then-crowd", origin: EXPONENTIAL, lasts_s: 120,
        arrivals: &[(0, 60.0), (60, 60.0), (60, 1000.0)], ..PLAIN },
    Named { name: "ramp", origin: "contention = 0.05\nservice = 'exponential(100ms)'", lasts_s: 120,
        arrivals: &[(0, 20.0), (100, 200.0)], ..PLAIN },
    // Ten processor-sharing servers behind forty workers.
    Named { name: "sharing", origin: "contention = 0\nworkers = 40\n[[origin.stage]]\nname = 'app'\n\
        servers = 10\ndiscipline = 'sharing'\n[[origin.path]]\npath = '/**'\n\
        demand = { app = 'exponential(100ms)' }", ..PLAIN },
    Named { name: "gc-pauses", origin: "contention = 0\nservice = 'exponential(100ms)'\n[origin.pause]\n\
        every = 'exponential(10s)'\nlasts = 'uniform(200ms, 600ms)'", lasts_s: 120, ..PLAIN },
    Named { name: "neighbour", origin: "contention = 0\nservice = 'exponential(100ms)'\n\
        [origin.neighbour]\nevery = '40s'\nlasts = '20s'\nspeed = 0.6", lasts_s: 160, ..PLAIN },
    // One in ten answers goes on for two seconds after its head.
    Named { name: "streams", origin: "contention = 0\n[[origin.path]]\npath = '/feed'\n\
        demand = { app = 'exponential(100ms)' }\nstream = 'exponential(2s)'\n[[origin.path]]\n\
        path = '/**'\ndemand = { app = 'exponential(100ms)' }",
        kinds: TWO_CLASSES, mix: &[(0, &[0.1, 0.9])], ..PLAIN },
    Named { name: "fast-errors", origin: "contention = 0\nservice = 'exponential(100ms)'\n\
        [[origin.change]]\nat = '60s'\nerrors = '30%'\n[[origin.change]]\nat = '80s'\nerrors = 0",
        lasts_s: 140, ..PLAIN },
];

/// The scenarios of a name: `all`, a full name, or the beginning of some.
pub fn named(name: &str) -> Vec<&'static Named> {
    let exactly: Vec<_> = ALL.iter().filter(|n| n.name == name).collect();
    if !exactly.is_empty() {
        return exactly;
    }
    ALL.iter().filter(|n| name == "all" || n.name.starts_with(name)).collect()
}

impl Named {
    /// The loop. `lasts_s` overrules its length.
    ///
    /// # Panics
    /// Not for those in [`ALL`], as a test says.
    pub fn spec(&self, lasts_s: Option<u64>) -> ArenaSpec {
        let text = format!("[origin]\n{}\n", self.origin);
        let origin: OriginSpec = match Scenario::parse(&text, self.name, Path::new("."), &[]) {
            Ok(scenario) => scenario.origin,
            Err(mistakes) => panic!("{}: {mistakes}", self.name),
        };
        let seconds = Duration::from_secs;
        let kind = |&(class, cost, path): &(u8, f64, usize)| Kind {
            class: ClassId(class),
            cost: Cost::class_cost(cost).unwrap_or(Cost::ONE),
            path,
        };
        let arrivals: Vec<_> = self.arrivals.iter().map(|(at, rate)| (seconds(*at), *rate)).collect();
        ArenaSpec {
            kinds: self.kinds.iter().map(kind).collect(),
            mix: self.mix.iter().map(|(at, weights)| (seconds(*at), weights.to_vec())).collect(),
            feed: if arrivals.is_empty() { Feed::Backlog } else { Feed::Arrivals(arrivals) },
            ..ArenaSpec::new(origin, seconds(lasts_s.unwrap_or(self.lasts_s)))
        }
    }
}
