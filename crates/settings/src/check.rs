//! Rules about several keys or sections that must agree. Those of a single subject are in its file.

use std::collections::HashMap;
use std::time::Duration;

use super::kinds::quantity::show_duration;
use super::read::Reader;
use super::{
    OriginProtocol, Settings, Visitors, capacity, class, congestion, correlate, enforcing, kernel, role,
    session, tls,
};

/// The room keeps a queue of a tenth of a second's work and the deviation of a second's visitors, at most a
/// quarter of what may wait there. From about twenty visitors per second on, four times that is less than a
/// second.
const ENOUGH_QUEUE: Duration = Duration::from_secs(1);

impl Settings {
    /// What is allowed but hardly intended, in sentences for operators.
    pub fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.discovers() && self.room.enabled && self.queue.max_wait < ENOUGH_QUEUE {
            all.push(format!(
                "queue.max_wait: {} is too short for the queue that the room keeps while the capacity is discovered: most \
                 visitors will be told to come again although their turn has come. Expected at least {}.",
                show_duration(self.queue.max_wait),
                show_duration(ENOUGH_QUEUE),
            ));
        }
        let counts_sessions = self.counts_sessions();
        for rule in self.rule.iter().filter(|rule| rule.visitors == Visitors::New && !counts_sessions) {
            all.push(format!(
                "rule.{}.visitors: every request is new where there are no sessions, so \"new\" means \"all\". Expected \
                 room.unit = \"session\", which is the default.",
                rule.name,
            ));
        }
        session::warn(self, &mut all);
        tls::warn(self, &mut all);
        all
    }
}

pub(crate) fn check(settings: &Settings, out: &mut Reader) {
    listeners(settings, out);
    role::check(settings, out);
    class::check(settings, out);
    room(settings, out);
    capacity::check(&settings.capacity, out);
    congestion::check(settings, out);
    session::check(settings, out);
    let limits = &settings.limits;
    if limits.max_uri_bytes > limits.max_header_bytes {
        let (expected, got) = ("at most `limits.max_header_bytes`, which includes it", limits.max_uri_bytes);
        out.conflict("limits.max_uri_bytes", expected, got.to_string(), None);
    }
    http2(settings, out);
    let replicas = &settings.origin.replicas;
    for (i, replica) in replicas.iter().enumerate().filter(|(i, replica)| replicas[..*i].contains(replica)) {
        let got = format!("\"{replica}\" again");
        out.conflict(&out.element("origin.replicas", i), "values that differ", got, None);
    }
    enforcing::check(settings, out);
    correlate::check(settings, out);
    kernel::check(settings, out);
    tls::check(settings, out);
}

fn listeners(settings: &Settings, out: &mut Reader) {
    let listen = &settings.listen;
    if !listen.admin.ip().is_loopback() && listen.admin_token.is_empty() {
        let hint = "Set `listen.admin_token`, or listen on 127.0.0.1.".to_owned();
        let expected = "a loopback address, or a token beside it";
        out.conflict("listen.admin", expected, format!("{} without a token", listen.admin), Some(hint));
    }
    if !listen.admin_read_token.is_empty() && listen.admin_token.is_empty() {
        let hint = "Without it everybody who connects may read and change everything.".to_owned();
        let expected = "`listen.admin_token` beside a token that may only read";
        out.conflict("listen.admin_read_token", expected, "nothing", Some(hint));
    } else if !listen.admin_token.is_empty() && listen.admin_read_token == listen.admin_token {
        let expected = "another token than `listen.admin_token`";
        out.conflict("listen.admin_read_token", expected, "the same (it is not shown)", None);
    }
    let admin = listen.admin;
    let Some(http) = listen.http.ip() else { return };
    let overlap = http.ip() == admin.ip() || http.ip().is_unspecified() || admin.ip().is_unspecified();
    // With port 0 the kernel chooses a free port for each.
    if http.port() == admin.port() && http.port() != 0 && overlap {
        out.conflict("listen.admin", "another port than `listen.http`", format!("{admin} for both"), None);
    }
}

fn http2(settings: &Settings, out: &mut Reader) {
    if settings.origin.protocol == OriginProtocol::Auto && !settings.origin.speaks_tls() {
        let hint = "Say which of the two the origin speaks, or name its replicas `https://...`.".to_owned();
        let expected = "\"http1\" or \"h2\": it is chosen in TLS, and no replica speaks that";
        out.conflict("origin.protocol", expected, "\"auto\"", Some(hint));
    }
    let (stream, connection) = (settings.http2.stream_window, settings.http2.connection_window);
    if stream > connection {
        let expected = "at most `http2.connection_window`, which it is part of";
        out.conflict("http2.stream_window", expected, stream.to_string(), None);
    }
}

fn room(settings: &Settings, out: &mut Reader) {
    let classes = settings.class_names();
    for (i, wanted) in settings.room.classes.iter().enumerate() {
        out.check_reference(&out.element("room.classes", i), wanted, "class", &classes);
    }
    let mut ids = HashMap::new();
    for (i, key) in settings.room.keys.iter().enumerate() {
        let id = key.split(':').next().and_then(|id| id.parse::<u8>().ok()).unwrap_or_default();
        if let Some(earlier) = ids.insert(id, i + 1) {
            let got = format!("id {id} again (it is also key {earlier})");
            out.conflict(&out.element("room.keys", i), "key ids that differ", got, None);
        }
    }
}
