//! The request target and the gateway's own parameter in it.
//!
//! A ticket is sent as `tg=` in the query only across hosts and for clients without cookies. It is removed
//! before anything else reads the target, so that the origin, the logs and the Referer never show it.

use http::Uri;
use http::uri::PathAndQuery;
use tidegate_http::{Fields, RequestHead, name};

/// Takes the ticket out of the target; what is left is what the visitor asked for.
pub fn take_ticket(head: &mut RequestHead) -> Option<String> {
    let (ticket, rest) = without_ticket(head.path(), head.query()?)?;
    let ticket = ticket.to_owned();
    head.set_target(&rest);
    Some(ticket)
}

/// The ticket of a query, and the target without it. Part of a valid target is valid.
fn without_ticket<'q>(path: &str, query: &'q str) -> Option<(&'q str, String)> {
    if !query.contains("tg") {
        return None;
    }
    let mut ticket = None;
    let mut rest = String::with_capacity(path.len() + query.len() + 1);
    rest.push_str(path);
    let mut separator = '?';
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name == "tg" {
            ticket.get_or_insert(value);
        } else {
            rest.push(separator);
            rest.push_str(pair);
            separator = '&';
        }
    }
    Some((ticket?, rest))
}

/// Takes the ticket out of the Referer too: the pages of a visitor without cookies have it in their address.
pub fn clean_referer(fields: &mut Fields) {
    let Some(value) = fields.get(name::REFERER) else { return };
    if memchr::memmem::find(value, b"tg=").is_none() {
        return;
    }
    match referer_without_ticket(value) {
        Some(None) => {}
        Some(Some(clean)) => fields.set(name::REFERER, clean.as_bytes()),
        // Not a URL, so of no use to the origin, but it may contain the ticket.
        None => _ = fields.remove(name::REFERER),
    }
}

/// The same URL without a ticket; `Some(None)`: it has none. `None`: it is no URL.
fn referer_without_ticket(value: &[u8]) -> Option<Option<String>> {
    let uri = Uri::try_from(value).ok()?;
    let Some((_, rest)) = without_ticket(uri.path(), uri.query().unwrap_or_default()) else {
        return Some(None);
    };
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(rest.parse().ok()?);
    Some(Some(Uri::from_parts(parts).ok()?.to_string()))
}

/// Whether a path as a `Location` leads to the same host. Two slashes would name another host, and browsers
/// read a backslash as a slash.
pub fn is_local(path: &str) -> bool {
    let path = path.as_bytes();
    path.first() == Some(&b'/') && !matches!(path.get(1), Some(b'/' | b'\\'))
}

/// The lighter target for a request: `{path}` in `to` stands for its path, and its query stays unless `to`
/// has one. `None`: the request is for such a target already, or the result is not a valid one.
pub fn lighter(head: &RequestHead, to: &str) -> Option<PathAndQuery> {
    let path = head.path();
    if let Some((prefix, _)) = to.split_once("{path}")
        && prefix.len() > 1
        && path.starts_with(prefix)
    {
        return None;
    }
    let mut target = to.replace("{path}", path);
    if let Some(query) = head.query().filter(|_| !to.contains('?')) {
        target.push('?');
        target.push_str(query);
    }
    target.parse().ok().filter(|target: &PathAndQuery| is_local(target.path()))
}

/// The requested host, with or without port: the target's if it has one, else that of the `Host` field.
pub fn host(head: &RequestHead) -> &str {
    head.authority().or_else(|| head.fields.get_str(name::HOST)).unwrap_or_default()
}

/// The scheme the visitor used: the last one a trusted proxy names, else that of the connection.
pub fn scheme(fields: &Fields, trusted: bool, of_connection: &'static str) -> &'static str {
    if !trusted {
        return of_connection;
    }
    let said = fields.get_all(name::X_FORWARDED_PROTO).next_back();
    match said.and_then(|value| value.rsplit(|b| *b == b',').next()) {
        Some(proto) if proto.trim_ascii().eq_ignore_ascii_case(b"https") => "https",
        Some(_) => "http",
        None => of_connection,
    }
}

/// The same path and query at another of the operator's hosts, with a ticket for it.
pub fn elsewhere(base: &str, target: &str, ticket: Option<&str>) -> String {
    let base = base.trim_end_matches('/');
    match ticket {
        None => format!("{base}{target}"),
        Some(ticket) => {
            let separator = if target.contains('?') { '&' } else { '?' };
            format!("{base}{target}{separator}tg={ticket}")
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Version};

    use super::*;

    fn head(target: &str) -> RequestHead {
        RequestHead::new(Method::GET, target, Version::HTTP_11)
    }

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
            let mut head = head(from);
            assert_eq!(take_ticket(&mut head).as_deref(), ticket, "{from}");
            assert_eq!(head.target(), to, "{from}");
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
            let mut fields = Fields::new();
            fields.append(name::REFERER, from.as_bytes());
            clean_referer(&mut fields);
            assert_eq!(fields.get_str(name::REFERER), to, "{from}");
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
            let mut fields = Fields::new();
            said.iter().for_each(|said: &&str| fields.append(name::X_FORWARDED_PROTO, said.as_bytes()));
            assert_eq!(
                scheme(&fields, trusted, of_connection),
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
            assert_eq!(is_local(target), expected, "{target}");
        }
    }

    #[test]
    fn elsewhere_keeps_path_and_query() {
        assert_eq!(elsewhere("https://x.example/", "/a?b=c", Some("T")), "https://x.example/a?b=c&tg=T");
        assert_eq!(elsewhere("https://x.example", "/a", Some("T")), "https://x.example/a?tg=T");
        assert_eq!(elsewhere("https://x.example", "/a", None), "https://x.example/a");
    }
}
