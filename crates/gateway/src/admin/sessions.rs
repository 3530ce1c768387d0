//! `/v1/sessions`: lists admitted sessions, and ends them early.

use std::collections::BTreeMap;

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tidegate_core::policies::TierId;
use tidegate_core::session::{Ender, SessionLine, Sessions, SessionsState};

use super::answer::{Outcome, Problem, document};
use super::call::Call;
use super::route::{Param, Place, Reply};
use super::schema::{MOST_EXACT, whole_number};
use crate::base::audit::Entry;
use crate::config::Config;
use crate::shared::Shared;
use crate::shared::sessions::{self, written};
use tidegate_settings::DEFAULT;

const USUAL: usize = 100;
/// Most sessions of one answer: some 150 kB.
const MOST: usize = 1000;

pub(super) const LIMIT: Param = Param {
    name: "limit",
    place: Place::Query,
    about: "How many; 100 if not given.",
    schema: || whole_number(1, MOST as u64, "Sessions."),
};

pub(super) const AFTER: Param = Param {
    name: "after",
    place: Place::Query,
    about: "Go on from here: the last answer's `next`.",
    schema: || whole_number(0, MOST_EXACT, "An index of the table."),
};

pub(super) const KEY: Param = Param {
    name: "key",
    place: Place::Path,
    about: "As `GET /v1/sessions` shows it.",
    schema: || json!({ "type": "string", "pattern": "^[0-9a-f]{32}$" }),
};

pub(super) const NOT_COUNTED: Reply =
    Reply::problem(StatusCode::CONFLICT, "Sessions are not counted, or by another process.");

pub(super) const UNKNOWN: Reply =
    Reply::problem(StatusCode::NOT_FOUND, "There is no open session of this key.");

fn counted(call: &Call) -> Result<&Sessions, Problem> {
    sessions::counted(call.shared()).ok_or_else(|| {
        Problem::conflict("sessions are not counted here: room.unit = \"session\", the default, has them counted, by the gate or tokencheck")
    })
}

pub(super) fn get(call: &Call) -> Outcome {
    let table = counted(call)?;
    let shared = call.shared();
    let limit = call.limit(USUAL, MOST);
    let page = table.list(call.query_integer("after").unwrap_or_default(), limit);
    let live = shared.config.load();
    let sessions = page.sessions.iter().map(|line| Line::new(&live, line)).collect();
    Ok(document(&Page { state: state(shared), sessions, next: page.next }))
}

pub(super) fn delete(call: &Call) -> Outcome {
    let table = counted(call)?;
    let (now, text) = (call.shared().clock.now(), call.path("key"));
    let is_ended = sessions::read(text).is_some_and(|key| table.end(key, Ender::Operator, now));
    if !is_ended {
        let detail = format!("there is no open session {}", tidegate_settings::tree::quoted(text));
        return Err(Problem::not_found(detail));
    }
    let key = Some(format!("session.{}", text.to_ascii_lowercase()));
    let entry = Entry { action: "end-session", key, old: json!("open"), new: json!("ended") };
    call.record(entry, now);
    Ok(document(&Ended { ended: 1 }))
}

pub(super) fn delete_all(call: &Call) -> Outcome {
    let table = counted(call)?;
    let now = call.shared().clock.now();
    let n = table.end_all(now);
    let entry = Entry { action: "end-sessions", key: None, old: json!(n), new: json!(0) };
    call.record(entry, now);
    Ok(document(&Ended { ended: n }))
}

/// A service level's name; `default`: everybody's.
pub(super) fn tier_name(live: &Config, tier: TierId) -> &str {
    live.tiers.get(tier).map_or(DEFAULT, |tier| &*tier.name)
}

/// The table in figures; `None`: sessions are not counted here.
pub(super) fn state(shared: &Shared) -> Option<SessionsShown> {
    let (live, s) = (shared.config.load(), sessions::counted(shared)?.state());
    let pools = s.pools.iter().map(|pool| Pool {
        tier: tier_name(&live, pool.tier).to_owned(),
        open: pool.open,
        places: pool.cap,
    });
    Some(SessionsShown {
        open: s.count.open,
        begun: s.count.begun,
        readmitted: s.readmitted,
        refused: s.refused,
        ended: endings(&s).into(),
        pools: pools.collect(),
        entries: s.entries,
        free_per_s: s.per_s,
        length_s: s.length_s,
        work: s.work,
        held: s.is_held,
        correction: s.correction,
    })
}

pub(super) fn endings(s: &SessionsState) -> [(&'static str, u64); 6] {
    let e = &s.ended;
    [
        ("idle", e.idle),
        ("age", e.age),
        ("origin", e.origin),
        ("operator", e.operator),
        ("left", e.left),
        ("void", e.void),
    ]
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Ended {
    /// Sessions ended by this.
    ended: u64,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Page {
    state: Option<SessionsShown>,
    /// A page of those open, in no order that means anything.
    sessions: Vec<Line>,
    /// `after` of the next page; null: there is none.
    next: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
struct Line {
    /// What tells it: a keyed hash or a random number, never the cookie itself.
    key: String,
    /// Its service level.
    tier: String,
    /// Its first request, in milliseconds since 1970.
    begun_ms: u64,
    /// When a request came last, or ended, in the same.
    last_ms: u64,
    /// How many came.
    requests: u32,
    /// How many of them are under way, open tunnels among them.
    under_way: u16,
}

impl Line {
    fn new(live: &Config, line: &SessionLine) -> Self {
        let SessionLine { key, tier, begun, last, requests, under_way } = *line;
        let (begun_ms, last_ms) = (begun.as_millis(), last.as_millis());
        let tier = tier_name(live, tier).to_owned();
        Self { key: written(key), tier, begun_ms, last_ms, requests, under_way }
    }
}

/// The table of sessions; null: they are not counted here.
#[derive(Serialize, JsonSchema)]
pub(super) struct SessionsShown {
    /// Admitted now.
    open: u64,
    /// Admitted since the start.
    begun: u64,
    /// Taken in by a pass that this process did not know, since the start.
    readmitted: u64,
    /// Found no slot, since the start; every request counts.
    refused: u64,
    /// Since the start, by idle, age, origin, operator, left, void.
    ended: BTreeMap<&'static str, u64>,
    /// The common slots, and those of tiers that have their own.
    pools: Vec<Pool>,
    /// Kept in memory, those ended early among them.
    entries: u64,
    /// Slots that become free per second, as learned.
    free_per_s: f64,
    /// How long a slot is held, as learned, in seconds.
    length_s: Option<f64>,
    /// Work of a whole session in cost units, as learned.
    work: Option<f64>,
    /// No slot is given now: requests of sessions wait at the gate.
    held: bool,
    /// What the gate's queue makes of the learned number of places: a factor.
    correction: f64,
}

#[derive(Serialize, JsonSchema)]
struct Pool {
    /// Whose places; `default`: everybody's.
    tier: String,
    /// Places taken.
    open: u32,
    /// Places there are; null: no bound.
    places: Option<u32>,
}
