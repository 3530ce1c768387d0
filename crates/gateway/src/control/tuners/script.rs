//! A tuner written in Rhai (docs/tuning.md): bounded in operations, time and memory, and without access to
//! files or the network. Its changes are collected, and returned only when the run has succeeded.
//!
//! Rejected: Lua and JavaScript engines, which are C or C++ and bound memory by the process's allocator or
//! not at all; and a language of our own, which would have to grow into what Rhai is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rhai::{AST, Array, Dynamic, Engine, EvalAltResult, FLOAT, INT, Map, NativeCallContext, Position, Scope};
use serde_json::Value;
use tidegate_core::tune::{ALL, Change, Correlated, Seen, Tuner, TunerError};
use tidegate_core::units::Timestamp;

use super::view::SHED;
use crate::history::metrics;
use tidegate_settings::kind::parse_duration;
use tidegate_settings::{MAX_CHANGES, json_of, toml_of};

/// Operations of one run: some ten milliseconds of work, a hundred times what a control loop needs.
pub const MAX_OPERATIONS: u64 = 100_000;
/// Time of one run, for which the next script waits. It also bounds queries of the history, which read the
/// disk in one step.
pub const MAX_TIME: Duration = Duration::from_millis(500);
/// Nesting of calls: they use the thread's stack.
pub const MAX_CALLS: usize = 16;
/// Nesting of expressions, likewise; half as much within functions.
const MAX_DEPTH: usize = 32;
/// Bytes of a text and of all texts within a value.
pub const MAX_TEXT: usize = 64 << 10;
/// Members of an array, nested ones included: an hour of seconds.
pub const MAX_ARRAY: usize = 4096;
/// Members of a map, likewise.
pub const MAX_MAP: usize = 1024;
/// Variables at a time; each may be as large as the bounds above allow.
const MAX_VARIABLES: usize = 64;
/// Characters of an error's text: a script may throw a value of any size.
const MAX_ERROR: usize = 500;
/// The variable that a script keeps from run to run.
const STATE: &str = "state";

pub struct Script {
    engine: Engine,
    ast: AST,
    state: Map,
    run: Arc<Mutex<Run>>,
}

#[derive(Default)]
struct Run {
    view: Option<Seen>,
    since: Timestamp,
    changes: Vec<Change>,
    /// Where each change was made.
    places: Vec<Position>,
}

type Answer = Result<Dynamic, Box<EvalAltResult>>;

impl Script {
    pub fn new(text: &str) -> Result<Self, TunerError> {
        let run = Arc::<Mutex<Run>>::default();
        let engine = engine(&run);
        let compiled = contained(|| engine.compile(text).map_err(|e| error(&e.0.to_string(), e.1)));
        Ok(Self { ast: compiled?, engine, state: Map::new(), run })
    }

    /// Where the last run set this tunable: line and column.
    pub fn place_of(&self, name: &str) -> Option<(usize, usize)> {
        let run = self.run.lock();
        let at = run.changes.iter().position(|(known, _)| known == name)?;
        place(*run.places.get(at)?)
    }
}

impl Tuner for Script {
    fn tune(&mut self, view: &Seen) -> Result<Vec<Change>, TunerError> {
        *self.run.lock() = Run { since: view.now(), view: Some(view.clone()), ..Run::default() };
        let mut scope = Scope::new();
        scope.push(STATE, self.state.clone());
        let ended = contained(|| {
            self.engine.run_ast_with_scope(&mut scope, &self.ast).map_err(|e| error(&words(&e), e.position()))
        });
        let mut run = self.run.lock();
        run.view = None;
        ended?;
        let Some(state) = scope.remove::<Map>(STATE) else {
            return Err(error("`state` must remain a map", Position::NONE));
        };
        if is_too_large(&Dynamic::from_map(state.clone())) {
            return Err(error(TOO_LARGE, Position::NONE));
        }
        self.state = state;
        Ok(run.changes.clone())
    }
}

/// The message of an error, without its position, which is kept apart.
fn words(e: &EvalAltResult) -> String {
    match e {
        EvalAltResult::ErrorTooManyOperations(_) => format!("stopped: more than {MAX_OPERATIONS} steps"),
        EvalAltResult::ErrorTerminated(..) => format!("stopped: it ran for more than {MAX_TIME:?}"),
        EvalAltResult::ErrorStackOverflow(_) => {
            format!("stopped: more than {MAX_CALLS} calls within calls")
        }
        EvalAltResult::ErrorRuntime(thrown, _) => thrown.to_string(),
        EvalAltResult::ErrorInFunctionCall(_, _, inner, _) => words(inner),
        other => {
            let mut bare = other.to_string();
            if let Some(at) = bare.rfind(" (line ") {
                bare.truncate(at);
            }
            bare
        }
    }
}

fn error(what: &str, at: Position) -> TunerError {
    TunerError { what: what.chars().take(MAX_ERROR).collect(), at: place(at) }
}

fn place(at: Position) -> Option<(usize, usize)> {
    Some((at.line()?, at.position().unwrap_or(1)))
}

/// Turns a panic of the engine into an error of the run.
fn contained<T>(run: impl FnOnce() -> Result<T, TunerError>) -> Result<T, TunerError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(error("the engine failed", Position::NONE)))
}

fn engine(run: &Arc<Mutex<Run>>) -> Engine {
    let mut engine = Engine::new();
    engine.set_max_operations(MAX_OPERATIONS);
    engine.set_max_call_levels(MAX_CALLS);
    engine.set_max_expr_depths(MAX_DEPTH, MAX_DEPTH / 2);
    engine.set_max_string_size(MAX_TEXT);
    engine.set_max_array_size(MAX_ARRAY);
    engine.set_max_map_size(MAX_MAP);
    engine.set_max_variables(MAX_VARIABLES);
    engine.disable_symbol("eval");
    bound_values(&mut engine);
    // The engine's own `sleep` is one step of any duration.
    engine.register_fn("sleep", |_: INT| -> Answer { Err("there is no sleep: a script runs again".into()) });
    engine
        .register_fn("sleep", |_: FLOAT| -> Answer { Err("there is no sleep: a script runs again".into()) });
    engine.on_print(|text| tracing::info!(target: "tuner", "{}", short(text)));
    engine.on_debug(|text, _, at| tracing::debug!(target: "tuner", "{at:?} {}", short(text)));
    let watched = run.clone();
    engine.on_progress(move |_| {
        let run = watched.lock();
        let now = run.view.as_ref().map_or(run.since, |view| view.now());
        (now.since(run.since) > MAX_TIME).then_some(Dynamic::UNIT)
    });
    figures(&mut engine, run);
    tunables(&mut engine, run);
    engine
}

/// The engine bounds the results of expressions and functions, but not growth by `map[key] = map`, which
/// doubles a value in each step. So every variable is measured when it is named. `this` has no name and is
/// therefore disabled.
#[expect(deprecated, reason = "not deprecated, its documentation says: it may change, and a test would tell")]
fn bound_values(engine: &mut Engine) {
    engine.disable_symbol("this");
    engine.on_var(|name, _, context| match context.scope().get(name) {
        Some(value) if is_too_large(value) => Err(TOO_LARGE.into()),
        _ => Ok(None),
    });
}

const TOO_LARGE: &str = "stopped: a variable is too large";

/// Whether a value has too many members or bytes of text, nested ones included, or is nested too deeply.
fn is_too_large(value: &Dynamic) -> bool {
    !Left { members: MAX_ARRAY, keys: MAX_MAP, bytes: MAX_TEXT }.fits(value, MAX_DEPTH)
}

struct Left {
    members: usize,
    keys: usize,
    bytes: usize,
}

impl Left {
    fn fits(&mut self, value: &Dynamic, depth: usize) -> bool {
        let take = |n: usize, from: &mut usize| from.checked_sub(n).map(|left| *from = left).is_some();
        if depth == 0 {
            return false;
        }
        if let Ok(text) = value.as_immutable_string_ref() {
            return take(text.len(), &mut self.bytes);
        }
        if let Ok(array) = value.as_array_ref() {
            return take(array.len(), &mut self.members)
                && array.iter().all(|value| self.fits(value, depth - 1));
        }
        if let Ok(map) = value.as_map_ref() {
            return take(map.len(), &mut self.keys) && map.values().all(|value| self.fits(value, depth - 1));
        }
        true
    }
}

fn short(text: &str) -> String {
    text.chars().take(MAX_ERROR).collect()
}

/// Registers what a script reads: the figures of the last second by name, and the history.
fn figures(engine: &mut Engine, run: &Arc<Mutex<Run>>) {
    let names = metrics::Scope::Class.metrics().iter().map(|metric| metric.name);
    for name in names.chain([SHED]) {
        let of = run.clone();
        engine.register_fn(name, move |class: &str| -> Answer { answer(look(&of)?.figure(name, class)) });
        let of = run.clone();
        engine.register_fn(name, move || -> Answer { answer(look(&of)?.figure(name, ALL)) });
    }
    let of = run.clone();
    engine.register_fn("peak", move |metric: &str, class: &str, span: &str| -> Answer {
        answer(look(&of)?.peak(metric, class, length(span)?))
    });
    let of = run.clone();
    engine.register_fn("mean", move |metric: &str, class: &str, span: &str| -> Answer {
        answer(look(&of)?.mean(metric, class, length(span)?))
    });
    let of = run.clone();
    engine.register_fn("correlation", move |of_type: &str, figure: &str| -> Answer {
        Ok(look(&of)?.correlation(of_type, figure)?.map_or(Dynamic::UNIT, correlated))
    });
    let of = run.clone();
    engine.register_fn("capacity", move || -> Answer {
        answer(Ok(look(&of)?.capacity().map(tidegate_core::units::Rate::get)))
    });
    let of = run.clone();
    engine.register_fn("is_overloaded", move || -> Answer {
        Ok(Dynamic::from_bool(look(&of)?.is_overloaded()))
    });
}

fn tunables(engine: &mut Engine, run: &Arc<Mutex<Run>>) {
    let of = run.clone();
    engine.register_fn("get", move |name: &str| -> Answer {
        let value = look(&of)?.get(name).ok_or_else(|| format!("there is no tunable {name:?}"))?;
        Ok(dynamic(json_of(&value)))
    });
    let of = run.clone();
    engine.register_fn(
        "set",
        move |context: NativeCallContext, name: &str, value: Dynamic| -> Result<(), Box<EvalAltResult>> {
            let json = json(&value).and_then(|value| toml_of(&value));
            let text = json.ok_or_else(|| {
                format!("set(\"{}\", …): no tunable takes {}", short(name), short(&value.to_string()))
            })?;
            let mut run = of.lock();
            let at = context.call_position();
            if let Some(known) = run.changes.iter().position(|(known, _)| known == name) {
                run.changes[known].1 = text;
                run.places[known] = at;
                return Ok(());
            }
            if run.changes.len() == MAX_CHANGES {
                return Err(format!("at most {MAX_CHANGES} changes at once").into());
            }
            run.changes.push((name.into(), text));
            run.places.push(at);
            Ok(())
        },
    );
}

fn look(run: &Mutex<Run>) -> Result<Seen, Box<EvalAltResult>> {
    run.lock().view.clone().ok_or_else(|| "there is nothing to see outside of a run".into())
}

fn length(span: &str) -> Result<Duration, Box<EvalAltResult>> {
    parse_duration(span)
        .ok_or_else(|| format!("{:?} is no span of time like \"15m\" or \"1d\"", short(span)).into())
}

/// A missing value is `()`: `?? 0.0` makes a number of it.
fn answer(figure: Result<Option<f64>, String>) -> Answer {
    Ok(figure?.map_or(Dynamic::UNIT, Dynamic::from_float))
}

/// A map; what is not known is `()`.
fn correlated(found: Correlated) -> Dynamic {
    let number = |value: Option<f64>| value.map_or(Dynamic::UNIT, Dynamic::from_float);
    let Correlated { r, p, is_culprit, share, cost } = found;
    let numbers = [("r", r), ("p", p), ("share", Some(share)), ("cost", cost)];
    let mut map: Map = numbers.map(|(name, value)| (name.into(), number(value))).into_iter().collect();
    map.insert("culprit".into(), is_culprit.into());
    map.into()
}

fn dynamic(value: Value) -> Dynamic {
    match value {
        Value::Bool(b) => b.into(),
        Value::Number(n) => match n.as_i64() {
            Some(whole) => Dynamic::from_int(whole),
            None => Dynamic::from_float(n.as_f64().unwrap_or(FLOAT::NAN)),
        },
        Value::String(text) => text.into(),
        Value::Array(items) => Dynamic::from_array(items.into_iter().map(dynamic).collect()),
        Value::Null | Value::Object(_) => Dynamic::UNIT,
    }
}

/// `None`: not finite, or of a kind that no key has.
fn json(value: &Dynamic) -> Option<Value> {
    if let Ok(b) = value.as_bool() {
        Some(b.into())
    } else if let Ok(whole) = value.as_int() {
        Some(whole.into())
    } else if let Ok(x) = value.as_float() {
        serde_json::Number::from_f64(x).map(Value::Number)
    } else if let Ok(text) = value.as_immutable_string_ref() {
        Some(text.as_str().into())
    } else {
        value.read_lock::<Array>()?.iter().map(json).collect::<Option<Vec<_>>>().map(Value::Array)
    }
}
