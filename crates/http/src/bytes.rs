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

/// Eight times the same byte.
pub(crate) const fn repeat(b: u8) -> u64 {
    u64::from_ne_bytes([b; 8])
}

/// Up to eight bytes as a number, the first in the lowest place.
pub(crate) const fn word(bytes: &[u8]) -> u64 {
    let (len, halves) = (bytes.len(), (bytes.first_chunk(), bytes.last_chunk()));
    match bytes {
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
        [] => 0,
        // Parts may overlap: the same bits in the same place.
        [first, .., last] if len < 4 => {
            *first as u64 | (bytes[len / 2] as u64) << (len / 2 * 8) | (*last as u64) << ((len - 1) * 8)
        }
        [only] => *only as u64,
        _ => match halves {
            (Some(first), Some(last)) => {
                u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << ((len - 4) * 8)
            }
            _ => 0,
        },
    }
}

/// Marks the zero bytes of a word by their highest bits. The lowest mark is right; what is above it may not
/// be, as a subtraction borrows from there.
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(repeat(1)) & !word & repeat(0x80)
}

/// Marks control characters (HTAB is one) in the same way.
const fn controls(word: u64) -> u64 {
    word.wrapping_sub(repeat(b' ')) & !word & repeat(0x80) | zeros(word ^ repeat(0x7f))
}

/// The position of the first byte that `marks` has marked, or that `is_one` says is one.
fn position(bytes: &[u8], marks: impl Fn(u64) -> u64, is_one: impl Fn(u8) -> bool) -> Option<usize> {
    let (words, rest) = bytes.as_chunks();
    for (i, word) in words.iter().enumerate() {
        let marked = marks(u64::from_le_bytes(*word));
        if marked != 0 {
            return Some(i * 8 + marked.trailing_zeros() as usize / 8);
        }
    }
    rest.iter().position(|&b| is_one(b)).map(|at| words.len() * 8 + at)
}

/// The position of the first byte `b`, which is expected to be near: else `memchr` is faster.
pub(crate) fn find(b: u8, bytes: &[u8]) -> Option<usize> {
    position(bytes, |word| zeros(word ^ repeat(b)), |one| one == b)
}

/// The position of the first control character; HTAB is one.
pub(crate) fn first_control(bytes: &[u8]) -> Option<usize> {
    // Without a branch per byte: the compiler makes a few instructions of a whole chunk.
    let has_none = |chunk: &&[u8; 16]| !chunk.iter().fold(false, |any, b| any | b.is_ascii_control());
    let (chunks, _) = bytes.as_chunks();
    let clean = chunks.iter().take_while(has_none).count() * 16;
    position(&bytes[clean..], controls, |b| b.is_ascii_control()).map(|at| clean + at)
}

/// Characters of a field value (RFC 9110 5.5): no control character but HTAB.
pub fn is_text(bytes: &[u8]) -> bool {
    first_control(bytes).is_none_or(|at| bytes[at..].iter().all(|&b| b == b'\t' || !b.is_ascii_control()))
}

/// The same, and ASCII.
pub(crate) fn is_visible(bytes: &[u8]) -> bool {
    is_text(bytes) && bytes.is_ascii()
}

/// A value without the white space around it (RFC 9110 5.5), and how much of it was before.
pub fn trimmed(value: &[u8]) -> (&[u8], usize) {
    // As nearly all are written.
    if let [b' ', inner @ ..] = value
        && let [0x21..=0xff, .., 0x21..=0xff] = inner
    {
        return (inner, 1);
    }
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
    fn bytes_are_found_wherever_they_are() {
        for len in 0..40 {
            let mut bytes = vec![b'a'; len];
            assert_eq!((find(b':', &bytes), first_control(&bytes)), (None, None), "{len}");
            for at in 0..len {
                // What is behind it, and looks like it, does not count.
                bytes[at..].fill(b':' + 1);
                bytes[at] = b':';
                assert_eq!(find(b':', &bytes), Some(at), "{len}");
                for control in [b'\0', b'\t', b'\r', 0x1f, 0x7f] {
                    bytes[at] = control;
                    assert_eq!(first_control(&bytes), Some(at), "{len} {control}");
                    assert_eq!(is_text(&bytes), control == b'\t', "{len} {at} {control}");
                }
                bytes.fill(b'a');
            }
        }
        for b in 0..=255u8 {
            let is_control = b < 0x20 || b == 0x7f;
            assert_eq!(
                first_control(&[b'a', b, b'a', b'a', b'a', b'a', b'a', b'a']).is_some(),
                is_control,
                "{b}"
            );
        }
    }

    #[test]
    fn a_word_has_the_bytes_in_their_order() {
        for len in 0..=8 {
            let bytes: Vec<u8> = (1..=len).collect();
            assert_eq!(
                word(&bytes),
                (1..=u64::from(len)).fold(0, |word, b| word | b << ((b - 1) * 8)),
                "{len}"
            );
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
