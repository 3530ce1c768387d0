//! One declaration per key: [`section!`] makes from it the struct's field with its documentation, the
//! default, the reader, the printer and the entry of the reference manual, so that they cannot disagree.
//!
//! Rejected: serde with `#[serde(default)]`. It stops at the first mistake, its messages name Rust types, and
//! neither bounds nor documentation can be printed from it.

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
    /// What is accepted, as JSON Schema as far as that can express it: for programs that draw forms.
    fn schema(&self) -> serde_json::Value {
        serde_json::json!({})
    }
    /// Whether messages, logs and differences must not show the value.
    fn secret(&self) -> bool {
        false
    }
}

/// What a key may hold: a [`Leaf`], or several. The methods are those of [`Leaf`].
pub(crate) trait Kind<T> {
    /// Reads the value of `key`; mistakes go to `out`.
    fn read(&self, node: &Node, key: &str, out: &mut Reader) -> Option<T>;
    fn expected(&self) -> String;
    fn show(&self, value: &T) -> String;
    fn schema(&self) -> serde_json::Value {
        serde_json::json!({})
    }
    fn secret(&self) -> bool;
}

impl<T, L: Leaf<T>> Kind<T> for L {
    fn read(&self, node: &Node, key: &str, out: &mut Reader) -> Option<T> {
        let parsed = self.parse(&node.value);
        if self.secret() {
            out.hide(node.at);
            return parsed.map_err(|hint| out.wrong_secret(node, key, self.expected(), hint)).ok();
        }
        parsed.map_err(|hint| out.wrong(node, key, self.expected(), hint)).ok()
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

/// The result of changing one key by its name.
pub(crate) enum Tune {
    /// It has changed; the values as TOML.
    Done { old: String, new: String },
    /// There is such a key, but a running gate takes another value only by a reload, or by a restart.
    Fixed { needs_restart: bool },
    /// The value was refused; the reader has the mistake.
    Wrong,
    /// There is no such key.
    Unknown,
}

/// What [`section!`] makes.
pub(crate) trait Section: Default {
    /// Reads a table; keys that are not in it keep their defaults.
    fn read(table: &Table, path: &str, out: &mut Reader) -> Self;

    /// This section and the ones inside, in the order of declaration.
    fn blocks(&self, path: &str, out: &mut Vec<Block>);

    /// The tunable that `path` leads to from here.
    fn find(&self, path: &[&str]) -> Option<Key>;

    /// Changes the key that `path` leads to from here; `key` is its whole name.
    fn tune(&mut self, path: &[&str], node: &Node, key: &str, out: &mut Reader) -> Tune;

    /// Takes what is marked `[restart]` from `old`, which the process was started with.
    fn keep_until_restart(&mut self, old: &Self);

    /// Reads a value that must be a table.
    fn read_node(node: &Node, path: &str, out: &mut Reader) -> Self {
        if let Value::Table(table) = &node.value {
            return Self::read(table, path, out);
        }
        out.wrong(node, path, format!("a table of keys, like [{path}]"), None);
        Self::default()
    }
}

/// Declares sections: `field as "key": type = default => kind;`. `with { … }` lists the sections inside.
///
/// `[tunable]` after the struct's name: its keys may be changed by name while the gate runs, except those
/// marked `[fixed]`, which take a reload, and those marked `[restart]`, which a running gate cannot change.
macro_rules! section {
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (@is_restart restart) => { true };
    (@is_restart $($other:ident)?) => { false };
    (@is_unmarked) => { true };
    (@is_unmarked $mark:ident) => { false };
    (@is_tunable) => { false };
    (@is_tunable tunable) => { true };
    (
        @key $self:ident, $field:ident $(as $name:literal)?: $T:ty => $kind:expr,
        [$($doc:literal),+] $([$mark:ident])?
    ) => {
        Key {
            name: section!(@name $field $($name)?),
            doc: &[$($doc),+],
            value: Kind::<$T>::show(&$kind, &$self.$field),
            expected: Kind::<$T>::expected(&$kind),
            schema: || Kind::<$T>::schema(&$kind),
            restart: section!(@is_restart $($mark)?),
            tunable: IS_TUNABLE && section!(@is_unmarked $($mark)?),
            secret: Kind::<$T>::secret(&$kind),
        }
    };
    (
        @one $(#[doc = $doc:literal])+
        $vis:vis struct $Name:ident $([$section:ident])? {
            $(
                $(#[doc = $key_doc:literal])+
                $([$mark:ident])? $field:ident $(as $name:literal)?: $T:ty = $default:expr => $kind:expr;
            )*
        }
        $(with { $( $(#[doc = $sub_doc:literal])+ $sub:ident $(as $sub_name:literal)?: $Sub:ty; )* })?
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

        const _: () = {
            use $crate::declare::{Block, Key, Kind, Section, Tune};
            use $crate::read::Reader;
            use $crate::tree::{Node, Table, join};

            const IS_TUNABLE: bool = section!(@is_tunable $($section)?);

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
                fn read(table: &Table, path: &str, out: &mut Reader) -> Self {
                    let mut new = Self::default();
                    for entry in &table.entries {
                        let key = join(path, &entry.name);
                        out.saw(&key, entry);
                        match entry.name.as_str() {
                            $( section!(@name $field $($name)?) => {
                                if let Some(value) = Kind::<$T>::read(&$kind, &entry.node, &key, out) {
                                    new.$field = value;
                                }
                            } )*
                            $($( section!(@name $sub $($sub_name)?) => {
                                new.$sub = Section::read_node(&entry.node, &key, out);
                            } )*)?
                            _ => out.unknown(entry, path),
                        }
                    }
                    new
                }

                fn blocks(&self, path: &str, out: &mut Vec<Block>) {
                    let keys = vec![$(
                        section!(@key self, $field $(as $name)?: $T => $kind, [$($key_doc),+] $([$mark])?),
                    )*];
                    out.push(Block { path: path.to_owned(), doc: &[$($doc),+], keys });
                    $($( self.$sub.blocks(&join(path, section!(@name $sub $($sub_name)?)), out); )*)?
                }

                fn find(&self, path: &[&str]) -> Option<Key> {
                    match path {
                        $( [section!(@name $field $($name)?)] => Some(
                            section!(@key self, $field $(as $name)?: $T => $kind, [$($key_doc),+] $([$mark])?)
                        ).filter(|key| key.tunable), )*
                        $($( [section!(@name $sub $($sub_name)?), rest @ ..] => self.$sub.find(rest), )*)?
                        _ => None,
                    }
                }

                fn tune(&mut self, path: &[&str], node: &Node, key: &str, out: &mut Reader) -> Tune {
                    match path {
                        $( [section!(@name $field $($name)?)] => {
                            if !(IS_TUNABLE && section!(@is_unmarked $($mark)?)) {
                                return Tune::Fixed { needs_restart: section!(@is_restart $($mark)?) };
                            }
                            let Some(value) = Kind::<$T>::read(&$kind, node, key, out) else {
                                return Tune::Wrong;
                            };
                            let old = Kind::<$T>::show(&$kind, &self.$field);
                            let new = Kind::<$T>::show(&$kind, &value);
                            self.$field = value;
                            Tune::Done { old, new }
                        } )*
                        $($( [section!(@name $sub $($sub_name)?), rest @ ..] => {
                            self.$sub.tune(rest, node, key, out)
                        } )*)?
                        _ => Tune::Unknown,
                    }
                }

                fn keep_until_restart(&mut self, old: &Self) {
                    $( if section!(@is_restart $($mark)?) { self.$field.clone_from(&old.$field); } )*
                    $($( self.$sub.keep_until_restart(&old.$sub); )*)?
                }
            }
        };
    };
    ($(
        $(#[doc = $doc:literal])+
        $vis:vis struct $Name:ident $([$section:ident])? { $($keys:tt)* }
        $(with { $($subs:tt)* })?
    )+) => { $(
        section! {
            @one $(#[doc = $doc])+ $vis struct $Name $([$section])? { $($keys)* } $(with { $($subs)* })?
        }
    )+ };
}
