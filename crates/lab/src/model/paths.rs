//! Which of an origin's path entries a request belongs to: the core's own classifier, so that a glob means the same
//! in `[[origin.path]]` as in a gate's `class.match.path`.

use tidegate_core::classify::{ClassRule, Classifier, ClassifyError, RequestHead, Rules};

use crate::scenario::{OriginSpec, PathSpec};

/// Compiled path entries.
#[derive(Clone, Debug)]
pub struct Paths {
    classifier: Classifier,
    last: usize,
}

impl Paths {
    /// Compiles the entries' globs.
    ///
    /// # Errors
    /// A glob that is none, or more entries than the classifier takes (255); `class` is the entry's index.
    pub fn compile(paths: &[PathSpec]) -> Result<Self, ClassifyError> {
        let rule = |path: &PathSpec| ClassRule { path: vec![path.path.clone()], ..ClassRule::default() };
        let classifier = Rules::compile(paths.iter().map(rule).collect())?;
        Ok(Self { classifier, last: paths.len().saturating_sub(1) })
    }

    /// The first entry that matches a path (with or without a query); the last one matches everything.
    pub fn index(&self, path: &str) -> usize {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let client = [127, 0, 0, 1].into();
        let head = RequestHead { method: "GET", path, query, host: "", client, fields: &[] };
        usize::from(self.classifier.classify(&head).0).min(self.last)
    }
}

/// [`Paths::index`] for who asks once. A spec whose globs do not compile has only its last entry.
pub fn path_index(spec: &OriginSpec, path: &str) -> usize {
    let last = spec.paths.len().saturating_sub(1);
    Paths::compile(&spec.paths).map_or(last, |paths| paths.index(path))
}
