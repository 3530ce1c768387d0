//! Forms of logs.

use super::kinds::Named;

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

impl Named for LogFormat {
    const NAMES: &'static [(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

/// Form of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AccessLog {
    /// None.
    #[default]
    Off,
    /// Apache's combined form.
    Combined,
    /// One JSON object per line.
    Json,
}

impl Named for AccessLog {
    const NAMES: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("combined", Self::Combined), ("json", Self::Json)];
}
