//! The operator's logo: an image inside the page, so that a waiting visitor asks the network for nothing else.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{PageError, escape};

/// Largest logo taken. Every waiting visitor gets it with the page, which without it fits one TCP window.
const MAX_BYTES: usize = 64 << 10;

/// An `<img>` that holds the file; `alt` is the operator's title. The kind is told by content, not by file name.
///
/// A browser runs no script of an SVG inside `<img>`, so the file needs no cleaning.
pub(crate) fn image(path: &Path, alt: &str) -> Result<String, PageError> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|source| PageError::Read { path: name.clone(), source })?;
    if bytes.len() > MAX_BYTES {
        return Err(PageError::LogoSize { path: name, bytes: bytes.len(), max: MAX_BYTES });
    }
    let start = bytes.trim_ascii_start().strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes.trim_ascii_start());
    let kind = if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        "image/png"
    } else if start.starts_with(b"<svg") || start.starts_with(b"<?xml") || start.starts_with(b"<!--") {
        "image/svg+xml"
    } else {
        return Err(PageError::LogoKind { path: name });
    };
    let mut escaped = Vec::new();
    escape::html(alt, &mut escaped);
    let alt = String::from_utf8_lossy(&escaped);
    Ok(format!("<img src=\"data:{kind};base64,{}\" alt=\"{alt}\">", STANDARD.encode(&bytes)))
}
