//! Conditions of rules: expressions in CEL over `levels`, `figures` and `time`, checked when they are read.
//!
//! ```text
//! text ─► parse (cel) ─► check names and types, number the names ─► evaluate on the tick (cel)
//! ```
//!
//! A condition may use `&& || ! ?: == != < <= > >= + - * / in has()`, numbers, texts and brackets. It may not
//! use macros or functions, so its evaluation takes time in proportion to its length and allocates nothing
//! that grows. All numbers are of one type; otherwise `figures.rate > 100` would need a decimal point.
//!
//! **Unknown.** A level or figure that is not known has no value in the evaluation, which is an error in CEL.
//! `&&` and `||` have a result despite such an error if the other side decides. An error that remains is
//! [`Truth::Unknown`]. `has(levels.db)` asks whether a level is known.
//!
//! Levels compare in the order green, orange, red, which is also the alphabetical order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cel::common::ast::operators as op;
use cel::common::ast::{CallExpr, Expr, LiteralValue};
use cel::common::types::{CelBool, CelDouble, CelString};
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use cel::{Context, Env, IdedExpr, Program, Value};
use tidegate_core::detect::Level;
use tidegate_core::rules::Truth;

use crate::figures::{GateFigure, TIMES};
use crate::kinds::toml_string;
use crate::mistake::{did_you_mean, either};

/// Most operators and brackets. Each may deepen the tree that parser and evaluation descend.
const MAX_OPERATORS: usize = 128;
/// Deepest tree. The recursion must fit on the control thread's stack.
const MAX_DEPTH: usize = 64;

/// What is wrong with a condition. The fields are those of [`Mistake`](crate::Mistake).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    pub expected: String,
    pub got: String,
    pub hint: Option<String>,
}

fn wrong<T>(expected: &str, got: impl Into<String>, hint: Option<String>) -> Result<T, Wrong> {
    Err(Wrong { expected: expected.into(), got: got.into(), hint })
}

/// A condition that can be evaluated.
#[derive(Debug)]
pub struct Condition {
    expression: IdedExpr,
    /// Detectors whose level or figure it uses, by their index.
    pub detectors: Vec<usize>,
    /// Figures of the gate that it uses, by their index in [`GateFigure::ALL`].
    pub figures: Vec<usize>,
}

impl Condition {
    /// Parses and checks a text that may use the names of `detectors`, which are in the order of the file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn compile(text: &str, detectors: &[&str]) -> Result<Self, Wrong> {
        const A_CONDITION: &str = "a condition in CEL like `levels.cpu == \"red\" && figures.queued > 50`";
        let operators = text.bytes().filter(|b| b"+-*/%<>=!&|?:([{,".contains(b)).count();
        if operators > MAX_OPERATORS {
            let hint = "Put a part of it into a rule of its own.".to_owned();
            return wrong("a shorter condition", format!("one of {operators} operators"), Some(hint));
        }
        // The parser is generated code, and nobody has shown that it does not panic on some text.
        let program = catch_unwind(AssertUnwindSafe(|| Program::compile(text)));
        let Ok(program) = program else { return wrong(A_CONDITION, "a text that cannot be parsed", None) };
        let program = program.map_err(|errors| {
            let first = errors.errors.first();
            let what = first.map_or_else(
                || "a text that is none".into(),
                |e| format!("a mistake at character {}: {}", e.pos.1, e.msg),
            );
            let one_equals =
                text.contains('=') && !["==", "!=", "<=", ">="].iter().any(|op| text.contains(op));
            let hint = one_equals.then(|| "Write == to compare.".to_owned());
            Wrong { expected: A_CONDITION.into(), got: what.replace(['\n', '\r'], " "), hint }
        })?;
        let mut check = Check { known: detectors, detectors: Vec::new(), figures: Vec::new() };
        let mut expression = program.expression().clone();
        match check.kind(&mut expression, 0)? {
            Kind::Truth => {}
            other => return wrong("a condition, which is true or false", other.words(), None),
        }
        Ok(Self { expression, detectors: check.detectors, figures: check.figures })
    }
}

/// The type of an expression.
#[derive(Clone, PartialEq, Debug)]
enum Kind {
    Truth,
    Number,
    Level,
    /// A text, which can only be the name of a level.
    Word(String),
}

impl Kind {
    fn words(&self) -> String {
        match self {
            Self::Truth => "true or false".into(),
            Self::Number => "a number".into(),
            Self::Level => "a level".into(),
            Self::Word(word) => format!("the text {}", toml_string(word)),
        }
    }
}

struct Check<'n> {
    known: &'n [&'n str],
    detectors: Vec<usize>,
    figures: Vec<usize>,
}

impl Check<'_> {
    /// The type of a part. Replaces names by those that [`Facts`] resolves, and integers by floats.
    fn kind(&mut self, part: &mut IdedExpr, depth: usize) -> Result<Kind, Wrong> {
        const A_PART: &str = "levels, figures, time, numbers and names of levels";
        if depth > MAX_DEPTH {
            return wrong("a simpler condition", format!("one that is {depth} deep"), None);
        }
        match &mut part.expr {
            Expr::Literal(literal) => {
                let number = match literal {
                    LiteralValue::Boolean(_) => return Ok(Kind::Truth),
                    LiteralValue::String(word) => return Ok(Kind::Word(word.inner().to_owned())),
                    LiteralValue::Int(n) => *n.inner() as f64,
                    LiteralValue::UInt(n) => *n.inner() as f64,
                    LiteralValue::Double(x) => *x.inner(),
                    LiteralValue::Bytes(_) | LiteralValue::Null => {
                        return wrong(A_PART, "another constant", None);
                    }
                };
                *literal = LiteralValue::Double(CelDouble::from(number));
                Ok(Kind::Number)
            }
            Expr::Ident(name) => self.lone(name),
            Expr::Select(select) => {
                let Expr::Ident(root) = &select.operand.expr else {
                    let got = format!("`.{}` of something else", select.field);
                    return wrong("a name like `levels.cpu`", got, None);
                };
                let (kind, name) = self.named(root, &select.field)?;
                let kind = if select.test { Kind::Truth } else { kind };
                part.expr = Expr::Ident(if select.test { name.to_uppercase() } else { name });
                Ok(kind)
            }
            Expr::Call(call) => self.call(call, depth),
            Expr::Comprehension(_) => wrong("no macros but `has`", "one", None),
            Expr::List(_) => wrong("a list only after `in`", "one", None),
            Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => wrong(A_PART, "something else", None),
        }
    }

    fn lone<T>(&self, name: &str) -> Result<T, Wrong> {
        let hint = if self.known.contains(&name) {
            Some(format!("Write `levels.{name}` or `figures.{name}`."))
        } else if GateFigure::named(name).is_some() {
            Some(format!("Write `figures.{name}`."))
        } else if Level::ALL.iter().any(|level| level.name() == name) {
            Some(format!("Write \"{name}\" in quotes."))
        } else {
            did_you_mean(name, ["levels", "figures", "time"].into_iter())
        };
        wrong("`levels.NAME`, `figures.NAME` or `time.NAME`", format!("the name `{name}`"), hint)
    }

    fn named(&mut self, root: &str, name: &str) -> Result<(Kind, String), Wrong> {
        let of_detector = self.known.iter().position(|known| *known == name);
        let of_gate = GateFigure::named(name).map(|(at, _)| at);
        let known: Vec<&str> = match root {
            "levels" => self.known.to_vec(),
            "figures" => {
                let of_gate = GateFigure::ALL.iter().map(|figure| figure.name());
                self.known.iter().copied().chain(of_gate).collect()
            }
            "time" => TIMES.to_vec(),
            _ => return self.lone(root),
        };
        match (root, of_detector, of_gate) {
            ("levels", Some(at), _) => {
                self.detectors.push(at);
                Ok((Kind::Level, format!("l{at}")))
            }
            ("figures", Some(at), _) => {
                self.detectors.push(at);
                Ok((Kind::Number, format!("d{at}")))
            }
            ("figures", None, Some(at)) => {
                self.figures.push(at);
                Ok((Kind::Number, format!("f{at}")))
            }
            ("time", ..) if known.contains(&name) => {
                let at = known.iter().position(|time| *time == name).unwrap_or_default();
                Ok((Kind::Number, format!("t{at}")))
            }
            _ => {
                let hint = did_you_mean(name, known.iter().copied());
                let all = known.iter().take(12).map(|name| format!("`{root}.{name}`"));
                let expected = match known.is_empty() {
                    true => "the name of a [[detector]] (there is none)".into(),
                    false => either(all),
                };
                wrong(&expected, format!("`{root}.{name}`"), hint)
            }
        }
    }

    fn call(&mut self, call: &mut CallExpr, depth: usize) -> Result<Kind, Wrong> {
        let name = call.func_name.clone();
        if call.target.is_some() {
            return wrong("no functions", format!("`.{name}()`"), None);
        }
        match (name.as_str(), call.args.as_mut_slice()) {
            (op::LOGICAL_AND | op::LOGICAL_OR | op::LOGICAL_NOT, args) => {
                for arg in args {
                    self.is(arg, &Kind::Truth, &name, depth)?;
                }
                Ok(Kind::Truth)
            }
            (op::CONDITIONAL, [condition, yes, no]) => {
                self.is(condition, &Kind::Truth, &name, depth)?;
                let kind = self.kind(yes, depth + 1)?;
                if let Kind::Word(_) = kind {
                    return wrong("numbers or conditions beside `? :`", kind.words(), None);
                }
                self.is(no, &kind, &name, depth)?;
                Ok(kind)
            }
            (
                op::EQUALS | op::NOT_EQUALS | op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS,
                [a, b],
            ) => {
                let kinds = (self.kind(a, depth + 1)?, self.kind(b, depth + 1)?);
                comparable(&kinds.0, &kinds.1, matches!(name.as_str(), op::EQUALS | op::NOT_EQUALS))?;
                Ok(Kind::Truth)
            }
            (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::NEGATE, args) => {
                for arg in args {
                    self.is(arg, &Kind::Number, &name, depth)?;
                }
                Ok(Kind::Number)
            }
            (op::IN, [a, list]) => {
                let kind = self.kind(a, depth + 1)?;
                let Expr::List(list) = &mut list.expr else {
                    return wrong("a list in `[ ]` after `in`", "none", None);
                };
                for element in &mut list.elements {
                    let other = self.kind(element, depth + 1)?;
                    comparable(&kind, &other, true)?;
                }
                Ok(Kind::Truth)
            }
            (op::INDEX | op::OPT_INDEX | op::OPT_SELECT, _) => {
                wrong("names like `levels.cpu`", "`[ ]`", None)
            }
            _ => {
                let got = format!("`{}`", name.trim_matches('_'));
                wrong("no functions but `has`, and no operators but those of docs/rules.md", got, None)
            }
        }
    }

    fn is(&mut self, part: &mut IdedExpr, wanted: &Kind, operator: &str, depth: usize) -> Result<(), Wrong> {
        let kind = self.kind(part, depth + 1)?;
        if kind == *wanted {
            return Ok(());
        }
        let hint = (kind == Kind::Level).then(|| "Compare it: `== \"red\"`.".to_owned());
        let operator = operator.replace('_', " ");
        wrong(&format!("{} beside `{}`", wanted.words(), operator.trim()), kind.words(), hint)
    }
}

fn comparable(a: &Kind, b: &Kind, for_equality: bool) -> Result<(), Wrong> {
    let named = match (a, b) {
        (Kind::Level, Kind::Word(word)) | (Kind::Word(word), Kind::Level) => word,
        (Kind::Number, Kind::Number) | (Kind::Level, Kind::Level) => return Ok(()),
        (Kind::Truth, Kind::Truth) if for_equality => return Ok(()),
        _ => return wrong("things of one kind to compare", format!("{} and {}", a.words(), b.words()), None),
    };
    let names = || Level::ALL.iter().filter(|level| **level > Level::Unknown).map(|level| level.name());
    if names().any(|name| name == named) {
        return Ok(());
    }
    let hint = match named.as_str() {
        "unknown" => Some("Write `!has(levels.NAME)` to ask whether it is unknown.".to_owned()),
        _ => did_you_mean(named, names()),
    };
    wrong("\"green\", \"orange\" or \"red\"", toml_string(named), hint)
}

/// The levels, figures and parts of the time on a tick.
#[derive(Debug, Default)]
pub struct Facts {
    pub levels: Vec<Level>,
    pub detectors: Vec<Option<f64>>,
    /// Figures of the gate, in the order of [`GateFigure::ALL`].
    pub figures: Vec<Option<f64>>,
    /// Parts of the time, in the order of [`TIMES`].
    pub times: [f64; TIMES.len()],
}

impl Facts {
    fn level(&self, at: usize) -> Option<Level> {
        self.levels.get(at).copied().filter(|level| *level > Level::Unknown)
    }
}

impl VariableResolver for Facts {
    /// Resolves the names that [`Check`] gives; a name in capitals asks whether the value is known.
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let (what, at) = variable.split_at_checked(1)?;
        let at: usize = at.parse().ok()?;
        let of = |figures: &[Option<f64>]| figures.get(at).copied().flatten();
        let number = |x: f64| CowVal::owned(CelDouble::from(x));
        let is = |is: bool| Some(CowVal::owned(CelBool::from(is)));
        match what {
            "l" => self.level(at).map(|level| CowVal::owned(CelString::from(level.name()))),
            "d" => of(&self.detectors).map(number),
            "f" => of(&self.figures).map(number),
            "t" => self.times.get(at).copied().map(number),
            "L" => is(self.level(at).is_some()),
            "D" => is(of(&self.detectors).is_some()),
            "F" => is(of(&self.figures).is_some()),
            "T" => is(true),
            _ => None,
        }
    }
}

/// Evaluates conditions.
pub struct Evaluator {
    env: Arc<Env>,
}

impl Default for Evaluator {
    fn default() -> Self {
        Self { env: Arc::new(Env::stdlib()) }
    }
}

impl Evaluator {
    /// Passes `ask` a function that says whether a condition holds given these facts.
    pub fn with<T>(&self, facts: &Facts, ask: impl FnOnce(&dyn Fn(&Condition) -> Truth) -> T) -> T {
        let mut context = Context::with_env(self.env.clone());
        context.set_variable_resolver(facts);
        ask(&|condition| match Value::resolve(&condition.expression, &context) {
            Ok(Value::Bool(holds)) => holds.into(),
            _ => Truth::Unknown,
        })
    }
}

#[cfg(test)]
mod tests;
