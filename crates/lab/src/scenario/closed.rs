//! `[arrivals.closed]`: a fixed number of browsers, each of which asks, reads, thinks and asks again until
//! the end.
//!
//! ```text
//!   begins ──► ends                 N browsers on the way: X = N / (R + Z), response time R, think time Z
//!   joining │ settling │ measured   (the interactive response time law: Denning, Buzen, 1978)
//! ```
//!
//! TPC-W's emulated browsers (TPC-W 5.3) and those of most benchmarks of its kind. Unlike an open crowd they
//! slow down with the service: what makes such a service collapse is not the crowd but its impatience,
//! requests given up and repeated while the origin still works for them.

use std::time::Duration;

use tidegate_settings::kind::{Count, Number};

use super::kinds::{Drawn, MOMENT, SPAN, SPAN_OR_FOREVER};
use super::section::Section;
use super::{Arrivals, Kind, Step};
use crate::dist::Dist;

/// Most browsers: each is a visitor of some hundred bytes for the whole run.
const MAX_BROWSERS: u32 = 1_000_000;

/// How many browsers there are, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedLoop {
    /// How many, once all have joined.
    pub browsers: u32,
    /// How many join in a second.
    pub join: f64,
    /// So many join first, and only after `hold` the others: a crowd that comes over a quiet service. 0: all
    /// join one after another.
    pub first: u32,
    /// Time from when the first have joined.
    pub hold: Duration,
    /// Time after the last has joined that is not measured yet.
    pub settle: Duration,
    /// Time that is measured. At its end nobody asks for another page.
    pub lasts: Duration,
    /// Browsers play their steps in order, as sessions; `None`: page after page.
    pub sessions: Option<Rounds>,
}

/// Sessions of a closed loop, one after another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    /// From the end of a session to the next.
    pub pause: Dist,
    /// A session is good if every answer took less than this.
    pub good_under: Duration,
}

impl ClosedLoop {
    /// When the measured time begins, from the start of the run.
    pub fn measured_from(&self) -> Duration {
        self.joins_at(f64::from(self.browsers)).saturating_add(self.settle)
    }

    /// When so many have joined; between two whole numbers, a part of the way.
    pub fn joins_at(&self, number: f64) -> Duration {
        let held = self.first > 0 && number > f64::from(self.first);
        let join = Duration::from_secs_f64(number / self.join);
        if held { join.saturating_add(self.hold) } else { join }
    }

    pub fn ends(&self) -> Duration {
        self.measured_from().saturating_add(self.lasts)
    }
}

impl Kind {
    /// Steps by how often each is asked for in a visit; in a closed loop, relative to the others.
    pub fn requests(&self) -> impl Iterator<Item = (f64, &Step)> + Clone {
        self.steps.iter().map(|step| (step.weight.unwrap_or(1.0), step))
    }

    /// Whether a step is followed by the next one, as in a session. In a closed loop without sessions each
    /// page stands for itself.
    pub(crate) fn has_next_step(&self) -> bool {
        self.until.is_none() || self.sessions.is_some()
    }
}

pub(super) fn read(arrivals: &mut Section<'_, '_>) -> Option<ClosedLoop> {
    let mut section = arrivals.inside("closed")?;
    let closed = ClosedLoop {
        browsers: section.need("browsers", &Count(1..=u64::from(MAX_BROWSERS)), 1u32),
        join: section.take("join", &Number(0.001..=1e6), 50.0),
        first: section.take("first", &Count(0..=u64::from(MAX_BROWSERS)), 0u32),
        hold: section.take("hold", &MOMENT, Duration::ZERO),
        settle: section.take("settle", &MOMENT, Duration::ZERO),
        lasts: section.need("for", &SPAN, Duration::from_secs(1)),
        sessions: rounds(&mut section),
    };
    if section.has("hold") && !section.has("first") {
        section.conflict("hold", "`first` with it: how many join before", "a time that has no effect");
    }
    section.finish();
    for other in ["phase", "process", "repeat", "replay", "speed"] {
        if arrivals.has(other) {
            arrivals.conflict(other, "no such key beside [arrivals.closed]", "one that has no effect");
        }
    }
    Some(closed)
}

fn rounds(section: &mut Section<'_, '_>) -> Option<Rounds> {
    let pause = section.maybe("pause", &Drawn { never: false });
    let good_under = section.take("good_under", &SPAN_OR_FOREVER, Duration::MAX);
    if section.has("good_under") && !section.has("pause") {
        let expected = "`pause` with it: without, there are no sessions";
        section.conflict("good_under", expected, "a bound that has no effect");
    }
    pause.map(|pause| Rounds { pause, good_under })
}

/// What visitors must be for a closed loop, and must not be without one.
pub(super) fn check(root: &mut Section<'_, '_>, arrivals: &Arrivals, visitors: &[Kind]) {
    let (is_closed, in_sessions) = match arrivals {
        Arrivals::Closed(closed) => (true, closed.sessions.is_some()),
        _ => (false, false),
    };
    let by_weight = |kind: &&Kind| kind.steps.iter().any(|step| step.weight.is_some());
    if let Some(kind) = visitors.iter().find(by_weight).filter(|_| !is_closed) {
        let expected =
            "[arrivals.closed] with steps drawn by weight: a session of them has no end of its own";
        root.conflict("visitor", expected, format!("weights in the steps of \"{}\"", kind.name));
    }
    if let Some(kind) = visitors.iter().find(by_weight).filter(|_| in_sessions) {
        let expected =
            "steps without weights beside `arrivals.closed.pause`: those of a session come in their order";
        root.conflict("visitor", expected, format!("weights in the steps of \"{}\"", kind.name));
    }
    let attacks = |kind: &&Kind| kind.tamper > 0.0 || kind.replay > 0.0;
    if let Some(kind) = visitors.iter().find(attacks).filter(|_| is_closed) {
        let expected = "no `tamper` or `replay` in a closed loop, whose figures are of people";
        root.conflict("visitor", expected, format!("an attacker, \"{}\"", kind.name));
    }
}
