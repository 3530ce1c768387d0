//! The configuration as the rest of the program sees it: checked, typed, complete.
//!
//! Every key has a default and a doc comment; `tidegate config default` prints both.
//!
//! ```text
//! file, --set ─► tree ─► read (sections, kinds) ─► check ─► Settings
//!                           └──────── mistakes ──────┴────► Vec<Mistake>
//! ```

use std::collections::HashSet;
use std::io::Read as _;
use std::path::Path;

#[macro_use]
mod declare;
mod check;
mod classes;
pub mod condition;
mod congestion;
mod congestion_check;
mod enforcing;
mod enforcing_check;
mod estimators;
pub mod exposition;
pub mod figures;
mod kinds;
mod logging;
mod mistake;
mod overrides;
mod print;
mod read;
mod rivals;
mod sections;
mod session;
pub mod tree;
mod tunable;
mod tuning;

pub use classes::{DEFAULT, Switch};
pub use congestion::{Detector, How, MAX_CONDITION, Rule, Then, Visitors, Watched};
pub use enforcing::{
    Application, AskKey, Explain, Explained, Fallback, JwtAlgorithm, Lighter, Tier, TierCookie, TierJwt,
    TierKey,
};
pub use estimators::{AUTO, estimator_names};
pub use logging::{AccessLog, LogFormat};
pub use mistake::{Excerpt, Found, Mistake, place};
pub use overrides::Override;
pub use print::Change;
pub use read::{did_you_mean, plain_key};
pub use rivals::{Aimd, Gradient, Gradient2, Vegas};
pub use sections::{
    Capacity, Class, ClassQueue, Egress, Eject, Health, History, Ingress, Limits, Listen, Log, Match, Origin,
    Proxy, Queue, Room, Tuners,
};
pub use session::{Session, SessionBy, SessionMax, WhenFull, is_gate_cookie};
pub use tunable::{Applied, MAX_CHANGES, Tunable, json_of, toml_of};
pub use tuning::{Bottleneck, PowerRatio};

use declare::{Block, Section as _, Tune};
use kinds::Named;
use read::Reader;
use tree::{At, Entry, Node, Source, Table};

/// Kinds of values, for whatever else is read from TOML: what is accepted, and how a message says so.
pub mod kind {
    pub use super::declare::Leaf;
    pub use super::kinds::net::{METHOD, PATH_GLOB, Text};
    pub use super::kinds::quantity::{Count, Number, Portion, Size, parse_duration};
    pub use super::kinds::{Choice, Flag, Named, either, toml_string};
}

/// Largest configuration file: far above any real one, and little enough to be read at once.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// What this process does.
#[derive(Clone, PartialEq, Default)]
pub enum Role {
    /// All in one.
    #[default]
    Gate,
    /// Hands out places (WebQ's TokenGen): redirects to `check_url` when it is a visitor's turn.
    TokenGen {
        /// Public base URL of the tokencheck process, e.g. `https://check.shop.example`.
        check_url: String,
    },
    /// Checks places and forwards (WebQ's TokenCheck).
    TokenCheck {
        /// Public base URL of the tokengen process: visitors without a valid ticket are sent there.
        gen_url: String,
        /// Base URL of the tokengen process's admin listener: observations go there.
        feedback_url: String,
        /// Bearer token of that listener; empty: none.
        feedback_token: String,
    },
}

impl Role {
    /// As written in the configuration.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Gate => "gate",
            Self::TokenGen { .. } => "tokengen",
            Self::TokenCheck { .. } => "tokencheck",
        }
    }
}

/// Without the token.
impl std::fmt::Debug for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gate => f.write_str("Gate"),
            Self::TokenGen { check_url } => f.debug_struct("TokenGen").field("check_url", check_url).finish(),
            Self::TokenCheck { gen_url, feedback_url, .. } => f
                .debug_struct("TokenCheck")
                .field("gen_url", gen_url)
                .field("feedback_url", feedback_url)
                .finish_non_exhaustive(),
        }
    }
}

/// A configuration that was a part of a larger document.
#[derive(Clone, Debug)]
pub struct Part {
    /// What could be read; defaults where it could not.
    pub settings: Settings,
    /// What could not.
    pub found: Vec<Found>,
    /// Values that no message may show.
    pub secrets: Vec<At>,
}

/// The value of `role`, before its section is known.
#[derive(Clone, Copy, PartialEq, Default)]
enum RoleName {
    #[default]
    Gate,
    TokenGen,
    TokenCheck,
}

impl Named for RoleName {
    const NAMES: &'static [(&'static str, Self)] =
        &[("gate", Self::Gate), ("tokengen", Self::TokenGen), ("tokencheck", Self::TokenCheck)];
}

/// What is admitted by the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Unit {
    /// Every request of a waiting class takes a place.
    #[default]
    Request,
    /// A visitor takes one place and then comes and goes with a pass.
    Session,
}

impl Named for Unit {
    const NAMES: &'static [(&'static str, Self)] = &[("request", Self::Request), ("session", Self::Session)];
}

/// To what a ticket is tied, so that it cannot be handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Binding {
    /// A random cookie; where a client keeps no cookies, its address prefix.
    #[default]
    Cookie,
    /// /24 or /56 of the visitor's address.
    IpPrefix,
    /// The visitor's address (WebQ III-C).
    Ip,
    /// Nothing.
    None,
}

impl Named for Binding {
    const NAMES: &'static [(&'static str, Self)] =
        &[("cookie", Self::Cookie), ("ip-prefix", Self::IpPrefix), ("ip", Self::Ip), ("none", Self::None)];
}

/// The sections of the file, in its order.
macro_rules! settings {
    ($( $(#[doc = $doc:literal])+ $name:ident: $T:ty, )*) => {
        /// Everything `tidegate run` needs to know.
        #[derive(Clone, Debug, PartialEq, Default)]
        pub struct Settings {
            /// What this process does: everything, or one half of the two-process form.
            pub role: Role,
            $( $(#[doc = $doc])+ pub $name: $T, )*
            /// Request classes, first match wins.
            pub class: Vec<Class>,
            /// Service levels, first match wins.
            pub tier: Vec<Tier>,
            /// Lighter URLs that rules reroute to.
            pub lighter: Vec<Lighter>,
            /// Other applications that rules ask.
            pub application: Vec<Application>,
            /// What may be congested.
            pub detector: Vec<Detector>,
            /// What follows.
            pub rule: Vec<Rule>,
        }

        impl Settings {
            /// Reads a section; `false` if there is none of that name.
            fn read_section(&mut self, entry: &Entry, out: &mut Reader) -> bool {
                match entry.name.as_str() {
                    $( stringify!($name) => self.$name = declare::Section::read_node(&entry.node, stringify!($name), out), )*
                    _ => return false,
                }
                true
            }

            /// Changes a key of a section.
            fn tune_section(&mut self, section: &str, path: &[&str], node: &Node, key: &str, out: &mut Reader) -> Tune {
                match section {
                    $( stringify!($name) => declare::Section::tune(&mut self.$name, path, false, node, key, out), )*
                    _ => Tune::Unknown,
                }
            }

            /// A tunable of a section.
            fn find_in(&self, section: &str, path: &[&str]) -> Option<declare::Key> {
                match section {
                    $( stringify!($name) => declare::Section::find(&self.$name, path, false), )*
                    _ => None,
                }
            }

            fn keep_sections(&mut self, old: &Self) {
                $( declare::Section::keep_until_restart(&mut self.$name, &old.$name); )*
            }

            fn section_blocks(&self, out: &mut Vec<Block>) {
                $( self.$name.blocks(stringify!($name), out); )*
            }
        }
    };
}

settings! {
    /// Where visitors and operators connect.
    listen: Listen,
    /// The service behind the gate.
    origin: Origin,
    /// How forwarded requests present themselves.
    proxy: Proxy,
    /// What one visitor may take: time and size.
    limits: Limits,
    /// How much the origin can serve.
    capacity: Capacity,
    /// The waiting room.
    room: Room,
    /// Sessions: a visitor with all its requests.
    session: Session,
    /// Admitted requests that wait for a free place at the origin.
    queue: Queue,
    /// How decisions by rules are told.
    explain: Explain,
    /// The measurement database.
    history: History,
    /// Scripts that change tunables.
    tuners: Tuners,
    /// Logs.
    log: Log,
}

impl Settings {
    /// Reads a configuration's text; `file_name` is for messages.
    ///
    /// ```
    /// use crate::Settings;
    ///
    /// let settings = Settings::parse("origin.replicas = \"app:8000\"\nroom.max_wait = \"10m\"", "shop.toml").unwrap();
    /// assert_eq!(settings.room.max_wait.as_secs(), 600);
    ///
    /// let mistakes = Settings::parse("origin.replicas = \"app:8000\"\nroom.max_wiat = \"10m\"", "shop.toml").unwrap_err();
    /// assert!(mistakes[0].to_string().starts_with("shop.toml:2:6: room.max_wiat: expected a key of [room]"));
    /// ```
    ///
    /// # Errors
    /// All mistakes, in the order of the text (at most 100, the last of which counts the rest).
    pub fn parse(text: &str, file_name: &str) -> Result<Self, Vec<Mistake>> {
        Self::parse_with(text, file_name, &[])
    }

    /// As [`Settings::parse`], with keys set from the command line; the last of several wins.
    ///
    /// # Errors
    /// As [`Settings::parse`].
    pub fn parse_with(text: &str, file_name: &str, overrides: &[Override]) -> Result<Self, Vec<Mistake>> {
        let mut sources = vec![Source { name: file_name.into(), text: text.into() }];
        let (mut root, syntax) = tree::parse(0, text);
        let mut out = Reader::new();
        for (i, one) in overrides.iter().enumerate() {
            sources.push(one.apply(i + 1, &mut root, &mut out));
        }
        let settings = read::settings(&root, &mut out);
        // What one key got wrong would only be reported twice.
        if out.found.is_empty() && syntax.is_empty() {
            check::check(&settings, &mut out);
            congestion_check::conditions(&settings, &mut out);
        }
        // A line the parser could not read gives no sensible value: its syntax is the only mistake worth telling.
        let line_ends: Vec<_> =
            text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i).collect();
        let line_of = |at: &At| line_ends.partition_point(|end| *end < at.start);
        let broken: HashSet<_> = syntax.iter().map(|error| line_of(&error.at)).collect();
        out.found.retain(|m| m.at.is_none_or(|at| at.source > 0 || !broken.contains(&line_of(&at))));
        out.found.extend(syntax.into_iter().map(|error| Found {
            at: Some(error.at),
            key: String::new(),
            expected: "valid TOML".into(),
            got: error.message,
            hint: None,
            cut: false,
        }));
        if out.found.is_empty() {
            Ok(settings)
        } else {
            Err(mistake::place(out.found, &sources, &out.secrets))
        }
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// As [`Settings::parse`]; one mistake without a place if the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, Vec<Mistake>> {
        Self::load_with(path, &[])
    }

    /// As [`Settings::load`], with keys set from the command line.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn load_with(path: &Path, overrides: &[Override]) -> Result<Self, Vec<Mistake>> {
        let name = path.display().to_string();
        let trouble = |expected: String, got: String| {
            let source = Source { name: name.clone(), text: String::new() };
            let found = Found { at: None, key: String::new(), expected, got, hint: None, cut: false };
            mistake::place(vec![found], &[source], &[])
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
        Self::parse_with(&text, &name, overrides)
    }

    /// Reads a configuration that is a part of a larger document, such as the gate of a scenario. The document's reader
    /// adds the mistakes to its own and has all of them [placed](place).
    pub fn read_part(table: &Table, key: &str) -> Part {
        let mut out = Reader::new();
        let settings = read::settings(table, &mut out);
        if out.found.is_empty() {
            check::check(&settings, &mut out);
            congestion_check::conditions(&settings, &mut out);
        }
        for mistake in &mut out.found {
            mistake.key = declare::join(key, &mistake.key);
        }
        Part { settings, found: out.found, secrets: out.secrets }
    }

    /// What `tidegate run --origin HOST:PORT` means; `http://HOST[:PORT]/` is accepted too. `listen` is the address
    /// for visitors.
    ///
    /// # Errors
    /// As [`Settings::parse`], naming the options.
    pub fn for_origin(
        origin: &str,
        capacity: Option<f64>,
        listen: Option<&str>,
    ) -> Result<Self, Vec<Mistake>> {
        Self::parse_with("", "command line", &Self::origin_overrides(origin, capacity, listen))
    }

    /// The whole file with every key's documentation and default.
    pub fn print_default() -> String {
        print::default_file()
    }

    /// The reference page, in Markdown (`docs/configuration.md`).
    pub fn reference() -> String {
        print::reference()
    }

    /// Which keys differ from `self` to `new`, and which of them need a restart.
    pub fn diff(&self, new: &Self) -> Vec<Change> {
        print::diff(self, new)
    }
}
