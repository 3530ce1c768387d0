//! Reports and control updates as JSON. A field that another version does not send has the meaning it had
//! before the field existed.
//!
//! ```text
//! report  {"admitted": N, "over_ms": MS, "queued": N, "shown": [[SECOND, N], ...],
//!          "from": ID, "gate": {"queued": REQUESTS, "in_flight": REQUESTS, "limit": REQUESTS or null,
//!          "forwarded": N, "entering": N, "forwarded_entering": N, "max_queue": REQUESTS,
//!          "max_queue_wait_ms": MS}, "origin_gone": true,
//!          "samples": [[CLASS, N, COUNT, AGE_US, RESPONSE_US, IN_FLIGHT, OK, BACKLOG], ...],
//!          "lingered": [[SAMPLE, LINGERED_US], ...],
//!          "sessions": {"free": PLACES or null, "per_s": PLACES_PER_S, "next_s": SECONDS} or null,
//!          "expected": {"per_s": PER_SECOND, "each_per_s": PER_SECOND, "newcomers_share": SHARE,
//!          "first": UNITS, "first_page_ratio": TIMES} or null}
//! update  {"capacity": PER_SECOND, "hand_us": US, "follows_clock": true,
//!          "max_in_flight": REQUESTS or null, "keeps_queue": true, "ceiling": PER_SECOND, "waited": true,
//!          "measured": true, "costs": [[CLASS, N], ...]}
//! ```
//! `N` is work in hundredths of a cost unit. `AGE_US` is how long before the report the last of them ended,
//! since the hosts' clocks may differ. `OK` and `BACKLOG` are 0 or 1. `SAMPLE` is an index into `samples`;
//! samples without a row did not linger. (A ninth number in the rows of `samples` would make an older
//! tokengen refuse the report.) `entering` and `forwarded_entering` are the parts of what waits and of what
//! was forwarded that are not of sessions under way. `costs` is what tokengen charges for a request of each
//! class whose cost is learned: tokencheck, which learns none, charges the same. `CLASS` is a class's tag.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_core::capacity::Sample;
use tidegate_core::gate::Totals;
use tidegate_core::room::{ControlUpdate, Feedback, MAX_REPORTED_SAMPLES, REPORT_EVERY};
use tidegate_core::session::{ExpectedSessions, SessionPace};
use tidegate_core::units::{ClassId, Cost, MAX_CLASSES, Rate, Timestamp};
use tidegate_core::virtual_clock::VirtualTime;

use crate::config::ClassTag;

/// Longest time that a report may cover: a night with tokengen down. Also the greatest age and response time
/// of a sample.
const MAX_OVER: Duration = Duration::from_secs(24 * 3600);
/// The time of a report. Only differences to it count.
const REPORTED_AT: Timestamp = Timestamp::from_secs(MAX_OVER.as_secs());

pub(crate) fn parse(report: &Value) -> Option<Feedback> {
    let shown = report.get("shown")?.as_array()?;
    let shown = shown.iter().map(|pair| Some((pair.get(0)?.as_u64()?, cost(pair.get(1)?)?)));
    let over = match report.get("over_ms") {
        Some(ms) => Duration::from_millis(ms.as_u64()?).min(MAX_OVER),
        None => REPORT_EVERY,
    };
    let queued = cost(report.get("queued")?)?;
    let gate = match report.get("gate") {
        Some(gate) => Some(parse_gate(gate, queued)?),
        None => None,
    };
    let mut samples: Vec<Sample> = match report.get("samples") {
        Some(rows) => {
            rows.as_array()?.iter().take(MAX_REPORTED_SAMPLES).map(parse_sample).collect::<Option<_>>()?
        }
        None => Vec::new(),
    };
    if let Some(rows) = report.get("lingered") {
        for row in rows.as_array()?.iter().take(MAX_REPORTED_SAMPLES) {
            let at = usize::try_from(row.get(0)?.as_u64()?).ok()?;
            let lingered = time(row.get(1)?)?;
            // Rows of samples beyond the maximum are ignored.
            if let Some(sample) = samples.get_mut(at) {
                sample.lingered = lingered;
            }
        }
    }
    Some(Feedback {
        from: optional(report, "from", Value::as_u64)?.unwrap_or(0),
        at: REPORTED_AT,
        admitted: cost(report.get("admitted")?)?,
        over,
        queued,
        shown: shown.collect::<Option<_>>()?,
        gate,
        sessions: optional(report, "sessions", parse_pace)?,
        expected: optional(report, "expected", parse_expected)?,
        is_origin_gone: optional(report, "origin_gone", Value::as_bool)?.unwrap_or(false),
        samples,
    })
}

pub(crate) fn write(report: &Feedback) -> Value {
    let shown: Vec<_> = report.shown.iter().map(|(s, c)| json!([s, c.hundredths()])).collect();
    let mut wire = json!({
        "admitted": report.admitted.hundredths(),
        "over_ms": millis(report.over),
        "queued": report.queued.hundredths(),
        "shown": shown,
        "from": report.from,
    });
    if let Some(gate) = &report.gate {
        wire["gate"] = json!({
            "queued": gate.queued,
            "in_flight": gate.in_flight,
            "limit": gate.limit,
            "forwarded": gate.forwarded_cost.hundredths(),
            "entering": gate.entering_cost.hundredths(),
            "forwarded_entering": gate.forwarded_entering.hundredths(),
            "max_queue": gate.max_queue,
            "max_queue_wait_ms": millis(gate.max_queue_wait),
        });
        wire["origin_gone"] = json!(report.is_origin_gone);
        wire["samples"] = report.samples.iter().map(|sample| write_sample(sample, report.at)).collect();
        let lingered = report.samples.iter().enumerate().filter(|(_, sample)| !sample.lingered.is_zero());
        wire["lingered"] = lingered.map(|(at, sample)| json!([at, micros(sample.lingered)])).collect();
    }
    if let Some(pace) = &report.sessions {
        wire["sessions"] = json!({ "free": pace.free, "per_s": pace.per_s, "next_s": pace.next_s });
    }
    if let Some(ExpectedSessions { per_s, each_per_s, newcomers_share, first, first_page_ratio }) =
        report.expected
    {
        wire["expected"] = json!({
            "per_s": per_s, "each_per_s": each_per_s, "newcomers_share": newcomers_share,
            "first": first, "first_page_ratio": first_page_ratio,
        });
    }
    wire
}

fn parse_pace(pace: &Value) -> Option<SessionPace> {
    let free = optional(pace, "free", Value::as_u64)?;
    let per_s = pace.get("per_s")?.as_f64()?;
    // An older tokencheck does not send it.
    let next_s = optional(pace, "next_s", Value::as_f64)?.unwrap_or(0.0);
    let is_known = |number: f64| number.is_finite() && number >= 0.0;
    let free = free.map(|free| u32::try_from(free).unwrap_or(u32::MAX));
    (is_known(per_s) && is_known(next_s)).then_some(SessionPace { free, per_s, next_s })
}

fn parse_expected(expected: &Value) -> Option<ExpectedSessions> {
    let number = |name| expected.get(name)?.as_f64().filter(|number| number.is_finite());
    let expected = ExpectedSessions {
        per_s: number("per_s")?,
        each_per_s: number("each_per_s")?,
        newcomers_share: number("newcomers_share")?,
        first: number("first")?,
        // An older tokencheck counts what follows a first request as later work.
        first_page_ratio: optional(expected, "first_page_ratio", Value::as_f64)?.unwrap_or(1.0),
    };
    expected.is_sound().then_some(expected)
}

fn parse_gate(gate: &Value, queued_cost: Cost) -> Option<Totals> {
    let count = |name: &str| gate.get(name)?.as_u64();
    let limit = optional(gate, "limit", Value::as_u64)?;
    let forwarded_cost = Cost::from_hundredths(count("forwarded")?);
    // An older tokencheck does not tell requests of sessions apart.
    let work_or = |name, or| Some(optional(gate, name, Value::as_u64)?.map_or(or, Cost::from_hundredths));
    Some(Totals {
        queued: usize::try_from(count("queued")?).ok()?,
        queued_cost,
        entering_cost: work_or("entering", queued_cost)?,
        in_flight: u32::try_from(count("in_flight")?).ok()?,
        limit: limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
        forwarded_cost,
        forwarded_entering: work_or("forwarded_entering", forwarded_cost)?,
        max_queue: usize::try_from(count("max_queue")?).ok()?,
        max_queue_wait: Duration::from_millis(count("max_queue_wait_ms")?).min(MAX_OVER),
        ..Totals::default()
    })
}

fn parse_sample(row: &Value) -> Option<Sample> {
    let row = row.as_array()?;
    let [class, cost, count, age_us, response_us, in_flight, ok, backlog] = row.as_slice() else {
        return None;
    };
    let flag = |v: &Value| Some(v.as_u64()? != 0);
    Some(Sample {
        class: ClassId(u8::try_from(class.as_u64()?).ok()?),
        cost: Cost::from_hundredths(cost.as_u64()?.min(Cost::MAX.hundredths())),
        count: u64::from(u32::try_from(count.as_u64()?).ok()?),
        ended: REPORTED_AT.saturating_sub(time(age_us)?),
        response: time(response_us)?,
        lingered: Duration::ZERO,
        in_flight: u32::try_from(in_flight.as_u64()?).ok()?,
        ok: flag(ok)?,
        backlog: flag(backlog)?,
    })
}

fn write_sample(sample: &Sample, at: Timestamp) -> Value {
    let Sample { class, cost, count, ended, response, lingered: _, in_flight, ok, backlog } = *sample;
    json!([
        class.0,
        cost.hundredths(),
        count,
        micros(at.since(ended)),
        micros(response),
        in_flight,
        u8::from(ok),
        u8::from(backlog),
    ])
}

/// What a tokencheck process is to go by.
#[derive(Serialize, JsonSchema)]
pub struct UpdateMessage {
    /// Cost units per second.
    capacity: f64,
    /// Where the schedule stands, in microseconds since 1970.
    hand_us: u64,
    /// Whether the schedule moves with the clock.
    follows_clock: bool,
    /// Requests the origin may work on at once; null: no limit.
    max_in_flight: Option<u32>,
    /// Whether `ceiling` is another rate than the capacity.
    keeps_queue: bool,
    /// Most that is let in, in cost units per second.
    ceiling: f64,
    /// Whether visitors wait.
    waited: bool,
    /// Whether the capacity is measured.
    measured: bool,
    /// Classes whose cost is learned: the class's tag, and what a request of it is charged, in hundredths of
    /// a cost unit.
    costs: Vec<[u64; 2]>,
}

pub(crate) fn write_update(
    update: &ControlUpdate,
    costs: impl Iterator<Item = (ClassTag, Cost)>,
) -> UpdateMessage {
    UpdateMessage {
        capacity: update.capacity.get(),
        hand_us: update.clock.at.as_micros(),
        follows_clock: update.clock.follows_clock,
        max_in_flight: update.max_in_flight,
        // An older tokencheck goes by the ceiling only then.
        keeps_queue: update.ceiling != update.capacity,
        ceiling: update.ceiling.get(),
        waited: update.is_waited,
        measured: update.is_measured,
        costs: costs.map(|(tag, cost)| [u64::from(tag.0), cost.hundredths()]).collect(),
    }
}

pub(crate) fn read_update(update: &Value) -> Option<ControlUpdate> {
    let limit = optional(update, "max_in_flight", Value::as_u64)?;
    let capacity = rate(update.get("capacity")?.as_f64()?)?;
    let ceiling = optional(update, "ceiling", Value::as_f64)?.map_or(Some(Rate::MAX), rate)?;
    // Where an in-flight limit does not decide what the origin does, an older tokengen sends another bound.
    let is_above = optional(update, "keeps_queue", Value::as_bool)?.unwrap_or(false);
    Some(ControlUpdate {
        capacity,
        clock: VirtualTime {
            at: Timestamp::from_micros(update.get("hand_us")?.as_u64()?),
            follows_clock: update.get("follows_clock")?.as_bool()?,
        },
        max_in_flight: limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
        ceiling: if is_above { ceiling } else { capacity },
        is_waited: optional(update, "waited", Value::as_bool)?.unwrap_or(false),
        is_measured: optional(update, "measured", Value::as_bool)?.unwrap_or(true),
    })
}

/// What classes are charged whose cost tokengen learns. An older tokengen learns none.
pub(crate) fn read_costs(update: &Value) -> Option<Vec<(ClassTag, Cost)>> {
    let row = |row: &Value| {
        let tag = ClassTag(u8::try_from(row.get(0)?.as_u64()?).ok()?);
        Some((tag, cost(row.get(1)?)?))
    };
    let rows = |rows: &Value| rows.as_array()?.iter().take(MAX_CLASSES).map(row).collect::<Option<_>>();
    Some(optional(update, "costs", rows)?.unwrap_or_default())
}

/// `None` for negative rates: taken for zero, a broken sender's rate would close the room.
fn rate(per_second: f64) -> Option<Rate> {
    if per_second < 0.0 { None } else { Rate::per_second(per_second) }
}

fn cost(v: &Value) -> Option<Cost> {
    v.as_u64().map(Cost::from_hundredths)
}

fn time(us: &Value) -> Option<Duration> {
    Some(Duration::from_micros(us.as_u64()?).min(MAX_OVER))
}

/// A field that may be missing or null, but not of another type.
fn optional<T>(from: &Value, name: &str, read: impl Fn(&Value) -> Option<T>) -> Option<Option<T>> {
    match from.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(value) => read(value).map(Some),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
