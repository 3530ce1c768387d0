//! Kinds of amounts: counts, numbers, shares, durations, sizes.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::json;
use tidegate_core::units::Rate;

use crate::declare::Leaf;
use crate::tree::Value;

/// A whole number within bounds.
pub struct Count(pub RangeInclusive<u64>);

macro_rules! count_for {
    ($($T:ty),*) => { $(
        impl Leaf<$T> for Count {
            fn parse(&self, value: &Value) -> Result<$T, Option<String>> {
                let hint = match value {
                    Value::Text(t) => t.trim().parse::<u64>().ok().map(|n| format!("Write {n} without quotes.")),
                    _ => None,
                };
                let Value::Integer(n) = value else { return Err(hint) };
                let n = u64::try_from(*n).ok().filter(|n| self.0.contains(n)).ok_or(None::<String>)?;
                <$T>::try_from(n).map_err(|_| None)
            }

            fn expected(&self) -> String {
                format!("a whole number from {} to {}", self.0.start(), self.0.end())
            }

            fn show(&self, value: &$T) -> String {
                value.to_string()
            }

            fn schema(&self) -> serde_json::Value {
                json!({ "type": "integer", "minimum": self.0.start(), "maximum": self.0.end() })
            }
        }
    )* };
}
count_for!(u8, u16, u32, u64, usize);

/// A number within bounds, never NaN or infinite.
pub struct Number(pub RangeInclusive<f64>);

impl Leaf<f64> for Number {
    fn parse(&self, value: &Value) -> Result<f64, Option<String>> {
        let (number, hint) = match value {
            Value::Integer(n) => (*n as f64, None),
            Value::Float(x) => (*x, None),
            Value::Text(t) => {
                (f64::NAN, t.trim().parse::<f64>().ok().map(|n| format!("Write {n} without quotes.")))
            }
            _ => (f64::NAN, None),
        };
        if number.is_finite() && self.0.contains(&number) { Ok(number) } else { Err(hint) }
    }

    fn expected(&self) -> String {
        format!("a number from {} to {}", self.0.start(), self.0.end())
    }

    fn show(&self, value: &f64) -> String {
        format!("{value:?}")
    }

    fn schema(&self) -> serde_json::Value {
        json!({ "type": "number", "minimum": self.0.start(), "maximum": self.0.end() })
    }
}

/// A rate within bounds of [`Number`], in cost units per second.
impl Leaf<Rate> for Number {
    fn parse(&self, value: &Value) -> Result<Rate, Option<String>> {
        Rate::per_second(self.parse(value)?).ok_or(None)
    }

    fn expected(&self) -> String {
        Leaf::<f64>::expected(self)
    }

    fn show(&self, value: &Rate) -> String {
        self.show(&value.get())
    }

    fn schema(&self) -> serde_json::Value {
        Leaf::<f64>::schema(self)
    }
}

/// A part of a whole: 0.2 or "20%".
pub struct Portion;

impl Leaf<f64> for Portion {
    fn parse(&self, value: &Value) -> Result<f64, Option<String>> {
        if let Value::Text(text) = value {
            let percent = text.strip_suffix('%').and_then(|n| n.trim().parse::<f64>().ok());
            return percent.filter(|p| (0.0..=100.0).contains(p)).map(|p| p / 100.0).ok_or(None);
        }
        Number(0.0..=1.0).parse(value).map_err(|_| match value {
            Value::Integer(n @ 2..=100) => Some(format!("Write \"{n}%\"?")),
            Value::Float(x) if *x > 1.0 && *x <= 100.0 => Some(format!("Write \"{x}%\"?")),
            _ => None,
        })
    }

    fn expected(&self) -> String {
        "a share from 0 to 1, or a percentage like \"20%\"".into()
    }

    fn show(&self, value: &f64) -> String {
        format!("{value:?}")
    }

    fn schema(&self) -> serde_json::Value {
        json!({ "type": ["number", "string"], "minimum": 0, "maximum": 1, "pattern": "%$" })
    }
}

/// Cost units per second, or zero for none. The schedule counts in hundredths.
pub(crate) struct RateOrNone;

const LEAST_RATE: f64 = 0.01;

impl Leaf<f64> for RateOrNone {
    fn parse(&self, value: &Value) -> Result<f64, Option<String>> {
        let rate: f64 = Number(0.0..=Rate::MAX.get()).parse(value)?;
        if rate == 0.0 || rate >= LEAST_RATE { Ok(rate) } else { Err(None) }
    }

    fn expected(&self) -> String {
        format!("0 or a number from {} to {}", LEAST_RATE, Rate::MAX.get())
    }

    fn show(&self, value: &f64) -> String {
        format!("{value:?}")
    }

    fn schema(&self) -> serde_json::Value {
        let some = json!({ "minimum": LEAST_RATE });
        json!({ "type": "number", "minimum": 0, "maximum": Rate::MAX.get(), "anyOf": [{ "const": 0 }, some] })
    }
}

/// A duration within bounds, like "1h30m". Millisecond steps.
pub(crate) struct Span {
    pub min: Duration,
    pub max: Duration,
    /// Zero is allowed beside the bounds, where it stands for "no limit".
    pub zero: bool,
}

/// In milliseconds, for bounds of durations.
pub(crate) const MS: u64 = 1;
pub(crate) const S: u64 = 1_000;
pub(crate) const MIN: u64 = 60 * S;
pub(crate) const HOUR: u64 = 60 * MIN;
pub(crate) const DAY: u64 = 24 * HOUR;

pub(crate) const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// A duration from `min` to `max`, both in milliseconds.
pub(crate) const fn span(min_ms: u64, max_ms: u64) -> Span {
    Span { min: Duration::from_millis(min_ms), max: Duration::from_millis(max_ms), zero: false }
}

/// As [`span`], or zero.
pub(crate) const fn span_or_zero(min_ms: u64, max_ms: u64) -> Span {
    Span { zero: true, ..span(min_ms, max_ms) }
}

/// Units of durations, in the only order in which they may follow each other, with their milliseconds.
const UNITS: [(&str, u64); 5] = [("d", DAY), ("h", HOUR), ("m", MIN), ("s", S), ("ms", MS)];

/// "1h30m" as a duration.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (mut rest, mut next_unit, mut total) = (text, 0, 0u64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let word = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = UNITS.iter().position(|(name, _)| *name == &rest[..word]).filter(|u| *u >= next_unit)?;
        total = total.checked_add(number.checked_mul(UNITS[unit].1)?)?;
        next_unit = unit + 1;
        rest = &rest[word..];
    }
    Some(Duration::from_millis(total))
}

/// A duration as "1h30m".
pub(crate) fn show_duration(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut out = String::new();
    for (name, ms) in UNITS {
        if left >= ms {
            out.push_str(&format!("{}{name}", left / ms));
            left %= ms;
        }
    }
    if out.is_empty() { "0s".into() } else { out }
}

/// What somebody who wrote `text` probably meant: "30", "30 s", "5min", "1.5s".
fn guess_duration(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let ms = match text[digits..].trim() {
        "" | "s" | "sec" | "secs" | "second" | "seconds" => 1e3,
        "ms" | "msec" | "millis" | "milliseconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60e3,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600e3,
        "d" | "day" | "days" => 86_400e3,
        _ => return None,
    };
    let total = number * ms;
    (total <= 1e15).then(|| format!("Write \"{}\"?", show_duration(Duration::from_millis(total as u64))))
}

impl Leaf<Duration> for Span {
    fn parse(&self, value: &Value) -> Result<Duration, Option<String>> {
        let text = match value {
            Value::Text(text) => text.clone(),
            Value::Integer(n) => return Err(guess_duration(&n.to_string())),
            Value::Float(x) => return Err(guess_duration(&x.to_string())),
            _ => return Err(None),
        };
        let duration = parse_duration(&text).ok_or_else(|| guess_duration(&text))?;
        let fits = (self.min..=self.max).contains(&duration) || (self.zero && duration.is_zero());
        if fits { Ok(duration) } else { Err(None) }
    }

    fn expected(&self) -> String {
        let zero = if self.zero && !self.min.is_zero() { ", or \"0s\"" } else { "" };
        let (min, max) = (show_duration(self.min), show_duration(self.max));
        format!("a duration like \"30s\", \"5m\", \"1h30m\" (from {min} to {max}{zero})")
    }

    fn show(&self, value: &Duration) -> String {
        format!("\"{}\"", show_duration(*value))
    }

    fn schema(&self) -> serde_json::Value {
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        json!({
            "type": "string", "format": "tidegate-duration", "pattern": "^([0-9]+(d|h|m|s|ms))+$",
            "x-minimum-ms": ms(self.min), "x-maximum-ms": ms(self.max), "x-zero": self.zero,
        })
    }
}

/// A number of bytes within bounds: 65536 or "64KiB".
pub struct Size {
    pub bounds: RangeInclusive<u64>,
    /// Zero is allowed beside the bounds, where it stands for "no limit" or "none".
    pub zero: bool,
}

const SIZES: [(&str, u64); 6] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

fn parse_size(text: &str) -> Option<u64> {
    let (name, unit) = SIZES.iter().find(|(name, _)| text.ends_with(name)).copied().unwrap_or(("", 1));
    let digits = text[..text.len() - name.len()].trim_end();
    // `parse` alone would take "+5".
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse::<u64>().ok()?.checked_mul(unit)).flatten()
}

fn show_size(bytes: u64) -> String {
    let unit = SIZES[..3].iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    unit.map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

/// What somebody who wrote "64k" or "1 mb" probably meant.
fn guess_size(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim().as_bytes().first()? {
        b'k' => "KiB",
        b'm' => "MiB",
        b'g' => "GiB",
        _ => return None,
    };
    Some(format!("Write \"{number}{unit}\"?"))
}

macro_rules! size_for {
    ($($T:ty),*) => { $(
        impl Leaf<$T> for Size {
            fn parse(&self, value: &Value) -> Result<$T, Option<String>> {
                let bytes = match value {
                    Value::Integer(n) => u64::try_from(*n).map_err(|_| None)?,
                    Value::Text(text) => parse_size(text).ok_or_else(|| guess_size(text))?,
                    _ => return Err(None),
                };
                let fits = self.bounds.contains(&bytes) || (self.zero && bytes == 0);
                if fits { <$T>::try_from(bytes).map_err(|_| None) } else { Err(None) }
            }

            fn expected(&self) -> String {
                let (min, max) = (show_size(*self.bounds.start()), show_size(*self.bounds.end()));
                let zero = if self.zero { ", or 0" } else { "" };
                format!("a size like 4096, \"64KiB\", \"1MiB\" (from {min} to {max}{zero})")
            }

            fn show(&self, value: &$T) -> String {
                let shown = show_size(*value as u64);
                if shown.bytes().all(|b| b.is_ascii_digit()) { shown } else { format!("\"{shown}\"") }
            }

            fn schema(&self) -> serde_json::Value {
                let least = if self.zero { 0 } else { *self.bounds.start() };
                json!({ "type": ["integer", "string"], "minimum": least, "maximum": self.bounds.end() })
            }
        }
    )* };
}
size_for!(usize, u32, u64);
