//! One declaration per key: [`section!`] turns it into the struct's field with its documentation, the default, the
//! reader, the printer and the reference manual's entry, so that none of these can disagree with another.
//!
//! Rejected: serde with `#[serde(default)]`. It stops at the first mistake, its messages name Rust types, and neither
//! bounds nor documentation can be printed from it.

use super::read::Reader;
use super::tree::{Node, Table, Value};

/// A kind of value: what is accepted, and how it is written. Bounds are fields of the kind.
pub trait Leaf<T> {
    /// The value, or a suggestion how to write what was probably meant.
    fn parse(&self, value: &Value) -> Result<T, Option<String>>;
    /// What is accepted, to follow "expected".
    fn expected(&self) -> String;
    /// The value as TOML.
    fn show(&self, value: &T) -> String;
    /// What is accepted as JSON Schema, as far as it can say it: for programs that draw forms or try the bounds.
    fn schema(&self) -> serde_json::Value {
        serde_json::json!({})
    }
    /// Whether messages, logs and differences must not show the value.
    fn secret(&self) -> bool {
        false
    }
}

/// What a key may hold: a [`Leaf`], or several.
pub(crate) trait Kind<T> {
    /// Reads the value of `key`; mistakes go to `out`.
    fn read(&self, node: &Node, key: &str, out: &mut Reader) -> Option<T>;
    /// As in [`Leaf::expected`].
    fn expected(&self) -> String;
    /// As in [`Leaf::show`].
    fn show(&self, value: &T) -> String;
    /// As in [`Leaf::schema`].
    fn schema(&self) -> serde_json::Value {
        serde_json::json!({})
    }
    /// As in [`Leaf::secret`].
    fn secret(&self) -> bool;
}

impl<T, L: Leaf<T>> Kind<T> for L {
    fn read(&self, node: &Node, key: &str, out: &mut Reader) -> Option<T> {
        if self.secret() {
            out.hide(node.at);
        }
        self.parse(&node.value)
            .map_err(|hint| out.wrong(node, key, self.expected(), hint, self.secret()))
            .ok()
    }

    fn expected(&self) -> String {
        Leaf::expected(self)
    }

    fn show(&self, value: &T) -> String {
        Leaf::show(self, value)
    }

    fn schema(&self) -> serde_json::Value {
        Leaf::schema(self)
    }

    fn secret(&self) -> bool {
        Leaf::secret(self)
    }
}

/// One key of a section, as the printer and `diff` see it.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub name: &'static str,
    pub doc: &'static [&'static str],
    /// The present value as TOML.
    pub value: String,
    pub expected: String,
    /// As JSON Schema; made on demand.
    pub schema: fn() -> serde_json::Value,
    pub restart: bool,
    /// It may be changed by its name while the gate runs.
    pub tunable: bool,
    pub secret: bool,
}

/// One section, as the printer and `diff` see it.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub path: String,
    pub doc: &'static [&'static str],
    pub keys: Vec<Key>,
}

/// What became of one key that was to change.
pub(crate) enum Tune {
    /// It has changed: the old and the new value as TOML.
    Done(String, String),
    /// There is such a key, but a running gate changes it by a reload only, or not at all (`true`: needs a restart).
    Fixed(bool),
    /// The value was refused; the reader knows why.
    Wrong,
    /// There is no such key.
    Unknown,
}

/// What [`section!`] makes.
pub(crate) trait Section: Default {
    /// Whether its keys, but those marked `[restart]` or `[fixed]`, are tunables; `None`: as the section around it has it.
    const TUNABLE: Option<bool>;

    /// Reads a table; what is missing keeps its default.
    fn read(table: &Table, path: &str, out: &mut Reader) -> Self;

    /// This section and the ones inside, in the order of declaration; `tunable`: as the section around it has it.
    fn blocks_within(&self, path: &str, tunable: bool, out: &mut Vec<Block>);

    /// The tunable that `path` leads to from here.
    fn find(&self, path: &[&str], tunable: bool) -> Option<Key>;

    /// Changes the key that `path` leads to from here; `key` is its whole name.
    fn tune(&mut self, path: &[&str], tunable: bool, node: &Node, key: &str, out: &mut Reader) -> Tune;

    /// Takes what is marked `[restart]` from `old`, which the process was started with.
    fn keep_until_restart(&mut self, old: &Self);

    /// As [`Section::blocks_within`], of a section that stands at the top.
    fn blocks(&self, path: &str, out: &mut Vec<Block>) {
        self.blocks_within(path, false, out);
    }

    /// Reads a value that must be a table.
    fn read_node(node: &Node, path: &str, out: &mut Reader) -> Self {
        if let Value::Table(table) = &node.value {
            return Self::read(table, path, out);
        }
        out.wrong(node, path, format!("a table of keys, like [{path}]"), None, false);
        Self::default()
    }
}

/// `path.name`, or `name` at the top.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Declares a section: `field as "key": type = default => kind;`. `with { … }` lists the sections inside.
///
/// `[tunable]` after the struct's name makes tunables of its keys, and of those of the sections inside; `[fixed]` ends that for a
/// section or a key, whose value says what the gate is and not how it works. `[restart]` marks a key that a running gate
/// cannot change in any way.
macro_rules! section {
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    (@restart) => { false };
    (@restart restart) => { true };
    (@restart fixed) => { false };
    (@knob) => { true };
    (@knob restart) => { false };
    (@knob fixed) => { false };
    (@make $self:ident, $tunable:ident, $field:ident $(as $key:literal)?: $T:ty => $kind:expr, [$($doc:literal),+] $([$mark:ident])?) => {
        Key {
            name: section!(@key $field $($key)?),
            doc: &[$($doc),+],
            value: Kind::<$T>::show(&$kind, &$self.$field),
            expected: Kind::<$T>::expected(&$kind),
            schema: || Kind::<$T>::schema(&$kind),
            restart: section!(@restart $($mark)?),
            tunable: $tunable && section!(@knob $($mark)?),
            secret: Kind::<$T>::secret(&$kind),
        }
    };
    (@section) => { None };
    (@section tunable) => { Some(true) };
    (@section fixed) => { Some(false) };
    (
        $(#[doc = $doc:literal])+
        $vis:vis struct $Name:ident $([$section:ident])? {
            $(
                $(#[doc = $key_doc:literal])+
                $([$mark:ident])? $field:ident $(as $key:literal)?: $T:ty = $default:expr => $kind:expr;
            )*
        }
        $(with { $( $(#[doc = $sub_doc:literal])+ $sub:ident $(as $sub_key:literal)?: $Sub:ty; )* })?
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, PartialEq)]
        $vis struct $Name {
            $( $(#[doc = $key_doc])+ pub $field: $T, )*
            $($( $(#[doc = $sub_doc])+ pub $sub: $Sub, )*)?
        }

        impl Default for $Name {
            fn default() -> Self {
                Self { $( $field: $default, )* $($( $sub: Default::default(), )*)? }
            }
        }

        /// Secrets are left out, so that settings can be logged.
        impl std::fmt::Debug for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut out = f.debug_struct(stringify!($Name));
                $(
                    let shown = if Kind::<$T>::secret(&$kind) {
                        String::from("(secret)")
                    } else {
                        Kind::<$T>::show(&$kind, &self.$field)
                    };
                    out.field(stringify!($field), &format_args!("{shown}"));
                )*
                $($( out.field(stringify!($sub), &self.$sub); )*)?
                out.finish()
            }
        }

        impl Section for $Name {
            const TUNABLE: Option<bool> = section!(@section $($section)?);

            fn read(table: &Table, path: &str, out: &mut Reader) -> Self {
                let mut new = Self::default();
                for entry in &table.entries {
                    let key = join(path, &entry.name);
                    out.saw(&key, entry);
                    $(
                        if entry.name == section!(@key $field $($key)?) {
                            if let Some(value) = Kind::<$T>::read(&$kind, &entry.node, &key, out) {
                                new.$field = value;
                            }
                            continue;
                        }
                    )*
                    $($(
                        if entry.name == section!(@key $sub $($sub_key)?) {
                            new.$sub = Section::read_node(&entry.node, &key, out);
                            continue;
                        }
                    )*)?
                    out.unknown(entry, path);
                }
                new
            }

            fn blocks_within(&self, path: &str, tunable: bool, out: &mut Vec<Block>) {
                let tunable = Self::TUNABLE.unwrap_or(tunable);
                let keys = vec![$(
                    section!(@make self, tunable, $field $(as $key)?: $T => $kind, [$($key_doc),+] $([$mark])?),
                )*];
                out.push(Block { path: path.to_owned(), doc: &[$($doc),+], keys });
                $($( self.$sub.blocks_within(&join(path, section!(@key $sub $($sub_key)?)), tunable, out); )*)?
            }

            fn find(&self, path: &[&str], tunable: bool) -> Option<Key> {
                let tunable = Self::TUNABLE.unwrap_or(tunable);
                match path {
                    $( [name] if *name == section!(@key $field $($key)?) => Some(
                        section!(@make self, tunable, $field $(as $key)?: $T => $kind, [$($key_doc),+] $([$mark])?)
                    ).filter(|key| key.tunable), )*
                    $($( [name, rest @ ..] if *name == section!(@key $sub $($sub_key)?) => self.$sub.find(rest, tunable), )*)?
                    _ => None,
                }
            }

            fn tune(&mut self, path: &[&str], tunable: bool, node: &Node, key: &str, out: &mut Reader) -> Tune {
                let tunable = Self::TUNABLE.unwrap_or(tunable);
                match path {
                    $( [name] if *name == section!(@key $field $($key)?) => {
                        if !(tunable && section!(@knob $($mark)?)) {
                            return Tune::Fixed(section!(@restart $($mark)?));
                        }
                        let Some(value) = Kind::<$T>::read(&$kind, node, key, out) else { return Tune::Wrong };
                        let old = Kind::<$T>::show(&$kind, &self.$field);
                        let new = Kind::<$T>::show(&$kind, &value);
                        self.$field = value;
                        Tune::Done(old, new)
                    } )*
                    $($( [name, rest @ ..] if *name == section!(@key $sub $($sub_key)?) => {
                        self.$sub.tune(rest, tunable, node, key, out)
                    } )*)?
                    _ => Tune::Unknown,
                }
            }

            fn keep_until_restart(&mut self, old: &Self) {
                $( if section!(@restart $($mark)?) { self.$field.clone_from(&old.$field); } )*
                $($( self.$sub.keep_until_restart(&old.$sub); )*)?
            }
        }
    };
}
