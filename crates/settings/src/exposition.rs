//! Finds series in Prometheus's text format (0.0.4), as node_exporter answers it.
//!
//! Rejected: a crate that parses the whole text into a structure. A detector needs one of some thousand
//! lines, and a malformed line in somebody else's text must not hide the others: here it is skipped.

/// Names and values of labels.
type Labels = Vec<(String, String)>;

/// Selects series: by the name of the metric, and labels that the series must have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    name: String,
    labels: Labels,
}

impl Pattern {
    /// Parses `name` or `name{label="value",…}`; `None`: the text is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, labels, rest) = series(text)?;
        rest.trim().is_empty().then(|| Self { name: name.into(), labels })
    }

    /// Selects the series of a metric with one label.
    pub fn with(name: &str, label: &str, value: &str) -> Self {
        Self { name: name.into(), labels: vec![(label.into(), value.into())] }
    }

    /// Selects all series of a metric.
    pub fn of(name: &str) -> Self {
        Self { name: name.into(), labels: Vec::new() }
    }

    /// Whether the metric is a counter; its figure is the increase per second.
    pub fn is_counter(&self) -> bool {
        self.name.ends_with("_total")
    }

    /// The sum of the selected series; `None`: there is none.
    pub fn sum(&self, text: &str) -> Option<f64> {
        self.values(text).reduce(|sum, value| sum + value)
    }

    /// The number of selected series.
    pub fn count(&self, text: &str) -> usize {
        self.values(text).count()
    }

    fn values(&self, text: &str) -> impl Iterator<Item = f64> {
        // Most lines are of other metrics; their labels need not be parsed.
        let lines = text.lines().filter(|line| line.starts_with(&self.name));
        lines.filter_map(|line| {
            let (name, labels, rest) = series(line)?;
            let fits = name == self.name && self.labels.iter().all(|label| labels.contains(label));
            // Rust parses "NaN", "+Inf" and "-Inf" too.
            rest.split_ascii_whitespace().next().filter(|_| fits)?.parse().ok()
        })
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
}

/// The name and the labels at the start of a line, and the rest of it.
fn series(text: &str) -> Option<(&str, Labels, &str)> {
    let end = text.find(|c: char| c == '{' || c.is_ascii_whitespace()).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    if !is_name(name) {
        return None;
    }
    let mut labels = Vec::new();
    let Some(inside) = rest.trim_start().strip_prefix('{') else { return Some((name, labels, rest)) };
    rest = inside.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((name, labels, after));
        }
        let (label, after) = rest.split_once('=')?;
        let (value, after) = quoted(after.trim_start())?;
        if !is_name(label.trim()) {
            return None;
        }
        labels.push((label.trim().into(), value));
        rest = after.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
}

/// The value in quotes at the start of a text, and the rest of it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 2..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

/// As [`Pattern::parse`] reads it.
impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        let shown = |(name, value): &(String, String)| format!("{name}={}", crate::kind::toml_string(value));
        let labels: Vec<_> = self.labels.iter().map(shown).collect();
        if labels.is_empty() { Ok(()) } else { write!(f, "{{{}}}", labels.join(",")) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = r#"
# HELP node_cpu_seconds_total Seconds the CPUs spent in each mode.
# TYPE node_cpu_seconds_total counter
node_cpu_seconds_total{cpu="0",mode="idle"} 362812.78
node_cpu_seconds_total{cpu="1",mode="idle"} 100.22
node_cpu_seconds_total{cpu="0",mode="user"} 2.5e1
node_load1 0.7 1395066363000
node_load15 9
node_filesystem_avail_bytes{device="C:\\",mountpoint="say \"hi\", {x}=1\n"} 1.5e+10
node_odd NaN
node_far +Inf
node_broken{a="b" 1
node_broken{a=b} 1
node_wordy words
"#;

    #[test]
    fn series_are_found_and_added_up() {
        let sum = |pattern: &str| Pattern::parse(pattern).unwrap().sum(TEXT);
        for (pattern, wanted) in [
            ("node_load1", Some(0.7)),
            ("node_load15", Some(9.0)),
            ("node_load", None),
            ("node_cpu_seconds_total", Some(362_938.0)),
            (r#"node_cpu_seconds_total{mode="idle"}"#, Some(362_913.0)),
            (r#"node_cpu_seconds_total{ mode="idle" , cpu="1" }"#, Some(100.22)),
            (r#"node_cpu_seconds_total{mode="steal"}"#, None),
            (r#"node_filesystem_avail_bytes{mountpoint="say \"hi\", {x}=1\n"}"#, Some(1.5e10)),
            ("node_far", Some(f64::INFINITY)),
            ("node_broken", None),
            ("node_wordy", None),
        ] {
            assert_eq!(sum(pattern).map(|x| (x * 100.0).round() / 100.0), wanted, "{pattern}");
        }
        assert!(sum("node_odd").unwrap().is_nan());
        assert!(Pattern::of("a_total").is_counter() && !Pattern::of("a").is_counter());
    }

    #[test]
    fn malformed_patterns_are_refused() {
        for text in ["", "1a", "a b", "a{", "a{b}", "a{b=\"c\"", "a{b=\"c\"}x", "ä", "a-b", "a{b=\"c\\"] {
            assert_eq!(Pattern::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(a|b|\\{|\\}|=|\"|\\\\|,| |\n|1|é){0,40}") {
            _ = Pattern::parse(&text);
            _ = Pattern::of("a").sum(&text);
        }
    }
}
