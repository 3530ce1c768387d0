//! What single bytes and numbers may be (RFC 9110 5.5, 5.6.2, 8.6).

static TOKEN: [bool; 256] = alphanumeric_and(b"!#$%&'*+-.^_`|~");

/// The set of ASCII letters, digits and `more`, by byte.
pub const fn alphanumeric_and(more: &[u8]) -> [bool; 256] {
    let mut set = [false; 256];
    let mut b = 0;
    while b < 256 {
        set[b] = (b as u8).is_ascii_alphanumeric();
        b += 1;
    }
    let mut i = 0;
    while i < more.len() {
        set[more[i] as usize] = true;
        i += 1;
    }
    set
}

/// A character of a token (RFC 9110 5.6.2).
pub fn is_token(b: u8) -> bool {
    TOKEN[b as usize]
}

/// Characters of a field value (RFC 9110 5.5): no control character but HTAB. Written without a branch per
/// byte, so that the compiler vectorises it.
pub fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().fold(0u8, |bad, &b| bad | (u8::from(b < 0x20) & u8::from(b != b'\t')) | u8::from(b == 0x7f))
        == 0
}

/// Whether whole lines have nothing in their values that [`is_text`] refuses: no control character but HTAB,
/// and CR before LF only. Many lines at once are checked much faster than each of them.
pub fn is_clean(lines: &[u8]) -> bool {
    let is_bad = |b: u8, next: u8| {
        let is_end = u8::from(b == b'\n') | (u8::from(b == b'\r') & u8::from(next == b'\n'));
        (u8::from(b < 0x20) & u8::from(b != b'\t') & (is_end ^ 1)) | u8::from(b == 0x7f)
    };
    let pairs = lines.iter().zip(lines.get(1..).unwrap_or_default());
    pairs.fold(0u8, |bad, (&b, &next)| bad | is_bad(b, next)) == 0
}

/// A value without the white space around it (RFC 9110 5.5), and how much of it was before.
pub fn trimmed(value: &[u8]) -> (&[u8], usize) {
    let (mut inner, mut before) = (value, 0);
    while let [b' ' | b'\t', rest @ ..] = inner {
        (inner, before) = (rest, before + 1);
    }
    while let [rest @ .., b' ' | b'\t'] = inner {
        inner = rest;
    }
    (inner, before)
}

/// One decimal number below 2^63: digits only, no sign, no list (RFC 9110 8.6). Half of `u64`, so that
/// neither a sum of lengths in the gateway nor an origin's signed integer can overflow.
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let n = digits.iter().fold(0u64, |n, d| n * 10 + u64::from(d - b'0'));
    (n <= i64::MAX as u64).then_some(n)
}

/// The members of a list such as `Connection: close, te`, trimmed; empty ones are left out (RFC 9110 5.6.1).
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_below_two_to_the_63() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"0042"), Some(42));
        assert_eq!(decimal(b"9223372036854775807"), Some(i64::MAX as u64));
        for bad in ["", "+1", "-1", "1 ", "0x1", "1,1", "9223372036854775808", "00000000000000000001"] {
            assert_eq!(decimal(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn text_has_no_control_character_but_the_tab() {
        for b in 0..=255u8 {
            assert_eq!(is_text(&[b'a', b, b'z']), b == b'\t' || (b >= 0x20 && b != 0x7f), "{b}");
        }
    }

    #[test]
    fn lines_are_clean_if_all_their_values_are() {
        assert!(is_clean(b"a: b\tc\r\n\xe9\r\n") && is_clean(b"\r\n") && is_clean(b""));
        for bad in ["a\rb\r\n", "a\r\r\n", "a\0\r\n", "a\x7f\r\n", "\x0b\r\n", "\ra\r\n"] {
            assert!(!is_clean(bad.as_bytes()), "{bad:?}");
        }
    }

    #[test]
    fn white_space_around_a_value_does_not_count() {
        assert_eq!(trimmed(b" \ta b\t "), (&b"a b"[..], 2));
        assert_eq!(trimmed(b" \t "), (&b""[..], 3));
        assert_eq!(trimmed(b""), (&b""[..], 0));
    }

    #[test]
    fn lists_leave_out_empty_members() {
        assert_eq!(list(b" a,, b\t,").collect::<Vec<_>>(), [b"a", b"b"]);
    }
}
