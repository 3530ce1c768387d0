//! Random messages are read by these parsers, by httparse and by hyper, and everyone understands the same.
//!
//! Messages are mutated from valid ones, from the conformance cases (`tests/conformance/`) and from published
//! smuggling vectors. Where the others accept what is refused here, the disagreement is counted by refusal,
//! and the refusal must be one that is listed in [`allowed`] with its paragraph. The other way round, nothing
//! is allowed. Each message is also given in random pieces, which must not change the verdict.

pub mod allowed;
pub mod content;
pub mod corpus;
pub mod hypers;
pub mod request;
pub mod response;

use std::fmt;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate_http::{HeadLimits, ResponseLimits};

pub const LIMITS: HeadLimits = HeadLimits { bytes: 4096, fields: 32, target: 1024, body: 0 };
pub const RESPONSE_LIMITS: ResponseLimits = ResponseLimits { bytes: 4096, fields: 32 };

/// Where a fuzzer's input is cut: as its first bytes say.
#[allow(dead_code, reason = "for the fuzz targets")]
pub fn cuts(input: &[u8]) -> Vec<usize> {
    let at = |&b: &u8| usize::from(b) * 7 % (input.len() + 1);
    let mut cuts: Vec<usize> = input.iter().take(3).map(at).collect();
    cuts.sort_unstable();
    cuts
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Requests,
    Responses,
    Contents,
}

/// How often the parties agreed.
#[derive(Default)]
pub struct Counts {
    pub executions: u64,
    pub both_accept: u64,
    pub both_refuse: u64,
    /// Not complete for both.
    pub incomplete: u64,
    /// Refused here before the others have seen the end of a line, a head or a chunk.
    pub earlier: u64,
    /// How many of the executions were compared with hyper too.
    pub by_hyper: u64,
    /// Refused here and accepted by another, by refusal.
    pub stricter: Vec<(String, u64)>,
}

impl Counts {
    /// Adds what another run has counted.
    fn add(&mut self, other: Self) {
        self.executions += other.executions;
        self.both_accept += other.both_accept;
        self.both_refuse += other.both_refuse;
        self.incomplete += other.incomplete;
        self.earlier += other.earlier;
        self.by_hyper += other.by_hyper;
        for (name, n) in other.stricter {
            self.count(name, n);
        }
    }

    /// Notes that `by` accepts what is refused here.
    ///
    /// # Panics
    /// If that is not allowed.
    pub fn stricter(&mut self, by: &str, refusal: impl fmt::Debug, input: &[u8]) {
        let refusal = format!("{refusal:?}");
        assert!(
            allowed::paragraph(&refusal).is_some(),
            "{by} accepts what is refused as {refusal}: {}",
            input.escape_ascii()
        );
        self.count(format!("{refusal} ({by})"), 1);
    }

    fn count(&mut self, name: String, n: u64) {
        match self.stricter.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += n,
            None => self.stricter.push((name, n)),
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} executions ({} with hyper): {} accepted by all, {} refused by all, {} not complete, {} refused earlier",
            self.executions, self.by_hyper, self.both_accept, self.both_refuse, self.incomplete, self.earlier
        )?;
        for (name, n) in &self.stricter {
            let refusal = name.split(' ').next().unwrap_or_default();
            let paragraph = allowed::paragraph(refusal).unwrap_or_default();
            writeln!(f, "  {n:>12} refused only here: {name}, {paragraph}")?;
        }
        Ok(())
    }
}

/// Messages in a part of a run, which has a seed of its own: a failure is found again by its part.
const PART: u64 = 1_000_000;

/// Compares so many random messages of a kind, every `hyper`-th with hyper too. The same seed gives the same
/// messages.
///
/// # Panics
/// With the message, where the parties disagree.
pub fn run(subject: Subject, executions: u64, hyper: u64, seed: u64) -> Counts {
    let mut sum = Counts::default();
    while sum.executions < executions {
        let part = PART.min(executions - sum.executions);
        sum.add(run_part(subject, part, hyper, seed + sum.executions / PART));
    }
    sum
}

fn run_part(subject: Subject, executions: u64, hyper: u64, seed: u64) -> Counts {
    let mut rng = SmallRng::seed_from_u64(seed);
    let corpus = corpus::of(subject);
    let mut counts = Counts::default();
    let mut input = Vec::with_capacity(16 << 10);
    let mut cuts = Vec::new();
    while counts.executions < executions {
        corpus.mutate(&mut rng, &mut input);
        cuts.clear();
        for _ in 0..rng.random_range(1..4) {
            cuts.push(rng.random_range(0..=input.len()));
        }
        cuts.sort_unstable();
        let with_hyper = counts.executions.is_multiple_of(hyper);
        match subject {
            Subject::Requests => request::compare(&input, &cuts, &mut counts),
            Subject::Responses => response::compare(&input, &cuts, &mut counts),
            Subject::Contents => content::compare(&input, &cuts, &mut counts),
        }
        if with_hyper {
            counts.by_hyper += 1;
            match subject {
                Subject::Requests => hypers::compare_requests(&input, &mut counts),
                Subject::Contents => {
                    let whole = [hypers::CHUNKED_POST, &input].concat();
                    hypers::compare_requests(&whole, &mut counts);
                }
                Subject::Responses => hypers::compare_responses(&input, rng.random_ratio(1, 8), &mut counts),
            }
        }
        counts.executions += 1;
    }
    counts
}
