//! Where a connection leads: `HOST:PORT`, its addresses, or a path, and the way to establish it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Names are looked up again after this time. Shorter than the usual fail-over by DNS (60 s), long enough
/// that a resolver sees two lookups a minute and name.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("no connection within the time limit")]
    Timeout,
    /// Refused, unreachable, or the name has no address.
    #[error("cannot connect: {0}")]
    Failed(#[from] io::Error),
}

/// `[https://]HOST:PORT` or `unix:PATH`, with what is known of its addresses. Shared by all workers.
#[derive(Default)]
pub struct Target {
    authority: String,
    /// `HOST:PORT` of it.
    address: String,
    /// It begins with `https://`.
    is_tls: bool,
    /// It is `unix:PATH`.
    unix: Option<PathBuf>,
    /// Set for an IP literal: never looked up.
    literal: Option<SocketAddr>,
    resolved: ArcSwap<Resolved>,
    resolving: AtomicBool,
}

#[derive(Default)]
pub(crate) struct Resolved {
    addresses: Vec<SocketAddr>,
    at: Option<Instant>,
}

pub(crate) enum Addresses {
    One(SocketAddr),
    Many(Arc<Resolved>),
}

impl Addresses {
    pub(crate) fn as_slice(&self) -> &[SocketAddr] {
        match self {
            Self::One(address) => std::slice::from_ref(address),
            Self::Many(resolved) => &resolved.addresses,
        }
    }
}

impl Target {
    pub fn new(authority: String) -> Self {
        let (address, is_tls) = match authority.strip_prefix("https://") {
            Some(address) => (address.to_owned(), true),
            None => (authority.clone(), false),
        };
        let unix = authority.strip_prefix("unix:").map(PathBuf::from);
        // What a request to it names as its host.
        let address = if unix.is_some() { "localhost:80".to_owned() } else { address };
        Self { literal: address.parse().ok(), authority, address, is_tls, unix, ..Self::default() }
    }

    /// As configured.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The path of a Unix socket, which has no addresses.
    pub fn unix(&self) -> Option<&Path> {
        self.unix.as_deref()
    }

    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Connects to the first address that answers. Each gets an equal part of the time left, so that one that
    /// drops packets leaves time for the others. `limit` zero: none.
    pub async fn open(self: &Arc<Self>, limit: Duration) -> Result<TcpStream, OpenError> {
        if limit.is_zero() {
            return self.try_all(None).await;
        }
        let all = self.try_all(Some(Instant::now() + limit));
        tokio::time::timeout(limit, all).await.map_err(|_| OpenError::Timeout)?
    }

    async fn try_all(self: &Arc<Self>, deadline: Option<Instant>) -> Result<TcpStream, OpenError> {
        let addresses = self.addresses().await?;
        let addresses = addresses.as_slice();
        let mut last = OpenError::Timeout;
        for (i, address) in addresses.iter().enumerate() {
            let part =
                deadline.map(|d| d.saturating_duration_since(Instant::now()) / (addresses.len() - i) as u32);
            match open_one(*address, part).await {
                Ok(stream) => return Ok(stream),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Where to connect to, in the order to try. Waits for a lookup only if none succeeded before; else names
    /// are looked up again in the background.
    pub(crate) async fn addresses(self: &Arc<Self>) -> io::Result<Addresses> {
        if let Some(address) = self.literal {
            return Ok(Addresses::One(address));
        }
        let known = self.resolved.load_full();
        if known.addresses.is_empty() {
            self.resolve().await?;
            return Ok(Addresses::Many(self.resolved.load_full()));
        }
        if known.at.is_none_or(|at| at.elapsed() > RESOLVE_EVERY) && !self.resolving.swap(true, Relaxed) {
            let this = self.clone();
            tokio::spawn(async move {
                if let Err(e) = this.resolve().await {
                    tracing::warn!(name = this.authority, "name lookup failed, old addresses stay: {e}");
                }
                this.resolving.store(false, Relaxed);
            });
        }
        Ok(Addresses::Many(known))
    }

    async fn resolve(&self) -> io::Result<()> {
        let addresses: Vec<_> = tokio::net::lookup_host(self.address.as_str()).await?.collect();
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        self.resolved.store(Arc::new(Resolved { addresses, at: Some(Instant::now()) }));
        Ok(())
    }
}

async fn open_one(address: SocketAddr, limit: Option<Duration>) -> Result<TcpStream, OpenError> {
    match limit {
        None => Ok(TcpStream::connect(address).await?),
        Some(limit) => match tokio::time::timeout(limit, TcpStream::connect(address)).await {
            Ok(stream) => Ok(stream?),
            Err(_) => Err(OpenError::Timeout),
        },
    }
}
