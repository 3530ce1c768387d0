//! `[[detector]]` and `[[rule]]`: what may be congested, and what is then done (docs/rules.md).

use std::time::Duration;

use tidegate_core::detect::{
    AdaptiveConfig, Common, Counted, Criterion, ExcessConfig, JudgeConfig, Limit, MAX_FIGURE, Sampling,
    SourceId, Statistic,
};
use tidegate_core::policies::TierId;
use tidegate_core::rules::OnUnknown;
use tidegate_core::units::{ClassId, Rate};

use super::Settings;
use super::condition::Condition;
use super::declare::Leaf;
use super::exposition::Pattern;
use super::figures::GateFigure;
use super::kinds::net::{CLASS_NAME, CLASS_OR_NONE, FIELD_NAME, NAME, NAME_OR_NONE, PATH_GLOB, Text, text};
use super::kinds::quantity::{Count, DAY, HOUR, Number, Portion, S, secs, span, span_or_zero};
use super::kinds::{Choice, Flag, List, Named, toml_string};
use super::mistake::{Found, MAX_MISTAKES, Mistake, did_you_mean, unplaced};
use super::read::{Reader, item_path};
use super::tree::{Node, Value};

/// Longest condition, in bytes: people write shorter ones, and the time to parse is bounded.
const MAX_CONDITION: usize = 2_000;

named! {
    /// What a detector looks at: the criteria of WAC 3.1.
    pub enum Watched {
        /// (a) Requests per second, or (b) those of a class.
        #[default] RequestRate = "request-rate",
        /// (a) Connections accepted per second.
        ConnectionRate = "connection-rate",
        /// (c) Response times, or (d) those of a class.
        ResponseTime = "response-time",
        /// (e) Open connections.
        Connections = "connections",
        /// (f) Concurrent sessions.
        Sessions = "sessions",
        /// (g) A figure of a host.
        Host = "host",
        /// (h) A figure that another application sends.
        Signal = "signal",
    }

    /// What a rule does with the requests it applies to: the policies of WAC 3.2.
    pub enum Then {
        /// Refuse them: (a) to (d).
        #[default] Refuse = "refuse",
        /// Refuse those beyond a rate.
        Limit = "limit",
        /// Send one of several equal requests to the origin and its answer to all: (e).
        Multicast = "multicast",
        /// Ask an application: (f).
        Ask = "ask",
        Room = "room",
        /// Serve a lighter URL instead.
        Reroute = "reroute",
        /// Nothing: a tunable has another value.
        Set = "set",
    }

    /// To whose requests a rule applies.
    pub enum Visitors {
        #[default] All = "all",
        /// Those that would begin a session.
        New = "new",
    }

    /// How a refusal is carried out: WAC 3.3.
    pub enum How {
        /// An answer for programs: (a).
        #[default] Answer = "answer",
        /// A lighter URL: (b).
        Lighter = "lighter",
        /// The "overloaded" page: (c).
        Page = "page",
        /// The connection is closed without an answer: (d).
        Close = "close",
        /// The connection is reset without an answer: (d).
        Reset = "reset",
        /// The connection ends after the responses under way: (e).
        End = "end",
        /// The responses under way are cut off: (f).
        Stop = "stop",
    }
}

/// Of whose requests a rule decides, beside all other conditions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Share {
    /// Of this share of the visitors.
    Portion(f64),
    /// Of as many as are too many by the detectors in the conditions.
    Level,
    /// Of all. Of "multicast": whatever cookies they have.
    IgnoreCookies,
}

struct ShareOrCookies;

impl ShareOrCookies {
    const WORDS: [(&'static str, Share); 2] =
        [("level", Share::Level), ("ignore-cookies", Share::IgnoreCookies)];
}

impl Leaf<Share> for ShareOrCookies {
    fn parse(&self, value: &Value) -> Result<Share, Option<String>> {
        if let Value::Text(text) = value {
            if let Some((_, share)) = Self::WORDS.iter().find(|(word, _)| word == text) {
                return Ok(*share);
            }
            let guess = || did_you_mean(text, Self::WORDS.iter().map(|(word, _)| *word));
            return Portion.parse(value).map(Share::Portion).map_err(|hint| hint.or_else(guess));
        }
        Portion.parse(value).map(Share::Portion)
    }

    fn expected(&self) -> String {
        let words = Self::WORDS.map(|(word, _)| format!("\"{word}\""));
        format!("{}, {}", Leaf::expected(&Portion), words.join(" or "))
    }

    fn show(&self, value: &Share) -> String {
        match value {
            Share::Portion(share) => Portion.show(share),
            other => {
                let word = Self::WORDS.iter().find(|(_, share)| share == other).map(|(word, _)| *word);
                toml_string(word.unwrap_or_default())
            }
        }
    }

    fn schema(&self) -> serde_json::Value {
        let words = Self::WORDS.map(|(word, _)| word).join("|");
        let pattern = format!("%$|^({words})$");
        serde_json::json!({ "type": ["number", "string"], "minimum": 0, "maximum": 1, "pattern": pattern })
    }
}

/// The name of a tunable. Which ones there are depends on the other sections.
const TUNABLE_NAME: Text = text("the name of a tunable, or \"\"", |s| {
    if s.len() <= 512 && !s.chars().any(char::is_control) { Ok(()) } else { Err(None) }
});

/// A value of any key, kept as TOML.
struct AnyValue;

impl Leaf<String> for AnyValue {
    fn parse(&self, value: &Value) -> Result<String, Option<String>> {
        match value {
            Value::Text(text) if text.is_empty() => Ok(String::new()),
            Value::Text(text) => Ok(toml_string(text)),
            Value::Integer(n) => Ok(n.to_string()),
            Value::Float(x) if x.is_finite() => Ok(format!("{x:?}")),
            Value::Boolean(b) => Ok(b.to_string()),
            Value::List(items) => {
                let one = |item: &Node| match &item.value {
                    Value::List(_) => Err(None),
                    value => self.parse(value),
                };
                let items: Result<Vec<_>, _> = items.iter().map(one).collect();
                Ok(format!("[{}]", items?.join(", ")))
            }
            Value::Float(_) | Value::Other(_) | Value::Table(_) => Err(None),
        }
    }

    fn expected(&self) -> String {
        "a value, or a factor like \"0.5x\"".into()
    }

    fn show(&self, value: &String) -> String {
        if value.is_empty() { toml_string("") } else { value.clone() }
    }
}

/// A figure follows no load faster than the control tick looks.
const TICK: Duration = Duration::from_millis(100);

/// Fields that a shared answer needs to be read as what it is, and those of the connection.
const NOT_STRIPPED: [&str; 7] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "location",
    "transfer-encoding",
];

impl Named for OnUnknown {
    const NAMES: &'static [(&'static str, Self)] =
        &[("ignore", Self::Ignore), ("hold", Self::Hold), ("apply", Self::Apply)];
}

/// The name of a detector. Conditions use it as a field of CEL.
const DETECTOR_NAME: Text =
    text("a name of 1 to 64 letters, digits and \"_\", beginning with a letter", |s| {
        let fine = |s: &str| {
            let inside = s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            s.starts_with(|c: char| c.is_ascii_alphabetic()) && s.len() <= 64 && inside && !is_cel_word(s)
        };
        let other = s.replace('-', "_");
        if fine(s) { Ok(()) } else { Err(fine(&other).then(|| format!("Write \"{other}\"?"))) }
    });

/// Words of CEL that cannot name a field.
const CEL_WORDS: &str = "true false null in as break const continue else for function if import let loop package namespace \
                         return var void while";

fn is_cel_word(s: &str) -> bool {
    CEL_WORDS.split_ascii_whitespace().any(|word| word == s)
}

/// Where a host's figures come from.
const SOURCE: Text = text("\"\" (this host), or a URL like \"http://10.0.0.5:9100/metrics\"", |s| {
    let fine = |rest: &str| {
        let uri = format!("http://{rest}").parse::<http::Uri>();
        uri.is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty())) && !rest.contains(['@', '#'])
    };
    match s.strip_prefix("http://").or_else(|| s.strip_prefix("https://")) {
        Some(rest) if fine(rest) && s.len() <= 1024 => Ok(()),
        None if s.is_empty() => Ok(()),
        None => Err((!s.contains("://") && fine(s)).then(|| format!("Write \"http://{s}\"?"))),
        Some(_) => Err(None),
    }
});

/// The name of a figure. Which ones there are depends on the detector.
const FIGURE: Text = text("the name of a figure, or \"\"", |s| {
    if s.len() <= 512 && !s.chars().any(char::is_control) { Ok(()) } else { Err(None) }
});

/// A condition. It is parsed later, when all detectors are known.
const CONDITION: Text =
    text("a condition in CEL like `levels.cpu == \"red\"`, or \"\"", |s| match s.len() <= MAX_CONDITION {
        true => Ok(()),
        false => Err(Some(format!("At most {MAX_CONDITION} bytes."))),
    });

section! {
    /// Detectors: what may be congested (docs/rules.md). Each has a level: green, orange, red or unknown.
    pub struct Detector [tunable] {
        /// Its name in rules, metrics and the API.
        [fixed] name: String = String::new() => DETECTOR_NAME;
        /// What it measures: requests per second ("request-rate", of all or of `class`), connections accepted
        /// per second ("connection-rate"), response times in seconds ("response-time", of all or of `class`),
        /// open connections, sessions, a figure of a host, or a figure that another application sends (`PUT
        /// /v1/signals/NAME`).
        [fixed] kind: Watched = Watched::RequestRate => Choice;
        /// Of "request-rate" and "response-time": only this class; empty: all classes.
        [fixed] class: String = String::new() => CLASS_OR_NONE;
        /// Of "response-time": "mean", "deviation", or a percentile like "p95". Of "host": "cpu", "memory"
        /// (shares, 0 to 1) or "load" (per processor); of a `source` in Prometheus's text form also any
        /// metric, like `node_filesystem_avail_bytes{mountpoint="/"}` (series that match are added up; a
        /// `_total` is taken per second); of a `source` in JSON a pointer, like "/workers/busy". Empty: "p95"
        /// or "cpu".
        [fixed] figure: String = String::new() => FIGURE;
        /// Of "host": the source of its figures: this host, a node_exporter, or any URL that answers JSON.
        [fixed] source: String = String::new() => SOURCE;
        /// Of "host": time between two readings of the source. With more than a second, what loads the figure
        /// is found later (docs/correlation.md).
        [fixed] every: Duration = secs(1) => span(100, HOUR);
        /// Of "host": how long an answer of the source may take.
        [fixed] timeout: Duration = secs(1) => span(10, 30 * S);
        /// Of "host", "signal" and "response-time": how long the last figure is valid; after that the level
        /// is unknown.
        time_to_live: Duration = secs(15) => span(100, DAY);
        /// Time constant of the average: a figure of that age counts 1/e of a new one. Not of "signal".
        period: Duration = secs(2) => span_or_zero(100, HOUR);
        /// The level is orange from this figure on; 0: never.
        orange: f64 = 0.0 => Number(0.0..=MAX_FIGURE);
        /// The level is red from this figure on. If it is below `orange`, lower figures are worse. With
        /// `adaptive`: upper bound of the learned threshold; 0: no bound. A "signal" without `orange` and
        /// `red` is orange from 0.5 and red from 1 on.
        red: f64 = 0.0 => Number(0.0..=MAX_FIGURE);
        /// The level falls when the figure is this much below the threshold, as a share of the threshold, for
        /// the time `calm`.
        hysteresis: f64 = 0.1 => Portion;
        /// How long the figure must be below the threshold before the level falls.
        calm: Duration = secs(5) => span_or_zero(100, HOUR);
        /// The threshold is learned: red is the smoothed mean plus this many deviations (TCP: 4), orange half
        /// as far; 0: the threshold is given. Nothing is learned while the level is red.
        adaptive: f64 = 0.0 => Number(0.0..=100.0);
        /// Time constant of the learned threshold. There is no threshold in the first eighth of this time.
        learn: Duration = secs(600) => span(S, 30 * DAY);
        /// Lower bound of the learned threshold.
        floor: f64 = 0.0 => Number(0.0..=MAX_FIGURE);
        /// The figure is checked once in so many events (requests, connections, sessions or readings), and
        /// once a second.
        sample: u32 = 1 => Count(1..=1_000_000);
        /// The figure is checked at most so many times a second, whatever the load; 0: as `sample` says.
        checks_per_second: f64 = 0.0 => Number(0.0..=10.0);
    }

    /// Rules: what is done with which requests, and when (docs/rules.md). Of the rules in force, the one with
    /// the highest priority is applied first; among equals, the first in the file.
    pub struct Rule [tunable] {
        /// Its name in metrics, logs and the API.
        [fixed] name: String = String::new() => NAME;
        /// The condition in CEL, over `levels`, `figures` and `time`.
        when: String = String::new() => CONDITION;
        /// The rule ends when this holds and `when` does not; empty: when `when` does not hold.
        until: String = String::new() => CONDITION;
        /// Least time for which the rule is in force.
        hold: Duration = secs(5) => span_or_zero(100, DAY);
        /// What is done: "refuse", "limit" (requests beyond `rate` are refused), "multicast" (one request per
        /// URL and `period` goes to the origin, its answer to all who asked), "ask" (an application decides),
        /// "room" (to the waiting room), "reroute" (a lighter URL instead) or "set" (nothing is done with
        /// requests: a tunable has another value while the rule is in force).
        [fixed] then: Then = Then::Refuse => Choice;
        /// Whose requests: of all visitors ("all"), or only requests that would begin a session ("new"). With
        /// room.unit = "request" there are no sessions and all requests are new.
        [fixed] visitors: Visitors = Visitors::All => Choice;
        /// Only requests of these classes; empty: of all.
        [fixed] class: Vec<String> = Vec::new() => List(CLASS_NAME);
        /// Only these URLs; empty: all.
        [fixed] urls: Vec<String> = Vec::new() => List(PATH_GLOB);
        /// Never these URLs.
        [fixed] except: Vec<String> = Vec::new() => List(PATH_GLOB);
        /// Never visitors of these service levels.
        [fixed] spare: Vec<String> = Vec::new() => List(NAME);
        /// Only this share of the visitors, always the same ones: chosen by their session, or else by their
        /// address. "level": the share by which the detectors in the condition exceed red, so that their
        /// figures come to rest there (docs/rules.md). Of "multicast" also "ignore-cookies": answers are
        /// shared whatever cookies a visitor has. The shared request is sent without cookies, and `strip` is
        /// removed from its answer.
        share: Share = Share::Portion(1.0) => ShareOrCookies;
        /// Of `share = "ignore-cookies"`: the fields that are removed from a shared answer. With
        /// "cache-control" among them, answers that say `private` or `no-store` are shared too.
        strip: Vec<String> = vec!["set-cookie".into()] => List(FIELD_NAME);
        /// Of "multicast": how long an answer is given to others.
        period: Duration = secs(1) => span(100, HOUR);
        /// Of "ask": the application.
        [fixed] application: String = String::new() => NAME_OR_NONE;
        /// Of "reroute", and of `action = "lighter"`: the lighter URL.
        [fixed] to: String = String::new() => NAME_OR_NONE;
        /// Of "set": the tunable, like `class.search.ingress.rate` (`tidegate ctl get` lists them).
        [fixed] set: String = String::new() => TUNABLE_NAME;
        /// Of "set": its value while the rule is in force; for a number also a factor of the file's value,
        /// like "0.5x". Afterwards it is what it was, unless somebody has changed it meanwhile.
        [fixed] value: String = String::new() => AnyValue;
        /// Of "limit": cost units per second.
        rate: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
        /// How a refusal is carried out: "answer" (for programs), "lighter" (a lighter URL), "page" (the
        /// "overloaded" page), "close" or "reset" (the connection, without an answer), "end" (the connection,
        /// after the responses under way), "stop" (the responses under way are cut off).
        [fixed] action: How = How::Answer => Choice;
        /// The status of "answer" and "page".
        status: u16 = 503 => Count(400..=599);
        /// Higher is applied first.
        priority: u8 = 100 => Count(0..=255);
        /// What an unknown condition means: "ignore" (it does not hold), "hold" (the rule stays as it is) or
        /// "apply" (the worst is assumed).
        unknown: OnUnknown = OnUnknown::Ignore => Choice;
        /// Off: the rule is never in force.
        enabled: bool = true => Flag;
        /// Decisions are made and counted, but not carried out.
        shadow: bool = false => Flag;
    }
}

impl Detector {
    /// Whether another of the same name measures the same, so that what was measured is valid for both.
    pub fn measures_as(&self, other: &Self) -> bool {
        let what = |one: &Self| {
            (one.name.clone(), one.kind, one.class.clone(), one.figure.clone(), one.source.clone())
        };
        what(self) == what(other)
    }

    /// Whether its source is asked as another's: for the same, as often, and as long.
    pub fn asks_as(&self, other: &Self) -> bool {
        self.measures_as(other) && (self.every, self.timeout) == (other.every, other.timeout)
    }

    /// The figure of response times; `None`: there is no such figure.
    pub fn statistic(&self) -> Option<Statistic> {
        match self.figure.as_str() {
            "" => Some(Statistic::Quantile(0.95)),
            "mean" => Some(Statistic::Mean),
            "deviation" => Some(Statistic::Deviation),
            other => {
                let digits =
                    other.strip_prefix('p').filter(|p| p.bytes().all(|b| b.is_ascii_digit() || b == b'.'))?;
                let percent: f64 = digits.parse().ok()?;
                (percent > 0.0 && percent < 100.0).then_some(Statistic::Quantile(percent / 100.0))
            }
        }
    }

    /// What it measures, given its own id and the names of the classes by id.
    pub fn criterion(&self, id: SourceId, classes: &[&str]) -> Criterion {
        // Unknown names were already rejected by the settings check; no class has the id used for them.
        let class_id = || classes.iter().position(|name| *name == self.class).map_or(u8::MAX, |at| at as u8);
        let class = (!self.class.is_empty()).then(|| ClassId(class_id()));
        match self.kind {
            Watched::RequestRate => {
                class.map_or(Criterion::RequestRate(Counted::Requests), Criterion::ClassRate)
            }
            Watched::ConnectionRate => Criterion::RequestRate(Counted::Connections),
            Watched::ResponseTime => {
                Criterion::ResponseTime(class, self.statistic().unwrap_or(Statistic::Mean))
            }
            Watched::Connections => Criterion::Connections,
            Watched::Sessions => Criterion::Sessions,
            Watched::Host => Criterion::Host(id),
            Watched::Signal => Criterion::Signal(id),
        }
    }

    /// Whether a rule may refuse the part of the requests by which it is exceeded. A response time tells too
    /// late: it rises with the work that waits, and goes on rising after too much has been let in.
    pub fn can_be_followed(&self) -> bool {
        self.kind != Watched::ResponseTime
    }

    /// How its figure reacts to refusals. The figure follows the load after its averaging, the reading of its
    /// source, and whatever else `calm` is set to: how long open sessions take to end, for example.
    pub fn excess(&self) -> ExcessConfig {
        let reading = if self.kind == Watched::Host { self.every } else { Duration::ZERO };
        let lag = (self.period + reading).max(self.calm).max(TICK);
        let is_told = matches!(self.kind, Watched::RequestRate | Watched::ConnectionRate | Watched::Signal);
        ExcessConfig { feels_refusals: !is_told, time: 4 * lag }
    }

    /// How it measures and judges.
    pub fn common(&self) -> Common {
        let some = |threshold: f64| Some(threshold).filter(|threshold| *threshold > 0.0);
        let limit = if self.adaptive > 0.0 {
            Limit::Adaptive(AdaptiveConfig {
                k: self.adaptive,
                learn: self.learn,
                floor: self.floor,
                ceiling: some(self.red).unwrap_or(f64::INFINITY),
            })
        } else if self.kind == Watched::Signal && self.red == 0.0 {
            Limit::Fixed { orange: Some(0.5), red: 1.0 }
        } else {
            Limit::Fixed { orange: some(self.orange), red: self.red }
        };
        // The application's word counts at once: neither hysteresis nor calm.
        let is_command = self.kind == Watched::Signal;
        Common {
            period: self.period,
            sampling: match some(self.checks_per_second) {
                Some(most) => Sampling::PerSecond(most),
                None => Sampling::OneIn(self.sample),
            },
            judge: JudgeConfig {
                limit,
                hysteresis: if is_command { 0.0 } else { self.hysteresis },
                calm: if is_command { Duration::ZERO } else { self.calm },
            },
            time_to_live: self.time_to_live,
        }
    }
}

impl Settings {
    /// The value, as TOML, that a rule with `then = "set"` sets its tunable to. These are the settings of the
    /// file: a factor is of their value.
    ///
    /// # Errors
    /// All mistakes, in the words of those of a file.
    pub fn value_by_rule(&self, rule: &Rule) -> Result<String, Vec<Mistake>> {
        let key = rule.set.as_str();
        let tried = |value: &str| self.tuned_anew(&[(key, value)]);
        let Some(factor) = factor_of(&rule.value) else {
            let (_, applied) = tried(&rule.value)?;
            return Ok(applied.into_iter().map(|applied| applied.new).collect());
        };
        let Some(tunable) = self.tunable(key) else {
            return tried(&rule.value).map(|_| String::new());
        };
        let kind = &tunable.schema["type"];
        let is_number = |kind: &serde_json::Value| kind == "number";
        let takes_numbers = is_number(kind)
            || kind == "integer"
            || kind.as_array().is_some_and(|kinds| kinds.iter().any(is_number));
        let base = tunable.value.parse::<f64>().ok().filter(|_| takes_numbers);
        let Some(base) = base else {
            let expected = format!("{} (a factor is of a number)", tunable.expected);
            return Err(unplaced(vec![Found::new(None, key, expected, rule.value.clone())]));
        };
        let exact = base * factor;
        let whole = || tried(&format!("{:.0}", exact.round()));
        let (_, applied) = if exact.fract() == 0.0 {
            whole()?
        } else {
            tried(&format!("{exact:?}")).or_else(|mistakes| whole().map_err(|_| mistakes))?
        };
        Ok(applied.into_iter().map(|applied| applied.new).collect())
    }

    /// The service level of this name. Id 0 is the level `default`, which is not in the list.
    pub fn tier_id(&self, name: &str) -> Option<TierId> {
        let at = self.tier.iter().position(|known| known.name == name)?;
        u8::try_from(at + 1).ok().map(TierId)
    }
}

/// Reports what detectors and rules name that does not exist, and keys that contradict each other; not what
/// is in conditions.
pub(crate) fn check(settings: &Settings, out: &mut Reader) {
    out.check_names("detector", &settings.item_names("detector"));
    out.check_names("rule", &settings.item_names("rule"));
    for (i, detector) in settings.detector.iter().enumerate() {
        check_detector(settings, detector, &item_path("detector", &detector.name, i), out);
    }
    for (i, rule) in settings.rule.iter().enumerate() {
        check_rule(settings, rule, &item_path("rule", &rule.name, i), out);
    }
}

/// Reports what rules set that is no tunable, or a value that it does not take.
pub(crate) fn check_sets(settings: &Settings, out: &mut Reader) {
    for (i, rule) in settings.rule.iter().enumerate().filter(|(_, rule)| rule.then == Then::Set) {
        let key = |name: &str| format!("{}.{name}", item_path("rule", &rule.name, i));
        let own = format!("rule.{}.", rule.name);
        if rule.set.is_empty() || rule.value.is_empty() {
            let name = if rule.set.is_empty() { "set" } else { "value" };
            let expected = format!("a `{name}` (then = \"set\" needs it)");
            out.conflict(&key(name), expected, "none", None);
        } else if rule.set.starts_with(&own) {
            let expected = "the name of a tunable of something else than this rule";
            out.conflict(&key("set"), expected, format!("\"{}\"", rule.set), None);
        } else if let Err(mistakes) = settings.value_by_rule(rule) {
            let is_known = settings.value_of(&rule.set).is_some();
            for Mistake { expected, got, hint, .. } in mistakes {
                out.conflict(&key(if is_known { "value" } else { "set" }), expected, got, hint);
            }
        }
        if out.found.len() >= MAX_MISTAKES {
            return;
        }
    }
}

/// The factor of "0.5x", as TOML; `None`: it is another value.
fn factor_of(toml: &str) -> Option<f64> {
    let factor: f64 = toml.strip_prefix('"')?.strip_suffix("x\"")?.trim_end().parse().ok()?;
    (factor.is_finite() && factor >= 0.0).then_some(factor)
}

/// Reports mistakes in conditions. They take longer to parse than all other checks together, so this is done
/// only where a condition may have changed.
pub(crate) fn check_conditions(settings: &Settings, out: &mut Reader) {
    let detectors = settings.item_names("detector");
    for (i, rule) in settings.rule.iter().enumerate() {
        let path = item_path("rule", &rule.name, i);
        let mut follows = false;
        for (key, text) in [("when", &rule.when), ("until", &rule.until)] {
            if text.is_empty() {
                continue;
            }
            match Condition::compile(text, &detectors) {
                Ok(condition) => {
                    let mut named = condition.detectors.iter().map(|at| &settings.detector[*at]);
                    follows |= named.any(Detector::can_be_followed);
                }
                Err(wrong) => out.conflict(&format!("{path}.{key}"), wrong.expected, wrong.got, wrong.hint),
            }
            if out.found.len() >= MAX_MISTAKES {
                return;
            }
        }
        if rule.share == Share::Level && !follows {
            let expected = "a condition that names a detector which `share = \"level\"` can follow: any but a \"response-time\"";
            out.conflict(&format!("{path}.when"), expected, "none", None);
        }
    }
}

fn check_detector(settings: &Settings, detector: &Detector, path: &str, out: &mut Reader) {
    let kind = detector.kind;
    let key = |name: &str| format!("{path}.{name}");
    if GateFigure::named(&detector.name).is_some() {
        let expected = "a name that no figure of the gate has (docs/rules.md lists them)";
        out.conflict(&key("name"), expected, format!("\"{}\"", detector.name), None);
    }
    if !matches!(kind, Watched::RequestRate | Watched::ResponseTime) {
        out.only_with(path, "class", "kind \"request-rate\" or \"response-time\"");
    } else if !detector.class.is_empty() {
        out.check_reference(&key("class"), &detector.class, "class", &settings.class_names());
    }
    if kind != Watched::Host {
        ["source", "every", "timeout"].iter().for_each(|key| out.only_with(path, key, "kind \"host\""));
    }
    check_figure(detector, path, out);
    if detector.adaptive > 0.0 {
        if out.has(&key("orange")) {
            let expected = "no `orange` beside `adaptive` (it is learned with red)";
            out.conflict(&key("orange"), expected, "one", None);
        }
        if detector.red > 0.0 && detector.floor > detector.red {
            let got = format!("a floor of {} above a red of {}", detector.floor, detector.red);
            out.conflict(&key("floor"), "at most `red`", got, None);
        }
        return;
    }
    ["learn", "floor"].iter().for_each(|key| out.only_with(path, key, "`adaptive`"));
    if detector.red == 0.0 && (kind != Watched::Signal || detector.orange > 0.0) {
        let hint = "Write red = NUMBER, or adaptive = 4.".to_owned();
        out.conflict(&key("red"), "a threshold above 0", "none", Some(hint));
    }
}

fn check_figure(detector: &Detector, path: &str, out: &mut Reader) {
    const OF_RESPONSES: [&str; 5] = ["mean", "deviation", "p50", "p95", "p99"];
    const OF_THIS_HOST: [&str; 3] = ["cpu", "memory", "load"];
    let figure = detector.figure.as_str();
    let guess = |names: &[&str]| did_you_mean(figure, names.iter().copied());
    let (expected, hint) = match detector.kind {
        _ if figure.is_empty() => return,
        Watched::ResponseTime if detector.statistic().is_none() => {
            ("\"mean\", \"deviation\" or a percentile like \"p95\"", guess(&OF_RESPONSES))
        }
        Watched::Host if detector.source.is_empty() && !OF_THIS_HOST.contains(&figure) => {
            ("\"cpu\", \"memory\" or \"load\" (this host has no others)", guess(&OF_THIS_HOST))
        }
        Watched::Host
            if !detector.source.is_empty()
                && !figure.starts_with('/')
                && Pattern::parse(figure).is_none() =>
        {
            ("a metric like `node_load1` or `name{label=\"value\"}`, or a JSON pointer like \"/load\"", None)
        }
        Watched::ResponseTime | Watched::Host => return,
        _ => return out.only_with(path, "figure", "kind \"response-time\" or \"host\""),
    };
    out.conflict(&format!("{path}.figure"), expected, format!("\"{figure}\""), hint);
}

fn check_rule(settings: &Settings, rule: &Rule, path: &str, out: &mut Reader) {
    let key = |name: &str| format!("{path}.{name}");
    if rule.when.is_empty() {
        let is_written = out.has(&key("when"));
        let hint = (!is_written).then(|| "Write when = \"true\" for a rule that always holds.".to_owned());
        out.conflict(&key("when"), "a condition", if is_written { "\"\"" } else { "nothing" }, hint);
    }
    let references = [
        ("class", "class", &rule.class, settings.class_names()),
        ("spare", "tier", &rule.spare, settings.item_names("tier")),
    ];
    for (name, list, wanted, known) in references {
        for (i, wanted) in wanted.iter().enumerate() {
            out.check_reference(&out.element(&key(name), i), wanted, list, &known);
        }
    }
    if rule.then == Then::Limit && rule.rate == 0.0 {
        out.conflict(&key("rate"), "a rate above 0 (then = \"limit\" needs it)", "none", None);
    }
    if rule.then == Then::Room && !settings.room.enabled {
        let expected = "another policy (there is no waiting room: `room.enabled` is false)";
        out.conflict(&key("then"), expected, "\"room\"", None);
    }
    let refuses = matches!(rule.then, Then::Refuse | Then::Limit | Then::Ask);
    if rule.share == Share::Level && matches!(rule.action, How::End | How::Stop) {
        // With every change of the share, connections of other visitors would end.
        let expected = "an action that refuses requests (`share = \"level\"` changes all the time)";
        let word = if rule.action == How::End { "\"end\"" } else { "\"stop\"" };
        out.conflict(&key("action"), expected, word, None);
    }
    if rule.then == Then::Reroute || (refuses && rule.action == How::Lighter) {
        out.check_reference(&key("to"), &rule.to, "lighter", &settings.item_names("lighter"));
    } else {
        out.only_with(path, "to", "then = \"reroute\" or action = \"lighter\"");
    }
    if rule.then == Then::Ask {
        let known = settings.item_names("application");
        out.check_reference(&key("application"), &rule.application, "application", &known);
    } else {
        out.only_with(path, "application", "then = \"ask\"");
    }
    if rule.then != Then::Limit {
        out.only_with(path, "rate", "then = \"limit\"");
    }
    let of_requests = ["visitors", "class", "urls", "except", "spare", "share"];
    match rule.then {
        Then::Set => of_requests.iter().for_each(|key| out.only_with(path, key, "a policy for requests")),
        _ => ["set", "value"].iter().for_each(|key| out.only_with(path, key, "then = \"set\"")),
    }
    if rule.then != Then::Multicast {
        out.only_with(path, "period", "then = \"multicast\"");
        if rule.share == Share::IgnoreCookies {
            let expected = "a share (\"ignore-cookies\" is of then = \"multicast\")";
            out.conflict(&key("share"), expected, "\"ignore-cookies\"", None);
        }
    }
    if rule.share != Share::IgnoreCookies {
        out.only_with(path, "strip", "share = \"ignore-cookies\"");
    }
    for (i, field) in rule.strip.iter().enumerate().filter(|(_, one)| NOT_STRIPPED.contains(&one.as_str())) {
        let expected = "a field without which the answer can still be read";
        out.conflict(&out.element(&key("strip"), i), expected, format!("\"{field}\""), None);
    }
    if !refuses {
        out.only_with(path, "action", "a policy that refuses");
    }
    if !refuses || !matches!(rule.action, How::Answer | How::Page) {
        out.only_with(path, "status", "action = \"answer\" or \"page\"");
    }
}
