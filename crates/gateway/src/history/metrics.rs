//! The figures that are kept: name, unit, and how each is aggregated over longer intervals.
//!
//! Three scopes: figures of a class of requests (kept per class, per service level and for all requests
//! together), figures of the gateway, and figures of a detector. To add a figure, add a line: the file stores
//! figures by name, so that order and number may change between versions (see `layout`).

use std::sync::OnceLock;
use std::time::Duration;

use tidegate_core::capacity::Estimate;
use tidegate_core::control::Tunables;
use tidegate_core::detect::{Judgement, Level};
use tidegate_core::gate::Totals;
use tidegate_core::measure::{Event, Figures};
use tidegate_core::room::RoomState;
use tidegate_core::units::Rate;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// Each class, and all requests together.
    Class,
    Gate,
    /// Each detector: its own figure and that of its source.
    Detector,
}

impl Scope {
    pub const ALL: [Self; 3] = [Self::Class, Self::Gate, Self::Detector];

    /// As the file and the API name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Class => "class",
            Self::Gate => "gate",
            Self::Detector => "detector",
        }
    }

    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Self::Class => &CLASS,
            Self::Gate => &GATE,
            Self::Detector => &DETECTOR,
        }
    }

    /// For each figure, the index of the one that weights its averages; `None`: time.
    pub(super) fn weights(self) -> &'static [Option<usize>] {
        static WEIGHTS: [OnceLock<Vec<Option<usize>>>; Scope::ALL.len()] =
            [const { OnceLock::new() }; Scope::ALL.len()];
        WEIGHTS[self as usize].get_or_init(|| {
            let index = |name| self.metrics().iter().position(|m| m.name == name);
            let by = |m: &Metric| match m.weight {
                Weight::Seconds => None,
                Weight::Requests(name) => index(name),
            };
            self.metrics().iter().map(by).collect()
        })
    }
}

/// What an average over a longer interval is weighted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// Time: rates and states.
    Seconds,
    /// The requests per second that another figure of the same scope counts: in a response time, an idle
    /// second must not weigh as much as a busy one.
    Requests(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
    pub weight: Weight,
    pub help: &'static str,
    from: From,
}

#[derive(Clone, Copy, Debug)]
enum From {
    Class(fn(&ClassSecond) -> Option<f64>),
    Gate(fn(&GateSecond) -> Option<f64>),
    Detector(fn(&DetectorSecond) -> Option<f64>),
}

/// The last second of one class, or of all requests.
#[derive(Clone, Copy, Debug)]
pub struct ClassSecond {
    pub figures: Figures,
    /// Requests at the origin, including those whose response is being sent.
    pub in_flight: u64,
    /// Admitted requests that wait for the origin, if they are counted.
    pub queued: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct GateSecond {
    pub tunables: Tunables,
    pub estimate: Estimate,
    pub room: RoomState,
    pub gate: Totals,
    /// Requests per second whose visitors left the queue.
    pub abandoned_per_s: f64,
    pub connections: usize,
    /// Sessions open, where they are counted.
    pub sessions: Option<u64>,
    /// SYNs per second, where they are policed.
    pub syns: Option<SynSecond>,
}

/// SYNs in the last second.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct SynSecond {
    /// All, also those that no rule is about.
    pub came_per_s: f64,
    /// That a rule let pass.
    pub passed_per_s: f64,
    /// That a rule dropped or reset.
    pub refused_per_s: f64,
}

/// A detector at the end of the last second.
#[derive(Clone, Copy, Debug)]
pub struct DetectorSecond {
    /// The last reading of its source while it is valid; `None`: unknown, or it has no source.
    pub reading: Option<f64>,
    pub judgement: Judgement,
}

const fn of_class(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    get: fn(&ClassSecond) -> Option<f64>,
) -> Metric {
    Metric { name, unit, weight: Weight::Seconds, help, from: From::Class(get) }
}

const fn time(
    name: &'static str,
    requests: &'static str,
    help: &'static str,
    get: fn(&ClassSecond) -> Option<f64>,
) -> Metric {
    Metric { weight: Weight::Requests(requests), ..of_class(name, "ms", help, get) }
}

const fn of_gate(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    get: fn(&GateSecond) -> Option<f64>,
) -> Metric {
    Metric { name, unit, weight: Weight::Seconds, help, from: From::Gate(get) }
}

const fn of_detector(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    get: fn(&DetectorSecond) -> Option<f64>,
) -> Metric {
    Metric { name, unit, weight: Weight::Seconds, help, from: From::Detector(get) }
}

const RATE: &str = "1/s";
/// The detector's, or its source's.
const OWN: &str = "its own";

#[rustfmt::skip]
static CLASS: [Metric; 33] = [
    of_class("arrivals", RATE, "Requests that came.", |c| Some(c.figures.offered_per_s)),
    of_class("admitted", RATE, "Requests sent to the origin.", |c| Some(c.figures.admitted_per_s)),
    of_class("goodput", RATE, "Requests the origin answered below 500.", |c| Some(c.figures.goodput_per_s)),
    of_class("errors", RATE, "Requests the origin failed.", |c| Some(c.figures.errors_per_s)),
    of_class("client_gone", RATE, "Requests at the origin whose visitor left before the answer was whole (client timeouts).",
        |c| Some(c.figures.client_gone_per_s)),
    time("response_mean", "goodput", "Response time of the origin: mean.", |c| ms(c.figures.response.mean)),
    time("response_p50", "goodput", "Response time of the origin: median.", |c| ms(c.figures.response.p50)),
    time("response_p95", "goodput", "Response time of the origin: 95th percentile.", |c| ms(c.figures.response.p95)),
    time("response_p99", "goodput", "Response time of the origin: 99th percentile.", |c| ms(c.figures.response.p99)),
    time("wait_mean", "admitted", "Wait at the gate: mean.", |c| ms(c.figures.queue_wait.mean)),
    time("wait_p95", "admitted", "Wait at the gate: 95th percentile.", |c| ms(c.figures.queue_wait.p95)),
    time("wait_p99", "admitted", "Wait at the gate: 99th percentile.", |c| ms(c.figures.queue_wait.p99)),
    time("visitor_mean", "goodput", "Response time as the visitor sees it, the wait at the gate included: mean.",
        |c| ms(c.figures.visitor.mean)),
    time("visitor_p50", "goodput", "Response time as the visitor sees it: median.", |c| ms(c.figures.visitor.p50)),
    time("visitor_p95", "goodput", "Response time as the visitor sees it: 95th percentile.",
        |c| ms(c.figures.visitor.p95)),
    time("visitor_p99", "goodput", "Response time as the visitor sees it: 99th percentile.",
        |c| ms(c.figures.visitor.p99)),
    of_class("waited", RATE, "Visitors who were let in after a wait, in the room or as newcomers at the gate.",
        |c| Some(c.figures.waited_per_s)),
    time("waiting_mean", "waited", "How long they had waited: mean.", |c| ms(c.figures.waited.mean)),
    time("waiting_p50", "waited", "How long they had waited: median.", |c| ms(c.figures.waited.p50)),
    time("waiting_p95", "waited", "How long they had waited: 95th percentile.", |c| ms(c.figures.waited.p95)),
    time("waiting_p99", "waited", "How long they had waited: 99th percentile.", |c| ms(c.figures.waited.p99)),
    of_class("queue_length", "requests", "Admitted requests that wait for the origin.", |c| c.queued.map(|n| n as f64)),
    of_class("in_flight", "requests", "Requests at the origin, answers under way included.", |c| Some(c.in_flight as f64)),
    of_class("shed_full", RATE, "Visitors told that the room is full.", |c| Some(shed(c, Event::Full))),
    of_class("shed_queue_full", RATE, "Requests refused because the queue was full.", |c| Some(shed(c, Event::QueueFull))),
    of_class("shed_queue_timeout", RATE, "Requests refused because they had waited too long.",
        |c| Some(shed(c, Event::QueueTimeout))),
    of_class("shed_queue_patience", RATE, "Requests refused because their class's patience was over.",
        |c| Some(shed(c, Event::QueuePatience))),
    of_class("shed_queue_codel", RATE, "Requests refused by CoDel.", |c| Some(shed(c, Event::QueueCodel))),
    of_class("shed_ingress_shed", RATE, "Requests refused by their class's ingress bucket.", |c| Some(shed(c, Event::IngressShed))),
    of_class("shed_sessions_refused", RATE, "New sessions refused for want of a session slot.", |c| Some(shed(c, Event::SessionsRefused))),
    of_class("shed_rule_refused", RATE, "Requests refused by rules.", |c| Some(shed(c, Event::RuleRefused))),
    of_class("shed_throttle_refused", RATE, "Requests refused by throttles of their request type.", |c| {
        Some(shed(c, Event::ThrottleRefused))
    }),
    of_class("shed_quota_refused", RATE, "Requests refused by the quota of their service level.",
        |c| Some(shed(c, Event::QuotaRefused))),
];

pub(super) const HOST_CPU: &str = "host_cpu";
pub(super) const HOST_MEMORY: &str = "host_memory";

/// Figures of the gateway. The writer fills in those of the host, as the tick cannot wait for them.
#[rustfmt::skip]
static GATE: [Metric; 17] = [
    of_gate("capacity", "cost units/s", "Capacity in force; nothing: unlimited.", |g| rate(g.tunables.capacity)),
    of_gate("outflow", "cost units/s", "Work that the room lets in; nothing: unlimited.", |g| rate(g.tunables.outflow)),
    of_gate("confidence", "0..1", "How sure the estimator is.", |g| Some(g.estimate.confidence)),
    of_gate("max_in_flight", "requests", "Requests the origin may work on at once; nothing: unlimited.",
        |g| g.tunables.max_in_flight.map(f64::from)),
    of_gate("places_taken", "requests", "Places at the origin that are taken.", |g| Some(f64::from(g.gate.in_flight))),
    of_gate("queued", "requests", "Admitted requests that wait for the origin.", |g| Some(g.gate.queued as f64)),
    of_gate("abandoned", RATE, "Requests whose visitors left the queue.", |g| Some(g.abandoned_per_s)),
    of_gate("waiting", "visitors", "Visitors in the waiting room.", |g| Some(g.room.waiting as f64)),
    of_gate("promised", "cost units", "Work promised to them.", |g| Some(g.room.promised.units())),
    of_gate("newcomer_wait", "s", "What a newcomer would wait.", |g| Some(g.room.wait.as_secs_f64())),
    of_gate("connections", "connections", "Visitor connections open.", |g| Some(g.connections as f64)),
    of_gate("sessions", "sessions", "Admitted sessions open; nothing: they are not counted.", |g| g.sessions.map(|n| n as f64)),
    of_gate("syns", RATE, "Connection requests (SYNs) on the interfaces that are policed; nothing: none is.",
        |g| g.syns.map(|s| s.came_per_s)),
    of_gate("syns_passed", RATE, "SYNs that a rule let pass.", |g| g.syns.map(|s| s.passed_per_s)),
    of_gate("syns_refused", RATE, "SYNs that a rule dropped or reset.", |g| g.syns.map(|s| s.refused_per_s)),
    of_gate(HOST_CPU, "0..1", "Share of the host's processor time that was used.", |_| None),
    of_gate(HOST_MEMORY, "0..1", "Share of the host's memory that is not available.", |_| None),
];

#[rustfmt::skip]
static DETECTOR: [Metric; 5] = [
    of_detector("detector_reading", OWN, "Last reading of the detector's source, not averaged; nothing: unknown, or no source.",
        |d| d.reading),
    of_detector("detector_figure", OWN, "Figure that the detector judges; nothing: unknown.", |d| d.judgement.figure),
    of_detector("detector_fraction", "0..1", "The figure as a share of what is red.", |d| d.judgement.fraction),
    of_detector("detector_level", "0..2", "0: green, 1: orange, 2: red; nothing: unknown.", |d| level(d.judgement.level)),
    of_detector("detector_red", OWN, "From this figure on the level is red; nothing: not learned yet.", |d| d.judgement.red),
];

fn level(level: Level) -> Option<f64> {
    match level {
        Level::Unknown => None,
        Level::Green => Some(0.0),
        Level::Orange => Some(1.0),
        Level::Red => Some(2.0),
    }
}

fn ms(time: Option<Duration>) -> Option<f64> {
    time.map(|t| t.as_secs_f64() * 1e3)
}

fn rate(rate: Rate) -> Option<f64> {
    (rate < Rate::MAX).then(|| rate.get())
}

fn shed(second: &ClassSecond, reason: Event) -> f64 {
    Event::SHED.iter().position(|r| *r == reason).map_or(0.0, |i| second.figures.shed_per_s[i])
}

/// The scope of a figure, and its index in [`Scope::metrics`].
pub fn find(name: &str) -> Option<(Scope, usize)> {
    Scope::ALL
        .into_iter()
        .find_map(|scope| Some((scope, scope.metrics().iter().position(|m| m.name == name)?)))
}

/// A class's values, in the order of [`Scope::metrics`]; unknown values are NaN.
pub(crate) fn class_values(second: &ClassSecond) -> Vec<f32> {
    values(Scope::Class, |from| match from {
        From::Class(get) => get(second),
        From::Gate(_) | From::Detector(_) => None,
    })
}

/// The gateway's values, likewise.
pub(crate) fn gate_values(second: &GateSecond) -> Vec<f32> {
    values(Scope::Gate, |from| match from {
        From::Gate(get) => get(second),
        From::Class(_) | From::Detector(_) => None,
    })
}

/// A detector's values, likewise.
pub(crate) fn detector_values(second: &DetectorSecond) -> Vec<f32> {
    values(Scope::Detector, |from| match from {
        From::Detector(get) => get(second),
        From::Class(_) | From::Gate(_) => None,
    })
}

fn values(scope: Scope, get: impl Fn(&From) -> Option<f64>) -> Vec<f32> {
    let finite = |v: f64| if v.is_finite() { v as f32 } else { f32::NAN };
    scope.metrics().iter().map(|m| get(&m.from).map_or(f32::NAN, finite)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_weights_are_figures_of_the_same_scope() {
        for scope in Scope::ALL {
            for (at, metric) in scope.metrics().iter().enumerate() {
                assert_eq!(find(metric.name), Some((scope, at)), "{}", metric.name);
                if let Weight::Requests(name) = metric.weight {
                    assert_eq!(find(name).map(|(scope, _)| scope), Some(scope), "{name}");
                }
            }
        }
    }

    #[test]
    fn every_reason_to_refuse_is_kept() {
        for reason in Event::SHED {
            let name = format!("shed_{}", reason.name());
            assert!(find(&name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_second_without_requests_has_rates_but_no_times() {
        let idle = ClassSecond { figures: Figures::default(), in_flight: 2, queued: None };
        let values = class_values(&idle);
        let value = |name: &str| values[find(name).unwrap().1];
        assert_eq!((value("goodput"), value("in_flight")), (0.0, 2.0));
        assert!(value("response_mean").is_nan() && value("queue_length").is_nan());
    }

    #[test]
    fn what_a_detector_does_not_know_is_a_gap() {
        let values = |level, reading, figure| {
            let judgement = Judgement { level, figure, red: Some(0.9), ..Judgement::default() };
            let values = detector_values(&DetectorSecond { reading, judgement });
            ["detector_reading", "detector_figure", "detector_fraction", "detector_level", "detector_red"]
                .map(|name| Some(values[find(name).unwrap().1]).filter(|value| !value.is_nan()))
        };
        let red = values(Level::Red, Some(0.99), Some(0.95));
        assert_eq!(red, [Some(0.99), Some(0.95), None, Some(2.0), Some(0.9)]);
        assert_eq!(values(Level::Unknown, None, None), [None, None, None, None, Some(0.9)]);
        let level = |level| values(level, None, None)[3];
        assert_eq!([Level::Green, Level::Orange].map(level), [Some(0.0), Some(1.0)]);
    }
}
