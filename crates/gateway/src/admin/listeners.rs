//! The clients of `GET /v1/events`, which get every second's state as server-sent events (WHATWG HTML, 9.2).
//!
//! Their number is bounded, and so are the events kept for each: a client that does not read is dropped. A
//! stream says at its start when to reconnect (`retry`), and ends in good order when the gate drains or the
//! connection has reached its age, so that a client that follows the standard misses one second at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::mpsc;

use super::answer::json;

/// Half of the admin API's connections, so that listeners cannot lock an operator out.
pub(super) const MAX_LISTENERS: usize = 32;
/// Events kept for one listener, beside those in its socket's buffer.
const MAX_UNREAD: usize = 8;
/// After so many seconds without an event, a comment keeps intermediaries from closing the connection.
const KEEP_ALIVE_S: u32 = 15;
/// A client reconnects after a second.
const RETRY: &str = "retry: 1000\n\n";

#[derive(Default)]
pub(super) struct Listeners(Mutex<Vec<Listener>>);

struct Listener {
    to: mpsc::Sender<Bytes>,
    aged: Arc<AtomicBool>,
    every: u32,
    /// Seconds until the next event, and seconds since the last bytes.
    left: u32,
    silent: u32,
}

impl Listener {
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
    /// Adds a listener; `None` if there are too many.
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

    /// Sends a second's event. Listeners that do not keep up are dropped.
    pub fn publish(&self, event: impl FnOnce() -> Bytes) {
        let mut listeners = self.0.lock();
        if !listeners.is_empty() {
            let event = event();
            listeners.retain_mut(|listener| listener.tell(&event));
        }
    }

    pub fn close(&self) {
        for listener in self.0.lock().drain(..) {
            let _ = listener.to.try_send(Bytes::from_static(b"event: end\ndata: draining\n\n"));
        }
    }
}

pub(super) fn event(at_ms: u64, state: &impl Serialize) -> Bytes {
    Bytes::from(format!("event: state\nid: {at_ms}\ndata: {}\n\n", json(state)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(from: &mut mpsc::Receiver<Bytes>) -> String {
        let mut all = Vec::new();
        while let Ok(bytes) = from.try_recv() {
            all.extend_from_slice(&bytes);
        }
        String::from_utf8(all).unwrap()
    }

    fn state(at_ms: u64) -> Bytes {
        event(at_ms, &serde_json::json!({ "at_ms": at_ms }))
    }

    fn listen(events: &Listeners, every: u32) -> (mpsc::Receiver<Bytes>, Arc<AtomicBool>) {
        let aged = Arc::new(AtomicBool::new(false));
        (events.listen(every, aged.clone(), state(0)).expect("accepted"), aged)
    }

    #[test]
    fn a_listener_that_does_not_read_is_dropped() {
        let events = Listeners::default();
        let (mut reads, _) = listen(&events, 1);
        let (mut sleeps, _) = listen(&events, 1);
        assert_eq!(text(&mut reads), "retry: 1000\n\nevent: state\nid: 0\ndata: {\"at_ms\":0}\n\n");
        for second in 1..=2 * MAX_UNREAD as u64 {
            events.publish(|| state(second));
            assert!(text(&mut reads).contains(&format!("id: {second}\n")));
        }
        assert_eq!(events.0.lock().len(), 1);
        assert_eq!(text(&mut sleeps).matches("event:").count(), MAX_UNREAD - 1, "the events kept for it");
        assert!(sleeps.is_closed());
        drop(reads);
        events.publish(|| state(0));
        assert!(events.0.lock().is_empty());
        events.publish(|| unreachable!("no listener"));
    }

    #[test]
    fn the_number_of_listeners_is_bounded() {
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
            events.publish(|| state(second));
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
        events.publish(|| state(1));
        assert!(text(&mut old).ends_with(RETRY) && old.is_closed());
        events.close();
        assert!(text(&mut other).ends_with("event: end\ndata: draining\n\n") && other.is_closed());
    }
}
