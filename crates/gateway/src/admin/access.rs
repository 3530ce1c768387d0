//! Who may ask for what: two tokens, and no page of another site.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, request};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::answer::Problem;
use crate::settings::Listen;

/// What a route asks of whoever uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Nothing: health is for load balancers, which carry no tokens and have names of their own for this machine.
    Open,
    /// Any of the tokens, if there are any.
    Read,
    /// The token that may change things.
    Write,
}

/// What somebody has shown to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rank {
    /// No tokens are configured: whoever can connect.
    Local,
    /// `listen.admin_token`.
    Admin,
    /// `listen.admin_read_token`.
    Reader,
}

impl Rank {
    /// As the audit names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Admin => "admin",
            Self::Reader => "reader",
        }
    }
}

/// Whose token it is. Takes as long whatever is shown: digests of one length are compared, both of them always.
pub(super) fn rank(listen: &Listen, headers: &HeaderMap) -> Result<Rank, Problem> {
    if listen.admin_token.is_empty() {
        return Ok(Rank::Local);
    }
    let shown = headers.get(AUTHORIZATION).and_then(|v| bearer(v.as_bytes())).unwrap_or_default();
    let is = |token: &str| {
        let same = Sha256::digest(shown).ct_eq(&Sha256::digest(token.as_bytes()));
        bool::from(same & Choice::from(u8::from(!token.is_empty())))
    };
    let (admin, reader) = (is(&listen.admin_token), is(&listen.admin_read_token));
    match (admin, reader) {
        (true, _) => Ok(Rank::Admin),
        (false, true) => Ok(Rank::Reader),
        (false, false) => Err(Problem::unauthorized()),
    }
}

/// RFC 9110, 11.1: the scheme in any case, then at least one space.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Whether this rank is enough.
pub(super) fn may(rank: Rank, access: Access) -> Result<(), Problem> {
    if access == Access::Write && rank == Rank::Reader {
        return Err(Problem::forbidden("this token may only read; changes take listen.admin_token"));
    }
    Ok(())
}

/// The operator's browser shows other people's pages too, and such a page can send requests to loopback: a form to
/// `/v1/drain`, or, once its name has been pointed at 127.0.0.1, anything. Browsers say where a request that
/// changes something comes from (Fetch, "append a request `Origin` header"); and pages cannot choose `Host`.
pub(super) fn of_no_foreign_page(listen: &Listen, parts: &request::Parts) -> Result<(), Problem> {
    let host = parts.headers.get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    if let Some(origin) = parts.headers.get(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        if origin.split_once("://").is_none_or(|(_, authority)| authority != host) {
            return Err(Problem::forbidden("the admin API takes no requests from other sites' pages"));
        }
    }
    // A token is what no foreign page knows; without one, the name must not be one that others can point here.
    if listen.admin_token.is_empty() && !is_local(host) {
        return Err(Problem::forbidden(
            "without listen.admin_token, the admin API answers to IP addresses and names without a dot only",
        ));
    }
    Ok(())
}

/// Whether nobody outside can make this `Host` lead here: an address, a name without a dot (`localhost`, a container's),
/// or none at all (HTTP/1.0).
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    !bare.contains('.') || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn shown(listen: &Listen, authorization: Option<&str>) -> Option<Rank> {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        rank(listen, &headers).ok()
    }

    #[test]
    fn each_token_gives_its_rank_and_nothing_else_does() {
        let listen = Listen {
            admin_token: "write-".repeat(4),
            admin_read_token: "read-".repeat(5),
            ..Listen::default()
        };
        let (write, read) =
            (format!("Bearer {}", listen.admin_token), format!("bearer  {}", listen.admin_read_token));
        for (value, wanted) in [
            (Some(write.as_str()), Some(Rank::Admin)),
            (Some(read.as_str()), Some(Rank::Reader)),
            (Some(&write[..write.len() - 1]), None),
            (Some(&format!("{write}x")), None),
            (Some("Bearer "), None),
            (Some("Bearer"), None),
            (Some("Basic d3JpdGU="), None),
            (None, None),
        ] {
            assert_eq!(shown(&listen, value), wanted, "{value:?}");
        }
        // A read token that is not configured is not matched by one that is not shown.
        let alone = Listen { admin_read_token: String::new(), ..listen.clone() };
        assert_eq!(shown(&alone, Some("Bearer ")), None);
        assert_eq!(shown(&alone, None), None);
        assert_eq!(shown(&Listen::default(), None), Some(Rank::Local));
        assert!(may(Rank::Reader, Access::Read).is_ok() && may(Rank::Reader, Access::Write).is_err());
        assert!(may(Rank::Admin, Access::Write).is_ok() && may(Rank::Local, Access::Write).is_ok());
    }
}
