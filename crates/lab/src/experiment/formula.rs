//! The formulas of an experiment file: how a figure's quantities and curves follow from the runs' outcomes.
//!
//! ```text
//! with.served_share                                   a key of the run's summary; of a sweep: its curve
//! with[door]                                          a column of the run's series, over time in seconds
//! steps.goodput_rps / steps.response_mean_ms          + - * / of numbers and of curves, point by point
//! max(within(with[door], 0, 36))                      a curve made a number
//! argmax(steps.goodput_rps / steps.response_mean_ms)  where it is
//! ```
//!
//! A formula is parsed and checked before anything runs: an experiment of five minutes must not end in a
//! typing mistake. A quantity must come to a number, a line of a plot to a curve; the operations are these
//! and no others, so that a reader of the file knows how a figure is computed.

use std::fmt;

use tidegate_settings::did_you_mean;

mod evaluate;
mod parse;

#[cfg(test)]
mod tests;

pub use evaluate::{Source, Value};

/// A formula, parsed; [`Formula::kind`] checks the names in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    text: String,
    root: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Number,
    /// Figures over something: the values of a sweep, or the seconds of a run.
    Curve,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number => "a number",
            Self::Curve => "a curve",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, got {got}")]
pub struct Mistake {
    pub expected: String,
    pub got: String,
}

impl Mistake {
    fn new(expected: impl Into<String>, got: impl Into<String>) -> Self {
        Self { expected: expected.into(), got: got.into() }
    }
}

pub struct Names<'a> {
    /// The runs, and whether each is a sweep.
    pub runs: &'a [(String, bool)],
    pub keys: &'a [&'a str],
    pub columns: &'a [&'a str],
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
    Key { run: String, key: String },
    Column { run: String, column: String },
    Pair(Operator, Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Max,
    Min,
    Mean,
    Sum,
    /// Where the largest value is; the first of several.
    Argmax,
    /// The part from one x value to another, the latter excluded.
    Within,
    /// The last x value up to which every value is at least so much.
    Upto,
    /// The x values themselves, as values.
    Place,
    /// The same values so much later.
    Shift,
    /// At each point the mean over so much before it, the point included.
    Smooth,
    /// The first x value from which on, to its end, a curve stays near a value: the value, and how near as a
    /// share of it.
    Settled,
    Greater,
    /// At each point the higher of two curves.
    Higher,
}

impl Function {
    const ALL: [(&'static str, Self); 13] = [
        ("max", Self::Max),
        ("min", Self::Min),
        ("mean", Self::Mean),
        ("sum", Self::Sum),
        ("argmax", Self::Argmax),
        ("within", Self::Within),
        ("upto", Self::Upto),
        ("place", Self::Place),
        ("shift", Self::Shift),
        ("smooth", Self::Smooth),
        ("settled", Self::Settled),
        ("greater", Self::Greater),
        ("higher", Self::Higher),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, function)| *function == self).map_or("", |(name, _)| name)
    }

    fn signature(self) -> (&'static [Kind], Kind) {
        match self {
            Self::Max | Self::Min | Self::Mean | Self::Sum | Self::Argmax => (&[Kind::Curve], Kind::Number),
            Self::Place => (&[Kind::Curve], Kind::Curve),
            Self::Within => (&[Kind::Curve, Kind::Number, Kind::Number], Kind::Curve),
            Self::Upto => (&[Kind::Curve, Kind::Number], Kind::Number),
            Self::Shift | Self::Smooth => (&[Kind::Curve, Kind::Number], Kind::Curve),
            Self::Settled => (&[Kind::Curve, Kind::Number, Kind::Number], Kind::Number),
            Self::Greater => (&[Kind::Number, Kind::Number], Kind::Number),
            Self::Higher => (&[Kind::Curve, Kind::Curve], Kind::Curve),
        }
    }
}

impl Formula {
    /// Parses a formula; its names are not looked up yet.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        Ok(Self { text: text.into(), root: parse::parse(text)? })
    }

    /// Stands where a formula was wrong, until that has been said.
    pub(super) fn nothing() -> Self {
        Self { text: String::new(), root: Node::Number(f64::NAN) }
    }

    /// Its value, with all its names known.
    ///
    /// # Errors
    /// The first name that is not known, or operation that has no sense.
    pub fn kind(&self, names: &Names) -> Result<Kind, Mistake> {
        kind(&self.root, names)
    }

    /// Its value over these outcomes. A value that a run which ended early does not have is NaN.
    pub fn evaluate(&self, source: &(impl Source + ?Sized)) -> Value {
        evaluate::evaluate(&self.root, source)
    }

    pub fn runs(&self) -> Vec<&str> {
        let mut names = Vec::new();
        gather(&self.root, &mut names);
        names
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn kind(node: &Node, names: &Names) -> Result<Kind, Mistake> {
    match node {
        Node::Number(_) => Ok(Kind::Number),
        Node::Key { run, key } => {
            let swept = run_named(run, names)?;
            known(key, names.keys, "a key of a run's summary")?;
            Ok(if swept { Kind::Curve } else { Kind::Number })
        }
        Node::Column { run, column } => {
            if run_named(run, names)? {
                let expected = format!("{run}.KEY: {run} is a sweep, whose curves are over its values");
                return Err(Mistake::new(expected, format!("{run}[{column}]")));
            }
            known(column, names.columns, "a column of a run's series")?;
            Ok(Kind::Curve)
        }
        Node::Pair(_, left, right) => Ok(match (kind(left, names)?, kind(right, names)?) {
            (Kind::Number, Kind::Number) => Kind::Number,
            _ => Kind::Curve,
        }),
        Node::Call(function, arguments) => {
            let (takes, gives) = function.signature();
            if arguments.len() != takes.len() {
                let expected = format!("{}(...) with {} arguments", function.name(), takes.len());
                return Err(Mistake::new(expected, arguments.len().to_string()));
            }
            for (argument, expected) in arguments.iter().zip(takes) {
                let got = kind(argument, names)?;
                if got != *expected {
                    let expected = format!("{expected} in {}(...)", function.name());
                    return Err(Mistake::new(expected, got.to_string()));
                }
            }
            Ok(gives)
        }
    }
}

fn run_named(run: &str, names: &Names) -> Result<bool, Mistake> {
    let found = names.runs.iter().find(|(name, _)| name == run);
    found.map(|(_, swept)| *swept).ok_or_else(|| {
        let all: Vec<&str> = names.runs.iter().map(|(name, _)| name.as_str()).collect();
        Mistake::new(format!("a run of this experiment ({})", all.join(", ")), format!("{run:?}"))
    })
}

fn known(name: &str, all: &[&str], what: &str) -> Result<(), Mistake> {
    if all.contains(&name) {
        return Ok(());
    }
    let near = did_you_mean(name, all.iter().copied());
    let hint = near.unwrap_or_else(|| format!("There are {}.", all.join(", ")));
    Err(Mistake::new(format!("{what} ({hint})"), format!("{name:?}")))
}

fn gather<'n>(node: &'n Node, names: &mut Vec<&'n str>) {
    match node {
        Node::Number(_) => {}
        Node::Key { run, .. } | Node::Column { run, .. } => {
            if !names.contains(&run.as_str()) {
                names.push(run);
            }
        }
        Node::Pair(_, left, right) => {
            gather(left, names);
            gather(right, names);
        }
        Node::Call(_, arguments) => arguments.iter().for_each(|argument| gather(argument, names)),
    }
}
