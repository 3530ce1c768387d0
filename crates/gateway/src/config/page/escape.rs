//! Escapes untrusted text for the page: HTML, JSON and URLs. All text from outside is written by this module.

use tidegate_http::alphanumeric_and;

/// Appends `text` for HTML, safe between tags and inside quoted attributes. CR and LF become references,
/// because an HTML parser turns a bare CR into LF, and a kept form must come back byte for byte.
pub(crate) fn html(text: &str, out: &mut Vec<u8>) {
    each(text, out, |byte| match byte {
        b'&' => "&amp;",
        b'<' => "&lt;",
        b'>' => "&gt;",
        b'"' => "&quot;",
        b'\'' => "&#39;",
        b'\r' => "&#13;",
        b'\n' => "&#10;",
        _ => "",
    });
}

/// Appends `text` for the inside of a JSON string (RFC 8259, 7), safe inside a `<script>` as well.
pub(crate) fn json(text: &str, out: &mut Vec<u8>) {
    if is_ticket(text) {
        return out.extend_from_slice(text.as_bytes());
    }
    const CONTROLS: [&str; 32] = [
        "\\u0000", "\\u0001", "\\u0002", "\\u0003", "\\u0004", "\\u0005", "\\u0006", "\\u0007", "\\b", "\\t",
        "\\n", "\\u000b", "\\f", "\\r", "\\u000e", "\\u000f", "\\u0010", "\\u0011", "\\u0012", "\\u0013",
        "\\u0014", "\\u0015", "\\u0016", "\\u0017", "\\u0018", "\\u0019", "\\u001a", "\\u001b", "\\u001c",
        "\\u001d", "\\u001e", "\\u001f",
    ];
    each(text, out, |byte| match byte {
        b'"' => "\\\"",
        b'\\' => "\\\\",
        b'<' => "\\u003c",
        b'&' => "\\u0026",
        0..0x20 => CONTROLS[byte as usize],
        _ => "",
    });
}

/// Appends `text`, each byte replaced by what `escape` gives for it, if anything. Runs are copied whole.
fn each(text: &str, out: &mut Vec<u8>, escape: impl Fn(u8) -> &'static str) {
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escaped = escape(*byte);
        if !escaped.is_empty() {
            out.extend_from_slice(&bytes[from..at]);
            out.extend_from_slice(escaped.as_bytes());
            from = at + 1;
        }
    }
    out.extend_from_slice(&bytes[from..]);
}

/// Appends a URL of this site for an HTML attribute, with the ticket if the client keeps no cookies.
///
/// A target that could lead to another site becomes `/`: it must begin with one slash (two name a host), and
/// have no backslash (browsers read it as a slash) and no control character (browsers drop tabs).
pub(crate) fn url_html(target: &str, ticket: Option<&str>, out: &mut Vec<u8>) {
    write_url(target, ticket, html, out);
}

/// As [`url_html`], for a JSON string.
pub(crate) fn url_json(target: &str, ticket: Option<&str>, out: &mut Vec<u8>) {
    write_url(target, ticket, json, out);
}

fn write_url(target: &str, ticket: Option<&str>, write: impl Fn(&str, &mut Vec<u8>), out: &mut Vec<u8>) {
    let is_plain = target.bytes().all(|b| PLAIN_BYTES[usize::from(b)]);
    let target = if is_plain && is_local_path(target) { target } else { local(target) };
    if is_plain {
        out.extend_from_slice(target.as_bytes());
    } else {
        write_escaped(target, write, out);
    }
    if let Some(ticket) = ticket.filter(|t| is_ticket(t)) {
        out.extend_from_slice(if target.as_bytes().contains(&b'?') { b"&tg=" } else { b"?tg=" });
        // "&tg" is no character reference, so the ampersand may stand as it is, in JSON as in HTML.
        out.extend_from_slice(ticket.as_bytes());
    }
}

fn write_escaped(target: &str, write: impl Fn(&str, &mut Vec<u8>), out: &mut Vec<u8>) {
    let mut from = 0;
    for (at, c) in target.char_indices() {
        // A browser would encode these itself; encoded here, the URL is safe in an unquoted attribute too.
        if !c.is_ascii() || matches!(c, '"' | '<' | '>' | '`' | ' ') {
            write(&target[from..at], out);
            let mut utf8 = [0; 4];
            for byte in c.encode_utf8(&mut utf8).bytes() {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            from = at + c.len_utf8();
        }
    }
    write(&target[from..], out);
}

/// Whether `text` has only the alphabet of base64url and the separators a ticket may use.
fn is_ticket(text: &str) -> bool {
    text.bytes().all(|b| TICKET_BYTES[usize::from(b)])
}

const TICKET_BYTES: [bool; 256] = alphanumeric_and(b"-_.~");
/// Bytes that need no escape in any context: nearly all bytes of nearly all targets.
const PLAIN_BYTES: [bool; 256] = alphanumeric_and(b"-_.~/?=");

/// Whether it begins with one slash: two name a host.
fn is_local_path(path: &str) -> bool {
    path.starts_with('/') && !path.starts_with("//")
}

/// `target` without its fragment if it stays on this site, else `/`.
fn local(target: &str) -> &str {
    let path = target.split('#').next().unwrap_or_default();
    let leaves = path.bytes().any(|b| b < 0x20 || b == 0x7f || b == b'\\');
    if is_local_path(path) && !leaves { path } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(target: &str, ticket: Option<&str>) -> String {
        let mut out = Vec::new();
        url_html(target, ticket, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_target_stays_on_this_site_and_inside_its_attribute() {
        let table = [
            ("/", "/"),
            ("/a/b?x=1&y=2", "/a/b?x=1&amp;y=2"),
            ("/a|b{c}^[d]~e", "/a|b{c}^[d]~e"),
            ("/it's", "/it&#39;s"),
            ("/\"><script>alert(1)</script>", "/%22%3E%3Cscript%3Ealert(1)%3C/script%3E"),
            ("/a b`c", "/a%20b%60c"),
            ("/grün", "/gr%C3%BCn"),
            ("/a#b", "/a"),
            ("//evil.example/", "/"),
            ("/\\evil.example/", "/"),
            ("/\t/evil.example/", "/"),
            ("/\n/evil.example/", "/"),
            ("/a\u{7f}", "/"),
            ("https://evil.example/", "/"),
            ("javascript:alert(1)", "/"),
            ("*", "/"),
            ("", "/"),
            ("evil", "/"),
            ("#", "/"),
        ];
        for (target, expected) in table {
            assert_eq!(url(target, None), expected, "{target:?}");
        }
    }

    #[test]
    fn the_ticket_joins_the_query() {
        assert_eq!(url("/a", Some("aB-_9")), "/a?tg=aB-_9");
        assert_eq!(url("/a?b=c", Some("t.t~")), "/a?b=c&tg=t.t~");
        assert_eq!(url("//evil", Some("t")), "/?tg=t");
        assert_eq!(url("/a", Some("\"><script>")), "/a");
    }

    #[test]
    fn html_leaves_no_way_out_of_a_quoted_attribute() {
        let mut out = Vec::new();
        html("<a href=\"x\" b='y'>&\r\n", &mut out);
        assert_eq!(out, b"&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;&#13;&#10;");
    }

    proptest::proptest! {
        #[test]
        fn json_reads_back(text: String) {
            let mut out = b"\"".to_vec();
            json(&text, &mut out);
            out.push(b'"');
            proptest::prop_assert!(!out.windows(2).any(|w| w == b"</" || w == b"<!"));
            proptest::prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn no_target_leaves_or_breaks_out(text in "[/\\\\a\"'<>&#?: \t\n\u{e9}]{0,12}") {
            let url = url(&text, Some("t"));
            proptest::prop_assert!(url.starts_with('/') && !url.starts_with("//"));
            proptest::prop_assert!(!url.contains(['"', '<', '>', '\'', '\\', ' ', '\t', '\n', '`']));
        }
    }
}
