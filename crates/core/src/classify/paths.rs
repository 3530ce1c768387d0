//! A set of path patterns, as rules name URLs: compiled once, matched in linear time against the path's one
//! spelling.

use super::glob::Glob;
use super::path::normalise;

/// Path patterns; see [`ClassRule::path`](super::ClassRule::path) for their language.
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

    /// No pattern: nothing matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of them fits `path`, the path component as it was sent.
    pub fn matches(&self, path: &str) -> bool {
        if self.is_empty() {
            return false;
        }
        let path = normalise(path);
        self.0.iter().any(|glob| glob.matches(path.iter().copied()))
    }
}
