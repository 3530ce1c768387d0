//! What the stages of a request tell its connection past head and body.

use std::rc::Rc;

use http::{HeaderMap, StatusCode};
use tidegate_http::{Fields, ResponseHead, write_interim};
use tokio::sync::oneshot;

use super::exchange::Exchange;
use crate::http::tunnel_io::VisitorUpgrade;

/// Bytes of interim responses that may wait for the visitor to read; more are dropped. An interim response is
/// only a hint.
const MAX_INTERIM: usize = 16 << 10;

/// The service's end of a connection. Cheap to clone.
#[derive(Clone)]
pub struct Http1Link {
    pub(super) exchange: Rc<Exchange>,
}

impl Http1Link {
    /// Whether the present request asked for `100 Continue`. It is sent when the body is first polled.
    pub fn expect_continue(&self) -> bool {
        self.exchange.expects_continue.get()
    }

    /// The visitor's side of a tunnel, if the present request offers to switch protocols. Once a request.
    pub fn take_upgrade(&self) -> Option<VisitorUpgrade> {
        if !self.exchange.offers_upgrade.replace(false) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.exchange.upgrade.replace(Some(sender));
        Some(Box::pin(async { receiver.await.ok() }))
    }

    /// Bytes after the present request are no longer HTTP. To be called before answering 101 (RFC 9110 7.8).
    pub fn pass_through(&self) {
        self.exchange.pass_through.set(true);
    }

    /// Whether the visitor left before its response was complete.
    pub fn is_gone(&self) -> bool {
        self.exchange.gone.get()
    }

    /// Whether a request is being served: its response has not been written completely.
    pub fn is_busy(&self) -> bool {
        self.exchange.busy.get()
    }

    /// From now on nothing is written, and the connection closes as usual.
    pub fn mute(&self) {
        self.exchange.muted.set(true);
    }

    /// As [`Http1Link::mute`], and the connection closes at once; the socket's options decide how.
    pub fn abort(&self) {
        self.mute();
        self.exchange.aborted.set(true);
    }

    /// The connection closes as soon as it is idle, or with the end of the present response.
    pub fn finish(&self) {
        self.exchange.is_last.set(true);
        self.exchange.wake();
    }

    /// Sends an interim response (RFC 9110 15.2) before the present request's final one.
    ///
    /// Returns false and sends nothing if the visitor uses HTTP/1.0, the final response has begun, `status`
    /// is not 1xx or is 101, or too many already wait.
    pub fn informational(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        let exchange = &*self.exchange;
        let allowed = status.is_informational()
            && status != StatusCode::SWITCHING_PROTOCOLS
            && exchange.http_11.get()
            && exchange.busy.get()
            && !exchange.final_started.get()
            && !exchange.pass_through.get()
            && !exchange.gone.get();
        if !allowed {
            return false;
        }
        let mut head = ResponseHead::new(status);
        head.fields = Fields::from(fields);
        let mut out = exchange.interim.borrow_mut();
        let before = out.len();
        write_interim(&mut out, &head);
        if out.len() > MAX_INTERIM {
            out.truncate(before);
            return false;
        }
        drop(out);
        exchange.wake();
        true
    }
}
