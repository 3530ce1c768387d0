//! Checks what a request asks for, or says why it is rejected (RFC 9110 7.2, 7.6.2, 10.1.1; RFC 9112 3.2).

use http::uri::Authority;
use http::{Method, Version};
use tidegate_http::target::is_authority;
use tidegate_http::{Fields, RequestHead, name};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Origin,
    /// The gateway answers OPTIONS or TRACE with `Max-Forwards: 0`, as the last recipient (RFC 9110 7.6.2).
    Gate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reject {
    #[error("malformed Host")]
    Host,
    /// `Host` is not the authority of the absolute-form target. By RFC 9112 3.2.2 the target counts; a proxy
    /// in front of us may have used the field.
    #[error("Host differs from the request target")]
    HostMismatch,
    #[error("request target does not fit the method")]
    Form,
    /// The path, once its escapes are resolved, has a control character or a backslash.
    #[error("character in the path is not allowed")]
    Path,
    /// CONNECT: the gateway is no forward proxy.
    #[error("CONNECT is not supported")]
    Connect,
    /// TRACE would show the visitor fields that proxies have added (RFC 9110 9.3.8).
    #[error("TRACE is not supported")]
    Trace,
    #[error("expectation not known")]
    Expect,
    #[error("malformed Max-Forwards")]
    MaxForwards,
}

impl Reject {
    /// The status of the response. 405 requires `Allow`.
    pub const fn status(self) -> u16 {
        match self {
            Self::Connect | Self::Trace => 405,
            Self::Expect => 417,
            _ => 400,
        }
    }
}

/// Checks a request head whose framing has been checked; decrements `Max-Forwards` of OPTIONS.
pub fn check(head: &mut RequestHead) -> Result<Target, Reject> {
    if *head.method() == Method::CONNECT {
        return Err(Reject::Connect);
    }
    check_host(head)?;
    check_form(head)?;
    if !path_is_clean(head.path()) {
        return Err(Reject::Path);
    }
    if head.version() > Version::HTTP_10 && head.fields.contains(name::EXPECT) {
        check_expect(&head.fields)?;
    }
    if *head.method() == Method::TRACE {
        return Err(Reject::Trace);
    }
    if *head.method() == Method::OPTIONS && head.fields.contains(name::MAX_FORWARDS) {
        return max_forwards(&mut head.fields);
    }
    Ok(Target::Origin)
}

fn check_host(head: &RequestHead) -> Result<(), Reject> {
    let mut hosts = head.fields.get_all(name::HOST);
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host,
        (None, _) if head.version() < Version::HTTP_11 => return Ok(()),
        // HTTP/2 has its authority instead (RFC 9113 8.3.1).
        (None, _) if head.version() == Version::HTTP_2 => head.authority().unwrap_or_default().as_bytes(),
        _ => return Err(Reject::Host),
    };
    if !is_authority(host) {
        return Err(Reject::Host);
    }
    let Some(authority) = head.authority() else { return Ok(()) };
    let is_https = head.scheme().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let default_port = if is_https { 443 } else { 80 };
    if same_authority(authority.as_bytes(), host, default_port) { Ok(()) } else { Err(Reject::HostMismatch) }
}

/// Compared without regard to case; a missing port is the scheme's.
fn same_authority(authority: &[u8], host: &[u8], default_port: u16) -> bool {
    if authority == host {
        return true;
    }
    let (Ok(authority), Ok(host)) = (Authority::try_from(authority), Authority::try_from(host)) else {
        return false;
    };
    let ports = (authority.port_u16().unwrap_or(default_port), host.port_u16().unwrap_or(default_port));
    authority.host().eq_ignore_ascii_case(host.host()) && ports.0 == ports.1
}

fn check_form(head: &RequestHead) -> Result<(), Reject> {
    let ok = match head.path() {
        "*" => *head.method() == Method::OPTIONS && head.query().is_none() && head.authority().is_none(),
        // An absolute-form target without path has the path `/`, OPTIONS aside (RFC 9112 3.2.4).
        path => path.starts_with('/'),
    };
    if ok { Ok(()) } else { Err(Reject::Form) }
}

/// `%00`, other escaped control characters and backslashes end strings or segments at some origins only.
fn path_is_clean(path: &str) -> bool {
    let bytes = path.as_bytes();
    memchr::memchr_iter(b'%', bytes).all(|at| {
        let escape = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match escape.map(|hex| (hex, u8::from_str_radix(hex, 16))) {
            // `from_str_radix` takes a sign.
            Some((hex, Ok(b))) if !hex.starts_with('+') => b >= 0x20 && b != 0x7f && b != b'\\',
            _ => false,
        }
    })
}

fn check_expect(fields: &Fields) -> Result<(), Reject> {
    let known = |value: &[u8]| value.eq_ignore_ascii_case(b"100-continue");
    if fields.get_all(name::EXPECT).all(known) { Ok(()) } else { Err(Reject::Expect) }
}

fn max_forwards(fields: &mut Fields) -> Result<Target, Reject> {
    let mut values = fields.get_all(name::MAX_FORWARDS);
    let (Some(value), None) = (values.next(), values.next()) else { return Err(Reject::MaxForwards) };
    drop(values);
    let digits = std::str::from_utf8(value).map_err(|_| Reject::MaxForwards)?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Reject::MaxForwards);
    }
    // RFC 9110: "the lesser of the value and the recipient's maximum"; ours is that of u32.
    match digits.parse::<u32>().unwrap_or(u32::MAX) {
        0 => Ok(Target::Gate),
        n => {
            fields.set(name::MAX_FORWARDS, itoa::Buffer::new().format(n - 1).as_bytes());
            Ok(Target::Origin)
        }
    }
}
