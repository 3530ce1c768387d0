//! `[session]` (WAC 2, 3.1 f): which requests are of one visitor, how many sessions there may be, and what
//! happens beyond that.

use std::time::Duration;

use serde_json::json;

use super::declare::Leaf;
use super::kinds::Choice;
use super::kinds::net::COOKIE_NAME;
use super::kinds::quantity::{Count, DAY, S, show_duration, span};
use super::mistake::did_you_mean;
use super::read::Reader;
use super::tree::Value;
use super::{Role, Settings, Unit};

/// Largest number of sessions that may be configured.
const MOST: u32 = 10_000_000;

named! {
    /// How requests of one session are recognised.
    pub enum SessionBy {
        /// The gate's own signed cookie.
        #[default] Pass = "pass",
        /// A cookie of the application.
        Cookie = "cookie",
        /// The client's address (IPv6: its /64).
        Ip = "ip",
        /// /24 or /56 of the client's address.
        IpPrefix = "ip-prefix",
        Connection = "connection",
    }

    /// What happens to a session that would begin while no session slot is free.
    pub enum WhenFull {
        #[default] Room = "room",
        Refuse = "refuse",
    }
}

/// How many sessions there may be at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SessionMax {
    /// Any number: the room's schedule alone decides.
    #[default]
    None,
    /// What the capacity allows, found out.
    Discovered,
    /// This many.
    Fixed(u32),
}

/// A number, or one of two words.
struct SessionCount;

impl SessionCount {
    const WORDS: [(&'static str, SessionMax); 2] =
        [("none", SessionMax::None), ("discovered", SessionMax::Discovered)];
}

impl Leaf<SessionMax> for SessionCount {
    fn parse(&self, value: &Value) -> Result<SessionMax, Option<String>> {
        match value {
            Value::Integer(n) => match u32::try_from(*n) {
                Ok(n @ 1..=MOST) => Ok(SessionMax::Fixed(n)),
                Ok(0) => Err(Some("Write \"none\" for no bound.".into())),
                _ => Err(None),
            },
            Value::Text(text) => {
                if let Ok(n) = text.trim().parse::<u32>() {
                    return Err(Some(format!("Write {n} without quotes.")));
                }
                let known = Self::WORDS.iter().find(|(word, _)| word == text).map(|(_, max)| *max);
                known.ok_or_else(|| did_you_mean(text, Self::WORDS.iter().map(|(word, _)| *word)))
            }
            _ => Err(None),
        }
    }

    fn expected(&self) -> String {
        format!("\"none\", \"discovered\" or a whole number from 1 to {MOST}")
    }

    fn show(&self, value: &SessionMax) -> String {
        match value {
            SessionMax::None => "\"none\"".into(),
            SessionMax::Discovered => "\"discovered\"".into(),
            SessionMax::Fixed(n) => n.to_string(),
        }
    }

    fn schema(&self) -> serde_json::Value {
        // The bounds apply to numbers, the pattern to words.
        json!({ "type": ["integer", "string"], "minimum": 1, "maximum": MOST, "pattern": "^(none|discovered)$" })
    }
}

section! {
    /// Sessions: a visitor with all its requests. They are counted unless `room.unit = "request"`:
    /// docs/sessions.md.
    pub struct Session [tunable] {
        /// How requests of one session are recognised: by the gate's own signed cookie ("pass"), the value of
        /// a cookie of the application ("cookie"), the client's address ("ip"; the /64 of an IPv6 client),
        /// its address prefix ("ip-prefix": /24 or /56), or the TCP connection ("connection"). Only a pass
        /// survives a restart of the gate. A reload that changes this ends all sessions.
        [fixed] key: SessionBy = SessionBy::Pass => Choice;
        /// Name of the application's cookie, for `key = "cookie"`, like "JSESSIONID".
        [fixed] cookie: String = String::new() => COOKIE_NAME;
        /// Sessions at once, not counting service levels with session slots of their own: any number
        /// ("none"), what the capacity allows, learned from the requests and the length of sessions
        /// ("discovered"), or a number.
        max: SessionMax = SessionMax::None => SessionCount;
        /// What happens to a session that would begin while no session slot is free: it waits in the room
        /// ("room"), or is told at once to come again later ("refuse").
        when_full: WhenFull = WhenFull::Room => Choice;
        /// Inactivity after which a session ends and its slot is free, counted from the end of its last
        /// request.
        timeout: Duration = Duration::from_secs(5 * 60) => span(S, 7 * DAY);
        /// Age at which a session ends even if it is active.
        max_age: Duration = Duration::from_secs(60 * 60) => span(S, 30 * DAY);
        /// Most sessions kept in memory (some 100 bytes each). A session that was ended early is kept until
        /// its pass expires. Beyond this number no session begins.
        [fixed] max_entries: usize = 1_000_000 => Count(16..=10_000_000);
    }
}

impl Settings {
    /// Whether visitors are admitted session by session, and sessions are counted.
    pub fn counts_sessions(&self) -> bool {
        self.room.enabled && self.room.unit == Unit::Session
    }
}

/// Reports keys that contradict each other or other sections.
pub(crate) fn check(settings: &Settings, out: &mut Reader) {
    let session = &settings.session;
    if session.max_age < session.timeout {
        out.conflict("session.max_age", "at least `session.timeout`", show_duration(session.max_age), None);
    }
    if session.key == SessionBy::Cookie && session.cookie.is_empty() {
        let hint = "Write the name of the application's cookie, like \"JSESSIONID\".".to_owned();
        out.conflict("session.cookie", "a name (session.key is \"cookie\")", "nothing", Some(hint));
    } else if session.key != SessionBy::Cookie && !session.cookie.is_empty() {
        let expected = "no name where session.key is not \"cookie\"";
        let hint = Some("Set session.key = \"cookie\"?".to_owned());
        out.conflict("session.cookie", expected, format!("\"{}\"", session.cookie), hint);
    } else if is_gate_cookie(&session.cookie) {
        let expected = "a cookie of the application, not one of the gate";
        let hint = Some("session.key = \"pass\" uses the gate's own cookie.".to_owned());
        out.conflict("session.cookie", expected, format!("\"{}\"", session.cookie), hint);
    }
    let of_tiers = settings.tier.iter().map(|tier| tier.max_sessions as u64).sum::<u64>();
    let of_all = match session.max {
        SessionMax::Fixed(n) => u64::from(n),
        SessionMax::None | SessionMax::Discovered => 0,
    };
    if settings.counts_sessions() && of_tiers + of_all > session.max_entries as u64 {
        let expected = "at least as many as `session.max` and every tier's `max_sessions` together";
        let got = format!("{} for {} sessions", session.max_entries, of_tiers + of_all);
        out.conflict("session.max_entries", expected, got, None);
    }
}

/// Warns of keys that have no effect.
pub(crate) fn warn(settings: &Settings, all: &mut Vec<String>) {
    let tiers = || settings.tier.iter().filter(|tier| tier.max_sessions > 0);
    if let Role::TokenGen { .. } = settings.role {
        let there = "tokencheck counts the sessions, not tokengen. Expected in tokencheck's file.";
        if settings.session.max != SessionMax::None {
            all.push(format!("session.max: {there}"));
        }
        all.extend(tiers().map(|tier| format!("tier.{}.max_sessions: {there}", tier.name)));
        return;
    }
    if settings.counts_sessions() {
        let is_checker = matches!(settings.role, Role::TokenCheck { .. });
        if is_checker && settings.session.when_full == WhenFull::Refuse {
            all.push(
                "session.when_full: visitors for whom no session slot is free wait in tokengen's room; nobody is refused. Expected \
                 \"room\"."
                    .into(),
            );
        }
        if settings.session.key == SessionBy::Connection && !settings.proxy.trusted.is_empty() {
            all.push(
                "session.key: a proxy in front (proxy.trusted) sends requests of many visitors over one connection: they would \
                 be one session. Expected \"pass\", \"cookie\" or \"ip\"."
                    .into(),
            );
        }
        return;
    }
    let needs = "Expected room.unit = \"session\", which is the default.";
    if settings.session.max != SessionMax::None {
        all.push(format!("session.max: sessions are not counted, so this bounds nothing. {needs}"));
    }
    all.extend(
        tiers().map(|tier| format!("tier.{}.max_sessions: sessions are not counted. {needs}", tier.name)),
    );
}

/// Whether `name` is one of the gate's own cookies (`tg` and the number of a class, `tgid`, `tgp`), which are
/// not sent to the origin.
pub fn is_gate_cookie(name: &str) -> bool {
    name.strip_prefix("tg").is_some_and(|rest| {
        rest == "id" || rest == "p" || (!rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_as_sessions_behind_a_proxy_are_warned_of() {
        for (key, trusted, wanted) in
            [("connection", "\"10.0.0.0/8\"", 1), ("connection", "", 0), ("ip", "\"10.0.0.0/8\"", 0)]
        {
            let room = "origin.replicas = \"a:1\"\nroom.unit = \"session\"\n";
            let text = format!("{room}session.key = \"{key}\"\nproxy.trusted = [{trusted}]\n");
            let all = Settings::parse(&text, "f").unwrap().warnings();
            let told = all.iter().filter(|one| one.starts_with("session.key: ")).count();
            assert_eq!(told, wanted, "{key} {trusted}: {all:?}");
        }
    }

    #[test]
    fn keys_that_only_the_other_process_uses_are_warned_of() {
        let tokengen =
            "role = \"tokengen\"\ntokengen.check_url = \"http://check.example\"\nroom.keys = [\"KEY\"]\n";
        let tokencheck = "role = \"tokencheck\"\ntokencheck.gen_url = \"http://gen.example\"\ntokencheck.feedback_url = \
                          \"http://127.0.0.1:1\"\norigin.replicas = \"a:1\"\nroom.keys = [\"KEY\"]\n";
        let tier = "[[tier]]\nname = \"gold\"\nclient = \"10.0.0.0/8\"\nmax_sessions = 5\n";
        for (role, session, wanted) in [
            (tokengen, "", vec!["tier.gold.max_sessions: tokencheck"]),
            (
                tokengen,
                "session.max = 10\n",
                vec!["session.max: tokencheck", "tier.gold.max_sessions: tokencheck"],
            ),
            (tokencheck, "session.max = 10\n", vec![]),
            (tokencheck, "session.when_full = \"refuse\"\n", vec!["session.when_full: visitors"]),
        ] {
            let key = format!("1:{}", "ab".repeat(32));
            let text = format!("{role}room.unit = \"session\"\n{session}{tier}").replace("KEY", &key);
            let all = Settings::parse(&text, "f").unwrap().warnings();
            let told: Vec<_> =
                all.iter().filter(|one| one.contains("session.") || one.contains("sessions:")).collect();
            assert_eq!(told.len(), wanted.len(), "{session}: {all:?}");
            assert!(told.iter().zip(wanted).all(|(one, start)| one.starts_with(start)), "{all:?}");
        }
    }

    #[test]
    fn bounds_on_sessions_that_are_not_counted_are_warned_of() {
        let tier = "[[tier]]\nname = \"gold\"\nclient = \"10.0.0.0/8\"\nmax_sessions = 5\n";
        for (room, wanted) in [("room.unit = \"request\"\n", 2), ("", 0)] {
            let text = format!("origin.replicas = \"a:1\"\n{room}session.max = 10\n{tier}");
            let all = Settings::parse(&text, "f").unwrap().warnings();
            let ours = ["session.max: ", "tier.gold.max_sessions: "];
            let told = all.iter().filter(|one| ours.iter().any(|start| one.starts_with(start)));
            assert_eq!(told.count(), wanted, "{room}: {all:?}");
        }
    }

    #[test]
    fn the_gates_cookies_are_recognised() {
        for ours in ["tg0", "tg255", "tgid", "tgp"] {
            assert!(is_gate_cookie(ours), "{ours}");
        }
        for theirs in ["tg", "tgx", "tgid2", "session", "atg0", "TG0"] {
            assert!(!is_gate_cookie(theirs), "{theirs}");
        }
    }
}
