//! Results: standard output, files, and the exit code. Files are tried before a run, so that a mistake in
//! their names does not cost the figures of an hour.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// The exit code of a command that is done; says why it failed, if it did.
pub fn exit(done: Result<(), impl Display>) -> ExitCode {
    done.map_or_else(fail, |()| ExitCode::SUCCESS)
}

/// Says on standard error why a command failed.
pub fn fail(why: impl Display) -> ExitCode {
    eprintln!("tidegate: {why}");
    ExitCode::FAILURE
}

/// Writes to standard output. A reader that closed the pipe has seen enough: that is no mistake.
///
/// # Errors
/// It cannot be written for another reason, such as a full disk: lost results must not count as success.
pub fn say(text: impl Display) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(()),
    }
}

pub fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|e| at(file, e))
}

/// Whether a file can be written later. No file is left behind and none changes.
pub fn writable(file: &Path) -> Result<(), String> {
    let there = fs::metadata(file);
    // Opening a pipe would wait for its reader, and closing it would end the reader's input.
    if there.as_ref().is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
        return Ok(());
    }
    OpenOptions::new().append(true).create(true).open(file).map_err(|e| at(file, e))?;
    if there.is_err() {
        fs::remove_file(file).map_err(|e| at(file, e))?;
    }
    Ok(())
}

/// Makes a directory, unless it exists.
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
    fn trying_a_file_leaves_no_trace() {
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
