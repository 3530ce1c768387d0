//! `/v1/sessions`: who is admitted; ends sessions early.

use http::StatusCode;
use serde_json::{Value, json};
use tidegate_core::session::{Ender, Sessions};

use super::answer::{Outcome, Problem, document};
use super::dispatch::Call;
use super::routes::{Param, Place, Reply};
use super::schema::{a, list, maybe, object, whole_number};
use crate::admin::show_sessions;
use crate::base::audit::Entry;
use crate::shared::sessions;

/// Sessions of one answer, if nobody says otherwise.
const USUAL: usize = 100;
/// Most sessions of one answer: some 150 kB.
const MOST: usize = 1000;
/// Largest whole number that every reader of JSON keeps exactly (RFC 8259, 6).
const MOST_EXACT: u64 = (1 << 53) - 1;

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
    sessions::counted(&call.control.shared).ok_or_else(|| {
        Problem::conflict("sessions are not counted here: room.unit = \"session\" has them counted, by the gate or tokencheck")
    })
}

pub(super) fn get(call: &Call) -> Outcome {
    let table = counted(call)?;
    let shared = &call.control.shared;
    // 5.0 is an integer too.
    let number = |name| call.query(name).and_then(Value::as_f64).map(|number| number as u64);
    let limit = number("limit").map_or(USUAL, |limit| usize::try_from(limit).unwrap_or(MOST).clamp(1, MOST));
    let page = table.list(number("after").unwrap_or_default(), limit);
    let live = shared.config.load();
    let lines: Vec<Value> = page.sessions.iter().map(|line| show_sessions::line(&live, line)).collect();
    Ok(document(&json!({ "state": show_sessions::state(shared), "sessions": lines, "next": page.next })))
}

pub(super) fn delete(call: &Call) -> Outcome {
    let table = counted(call)?;
    let (control, text) = (&call.control, call.path("key"));
    let now = control.shared.clock.now();
    let is_ended = sessions::read(text).is_some_and(|key| table.end(key, Ender::Operator, now));
    if !is_ended {
        let detail = format!("there is no open session {}", tidegate_settings::tree::quoted(text));
        return Err(Problem::not_found(detail));
    }
    let key = Some(format!("session.{}", text.to_ascii_lowercase()));
    let entry = Entry { action: "end-session", key, old: json!("open"), new: json!("ended") };
    control.audit.record(call.by(), &[entry], now);
    Ok(document(&json!({ "ended": 1 })))
}

pub(super) fn delete_all(call: &Call) -> Outcome {
    let table = counted(call)?;
    let control = &call.control;
    let now = control.shared.clock.now();
    let n = table.end_all(now);
    let entry = Entry { action: "end-sessions", key: None, old: json!(n), new: json!(0) };
    control.audit.record(call.by(), &[entry], now);
    Ok(document(&json!({ "ended": n })))
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
        ("state", state()),
        ("sessions", list(line, "A page of those open, in no order that means anything.")),
        ("next", maybe("integer", "`after` of the next page; null: there is none.")),
    ])
}

/// All sessions in figures.
pub(super) fn state() -> Value {
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
