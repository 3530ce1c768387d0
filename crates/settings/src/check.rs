//! What single keys cannot know: keys that must agree with each other.

use std::collections::HashMap;
use std::time::Duration;

use super::mistake::MAX_MISTAKES;
use tidegate_core::ingress::Refusal;
use tidegate_core::units::Share;

use super::read::{Reader, class_path};
use super::{Class, Role, Settings, Visitors};

/// The room keeps a queue of a tenth of a second's work and a deviation of a second's visitors, at most a quarter of what may wait
/// there: four times that is a second from some twenty visitors per second on.
const ENOUGH_QUEUE: Duration = Duration::from_secs(1);

impl Settings {
    /// What is allowed but hardly meant, in sentences for operators.
    pub fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.discovers() && self.room.enabled && self.queue.max_wait < ENOUGH_QUEUE {
            all.push(format!(
                "queue.max_wait: {} is too short for the queue that the room keeps where the capacity is found out: most \
                 visitors will be asked to come again in their turn. Expected at least {}.",
                super::kinds::quantity::show_duration(self.queue.max_wait),
                super::kinds::quantity::show_duration(ENOUGH_QUEUE),
            ));
        }
        let counts_sessions = self.counts_sessions();
        for rule in self.rule.iter().filter(|rule| rule.visitors == Visitors::New && !counts_sessions) {
            all.push(format!(
                "rule.{}.visitors: every request is new where no session is told by a pass: \"new\" means \"all\". Expected \
                 room.unit = \"session\" beside it.",
                rule.name,
            ));
        }
        super::session::warn(self, &mut all);
        all
    }
}

/// Reports every disagreement.
pub(crate) fn check(settings: &Settings, out: &mut Reader) {
    listeners(settings, out);
    roles(settings, out);
    classes(settings, out);
    room(settings, out);
    capacity(settings, out);
    super::congestion_check::check(settings, out);
    super::session::check(settings, out);
    if settings.limits.max_uri_bytes > settings.limits.max_header_bytes {
        let got = settings.limits.max_uri_bytes.to_string();
        out.conflict(
            "limits.max_uri_bytes",
            "at most `limits.max_header_bytes`, which includes it",
            got,
            None,
        );
    }
    repeated(&settings.origin.replicas, "origin.replicas", out);
    super::enforcing_check::check(settings, out);
}

fn listeners(settings: &Settings, out: &mut Reader) {
    let listen = &settings.listen;
    if !listen.admin.ip().is_loopback() && listen.admin_token.is_empty() {
        let hint = "Set `listen.admin_token`, or listen on 127.0.0.1.".to_owned();
        let expected = "a loopback address, or a token beside it";
        out.conflict("listen.admin", expected, format!("{} without a token", listen.admin), Some(hint));
    }
    if !listen.admin_read_token.is_empty() && listen.admin_token.is_empty() {
        let hint =
            "Without it whoever connects may change everything, and nobody needs a token to read.".to_owned();
        let expected = "`listen.admin_token` beside a token that may only read";
        out.conflict("listen.admin_read_token", expected, "nothing".into(), Some(hint));
    } else if !listen.admin_token.is_empty() && listen.admin_read_token == listen.admin_token {
        let expected = "another token than `listen.admin_token`";
        out.conflict("listen.admin_read_token", expected, "the same (it is not shown)".into(), None);
    }
    let (http, admin) = (listen.http, listen.admin);
    let overlap = http.ip() == admin.ip() || http.ip().is_unspecified() || admin.ip().is_unspecified();
    // Port 0 lets the kernel choose: never the same twice.
    if http.port() == admin.port() && http.port() != 0 && overlap {
        out.conflict("listen.admin", "another port than `listen.http`", format!("{admin} for both"), None);
    }
}

fn roles(settings: &Settings, out: &mut Reader) {
    let (name, needed): (_, Vec<(&str, &String)>) = match &settings.role {
        Role::Gate => ("gate", Vec::new()),
        Role::TokenGen { check_url } => ("tokengen", vec![("tokengen.check_url", check_url)]),
        Role::TokenCheck { gen_url, feedback_url, .. } => {
            ("tokencheck", vec![("tokencheck.gen_url", gen_url), ("tokencheck.feedback_url", feedback_url)])
        }
    };
    for (key, value) in needed {
        if value.is_empty() {
            out.conflict(key, &format!("a URL (role \"{name}\" needs it)"), "nothing".into(), None);
        }
    }
    for other in ["tokengen", "tokencheck"] {
        if other != name && out.has(other) {
            let expected = format!("no [{other}] in role \"{name}\"");
            out.conflict(
                other,
                &expected,
                "a section that has no effect".into(),
                Some(format!("Set role = \"{other}\"?")),
            );
        }
    }
    if name != "gate" && settings.room.keys.is_empty() {
        let hint = "Give both processes the same keys.".to_owned();
        let expected = format!("a key ring (role \"{name}\" shares it with the other process)");
        out.conflict("room.keys", &expected, "nothing".into(), Some(hint));
    }
    if name != "tokengen" && settings.origin.replicas.is_empty() {
        let hint = "Write replicas = [\"HOST:PORT\"] under [origin].".to_owned();
        out.conflict("origin.replicas", "at least one HOST:PORT", "nothing".into(), Some(hint));
    }
}

fn classes(settings: &Settings, out: &mut Reader) {
    let mut first = HashMap::new();
    for (i, class) in settings.class.iter().enumerate() {
        let path = class_path(&class.name, i);
        if class.name.is_empty() {
            // A name that was refused has its own mistake.
            if !out.has(&format!("{path}.name")) {
                let expected = "a `name` for every class";
                out.conflict(&format!("class#{i}"), expected, "a class without one".into(), None);
            }
        } else if let Some(earlier) = first.insert(class.name.as_str(), i + 1) {
            let expected = "class names that differ";
            let got = format!("\"{}\" again (it is also class {earlier})", class.name);
            out.conflict(&format!("{path}.name"), expected, got, None);
        }
        if class.name == super::DEFAULT && !class.is_default() {
            let expected = "no `match`: the class \"default\" is of requests that match no other";
            out.conflict(&format!("{path}.match"), expected, "one".into(), None);
        }
        buckets(class, &path, out);
        if class.ingress.refuse == Refusal::Room && !settings.room.enabled {
            let expected = "\"shed\" (there is no waiting room: `room.enabled` is false)";
            out.conflict(&format!("{path}.ingress.refuse"), expected, "\"room\"".into(), None);
        }
    }
    guarantees(settings, out);
}

/// A bucket too small for one request.
fn buckets(class: &Class, path: &str, out: &mut Reader) {
    let (ingress, egress) = (&class.ingress, &class.egress);
    for (name, rate, burst) in
        [("ingress", ingress.rate, ingress.burst), ("egress", egress.rate, egress.burst)]
    {
        if rate > 0.0 && burst > 0.0 && burst < class.cost {
            let expected = format!("at least the class's `cost` of {}, or 0", class.cost);
            out.conflict(&format!("{path}.{name}.burst"), &expected, burst.to_string(), None);
        }
    }
}

/// More promised than there is.
fn guarantees(settings: &Settings, out: &mut Reader) {
    let mut sum = 0;
    for (i, class) in settings.class.iter().enumerate() {
        sum += Share::from_fraction(class.guarantee).map_or(0, Share::millionths);
        if sum > Share::ALL.millionths() {
            let expected = "guarantees of at most 1, all classes together";
            let got = format!("a sum of {}", f64::from(sum) / 1e6);
            return out.conflict(&format!("{}.guarantee", class_path(&class.name, i)), expected, got, None);
        }
    }
}

fn room(settings: &Settings, out: &mut Reader) {
    let written = settings.class.iter().map(|c| c.name.as_str());
    // A class, whether it is written down or not.
    let default = Some(super::DEFAULT).filter(|name| settings.class.iter().all(|c| c.name != *name));
    let names = || written.clone().chain(default).filter(|name| !name.is_empty());
    for (i, wanted) in settings.room.classes.iter().enumerate() {
        if names().any(|name| name == wanted) {
            continue;
        }
        let all: Vec<_> = names().take(10).collect();
        let expected = format!(
            "the name of a [[class]]: {}",
            super::kinds::either(all.iter().map(|n| format!("\"{n}\"")))
        );
        // Nobody reads that many hints, and each one costs a comparison with every class.
        let hint =
            if out.found.len() < MAX_MISTAKES { super::read::did_you_mean(wanted, names()) } else { None };
        out.conflict(&element("room.classes", i, out), &expected, format!("\"{wanted}\""), hint);
    }
    let mut ids = HashMap::new();
    for (i, key) in settings.room.keys.iter().enumerate() {
        let id = key.split(':').next().and_then(|id| id.parse::<u8>().ok()).unwrap_or_default();
        if let Some(earlier) = ids.insert(id, i + 1) {
            let got = format!("id {id} again (it is also key {earlier})");
            out.conflict(&element("room.keys", i, out), "key ids that differ", got, None);
        }
    }
}

fn capacity(settings: &Settings, out: &mut Reader) {
    let c = &settings.capacity;
    if c.ceiling > 0.0 && c.floor > c.ceiling {
        let got = format!("a floor of {} above a ceiling of {}", c.floor, c.ceiling);
        out.conflict("capacity.floor", "at most `capacity.ceiling`", got, None);
    }
    let b = &c.bottleneck;
    let bounds =
        format!("from `min_in_flight` to `max_in_flight` ({} to {})", b.min_in_flight, b.max_in_flight);
    if b.min_in_flight > b.max_in_flight {
        let got = format!("a least of {} above a most of {}", b.min_in_flight, b.max_in_flight);
        out.conflict("capacity.bottleneck.min_in_flight", "at most `max_in_flight`", got, None);
    } else if !(b.min_in_flight..=b.max_in_flight).contains(&b.start_in_flight) {
        let got = b.start_in_flight.to_string();
        out.conflict("capacity.bottleneck.start_in_flight", &bounds, got, None);
    }
}

fn repeated(values: &[String], key: &str, out: &mut Reader) {
    for (i, value) in values.iter().enumerate() {
        if values[..i].contains(value) {
            out.conflict(&element(key, i, out), "values that differ", format!("\"{value}\" again"), None);
        }
    }
}

/// The place of an element; of the key, if one value stood for the list.
fn element(key: &str, index: usize, out: &Reader) -> String {
    let item = format!("{key}#{index}");
    if out.has(&item) { item } else { key.to_owned() }
}
