//! What to do about the culprits: which part of their requests they keep, and the configuration for it.
//!
//! ```text
//! keep = 1 - (figure - target) / load        load = Σ cost of a request × requests while it is busy
//! ```
//!
//! The target is below the figure's maximum, since queues are short there, and below the operator's red where
//! there is one.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::type_name::TypeName;

/// The figure is brought down to this part of its maximum: below it queues are short.
const TARGET: f64 = 0.8;
/// And to this part of what is red: a level falls when its figure is a tenth below (`hysteresis`).
const OF_RED: f64 = 0.85;
/// A culprit keeps at least a tenth of what it had, since a suggestion must not switch a function off, and
/// loses at least a tenth, since otherwise nothing would change.
const KEEP: (f64, f64) = (0.1, 0.9);
/// What is kept where the costs are not known.
const KEEP_UNKNOWN: f64 = 0.5;
/// Lowest rate: 0 would mean no limit.
const LEAST_RATE: f64 = 0.01;
/// Longest name of a class.
const MAX_NAME: usize = 64;

/// The figure while it is busy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Situation {
    pub mean: f64,
    pub most: f64,
    /// From here on it is too high; `None`: nobody has said.
    pub red: Option<f64>,
}

/// A type that loads the figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Culprit {
    /// Requests per second while the figure is busy.
    pub per_s: f64,
    /// What one request per second adds to the figure; `None`: not known.
    pub cost: Option<f64>,
}

/// Which part the culprits keep.
#[derive(Clone, PartialEq, Debug)]
pub struct Suggestion {
    /// Of their requests, 0..=1.
    pub keep: f64,
    /// The figure while it is busy, and then, if the costs tell.
    pub from: f64,
    pub to: Option<f64>,
    pub throttles: Vec<Throttled>,
}

/// What a type keeps.
#[derive(Clone, PartialEq, Debug)]
pub struct Throttled {
    pub name: TypeName,
    /// Requests per second that it had, and those it keeps.
    pub had: f64,
    pub rate: f64,
}

/// Which part culprits of these names should keep.
pub fn suggest(figure: &Situation, culprits: &[Culprit], names: Vec<TypeName>) -> Suggestion {
    let of_red = figure.red.map_or(f64::INFINITY, |red| OF_RED * red);
    let target = (TARGET * figure.most).min(of_red);
    let load: f64 = culprits.iter().filter_map(|culprit| Some(culprit.cost? * culprit.per_s)).sum();
    let keep = match load > 0.0 {
        true => (1.0 - (figure.mean - target) / load).clamp(KEEP.0, KEEP.1),
        false => KEEP_UNKNOWN,
    };
    let each = names.into_iter().zip(culprits);
    Suggestion {
        keep,
        from: figure.mean,
        to: (load > 0.0).then_some(figure.mean - load * (1.0 - keep)),
        throttles: each
            .map(|(name, culprit)| Throttled {
                name,
                had: culprit.per_s,
                rate: rounded((culprit.per_s * keep).max(LEAST_RATE)),
            })
            .collect(),
    }
}

impl Suggestion {
    /// Why, in a sentence for operators.
    pub fn why(&self, figure: &str) -> String {
        let Some(to) = self.to else {
            return "Half of what the culprits had: their costs are not known well enough to say more."
                .into();
        };
        format!(
            "The culprits keep {:.0} % of what they had while {} was near its maximum; by the estimated costs that brings it \
             from {} to {}.",
            self.keep * 100.0,
            figure.escape_debug(),
            number(self.from),
            number(to),
        )
    }

    /// TOML for the gate's configuration file: a class with a rate for each path, since a class has one
    /// already. `None`: no culprit is either.
    pub fn toml(&self, figure: &str) -> Option<String> {
        let mut out = format!("# {}\n", self.why(figure));
        let (mut taken, mut is_empty) = (BTreeSet::new(), true);
        for Throttled { name, had, rate } in &self.throttles {
            let per_s = format!("{{ rate = {rate} }}  # requests per second; it had {}", number(*had));
            match name {
                TypeName::Path(template) => {
                    let (name, path) = (class_name(template, &mut taken), quoted(&glob(template)));
                    let class = format!("[[class]]\nname = \"{name}\"\nmatch = {{ path = {path} }}");
                    _ = write!(out, "\n{class}\ningress = {per_s}\n");
                }
                TypeName::Class(class) => _ = write!(out, "\n# In [[class]] {class}:\n# ingress = {per_s}\n"),
                TypeName::Other => continue,
            }
            is_empty = false;
        }
        (!is_empty).then_some(out)
    }
}

/// A template as a glob of paths, as a class has it.
pub fn glob(template: &str) -> String {
    let path = template.split('?').next().unwrap_or_default();
    let (path, is_cut) = match path.strip_suffix("/{rest}") {
        Some(begin) => (begin, true),
        None => (path, false),
    };
    let mut out = String::with_capacity(path.len());
    let mut is_folded = false;
    for c in path.chars() {
        match c {
            '{' => is_folded = true,
            '}' => {
                is_folded = false;
                out.push('*');
            }
            _ if is_folded => {}
            // What would be a sign of the glob.
            '*' => out.push_str("%2A"),
            c => out.push(c),
        }
    }
    if is_cut {
        out.push_str("/**");
    }
    out
}

/// Letters, digits, `-` and `_` of the path; a number behind it where two would be the same.
fn class_name(path: &str, taken: &mut BTreeSet<String>) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
    let mut name = String::new();
    for c in glob(path).chars().map(kept) {
        if c != '-' || !(name.is_empty() || name.ends_with('-')) {
            name.push(c);
        }
    }
    name.truncate(MAX_NAME - 4);
    let name = name.trim_end_matches('-');
    let name = if name.is_empty() || name == "default" { "culprit" } else { name };
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name));
    let free = free.unwrap_or_default();
    taken.insert(free.clone());
    free
}

/// Two significant digits, down: more would pretend to know.
fn rounded(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.log10().floor() - 1.0);
    let rounded = (rate / unit).floor() * unit;
    // What the division leaves behind the digits goes.
    (rounded * 1e6).round() / 1e6
}

/// A number with three significant digits, without an exponent where it has none of use.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if !(1e-4..1e9).contains(&size) => format!("{value:.2e}"),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size => {
            let digits = (2 - size.log10().floor() as i32).clamp(0, 6) as usize;
            format!("{value:.digits$}")
        }
    }
}

/// A TOML string.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => _ = write!(out, "\\u{:04X}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(figure: Situation, culprits: &[Culprit]) -> Suggestion {
        suggest(&figure, culprits, vec![TypeName::Path("/a".into()), TypeName::Class("b".into())])
    }

    const BUSY: Situation = Situation { mean: 95.0, most: 100.0, red: None };

    #[test]
    fn the_figure_is_brought_below_its_maximum_and_below_red() {
        let culprits = [Culprit { per_s: 20.0, cost: Some(1.0) }, Culprit { per_s: 20.0, cost: Some(0.5) }];
        let found = keep(BUSY, &culprits);
        // 15 of the 30 that they load.
        assert!((found.keep - 0.5).abs() < 1e-12 && (found.to.unwrap() - 80.0).abs() < 1e-9, "{found:?}");
        assert_eq!(found.throttles.iter().map(|of| of.rate).collect::<Vec<_>>(), [10.0, 10.0]);
        let red = keep(Situation { red: Some(90.0), ..BUSY }, &culprits);
        assert!(red.to.unwrap() < 90.0 && red.keep < found.keep, "{red:?}");
        let high = keep(Situation { red: Some(1e9), ..BUSY }, &culprits);
        assert_eq!(high, found);
    }

    #[test]
    fn a_culprit_keeps_something_and_loses_something() {
        let of = |cost| Culprit { per_s: 10.0, cost };
        assert_eq!(keep(BUSY, &[of(Some(0.1))]).keep, KEEP.0);
        assert_eq!(keep(BUSY, &[of(Some(1e6))]).keep, KEEP.1);
        let unknown = keep(BUSY, &[of(None)]);
        assert_eq!((unknown.keep, unknown.to), (KEEP_UNKNOWN, None));
        assert!(unknown.why("cpu").starts_with("Half"));
        assert!(keep(BUSY, &[Culprit { per_s: 0.0, cost: None }]).throttles[0].rate > 0.0);
    }

    #[test]
    fn the_configuration_has_a_class_for_each_path() {
        let culprits = [Culprit { per_s: 12.3, cost: None }; 2];
        let text = keep(BUSY, &culprits).toml("a\nb").unwrap();
        assert!(text.contains("match = { path = \"/a\" }\ningress = { rate = 6.1 }"), "{text}");
        assert!(text.contains("\n# In [[class]] b:\n# ingress = { rate = 6.1 }"), "{text}");
        let other = Suggestion { throttles: Vec::new(), ..keep(BUSY, &culprits) };
        assert_eq!(other.toml("cpu"), None);
    }

    #[test]
    fn templates_as_globs() {
        for (template, glob_of_it) in [
            ("/", "/"),
            ("/item/{n}/bids?sort", "/item/*/bids"),
            ("/item-{n}.html", "/item-*.html"),
            ("/{token}.{n}/{rest}", "/*.*/**"),
            ("/a*b", "/a%2Ab"),
        ] {
            assert_eq!(glob(template), glob_of_it);
        }
    }

    #[test]
    fn names_of_classes() {
        let mut taken = BTreeSet::new();
        let names = ["/PHP/SearchItems.php", "/item/{n}/bids", "/item/bids", "/", "/default", "/é\"\n"];
        let names = names.map(|path| class_name(path, &mut taken));
        assert_eq!(
            names,
            ["php-searchitems-php", "item-bids", "item-bids-2", "culprit", "culprit-2", "culprit-3"]
        );
        assert!(class_name(&format!("/{}", "a".repeat(300)), &mut taken).len() <= MAX_NAME);
    }

    #[test]
    fn rates_numbers_and_texts() {
        assert_eq!([123.4, 9.99, 0.0123, 1.0].map(rounded), [120.0, 9.9, 0.012, 1.0]);
        assert_eq!(quoted("/a\"\\\n"), "\"/a\\\"\\\\\\u000A\"");
        let numbers = [0.0, 5.0, 0.1234, 12.345, 99.96, 1234.5, 1e-6, -0.5, 2e12];
        let shown = ["0", "5", "0.123", "12.3", "100.0", "1234", "1.00e-6", "-0.500", "2.00e12"];
        assert_eq!(numbers.map(number), shown);
    }
}
