//! Mistakes in a configuration. A message says what was expected, what was found and where, so that the
//! operator can correct it without a manual.

use std::fmt;

use super::tree::{At, Source};

/// One mistake in a configuration.
///
/// It is displayed as a line like a compiler's (`shop.toml:12:12: room.max_wait: expected a duration …; got
/// 30 (an integer). Write "30s"?`), followed by the line of the file with a mark under the value. Secrets are
/// never shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file, or the option of the command line.
    pub file: String,
    /// Line, from 1; 0: the mistake has no position (a key is missing, or the file could not be read).
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The full key, e.g. `room.max_wait`; empty for a syntax error.
    pub key: String,
    pub expected: String,
    pub got: String,
    /// A suggestion, as a whole sentence.
    pub hint: Option<String>,
    /// The line itself; `None` without a position, or where the line holds a secret.
    pub excerpt: Option<Excerpt>,
}

/// A line and what to mark in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The line, with control characters replaced by blanks.
    pub text: String,
    /// Characters to mark, from the mistake's column on.
    pub width: usize,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut position = self.file.clone();
        if self.line > 0 {
            position.push_str(&format!(":{}:{}", self.line, self.column));
        }
        for part in [position.as_str(), &self.key].into_iter().filter(|part| !part.is_empty()) {
            write!(f, "{part}: ")?;
        }
        write!(f, "expected {}; got {}.", self.expected, self.got)?;
        if let Some(hint) = &self.hint {
            write!(f, " {hint}")?;
        }
        let Some(excerpt) = &self.excerpt else { return Ok(()) };
        let number = self.line.to_string();
        let pad = " ".repeat(number.len());
        let before = " ".repeat(self.column.saturating_sub(1));
        let carets = "^".repeat(excerpt.width.max(1));
        write!(f, "\n{pad} |\n{number} | {}\n{pad} | {before}{carets}", excerpt.text)
    }
}

impl std::error::Error for Mistake {}

/// A mistake before its line is looked up. The fields are those of [`Mistake`].
#[derive(Clone, Debug)]
pub struct Found {
    /// `None`: the mistake has no position.
    pub at: Option<At>,
    pub key: String,
    pub expected: String,
    pub got: String,
    pub hint: Option<String>,
    /// Show the line only up to the end of the mark: what follows may be a misspelt key's secret.
    pub cut: bool,
}

impl Found {
    /// A mistake without a hint, whose line may be shown.
    pub fn new(
        at: Option<At>,
        key: impl Into<String>,
        expected: impl Into<String>,
        got: impl Into<String>,
    ) -> Self {
        Self { at, key: key.into(), expected: expected.into(), got: got.into(), hint: None, cut: false }
    }
}

/// Most mistakes reported at once: nobody reads more, and a hostile file must not make the report huge.
pub(crate) const MAX_MISTAKES: usize = 100;

/// Longest line shown, in characters.
const MAX_LINE: usize = 160;

/// Longest line that is looked at: no person writes longer ones.
const MAX_LINE_BYTES: usize = 4096;

/// Looks up the lines of the mistakes. They come in the order of the text, at most 100. Lines that hold a
/// secret are not shown.
pub fn place(mut found: Vec<Found>, sources: &[Source], secrets: &[At]) -> Vec<Mistake> {
    found.sort_by_key(|m| m.at.unwrap_or_default());
    let beyond = found.len().saturating_sub(MAX_MISTAKES);
    found.truncate(MAX_MISTAKES);
    let mut placed: Vec<_> = found.into_iter().map(|m| place_one(m, sources, secrets)).collect();
    if let (Some(last), 1..) = (placed.last_mut(), beyond) {
        let more = format!("(There are {beyond} more mistakes.)");
        last.hint = Some(last.hint.take().map_or(more.clone(), |hint| format!("{hint} {more}")));
    }
    placed
}

/// As [`place`], for names and values that came one by one and stand in no text.
pub(crate) fn unplaced(found: Vec<Found>) -> Vec<Mistake> {
    place(found.into_iter().map(|m| Found { at: None, ..m }).collect(), &[], &[])
}

fn place_one(m: Found, sources: &[Source], secrets: &[At]) -> Mistake {
    let at = m.at.unwrap_or_default();
    let file = sources.get(at.source).map_or_else(String::new, |s| s.name.clone());
    let Found { key, expected, got, hint, .. } = m;
    let mut mistake = Mistake { file, line: 0, column: 0, key, expected, got, hint, excerpt: None };
    let (Some(at), Some(source)) = (m.at, sources.get(at.source)) else { return mistake };
    let text = source.text.as_str();
    let start = text.floor_char_boundary(at.start);
    let end = text.floor_char_boundary(at.end).max(start);
    let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
    mistake.line = text[..line_start].matches('\n').count() + 1;
    mistake.column = text[line_start..start].chars().count() + 1;
    let line = text[line_start..line_end].trim_end_matches('\r');
    let touches = |s: &At| s.source == at.source && s.start < line_end && line_start < s.end;
    if line.len() > MAX_LINE_BYTES || secrets.iter().any(touches) || may_hold_secret(line) {
        return mistake;
    }
    let mark_end = end.min(line_start + line.len()).max(start);
    let width = text[start..mark_end].chars().count().max(1);
    let shown = if m.cut { format!("{} …", &text[line_start..mark_end]) } else { line.to_owned() };
    if mistake.column + width <= MAX_LINE {
        let text = shown.chars().take(MAX_LINE).map(|c| if c.is_control() { ' ' } else { c }).collect();
        mistake.excerpt = Some(Excerpt { text, width });
    }
    mistake
}

/// Whether a line may hold a secret that the reader did not recognise: after a syntax error, or under a
/// misspelt key.
fn may_hold_secret(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let named = ["token", "keys", "secret", "passw"].iter().any(|word| {
        let after = lower.find(word).map(|i| &lower[i..]);
        after.is_some_and(|rest| rest.contains('='))
    });
    let hex_run = lower.split(|c: char| !c.is_ascii_hexdigit()).any(|run| run.len() >= 24);
    named || hex_run
}

/// `a, b or c`.
pub fn either(choices: impl Iterator<Item = String>) -> String {
    let all: Vec<_> = choices.collect();
    match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => all.concat(),
    }
}

/// "Did you mean `b`?" for the most similar choice, if any is similar.
pub fn did_you_mean<'c>(text: &str, choices: impl Iterator<Item = &'c str>) -> Option<String> {
    let text = text.get(..64).unwrap_or(text);
    let best = choices.min_by_key(|choice| strsim::osa_distance(text, choice))?;
    is_close(text, best).then(|| format!("Did you mean `{best}`?"))
}

/// Whether `a` may be `b` misspelt: at most one edit in three characters.
pub(crate) fn is_close(a: &str, b: &str) -> bool {
    // The distance takes quadratic time; no name is that long.
    a.len() <= 64 && strsim::osa_distance(a, b) <= (b.chars().count() / 3).max(1)
}
