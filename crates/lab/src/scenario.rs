//! One language for `load`, `origin`, `sim` and `experiment`: who comes, what for, what the service can take,
//! what goes wrong. The same file plays over real sockets and in virtual time.
//!
//! ```text
//! [arrivals]  when people come            [origin]  what the service can take
//! [[visitor]] what they do, how patient   [gate]    a gate's configuration, as in tidegate.toml
//! [target]    where, for `load`           [[fault]] what goes wrong, for `sim`
//! ```
//!
//! These are the checked types: a [`Scenario`] need not be checked again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_settings::Settings;

use crate::dist::Dist;
use crate::tally::{Tally, TypePlan};

mod arrivals;
mod closed;
mod defaults;
mod faults;
mod gate;
mod kinds;
mod read;
mod section;
mod service;
mod shop;
mod spec;
mod visitors;

#[cfg(test)]
mod tests;

pub use closed::{ClosedLoop, Rounds};
pub use defaults::DEFAULT_BODY_BYTES;
pub(crate) use kinds::{ABOUT, MOMENT, NAME, SPAN};
pub(crate) use read::document;
pub use read::{Mistakes, keys};
pub use section::Key;
pub(crate) use section::{Reader, Section};
pub use shop::{MAX_SHOP_SERVERS, NotASize, ShopSize, ShopSpec};
pub use spec::{Change, Discipline, Errors, Mode, OriginSpec, PathSpec, Spell, Stage};

#[derive(Clone, Debug)]
pub struct Scenario {
    /// Short name, for file names and tables.
    pub name: String,
    pub about: String,
    pub seed: u64,
    /// End of the run, also if visitors are still there; `None`: until the last visitor has left.
    pub deadline: Option<Duration>,
    /// Where `load` sends, unless the command line says otherwise.
    pub target: Option<String>,
    pub arrivals: Arrivals,
    /// Who they are; at least one.
    pub visitors: Vec<Kind>,
    pub origin: OriginSpec,
    /// The gate in front of it; `None`: none.
    pub gate: Option<GateSpec>,
    /// What goes wrong, in order of time.
    pub faults: Vec<Fault>,
    /// The whole machine stands still from time to time; in the simulator.
    pub stall: Option<Spell>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// Stretches of time, one after another.
    Phases {
        process: Process,
        /// The stretches; at least one.
        phases: Vec<Phase>,
        /// How often the whole is played; at least once.
        repeat: u32,
    },
    /// The requests of an access log, each by a visitor of its own, at the log's own times.
    Replay {
        /// The log: combined format, or one JSON object a line.
        log: PathBuf,
        /// 2.0 plays it twice as fast.
        speed: f64,
    },
    /// A fixed number of browsers that ask again and again.
    Closed(ClosedLoop),
}

/// How gaps between arrivals are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// Independent people: exponential gaps.
    Poisson,
    /// Evenly spaced.
    Constant,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Arrivals per second as a function of the time since the phase began.
    pub rate: Shape,
    /// How long it lasts; `Duration::MAX`: for good.
    pub lasts: Duration,
    /// Share of each kind of visitor, by index; empty: as their weights say.
    pub mix: Vec<f64>,
}

/// A rate over time, in visitors per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Always the same.
    Flat(f64),
    /// From one rate to another, linearly over the phase.
    Ramp(f64, f64),
    /// A day: `low` at the start, `high` half a period later, a cosine between.
    Diurnal { low: f64, high: f64, period: Duration },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    pub name: String,
    /// How many of all visitors are of this kind, relative to the others.
    pub weight: f64,
    /// The steps of a session; at least one.
    pub steps: Vec<Step>,
    /// Time before a request under way is given up.
    pub patience: Dist,
    /// Longest stay in a waiting room.
    pub wait_limit: Dist,
    /// How often a visitor tries again after a failure before leaving for good.
    pub retries: u8,
    pub pause: Dist,
    /// Share who never come back after they had to wait.
    pub no_show: f64,
    /// Share who ask for the page before their turn, once.
    pub early: f64,
    /// Share who do not come at their turn but `late_by` afterwards.
    pub late: f64,
    /// See `late`.
    pub late_by: Dist,
    /// What they follow while they wait.
    pub follow: Follow,
    /// Whether they keep cookies. Without, the ticket travels in the URL the page names.
    pub cookies: bool,
    /// Whether they ask as browsers do (`Accept: text/html`) or as programs do (`application/json`).
    pub browser: bool,
    /// Share who, while they wait, send an altered ticket once before their turn (an attack; expected answer:
    /// 403).
    pub tamper: f64,
    /// Share who, served, show the ticket they have used once more (an attack; expected: not let in).
    pub replay: f64,
    /// Their service level, a `[[tier]]` of the gate; empty: everybody's. Only the simulator knows of it.
    pub tier: String,
    /// Until when, from the start, the browser goes on in a closed loop; `None`: one visit, and that is it.
    /// Not written: it follows from the arrivals.
    pub until: Option<Duration>,
    /// How it goes on after a session in a closed loop of whole sessions; `None`: there are none. Follows
    /// from the arrivals, too.
    pub sessions: Option<Rounds>,
}

/// What waiting visitors follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The waiting page's script: its status document, when it says.
    Page,
    /// The `Refresh` field of a page without JavaScript.
    Refresh,
    /// `Retry-After`, as programs do.
    RetryAfter,
    /// Nothing: they press reload after `pause`, as people do at an error page.
    Nothing,
}

/// One request of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub method: String,
    /// Path and query. `{n}` stands for a number drawn per request, 0 to 999,999.
    pub path: String,
    /// Body of a form, sent as `application/x-www-form-urlencoded`.
    pub form: Option<String>,
    /// Time between the answer and the next step.
    pub think: Dist,
    /// How often it is drawn in a closed loop, relative to the other steps; `None` in all steps: in their
    /// order.
    pub weight: Option<f64>,
    /// Parts of the page that are requested once it has come. Only the simulator knows of them.
    pub parts: u32,
    /// Path and query of each part.
    pub part: String,
    /// The type of the request, for figures of its own; empty: none.
    pub of_type: String,
    /// Whether the type is one of the costly ones, whose figures are also told together. Neither gate nor
    /// origin learn of it.
    pub costly: bool,
}

#[derive(Clone, Debug)]
pub struct GateSpec {
    pub settings: Settings,
    /// The same as TOML, to be written to a file for a real gate.
    pub text: String,
    /// Two processes, tokengen and tokencheck, instead of one.
    pub split: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    pub at: Duration,
    /// For how long; `Duration::MAX`: for good, but a gate that restarts is back at once.
    pub lasts: Duration,
    pub what: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// A replica is gone: connections refused, what it worked on lost.
    Crash { replica: u32 },
    /// A replica's servers are this many times slower.
    Slow {
        replica: u32,
        /// 4.0: four times.
        factor: f64,
    },
    /// Tokencheck's clock is ahead of tokengen's by this; negative: behind. In seconds.
    Drift {
        /// By how much.
        seconds: f64,
    },
    /// Reports from tokencheck to tokengen are lost.
    NoFeedback,
    /// The gate is killed and started again from what it had saved.
    Restart,
}

impl Scenario {
    /// Reads a scenario file. Its name, unless it says one, is the file's without the ending.
    pub fn load(path: &Path) -> Result<Self, Mistakes> {
        Self::load_with(path, &[])
    }

    /// As [`Scenario::load`], with keys from the command line, as in [`Scenario::parse`].
    pub fn load_with(path: &Path, overrides: &[(String, String)]) -> Result<Self, Mistakes> {
        read::load(path, overrides)
    }

    /// Reads a scenario. `name` stands for the file in messages, and its stem is the name of a scenario that
    /// says none; paths in it are relative to `dir`. `overrides` are keys that count over what the text says,
    /// and their values as TOML or bare text: `("arrivals.phase.0.rate", "600")`, `("gate.room.max_wait",
    /// "10m")`.
    ///
    /// # Errors
    /// Every mistake in it, each with its line or its override.
    pub fn parse(
        text: &str,
        name: &str,
        dir: &Path,
        overrides: &[(String, String)],
    ) -> Result<Self, Mistakes> {
        read::parse(text, name, dir, overrides)
    }

    /// What `tidegate load URL --rate RATE --for LASTS` means: `rate` visitors per second, who ask for one
    /// page each. The URL may name that page. Figures are as they come: [`Scenario::parse`] would have
    /// checked them.
    pub fn short(url: &str, rate: f64, lasts: Duration) -> Self {
        let mut kind = Kind::default();
        let path_at = url.find("://").map_or(0, |at| at + 3);
        if let Some(slash) = url[path_at..].find('/') {
            kind.steps[0].path = url[path_at + slash..].into();
        }
        let phase = Phase { rate: Shape::Flat(rate), lasts, mix: Vec::new() };
        Self {
            name: "load".into(),
            about: String::new(),
            seed: 1,
            deadline: None,
            target: Some(url.into()),
            arrivals: Arrivals::Phases { process: Process::Poisson, phases: vec![phase], repeat: 1 },
            visitors: vec![kind],
            origin: OriginSpec::default(),
            gate: None,
            faults: Vec::new(),
            stall: None,
        }
    }

    pub fn closed(&self) -> Option<&ClosedLoop> {
        match &self.arrivals {
            Arrivals::Closed(closed) => Some(closed),
            _ => None,
        }
    }

    /// The types of requests that its steps name, in the order of their first step.
    pub fn types(&self) -> TypePlan {
        let mut plan = TypePlan::default();
        for kind in &self.visitors {
            let of = |step: &Step| {
                if step.of_type.is_empty() {
                    return None;
                }
                let known = plan.types.iter().position(|(name, _)| *name == step.of_type);
                let at = known.unwrap_or_else(|| {
                    plan.types.push((step.of_type.clone(), false));
                    plan.types.len() - 1
                });
                plan.types[at].1 |= step.costly;
                Some(at)
            };
            let of_step = kind.steps.iter().map(of).collect();
            plan.of_step.push(of_step);
        }
        plan
    }

    pub fn tally(&self) -> Tally {
        let measured = self.closed().map(|closed| (closed.measured_from(), closed.ends()));
        Tally::of(self.visitors.iter().map(|kind| kind.name.as_str()), measured).with_types(self.types())
    }
}
