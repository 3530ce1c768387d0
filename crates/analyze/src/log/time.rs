//! Times of log lines and of rows of figures. Lines come in the order of time, hundreds a second: the last
//! second that was parsed is kept with its text.

use jiff::civil::DateTime;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;

/// Longest text that is kept.
const KEPT: usize = 32;

pub(crate) struct Times {
    /// Of times that name none.
    zone: TimeZone,
    /// There were such.
    pub(crate) used_zone: bool,
    clf: Kept,
    iso: Kept,
}

/// A text and what it was parsed to.
#[derive(Default)]
struct Kept {
    text: [u8; KEPT],
    length: usize,
    us: i64,
}

impl Kept {
    fn get(&mut self, text: &[u8], parse: impl FnOnce(&str) -> Option<i64>) -> Option<i64> {
        if self.length == text.len() && self.text[..self.length] == *text {
            return Some(self.us);
        }
        let us = parse(std::str::from_utf8(text).ok()?)?;
        if let Some(into) = self.text.get_mut(..text.len()) {
            into.copy_from_slice(text);
            (self.length, self.us) = (text.len(), us);
        }
        Some(us)
    }
}

impl Times {
    pub(crate) fn new(zone: TimeZone) -> Self {
        Self { zone, used_zone: false, clf: Kept::default(), iso: Kept::default() }
    }

    /// `24/Nov/2026:03:42:13 +0000`, the seconds perhaps with a fraction; in microseconds since 1970.
    pub(crate) fn clf(&mut self, text: &[u8]) -> Option<i64> {
        // Digits where a time has them: brackets in a user's name are not worth more.
        if !text.first()?.is_ascii_digit() {
            return None;
        }
        self.clf.get(text, |text| {
            let time = BrokenDownTime::parse("%d/%b/%Y:%H:%M:%S%.f %z", text).ok()?;
            Some(time.to_timestamp().ok()?.as_microsecond())
        })
    }

    /// `2026-11-24T03:42:13.5Z`, with a blank instead of the T, any offset or ` UTC` or none.
    pub(crate) fn iso(&mut self, text: &str) -> Option<i64> {
        let (second, rest) = text.as_bytes().split_at_checked(19)?;
        let digits = |text: &[u8]| text.iter().take_while(|b| b.is_ascii_digit()).count();
        let (fraction_us, offset) = match rest.strip_prefix(b".").or_else(|| rest.strip_prefix(b",")) {
            Some(rest) => {
                let (fraction, offset) = rest.split_at(digits(rest));
                let figure = |at: usize| i64::from(fraction.get(at).map_or(0, |digit| digit - b'0'));
                (
                    if fraction.is_empty() {
                        return None;
                    } else {
                        (0..6).fold(0, |us, at| us * 10 + figure(at))
                    },
                    offset,
                )
            }
            None => (0, rest),
        };
        let mut key = [0; KEPT];
        let length = second.len() + offset.len();
        let into = key.get_mut(..length)?;
        into[..19].copy_from_slice(second);
        into[19..].copy_from_slice(offset);
        let (zone, used_zone) = (&self.zone, &mut self.used_zone);
        let us = self.iso.get(&key[..length], |text| {
            let (civil, offset) = text.split_at(19);
            let civil: DateTime = civil.parse().ok()?;
            let us = match offset.trim() {
                "" => {
                    *used_zone = true;
                    zone.to_timestamp(civil).ok()?.as_microsecond()
                }
                "Z" | "z" | "UTC" | "GMT" => TimeZone::UTC.to_timestamp(civil).ok()?.as_microsecond(),
                offset => {
                    TimeZone::UTC.to_timestamp(civil).ok()?.as_microsecond()
                        - offset_seconds(offset)? * 1_000_000
                }
            };
            Some(us)
        })?;
        Some(us + fraction_us)
    }

    /// Any form in text: ISO 8601, that of the common log, or seconds since 1970.
    pub(crate) fn text(&mut self, text: &str) -> Option<i64> {
        let text = text.trim();
        self.iso(text).or_else(|| self.clf(text.as_bytes())).or_else(|| epoch(text.parse().ok()?))
    }
}

/// `+01:00`, `-0500` or `+02`, in seconds east of Greenwich.
pub(crate) fn offset_seconds(text: &str) -> Option<i64> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let digits: String = digits.replacen(':', "", 1);
    if !digits.bytes().all(|b| b.is_ascii_digit()) || !matches!(digits.len(), 2 | 4) {
        return None;
    }
    let (hours, minutes) = digits.split_at(2);
    let minutes = if minutes.is_empty() { 0 } else { minutes.parse::<i64>().ok()? };
    let hours = hours.parse::<i64>().ok()?;
    (hours <= 25 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// A number of seconds since 1970, or of milli-, micro- or nanoseconds: told by its size, since a time of
/// this century has ten digits of seconds. In microseconds.
pub(crate) fn epoch(number: f64) -> Option<i64> {
    let us = match number {
        n if !n.is_finite() || n < 0.0 => return None,
        n if n < 1e11 => n * 1e6,
        n if n < 1e14 => n * 1e3,
        n if n < 1e17 => n,
        n if n < 1e20 => n / 1e3,
        _ => return None,
    };
    Some(us.round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: i64 = 1_795_491_733_000_000;

    #[test]
    fn times_in_every_form() {
        let mut times = Times::new(TimeZone::fixed(jiff::tz::offset(-5)));
        let forms = [
            ("24/Nov/2026:03:42:13 +0000", Some(AT)),
            ("24/Nov/2026:04:42:13 +0100", Some(AT)),
            ("2026-11-24T03:42:13Z", Some(AT)),
            ("2026-11-24 03:42:13.250 UTC", Some(AT + 250_000)),
            ("2026-11-24T03:42:13.1234567+00:00", Some(AT + 123_456)),
            ("2026-11-23T22:42:13", Some(AT)),
            ("2026-11-24T05:12:13+0130", Some(AT)),
            ("1795491733", Some(AT)),
            ("1795491733.5", Some(AT + 500_000)),
            ("1795491733000", Some(AT)),
            ("1795491733000000", Some(AT)),
            ("1795491733000000000", Some(AT)),
            ("2026-13-24T03:42:13Z", None),
            ("2026-11-24T03:42:13.Z", None),
            ("2026-11-24T03:42:13+99:00", None),
            ("2026-11-24T03:42:13 and some more text behind it", None),
            ("yesterday", None),
            ("-5", None),
            ("", None),
        ];
        for (text, expected) in forms {
            assert_eq!(times.text(text), expected, "{text}");
            assert_eq!(times.text(text), expected, "again: {text}");
        }
    }

    #[test]
    fn zones_have_their_summer_time() {
        let mut times = Times::new(TimeZone::get("Europe/Berlin").expect("the system's time zones"));
        let (winter, summer) = (times.iso("2026-01-01T12:00:00"), times.iso("2026-07-01T12:00:00"));
        let mut utc = Times::new(TimeZone::UTC);
        assert_eq!(winter, utc.iso("2026-01-01T11:00:00"));
        assert_eq!(summer, utc.iso("2026-07-01T10:00:00"));
    }
}
