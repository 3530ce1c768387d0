//! Classification: a request's class is that of the first rule whose conditions all hold, else the default.
//!
//! Rules are compiled once; classifying allocates nothing unless the path is spelled in an unusual way. They
//! are tried in order: with the few classes that an operator writes, a literal prefix or a method rejects
//! most rules within a few nanoseconds. Rejected: a decision tree over all rules, which pays off from about a
//! hundred rules on; and regular expressions, whose cost an operator cannot see.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::units::{ClassId, MAX_CLASSES};

mod glob;
mod head;
mod path;

use glob::Glob;
pub use head::{Fields, RequestHead};

/// The conditions of a class as configured. All of them must hold; a rule without conditions matches every
/// request. A condition holds if one of its values matches. Every *name* in `header`, `cookie` and `query` is
/// a condition of its own, whose values are the entries of that name.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ClassRule {
    pub method: Vec<String>,
    /// Path globs: `*` within a segment, `**` across segments, `?` one character. `/a/**` covers `/a` too.
    pub path: Vec<String>,
    /// Hosts without port, in any case; `*.` in front: any subdomain.
    pub host: Vec<String>,
    /// Header fields: name and value glob.
    pub header: Vec<(String, String)>,
    /// Cookies: name and value glob.
    pub cookie: Vec<(String, String)>,
    /// Query parameters: name and value glob, both compared decoded.
    pub query: Vec<(String, String)>,
    pub client: Vec<IpNet>,
}

/// A rule that cannot be compiled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("class {class}, {field}: expected {expected}, got `{got}`")]
pub struct ClassifyError {
    pub class: usize,
    pub field: &'static str,
    pub expected: &'static str,
    pub got: String,
}

/// Compiles rules.
///
/// ```
/// use tidegate_core::classify::{ClassRule, RequestHead, Rules};
/// use tidegate_core::units::ClassId;
///
/// let search = ClassRule { path: vec!["/search*".into()], ..ClassRule::default() };
/// let classifier = Rules::compile(vec![search]).unwrap();
/// let client = [192, 0, 2, 1].into();
/// let (host, fields) = ("a.example", &[]);
/// let head = RequestHead { method: "GET", path: "/search", query: "q=x", host, client, fields };
/// assert_eq!(classifier.classify(&head), ClassId(0));
/// assert_eq!(classifier.classify(&RequestHead { path: "/", ..head }), classifier.default_class());
/// ```
pub struct Rules;

impl Rules {
    /// Compiles rules in the order of their classes; the default class comes after them.
    ///
    /// # Errors
    /// The first invalid condition.
    pub fn compile(rules: Vec<ClassRule>) -> Result<Classifier, ClassifyError> {
        let (classifier, mistakes) = Self::compile_all(&rules);
        mistakes.into_iter().next().map_or(Ok(classifier), Err)
    }

    /// Every invalid condition of the rules, in their order.
    pub fn check(rules: &[ClassRule]) -> Vec<ClassifyError> {
        Self::compile_all(rules).1
    }

    fn compile_all(rules: &[ClassRule]) -> (Classifier, Vec<ClassifyError>) {
        let mut errors = Vec::new();
        if rules.len() >= MAX_CLASSES {
            let (expected, got) = ("at most 255 classes", rules.len().to_string());
            errors.push(ClassifyError { class: MAX_CLASSES - 1, field: "class", expected, got });
        }
        let compile = |(class, rule)| {
            let mut mistakes = Vec::new();
            let compiled = Rule::compile(rule, &mut mistakes);
            let error = |Mistake { field, expected, got }| ClassifyError { class, field, expected, got };
            errors.extend(mistakes.into_iter().map(error));
            compiled
        };
        let rules: Box<[Rule]> = rules.iter().enumerate().map(compile).collect();
        let asks_host = rules.iter().any(|rule| !rule.host.is_empty());
        (Classifier { rules, asks_host }, errors)
    }
}

/// Compiled rules.
#[derive(Clone, Debug)]
pub struct Classifier {
    rules: Box<[Rule]>,
    asks_host: bool,
}

impl Classifier {
    /// The class of a request: the first whose conditions all hold, else [`Classifier::default_class`].
    pub fn classify(&self, head: &RequestHead<'_>) -> ClassId {
        let request = Seen { head, path: OnceCell::new() };
        let first = self.rules.iter().position(|rule| rule.holds(&request));
        first.map_or(self.default_class(), |i| ClassId(i as u8))
    }

    /// Whether a class depends on the host, which need not be given otherwise.
    pub fn asks_host(&self) -> bool {
        self.asks_host
    }

    /// The class of requests that no rule matches: the one after the last rule.
    pub fn default_class(&self) -> ClassId {
        ClassId(self.rules.len() as u8)
    }

    /// Number of classes, including the default class.
    pub fn classes(&self) -> usize {
        self.rules.len() + 1
    }
}

/// A compiled set of path patterns, as in [`ClassRule::path`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Paths(Box<[Glob]>);

impl Paths {
    /// Compiles the patterns.
    ///
    /// # Errors
    /// The index of the first pattern that is too long: more than 255 characters from its first wildcard on.
    pub fn compile<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, usize> {
        let globs: Result<Vec<_>, _> =
            patterns.into_iter().enumerate().map(|(i, p)| Glob::path(p).map_err(|_| i)).collect();
        Ok(Self(globs?.into()))
    }

    /// Whether there is no pattern; then nothing matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any pattern matches `path`, the path component as it was sent.
    pub fn matches(&self, path: &str) -> bool {
        if self.is_empty() {
            return false;
        }
        let path = path::normalise(path);
        self.0.iter().any(|glob| glob.matches(path.iter().copied()))
    }
}

/// The path in its normal spelling, if it is sent in another one. Bytes that are no text are replaced.
pub(crate) fn in_normal_spelling(path: &str) -> Option<String> {
    match path::normalise(path) {
        Cow::Borrowed(_) => None,
        Cow::Owned(normal) => Some(String::from_utf8_lossy(&normal).into_owned()),
    }
}

/// A request with its normalised path, once computed.
struct Seen<'a> {
    head: &'a RequestHead<'a>,
    path: OnceCell<Cow<'a, [u8]>>,
}

impl Seen<'_> {
    fn path(&self) -> &[u8] {
        self.path.get_or_init(|| path::normalise(self.head.path))
    }
}

/// A compiled rule. An empty list matches every request.
#[derive(Clone, Debug)]
struct Rule {
    method: Box<[Box<str>]>,
    path: Box<[Glob]>,
    host: Box<[Host]>,
    client: Box<[IpNet]>,
    query: Box<[Named]>,
    header: Box<[Named]>,
    cookie: Box<[Named]>,
}

/// A name and its globs, one of which must match the value.
#[derive(Clone, Debug)]
struct Named {
    name: Box<str>,
    values: Vec<Glob>,
}

impl Named {
    fn fits(&self, value: &[u8]) -> bool {
        self.values.iter().any(|glob| glob.matches(value.iter().copied()))
    }
}

/// A host name in lower case.
#[derive(Clone, Debug)]
enum Host {
    Exactly(Box<str>),
    /// Any subdomain; the suffix begins with the dot.
    Under(Box<str>),
}

impl Host {
    fn fits(&self, host: &[u8]) -> bool {
        match self {
            Self::Exactly(name) => host.eq_ignore_ascii_case(name.as_bytes()),
            Self::Under(suffix) => {
                let split = host.len().checked_sub(suffix.len()).filter(|&at| at > 0);
                split.is_some_and(|at| host[at..].eq_ignore_ascii_case(suffix.as_bytes()))
            }
        }
    }
}

const NAME: &str = "a name of letters, digits and !#$%&'*+-.^_`|~";
const SHORT: &str = "at most 255 characters from the first wildcard on";

struct Mistake {
    field: &'static str,
    expected: &'static str,
    got: String,
}

impl Mistake {
    fn new(field: &'static str, expected: &'static str, got: impl Into<String>) -> Self {
        Self { field, expected, got: got.into() }
    }
}

impl Rule {
    /// Cheapest conditions first.
    fn holds(&self, request: &Seen<'_>) -> bool {
        let head = request.head;
        any_or_none(&self.method, |m| **m == *head.method)
            && any_or_none(&self.path, |glob| glob.matches(request.path().iter().copied()))
            && any_or_none(&self.host, |host| host.fits(bare_host(head.host).as_bytes()))
            && any_or_none(&self.client, |net| contains(net, head.client))
            && self.query.iter().all(|q| {
                q.values.iter().any(|glob| head::any_query(head.query, &q.name, |value| glob.matches(value)))
            })
            && self.header.iter().all(|h| head.fields.any(&h.name, &mut |v| h.fits(v.trim_ascii())))
            && self.cookie.iter().all(|c| head::any_cookie(head.fields, &c.name, &mut |v| c.fits(v)))
    }

    /// Skips invalid values and adds them to `mistakes`.
    fn compile(rule: &ClassRule, mistakes: &mut Vec<Mistake>) -> Self {
        let any_name = |name: &str| Some(name.into()).filter(|_| !name.is_empty());
        let field_name = |name: &str| is_token(name).then(|| name.to_ascii_lowercase());
        let cookie_name = |name: &str| is_token(name).then(|| name.into());
        Self {
            method: compiled(&rule.method, method, mistakes),
            path: compiled(&rule.path, path_glob, mistakes),
            host: compiled(&rule.host, host, mistakes),
            client: rule.client.iter().map(IpNet::trunc).collect(),
            query: named("query", &rule.query, any_name, mistakes),
            header: named("header", &rule.header, field_name, mistakes),
            cookie: named("cookie", &rule.cookie, cookie_name, mistakes),
        }
    }
}

/// Compiles each text; invalid ones go to `mistakes`.
fn compiled<T>(
    texts: &[String],
    compile: fn(&str) -> Result<T, Mistake>,
    mistakes: &mut Vec<Mistake>,
) -> Box<[T]> {
    texts.iter().filter_map(|t| compile(t).map_err(|m| mistakes.push(m)).ok()).collect()
}

fn any_or_none<T>(values: &[T], fits: impl FnMut(&T) -> bool) -> bool {
    values.is_empty() || values.iter().any(fits)
}

/// On a dual-stack listener an IPv4 visitor has the address ::ffff:a.b.c.d.
fn contains(net: &IpNet, client: IpAddr) -> bool {
    net.contains(&client.to_canonical())
}

/// Without port and without the dot of a fully qualified name.
fn bare_host(host: &str) -> &str {
    let end = match host.rfind(':') {
        // The colons inside `[::1]` are not before a port.
        Some(colon) if !host[colon..].contains(']') => colon,
        _ => host.len(),
    };
    let name = &host[..end];
    name.strip_suffix('.').unwrap_or(name)
}

fn method(text: &str) -> Result<Box<str>, Mistake> {
    if is_token(text) && !text.bytes().any(|b| b.is_ascii_lowercase()) {
        return Ok(text.into());
    }
    Err(Mistake::new("method", "a method in capitals, such as GET", text))
}

fn path_glob(text: &str) -> Result<Glob, Mistake> {
    if !text.starts_with(['/', '*']) {
        return Err(Mistake::new("path", "a glob that starts with `/` or `*`", text));
    }
    Glob::path(text).map_err(|_| Mistake::new("path", SHORT, text))
}

fn host(text: &str) -> Result<Host, Mistake> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let strange = |c: char| c.is_whitespace() || matches!(c, '/' | '*' | '@' | '?' | '#');
    let colons = name.contains(':') && !(name.starts_with('[') && name.ends_with(']'));
    if name.is_empty() || name.contains(strange) || colons || name.starts_with('.') {
        let expected = "a host name without port, `*.` in front for any subdomain";
        return Err(Mistake::new("host", expected, text));
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    Ok(match text.starts_with("*.") {
        true => Host::Under(format!(".{name}").into()),
        false => Host::Exactly(name.into()),
    })
}

/// Collects the values of each name; `canonical` returns the name as it is compared; `None`: it is invalid.
fn named(
    field: &'static str,
    pairs: &[(String, String)],
    canonical: impl Fn(&str) -> Option<String>,
    mistakes: &mut Vec<Mistake>,
) -> Box<[Named]> {
    let mut out: Vec<Named> = Vec::new();
    for (name, value) in pairs {
        let (Some(name), Ok(glob)) = (canonical(name), Glob::value(value)) else {
            mistakes.push(match canonical(name) {
                None => Mistake::new(field, NAME, name),
                Some(_) => Mistake::new(field, SHORT, value),
            });
            continue;
        };
        match out.iter_mut().find(|n| *n.name == *name) {
            Some(known) => known.values.push(glob),
            None => out.push(Named { name: name.into(), values: vec![glob] }),
        }
    }
    out.into()
}

/// RFC 9110, 5.6.2.
fn is_token(text: &str) -> bool {
    let tchar = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(tchar)
}
