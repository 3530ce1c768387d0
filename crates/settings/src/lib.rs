//! The configuration: from a file and options to checked, typed, complete settings.
//!
//! Every key is declared once, with its type, bounds, default and documentation; `tidegate config default`
//! prints them.
//!
//! ```text
//! file, --set ─► tree ─► read (sections, kinds) ─► check ─► Settings
//!                           └──────── mistakes ──────┴────► Vec<Mistake>
//! ```

#![allow(missing_docs, reason = "names say what most fields are; docs are for what they cannot say")]

use std::collections::HashSet;
use std::io::Read as _;
use std::path::Path;
use std::sync::LazyLock;

#[macro_use]
mod declare;
#[macro_use]
mod kinds;
mod capacity;
pub mod certificate;
mod check;
mod class;
pub mod condition;
mod congestion;
mod correlate;
mod enforcing;
mod estimators;
pub mod exposition;
pub mod figures;
mod kernel;
mod mistake;
mod overrides;
mod print;
mod proxy_protocol;
mod read;
mod role;
mod sections;
mod session;
mod tls;
pub mod tree;
mod tunable;

pub use capacity::{AUTO, Capacity, estimator_names};
pub use class::{Class, ClassCost, ClassQueue, DEFAULT, Egress, Ingress, Match, Switch};
pub use congestion::{Detector, How, Rule, Share, Then, Visitors, Watched};
pub use correlate::{Correlate, CorrelateAuto, INTERVAL, RequestTypes};
pub use enforcing::{
    Application, AskKey, Enforcement, Explain, Explained, Fallback, JwtAlgorithm, Lighter, Tier, TierCookie,
    TierJwt, TierKey,
};
pub use estimators::{Aimd, Bottleneck, Breakwater, Cinnamon, Gradient, Gradient2, PowerRatio, Vegas};
pub use kernel::{Accept, Kernel, MAX_PRIORITIES, Policing, SynRule, Tcp, XdpMode};
pub use kinds::net::ListenAt;
pub use mistake::{Excerpt, Found, Mistake, did_you_mean, place};
pub use overrides::Override;
pub use print::Change;
pub use proxy_protocol::{ProxyHeader, ProxyProtocol};
pub use role::Role;
pub use sections::{
    AccessLog, Binding, Eject, Health, History, Http2, Limits, Listen, Log, LogFormat, Origin,
    OriginProtocol, Proxy, Queue, Room, Tuners, Unit,
};
pub use session::{Session, SessionBy, SessionMax, WhenFull, is_gate_cookie};
pub use tls::{Acme, Certificate, Challenge, ClientAuth, Tls, TlsVersion, instant};
pub use tree::plain_key;
pub use tunable::{Applied, MAX_CHANGES, Tunable, json_of, toml_of};

use declare::{Block, Key, Kind as _, Section, Tune};
use kinds::Choice;
use read::{KnownKey, KnownKeys, Reader, item_path};
use role::{RoleName, TokenCheckKeys, TokenGenKeys};
use tidegate_core::policies::MAX_TIERS;
use tidegate_core::units::MAX_CLASSES;
use tree::{At, Entry, Node, Source, Table, Value, join};

/// Kinds of values: what is accepted, and how messages describe it. The lab reads its scenarios with them.
pub mod kind {
    pub use super::declare::Leaf;
    pub use super::kinds::net::{METHOD, PATH_GLOB, Text};
    pub use super::kinds::quantity::{Count, Number, Portion, Size, parse_duration};
    pub use super::kinds::{Choice, Flag, Named, toml_string};
    pub use super::mistake::either;
}

/// Largest configuration file. Real ones are far smaller; the limit bounds the memory to read it.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// Most lighter URLs, and most applications: each is configured by hand.
const MAX_NAMED: usize = 256;
/// Most detectors: each is looked at on every tick.
const MAX_DETECTORS: usize = 256;
/// Most rules: each is looked at on every tick.
const MAX_RULES: usize = 1024;
/// Most rules for SYNs in the file. The kernel has room for more, which come by the API.
const MAX_SYN_RULES: usize = 4096;
/// Most certificates: each is read and verified at every reload.
const MAX_CERTIFICATES: usize = 256;
/// Most TCP services: each has sockets of its own for each worker.
const MAX_TCP: usize = 64;

/// A configuration that is a part of a larger document.
#[derive(Clone, Debug)]
pub struct Part {
    /// What could be read; defaults where it could not.
    pub settings: Settings,
    pub found: Vec<Found>,
    /// Values that no message may show.
    pub secrets: Vec<At>,
}

/// Declares the settings: sections, and lists of sections with their most items, in the order of the file.
macro_rules! settings {
    (
        sections { $( $(#[doc = $doc:literal])+ $name:ident: $T:ty, )* }
        lists { $( $(#[doc = $list_doc:literal])+ $list:ident: $Item:ty, at most $max:expr; )* }
    ) => {
        /// Everything `tidegate run` needs to know.
        #[derive(Clone, Debug, PartialEq, Default)]
        pub struct Settings {
            /// What this process does: everything, or one half of the two-process form.
            pub role: Role,
            $( $(#[doc = $doc])+ pub $name: $T, )*
            $( $(#[doc = $list_doc])+ pub $list: Vec<$Item>, )*
        }

        /// Sections of which there may be any number: `[[class]]`.
        const LISTS: [&str; [$( stringify!($list) ),*].len()] = [$( stringify!($list) ),*];

        impl Settings {
            /// Reads a section or a list; `false` if there is none of that name.
            fn read_section(&mut self, entry: &Entry, out: &mut Reader) -> bool {
                match entry.name.as_str() {
                    $( stringify!($name) => {
                        self.$name = Section::read_node(&entry.node, stringify!($name), out);
                    } )*
                    $( stringify!($list) => {
                        self.$list = read_list(&entry.node, stringify!($list), $max, out);
                    } )*
                    _ => return false,
                }
                true
            }

            /// Changes the tunable at `path`; `key` is the same as a text.
            fn tune(&mut self, path: &[&str], node: &Node, key: &str, out: &mut Reader) -> Tune {
                match path {
                    $( [stringify!($name), rest @ ..] => self.$name.tune(rest, node, key, out), )*
                    $( [stringify!($list), item, rest @ ..] => {
                        let found = self.$list.iter_mut().find(|known| known.name == *item);
                        found.map_or(Tune::Unknown, |found| found.tune(rest, node, key, out))
                    } )*
                    _ => Tune::Unknown,
                }
            }

            /// The tunable at `path`.
            fn find(&self, path: &[&str]) -> Option<Key> {
                match path {
                    $( [stringify!($name), rest @ ..] => self.$name.find(rest), )*
                    $( [stringify!($list), item, rest @ ..] => {
                        self.$list.iter().find(|known| known.name == *item)?.find(rest)
                    } )*
                    _ => None,
                }
            }

            /// The tunable at `path` with its default.
            fn find_default(path: &[&str]) -> Option<Key> {
                match path {
                    $( [stringify!($name), rest @ ..] => <$T>::default().find(rest), )*
                    $( [stringify!($list), _, rest @ ..] => <$Item>::default().find(rest), )*
                    _ => None,
                }
            }

            fn keep_sections(&mut self, old: &Self) {
                $( self.$name.keep_until_restart(&old.$name); )*
            }

            fn section_blocks(&self, out: &mut Vec<Block>) {
                $( self.$name.blocks(stringify!($name), out); )*
            }

            /// The sections of every item of the lists.
            fn item_blocks(&self, out: &mut Vec<Block>) {
                $( for (i, item) in self.$list.iter().enumerate() {
                    item.blocks(&item_path(stringify!($list), &item.name, i), out);
                } )*
            }

            /// The names of a list's items, in the order of the file.
            pub fn item_names(&self, list: &str) -> Vec<&str> {
                match list {
                    $( stringify!($list) => self.$list.iter().map(|item| item.name.as_str()).collect(), )*
                    _ => Vec::new(),
                }
            }

            /// Every section with the present values, in the order of the file, and one item with defaults
            /// for each list.
            fn all_blocks(&self) -> Vec<Block> {
                let mut out = Vec::new();
                self.section_blocks(&mut out);
                self.role_blocks(&mut out);
                $( <$Item>::default().blocks(stringify!($list), &mut out); )*
                out
            }
        }
    };
}

settings! {
    sections {
        /// Where visitors and operators connect.
        listen: Listen,
        /// TLS: to visitors, and whom the gate believes itself.
        tls: Tls,
        /// A certificate that the gate gets and renews itself.
        acme: Acme,
        /// The service behind the gate.
        origin: Origin,
        /// How forwarded requests present themselves.
        proxy: Proxy,
        /// Limits of one visitor: time and size.
        limits: Limits,
        /// HTTP/2 to visitors. New connections take over changed values.
        http2: Http2,
        /// How much the origin can serve.
        capacity: Capacity,
        /// The waiting room.
        room: Room,
        /// Sessions: a visitor with all its requests.
        session: Session,
        /// Admitted requests that wait for an in-flight slot at the origin.
        queue: Queue,
        /// What is done with requests that rules and quotas refuse.
        enforcement: Enforcement,
        /// What responses say of decisions by rules.
        explain: Explain,
        /// The measurement database.
        history: History,
        /// Which types of requests load which figure.
        correlate: Correlate,
        /// What the kernel does with connections before the gate accepts them.
        kernel: Kernel,
        /// Scripts that change tunables.
        tuners: Tuners,
        /// Logs.
        log: Log,
    }
    lists {
        /// Certificates that visitors are shown, chosen by the name that they ask for. The first is the
        /// default.
        certificate: Certificate, at most MAX_CERTIFICATES;
        /// Request classes, first match wins.
        class: Class, at most MAX_CLASSES - 1;
        /// Service levels, first match wins.
        tier: Tier, at most MAX_TIERS - 1;
        /// Lighter URLs that rules reroute to.
        lighter: Lighter, at most MAX_NAMED;
        /// Other applications that rules ask.
        application: Application, at most MAX_NAMED;
        /// What may be congested.
        detector: Detector, at most MAX_DETECTORS;
        /// What is then done.
        rule: Rule, at most MAX_RULES;
        /// Rules for connection requests, the most specific decides.
        syn_rule: SynRule, at most MAX_SYN_RULES;
        /// TCP services that the gate relays.
        tcp: Tcp, at most MAX_TCP;
    }
}

static KNOWN: LazyLock<KnownKeys> = LazyLock::new(|| {
    let of_block = |block: Block| {
        let names: Vec<_> = block.keys.iter().map(|key| key.name).collect();
        names.into_iter().map(move |name| KnownKey { section: block.path.clone(), name })
    };
    KnownKeys {
        keys: Settings::default().all_blocks().into_iter().flat_map(of_block).collect(),
        lists: &LISTS,
    }
});

impl Settings {
    /// Reads the text of a configuration; `file_name` is for messages.
    ///
    /// ```
    /// use tidegate_settings::Settings;
    ///
    /// let parse = |key| {
    ///     Settings::parse(&format!("origin.replicas = \"app:80\"\n{key} = \"10m\""), "shop.toml")
    /// };
    /// assert_eq!(parse("room.max_wait").unwrap().room.max_wait.as_secs(), 600);
    /// let mistakes = parse("room.max_wiat").unwrap_err();
    /// assert!(mistakes[0].to_string().starts_with("shop.toml:2:6: room.max_wiat: expected a key of"));
    /// ```
    ///
    /// # Errors
    /// All mistakes in the order of the text, at most 100. The last says how many more there are.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, Vec<Mistake>> {
        Self::parse_with(text, file_name, &[])
    }

    /// As [`Settings::parse`], with keys set from the command line; the last of several wins.
    ///
    /// # Errors
    /// As [`Settings::parse`].
    pub fn parse_with(text: &str, file_name: &str, overrides: &[Override]) -> Result<Self, Vec<Mistake>> {
        Self::parse_at(None, text, file_name, overrides)
    }

    fn parse_at(
        now: Option<u64>,
        text: &str,
        file_name: &str,
        overrides: &[Override],
    ) -> Result<Self, Vec<Mistake>> {
        let mut sources = vec![Source { name: file_name.into(), text: text.into() }];
        let (mut root, syntax) = tree::parse(0, text);
        let mut out = Reader::new(&KNOWN);
        out.now = now;
        for (i, one) in overrides.iter().enumerate() {
            sources.push(one.apply(i + 1, &mut root, &mut out));
        }
        let settings = Self::read(&root, &mut out);
        if syntax.is_empty() {
            settings.check_whole(&mut out);
        }
        // A line with a syntax error has no sensible value: other mistakes in it are not reported.
        let line_ends: Vec<_> =
            text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i).collect();
        let line_of = |at: &At| line_ends.partition_point(|end| *end < at.start);
        let broken: HashSet<_> = syntax.iter().map(|error| line_of(&error.at)).collect();
        out.found.retain(|m| m.at.is_none_or(|at| at.source > 0 || !broken.contains(&line_of(&at))));
        let syntax = syntax.into_iter();
        out.found.extend(syntax.map(|error| Found::new(Some(error.at), "", "valid TOML", error.message)));
        if out.found.is_empty() {
            Ok(settings)
        } else {
            Err(mistake::place(out.found, &sources, &out.secrets))
        }
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// As [`Settings::parse`]; one mistake without a position if the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, Vec<Mistake>> {
        Self::load_with(path, &[])
    }

    /// As [`Settings::load`], with keys set from the command line.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn load_with(path: &Path, overrides: &[Override]) -> Result<Self, Vec<Mistake>> {
        Self::load_at(None, path, overrides)
    }

    /// As [`Settings::load`]; what is not valid at `now`, in seconds since the Unix epoch, is a mistake too.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn load_valid(path: &Path, now: u64) -> Result<Self, Vec<Mistake>> {
        Self::load_at(Some(now), path, &[])
    }

    fn load_at(now: Option<u64>, path: &Path, overrides: &[Override]) -> Result<Self, Vec<Mistake>> {
        let name = path.display().to_string();
        let trouble = |expected: String, got: String| {
            let source = Source { name: name.clone(), text: String::new() };
            mistake::place(vec![Found::new(None, "", expected, got)], &[source], &[])
        };
        let mut bytes = Vec::new();
        let read = std::fs::File::open(path).and_then(|f| f.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
        read.map_err(|e| trouble("a readable file".into(), e.to_string()))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(trouble(format!("a file of at most {MAX_FILE_BYTES} bytes"), "a larger one".into()));
        }
        let text = String::from_utf8(bytes).map_err(|e| {
            let valid = &e.as_bytes()[..e.utf8_error().valid_up_to()];
            let line = valid.iter().filter(|b| **b == b'\n').count() + 1;
            trouble("UTF-8".into(), format!("a byte that is not, in line {line}"))
        })?;
        Self::parse_at(now, &text, &name, overrides)
    }

    /// Reads a configuration that is a part of a larger document, such as the gate of a scenario. The reader
    /// of the document adds the mistakes to its own and [places](place) all of them.
    pub fn read_part(table: &Table, key: &str) -> Part {
        let mut out = Reader::new(&KNOWN);
        let settings = Self::read(table, &mut out);
        settings.check_whole(&mut out);
        for mistake in &mut out.found {
            mistake.key = join(key, &mistake.key);
        }
        Part { settings, found: out.found, secrets: out.secrets }
    }

    fn read(root: &Table, out: &mut Reader) -> Self {
        let mut new = Self::default();
        let (mut token_gen, mut token_check) = (TokenGenKeys::default(), TokenCheckKeys::default());
        let mut role = RoleName::Gate;
        for entry in &root.entries {
            let key = plain_key(&entry.name);
            out.saw(&key, entry);
            match entry.name.as_str() {
                "role" => role = Choice.read(&entry.node, &key, out).unwrap_or_default(),
                "tokengen" => token_gen = Section::read_node(&entry.node, &key, out),
                "tokencheck" => token_check = Section::read_node(&entry.node, &key, out),
                _ if new.read_section(entry, out) => {}
                _ => out.unknown(entry, ""),
            }
        }
        new.role = Role::new(role, token_gen, token_check);
        new
    }

    /// Reports contradictions between keys, if no key is wrong by itself: a wrong value would cause others.
    fn check_whole(&self, out: &mut Reader) {
        if out.found.is_empty() {
            check::check(self, out);
            congestion::check_conditions(self, out);
        }
        if out.found.is_empty() {
            congestion::check_sets(self, out);
        }
        if out.found.is_empty() {
            tls::check_files(self, out.now, out);
        }
    }

    fn role_blocks(&self, out: &mut Vec<Block>) {
        let (token_gen, token_check) = self.role.keys();
        token_gen.blocks("tokengen", out);
        token_check.blocks("tokencheck", out);
    }
}

/// Reads a list of sections that have names.
fn read_list<T: Section>(node: &Node, what: &str, most: usize, out: &mut Reader) -> Vec<T> {
    // `[class]` with single brackets is a table.
    let Value::List(items) = &node.value else {
        let hint = format!("Write [[{what}]] with double brackets, once per {what}.");
        out.wrong(node, what, "an array of tables", Some(hint));
        return Vec::new();
    };
    if let Some(first_beyond) = items.get(most) {
        let expected = format!("at most {most} [[{what}]]");
        out.found.push(Found::new(Some(first_beyond.at), what, expected, items.len().to_string()));
    }
    let mut all = Vec::with_capacity(items.len().min(most));
    for (i, item) in items.iter().take(most).enumerate() {
        let name = match &item.value {
            Value::Table(table) => table.get("name").map(|entry| &entry.node.value),
            _ => None,
        };
        let name = if let Some(Value::Text(name)) = name { name.as_str() } else { "" };
        let path = item_path(what, if plain_key(name) == name { name } else { "" }, i);
        out.saw_item(what, i, item);
        all.push(T::read_node(item, &path, out));
    }
    all
}
