//! What browsers keep of a `Set-Cookie` header (RFC 6265 5.2 and 5.3).

use std::ops::RangeInclusive;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use tidegate_core::units::Timestamp;

const MONTHS: [&[u8; 3]; 12] =
    [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];

/// The value that browsers send back of `name=value; Path=/…`. Empty if the header removes the cookie:
/// applications then write one value for all visitors into it (PHP: `deleted`). `None`: the header sets
/// another cookie.
pub(crate) fn value_kept<'h>(field: &'h [u8], name: &str, now: Timestamp) -> Option<&'h [u8]> {
    let mut pairs = field.split(|b| *b == b';').map(pair);
    let (given, value) = pairs.next()??;
    let is_asked_for = given == name.as_bytes();
    is_asked_for.then(|| if is_taken_away(pairs.flatten(), now) { b"" } else { unquoted(value) })
}

fn pair(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|b| *b == b'=')?;
    Some((text[..at].trim_ascii(), text[at + 1..].trim_ascii()))
}

/// RFC 6265 4.1.1 lets a server quote a value. Browsers send the quotes back; other clients may not.
pub(crate) fn unquoted(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value)
}

/// `Max-Age` wins over `Expires`; of several, the last valid one wins.
fn is_taken_away<'h>(attributes: impl Iterator<Item = (&'h [u8], &'h [u8])>, now: Timestamp) -> bool {
    let (mut by_age, mut by_date) = (None, None);
    for (name, value) in attributes {
        if name.eq_ignore_ascii_case(b"max-age") {
            by_age = is_no_age(value).or(by_age);
        } else if name.eq_ignore_ascii_case(b"expires") {
            by_date = is_past(value, now).or(by_date);
        }
    }
    by_age.or(by_date).unwrap_or(false)
}

/// Whether a `Max-Age` is zero or less. `None`: it is not a number (5.2.2).
fn is_no_age(value: &[u8]) -> Option<bool> {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.len() < value.len() || digits.iter().all(|d| *d == b'0'))
}

/// Whether a date has passed. `None`: it is not a date (5.1.1, which allows dashes, two-digit years and parts
/// in any order).
fn is_past(text: &[u8], now: Timestamp) -> Option<bool> {
    let is_delimiter = |b: &u8| matches!(b, 0x09 | 0x20..=0x2f | 0x3b..=0x40 | 0x5b..=0x60 | 0x7b..=0x7e);
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    for token in text.split(is_delimiter).filter(|token| !token.is_empty()) {
        if let (None, Some(found)) = (time, time_of(token)) {
            time = Some(found);
        } else if let (None, Some(found)) = (day, number(token, 1..=2)) {
            day = Some(found);
        } else if let (None, Some(found)) = (month, month_of(token)) {
            month = Some(found);
        } else if let (None, Some(found)) = (year, number(token, 2..=4)) {
            year = Some(found);
        }
    }
    let year = match year? {
        year @ 0..=69 => year + 2_000,
        year @ 70..=99 => year + 1_900,
        year => year,
    };
    let (small, [hour, minute, second]) = (|n: i16| i8::try_from(n).ok(), time?);
    let date =
        DateTime::new(year, month?, small(day?)?, small(hour)?, small(minute)?, small(second)?, 0).ok()?;
    let at = TimeZone::UTC.to_timestamp(date).ok()?;
    Some(i128::from(at.as_microsecond()) <= i128::from(now.as_micros()))
}

/// `08:49:37`.
fn time_of(token: &[u8]) -> Option<[i16; 3]> {
    let mut parts = token.splitn(3, |b| *b == b':');
    let mut next = || number(parts.next()?, 1..=2);
    Some([next()?, next()?, next()?])
}

fn month_of(token: &[u8]) -> Option<i8> {
    let begins = |name: &&[u8; 3]| token.get(..3).is_some_and(|three| three.eq_ignore_ascii_case(*name));
    (1..).zip(&MONTHS).find(|(_, name)| begins(name)).map(|(month, _)| month)
}

/// The number that a token begins with, if it has a permitted count of digits.
fn number(token: &[u8], digits: RangeInclusive<usize>) -> Option<i16> {
    let n = token.iter().take_while(|b| b.is_ascii_digit()).count();
    digits.contains(&n).then(|| token[..n].iter().fold(0, |sum, digit| sum * 10 + i16::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_kept_as_long_as_its_attributes_say() {
        // 2026-11-22T07:08:09Z.
        let now = Timestamp::from_secs(1_795_331_289);
        for (attributes, is_kept) in [
            ("", true),
            ("; Path=/; HttpOnly; SameSite=Lax", true),
            ("; expires=Thu, 01-Jan-1970 00:00:01 GMT; Max-Age=0; path=/", false),
            ("; max-age=-1", false),
            ("; MAX-AGE = 000 ", false),
            ("; Max-Age=99999999999999999999", true),
            ("; Max-Age=soon", true),
            ("; Max-Age=", true),
            ("; Max-Age=-", true),
            ("; Max-Age=0; Max-Age=60", true),
            ("; Max-Age=0; Max-Age=x", false),
            // Max-Age counts before Expires, also where it comes first.
            ("; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT", true),
            ("; Expires=Fri, 31 Dec 2027 23:59:59 GMT; Max-Age=0", false),
            // RFC 6265 5.1.1: as of RFC 1123, RFC 850, asctime; of ASP.NET; of nobody.
            ("; Expires=Thu, 01 Jan 1970 00:00:00 GMT", false),
            ("; Expires=Sunday, 22-Nov-26 07:08:09 GMT", false),
            ("; Expires=Sunday, 22-Nov-26 07:08:10 GMT", true),
            ("; Expires=Sun Nov  6 08:49:37 1994", false),
            ("; expires=Tue, 12-Oct-1999 04:00:00 GMT", false),
            ("; Expires=2027 december 1 1:2:3", true),
            ("; Expires=Mon, 01 Jan 1601 00:00:00 GMT", false),
            ("; Expires=Fri, 31 Dec 9999 23:59:59 GMT", true),
            // No dates: as if nothing were said.
            ("; Expires=0", true),
            ("; Expires=-1", true),
            ("; Expires=Thu, 01 Jan 1970", true),
            ("; Expires=Thu, 31 Feb 1970 00:00:00 GMT", true),
            ("; Expires=Thu, 01 Jan 1970 24:00:00 GMT", true),
            ("; Expires=Thu, 01 Jan 19701 00:00:00 GMT", true),
            ("; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Expires=never", false),
            ("; xExpires=Thu, 01 Jan 1970 00:00:00 GMT", true),
        ] {
            let field = format!("id=value{attributes}");
            let wanted: &[u8] = if is_kept { b"value" } else { b"" };
            assert_eq!(value_kept(field.as_bytes(), "id", now), Some(wanted), "{attributes}");
            assert_eq!(value_kept(field.as_bytes(), "di", now), None);
        }
        for odd in ["id", "", ";", "=x", "id ; Max-Age=0"] {
            assert_eq!(value_kept(odd.as_bytes(), "id", now), None, "{odd}");
        }
    }
}
