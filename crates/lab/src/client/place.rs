//! The one host that requests are sent to, as the user wrote it.
//!
//! The name is resolved once, before the run: a resolver must not be part of what is measured. `Host` is sent
//! as written. A redirect is followed to the same host name only, on any port (which is how the two halves of
//! a gate send visitors to each other): the user answers for the host that the bench is pointed at, not for
//! what it may point at.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use http::{HeaderValue, Uri};

/// Time that the target has to accept a connection before the run.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The host as written, without a port; IPv6 addresses in brackets.
    name: String,
    ip: IpAddr,
    port: u16,
    field: HeaderValue,
}

#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("target: expected http://HOST[:PORT][/PATH], got {url:?} ({why})")]
    Url { url: String, why: &'static str },
    #[error("target {url}: no address for {host:?}: {source}")]
    Resolve { url: String, host: String, source: io::Error },
    #[error("target {url}: no connection to {address}: {source}")]
    Connect { url: String, address: SocketAddr, source: io::Error },
}

impl Place {
    /// Reads the URL, resolves its host and connects once, to see that the target accepts: a mistyped target
    /// is told before a crowd is sent. Nothing is asked. Blocks, up to five seconds for every address of the
    /// host.
    pub fn find(url: &str) -> Result<Self, TargetError> {
        let (name, port, field) = parse(url)?;
        // Brackets mark an IPv6 address in a URL; the resolver wants it bare.
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let resolve = |source| TargetError::Resolve { url: url.into(), host: name.clone(), source };
        let addresses = (bare, port).to_socket_addrs().map_err(resolve)?;
        let none = || resolve(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        let mut error = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, PROBE_TIMEOUT) {
                Ok(_) => return Ok(Self { ip: address.ip(), name, port, field }),
                Err(source) => error = Some(TargetError::Connect { url: url.into(), address, source }),
            }
        }
        Err(error.unwrap_or_else(none))
    }

    pub fn at(address: SocketAddr) -> Self {
        let name = match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let field = HeaderValue::try_from(address.to_string()).expect("a socket address is plain ASCII");
        Self { name, ip: address.ip(), port: address.port(), field }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }

    /// Value of `Host`: as written, but for another port.
    pub(super) fn host_field(&self, port: Option<u16>) -> HeaderValue {
        match port {
            Some(port) if port != self.port => HeaderValue::try_from(format!("{}:{port}", self.name))
                .expect("the name was part of a valid field"),
            _ => self.field.clone(),
        }
    }

    /// The port of an authority such as `host:81` in a redirect; `None`: another host, which is not followed.
    pub fn port_of(&self, authority: &str) -> Option<u16> {
        let authority: http::uri::Authority = authority.parse().ok()?;
        let same = authority.host().eq_ignore_ascii_case(&self.name) && !authority.as_str().contains('@');
        same.then(|| authority.port_u16().unwrap_or(80))
    }
}

/// Host name, port and `Host` field of a URL.
fn parse(url: &str) -> Result<(String, u16, HeaderValue), TargetError> {
    let wrong = |why| TargetError::Url { url: url.into(), why };
    let uri: Uri = url.parse().map_err(|_| wrong("not a URL"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err(wrong("TLS is not spoken: send to where it ends")),
        Some(_) => return Err(wrong("another scheme")),
        None => return Err(wrong("no http://")),
    }
    let authority = uri.authority().ok_or_else(|| wrong("no host"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("user names are not sent"));
    }
    let port = match (authority.port_u16(), authority.as_str().rsplit_once(':')) {
        (Some(0), _) => return Err(wrong("port 0")),
        (Some(port), _) => port,
        (None, Some((_, rest))) if !rest.ends_with(']') => return Err(wrong("no such port")),
        (None, _) => 80,
    };
    let field = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong("not a host"))?;
    Ok((authority.host().to_owned(), port, field))
}
