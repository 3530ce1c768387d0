//! A Rust source file as the rules see it: lines with and without comments and strings.

/// One file.
pub struct Source {
    /// From the root of the repository.
    pub path: String,
    /// As written.
    pub lines: Vec<String>,
    /// The same lines, with comments and the insides of strings and characters blanked out.
    pub code: Vec<String>,
    /// Columns of the same lines, the insides of strings not counted.
    pub widths: Vec<usize>,
}

/// Stands for a character of a string while columns are counted: no source holds it.
const IN_STRING: char = '\0';

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let lines = text.lines().map(str::to_owned).collect();
        let code = blank(text, ' ').lines().map(str::to_owned).collect();
        let columns = |line: &str| line.chars().filter(|c| *c != IN_STRING).count();
        let widths = blank(text, IN_STRING).lines().map(columns).collect();
        Self { path: path.into(), lines, code, widths }
    }

    /// `core` for `crates/core/...`; empty outside `crates`.
    pub fn krate(&self) -> &str {
        self.path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or_default()
    }

    /// Path below the crate's `src`, if it lies there.
    pub fn below_src(&self) -> Option<&str> {
        self.path.split_once("/src/").map(|(_, below)| below)
    }

    /// A file of tests: under `tests/`, or a sibling module of tests.
    pub fn is_test_file(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        self.path.contains("/tests/") || name == "tests.rs" || name.ends_with("_tests.rs")
    }

    /// Line number (from 1) at which an inline `mod tests` begins; beyond the end without one.
    pub fn first_test_line(&self) -> usize {
        if self.is_test_file() {
            return 0;
        }
        let marker = |line: &String| line.trim_start().starts_with("#[cfg(") && line.contains("test");
        self.code.iter().position(marker).map_or(usize::MAX, |i| i + 1)
    }

    /// Numbered lines of code.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.iter().enumerate().map(|(i, line)| (i + 1, line.as_str()))
    }
}

/// Where a scan stands.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Code,
    LineComment,
    BlockComment(u32),
    Text,
    RawText(usize),
}

/// Blanks comments and the insides of strings, which become `in_string`, and characters; keeps every line
/// break.
fn blank(text: &str, in_string: char) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut state = State::Code;
    let mut i = 0;
    while i < chars.len() {
        let (next, step) = advance(state, &chars, i);
        for (k, &c) in chars[i..i + step].iter().enumerate() {
            // A delimiter belongs to the code on both of its sides.
            let quote = c == '"' && k + 1 == step;
            let keep = c == '\n' || (state == State::Code && next == State::Code && step == 1) || quote;
            let blank = if matches!(state, State::Text | State::RawText(_)) { in_string } else { ' ' };
            out.push(if keep { c } else { blank });
        }
        state = next;
        i += step;
    }
    out
}

/// The state after the token at `i`, and how many characters it takes.
fn advance(state: State, chars: &[char], i: usize) -> (State, usize) {
    let at = |k: usize| chars.get(i + k).copied().unwrap_or('\0');
    match state {
        State::Code => match (at(0), at(1)) {
            ('/', '/') => (State::LineComment, 2),
            ('/', '*') => (State::BlockComment(1), 2),
            ('"', _) => (State::Text, 1),
            ('r', '"' | '#') if !in_word(chars, i) => raw_start(chars, i),
            ('\'', _) => (State::Code, character(chars, i)),
            _ => (State::Code, 1),
        },
        State::LineComment if at(0) == '\n' => (State::Code, 1),
        State::LineComment => (state, 1),
        State::BlockComment(depth) => match (at(0), at(1)) {
            ('*', '/') if depth == 1 => (State::Code, 2),
            ('*', '/') => (State::BlockComment(depth - 1), 2),
            ('/', '*') => (State::BlockComment(depth + 1), 2),
            _ => (state, 1),
        },
        State::Text => match at(0) {
            '\\' => (state, 2.min(chars.len() - i)),
            '"' => (State::Code, 1),
            _ => (state, 1),
        },
        State::RawText(hashes) => {
            let ends = at(0) == '"' && (1..=hashes).all(|k| at(k) == '#');
            if ends { (State::Code, 1 + hashes) } else { (state, 1) }
        }
    }
}

/// `r` inside a name such as `for` starts no raw string; after `b` it does.
fn in_word(chars: &[char], i: usize) -> bool {
    i > 0 && chars[i - 1] != 'b' && (chars[i - 1].is_alphanumeric() || chars[i - 1] == '_')
}

fn raw_start(chars: &[char], i: usize) -> (State, usize) {
    let hashes = chars[i + 1..].iter().take_while(|c| **c == '#').count();
    match chars.get(i + 1 + hashes) {
        Some('"') => (State::RawText(hashes), 2 + hashes),
        // A raw name such as `r#match`.
        _ => (State::Code, 1),
    }
}

/// Length of the character literal at `i`; 1 for a lifetime's apostrophe.
fn character(chars: &[char], i: usize) -> usize {
    match (chars.get(i + 1), chars.get(i + 2)) {
        (Some('\\'), _) => {
            let end = chars[i + 3..].iter().take(12).position(|c| *c == '\'');
            end.map_or(1, |k| k + 4)
        }
        (Some(_), Some('\'')) => 3,
        _ => 1,
    }
}
