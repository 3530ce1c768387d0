//! `[[detector]]` and `[[rule]]`: what may be congested, and what follows (docs/rules.md).

use std::time::Duration;

use tidegate_core::detect::{
    AdaptiveConfig, Common, Counted, Criterion, JudgeConfig, Limit, MAX_FIGURE, Sampling, SourceId, Statistic,
};
use tidegate_core::rules::OnUnknown;
use tidegate_core::units::{ClassId, Rate};

use super::declare::{Block, Key, Kind, Section, Tune, join};
use super::kinds::net::{ANY_CLASS_NAME, NAME, PATH_GLOB, Text, text};
use super::kinds::quantity::{Count, Number, Portion, span, span_or_zero};
use super::kinds::{Choice, Flag, List, Named};
use super::read::Reader;
use super::tree::{Node, Table};

const S: u64 = 1_000;
const HOUR: u64 = 3_600 * S;
const DAY: u64 = 24 * HOUR;

const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Longest condition, in bytes: what a person writes and reads is shorter, and parsing is bounded.
pub const MAX_CONDITION: usize = 2_000;

/// What a detector looks at: the criteria of WAC 3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Watched {
    /// (a) Requests per second, or (b) those of a class.
    #[default]
    RequestRate,
    /// (a) Connections accepted per second.
    ConnectionRate,
    /// (c) Response times, or (d) those of a class.
    ResponseTime,
    /// (e) Open connections.
    Connections,
    /// (f) Concurrent sessions.
    Sessions,
    /// (g) A figure of a host.
    Host,
    /// (h) What another application says.
    Signal,
}

impl Named for Watched {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("request-rate", Self::RequestRate),
        ("connection-rate", Self::ConnectionRate),
        ("response-time", Self::ResponseTime),
        ("connections", Self::Connections),
        ("sessions", Self::Sessions),
        ("host", Self::Host),
        ("signal", Self::Signal),
    ];
}

/// What a rule does with the requests it is for: the policies of WAC 3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Then {
    /// (a) to (d).
    #[default]
    Refuse,
    /// Beyond a rate.
    Limit,
    /// (e)
    Multicast,
    /// (f)
    Ask,
    /// To the waiting room.
    Room,
    /// A lighter URL.
    Reroute,
}

impl Named for Then {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("refuse", Self::Refuse),
        ("limit", Self::Limit),
        ("multicast", Self::Multicast),
        ("ask", Self::Ask),
        ("room", Self::Room),
        ("reroute", Self::Reroute),
    ];
}

/// Whose requests a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Visitors {
    /// Everybody's.
    #[default]
    All,
    /// Those that would begin a session.
    New,
}

impl Named for Visitors {
    const NAMES: &'static [(&'static str, Self)] = &[("all", Self::All), ("new", Self::New)];
}

/// How a refusal is carried out: WAC 3.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum How {
    /// (a)
    #[default]
    Answer,
    /// (b)
    Lighter,
    /// (c)
    Page,
    /// (d)
    Close,
    /// (d)
    Reset,
    /// (e)
    End,
    /// (f)
    Stop,
}

impl Named for How {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("answer", Self::Answer),
        ("lighter", Self::Lighter),
        ("page", Self::Page),
        ("close", Self::Close),
        ("reset", Self::Reset),
        ("end", Self::End),
        ("stop", Self::Stop),
    ];
}

impl Named for OnUnknown {
    const NAMES: &'static [(&'static str, Self)] =
        &[("ignore", Self::Ignore), ("hold", Self::Hold), ("apply", Self::Apply)];
}

/// The name of a detector, which stands in conditions.
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
fn is_cel_word(s: &str) -> bool {
    matches!(
        s,
        "true"
            | "false"
            | "null"
            | "in"
            | "as"
            | "break"
            | "const"
            | "continue"
            | "else"
            | "for"
            | "function"
            | "if"
            | "import"
            | "let"
            | "loop"
            | "package"
            | "namespace"
            | "return"
            | "var"
            | "void"
            | "while"
    )
}

/// Where a host's figures come from.
const SOURCE: Text = text("\"\" (this host), or a URL like \"http://10.0.0.5:9100/metrics\"", |s| {
    let fine = |rest: &str| {
        let uri = format!("http://{rest}").parse::<http::Uri>();
        uri.is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty())) && !rest.contains(['@', '#'])
    };
    match s.strip_prefix("http://") {
        Some(rest) if fine(rest) && s.len() <= 1024 => Ok(()),
        None if s.is_empty() => Ok(()),
        None if s.starts_with("https://") => Err(Some("Figures are fetched over plain HTTP only.".into())),
        None => Err((!s.contains("://") && fine(s)).then(|| format!("Write \"http://{s}\"?"))),
        Some(_) => Err(None),
    }
});

/// The name of a figure; which ones there are depends on the detector.
const FIGURE: Text = text("the name of a figure, or \"\"", |s| {
    if s.len() <= 512 && !s.chars().any(char::is_control) { Ok(()) } else { Err(None) }
});

/// A condition; what is in it is checked when all detectors are known.
const CONDITION: Text =
    text("a condition in CEL like `levels.cpu == \"red\"`, or \"\"", |s| match s.len() <= MAX_CONDITION {
        true => Ok(()),
        false => Err(Some(format!("At most {MAX_CONDITION} bytes."))),
    });

/// A name of something configured elsewhere.
const REFERENCE: Text = text("a name, or \"\"", |s| if s.is_empty() { Ok(()) } else { (NAME.check)(s) });

const CLASS: Text =
    text("the name of a class, or \"\"", |s| if s.is_empty() { Ok(()) } else { (ANY_CLASS_NAME.check)(s) });

section! {
    /// Detectors: what may be congested (docs/rules.md). Each has a level: green, orange, red or unknown.
    pub struct Detector {
        /// Its name in rules, metrics and the API.
        name: String = String::new() => DETECTOR_NAME;
        /// What it looks at: requests per second ("request-rate", of all or of `class`), connections accepted per second
        /// ("connection-rate"), response times in seconds ("response-time", of all or of `class`), open connections, sessions, a
        /// figure of a host, or what another application says (`PUT /v1/signals/NAME`).
        kind: Watched = Watched::RequestRate => Choice;
        /// Of "request-rate" and "response-time": only this class; empty: all.
        class: String = String::new() => CLASS;
        /// Of "response-time": "mean", "deviation", or a percentile like "p95". Of "host": "cpu", "memory" (shares, 0 to 1) or
        /// "load" (per processor); of a `source` in Prometheus's text form also any metric, like
        /// `node_filesystem_avail_bytes{mountpoint="/"}` (series that match are added up; a `_total` is taken per second); of a
        /// `source` in JSON a pointer, like "/workers/busy". Empty: "p95", or "cpu".
        figure: String = String::new() => FIGURE;
        /// Of "host": where its figures come from: this host, a node_exporter, or any URL that answers JSON.
        source: String = String::new() => SOURCE;
        /// Of "host": between two looks at the source.
        every: Duration = secs(2) => span(100, HOUR);
        /// Of "host": how long an answer of the source may take.
        timeout: Duration = secs(1) => span(10, 30 * S);
        /// Of "host", "signal" and "response-time": how long what was said last holds; after that the level is unknown.
        time_to_live: Duration = secs(15) => span(100, DAY);
        /// Over which the past fades: what is that old counts 1/e of what is new. Not of "signal".
        period: Duration = secs(2) => span_or_zero(100, HOUR);
        /// From here on it is orange; 0: never.
        orange: f64 = 0.0 => Number(0.0..=MAX_FIGURE);
        /// From here on it is red. Below `orange`: less is worse. With `adaptive`: red is never above; 0: no bound. A "signal"
        /// without either is orange from 0.5 and red from 1 on.
        red: f64 = 0.0 => Number(0.0..=MAX_FIGURE);
        /// A level is left when the figure is this much below its threshold, as a share of it,
        hysteresis: f64 = 0.1 => Portion;
        /// and has been for so long.
        calm: Duration = secs(5) => span_or_zero(100, HOUR);
        /// The threshold is learned: red is the smoothed mean and so many deviations (TCP: 4), orange half as far; 0: it is
        /// given. While it is red nothing is learned.
        adaptive: f64 = 0.0 => Number(0.0..=100.0);
        /// Over which the past fades for the learned threshold; there is none before an eighth of it has been seen.
        learn: Duration = secs(600) => span(S, 30 * DAY);
        /// A learned red is never below.
        floor: f64 = 0.0 => Number(0.0..=MAX_FIGURE);
        /// The figure is checked once in so many events of its kind (requests, connections, sessions, readings), and once a
        /// second.
        sample: u32 = 1 => Count(1..=1_000_000);
        /// Instead: at most so many times a second, whatever the load; 0: `sample` says.
        checks_per_second: f64 = 0.0 => Number(0.0..=10.0);
    }
}

section! {
    /// Rules: what is done with which requests, and when (docs/rules.md). Of the rules in force the one with the highest
    /// priority comes first, of equals the first in the file.
    pub struct Rule [tunable] {
        /// Its name in metrics, logs and the API.
        [fixed] name: String = String::new() => NAME;
        /// The condition in CEL, over `levels`, `figures` and `time`.
        [fixed] when: String = String::new() => CONDITION;
        /// It ends when this holds and `when` does not; empty: when `when` does not hold.
        [fixed] until: String = String::new() => CONDITION;
        /// How long it is in force at least.
        hold: Duration = secs(5) => span_or_zero(100, DAY);
        /// What is done: "refuse", "limit" (what is beyond `rate` is refused), "multicast" (one request per URL and `period` goes
        /// to the origin, its answer to all who asked), "ask" (an application's verdict), "room" (to the waiting room) or
        /// "reroute" (a lighter URL instead).
        [fixed] then: Then = Then::Refuse => Choice;
        /// Whose requests: everybody's ("all"), or those that would begin a session ("new"): it is not admitted. With
        /// room.unit = "request" there are no sessions and all are new.
        [fixed] visitors: Visitors = Visitors::All => Choice;
        /// Only requests of these classes; none: of all.
        [fixed] class: Vec<String> = Vec::new() => List(ANY_CLASS_NAME);
        /// Only these URLs; none: all.
        [fixed] urls: Vec<String> = Vec::new() => List(PATH_GLOB);
        /// Never these URLs.
        [fixed] except: Vec<String> = Vec::new() => List(PATH_GLOB);
        /// Never visitors of these service levels.
        [fixed] spare: Vec<String> = Vec::new() => List(NAME);
        /// Of "multicast": how long an answer is given to others.
        period: Duration = secs(1) => span(100, HOUR);
        /// Of "ask": the application.
        [fixed] application: String = String::new() => REFERENCE;
        /// Of "reroute", and of `action = "lighter"`: the lighter URL.
        [fixed] to: String = String::new() => REFERENCE;
        /// Of "limit": cost units per second.
        rate: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
        /// How a refusal is carried out: "answer" (for programs), "lighter" (a lighter URL), "page" (the "overloaded" page),
        /// "close" or "reset" (the connection, without an answer), "end" (the connection ends after what is being answered), "stop"
        /// (what is being answered is cut off).
        [fixed] action: How = How::Answer => Choice;
        /// The status of "answer" and "page".
        status: u16 = 503 => Count(400..=599);
        /// Higher comes first.
        priority: u8 = 100 => Count(0..=255);
        /// What it means that a condition depends on something unknown: "ignore" (the rule does not count on it), "hold" (the rule
        /// stays as it is) or "apply" (the worst is supposed).
        unknown: OnUnknown = OnUnknown::Ignore => Choice;
        /// Off, it never holds.
        enabled: bool = true => Flag;
        /// It is decided and counted, but nothing is done.
        shadow: bool = false => Flag;
    }
}

impl Detector {
    /// Of response times: which figure of them; `None`: there is no such figure.
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

    /// What it looks at, given its place among all and the classes by id.
    pub fn criterion(&self, place: SourceId, classes: &[&str]) -> Criterion {
        // A class that is not there has been a mistake before; this one is nobody's.
        let class = || {
            classes
                .iter()
                .position(|name| *name == self.class)
                .map_or(ClassId(u8::MAX), |id| ClassId(id as u8))
        };
        let class = (!self.class.is_empty()).then(class);
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
            Watched::Host => Criterion::Host(place),
            Watched::Signal => Criterion::Signal(place),
        }
    }

    /// How it looks.
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
        // A command is taken back at once: neither band nor calm.
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
