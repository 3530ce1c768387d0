//! From an accepted connection to one that speaks HTTP, within `limits.header_timeout`: the PROXY header,
//! then the TLS handshake.

use std::io;

use tidegate_core::measure::Event;
use tidegate_settings::ProxyProtocol;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::config::Config;
use crate::http::proxy_header::{self, Version};
use crate::http::stream::{ConnInfo, VisitorSocket};
use crate::http::tls;
use crate::shared::Worker;

/// `None`: there is no connection, and that has been counted.
pub(super) async fn handshake(
    worker: &Worker,
    mut stream: TcpStream,
    info: ConnInfo,
    is_tls: bool,
) -> Option<(VisitorSocket, ConnInfo)> {
    // A reload may have other certificates before the handshake is over: it ends as it began.
    let config = worker.config();
    let end = Instant::now() + config.settings.limits.header_timeout;
    let named = timeout_at(end, name(&config, &mut stream, info)).await;
    let info = match named.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(info) => info,
        Err(error) => {
            worker.count(Event::ProxyHeadersRefused);
            tracing::debug!(%error, "no PROXY header");
            return None;
        }
    };
    if !is_tls {
        return Some((VisitorSocket::Tcp(stream), info));
    }
    let tls = config.tls.clone()?;
    drop(config);
    match timeout_at(end, tls.accept(stream)).await {
        Ok(Ok(None)) => None,
        Ok(Ok(Some(stream))) => {
            let is_resumed = tls::is_resumed(&stream);
            worker.count(if is_resumed { Event::TlsHandshakesResumed } else { Event::TlsHandshakesFull });
            let info = tls::describe(&stream, info);
            Some((VisitorSocket::Tls(Box::new(stream)), info))
        }
        Ok(Err(error)) => {
            worker.count(Event::TlsHandshakesFailed);
            tracing::debug!(peer = %info.peer, %error, "TLS handshake failed");
            None
        }
        Err(_) => {
            worker.count(Event::TlsHandshakesTimeout);
            None
        }
    }
}

/// Whether connections begin with a PROXY header.
pub(super) fn is_named(config: &Config) -> bool {
    config.settings.listen.proxy_protocol != ProxyProtocol::Off
}

/// Who the visitor is, as far as a trusted proxy says so.
async fn name(config: &Config, stream: &mut TcpStream, info: ConnInfo) -> io::Result<ConnInfo> {
    let accepts: fn(Version) -> bool = match config.settings.listen.proxy_protocol {
        ProxyProtocol::Off => return Ok(info),
        ProxyProtocol::V1 => |version| version == Version::V1,
        ProxyProtocol::V2 => |version| version == Version::V2,
        ProxyProtocol::Any => |_| true,
    };
    let peer = info.peer.ip().to_canonical();
    if !config.settings.proxy.trusted.iter().any(|net| net.contains(&peer)) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{peer} is not in proxy.trusted"),
        ));
    }
    Ok(match proxy_header::read(stream, accepts).await? {
        Some(named) => ConnInfo { peer: named.from, local: Some(named.to), ..info },
        None => info,
    })
}
