//! `[correlate]`: which types of requests load which figure (docs/correlation.md).

use std::time::Duration;

use tidegate_core::correlate::templates::TemplateSettings;
use tidegate_core::correlate::{self, AutoSettings, TypeName};

use super::Settings;
use super::kinds::net::{NAME, Text, text};
use super::kinds::quantity::{Count, HOUR, MIN, Number, Portion, S, secs, span};
use super::kinds::{Choice, Flag, List};
use super::read::Reader;

named! {
    /// What is a type of requests.
    pub enum RequestTypes {
        /// Each configured class, and each path template in the default class.
        #[default] Auto = "auto",
        /// Each class, the default class being one.
        Class = "class",
        /// Each path template, whatever the class.
        Path = "path",
    }
}

/// An interval: figures are read once a second.
pub const INTERVAL: Duration = Duration::from_secs(1);

const TYPE: Text = text("a type of requests: \"class:NAME\", \"path:/TEMPLATE\" or \"other\"", |s| {
    if s.len() <= 256 && TypeName::parse(s).is_ok() {
        return Ok(());
    }
    Err(s.starts_with('/').then(|| format!("Write \"path:{s}\"?")))
});

const PARAMETER: Text = text("the name of a query parameter: letters, digits, \"-\", \"_\" and \".\"", |s| {
    let is_inside = s.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if (1..=64).contains(&s.len()) && is_inside { Ok(()) } else { Err(None) }
});

section! {
    /// Which types of requests load which figure (docs/correlation.md). Requests that go to the origin are
    /// counted by type, and compared with every detector's figure and some of the gate's.
    pub struct Correlate [tunable] {
        /// Off: nothing is counted.
        enabled: bool = true => Flag;
        /// What is a type: each configured class, and each path template in the default class ("auto"); each
        /// class ("class"); each path template, whatever the class ("path"). A change begins all windows
        /// anew.
        types: RequestTypes = RequestTypes::Auto => Choice;
        /// How far back requests and figures are compared, in intervals of a second. A change begins all
        /// windows anew.
        window: Duration = secs(300) => span(30 * S, 15 * MIN);
        /// Level of significance.
        alpha: f64 = 0.05 => Number(0.000_001..=0.5);
        /// Bounds the share of innocent types among those that are named (Benjamini and Hochberg); off: the
        /// probability of an error for each type by itself.
        false_discovery: bool = true => Flag;
        /// Most seconds by which a figure may follow the requests. Each is tried.
        max_lag: usize = 2 => Count(0..=5);
        /// Most path templates with a type of their own; the rest is "other". A change begins all windows
        /// anew. Memory: at most 32 bytes for each type, second of the window, and figure.
        max_types: usize = 100 => Count(1..=200);
        /// Query parameters whose names are a part of the template, so that `/search?sort` is another type
        /// than `/search`. A change begins all windows anew.
        parameters: Vec<String> = Vec::new() => List(PARAMETER);
    }
    with {
        /// Throttling what loads a red detector, without asking.
        auto: CorrelateAuto;
    }

    /// Throttling what loads a red detector, without asking: off by default. The throttles are those that
    /// `GET /v1/correlation` suggests, and in the audit as of "correlate.auto".
    pub struct CorrelateAuto [tunable] {
        /// On: culprits are throttled while a detector is red.
        enabled: bool = false => Flag;
        /// Types that are never throttled: "class:checkout", "path:/pay/{n}", "other".
        never: Vec<String> = Vec::new() => List(TYPE);
        /// Smallest share of its requests that a type keeps.
        keep: f64 = 0.1 => Portion;
        /// How long a throttle lasts. If the detector is red then, it is judged anew.
        lasts as "for": Duration = secs(300) => span(S, 24 * HOUR);
        /// How long a detector must have been red.
        after: Duration = secs(10) => span(S, HOUR);
        /// Detectors whose red is a reason; empty: all.
        figures: Vec<String> = Vec::new() => List(NAME);
    }
}

impl Correlate {
    /// Intervals in a window.
    pub fn intervals(&self) -> usize {
        usize::try_from(self.window.as_secs()).unwrap_or(usize::MAX)
    }

    pub fn templates(&self) -> TemplateSettings {
        TemplateSettings {
            max_types: self.max_types,
            parameters: self.parameters.clone(),
            with_method: false,
        }
    }

    /// What the analysis asks for.
    pub fn analysis(&self) -> correlate::Settings {
        correlate::Settings {
            alpha: self.alpha,
            max_lag: self.max_lag,
            false_discovery: self.false_discovery,
        }
    }

    /// Whether the same is counted, so that what was counted is valid for both.
    pub fn counts_as(&self, other: &Self) -> bool {
        let what = |of: &Self| (of.enabled, of.types, of.window, of.max_types, of.parameters.clone());
        what(self) == what(other)
    }
}

impl CorrelateAuto {
    pub fn is_spared(&self, name: &TypeName) -> bool {
        let name = name.to_string();
        self.never.contains(&name)
    }

    /// `window`: that of the correlation; what was found before it has no data any more.
    pub fn bounds(&self, window: Duration) -> AutoSettings {
        AutoSettings { keep: self.keep, lasts: self.lasts, after: self.after, remembers: window }
    }
}

/// Reports names that do not exist.
pub(crate) fn check(settings: &Settings, out: &mut Reader) {
    let detectors = settings.item_names("detector");
    for (i, wanted) in settings.correlate.auto.figures.iter().enumerate() {
        out.check_reference(&out.element("correlate.auto.figures", i), wanted, "detector", &detectors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_valid_while_the_same_is_counted() {
        let usual = Correlate::default();
        assert_eq!(usual.intervals(), correlate::DEFAULT_INTERVALS);
        let analysed_anew = Correlate { alpha: 0.01, max_lag: 0, ..usual.clone() };
        assert!(usual.counts_as(&analysed_anew) && analysed_anew.analysis() != usual.analysis());
        for other in [
            Correlate { types: RequestTypes::Path, ..usual.clone() },
            Correlate { window: secs(60), ..usual.clone() },
            Correlate { max_types: 7, ..usual.clone() },
            Correlate { parameters: vec!["sort".into()], ..usual.clone() },
        ] {
            assert!(!usual.counts_as(&other), "{other:?}");
        }
    }

    #[test]
    fn types_are_spared_by_their_whole_name() {
        let auto = CorrelateAuto { never: vec!["class:pay".into()], ..CorrelateAuto::default() };
        let is_spared = |name| auto.is_spared(&TypeName::parse(name).unwrap());
        assert!(is_spared("class:pay") && !is_spared("path:/pay") && !is_spared("class:payment"));
    }
}
