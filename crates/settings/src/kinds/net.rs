//! Kinds of text: addresses, names, globs, URLs, keys.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::{List, toml_string};
use crate::declare::{Kind, Leaf};
use crate::mistake::did_you_mean;
use crate::read::Reader;
use crate::tree::{Node, Value, plain_key};

/// Text that a function accepts.
pub struct Text {
    /// What is accepted, to follow "expected".
    pub expected: &'static str,
    /// Accepts the text, or refuses it and may give a suggestion.
    pub check: fn(&str) -> Result<(), Option<String>>,
    pub secret: bool,
}

impl Leaf<String> for Text {
    fn parse(&self, value: &Value) -> Result<String, Option<String>> {
        let Value::Text(text) = value else { return Err(None) };
        let refused = |hint: Option<String>| hint.filter(|_| !self.secret);
        (self.check)(text).map(|()| text.clone()).map_err(refused)
    }

    fn expected(&self) -> String {
        self.expected.into()
    }

    fn show(&self, value: &String) -> String {
        toml_string(value)
    }

    fn schema(&self) -> serde_json::Value {
        serde_json::json!({ "type": "string" })
    }

    fn secret(&self) -> bool {
        self.secret
    }
}

/// A [`Text`] that may be shown.
pub(crate) const fn text(expected: &'static str, check: fn(&str) -> Result<(), Option<String>>) -> Text {
    Text { expected, check, secret: false }
}

fn ok_if(fine: bool) -> Result<(), Option<String>> {
    if fine { Ok(()) } else { Err(None) }
}

/// An RFC 9110 token.
fn is_token(s: &str) -> bool {
    !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn is_visible(s: &str) -> bool {
    s.bytes().all(|b| b.is_ascii_graphic())
}

/// A host name or address without a port; IPv6 in brackets.
fn is_host(s: &str) -> bool {
    if let Some(inner) = s.strip_prefix('[').and_then(|s| s.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let label = |l: &str| {
        let inside = l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        !l.is_empty() && l.len() <= 63 && inside && !l.starts_with('-') && !l.ends_with('-')
    };
    s.len() <= 253 && s.split('.').all(label)
}

/// `HOST:PORT` with a port above zero.
fn is_host_port(s: &str) -> bool {
    s.rsplit_once(':').is_some_and(|(host, port)| {
        let digits = port.bytes().all(|b| b.is_ascii_digit());
        is_host(host) && digits && port.parse::<u16>().is_ok_and(|p| p > 0)
    })
}

/// `unix:` and an absolute path, which fits into an address of a Unix socket (unix(7)).
pub(crate) fn is_unix_path(s: &str) -> bool {
    let path = s.strip_prefix("unix:");
    path.is_some_and(|path| path.starts_with('/') && path.len() < 108 && !path.contains('\0'))
}

/// What somebody who did not write `HOST:PORT` probably meant.
fn guess_host_port(s: &str) -> Option<String> {
    let bare = s.strip_prefix("http://").unwrap_or(s).trim_end_matches('/');
    let guess = match bare.parse::<std::net::Ipv6Addr>() {
        Ok(_) => format!("[{bare}]:80"),
        Err(_) if is_host(bare) => format!("{bare}:80"),
        Err(_) => bare.to_owned(),
    };
    is_host_port(&guess).then(|| format!("Write \"{guess}\"?"))
}

pub(crate) const REPLICA: Text = text(
    "HOST:PORT like \"10.0.0.5:8000\", \"app.internal:8000\" or \"[fd00::5]:8000\", \"https://HOST:PORT\", or \
     \"unix:/PATH\"",
    |s| match s.strip_prefix("https://") {
        None if is_unix_path(s) => Ok(()),
        Some(rest) if is_host_port(rest) => Ok(()),
        Some(rest) => {
            let host = rest.trim_end_matches('/');
            let guess = if is_host(host) { format!("https://{host}:443") } else { format!("https://{host}") };
            Err((is_host(host) || is_host_port(host)).then(|| format!("Write \"{guess}\"?")))
        }
        None if is_host_port(s) => Ok(()),
        None => Err(guess_host_port(s)),
    },
);

/// Of a TCP service, whose bytes are not looked at.
pub(crate) const TCP_SERVICE: Text = text("HOST:PORT like \"10.0.0.5:8000\" or \"db.internal:5432\"", |s| {
    if is_host_port(s) { Ok(()) } else { Err(guess_host_port(s)) }
});

/// A token that the operator chose.
pub(crate) const SECRET: Text = Text {
    expected: "at least 16 visible ASCII characters without spaces, or \"\"",
    check: |s| ok_if(s.is_empty() || (s.len() >= 16 && s.len() <= 1024 && is_visible(s))),
    secret: true,
};

/// A signing key. Ids are one byte because every ticket carries one.
pub(crate) const KEY: Text = Text {
    expected: "ID:KEY, an id from 0 to 255 and 64 hex digits, like \"1:00112233…\"",
    check: |s| {
        let halves = s.split_once(':');
        ok_if(halves.is_some_and(|(id, key)| {
            let digits = !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
            let hex = key.len() == 64 && key.bytes().all(|b| b.is_ascii_hexdigit());
            digits && id.parse::<u8>().is_ok() && hex
        }))
    },
    secret: true,
};

pub(crate) const HOST_FIELD: Text =
    text("HOST or HOST:PORT, or \"\"", |s| ok_if(s.is_empty() || is_host(s) || is_host_port(s)));

/// What somebody who wrote a URL, or a host with a port, probably meant.
fn bare_host(s: &str) -> &str {
    let bare = s.split_once("://").map_or(s, |(_, rest)| rest);
    bare.split(['/', ':']).next().unwrap_or_default()
}

pub(crate) const HOST_NAME: Text = text("a host name like \"shop.example\", without scheme or port", |s| {
    let bare = bare_host(s);
    if is_host(s) { Ok(()) } else { Err(is_host(bare).then(|| format!("Write \"{bare}\"?"))) }
});

pub(crate) const HOST_GLOB: Text =
    text("a host like \"shop.example\" or \"*.shop.example\", without scheme or port", |s| {
        let bare = bare_host(s);
        let fine = |s: &str| s == "*" || is_host(s.strip_prefix("*.").unwrap_or(s));
        if fine(s) { Ok(()) } else { Err(fine(bare).then(|| format!("Write \"{bare}\"?"))) }
    });

pub const PATH_GLOB: Text =
    text("a path glob that starts with \"/\", like \"/search*\" or \"/api/**\"", |s| {
        if s.contains("***") {
            return Err(Some("\"**\" already crosses segments.".into()));
        }
        let fine = is_visible(s) && !s.contains('#') && s.len() <= 1024;
        if fine && (s.starts_with('/') || s.starts_with("**")) {
            return Ok(());
        }
        Err((fine && !s.is_empty() && !s.contains(':')).then(|| format!("Write \"/{s}\"?")))
    });

/// A method. Methods are case-sensitive (RFC 9110, 9.1).
pub const METHOD: Text = text("a method like \"GET\"", |s| {
    let upper = s.to_ascii_uppercase();
    match is_token(s) {
        true if s == upper => Ok(()),
        true => Err(Some(format!("Write \"{upper}\"?"))),
        false => Err(None),
    }
});

pub(crate) const VALUE_GLOB: Text =
    text("a value or a glob like \"*\"", |s| ok_if(!s.chars().any(char::is_control) && s.len() <= 1024));

pub(crate) const HEALTH_PATH: Text = text("a path like \"/healthz\", or \"\"", |s| {
    let fine = is_visible(s) && !s.contains('#');
    match s.is_empty() || (fine && s.starts_with('/')) {
        true => Ok(()),
        false => Err((fine && !s.contains(':')).then(|| format!("Write \"/{s}\"?"))),
    }
});

/// The pseudonym in `Via`.
pub(crate) const VIA: Text = text("a name without spaces, or \"\"", |s| ok_if(s.is_empty() || is_token(s)));

pub(crate) const TITLE: Text = text("one line of at most 200 characters", |s| {
    ok_if(!s.chars().any(char::is_control) && s.chars().count() <= 200)
});

/// A name that appears in metrics and logs: of a rule, a service level and the like.
pub(crate) const NAME: Text =
    text("a name of 1 to 64 letters, digits, \"-\" and \"_\", other than \"default\"", |s| {
        let inside = s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        ok_if(!s.is_empty() && s.len() <= 64 && inside && s != "default")
    });

/// The name of a class. The default class may be configured too.
pub(crate) const CLASS_NAME: Text = text("a name of 1 to 64 letters, digits, \"-\" and \"_\"", |s| {
    if s == "default" { Ok(()) } else { (NAME.check)(s) }
});

pub(crate) const CLASS_OR_NONE: Text =
    text("the name of a [[class]], or \"\"", |s| if s.is_empty() { Ok(()) } else { (CLASS_NAME.check)(s) });

/// The name of something that is configured elsewhere, or none.
pub(crate) const NAME_OR_NONE: Text =
    text("a name, or \"\"", |s| if s.is_empty() { Ok(()) } else { (NAME.check)(s) });

pub(crate) const FIELD_NAME: Text =
    text("the name of a header field in lower case, like \"x-api-key\"", |s| {
        match is_token(s) && s.len() <= 256 {
            true if !s.bytes().any(|b| b.is_ascii_uppercase()) => Ok(()),
            true => Err(Some(format!("Write \"{}\"?", s.to_ascii_lowercase()))),
            false => Err(None),
        }
    });

pub(crate) const FIELD_OR_NONE: Text =
    text("the name of a header field in lower case like \"x-api-key\", or \"\"", |s| {
        if s.is_empty() { Ok(()) } else { (FIELD_NAME.check)(s) }
    });

pub(crate) const COOKIE_NAME: Text =
    text("the name of a cookie, or \"\"", |s| ok_if(s.is_empty() || (is_token(s) && s.len() <= 256)));

pub(crate) const HASH: Text = Text {
    expected: "a SHA-256 in 64 hex digits, as `printf %s KEY | sha256sum` prints",
    check: |s| ok_if(s.len() == 64 && s.bytes().all(|b| b.is_ascii_hexdigit())),
    secret: true,
};

/// A path of the same origin, perhaps with a query and `{path}`.
pub(crate) const TARGET: Text = text("a path like \"/lite.html\" or \"/lite{path}\"", |s| {
    let plain = s.replace("{path}", "/");
    let fine = is_visible(&plain)
        && !plain.contains(['#', '{', '}', '"', '<', '>', '\\', '^', '`', '|'])
        && s.len() <= 1024;
    // `//host` would lead to another host.
    let local = s.starts_with('/') && !s.starts_with("//") || s.starts_with("{path}");
    if fine && local {
        return Ok(());
    }
    Err((fine && !s.contains(':') && !s.starts_with('/')).then(|| format!("Write \"/{s}\"?")))
});

pub(crate) const BASE_URL: Text = text("a URL like \"https://check.shop.example\"", |s| {
    let rest = s.strip_prefix("https://").or_else(|| s.strip_prefix("http://"));
    let fine = |rest: &str| {
        let host = rest.split('/').next().unwrap_or_default();
        is_visible(rest) && !rest.contains(['?', '#', '@']) && (is_host(host) || is_host_port(host))
    };
    match rest {
        Some(rest) => ok_if(fine(rest)),
        None if s.is_empty() => Ok(()),
        None => Err((!s.contains("://") && fine(s)).then(|| format!("Write \"https://{s}\"?"))),
    }
});

/// Where tokencheck reports to.
pub(crate) const LINK_URL: Text =
    text("a URL like \"https://10.0.0.2:9090\"", |s| (BASE_URL.check)(s).map_err(|_| None));

/// Whom a certificate must be for.
pub(crate) const SERVER_NAME: Text = text("a host name or an IP address, or \"\"", |s| {
    ok_if(s.is_empty() || is_host(s) || s.parse::<IpAddr>().is_ok())
});

/// The name of a network interface (Linux: at most 15 bytes, no slash, no space).
pub(crate) const INTERFACE: Text = text("the name of a network interface like \"eth0\"", |s| {
    ok_if((1..=15).contains(&s.len()) && is_visible(s) && !s.contains('/') && s != "." && s != "..")
});

pub(crate) const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

pub(crate) const LEVEL: Text = text(
    "\"error\", \"warn\", \"info\", \"debug\", \"trace\", \"off\", or a filter like \"info,tidegate=debug\"",
    |s| {
        // `tracing` would take a single word that is no level for the name of a module, and log nothing.
        if s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !LEVELS.contains(&s) {
            return Err(did_you_mean(&s.to_ascii_lowercase(), LEVELS.into_iter()));
        }
        ok_if(tracing_subscriber::EnvFilter::builder().parse(s).is_ok())
    },
);

pub(crate) struct Address;

impl Leaf<SocketAddr> for Address {
    fn parse(&self, value: &Value) -> Result<SocketAddr, Option<String>> {
        let guess = match value {
            Value::Text(text) => match text.parse::<SocketAddr>() {
                Ok(address) => return Ok(address),
                Err(_) => guess_address(text),
            },
            Value::Integer(port) => guess_address(&port.to_string()),
            _ => None,
        };
        Err(guess.map(|guess| format!("Write \"{guess}\"?")))
    }

    fn expected(&self) -> String {
        "IP:PORT like \"0.0.0.0:8080\" or \"[::]:8080\"".into()
    }

    fn show(&self, value: &SocketAddr) -> String {
        format!("\"{value}\"")
    }
}

/// An address; empty text: none.
pub(crate) struct AddressOrNone;

impl Leaf<Option<SocketAddr>> for AddressOrNone {
    fn parse(&self, value: &Value) -> Result<Option<SocketAddr>, Option<String>> {
        match value {
            Value::Text(text) if text.is_empty() => Ok(None),
            _ => Leaf::parse(&Address, value).map(Some),
        }
    }

    fn expected(&self) -> String {
        "IP:PORT like \"0.0.0.0:443\" or \"[::]:443\", or \"\"".into()
    }

    fn show(&self, value: &Option<SocketAddr>) -> String {
        value.map_or_else(|| "\"\"".into(), |address| Leaf::show(&Address, &address))
    }
}

/// What somebody who wrote ":8080", "8080", "localhost:8080" or "*:8080" probably meant.
fn guess_address(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let ip = match host {
        "" | "*" => "0.0.0.0",
        "localhost" => "127.0.0.1",
        "::" => "[::]",
        "::1" => "[::1]",
        _ => return None,
    };
    let guess = format!("{ip}:{port}");
    guess.parse::<SocketAddr>().is_ok().then_some(guess)
}

/// A network, or one address.
pub(crate) struct Network;

impl Leaf<IpNet> for Network {
    fn parse(&self, value: &Value) -> Result<IpNet, Option<String>> {
        let Value::Text(text) = value else { return Err(None) };
        let net = text.parse::<IpNet>().or_else(|e| text.parse::<IpAddr>().map(IpNet::from).map_err(|_| e));
        let net = net.map_err(|_| None::<String>)?;
        // "10.1.2.3/8" is more often a mistake than a way to write 10.0.0.0/8.
        if net.trunc() == net { Ok(net) } else { Err(Some(format!("Write \"{}\"?", net.trunc()))) }
    }

    fn expected(&self) -> String {
        "a network like \"10.0.0.0/8\" or \"fd00::/8\", or one address".into()
    }

    fn show(&self, value: &IpNet) -> String {
        format!("\"{value}\"")
    }
}

/// A network, one address, or any.
pub(crate) struct NetworkOrAny;

impl Leaf<Option<IpNet>> for NetworkOrAny {
    fn parse(&self, value: &Value) -> Result<Option<IpNet>, Option<String>> {
        match value {
            Value::Text(text) if text == "*" => Ok(None),
            _ => Leaf::parse(&Network, value).map(Some),
        }
    }

    fn expected(&self) -> String {
        "\"*\", a network like \"10.0.0.0/8\" or \"fd00::/8\", or one address".into()
    }

    fn show(&self, value: &Option<IpNet>) -> String {
        value.map_or_else(|| "\"*\"".into(), |net| Leaf::show(&Network, &net))
    }
}

/// A table of names and value globs: `{ "X-Api" = "*" }`.
pub(crate) struct Pairs {
    /// What the names are, e.g. "header".
    pub what: &'static str,
}

impl Pairs {
    /// Header names are compared in lower case; the others as they are.
    fn name(&self, name: &str) -> Option<String> {
        let fine = match self.what {
            "query" => !name.is_empty() && !name.chars().any(char::is_control),
            _ => is_token(name),
        };
        fine.then(|| if self.what == "header" { name.to_ascii_lowercase() } else { name.to_owned() })
    }
}

impl Kind<Vec<(String, String)>> for Pairs {
    fn read(&self, node: &Node, key: &str, out: &mut Reader) -> Option<Vec<(String, String)>> {
        let Value::Table(table) = &node.value else {
            out.wrong(node, key, Kind::expected(self), None);
            return None;
        };
        let mut all = Vec::new();
        for entry in &table.entries {
            let place = format!("{key}.{}", plain_key(&entry.name));
            let Some(name) = self.name(&entry.name) else {
                out.wrong_name(entry, key, format!("a {} name", self.what));
                continue;
            };
            let globs = List(VALUE_GLOB).read(&entry.node, &place, out).unwrap_or_default();
            all.extend(globs.into_iter().map(|glob| (name.clone(), glob)));
        }
        Some(all)
    }

    fn expected(&self) -> String {
        format!("a table of {} names and values, like {{ name = \"*\" }}", self.what)
    }

    fn show(&self, value: &Vec<(String, String)>) -> String {
        if value.is_empty() {
            return "{}".into();
        }
        let mut names: Vec<&str> = value.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let one = |name: &str| {
            let globs: Vec<_> =
                value.iter().filter(|(n, _)| n == name).map(|(_, glob)| toml_string(glob)).collect();
            format!("{} = [{}]", toml_string(name), globs.join(", "))
        };
        format!("{{ {} }}", names.into_iter().map(one).collect::<Vec<_>>().join(", "))
    }

    fn secret(&self) -> bool {
        false
    }
}
