//! From an accepted connection to one that speaks HTTP: the TLS handshake, within `limits.header_timeout`.

use tidegate_core::measure::Event;
use tokio::net::TcpStream;

use crate::http::stream::{ConnInfo, VisitorSocket};
use crate::http::tls;
use crate::shared::Worker;

/// `None`: there is no connection, and that has been counted.
pub(super) async fn handshake(
    worker: &Worker,
    stream: TcpStream,
    plain: ConnInfo,
) -> Option<(VisitorSocket, ConnInfo)> {
    let config = worker.config();
    let limit = config.settings.limits.header_timeout;
    // A reload may have other certificates before the handshake is over: it ends as it began.
    let tls = config.tls.clone()?;
    drop(config);
    let peer = plain.peer;
    match tokio::time::timeout(limit, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let is_resumed = tls::is_resumed(&stream);
            worker.count(if is_resumed { Event::TlsHandshakesResumed } else { Event::TlsHandshakesFull });
            let info = tls::describe(&stream, plain);
            Some((VisitorSocket::Tls(Box::new(stream)), info))
        }
        Ok(Err(error)) => {
            worker.count(Event::TlsHandshakesFailed);
            tracing::debug!(%peer, %error, "TLS handshake failed");
            None
        }
        Err(_) => {
            worker.count(Event::TlsHandshakesTimeout);
            None
        }
    }
}
