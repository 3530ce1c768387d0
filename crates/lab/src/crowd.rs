//! The crowd: visitors and their arrival times.
//!
//! ```text
//! phases (shape, mix) ─► time of each arrival ─┐
//! closed loop ─► when each browser joins ───────┤
//! access log ─► line ─► time and request ──────┴─► Person { at, seed, kind } ─► visitor
//! ```
//!
//! Open loop: arrivals do not wait for answers, as people who do not know of each other do not. Of a closed
//! loop the browsers come here too, one by one; what makes it closed is that they stay ([`Kind::until`]).
//! Poisson arrivals are exact for every shape of rate: see [`shape`]. A person is a time, a kind and a seed
//! from which the visitor's player hashes each trait when it is needed; the seeds are hashes of the person's
//! number and take nothing from the generator that draws the gaps. So changing the share of one trait, or a
//! mix, changes nothing else about the crowd. Rejected: drawing a character here, as it costs memory for each
//! of a million visitors and ties their lives to the order of the draws.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::scenario::{Arrivals, ClosedLoop, Kind, Phase, Process, Scenario, Shape};
use crate::split_mix::{GOLDEN, mix};

mod line;
pub mod replay;
pub mod shape;

use replay::{Arrival, Log, ReplayError, Skipped};
use shape::RateCurve;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Person {
    pub at: Duration,
    /// Everything about them that is not said by their kind follows from this.
    pub seed: u64,
    pub kind: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct VisitorMix {
    /// Those of the scenario, then one for each distinct request of a replayed log.
    pub kinds: Vec<Kind>,
}

/// The arrivals, in order of time. Endless if the last phase is.
#[derive(Clone, Debug)]
pub struct Crowd {
    seed: u64,
    count: u64,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Phases(Box<PhasedArrivals>),
    Log { arrivals: std::vec::IntoIter<Arrival>, speed: f64, skipped: Skipped },
    Closed { browsers: ClosedLoop, shares: Box<[f64]> },
}

impl Crowd {
    /// The crowd of a scenario. Reads the log, if one is to be replayed.
    ///
    /// # Errors
    /// The log cannot be played, or nobody would come: a scenario may describe a service alone.
    pub fn of(scenario: &Scenario) -> Result<(VisitorMix, Self), ReplayError> {
        let mut kinds = scenario.visitors.clone();
        let crowd = match &scenario.arrivals {
            Arrivals::Phases { .. } | Arrivals::Closed(_) => {
                let weights: Vec<f64> = kinds.iter().map(|kind| kind.weight).collect();
                for kind in &mut kinds {
                    kind.until = scenario.closed().map(ClosedLoop::ends);
                    kind.sessions = scenario.closed().and_then(|closed| closed.sessions);
                }
                Self::new(scenario.seed, &scenario.arrivals, &weights)
            }
            Arrivals::Replay { log, speed } => {
                let behaviour = kinds.first().cloned().unwrap_or_default();
                let mut log = Log::load(log, &behaviour, kinds.len() as u32)?;
                kinds.append(&mut log.kinds);
                Self::replay(scenario.seed, log, *speed)
            }
        };
        match crowd.size_hint_visitors() {
            Some(0.0) => Err(ReplayError::Nobody),
            _ => Ok((VisitorMix { kinds }, crowd)),
        }
    }

    /// The crowd that `seed` stands for. `weights` are those of the kinds: they count where a phase has no
    /// mix.
    ///
    /// For an [`Arrivals::Replay`] the crowd is empty, because the log has to be read first: see
    /// [`Crowd::of`].
    pub fn new(seed: u64, arrivals: &Arrivals, weights: &[f64]) -> Self {
        match arrivals {
            Arrivals::Phases { process, phases, repeat } => {
                let arrivals = PhasedArrivals::new(seed, *process, phases, *repeat, weights);
                Self { seed: mix(seed), count: 0, source: Source::Phases(Box::new(arrivals)) }
            }
            Arrivals::Replay { speed, .. } => Self::replay(seed, Log::default(), *speed),
            Arrivals::Closed(browsers) => {
                let source = Source::Closed { browsers: *browsers, shares: cumulated(weights) };
                Self { seed: mix(seed), count: 0, source }
            }
        }
    }

    /// The visitors of an access log, at the log's times divided by `speed`.
    pub fn replay(seed: u64, log: Log, speed: f64) -> Self {
        let source = Source::Log { arrivals: log.arrivals.into_iter(), speed, skipped: log.skipped };
        Self { seed: mix(seed), count: 0, source }
    }

    /// How many are expected to come in all, for the display of progress; `None`: no end. Exact for a log.
    pub fn size_hint_visitors(&self) -> Option<f64> {
        match &self.source {
            Source::Phases(arrivals) => Some(arrivals.expected).filter(|expected| expected.is_finite()),
            Source::Log { arrivals, .. } => Some((self.count + arrivals.len() as u64) as f64),
            Source::Closed { browsers, .. } => Some(f64::from(browsers.browsers)),
        }
    }

    /// Lines of the replayed log that could not be read; `None`: no log is replayed.
    pub fn skipped(&self) -> Option<&Skipped> {
        match &self.source {
            Source::Phases(_) | Source::Closed { .. } => None,
            Source::Log { skipped, .. } => Some(skipped),
        }
    }
}

impl Iterator for Crowd {
    type Item = Person;

    fn next(&mut self) -> Option<Person> {
        // SplitMix64: the n-th output of a generator that can be asked for any n.
        let seed = mix(self.seed.wrapping_add(self.count.wrapping_mul(GOLDEN)));
        let (at, kind) = match &mut self.source {
            Source::Phases(arrivals) => {
                (arrivals.next()?, drawn(&arrivals.phases[arrivals.index].shares, seed))
            }
            Source::Log { arrivals, speed, .. } => {
                let arrival = arrivals.next()?;
                let at = (arrival.at_us as f64 * 1e3 / *speed) as u64;
                (Duration::from_nanos(at), arrival.kind)
            }
            Source::Closed { browsers, .. } if self.count >= u64::from(browsers.browsers) => return None,
            Source::Closed { browsers, shares } => {
                // One in each slot of time, anywhere in it: as many as were meant to, and in step with
                // nothing.
                let at = browsers.joins_at(self.count as f64 + fraction(seed ^ JOIN_SALT));
                (at, drawn(shares, seed))
            }
        };
        self.count += 1;
        Some(Person { at, seed, kind })
    }
}

/// Separates the draw of the kind from other hashes of a person's seed.
const KIND_SALT: u64 = 0x6B69_6E64_6B69_6E64;
/// The same for when a browser joins.
const JOIN_SALT: u64 = 0x6A6F_696E_6A6F_696E;

#[derive(Clone, Debug)]
struct PhasedArrivals {
    rng: StdRng,
    process: Process,
    phases: Vec<ReadyPhase>,
    /// Phases still to play after the present one, over all repetitions.
    left: u64,
    index: usize,
    curve: RateCurve,
    /// Begin and end of the present one, in nanoseconds since the start.
    starts_ns: u64,
    ends_ns: u64,
    /// Where even spacing stands: arrivals come when the integral of the rate, over all phases, passes 0.5,
    /// 1.5, ... This is the next of these, counted from the begin of the present phase.
    due: f64,
    expected: f64,
}

#[derive(Clone, Debug)]
struct ReadyPhase {
    phase: Phase,
    lasts_ns: u64,
    /// Cumulated shares of the kinds, the last 1.
    shares: Box<[f64]>,
}

impl PhasedArrivals {
    fn new(seed: u64, process: Process, phases: &[Phase], repeat: u32, weights: &[f64]) -> Self {
        let ready = |phase: &Phase| ReadyPhase {
            phase: phase.clone(),
            lasts_ns: u64::try_from(phase.lasts.as_nanos()).unwrap_or(u64::MAX),
            shares: cumulated(if phase.mix.is_empty() { weights } else { &phase.mix }),
        };
        let phases: Vec<_> = phases.iter().map(ready).collect();
        let round: f64 = phases.iter().map(|s| RateCurve::new(&s.phase).expected).sum();
        let nobody = Phase { rate: Shape::Flat(0.0), lasts: Duration::ZERO, mix: Vec::new() };
        let curve = RateCurve::new(phases.first().map_or(&nobody, |s| &s.phase));
        Self {
            rng: StdRng::seed_from_u64(seed),
            process,
            left: (phases.len() as u64 * u64::from(repeat)).saturating_sub(1),
            index: 0,
            curve,
            starts_ns: 0,
            ends_ns: phases.first().map_or(0, |s| s.lasts_ns),
            phases,
            due: 0.5,
            expected: round * f64::from(repeat),
        }
    }

    fn next(&mut self) -> Option<Duration> {
        loop {
            let time = match self.process {
                Process::Poisson => self.curve.next_poisson(&mut self.rng),
                Process::Constant => self.curve.next_even(self.due).inspect(|_| self.due += 1.0),
            };
            if let Some(seconds) = time {
                // Rounding may not carry an arrival over the border of its phase.
                let at = self.starts_ns.saturating_add((seconds * 1e9) as u64);
                return Some(Duration::from_nanos(at.min(self.ends_ns - 1)));
            }
            self.advance()?;
        }
    }

    fn advance(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        if self.ends_ns == u64::MAX {
            return None;
        }
        self.due -= self.curve.expected;
        self.index = (self.index + 1) % self.phases.len();
        let next = &self.phases[self.index];
        self.starts_ns = self.ends_ns;
        self.ends_ns = self.starts_ns.saturating_add(next.lasts_ns);
        self.curve = RateCurve::new(&next.phase);
        Some(())
    }
}

fn drawn(shares: &[f64], seed: u64) -> u32 {
    if shares.len() < 2 {
        return 0;
    }
    let u = fraction(seed ^ KIND_SALT);
    shares.partition_point(|share| *share <= u) as u32
}

fn fraction(salted: u64) -> f64 {
    (mix(salted) >> 11) as f64 / (1u64 << 53) as f64
}

/// Running sums of `weights`, as shares of the whole. Shares after the last positive one are never drawn.
fn cumulated(weights: &[f64]) -> Box<[f64]> {
    let whole: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let share = |weight: &f64| {
        sum += weight;
        sum / whole
    };
    let mut shares: Box<[f64]> = weights.iter().map(share).collect();
    if let Some(last) = weights.iter().rposition(|weight| *weight > 0.0) {
        shares[last..].fill(1.0);
    }
    shares
}

#[cfg(test)]
mod tests;
