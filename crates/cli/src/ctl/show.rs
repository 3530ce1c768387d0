//! The gate's JSON documents as text for people.

use std::io::Write;

use comfy_table::{Table, presets};
use serde_json::Value;

/// Prints a line. If the reader has closed the pipe, as `head` does, it has seen enough: the process ends
/// without an error.
pub fn say(line: &str) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}

/// A value as it is written after `set NAME=`.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "–".into(),
        Value::String(text) => text.clone(),
        Value::Number(n) if n.is_f64() => {
            let x = n.as_f64().unwrap_or_default();
            if x.fract() == 0.0 && x.abs() < 1e15 { format!("{x:.0}") } else { format!("{:.3}", x) }
        }
        other => other.to_string(),
    }
}

fn table<const N: usize>(names: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(names).add_rows(rows);
    table.column_iter_mut().for_each(|column| _ = column.set_padding((0, 2)));
    table.trim_fmt()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// `get` of several.
pub fn tunables(answer: &Value) -> String {
    let rows = items(&answer["tunables"]).map(|t| {
        let file = if t["file"] == t["value"] { String::new() } else { plain(&t["file"]) };
        let who = match t["rule"].as_str() {
            Some(rule) => format!("rule:{rule}"),
            None => t["tuned"]["who"].as_str().unwrap_or_default().into(),
        };
        [plain(&t["name"]), plain(&t["value"]), file, who]
    });
    table(["NAME", "VALUE", "FILE", "TUNED BY"], rows)
}

/// `get` of one.
pub fn one(t: &Value) -> String {
    let text = |name: &str| plain(&t[name]);
    let mut out =
        format!("{} = {}\n{} Takes {}.", text("name"), text("value"), text("doc"), text("expected"));
    if let Some(rule) = t["rule"].as_str() {
        out.push_str(&format!("\nSet by the rule {rule} while it is in force."));
    }
    if let Some(tuned) = t["tuned"].as_object() {
        let why = tuned["why"].as_str().filter(|why| !why.is_empty());
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let (who, at) = (plain(&tuned["who"]), time(&tuned["at_ms"]));
        out.push_str(&format!("\nThe file says {}. Tuned by {who} at {at}{why}", text("file")));
    }
    out
}

/// `reset` of one.
pub fn now(t: &Value) -> String {
    format!("{} = {}", plain(&t["name"]), plain(&t["value"]))
}

/// `set`.
pub fn changes(answer: &Value) -> String {
    let rows = items(&answer["changed"]).map(|c| [&c["name"], &c["old"], &c["new"]].map(plain));
    table(["NAME", "BEFORE", "NOW"], rows)
}

pub fn reloaded(answer: &Value) -> String {
    let mut rows = items(&answer["changed"])
        .map(|c| {
            let note = if c["needs_restart"] == true { "with the next start" } else { "" };
            [plain(&c["key"]), plain(&c["old"]), plain(&c["new"]), note.into()]
        })
        .peekable();
    if rows.peek().is_none() {
        "nothing has changed".into()
    } else {
        table(["KEY", "BEFORE", "NOW", ""], rows)
    }
}

pub fn audit(answer: &Value) -> String {
    let rows = items(&answer["changes"]).map(|c| {
        let what = match c["key"].as_str() {
            Some(key) => format!("{key}: {} -> {}", plain(&c["old"]), plain(&c["new"])),
            None => String::new(),
        };
        [time(&c["at_ms"]), plain(&c["who"]), plain(&c["action"]), what, plain(&c["why"])]
    });
    table(["WHEN", "WHO", "DID", "WHAT", "WHY"], rows)
}

/// `sessions`: the figures, and a page of the sessions.
pub fn sessions(answer: &Value) -> String {
    let rows: Vec<_> = items(&answer["sessions"])
        .map(|s| {
            let (begun, last) = (time(&s["begun_ms"]), time(&s["last_ms"]));
            [plain(&s["key"]), plain(&s["tier"]), begun, last, plain(&s["requests"]), plain(&s["under_way"])]
        })
        .collect();
    let mut out = figures(&answer["state"]);
    if !rows.is_empty() {
        let names = ["KEY", "TIER", "BEGUN", "LAST", "REQUESTS", "UNDER WAY"];
        out = format!("{}\n\n{}", out.trim_end(), table(names, rows));
    }
    if !answer["next"].is_null() {
        out.push_str(&format!("\n\nmore: --after {}", plain(&answer["next"])));
    }
    out
}

/// What a throttle does, in words.
fn action(throttle: &Value) -> String {
    let action = &throttle["action"];
    match (action["refuse"].as_f64(), &action["rate"], &action["bandwidth"]) {
        (Some(share), ..) => format!("{:.4} % refused", share * 100.0).replace(".0000", ""),
        (_, Value::Null, bytes) => format!("{} bytes/s", plain(bytes)),
        (_, rate, _) => format!("{}/s pass", plain(rate)),
    }
}

/// `throttle`.
pub fn throttle(t: &Value) -> String {
    let mut out = format!("throttle {}: {}, {}", plain(&t["id"]), plain(&t["type"]), action(t));
    match &t["until_ms"] {
        Value::Null => out.push_str(", until it is removed"),
        until => out.push_str(&format!(", until {}", time(until))),
    }
    if t["shadow"] == true {
        out.push_str(" (only counted: enforcement.shadow)");
    }
    out
}

/// `throttles`.
pub fn throttles(answer: &Value) -> String {
    let mut rows = items(&answer["throttles"])
        .map(|t| {
            let until = if t["until_ms"].is_null() { "–".into() } else { time(&t["until_ms"]) };
            let text = |name: &str| plain(&t[name]);
            let shadow = if t["shadow"] == true { " (shadow)" } else { "" };
            [
                text("id"),
                text("type"),
                action(t) + shadow,
                text("seen"),
                text("refused"),
                text("bytes"),
                until,
                text("by"),
                text("why"),
            ]
        })
        .peekable();
    if rows.peek().is_none() {
        return "nothing is throttled".into();
    }
    table(["ID", "TYPE", "ACTION", "SEEN", "REFUSED", "BYTES", "UNTIL", "BY", "WHY"], rows)
}

/// A rate of SYNs.
fn syns(rate: &Value) -> String {
    if rate.is_null() { "no limit".into() } else { format!("{}/s", plain(rate)) }
}

/// Which SYNs a rule is about: the paper's four-tuple.
fn about(rule: &Value) -> String {
    let port = |name: &str| if rule[name] == 0 { "*".into() } else { plain(&rule[name]) };
    let [src, dst] = ["src", "dst"].map(|name| plain(&rule[name]));
    format!("{src} {} to {dst} {}", port("sport"), port("dport"))
}

/// `kernel set`.
pub fn syn_rule(rule: &Value) -> String {
    let [name, burst, priority, excess] =
        ["name", "burst", "priority", "excess"].map(|name| plain(&rule[name]));
    let rate = match rule["rate"].is_null() {
        true => "no limit".into(),
        false => format!("{}, {burst} at once, then {excess}", syns(&rule["rate"])),
    };
    format!("rule {name}: {}: {rate}; priority {priority}", about(rule))
}

/// `kernel`.
pub fn kernel(answer: &Value) -> String {
    let attached =
        items(&answer["attached"]).map(|to| format!("{} ({})", plain(&to["interface"]), plain(&to["mode"])));
    let attached: Vec<_> = attached.collect();
    let mut out = match attached.is_empty() {
        true => format!("SYNs are not policed (kernel.policing = {})\n", answer["policing"]),
        false => format!("SYNs are policed at {}\n", attached.join(", ")),
    };
    if let Some(error) = answer["error"].as_str() {
        out += &format!("{error}\n");
    }
    for note in items(&answer["notes"]) {
        out += &format!("{}\n", plain(note));
    }
    let priorities = &answer["priorities"];
    if priorities["ordered"] == true {
        let accepted: Vec<_> = items(&priorities["accepted"]).map(plain).collect();
        out += &format!("connections accepted by priority, 0 first: {}\n", accepted.join(", "));
    }
    let totals = &answer["totals"];
    let [all, unmatched, passed, refused] =
        ["syns", "unmatched", "passed", "refused"].map(|name| plain(&totals[name]));
    out += &format!("{all} SYNs: {passed} passed a rule, {refused} were refused, {unmatched} had none\n");
    let rows = items(&answer["rules"]).map(|rule| {
        let text = |name: &str| plain(&rule[name]);
        let set_by = match (rule["set_by"].as_str(), rule["by"].as_str()) {
            (Some("agent"), _) => format!("agent, of {}", syns(&rule["configured_rate"])),
            (_, Some(by)) => by.to_owned(),
            _ => text("set_by"),
        };
        let refused = ["dropped", "reset"].map(|name| rule[name].as_u64().unwrap_or_default());
        [
            text("name"),
            about(rule),
            syns(&rule["rate"]),
            text("burst"),
            text("priority"),
            text("excess"),
            text("seen"),
            text("passed"),
            refused.iter().sum::<u64>().to_string(),
            text("slowed"),
            set_by,
        ]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let names = [
            "RULE",
            "SRC PORT TO DST PORT",
            "RATE",
            "BURST",
            "PRIORITY",
            "EXCESS",
            "SEEN",
            "PASSED",
            "REFUSED",
            "SLOWED",
            "SET BY",
        ];
        out += &format!("\n{}", table(names, rows));
    }
    out
}

/// `correlation`: a table like the paper's Figure 1, with what follows from it.
pub fn correlation(answer: &Value) -> String {
    let figures = items(&answer["figures"]).map(|f| match f["level"].as_str() {
        Some(level) => format!("{} {} ({level})", plain(&f["name"]), plain(&f["value"])),
        None => format!("{} {}", plain(&f["name"]), plain(&f["value"])),
    });
    let share = answer["correlated_share"].as_f64().unwrap_or_default();
    let (name, intervals) = (plain(&answer["figure"]), plain(&answer["intervals"]));
    let mut out = format!("figures: {}\n", figures.collect::<Vec<_>>().join(", "));
    out += &format!(
        "by {name}, of {intervals} intervals: {}/s, of which {:.1} % are of culprits\n\n",
        plain(&answer["per_s"]),
        share * 100.0
    );
    let rows = items(&answer["types"]).map(|t| {
        let verdict = match (t["culprit"] == true, t["significant"] == true) {
            (true, _) => "culprit",
            (false, true) => "significant",
            (false, false) => "",
        };
        let share = format!("{:.1} %", t["share"].as_f64().unwrap_or_default() * 100.0);
        let cost = &t["cost"];
        let cost = match cost.is_null() {
            true => "–".into(),
            false => format!(
                "{} ({} to {})",
                small(&cost["per_request"]),
                small(&cost["low"]),
                small(&cost["high"])
            ),
        };
        let [r, p, lag, per_s] = ["r", "p", "lag", "per_s"].map(|name| small(&t[name]));
        [plain(&t["type"]), r, p, lag, share, per_s, cost, verdict.into()]
    });
    out += &table(["TYPE", "R", "P", "LAG", "SHARE", "PER S", "COST", ""], rows);
    let costs: Vec<_> = items(&answer["costs"])
        .map(|c| {
            [
                plain(&c["class"]),
                plain(&c["configured"]),
                small(&c["measured"]),
                small(&c["low"]),
                small(&c["high"]),
            ]
        })
        .collect();
    if !costs.is_empty() {
        out += &format!("\n\n{}", table(["CLASS", "COST CONFIGURED", "MEASURED", "LOW", "HIGH"], costs));
    }
    if let Some(suggestion) = answer["suggestion"].as_object() {
        out += &format!("\n\n{}\n", plain(&suggestion["why"]));
        for t in items(&suggestion["throttles"]) {
            let rate = plain(&t["action"]["rate"]);
            out += &format!("tidegate ctl throttle '{}' --rate {rate} --for 10m\n", plain(&t["type"]));
        }
    }
    if !answer["confirmation"].is_null() {
        out += &format!("\n\n{}", confirmation(&answer["confirmation"]));
    }
    out
}

/// `confirm`.
pub fn confirmation(c: &Value) -> String {
    let [of, figure, phase] = ["type", "figure", "phase"].map(|name| plain(&c[name]));
    let [before, during, after] = ["before", "during", "after"].map(|name| small(&c[name]));
    let verdict =
        c["verdict"].as_str().map_or_else(|| format!("until {}", time(&c["ends_ms"])), str::to_owned);
    format!(
        "confirmation of {of}: {phase}, {verdict}\n{figure} before {before}, while it is held {during}, after {after}"
    )
}

/// A number with three significant digits.
fn small(value: &Value) -> String {
    value.as_f64().map_or_else(|| "–".into(), tidegate_core::correlate::suggestion::number)
}

/// Every figure of a document by its path: `room.waiting`, `classes.search.offered_per_s`.
pub fn flat(value: &Value) -> Vec<(String, Value)> {
    let mut out = Vec::new();
    walk(value, "", &mut out);
    out
}

fn walk(value: &Value, path: &str, out: &mut Vec<(String, Value)>) {
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(fields) => {
            for (name, value) in
                fields.iter().filter(|(name, _)| !matches!(name.as_str(), "name" | "address"))
            {
                walk(value, &join(name), out);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate().filter(|(_, item)| item.is_object()) {
                let name = item["name"].as_str().or(item["address"].as_str()).or(item["type"].as_str());
                walk(item, &join(&name.map_or_else(|| i.to_string(), str::to_owned)), out);
            }
        }
        _ => out.push((path.to_owned(), value.clone())),
    }
}

/// `state`, `capacity`.
pub fn figures(answer: &Value) -> String {
    let rows = flat(answer).into_iter().map(|(name, value)| {
        let shown = if name.ends_with("at_ms") { time(&value) } else { plain(&value) };
        [name, shown]
    });
    table(["FIGURE", "VALUE"], rows)
}

/// Milliseconds since 1970 as date and time in UTC.
pub fn time(ms: &Value) -> String {
    let at = ms.as_i64().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| plain(ms), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// `explain`.
pub fn refusal(answer: &Value) -> String {
    let [id, rule, action, level, figures, by, path, class, tier, retry_after_s] =
        ["id", "rule", "action", "level", "figures", "by", "path", "class", "tier", "retry_after_s"]
            .map(|name| plain(&answer[name]));
    let mut out = match by.as_str() {
        "rule" => format!("request {id} was refused by rule {rule} ({action}); level {level}; {figures}"),
        "throttle" => {
            let throttle = &answer["throttle"];
            let (number, of) = (plain(&throttle["id"]), plain(&throttle["type"]));
            format!("request {id} was refused by throttle {number} of {of}")
        }
        _ => format!("request {id} was refused by the gate: {by}"),
    };
    let at = time(&answer["at_ms"]);
    out.push_str(&format!("\npath {path}, class {class}, service level {tier}; {at}"));
    if answer["retry_after_s"] != 0 {
        out.push_str(&format!("\nthe visitor was told to come again after {retry_after_s} s"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_are_shown_as_text() {
        let state = json!({
            "at_ms": 0, "room": { "waiting": 3 }, "classes": [{ "name": "search", "cost": 1.5 }], "points": [[1, 2]],
        });
        let flat: Vec<String> =
            flat(&state).into_iter().map(|(name, value)| format!("{name}={}", plain(&value))).collect();
        assert_eq!(flat, ["at_ms=0", "classes.search.cost=1.500", "room.waiting=3"]);
        assert_eq!(
            table(["A", "BB"], [["long", "x"], ["", ""]].map(|row| row.map(str::to_owned))),
            "A     BB\nlong  x\n"
        );
        assert_eq!(time(&json!(1_795_305_600_123_u64)), "2026-11-22 00:00:00");
        let line = json!({
            "key": "ab", "tier": "gold", "begun_ms": 0, "last_ms": 0, "requests": 2, "under_way": 1,
        });
        let page = sessions(&json!({ "state": { "open": 1 }, "sessions": [line], "next": 7 }));
        assert!(
            page.contains("open") && page.contains("\nab   gold") && page.ends_with("more: --after 7"),
            "{page}"
        );
        assert!(
            one(&json!({ "name": "n", "value": "5s", "file": "30s", "doc": "D.", "expected": "x",
            "tuned": { "who": "w", "why": "", "at_ms": 0 } }))
            .ends_with("The file says 30s. Tuned by w at 1970-01-01 00:00:00")
        );
    }
}
