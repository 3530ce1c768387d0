//! The kinds of values that only scenarios have: times, distributions, URLs, forms. The others are the
//! gateway's.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_settings::kind::{Leaf, Named, Text, toml_string};
use tidegate_settings::tree::Value;

use crate::dist::{self, Dist, MAX_TIME};

use super::{Discipline, Follow, Mode, Process};

/// A time: `"4s"`, `"1h30m"`.
pub(crate) struct Time {
    pub bounds: RangeInclusive<Duration>,
    /// A word that stands for no end, such as `forever`; empty: none does.
    pub endless: &'static str,
}

pub(crate) const MOMENT: Time = Time { bounds: Duration::ZERO..=MAX_TIME, endless: "" };
/// Shortest time that may pass: one microsecond, the step of the timers.
const STEP: Duration = Duration::from_micros(1);
pub(crate) const SPAN: Time = Time { bounds: STEP..=MAX_TIME, endless: "" };
/// As [`SPAN`], or for good.
pub(super) const SPAN_OR_FOREVER: Time = Time { bounds: STEP..=MAX_TIME, endless: "forever" };

impl Leaf<Duration> for Time {
    fn parse(&self, value: &Value) -> Result<Duration, Option<String>> {
        let text = match value {
            Value::Text(text) => text.trim(),
            Value::Integer(n @ 0..) => return Err(Some(format!("Write \"{n}s\"?"))),
            Value::Float(x) if *x >= 0.0 && x.is_finite() => return Err(Some(format!("Write \"{x}s\"?"))),
            _ => return Err(None),
        };
        if !self.endless.is_empty() && text == self.endless {
            return Ok(Duration::MAX);
        }
        let guess = || text.parse::<f64>().ok().filter(|x| *x >= 0.0 && x.is_finite());
        let seconds = dist::seconds(text).ok_or_else(|| guess().map(|x| format!("Write \"{x}s\"?")))?;
        let time = Duration::from_secs_f64(seconds);
        if self.bounds.contains(&time) { Ok(time) } else { Err(None) }
    }

    fn expected(&self) -> String {
        let or = if self.endless.is_empty() { String::new() } else { format!(", or \"{}\"", self.endless) };
        let least = match *self.bounds.start() {
            Duration::ZERO => "",
            _ => ", more than 0",
        };
        format!("a time like \"250ms\", \"4s\" or \"1h30m\"{least}{or}")
    }

    fn show(&self, value: &Duration) -> String {
        match *value {
            Duration::MAX => format!("\"{}\"", self.endless),
            time => format!("\"{}s\"", time.as_secs_f64()),
        }
    }
}

pub(super) struct Drawn {
    /// Whether `never` is one.
    pub never: bool,
}

impl Leaf<Dist> for Drawn {
    fn parse(&self, value: &Value) -> Result<Dist, Option<String>> {
        let text = match value {
            Value::Text(text) => text,
            Value::Integer(n @ 0..) => return Err(Some(format!("Write \"{n}s\"?"))),
            _ => return Err(None),
        };
        text.parse().ok().filter(|dist| self.never || *dist != Dist::Never).ok_or(None)
    }

    fn expected(&self) -> String {
        let never = if self.never { " or \"never\"" } else { "" };
        format!(
            "a time like \"100ms\", \"uniform(1s, 3s)\", \"exponential(2s)\", \"exponential(7s, max 70s)\", \"normal(100ms, 20ms)\", \
             \"lognormal(100ms, 0.5)\", \"lognormal(100ms, cv 1.5)\", \"bimodal(10ms, 500ms, 0.1)\"{never}"
        )
    }

    fn show(&self, value: &Dist) -> String {
        format!("\"{value}\"")
    }
}

/// A file, relative to the scenario's own folder.
pub(super) struct FileName;

impl Leaf<PathBuf> for FileName {
    fn parse(&self, value: &Value) -> Result<PathBuf, Option<String>> {
        match value {
            Value::Text(text) if !text.is_empty() && !text.contains('\0') => Ok(PathBuf::from(text)),
            _ => Err(None),
        }
    }

    fn expected(&self) -> String {
        "the path of a file".into()
    }

    fn show(&self, value: &PathBuf) -> String {
        toml_string(&value.to_string_lossy())
    }
}

const fn text(expected: &'static str, check: fn(&str) -> Result<(), Option<String>>) -> Text {
    Text { expected, check, secret: false }
}

fn ok_if(fine: bool) -> Result<(), Option<String>> {
    if fine { Ok(()) } else { Err(None) }
}

/// Whether every byte may stand in a request's target.
fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether `name` may be a file's and a metric label's.
pub(super) fn is_name(name: &str) -> bool {
    let inside = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    !name.is_empty() && name.len() <= 64 && inside && !name.starts_with('.')
}

pub(crate) const NAME: Text =
    text("a name of 1 to 64 letters, digits, \"-\", \"_\" and \".\"", |s| ok_if(is_name(s)));

/// Any text of a few lines.
pub(crate) const ABOUT: Text = text("a text of at most 4096 bytes", |s| ok_if(s.len() <= 4096));

pub(super) const URL: Text = text("a URL like \"http://127.0.0.1:8080/\"", |s| {
    if s.starts_with("https://") {
        return Err(Some("Only http:// is spoken: TLS would measure the generator's own arithmetic.".into()));
    }
    let Some(rest) = s.strip_prefix("http://") else {
        let guess = format!("http://{s}");
        let fine = !s.contains("://") && guess.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some());
        return Err(fine.then(|| format!("Write \"{guess}\"?")));
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let uri = s.parse::<http::Uri>().ok().filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
    let port = uri.as_ref().is_some_and(|uri| match authority.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => uri.port_u16().is_some_and(|port| port > 0),
        _ => true,
    });
    ok_if(port && !authority.contains('@') && !rest.contains('#') && is_visible(s))
});

pub(super) const TARGET: Text = text("a path like \"/search?q={n}\", up to 8192 visible characters", |s| {
    let fine = is_visible(s) && !s.contains('#') && s.len() <= 8192;
    match fine && s.starts_with('/') {
        true => Ok(()),
        false => Err((fine && !s.contains(':')).then(|| format!("Write \"/{s}\"?"))),
    }
});

/// Largest form, in bytes: what the gate keeps over the wait by default.
const MAX_FORM_BYTES: usize = 64 << 10;

pub(super) const FORM: Text =
    text("a form like \"item=7&bid=12.50\" in urlencoded characters, up to 64 KiB", |s| {
        ok_if(s.len() <= MAX_FORM_BYTES && is_visible(s))
    });

impl Named for Process {
    const NAMES: &'static [(&'static str, Self)] =
        &[("poisson", Self::Poisson), ("constant", Self::Constant)];
}

impl Named for Follow {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("page", Self::Page),
        ("refresh", Self::Refresh),
        ("retry-after", Self::RetryAfter),
        ("nothing", Self::Nothing),
    ];
}

impl Named for Mode {
    const NAMES: &'static [(&'static str, Self)] = &[("sleep", Self::Sleep), ("spin", Self::Spin)];
}

impl Named for Discipline {
    const NAMES: &'static [(&'static str, Self)] = &[("fifo", Self::Fifo), ("sharing", Self::Sharing)];
}
