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
    /// Whether messages, logs and differences must not show the value.
    fn secret(&self) -> bool {
        false
    }
}

/// What a key may hold: a [`Leaf`], or several.
pub(super) trait Kind<T> {
    /// Reads the value of `key`; mistakes go to `out`.
    fn read(&self, node: &Node, key: &str, out: &mut Reader) -> Option<T>;
    /// As in [`Leaf::expected`].
    fn expected(&self) -> String;
    /// As in [`Leaf::show`].
    fn show(&self, value: &T) -> String;
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

    fn secret(&self) -> bool {
        Leaf::secret(self)
    }
}

/// One key of a section, as the printer and `diff` see it.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub name: &'static str,
    pub doc: &'static [&'static str],
    /// The present value as TOML.
    pub value: String,
    pub expected: String,
    pub restart: bool,
    pub secret: bool,
}

/// One section, as the printer and `diff` see it.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub path: String,
    pub doc: &'static [&'static str],
    pub keys: Vec<Key>,
}

/// What [`section!`] makes.
pub(super) trait Section: Default {
    /// Reads a table; what is missing keeps its default.
    fn read(table: &Table, path: &str, out: &mut Reader) -> Self;
    /// This section and the ones inside, in the order of declaration.
    fn blocks(&self, path: &str, out: &mut Vec<Block>);

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
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Declares a section: `field as "key": type = default => kind;`. `[restart]` before the field marks what a running
/// gate cannot change; `with { … }` lists the sections inside.
macro_rules! section {
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    (@restart) => { false };
    (@restart restart) => { true };
    (
        $(#[doc = $doc:literal])+
        $vis:vis struct $Name:ident {
            $(
                $(#[doc = $key_doc:literal])+
                $([$restart:ident])? $field:ident $(as $key:literal)?: $T:ty = $default:expr => $kind:expr;
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

            fn blocks(&self, path: &str, out: &mut Vec<Block>) {
                let keys = vec![$( Key {
                    name: section!(@key $field $($key)?),
                    doc: &[$($key_doc),+],
                    value: Kind::<$T>::show(&$kind, &self.$field),
                    expected: Kind::<$T>::expected(&$kind),
                    restart: section!(@restart $($restart)?),
                    secret: Kind::<$T>::secret(&$kind),
                }, )*];
                out.push(Block { path: path.to_owned(), doc: &[$($doc),+], keys });
                $($( self.$sub.blocks(&join(path, section!(@key $sub $($sub_key)?)), out); )*)?
            }
        }
    };
}
