//! A form that was sent to the waiting room: it is kept in the page itself, so that the gateway keeps no
//! state for it, and the browser sends it when the wait is over.
//!
//! The body is parsed as the WHATWG URL standard says (5.1) and becomes hidden inputs. A browser that submits
//! these makes its own body from them (HTML, "constructing the entry list" and "URL-encoded form data"); the
//! names and values in it are byte for byte those that came. Bodies for which that is not certain are not
//! kept: the page says so, so that no changed form is sent. Rejected: keeping the body in the gateway (state
//! per visitor), and a script that sends it with `fetch` (no navigation, and nothing without JavaScript).

use super::escape;

/// Most fields of a form, as in PHP; the limit keeps a small body from becoming a huge page.
const MAX_FIELDS: usize = 1000;

#[derive(Debug, Clone, PartialEq)]
pub struct KeptForm {
    pub(crate) inputs: Vec<u8>,
}

/// Keeps a urlencoded body of at most `max` bytes; `None` if it is of another type, too large, or would not
/// be sent again exactly as it came.
pub fn keep(content_type: &str, body: &[u8], max: usize) -> Option<KeptForm> {
    if body.len() > max || !is_utf8_form(content_type) {
        return None;
    }
    let mut inputs = Vec::with_capacity(body.len() * 2);
    let pairs = body.split(|b| *b == b'&').filter(|pair| !pair.is_empty());
    for (count, pair) in pairs.enumerate() {
        let (name, value) = match pair.iter().position(|b| *b == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        };
        let (name, value) = (decode(name)?, decode(value)?);
        if count >= MAX_FIELDS || !comes_back(&name, &value) {
            return None;
        }
        inputs.extend_from_slice(b"<input type=hidden name=\"");
        escape::html(&name, &mut inputs);
        inputs.extend_from_slice(b"\" value=\"");
        escape::html(&value, &mut inputs);
        inputs.extend_from_slice(b"\">");
    }
    Some(KeptForm { inputs })
}

/// Whether the type is a urlencoded form whose text is UTF-8, as every type without a charset is.
fn is_utf8_form(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
                value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

/// Decodes `+` and percent escapes. A percent sign without an escape stays. `None` if not UTF-8.
fn decode(text: &[u8]) -> Option<String> {
    let hex = |b: Option<&u8>| b.and_then(|b| (*b as char).to_digit(16)).map(|d| d as u8);
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let escaped = if text[at] == b'%' { hex(text.get(at + 1)).zip(hex(text.get(at + 2))) } else { None };
        if let Some((high, low)) = escaped {
            out.push(high << 4 | low);
            at += 3;
        } else {
            out.push(if text[at] == b'+' { b' ' } else { text[at] });
            at += 1;
        }
    }
    String::from_utf8(out).ok()
}

/// Whether a browser sends this field unchanged: it drops fields without a name, turns every line break into
/// CRLF, fills in `_charset_` itself, and its HTML parser replaces NUL.
fn comes_back(name: &str, value: &str) -> bool {
    let exact = |text: &str| {
        let bytes = text.as_bytes();
        !bytes.iter().enumerate().any(|(i, b)| match b {
            0 => true,
            b'\r' => bytes.get(i + 1) != Some(&b'\n'),
            b'\n' => i == 0 || bytes[i - 1] != b'\r',
            _ => false,
        })
    };
    let charset = name.eq_ignore_ascii_case("_charset_") && value != "UTF-8";
    !name.is_empty() && !charset && exact(name) && exact(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &str = "application/x-www-form-urlencoded";

    fn kept(body: &str) -> Option<String> {
        keep(FORM, body.as_bytes(), 1 << 16).map(|f| String::from_utf8(f.inputs).unwrap())
    }

    #[test]
    fn fields_become_hidden_inputs() {
        let table = [
            ("", ""),
            ("a=1", "<input type=hidden name=\"a\" value=\"1\">"),
            ("a", "<input type=hidden name=\"a\" value=\"\">"),
            ("a=x+y%20z", "<input type=hidden name=\"a\" value=\"x y z\">"),
            ("a=b=c", "<input type=hidden name=\"a\" value=\"b=c\">"),
            ("a=%0D%0Ab", "<input type=hidden name=\"a\" value=\"&#13;&#10;b\">"),
            ("a=100%", "<input type=hidden name=\"a\" value=\"100%\">"),
            ("a=%zz%4", "<input type=hidden name=\"a\" value=\"%zz%4\">"),
            ("%22%3E%3Cscript=%27", "<input type=hidden name=\"&quot;&gt;&lt;script\" value=\"&#39;\">"),
            ("n=%E6%97%A5", "<input type=hidden name=\"n\" value=\"日\">"),
            ("_charset_=UTF-8", "<input type=hidden name=\"_charset_\" value=\"UTF-8\">"),
            ("&&a=1&", "<input type=hidden name=\"a\" value=\"1\">"),
        ];
        for (body, expected) in table {
            assert_eq!(kept(body).as_deref(), Some(expected), "{body}");
        }
    }

    #[test]
    fn bodies_that_a_browser_would_change_are_not_kept() {
        let changing = [
            "a=%0A",
            "a=%0D",
            "a=%0A%0D",
            "%0A=b",
            "a=%00",
            "=b",
            "a=%FC",
            "a=%ED%A0%80",
            "_charset_=latin1",
        ];
        for body in changing {
            assert_eq!(kept(body), None, "{body}");
        }
        assert_eq!(keep(FORM, b"a=\xfc", 100), None);
    }

    #[test]
    fn only_urlencoded_forms_within_bounds() {
        let table = [
            (FORM, true),
            ("Application/X-WWW-Form-URLencoded ; charset=UTF-8", true),
            ("application/x-www-form-urlencoded;charset=\"utf-8\"", true),
            ("application/x-www-form-urlencoded;charset=latin1", false),
            ("multipart/form-data; boundary=x", false),
            ("application/json", false),
            ("", false),
        ];
        for (content_type, expected) in table {
            assert_eq!(keep(content_type, b"a=1", 100).is_some(), expected, "{content_type}");
        }
        assert!(keep(FORM, b"a=12", 4).is_some());
        assert!(keep(FORM, b"a=123", 4).is_none());
        assert!(kept(&"a&".repeat(MAX_FIELDS)).is_some());
        assert!(kept(&"a&".repeat(MAX_FIELDS + 1)).is_none());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_kept_or_refused(body: Vec<u8>) {
            let _ = keep(FORM, &body, 1 << 16);
        }
    }
}
