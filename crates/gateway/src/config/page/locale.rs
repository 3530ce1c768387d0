//! Languages of the waiting page: the choice for a visitor, and the form of numbers and durations.
//!
//! Every phrase for a duration ("about 4 minutes") is made once per language at start, so that rendering is a
//! table look-up. The plural rules are those of Unicode CLDR for whole numbers. The page's script uses the
//! browser's `Intl`, which has the same rules; a browser test compares the two.

use std::time::Duration;

mod ar;
mod de;
mod en;
mod es;
mod fr;
mod hi;
mod zh;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Lang {
    /// English, also for visitors whose language is missing here.
    #[default]
    En,
    De,
    Fr,
    Es,
    Hi,
    Zh,
    /// Arabic, written right to left.
    Ar,
}

impl Lang {
    /// Every language, in the order of their indices.
    pub const ALL: [Self; 7] = [Self::En, Self::De, Self::Fr, Self::Es, Self::Hi, Self::Zh, Self::Ar];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Language tag (BCP 47): what `lang` and `Content-Language` say.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::De => "de",
            Self::Fr => "fr",
            Self::Es => "es",
            Self::Hi => "hi",
            Self::Zh => "zh-Hans",
            Self::Ar => "ar",
        }
    }

    pub const fn dir(self) -> &'static str {
        if matches!(self, Self::Ar) { "rtl" } else { "ltr" }
    }

    pub(crate) const fn strings(self) -> &'static Strings {
        match self {
            Self::En => &en::STRINGS,
            Self::De => &de::STRINGS,
            Self::Fr => &fr::STRINGS,
            Self::Es => &es::STRINGS,
            Self::Hi => &hi::STRINGS,
            Self::Zh => &zh::STRINGS,
            Self::Ar => &ar::STRINGS,
        }
    }

    /// By the primary subtag, case ignored: `de-AT` is German.
    fn from_range(range: &str) -> Option<Self> {
        let primary = range.split('-').next().unwrap_or_default();
        Self::ALL.into_iter().find(|l| l.tag()[..2].eq_ignore_ascii_case(primary))
    }

    /// The visitor's preferred language among ours (RFC 9110, 12.5.4); English if there is none.
    pub fn negotiate(accept_language: Option<&str>) -> Self {
        let Some(accept_language) = accept_language else { return Self::En };
        let mut best = (0, Self::En);
        // No browser sends 32; the limit bounds the work on a hostile field.
        for item in accept_language.split(',').take(32) {
            let mut parts = item.split(';');
            let range = parts.next().unwrap_or_default().trim();
            let quality = parts.next().map_or(Some(1000), quality);
            let lang = if range == "*" { Some(Self::En) } else { Self::from_range(range) };
            if let (Some(lang), Some(q)) = (lang, quality)
                && q > best.0
            {
                best = (q, lang);
            }
        }
        best.1
    }
}

/// `q=0.8` as thousandths (RFC 9110, 12.4.2); `None` if it is no quality.
fn quality(parameter: &str) -> Option<u32> {
    let (name, value) = parameter.trim().split_once('=')?;
    let q: f32 = value.trim().parse().ok()?;
    (name.trim().eq_ignore_ascii_case("q") && (0.0..=1.0).contains(&q)).then_some((q * 1000.0) as u32)
}

/// How a language separates the thousands of a number. Digits are always 0-9: all readers of our seven
/// languages know them, and the browser's default for Arabic depends on its version.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Grouping {
    /// 1,234,567
    By3(&'static str),
    /// 1234 but 12.345 (Spanish)
    By3FromFive(&'static str),
    /// 12,34,567 (Hindi)
    Indian(&'static str),
}

impl Grouping {
    pub(crate) fn write(self, n: u64, out: &mut Vec<u8>) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(n).as_bytes();
        let (separator, second) = match self {
            Self::By3(s) => (s, 3),
            Self::By3FromFive(s) => (if digits.len() < 5 { "" } else { s }, 3),
            Self::Indian(s) => (s, 2),
        };
        for (i, digit) in digits.iter().enumerate() {
            let left = digits.len() - i;
            if i > 0 && left >= 3 && (left - 3).is_multiple_of(second) {
                out.extend_from_slice(separator.as_bytes());
            }
            out.push(*digit);
        }
    }
}

/// CLDR's plural categories of whole numbers that our languages use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Plural {
    /// `one` is 1: English, German, Spanish.
    One,
    /// `one` is 0 and 1: French, Hindi.
    ZeroOne,
    /// No difference: Chinese.
    None,
    /// `one`, `two`, `few` (3..10 of every hundred), `other`: Arabic. Its `zero` and `many` read as `other`
    /// in every phrase we have.
    Arabic,
}

/// A counted unit, e.g. minutes: `{n}` is the number. Forms a language does not have repeat `other`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub one: &'static str,
    pub two: &'static str,
    pub few: &'static str,
    pub other: &'static str,
}

impl Unit {
    pub(crate) const fn two_forms(one: &'static str, other: &'static str) -> Self {
        Self { one, two: other, few: other, other }
    }

    fn form(&self, rule: Plural, n: u64) -> &'static str {
        match (rule, n) {
            (Plural::One, 1) | (Plural::ZeroOne, 0 | 1) | (Plural::Arabic, 1) => self.one,
            (Plural::Arabic, 2) => self.two,
            (Plural::Arabic, n) if (3..=10).contains(&(n % 100)) => self.few,
            _ => self.other,
        }
    }
}

/// Everything a language says. A missing string is a compile error. `{t}` is a duration.
#[derive(Debug)]
pub(crate) struct Strings {
    // Headlines, and the sentences below them.
    pub waiting: &'static str,
    pub waiting_text: &'static str,
    pub full: &'static str,
    pub full_text: &'static str,
    pub unavailable: &'static str,
    pub unavailable_text: &'static str,
    pub forbidden: &'static str,
    pub forbidden_text: &'static str,
    pub overloaded: &'static str,
    pub overloaded_text: &'static str,
    /// Notice: the ticket was used before.
    pub replaced: &'static str,
    /// Notice: the turn had passed.
    pub late: &'static str,
    pub expected: &'static str,
    /// Label of the number of people ahead.
    pub ahead: &'static str,
    /// Label of the time already waited.
    pub waited: &'static str,
    /// Label of the time until the page of a full room tries again.
    pub retry: &'static str,
    pub next: &'static str,
    pub form: &'static str,
    pub press: &'static str,
    /// Button of the kept form, for those without JavaScript.
    pub send: &'static str,
    /// Link to the wanted page, for those without JavaScript.
    pub check: &'static str,
    /// Button after a refused ticket.
    pub restart: &'static str,
    /// An estimate: `about {t}`.
    pub about: &'static str,
    pub soon: &'static str,
    /// Announced: the wait that is left.
    pub left: &'static str,
    /// Announced: the last seconds.
    pub you_next: &'static str,
    /// Announced: admitted.
    pub turn: &'static str,
    pub longer: &'static str,
    pub lost: &'static str,
    pub back: &'static str,
    pub down: &'static str,
    /// The form left once already.
    pub sent: &'static str,
    pub plural: Plural,
    pub grouping: Grouping,
    pub second: Unit,
    pub minute: Unit,
    pub hour: Unit,
}

/// Longest duration shown in seconds; the script has the same limits.
const MAX_SECONDS: u64 = 90;
/// Up to here in minutes, beyond in hours.
const MAX_MINUTES: u64 = 90;
/// Longest duration shown; no room waits for two days.
const MAX_HOURS: u64 = 48;

/// All durations of one language in words.
#[derive(Debug)]
pub(crate) struct Words {
    /// Seconds, then minutes, then hours.
    plain: Vec<String>,
    /// As `plain`, marked as an estimate, the number emphasised: HTML.
    wait: Vec<String>,
}

impl Words {
    pub(crate) fn new(s: &Strings) -> Self {
        let seconds = (0..=MAX_SECONDS).map(|n| (s.second, n, false));
        let minutes = (0..=MAX_MINUTES).map(|n| (s.minute, n, true));
        let hours = (0..=MAX_HOURS).map(|n| (s.hour, n, true));
        let (mut plain, mut wait) = (Vec::new(), Vec::new());
        for (unit, n, estimate) in seconds.chain(minutes).chain(hours) {
            let pattern = unit.form(s.plural, n);
            plain.push(pattern.replace("{n}", &n.to_string()));
            let marked = match pattern.contains("{n}") {
                true => pattern.replace("{n}", &format!("<b>{n}</b>")),
                false => format!("<b class=w>{pattern}</b>"),
            };
            wait.push(if estimate { s.about.replace("{t}", &marked) } else { marked });
        }
        wait[0] = format!("<b class=w>{}</b>", s.soon);
        Self { plain, wait }
    }

    /// A duration: `4 minutes`.
    pub(crate) fn plain(&self, d: Duration) -> &str {
        &self.plain[index(d)]
    }

    /// A wait that is left, as HTML: `about <b>4</b> minutes`.
    pub(crate) fn wait(&self, d: Duration) -> &str {
        &self.wait[index(d)]
    }
}

/// The index of a duration in the tables: seconds rounded up, minutes and hours to the nearest.
fn index(d: Duration) -> usize {
    let s = d.as_millis().div_ceil(1000).min(u128::from(MAX_HOURS * 3600)) as u64;
    let minutes = (s + 30) / 60;
    let at = if s <= MAX_SECONDS {
        s
    } else if minutes <= MAX_MINUTES {
        MAX_SECONDS + 1 + minutes
    } else {
        MAX_SECONDS + MAX_MINUTES + 2 + (s + 1800) / 3600
    };
    at as usize
}

#[cfg(test)]
mod tests;
