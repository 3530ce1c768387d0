//! Reads any bytes as a configuration. The result is settings or mistakes and never a panic; a mistake points
//! into the text; settings do not differ from themselves.

use tidegate_settings::{Override, Settings};

/// Reads one input.
pub fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // The last line also serves as an override.
    let overrides = [Override::set(text.lines().last().unwrap_or_default())];
    for overrides in [&overrides[..0], &overrides[..]] {
        match Settings::parse_with(&text, "fuzz", overrides) {
            Ok(settings) => assert!(settings.diff(&settings).is_empty()),
            Err(mistakes) => {
                assert!(!mistakes.is_empty());
                for mistake in mistakes {
                    assert!(mistake.line <= text.lines().count() + 1, "{mistake}");
                    assert!(!mistake.to_string().is_empty());
                }
            }
        }
    }
}
