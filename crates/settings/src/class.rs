//! `[[class]]`: classes of requests, and what the core makes of them.

use std::time::Duration;

use ipnet::IpNet;
use serde_json::json;
use tidegate_core::bucket::BucketConfig;
use tidegate_core::class_costs::{CostSource, LEARNED_FROM};
use tidegate_core::gate::ClassConfig;
use tidegate_core::ingress::{IngressConfig, Refusal};
use tidegate_core::queue::{DEFAULT_INTERVAL, DEFAULT_TARGET, DisciplineKind, QueueConfig};
use tidegate_core::units::{Cost, Rate, Share};

use super::Settings;
use super::declare::Leaf;
use super::kinds::net::{CLASS_NAME, HOST_GLOB, METHOD, Network, PATH_GLOB, Pairs};
use super::kinds::quantity::{Count, HOUR, MS, Number, Portion, span, span_or_zero};
use super::kinds::{Choice, List, Named, toml_string};
use super::mistake::did_you_mean;
use super::read::{Reader, item_path};
use super::tree::Value;

/// The class of requests that match no other.
pub const DEFAULT: &str = "default";

named! {
    /// Whether a limit has an effect.
    pub enum Switch {
        Off = "off",
        #[default] On = "on",
    }
}

/// Work of one request of a class, relative to others.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum ClassCost {
    /// As the gate finds out.
    #[default]
    Learned,
    Given(f64),
}

impl ClassCost {
    /// The number, or what a learned cost begins from.
    fn number(self) -> f64 {
        match self {
            Self::Learned => LEARNED_FROM.units(),
            Self::Given(cost) => cost,
        }
    }
}

/// A cost that the core accepts, or "learned".
struct CostOrLearned;

const LEARNED: &str = "learned";

impl Leaf<ClassCost> for CostOrLearned {
    fn parse(&self, value: &Value) -> Result<ClassCost, Option<String>> {
        if let Value::Text(text) = value {
            let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
            return match number {
                Some(number) => Err(Some(format!("Write {number} without quotes."))),
                None if text == LEARNED => Ok(ClassCost::Learned),
                None => Err(did_you_mean(text, [LEARNED].into_iter())),
            };
        }
        let number: f64 = Number(f64::MIN..=f64::MAX).parse(value)?;
        Cost::class_cost(number).map(|_| ClassCost::Given(number)).ok_or(None)
    }

    fn expected(&self) -> String {
        format!("a number from {} to {}, or \"{LEARNED}\"", Cost::MIN, Cost::MAX)
    }

    fn show(&self, value: &ClassCost) -> String {
        match value {
            ClassCost::Learned => toml_string(LEARNED),
            ClassCost::Given(number) => format!("{number:?}"),
        }
    }

    fn schema(&self) -> serde_json::Value {
        // The bounds apply to numbers, the pattern to words.
        let (least, most) = (Cost::MIN.units(), Cost::MAX.units());
        json!({ "type": ["number", "string"], "minimum": least, "maximum": most, "pattern": "^learned$" })
    }
}

impl Named for DisciplineKind {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("fifo", Self::Fifo),
        ("lifo", Self::Lifo),
        ("adaptive-lifo", Self::AdaptiveLifo),
        ("codel", Self::CoDel),
    ];
}

impl Named for Refusal {
    const NAMES: &'static [(&'static str, Self)] = &[("shed", Self::Shed), ("room", Self::Room)];
}

section! {
    /// Request classes, first match wins. Requests that match none are of the class `default` (priority 1;
    /// cost 1 if another class has a number as its cost, else learned). A class of that name without `match`
    /// configures it.
    pub struct Class [tunable] {
        /// Its name in metrics, logs and `room.classes`.
        [fixed] name: String = String::new() => CLASS_NAME;
        /// Work of one request relative to others; 1.0 is average. With "learned" the gate finds it out: it
        /// charges 1 until it knows better, and always where the estimator learns no costs (docs/classes.md).
        cost: ClassCost = ClassCost::Learned => CostOrLearned;
        /// Lower goes first at the origin.
        priority: u8 = 1 => Count(0..=255);
        /// Share among the classes of one priority if the scheduler is "deficit".
        weight: u32 = 1 => Count(1..=1000);
        /// Share of the work sent to the origin that the class gets in any case while requests of it wait,
        /// whatever the priorities; all classes together at most 1.
        guarantee: f64 = 0.0 => Portion;
        /// Requests of the class at the origin at once; 0: no limit of its own.
        max_in_flight: usize = 0 => Count(0..=1_000_000);
    }
    with {
        /// Which requests; every given condition must hold.
        matches as "match": Match;
        /// What may come in.
        ingress: Ingress;
        /// Who waits for an in-flight slot at the origin.
        queue: ClassQueue;
        /// What may go to the origin.
        egress: Egress;
    }

    /// A token bucket at the class's entrance, before the waiting room: what may come in.
    pub struct Ingress [tunable] {
        /// Whether anything is refused. While it is off, the bucket fills up.
        limit: Switch = Switch::On => Choice;
        /// Cost units per second; 0: no limit.
        rate: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
        /// Cost units that may come in one instant; 0: one second's worth of `rate`, and at least one
        /// request.
        burst: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
        /// What happens to requests beyond it: "shed" is 503 with the time to come again, "room" the waiting
        /// room.
        refuse: Refusal = Refusal::Shed => Choice;
    }

    /// The class's queue at the gate.
    pub struct ClassQueue [tunable] {
        /// Who is next: "fifo" the first, "lifo" the last, "adaptive-lifo" the first until the oldest has
        /// waited for `target`, then the last; "codel" the first, and some are refused to keep the wait near
        /// `target`.
        discipline: DisciplineKind = DisciplineKind::Fifo => Choice;
        /// Requests that may wait, for whatever reason; 0, or more than `queue.max_length`: as many as that
        /// allows.
        max_length: usize = 0 => Count(0..=1_000_000);
        /// Longest wait: a request that has waited for so long is not sent to the origin any more; 0:
        /// `queue.max_wait`.
        patience: Duration = Duration::ZERO => span_or_zero(MS, HOUR);
        /// Of "codel": the wait aimed at. Of "adaptive-lifo": how long the oldest waits before the last goes
        /// first.
        target: Duration = DEFAULT_TARGET => span(5, HOUR);
        /// Of "codel": for how long even the shortest wait must be above `target` before anybody is refused.
        interval: Duration = DEFAULT_INTERVAL => span(5, HOUR);
    }

    /// A token bucket at the class's exit: what may go to the origin. The rest waits in the class's queue.
    pub struct Egress [tunable] {
        /// Cost units per second; 0: no limit.
        rate: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
        /// Cost units that may go in one instant; 0: one second's worth of `rate`, and at least one request.
        /// Never less than one request and 10 ms' worth of `rate`: a timer releases the requests, and what it
        /// is late for would be lost.
        burst: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
    }

    /// Which requests are of the class: every given condition must hold; within one condition any of the
    /// values is enough.
    pub struct Match {
        /// Methods.
        method: Vec<String> = Vec::new() => List(METHOD);
        /// Path globs: `*` within a segment, `**` across segments, `?` one character.
        path: Vec<String> = Vec::new() => List(PATH_GLOB);
        /// Hosts, `*.` for any subdomain.
        host: Vec<String> = Vec::new() => List(HOST_GLOB);
        /// Header fields: name and value glob.
        header: Vec<(String, String)> = Vec::new() => Pairs { what: "header" };
        /// Cookies: name and value glob.
        cookie: Vec<(String, String)> = Vec::new() => Pairs { what: "cookie" };
        /// Query parameters: name and value glob.
        query: Vec<(String, String)> = Vec::new() => Pairs { what: "query" };
        /// Client networks.
        client: Vec<IpNet> = Vec::new() => List(Network);
    }
}

impl Settings {
    /// Every class by its id: those with a `match` in the order of the file, then the default class.
    pub fn classes(&self) -> Vec<Class> {
        let (default, mut all): (Vec<_>, Vec<_>) = self.class.iter().cloned().partition(Class::is_default);
        all.extend(default.into_iter().next().or_else(|| self.unwritten_default()));
        all
    }

    /// The default class, if the file has no item for it.
    pub(crate) fn unwritten_default(&self) -> Option<Class> {
        let is_written = self.class.iter().any(|class| class.name == DEFAULT);
        // Numbers are multiples of an ordinary request: a file with one of them means what it says.
        let has_numbers = self.class.iter().any(|class| class.cost != ClassCost::Learned);
        let cost = if has_numbers { ClassCost::Given(LEARNED_FROM.units()) } else { ClassCost::Learned };
        (!is_written).then(|| Class { name: DEFAULT.into(), cost, ..Class::default() })
    }

    /// The names of all classes, the default class among them.
    pub(crate) fn class_names(&self) -> Vec<&str> {
        let written = self.class.iter().map(|class| class.name.as_str());
        written.filter(|name| !name.is_empty() && *name != DEFAULT).chain([DEFAULT]).collect()
    }
}

impl Class {
    /// Whether it configures the default class.
    fn is_default(&self) -> bool {
        self.name == DEFAULT && self.matches == Match::default()
    }

    pub fn cost_source(&self) -> CostSource {
        match self.cost {
            ClassCost::Learned => CostSource::Learned,
            ClassCost::Given(cost) => CostSource::Configured(Cost::class_cost(cost).unwrap_or(Cost::ONE)),
        }
    }

    /// Work of one request by which buckets are made. Requests whose learned cost is above it, and above the
    /// burst, pass when the bucket is full.
    fn work(&self) -> Cost {
        match self.cost_source() {
            CostSource::Configured(cost) => cost,
            CostSource::Learned => LEARNED_FROM,
        }
    }

    pub fn gate_config(&self) -> ClassConfig {
        let q = &self.queue;
        let egress = bucket(self.egress.rate, self.egress.burst, self.work());
        ClassConfig {
            priority: self.priority,
            weight: self.weight,
            guarantee: Share::from_fraction(self.guarantee).unwrap_or_default(),
            max_in_flight: bound(self.max_in_flight).map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
            queue: QueueConfig {
                discipline: q.discipline,
                max_length: bound(q.max_length),
                patience: Some(q.patience).filter(|patience| *patience > Duration::ZERO),
                target: q.target,
                interval: q.interval,
            },
            // It is emptied by a timer, so it must hold what comes in while the timer is late.
            egress: BucketConfig {
                burst: egress.burst.max(self.work() + egress.rate.over(TIMER_LATENESS)),
                ..egress
            },
        }
    }

    pub fn ingress_config(&self) -> IngressConfig {
        IngressConfig {
            is_on: self.ingress.limit == Switch::On,
            bucket: bucket(self.ingress.rate, self.ingress.burst, self.work()),
            refusal: self.ingress.refuse,
        }
    }
}

/// 0 means that there is no bound.
fn bound(most: usize) -> Option<usize> {
    Some(most).filter(|most| *most > 0)
}

/// How late the timer that releases requests from an egress bucket may be: it counts in milliseconds, and
/// shares its thread with the control tick.
const TIMER_LATENESS: Duration = Duration::from_millis(10);

fn bucket(rate: f64, burst: f64, one: Cost) -> BucketConfig {
    let rate = Rate::per_second(rate).unwrap_or_default();
    let given = Cost::from_hundredths((burst * 100.0).round() as u64);
    let burst = if given > Cost::ZERO { given } else { rate.over(Duration::from_secs(1)).max(one) };
    BucketConfig { rate, burst }
}

/// Reports keys of classes that contradict each other or other sections.
pub(crate) fn check(settings: &Settings, out: &mut Reader) {
    let names: Vec<&str> = settings.class.iter().map(|class| class.name.as_str()).collect();
    out.check_names("class", &names);
    let mut guaranteed = 0;
    for (i, class) in settings.class.iter().enumerate() {
        let path = item_path("class", &class.name, i);
        if class.name == DEFAULT && !class.is_default() {
            let expected = "no `match`: the class \"default\" is of requests that match no other";
            out.conflict(&format!("{path}.match"), expected, "one", None);
        }
        let (ingress, egress) = (&class.ingress, &class.egress);
        for (name, rate, burst) in
            [("ingress", ingress.rate, ingress.burst), ("egress", egress.rate, egress.burst)]
        {
            let cost = class.cost.number();
            if rate > 0.0 && burst > 0.0 && burst < cost {
                let expected = format!("at least the class's `cost` of {cost}, or 0");
                out.conflict(&format!("{path}.{name}.burst"), expected, burst.to_string(), None);
            }
        }
        if class.ingress.refuse == Refusal::Room && !settings.room.enabled {
            let expected = "\"shed\" (there is no waiting room: `room.enabled` is false)";
            out.conflict(&format!("{path}.ingress.refuse"), expected, "\"room\"", None);
        }
        let all = Share::ALL.millionths();
        let before = guaranteed;
        guaranteed += Share::from_fraction(class.guarantee).map_or(0, Share::millionths);
        if before <= all && guaranteed > all {
            let got = format!("a sum of {}", f64::from(guaranteed) / 1e6);
            let expected = "guarantees of at most 1, all classes together";
            out.conflict(&format!("{path}.guarantee"), expected, got, None);
        }
    }
}
