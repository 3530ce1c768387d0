//! `GET /v1/events`: the state of every second as server-sent events (WHATWG HTML, 9.2), for dashboards and tuners that
//! would otherwise ask once a second.
//!
//! Listeners are bounded, and so is what is kept for each: one that does not read is dropped, not waited for. A stream says
//! at its start how soon to come back (`retry`), and ends in good order when the gate drains or the connection has
//! reached its age, so that a client that follows the standard misses a second at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;

/// Half of the admin API's connections: listeners alone can never shut an operator out.
pub(super) const MAX_LISTENERS: usize = 32;
/// Events kept for one listener beside what its socket holds.
const MAX_UNREAD: usize = 8;
/// Seconds without an event after which a comment keeps intermediaries from closing the connection.
const KEEP_ALIVE_S: u32 = 15;
/// Whoever was cut off comes back after a second.
const RETRY: &str = "retry: 1000\n\n";

/// Who listens.
#[derive(Default)]
pub(super) struct Listeners(Mutex<Vec<Listener>>);

struct Listener {
    to: mpsc::Sender<Bytes>,
    /// Its connection has reached its age.
    aged: Arc<AtomicBool>,
    every: u32,
    /// Seconds until the next event, and since the last bytes.
    left: u32,
    silent: u32,
}

impl Listener {
    /// Whether it listens on.
    fn tell(&mut self, event: &Bytes) -> bool {
        if self.aged.load(Ordering::Relaxed) {
            let _ = self.to.try_send(Bytes::from_static(RETRY.as_bytes()));
            return false;
        }
        self.left -= 1;
        self.silent += 1;
        let bytes = if self.left == 0 {
            event.clone()
        } else if self.silent >= KEEP_ALIVE_S {
            Bytes::from_static(b": still here\n\n")
        } else {
            return !self.to.is_closed();
        };
        self.left = if self.left == 0 { self.every } else { self.left };
        self.silent = 0;
        self.to.try_send(bytes).is_ok()
    }
}

impl Listeners {
    /// Somebody listens: `None` if too many do.
    pub fn listen(&self, every: u32, aged: Arc<AtomicBool>, now: Bytes) -> Option<mpsc::Receiver<Bytes>> {
        let mut listeners = self.0.lock();
        listeners.retain(|listener| !listener.to.is_closed());
        if listeners.len() >= MAX_LISTENERS {
            return None;
        }
        let (to, from) = mpsc::channel(MAX_UNREAD);
        for bytes in [Bytes::from_static(RETRY.as_bytes()), now] {
            to.try_send(bytes).ok()?;
        }
        listeners.push(Listener { to, aged, every, left: every, silent: 0 });
        Some(from)
    }

    /// A second has passed. Who does not keep up is dropped.
    pub fn publish(&self, state: impl FnOnce() -> Value) {
        let mut listeners = self.0.lock();
        if !listeners.is_empty() {
            let event = event(&state());
            listeners.retain_mut(|listener| listener.tell(&event));
        }
    }

    /// Ends all streams: the gate drains.
    pub fn close(&self) {
        for listener in self.0.lock().drain(..) {
            let _ = listener.to.try_send(Bytes::from_static(b"event: end\ndata: draining\n\n"));
        }
    }
}

pub(super) fn event(state: &Value) -> Bytes {
    Bytes::from(format!("event: state\nid: {}\ndata: {state}\n\n", state["at_ms"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(from: &mut mpsc::Receiver<Bytes>) -> String {
        let mut all = Vec::new();
        while let Ok(bytes) = from.try_recv() {
            all.extend_from_slice(&bytes);
        }
        String::from_utf8(all).unwrap()
    }

    fn listen(events: &Listeners, every: u32) -> (mpsc::Receiver<Bytes>, Arc<AtomicBool>) {
        let aged = Arc::new(AtomicBool::new(false));
        (events.listen(every, aged.clone(), event(&json!({ "at_ms": 0 }))).expect("a place"), aged)
    }

    #[test]
    fn who_does_not_read_is_dropped_and_the_others_are_not() {
        let events = Listeners::default();
        let (mut reads, _) = listen(&events, 1);
        let (mut sleeps, _) = listen(&events, 1);
        assert_eq!(text(&mut reads), "retry: 1000\n\nevent: state\nid: 0\ndata: {\"at_ms\":0}\n\n");
        for second in 1..=2 * MAX_UNREAD {
            events.publish(|| json!({ "at_ms": second }));
            assert!(text(&mut reads).contains(&format!("id: {second}\n")));
        }
        assert_eq!(events.0.lock().len(), 1);
        assert_eq!(text(&mut sleeps).matches("event:").count(), MAX_UNREAD - 1, "what was kept for it");
        assert!(sleeps.is_closed());
        drop(reads);
        events.publish(|| json!({}));
        assert!(events.0.lock().is_empty());
        events.publish(|| unreachable!("nobody listens"));
    }

    #[test]
    fn listeners_are_bounded_and_places_come_back() {
        let events = Listeners::default();
        let mut all: Vec<_> = (0..MAX_LISTENERS).map(|_| listen(&events, 1)).collect();
        assert!(events.listen(1, Arc::default(), Bytes::new()).is_none());
        all.pop();
        assert!(events.listen(1, Arc::default(), Bytes::new()).is_some());
    }

    #[test]
    fn rare_events_are_kept_alive_by_comments() {
        let events = Listeners::default();
        let (mut from, _) = listen(&events, 20);
        text(&mut from);
        let mut told = Vec::new();
        for second in 1..=40 {
            events.publish(|| json!({ "at_ms": second }));
            told.push(text(&mut from));
        }
        let at = |what: &str| {
            (1..).zip(&told).filter(|(_, t)| t.contains(what)).map(|(s, _)| s).collect::<Vec<_>>()
        };
        assert_eq!((at("event: state"), at(": still here")), (vec![20, 40], vec![15, 35]));
    }

    #[test]
    fn streams_end_in_good_order() {
        let events = Listeners::default();
        let (mut old, aged) = listen(&events, 1);
        let (mut other, _) = listen(&events, 1);
        aged.store(true, Ordering::Relaxed);
        events.publish(|| json!({ "at_ms": 1 }));
        assert!(text(&mut old).ends_with(RETRY) && old.is_closed());
        events.close();
        assert!(text(&mut other).ends_with("event: end\ndata: draining\n\n") && other.is_closed());
    }
}
