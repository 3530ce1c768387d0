//! The head of a request (RFC 9112 3): method, target, version and fields.

use std::fmt;
use std::fmt::Write;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};

use crate::bytes::find;
use crate::fields::Fields;
use crate::recycle::Recycled;
use crate::target;

/// A request without its content. Its memory is recycled (see [`Fields`]).
#[derive(Clone)]
pub struct RequestHead {
    method: Method,
    version: Version,
    /// The target as it was sent. Behind it a path and query that begins with a slash, where that of the
    /// target does not.
    text: Recycled<String>,
    spans: Spans,
    /// The field lines.
    pub fields: Fields,
}

/// Positions in the text.
#[derive(Clone, Copy, Default)]
struct Spans {
    target_end: u32,
    scheme_end: u32,
    authority: u32,
    authority_end: u32,
    /// Path and query, to the end of the text.
    path: u32,
    /// Of the query: its question mark, or the end of the text.
    query: u32,
}

impl RequestHead {
    /// A head without fields. Of a target that is not one, white space and control characters are left out:
    /// it would end the request line. That is a mistake of the caller.
    pub fn new(method: Method, target: &str, version: Version) -> Self {
        let mut head =
            Self { method, version, text: Recycled::new(), spans: Spans::default(), fields: Fields::new() };
        head.put_target(&[target]);
        head
    }

    /// What the parser has found; its target is valid.
    pub(crate) fn parsed(method: Method, target: &[u8], version: Version, fields: Fields) -> Self {
        let mut head = Self { method, version, text: Recycled::new(), spans: Spans::default(), fields };
        // It was ASCII to the parser.
        head.text.grown().push_str(std::str::from_utf8(target).unwrap_or_default());
        head.split();
        head
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Another method, for the same target.
    pub fn set_method(&mut self, method: Method) {
        self.method = method;
    }

    /// HTTP/1.0, HTTP/1.1 or HTTP/2.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Another version.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// As it was sent: in origin form, absolute form, authority form (CONNECT), or `*`.
    pub fn target(&self) -> &str {
        self.part(0, self.spans.target_end)
    }

    /// The path: `/` if an absolute-form target has none, `*` of that form, empty for CONNECT.
    pub fn path(&self) -> &str {
        self.part(self.spans.path, self.spans.query)
    }

    /// What follows the question mark.
    pub fn query(&self) -> Option<&str> {
        let end = self.text().len() as u32;
        (self.spans.query < end).then(|| self.part(self.spans.query + 1, end))
    }

    /// Path and query, without scheme and authority: the target in origin form.
    pub fn path_and_query(&self) -> &str {
        self.text().get(self.spans.path as usize..).unwrap_or_default()
    }

    /// Of an absolute-form target, or HTTP/2's `:scheme`.
    pub fn scheme(&self) -> Option<&str> {
        (self.spans.scheme_end > 0).then(|| self.part(0, self.spans.scheme_end))
    }

    /// Of an absolute-form target, or HTTP/2's `:authority`; that of CONNECT.
    pub fn authority(&self) -> Option<&str> {
        let Spans { authority, authority_end, .. } = self.spans;
        (authority < authority_end).then(|| self.part(authority, authority_end))
    }

    /// Another path and query. Scheme and authority stay, if there are any.
    pub fn set_target(&mut self, path_and_query: &str) {
        if self.spans.scheme_end == 0 {
            return self.put_target(&[path_and_query]);
        }
        // Rare, and so small that a copy does no harm.
        let kept = self.part(0, self.spans.authority_end).to_owned();
        self.put_target(&[&kept, path_and_query]);
    }

    /// Drops scheme and authority: the target becomes path and query.
    pub fn make_origin_form(&mut self) {
        if self.spans.scheme_end > 0 {
            let path_and_query = self.path_and_query().to_owned();
            self.put_target(&[&path_and_query]);
        }
    }

    fn put_target(&mut self, parts: &[&str]) {
        let text = self.text.grown();
        text.clear();
        for part in parts {
            let is_clean = |c: &char| *c > ' ' && *c != '\x7f';
            debug_assert!(part.chars().all(|c| is_clean(&c)), "no request target: {}", part.escape_debug());
            text.extend(part.chars().filter(is_clean));
        }
        self.split();
    }

    /// Finds the parts of the target, which is the whole text.
    fn split(&mut self) {
        let text = self.text.grown();
        let parts = target::split(self.method == Method::CONNECT, text.as_bytes());
        let target_end = text.len();
        let mut path = parts.path;
        if parts.scheme > 0 && text.as_bytes().get(path) != Some(&b'/') {
            text.push('/');
            text.extend_from_within(path..target_end);
            path = target_end;
        }
        let query = find(b'?', &text.as_bytes()[path..]).map_or(text.len(), |at| path + at);
        self.spans = Spans {
            target_end: target_end as u32,
            scheme_end: parts.scheme as u32,
            authority: parts.authority.start as u32,
            authority_end: parts.authority.end as u32,
            path: path as u32,
            query: query as u32,
        };
    }

    /// Every span lies between whole characters: its ends are ASCII characters or those of the text.
    fn part(&self, from: u32, to: u32) -> &str {
        self.text().get(from as usize..to as usize).unwrap_or_default()
    }

    fn text(&self) -> &str {
        self.text.get().map_or("", |text| text)
    }

    /// The same head as hyper has it.
    pub fn from_parts(parts: &http::request::Parts) -> Self {
        let mut head = Self::new(parts.method.clone(), "", parts.version);
        // Writing to memory does not fail.
        let _ = write!(head.text.grown(), "{}", parts.uri);
        head.split();
        add_fields(&mut head.fields, &parts.headers);
        head
    }

    /// The same head for hyper.
    pub fn to_parts(&self) -> http::request::Parts {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = self.method.clone();
        parts.version = self.version;
        parts.uri = self.target().parse::<Uri>().unwrap_or_default();
        parts.headers = to_map(&self.fields);
        parts
    }
}

impl fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?} {:?}", self.method, self.target(), self.version, self.fields)
    }
}

/// Adds the lines of a map, which are valid.
pub(crate) fn add_fields(fields: &mut Fields, map: &HeaderMap) {
    for (name, value) in map {
        fields.append(name.into(), value.as_bytes());
    }
}

/// The lines as a map. What the map has no room for is left out.
pub fn to_map(fields: &Fields) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields.iter() {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            let _ = map.try_append(name, value);
        }
    }
    map
}

/// The lines of a map.
impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        let mut fields = Self::new();
        add_fields(&mut fields, map);
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name;

    /// Target, then scheme, authority, path and query.
    type Row = (&'static str, Option<&'static str>, Option<&'static str>, &'static str, Option<&'static str>);

    #[rustfmt::skip]
    const TARGETS: &[Row] = &[
        ("/", None, None, "/", None),
        ("/a/b?c=d?e", None, None, "/a/b", Some("c=d?e")),
        ("//a/b?", None, None, "//a/b", Some("")),
        ("/http://a", None, None, "/http://a", None),
        ("*", None, None, "*", None),
        ("http://a.example:80/x?y", Some("http"), Some("a.example:80"), "/x", Some("y")),
        ("HTTPS://a", Some("HTTPS"), Some("a"), "/", None),
        ("http://[::1]:8?q=1", Some("http"), Some("[::1]:8"), "/", Some("q=1")),
    ];

    #[test]
    fn targets_have_the_parts_that_the_http_crate_finds() {
        for (target, scheme, authority, path, query) in TARGETS {
            let head = RequestHead::new(Method::GET, target, Version::HTTP_11);
            assert_eq!(head.target(), *target);
            assert_eq!((head.scheme(), head.authority()), (*scheme, *authority), "{target}");
            assert_eq!((head.path(), head.query()), (*path, *query), "{target}");
            let uri: Uri = target.parse().unwrap();
            assert_eq!((uri.path(), uri.query()), (head.path(), head.query()), "{target}");
            assert_eq!(uri.authority().map(|a| a.as_str()), head.authority(), "{target}");
        }
        let connect = RequestHead::new(Method::CONNECT, "a:443", Version::HTTP_11);
        assert_eq!((connect.authority(), connect.path(), connect.target()), (Some("a:443"), "", "a:443"));
    }

    #[test]
    fn another_target_keeps_scheme_and_authority() {
        let mut head = RequestHead::new(Method::GET, "http://a?x=1", Version::HTTP_11);
        assert_eq!(head.path_and_query(), "/?x=1");
        head.set_target("/b?y");
        assert_eq!((head.target(), head.path_and_query()), ("http://a/b?y", "/b?y"));
        head.make_origin_form();
        assert_eq!((head.target(), head.authority()), ("/b?y", None));
        head.set_target("/c");
        assert_eq!((head.target(), head.path(), head.query()), ("/c", "/c", None));
    }

    #[test]
    fn hypers_parts_come_back_as_they_were() {
        let mut head = RequestHead::new(Method::POST, "http://a/x?y", Version::HTTP_11);
        head.fields.append(name::COOKIE, b"a=1");
        head.fields.append("x-more".into(), "\u{e9}".as_bytes());
        head.fields.append(name::COOKIE, b"b=2");
        let parts = head.to_parts();
        assert_eq!(parts.uri, "http://a/x?y");
        assert_eq!(parts.headers.get_all("cookie").iter().count(), 2);
        let back = RequestHead::from_parts(&parts);
        assert_eq!((back.method(), back.target()), (head.method(), head.target()));
        assert_eq!(back.fields.len(), 3);
        assert_eq!(back.fields.get_all(name::COOKIE).collect::<Vec<_>>(), [b"a=1", b"b=2"]);
    }
}
