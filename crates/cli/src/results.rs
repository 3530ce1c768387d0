//! Where results go: standard output, and files. Files are looked at before a run: a mistake in their names must not cost an
//! hour's figures.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Writes to standard output. A reader that has seen enough is no mistake.
///
/// # Errors
/// Anything else, such as a full disk: results that are lost must not pass for success.
pub fn say(text: impl Display) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(()),
    }
}

/// Writes a file.
///
/// # Errors
/// It cannot be written.
pub fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|e| at(file, e))
}

/// Whether a file can be written later; nothing is left behind and nothing that is there changes.
///
/// # Errors
/// It cannot be written.
pub fn writable(file: &Path) -> Result<(), String> {
    let there = fs::metadata(file);
    // Opening a pipe would wait for its reader, and closing it would end what the reader reads.
    if there.as_ref().is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
        return Ok(());
    }
    OpenOptions::new().append(true).create(true).open(file).map_err(|e| at(file, e))?;
    if there.is_err() {
        fs::remove_file(file).map_err(|e| at(file, e))?;
    }
    Ok(())
}

/// Makes a directory, if it is not there.
///
/// # Errors
/// It cannot be made, or something else has its name.
pub fn directory(dir: &Path) -> Result<(), String> {
    fs::create_dir_all(dir).map_err(|e| at(dir, e))
}

fn at(file: &Path, error: io::Error) -> String {
    format!("{}: {error}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_looked_at_without_a_trace() {
        let dir = std::env::temp_dir().join(format!("tidegate-results-{}", std::process::id()));
        directory(&dir).expect("a directory");
        let file = dir.join("a.csv");
        assert_eq!(writable(&file), Ok(()));
        assert!(!file.exists(), "it was only asked");
        write(&file, "kept").expect("a file");
        assert_eq!(writable(&file), Ok(()));
        assert_eq!(fs::read_to_string(&file).expect("text"), "kept");
        assert!(writable(&dir).is_err_and(|e| e.contains("directory")), "a directory is no file");
        assert!(writable(&dir.join("missing/a.csv")).is_err());
        assert!(directory(&file).is_err());
        fs::remove_dir_all(dir).expect("ours");
    }
}
