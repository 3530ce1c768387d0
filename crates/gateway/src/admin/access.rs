//! Access control: three tokens, and no requests from pages of other sites.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use http::{HeaderMap, request};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::answer::Problem;
use tidegate_settings::Listen;

/// Not in the `http` crate's list.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Nothing: load balancers check health without a token, and by their own name of this host.
    Open,
    /// Any of the tokens, if there are any.
    Read,
    Write,
    /// The link of the two-process form: its own token and no other.
    Link,
}

/// The rank that a client has proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rank {
    /// No tokens are configured: any client that can connect.
    Local,
    /// `listen.admin_token`.
    Admin,
    /// `listen.admin_read_token`.
    Reader,
    /// `tokengen.link_token`.
    Link,
}

impl Rank {
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Admin => "admin",
            Self::Reader => "reader",
            Self::Link => "link",
        }
    }
}

/// The rank of the token shown. Takes the same time for any token: all digests are always compared.
pub(super) fn rank(listen: &Listen, link_token: &str, headers: &HeaderMap) -> Result<Rank, Problem> {
    let shown = headers.get(AUTHORIZATION).and_then(|v| bearer(v.as_bytes())).unwrap_or_default();
    let is = |token: &str| {
        let same = Sha256::digest(shown).ct_eq(&Sha256::digest(token.as_bytes()));
        bool::from(same & Choice::from(u8::from(!token.is_empty())))
    };
    match (is(&listen.admin_token), is(&listen.admin_read_token), is(link_token)) {
        (true, ..) => Ok(Rank::Admin),
        (_, true, _) => Ok(Rank::Reader),
        (.., true) => Ok(Rank::Link),
        _ if listen.admin_token.is_empty() => Ok(Rank::Local),
        _ => Err(Problem::unauthorized()),
    }
}

/// RFC 9110, 11.1: the scheme in any case, then at least one space.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Whether the rank suffices. `is_link_closed`: the link has a token.
pub(super) fn may(rank: Rank, access: Access, is_link_closed: bool) -> Result<(), Problem> {
    match (access, rank) {
        (Access::Open, _) | (Access::Link, Rank::Link) => Ok(()),
        (Access::Link, Rank::Local) if !is_link_closed => Ok(()),
        (Access::Link, _) => Err(Problem::forbidden(
            "reports take tokengen.link_token and no other token: give tokencheck the same as tokencheck.link_token",
        )),
        (_, Rank::Link) => {
            Err(Problem::forbidden("this token opens the link of tokencheck and nothing else"))
        }
        (Access::Write, Rank::Reader) => {
            Err(Problem::forbidden("this token may only read; changes take listen.admin_token"))
        }
        _ => Ok(()),
    }
}

/// Refuses requests from pages of other sites in the operator's browser. Such a page can send requests to
/// loopback: a form to `/v1/drain`, dozens of images from `/v1/events`, or, after DNS rebinding to 127.0.0.1,
/// anything. Browsers send `Origin` with requests that change something (Fetch, "append a request `Origin`
/// header") and, to loopback, `Sec-Fetch-Site` with all of them (Fetch Metadata; `same-site` is another port
/// of this host); and pages cannot choose `Host`. Preflights have an `Origin` and are refused too.
pub(super) fn of_no_foreign_page(listen: &Listen, parts: &request::Parts) -> Result<(), Problem> {
    if parts.headers.get_all(SEC_FETCH_SITE).iter().any(|site| site != "same-origin" && site != "none") {
        return Err(Problem::forbidden(
            "the admin API takes no requests from other sites' pages, nor by their links: type the address",
        ));
    }
    let host = parts.headers.get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    if let Some(origin) = parts.headers.get(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        if origin.split_once("://").is_none_or(|(_, authority)| authority != host) {
            return Err(Problem::forbidden("the admin API takes no requests from other sites' pages"));
        }
    }
    // Other sites' pages do not know the token. Without one, `Host` must be a name that is certainly ours.
    if listen.admin_token.is_empty() && !is_ours(host, listen.admin.ip()) {
        return Err(Problem::forbidden(
            "without listen.admin_token, the admin API answers to loopback addresses, localhost and the address in listen.admin only",
        ));
    }
    Ok(())
}

/// Whether nobody else can make this `Host` resolve to us: a loopback address, the configured address,
/// `localhost` (RFC 6761 6.3: never asked of a name server), or none (HTTP/1.0, which no browser speaks).
/// Other names without a dot are refused: they are resolved in search domains that the network hands out.
fn is_ours(host: &str, configured: IpAddr) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    match bare.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback() || address == configured,
        Err(_) => {
            let bare = bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase();
            host.is_empty() || bare == "localhost" || bare.ends_with(".localhost")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const LINK: &str = "the-token-of-the-link";

    fn shown(listen: &Listen, authorization: Option<&str>) -> Option<Rank> {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        rank(listen, LINK, &headers).ok()
    }

    fn is_refused(listen: &Listen, fields: &[(&str, &str)]) -> bool {
        let request = fields.iter().fold(http::Request::get("/v1/events"), |r, (n, v)| r.header(*n, *v));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        of_no_foreign_page(listen, &parts).is_err()
    }

    #[test]
    fn without_a_token_only_names_that_nobody_else_can_point_here_are_answered() {
        let open = Listen::default();
        for host in [
            "127.0.0.1:9090",
            "127.9.9.9",
            "[::1]:9090",
            "[::ffff:127.0.0.1]:80",
            "localhost",
            "LOCALHOST:9090",
            "localhost.",
            "a.localhost:1",
        ] {
            assert!(!is_refused(&open, &[("host", host)]), "{host}");
        }
        assert!(!is_refused(&open, &[]), "HTTP/1.0");
        let foreign = [
            "evil.example",
            "evil.example:9090",
            "192.0.2.1:9090",
            "[2001:db8::1]",
            "evil",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "localhost:x",
            ":9090",
            "[::1",
            "127.1",
        ];
        let closed = Listen { admin_token: "t".repeat(16), ..Listen::default() };
        for host in foreign {
            assert!(is_refused(&open, &[("host", host)]), "{host}");
            assert!(!is_refused(&closed, &[("host", host)]), "{host}: the token tells");
        }
        let there = Listen { admin: "192.0.2.1:9090".parse().unwrap(), ..Listen::default() };
        assert!(!is_refused(&there, &[("host", "192.0.2.1:9090")]), "configured");
    }

    #[test]
    fn other_sites_pages_get_nothing_by_whatever_means() {
        let closed = Listen { admin_token: "t".repeat(16), ..Listen::default() };
        for listen in [Listen::default(), closed] {
            let refused = |name, value| is_refused(&listen, &[("host", "localhost:9090"), (name, value)]);
            for (name, value) in [
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-site", "same-site"),
                ("sec-fetch-site", "x"),
                ("sec-fetch-site", ""),
                ("origin", "http://evil.example"),
                ("origin", "null"),
                ("origin", "http://localhost:3000"),
                ("origin", "http://localhost"),
                ("origin", ""),
            ] {
                assert!(refused(name, value), "{name}: {value}");
            }
            for (name, value) in [
                ("sec-fetch-site", "same-origin"),
                ("sec-fetch-site", "none"),
                ("origin", "http://localhost:9090"),
            ] {
                assert!(!refused(name, value), "{name}: {value}");
            }
        }
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
            (Some(&format!("Bearer {LINK}")), Some(Rank::Link)),
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
        let unset = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer "))]);
        assert_eq!(rank(&Listen::default(), "", &unset).ok(), Some(Rank::Local), "no token is no link's");
    }

    #[test]
    fn the_link_has_a_token_that_opens_nothing_else() {
        use {Access as A, Rank as R};
        for (rank, access, open, closed) in [
            (R::Reader, A::Read, true, true),
            (R::Reader, A::Write, false, false),
            (R::Admin, A::Write, true, true),
            (R::Local, A::Write, true, true),
            (R::Local, A::Link, true, false),
            (R::Admin, A::Link, false, false),
            (R::Reader, A::Link, false, false),
            (R::Link, A::Link, true, true),
            (R::Link, A::Read, false, false),
            (R::Link, A::Write, false, false),
        ] {
            assert_eq!(may(rank, access, false).is_ok(), open, "{rank:?} {access:?}");
            assert_eq!(may(rank, access, true).is_ok(), closed, "{rank:?} {access:?}, with a token");
        }
    }
}
