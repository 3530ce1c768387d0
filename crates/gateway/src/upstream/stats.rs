//! Counters of what happened between one worker and the origin. One thread writes them, any reads them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default, Debug)]
pub struct Stats {
    pub requests: AtomicU64,
    pub connects: AtomicU64,
    /// Requests sent on a pooled connection.
    pub reused: AtomicU64,
    /// Pooled connections found dead by a request; the request was repeated on a fresh one.
    pub stale_connection: AtomicU64,
    pub retries: AtomicU64,
    /// Retries that the budget did not allow.
    pub retry_budget_empty: AtomicU64,
    pub no_replica: AtomicU64,
    /// Connections that failed: refused, unreachable, no address (retried ones included).
    pub connect_failed: AtomicU64,
    /// Connections that took too long (retried ones included).
    pub connect_timeout: AtomicU64,
    /// Attempts without a first byte in time.
    pub first_byte_timeout: AtomicU64,
    /// Connections lost before the first byte of the response (retried ones included).
    pub reset: AtomicU64,
    /// Responses that may not be passed on, and requests for WebSocket that the origin cannot take.
    pub bad_response: AtomicU64,
    /// Requests whose body failed on the visitor's side.
    pub request_body: AtomicU64,
    /// Response bodies that the origin broke off.
    pub body_reset: AtomicU64,
    pub body_timeout: AtomicU64,
    pub tunnels: AtomicU64,
    pub tunnels_open: AtomicU64,
    /// Bytes that tunnels carried to the origin, and to visitors.
    pub tunnel_bytes_up: AtomicU64,
    pub tunnel_bytes_down: AtomicU64,
}

/// Adds one. There is one writer, so a load and a store suffice; a locked instruction is not needed.
pub(crate) fn bump(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds `n`; for the one writer.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}
