//! The crowd of an access log: each request a visitor of its own, at the log's own times.

use std::path::{Path, PathBuf};

use crate::scenario::Kind;

/// A visitor that a log has recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, in microseconds since the first.
    pub at_us: u64,
    /// Index into the cast.
    pub kind: u32,
}

/// What a log holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// In order of time.
    pub arrivals: Vec<Arrival>,
    /// One kind for each distinct method and path.
    pub kinds: Vec<Kind>,
    /// What could not be read.
    pub skipped: Skipped,
}

/// Lines that hold no request that could be played.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// How many.
    pub lines: u64,
    /// Number, from 1, and reason of the first of them.
    pub first: Vec<(u64, String)>,
}

/// Why a log cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file.
    #[error("{log}: expected a readable access log; got: {source}")]
    Unreadable {
        /// The file.
        log: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
}

impl Log {
    /// Reads a log whose visitors are like `manners` but for what they ask for. Their kinds are numbered from `first`.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn load(log: &Path, _manners: &Kind, _first: u32) -> Result<Self, ReplayError> {
        let unreadable = |source| ReplayError::Unreadable { log: log.into(), source };
        std::fs::File::open(log).map_err(unreadable)?;
        Ok(Self::default())
    }
}
