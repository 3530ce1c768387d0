//! The request target and the gateway's own parameter in it.
//!
//! A ticket is sent as `tg=` in the query only across hosts and for clients without cookies. It is removed
//! before anything else reads the target, so that the origin, the logs and the Referer never show it.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Uri, header, request};

/// Takes the ticket out of `uri`; what is left is what the visitor asked for.
pub fn take_ticket(uri: &mut Uri) -> Option<String> {
    let query = uri.query()?;
    if !query.contains("tg") {
        return None;
    }
    let mut ticket = None;
    let mut rest = String::with_capacity(uri.path().len() + query.len() + 1);
    rest.push_str(uri.path());
    let mut separator = '?';
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name == "tg" {
            ticket.get_or_insert_with(|| value.to_owned());
        } else {
            rest.push(separator);
            rest.push_str(pair);
            separator = '&';
        }
    }
    ticket.as_ref()?;
    // Part of a valid target is valid. If it were not, the request would be left as it came, with its ticket.
    let target: PathAndQuery = rest.parse().ok()?;
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = Some(target);
    *uri = Uri::from_parts(parts).unwrap_or_default();
    ticket
}

/// Takes the ticket out of the Referer too: the pages of a visitor without cookies have it in their address.
pub fn clean_referer(headers: &mut HeaderMap) {
    let Some(value) = headers.get(header::REFERER) else { return };
    if !value.as_bytes().windows(3).any(|w| w == b"tg=") {
        return;
    }
    let clean = value.to_str().ok().and_then(|text| {
        let mut uri: Uri = text.parse().ok()?;
        take_ticket(&mut uri);
        HeaderValue::try_from(uri.to_string()).ok()
    });
    match clean {
        Some(clean) => headers.insert(header::REFERER, clean),
        // Not a URL, so of no use to the origin, but it may contain the ticket.
        None => headers.remove(header::REFERER),
    };
}

/// Whether the target as a `Location` leads to the same host. Two slashes would name another host, and
/// browsers read a backslash as a slash.
pub fn is_local(uri: &Uri) -> bool {
    let path = uri.path().as_bytes();
    path.first() == Some(&b'/') && !matches!(path.get(1), Some(b'/' | b'\\'))
}

/// The lighter target for `uri`: `{path}` in `to` stands for its path, and its query stays unless `to` has
/// one. `None`: `uri` is such a target already, or the result is not a valid one.
pub fn lighter(uri: &Uri, to: &str) -> Option<Uri> {
    let path = uri.path();
    if let Some((prefix, _)) = to.split_once("{path}")
        && prefix.len() > 1
        && path.starts_with(prefix)
    {
        return None;
    }
    let mut target = to.replace("{path}", path);
    if let Some(query) = uri.query().filter(|_| !to.contains('?')) {
        target.push('?');
        target.push_str(query);
    }
    let target: PathAndQuery = target.parse().ok()?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target);
    Uri::from_parts(parts).ok().filter(is_local)
}

/// The requested host, with or without port: the target's if it has one, else that of the `Host` field.
pub fn host(parts: &request::Parts) -> &str {
    match parts.uri.authority() {
        Some(authority) => authority.as_str(),
        None => parts.headers.get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default(),
    }
}

/// The scheme the visitor used: the last one a trusted proxy names, else that of the connection.
pub fn scheme(headers: &HeaderMap, trusted: bool, of_connection: &'static str) -> &'static str {
    if !trusted {
        return of_connection;
    }
    let said = headers.get_all("x-forwarded-proto").iter().next_back();
    let last = said.and_then(|v| v.to_str().ok()).and_then(|v| v.rsplit(',').next());
    match last {
        Some(proto) if proto.trim().eq_ignore_ascii_case("https") => "https",
        Some(_) => "http",
        None => of_connection,
    }
}

/// The same target at another of the operator's hosts, with a ticket for it.
pub fn elsewhere(base: &str, uri: &Uri, ticket: Option<&str>) -> String {
    let base = base.trim_end_matches('/');
    let target = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    match ticket {
        None => format!("{base}{target}"),
        Some(ticket) => {
            let separator = if uri.query().is_some() { '&' } else { '?' };
            format!("{base}{target}{separator}tg={ticket}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ticket_is_taken_out_and_nothing_else_changes() {
        for (from, to, ticket) in [
            ("/a", "/a", None),
            ("/a?b=c", "/a?b=c", None),
            ("/a?tg=T", "/a", Some("T")),
            ("/a?b=c&tg=T", "/a?b=c", Some("T")),
            ("/a?tg=T&b=c", "/a?b=c", Some("T")),
            ("/a?b=1&tg=T&c=2&tg=U", "/a?b=1&c=2", Some("T")),
            ("/a?tg", "/a", Some("")),
            ("/a?&&tg&b", "/a?&&b", Some("")),
            ("/a?xtg=T", "/a?xtg=T", None),
            ("/a?b=tg=T", "/a?b=tg=T", None),
            ("/a%20b?x=%26&tg=", "/a%20b?x=%26", Some("")),
            ("/a?", "/a?", None),
            ("http://shop.example/a?tg=T", "http://shop.example/a", Some("T")),
        ] {
            let mut uri: Uri = from.parse().unwrap();
            assert_eq!(take_ticket(&mut uri).as_deref(), ticket, "{from}");
            assert_eq!(uri, *to, "{from}");
        }
    }

    #[test]
    fn the_referer_shows_no_ticket() {
        for (from, to) in [
            ("http://shop.example/a?b=c", Some("http://shop.example/a?b=c")),
            ("http://shop.example/a?tg=T", Some("http://shop.example/a")),
            ("http://shop.example:8080/a?b=1&tg=T&c=2", Some("http://shop.example:8080/a?b=1&c=2")),
            ("http://shop.example/a?xtg=T", Some("http://shop.example/a?xtg=T")),
            ("no url: tg=T", None),
        ] {
            let mut headers = HeaderMap::from_iter([(header::REFERER, HeaderValue::from_static(from))]);
            clean_referer(&mut headers);
            assert_eq!(headers.get(header::REFERER).map(|v| v.to_str().unwrap()), to, "{from}");
        }
    }

    #[test]
    fn the_scheme_is_what_a_trusted_proxy_says_else_what_the_connection_is() {
        for (said, trusted, of_connection, expected) in [
            (None, false, "http", "http"),
            (None, false, "https", "https"),
            (None, true, "https", "https"),
            (Some("https"), false, "http", "http"),
            (Some("http"), false, "https", "https"),
            (Some("https"), true, "http", "https"),
            (Some("http"), true, "https", "http"),
            (Some("http, HTTPS "), true, "http", "https"),
            (Some("https, http"), true, "http", "http"),
        ] {
            let value = said.map(HeaderValue::from_static);
            let name = http::HeaderName::from_static("x-forwarded-proto");
            let headers = HeaderMap::from_iter(value.map(|value| (name, value)));
            assert_eq!(
                scheme(&headers, trusted, of_connection),
                expected,
                "{said:?} {trusted} {of_connection}"
            );
        }
    }

    #[test]
    fn only_local_targets_are_sent_back_to() {
        let table = [
            ("/", true),
            ("/a//b", true),
            ("//evil.example/", false),
            ("/\\evil.example", false),
            ("*", false),
        ];
        for (target, expected) in table {
            assert_eq!(is_local(&target.parse().unwrap()), expected, "{target}");
        }
    }

    #[test]
    fn elsewhere_keeps_path_and_query() {
        let uri: Uri = "/a?b=c".parse().unwrap();
        assert_eq!(elsewhere("https://x.example/", &uri, Some("T")), "https://x.example/a?b=c&tg=T");
        let uri: Uri = "/a".parse().unwrap();
        assert_eq!(elsewhere("https://x.example", &uri, Some("T")), "https://x.example/a?tg=T");
        assert_eq!(elsewhere("https://x.example", &uri, None), "https://x.example/a");
    }
}
