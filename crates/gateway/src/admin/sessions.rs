//! `/v1/sessions`: who is admitted; ends sessions early.

use http::StatusCode;
use serde_json::{Value, json};
use tidegate_core::policies::TierId;
use tidegate_core::session::{Ender, SessionLine, Sessions, SessionsState};

use super::answer::{Outcome, Problem, document};
use super::call::Call;
use super::route::{Param, Place, Reply};
use super::schema::{MOST_EXACT, a, list, maybe, object, whole_number};
use crate::base::audit::Entry;
use crate::config::Config;
use crate::shared::Shared;
use crate::shared::sessions::{self, written};
use tidegate_settings::DEFAULT;

/// Sessions of one answer, if nobody says otherwise.
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
    schema: || whole_number(0, MOST_EXACT, "A place in the table."),
};

pub(super) const KEY: Param = Param {
    name: "key",
    place: Place::Path,
    about: "As `GET /v1/sessions` shows it.",
    schema: || json!({ "type": "string", "pattern": "^[0-9a-f]{32}$" }),
};

/// There are none.
pub(super) const NOT_COUNTED: Reply =
    Reply::problem(StatusCode::CONFLICT, "Sessions are not counted, or by another process.");

/// Not one of them.
pub(super) const UNKNOWN: Reply =
    Reply::problem(StatusCode::NOT_FOUND, "There is no open session of this key.");

fn counted(call: &Call) -> Result<&Sessions, Problem> {
    sessions::counted(call.shared()).ok_or_else(|| {
        Problem::conflict("sessions are not counted here: room.unit = \"session\" has them counted, by the gate or tokencheck")
    })
}

pub(super) fn get(call: &Call) -> Outcome {
    let table = counted(call)?;
    let shared = call.shared();
    let limit = call
        .query_integer("limit")
        .map_or(USUAL, |limit| usize::try_from(limit).unwrap_or(MOST).clamp(1, MOST));
    let page = table.list(call.query_integer("after").unwrap_or_default(), limit);
    let live = shared.config.load();
    let lines: Vec<Value> = page.sessions.iter().map(|line| line_of(&live, line)).collect();
    Ok(document(&json!({ "state": state(shared), "sessions": lines, "next": page.next })))
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
    Ok(document(&json!({ "ended": 1 })))
}

pub(super) fn delete_all(call: &Call) -> Outcome {
    let table = counted(call)?;
    let now = call.shared().clock.now();
    let n = table.end_all(now);
    let entry = Entry { action: "end-sessions", key: None, old: json!(n), new: json!(0) };
    call.record(entry, now);
    Ok(document(&json!({ "ended": n })))
}

/// A service level's name; `default`: everybody's.
pub(super) fn tier_name(live: &Config, tier: TierId) -> &str {
    live.tiers.get(tier).map_or(DEFAULT, |tier| &*tier.name)
}

/// Everything; null: sessions are not counted here.
pub(super) fn state(shared: &Shared) -> Value {
    let Some(table) = sessions::counted(shared) else { return Value::Null };
    let (live, s) = (shared.config.load(), table.state());
    let pools: Vec<Value> = s
        .pools
        .iter()
        .map(|pool| json!({ "tier": tier_name(&live, pool.tier), "open": pool.open, "places": pool.cap }))
        .collect();
    let ended: serde_json::Map<String, Value> =
        endings(&s).into_iter().map(|(how, n)| (how.to_owned(), n.into())).collect();
    json!({
        "open": s.count.open, "begun": s.count.begun, "readmitted": s.readmitted, "refused": s.refused,
        "ended": ended, "pools": pools, "entries": s.entries, "free_per_s": s.per_s,
        "length_s": s.length_s, "work": s.work, "held": s.is_held, "correction": s.correction,
    })
}

/// One session, for operators.
fn line_of(live: &Config, line: &SessionLine) -> Value {
    json!({
        "key": written(line.key), "tier": tier_name(live, line.tier),
        "begun_ms": line.begun.as_millis(), "last_ms": line.last.as_millis(), "requests": line.requests,
        "under_way": line.under_way,
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

/// Of both.
pub(super) fn ended() -> Value {
    object(&[("ended", a("integer", "Sessions ended by this."))])
}

/// Of [`get`].
pub(super) fn schema() -> Value {
    let line = object(&[
        ("key", a("string", "What tells it: a keyed hash or a random number, never the cookie itself.")),
        ("tier", a("string", "Its service level.")),
        ("begun_ms", a("integer", "Its first request, in milliseconds since 1970.")),
        ("last_ms", a("integer", "When a request came last, or ended, in the same.")),
        ("requests", a("integer", "How many came.")),
        ("under_way", a("integer", "How many of them are under way, open tunnels among them.")),
    ]);
    object(&[
        ("state", schema_of_state()),
        ("sessions", list(line, "A page of those open, in no order that means anything.")),
        ("next", maybe("integer", "`after` of the next page; null: there is none.")),
    ])
}

/// Of [`state`].
pub(super) fn schema_of_state() -> Value {
    let pool = object(&[
        ("tier", a("string", "Whose places; `default`: everybody's.")),
        ("open", a("integer", "Places taken.")),
        ("places", maybe("integer", "Places there are; null: no bound.")),
    ]);
    let mut state = object(&[
        ("open", a("integer", "Admitted now.")),
        ("begun", a("integer", "Admitted since the start.")),
        ("readmitted", a("integer", "Taken in by a pass that this process did not know, since the start.")),
        ("refused", a("integer", "Found no place, since the start; who asks again counts again.")),
        (
            "ended",
            a(
                "object",
                "Ended since the start, by what ended them: idle, age, origin, operator, left, void.",
            ),
        ),
        ("pools", list(pool, "Everybody's places, and those of service levels that have their own.")),
        ("entries", a("integer", "Kept in memory, those ended early among them.")),
        ("free_per_s", a("number", "Places that become free per second, as learned.")),
        ("length_s", maybe("number", "How long a place is held, as learned, in seconds.")),
        ("work", maybe("number", "Work of a whole session in cost units, as learned.")),
        ("held", a("boolean", "No place is given at present: requests of sessions wait at the gate.")),
        ("correction", a("number", "What the gate's queue makes of the learned number of places: a factor.")),
    ]);
    state["type"] = json!(["object", "null"]);
    state
}
