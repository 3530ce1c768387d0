//! Numbers, times and texts of others, as a reader may see them.

pub(crate) use tidegate_core::correlate::suggestion::number;

/// A name from a file, as it may be shown.
pub(crate) fn printable(name: &str) -> String {
    name.escape_debug().to_string()
}

/// Text of others, between tags and in attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A time span: seconds, with what is below them.
pub(crate) fn span(us: i64) -> String {
    format!("{} s", us as f64 / 1e6)
}

/// An instant, in UTC.
pub(crate) fn instant(us: i64) -> String {
    let time = jiff::Timestamp::from_microsecond(us).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!((span(1_500_000).as_str(), instant(0).as_str()), ("1.5 s", "1970-01-01T00:00:00Z"));
    }

    #[test]
    fn texts_of_others_are_harmless() {
        assert_eq!(printable("a\u{1b}[31m"), "a\\u{1b}[31m");
        assert_eq!(escape("<a b='\"&\u{1}\">"), "&lt;a b=&#39;&quot;&amp;\u{fffd}&quot;&gt;");
    }
}
