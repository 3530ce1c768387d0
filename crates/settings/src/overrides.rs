//! Keys from the command line. Each is a source of its own beside the file, so that messages name the option.

use super::Settings;
use super::mistake::Found;
use super::read::Reader;
use super::tree::{self, At, Source, Table, plain_key};

/// One key set from the command line. It replaces the value of the file.
#[derive(Clone, PartialEq, Eq)]
pub struct Override {
    /// The option, for messages: `--set`.
    flag: String,
    key: String,
    /// `None`: there was no `=`.
    value: Option<String>,
}

/// Without the value: it may be a secret.
impl std::fmt::Debug for Override {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Override({} {})", self.flag, self.key)
    }
}

impl Override {
    /// `--set key=value`: the value is TOML, or bare text (`room.max_wait=10m`).
    pub fn set(assignment: &str) -> Self {
        match assignment.split_once('=') {
            Some((key, value)) => Self::option("--set", key, value),
            None => Self { flag: "--set".into(), key: assignment.into(), value: None },
        }
    }

    /// An option that stands for a key, e.g. `--origin` for `origin.replicas`.
    pub fn option(flag: &str, key: &str, value: &str) -> Self {
        Self { flag: flag.into(), key: key.trim().into(), value: Some(value.into()) }
    }

    /// Puts the value into the tree.
    pub(crate) fn apply(&self, number: usize, root: &mut Table, out: &mut Reader) -> Source {
        let value = self.value.as_deref().unwrap_or_default();
        let prefix = match (self.flag.as_str(), &self.value) {
            ("--set", Some(_)) => format!("{}=", self.key),
            ("--set", None) => self.key.clone(),
            _ => String::new(),
        };
        let text = format!("{prefix}{value}");
        let at = At { source: number, start: prefix.len(), end: text.len() };
        let name_at = if prefix.is_empty() { at } else { At { start: 0, end: self.key.len(), ..at } };
        let path: Vec<_> = self.key.split('.').collect();
        let trouble = if self.value.is_none() {
            Some("no `=`".to_owned())
        } else if self.key.is_empty() {
            Some("nothing before the `=`".to_owned())
        } else {
            let put = root.put(&path, name_at, tree::parse_value(at, value.trim()));
            put.err().map(|part| format!("{}, which leads nowhere", tree::quoted(part)))
        };
        if let Some(got) = trouble {
            let found = Found::new(Some(name_at), plain_key(&self.key), "section.key=value", got);
            out.found.push(Found { cut: true, ..found });
        }
        Source { name: self.flag.clone(), text }
    }
}

impl Settings {
    /// The options of [`Settings::for_origin`] as overrides.
    pub fn origin_overrides(origin: &str, capacity: Option<f64>, listen: Option<&str>) -> Vec<Override> {
        let http = origin.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
        let has_port = |h: &str| h.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let replica = match http {
            Some(host) if !has_port(host) => format!("{host}:80"),
            Some(host) => host.to_owned(),
            None => origin.to_owned(),
        };
        let mut all = vec![Override::option("--origin", "origin.replicas", &replica)];
        all.extend(capacity.map(|c| Override::option("--capacity", "capacity.rate", &format!("{c:?}"))));
        all.extend(listen.map(|l| Override::option("--listen", "listen.http", l)));
        all
    }
}
