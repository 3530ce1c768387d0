//! Temporary directories.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A new directory that no other user can write into. It is removed with its owner.
pub struct Scratch {
    what: &'static str,
    path: PathBuf,
}

impl Scratch {
    /// # Errors
    /// The directory that could not be made, and why.
    pub fn new(what: &'static str) -> Result<Self, (PathBuf, io::Error)> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let name = format!("tidegate-{what}-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
            let path = std::env::temp_dir().join(name);
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { what, path }),
                // Left behind by a process of the same number that was killed: in a container they repeat.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err((path, error)),
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(dir = %self.path.display(), %error, "the {}'s directory stays behind", self.what);
        }
    }
}
