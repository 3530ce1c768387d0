//! Which of an origin's path entries a request belongs to: the core's own classifier, so that a glob means
//! the same in `[[origin.path]]` as in a gate's `class.match.path`.

use tidegate_core::classify::{ClassRule, Classifier, ClassifyError, RequestHead, Rules};
use tidegate_core::units::MAX_CLASSES;

use crate::scenario::{OriginSpec, PathSpec};

/// Entries that one classifier takes: it numbers its classes by a byte, and one is the default.
const MAX_RULES: usize = MAX_CLASSES - 1;

#[derive(Clone, Debug)]
pub struct Paths {
    /// Each knows the next [`MAX_RULES`] entries.
    classifiers: Vec<Classifier>,
    last: usize,
}

impl Paths {
    /// Compiles the entries' globs.
    ///
    /// # Errors
    /// A glob that is none; `class` is the entry's index.
    pub fn compile(paths: &[PathSpec]) -> Result<Self, ClassifyError> {
        let rule = |path: &PathSpec| ClassRule { path: vec![path.path.clone()], ..ClassRule::default() };
        let compile = |(chunk, paths): (usize, &[PathSpec])| {
            let place =
                |error: ClassifyError| ClassifyError { class: chunk * MAX_RULES + error.class, ..error };
            Rules::compile(paths.iter().map(rule).collect()).map_err(place)
        };
        let classifiers = paths.chunks(MAX_RULES).enumerate().map(compile).collect::<Result<_, _>>()?;
        Ok(Self { classifiers, last: paths.len().saturating_sub(1) })
    }

    /// The first entry that matches a path (with or without a query); the last one matches everything.
    pub fn index(&self, path: &str) -> usize {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let client = [127, 0, 0, 1].into();
        let head = RequestHead { method: "GET", path, query, host: "", client, fields: &[] };
        let mut first = 0;
        for classifier in &self.classifiers {
            let class = classifier.classify(&head);
            if class != classifier.default_class() {
                return first + usize::from(class.0);
            }
            first += MAX_RULES;
        }
        self.last
    }
}

/// [`Paths::index`] for who asks once. A spec whose globs do not compile has only its last entry.
pub fn path_index(spec: &OriginSpec, path: &str) -> usize {
    let last = spec.paths.len().saturating_sub(1);
    Paths::compile(&spec.paths).map_or(last, |paths| paths.index(path))
}
