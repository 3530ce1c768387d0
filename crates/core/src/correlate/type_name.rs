//! Names of request types: `class:NAME`, `path:TEMPLATE`, `other`.

use std::fmt;
use std::sync::Arc;

/// The name of a request type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TypeName {
    /// All requests of a class.
    Class(Arc<str>),
    /// All requests whose path has this [template](super::templates::template).
    Path(Arc<str>),
    /// All requests whose path has no type of its own.
    Other,
}

/// The text names no type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected \"class:NAME\", \"path:/TEMPLATE\" or \"other\"")]
pub struct NoType;

impl TypeName {
    /// "class", "path" or "other".
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Class(_) => "class",
            Self::Path(_) => "path",
            Self::Other => "other",
        }
    }

    /// Without the kind.
    pub fn name(&self) -> &str {
        match self {
            Self::Class(name) | Self::Path(name) => name,
            Self::Other => "other",
        }
    }

    /// Reads what [`fmt::Display`] writes.
    ///
    /// # Errors
    /// It is none of the three forms.
    pub fn parse(text: &str) -> Result<Self, NoType> {
        match text.split_once(':') {
            None if text == "other" => Ok(Self::Other),
            Some(("class", name)) if !name.is_empty() => Ok(Self::Class(name.into())),
            Some(("path", template)) if template.starts_with('/') => Ok(Self::Path(template.into())),
            _ => Err(NoType),
        }
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(name) => write!(f, "class:{name}"),
            Self::Path(template) => write!(f, "path:{template}"),
            Self::Other => f.write_str("other"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["class:search", "path:/", "path:/item/{n}:x", "other"] {
            assert_eq!(TypeName::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "search", "class:", "path:", "path:item", "others", "kind:x"] {
            assert_eq!(TypeName::parse(text), Err(NoType), "{text}");
        }
    }
}
