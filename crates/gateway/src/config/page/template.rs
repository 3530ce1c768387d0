//! Templates of the waiting page: `{{slots}}` and `{{#sections}}…{{/sections}}`, ours and operators'.
//!
//! A template is compiled at start into literal text and slots, once for every language and kind of page, so
//! that rendering copies segments and writes a few numbers. Everything that is the same for all visitors (the
//! words, the operator's title, the choice of sections) is part of the literals. Rejected: a general template
//! engine, which would interpret the template on every request and could not check for mandatory slots.

use super::PageError;

/// A slot that is filled in per visitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    Wait,
    WaitText,
    Place,
    Waited,
    Left,
    Level,
    Target,
    Data,
    Refresh,
    Form,
    // The same for every visitor, but large: shared by the pages instead of copied into each.
    Style,
    Script,
}

/// Slots an operator's template may use, and whether they are filled in per visitor.
#[rustfmt::skip]
const SLOTS: [(&str, Option<Slot>); 24] = [
    ("lang", None), ("dir", None), ("title", None), ("logo", None), ("headline", None), ("message", None),
    ("notice", None), ("next", None), ("text_expected", None), ("text_ahead", None), ("text_waited", None),
    ("text_retry", None), ("wait", Some(Slot::Wait)), ("wait_text", Some(Slot::WaitText)),
    ("place", Some(Slot::Place)), ("waited", Some(Slot::Waited)), ("left", Some(Slot::Left)),
    ("level", Some(Slot::Level)), ("target", Some(Slot::Target)), ("data", Some(Slot::Data)),
    ("refresh", Some(Slot::Refresh)), ("form", Some(Slot::Form)), ("style", Some(Slot::Style)),
    ("script", Some(Slot::Script)),
];

/// Sections: kept or left out by kind of page or by what the operator configured.
const SECTIONS: [&str; 5] = ["has_place", "has_notice", "has_title", "is_full", "is_forbidden"];

/// Slots that every template must have, and why.
const MANDATORY: [(&str, &str); 3] = [
    ("wait", "visitors must see how long it takes"),
    ("refresh", "the page must work without JavaScript"),
    ("form", "it holds the way on for visitors without JavaScript, and what they entered"),
];

#[derive(Debug, PartialEq)]
enum Piece {
    Text(String),
    /// Index into [`SLOTS`].
    Slot(usize),
    /// Start of a section: index into [`SECTIONS`].
    Open(usize),
    Close,
}

#[derive(Debug)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

/// A template with everything filled in that does not depend on the visitor.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// All literals, one after the other.
    pub(crate) text: Vec<u8>,
    /// The position of each slot in `text`.
    slots: Vec<(usize, Slot)>,
}

impl Compiled {
    pub(crate) fn render<O: AsMut<Vec<u8>>>(&self, out: &mut O, mut fill: impl FnMut(Slot, &mut O)) {
        let mut from = 0;
        for (at, slot) in &self.slots {
            out.as_mut().extend_from_slice(&self.text[from..*at]);
            fill(*slot, out);
            from = *at;
        }
        out.as_mut().extend_from_slice(&self.text[from..]);
    }
}

impl Template {
    /// Reads a template. `path` is for the messages.
    pub(crate) fn parse(path: &str, source: &str) -> Result<Self, PageError> {
        let mut pieces = Vec::new();
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut rest = source;
        let mut line = 1;
        while let Some(at) = rest.find("{{") {
            let (text, tail) = rest.split_at(at);
            line += text.matches('\n').count();
            let fault = |expected: String| PageError::Template { path: path.into(), line, expected };
            let Some(end) = tail.find("}}").filter(|end| !tail[..*end].contains('\n')) else {
                return Err(fault("`}}` on the line that has `{{`".into()));
            };
            if !text.is_empty() {
                pieces.push(Piece::Text(text.to_owned()));
            }
            let name = tail[2..end].trim();
            pieces.push(if let Some(name) = name.strip_prefix('#') {
                let section = find(name, SECTIONS.into_iter(), "section").map_err(fault)?;
                open.push((section, line));
                Piece::Open(section)
            } else if let Some(name) = name.strip_prefix('/') {
                let expected = open.pop().map(|(section, _)| SECTIONS[section]);
                if expected != Some(name) {
                    let expected = expected.map_or("no".to_owned(), |e| format!("`{{{{/{e}}}}}`"));
                    return Err(fault(format!("{expected} end of a section, found `{{{{/{name}}}}}`")));
                }
                Piece::Close
            } else {
                Piece::Slot(find(name, SLOTS.iter().map(|s| s.0), "slot").map_err(fault)?)
            });
            rest = &tail[end + 2..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        if let Some((section, line)) = open.pop() {
            let expected = format!("`{{{{/{}}}}}` for the section that begins here", SECTIONS[section]);
            return Err(PageError::Template { path: path.into(), line, expected });
        }
        let template = Self { pieces };
        template.check(path)?;
        Ok(template)
    }

    fn check(&self, path: &str) -> Result<(), PageError> {
        let has = |name: &str| self.pieces.iter().any(|p| matches!(p, Piece::Slot(i) if SLOTS[*i].0 == name));
        if let Some((slot, why)) = MANDATORY.into_iter().find(|(name, _)| !has(name)) {
            return Err(PageError::Missing { path: path.into(), slot, why });
        }
        if has("script") && !has("data") {
            let why = "{{script}} reads the visitor's figures from the element that bears it";
            return Err(PageError::Missing { path: path.into(), slot: "data", why });
        }
        Ok(())
    }

    pub(crate) fn uses(&self, slot: Slot) -> bool {
        self.pieces.iter().any(|p| matches!(p, Piece::Slot(i) if SLOTS[*i].1 == Some(slot)))
    }

    /// Bodies of inline `<script>` and `<style>` elements, for the content security policy. A slot inside one
    /// is refused: text escaped for HTML is not safe in a script, and the hash would change.
    pub(crate) fn inline(&self, path: &str, element: &str) -> Result<Vec<String>, PageError> {
        // Slots become a character that no template has, so that they are found inside the elements.
        const HOLE: char = '\0';
        let text: String =
            self.pieces.iter().map(|p| if let Piece::Text(t) = p { t.as_str() } else { "\0" }).collect();
        let lower = text.to_ascii_lowercase();
        let (open, close) = (format!("<{element}"), format!("</{element}"));
        let mut bodies = Vec::new();
        let mut from = 0;
        while let Some(start) = lower[from..].find(&open).map(|i| from + i) {
            let body = lower[start..].find('>').map_or(text.len(), |i| start + i + 1);
            let end = lower[body..].find(&close).map_or(text.len(), |i| body + i);
            if text[start..end].contains(HOLE) {
                return Err(PageError::InScript { path: path.into(), element: element.into() });
            }
            bodies.push(text[body..end].to_owned());
            from = end;
        }
        Ok(bodies)
    }

    /// Fills in what does not depend on the visitor: `word` gives the text of a slot by name, `keep` whether
    /// a section stays.
    pub(crate) fn compile(&self, word: impl Fn(&str) -> String, keep: impl Fn(&str) -> bool) -> Compiled {
        let mut compiled = Compiled { text: Vec::new(), slots: Vec::new() };
        let mut kept = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Open(section) => kept.push(keep(SECTIONS[*section])),
                Piece::Close => drop(kept.pop()),
                _ if kept.contains(&false) => {}
                Piece::Text(text) => compiled.text.extend_from_slice(text.as_bytes()),
                Piece::Slot(index) => match SLOTS[*index] {
                    (_, Some(slot)) => compiled.slots.push((compiled.text.len(), slot)),
                    (name, None) => compiled.text.extend_from_slice(word(name).as_bytes()),
                },
            }
        }
        compiled
    }
}

/// Index of `name`, or what was expected instead.
fn find(name: &str, known: impl Iterator<Item = &'static str> + Clone, what: &str) -> Result<usize, String> {
    known.clone().position(|k| k == name).ok_or_else(|| {
        let distance = |known: &&str| strsim::levenshtein(name, known);
        // A long name is no mistyped one, and not worth comparing.
        let nearest = known.clone().filter(|_| name.len() <= 32).min_by_key(distance);
        let nearest = nearest.filter(|nearest| distance(nearest) <= 2);
        let all = known.collect::<Vec<_>>().join(", ");
        match nearest {
            Some(nearest) => format!("a {what}, found `{name}`; did you mean `{nearest}`?"),
            None => format!("a {what}, found `{name}`; known: {all}"),
        }
    })
}

/// Removes indentation, empty lines and whole-line comments from one of our own assets. The assets must keep
/// two rules: a comment has its line to itself, and no text spans lines.
pub(crate) fn squeeze(asset: &str) -> String {
    let comment = |line: &str| line.starts_with("//") || (line.starts_with("/*") && line.ends_with("*/"));
    let lines = asset.lines().map(str::trim).filter(|line| !line.is_empty() && !comment(line));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "{{wait}}{{refresh}}{{form}}";

    fn fault(source: &str) -> String {
        Template::parse("page.html", source).unwrap_err().to_string()
    }

    #[test]
    fn mistakes_are_reported_with_line_and_remedy() {
        let table = [
            ("a\nb {{palce}}", "page.html:2: expected a slot, found `palce`; did you mean `place`?"),
            (
                "{{#has_palce}}",
                "page.html:1: expected a section, found `has_palce`; did you mean `has_place`?",
            ),
            ("\n\n{{wait", "page.html:3: expected `}}` on the line that has `{{`"),
            ("{{wait\n}}", "page.html:1: expected `}}` on the line that has `{{`"),
            ("{{#is_full}}\n", "page.html:1: expected `{{/is_full}}` for the section that begins here"),
            (
                "{{#is_full}}{{/has_place}}",
                "page.html:1: expected `{{/is_full}}` end of a section, found `{{/has_place}}`",
            ),
            ("{{/is_full}}", "page.html:1: expected no end of a section, found `{{/is_full}}`"),
            (
                "{{wait}}{{form}}",
                "page.html: the slot `{{refresh}}` is missing: the page must work without JavaScript",
            ),
        ];
        for (source, expected) in table {
            assert_eq!(fault(source), expected, "{source}");
        }
        assert!(fault("{{zzzzzzzzzz}}").contains("known: lang, dir,"));
        assert!(fault(&format!("{LEAST}{{{{script}}}}")).contains("`{{data}}` is missing"));
    }

    #[test]
    fn sections_stay_or_go_and_slots_are_filled_in_order() {
        let source = format!(
            "{LEAST}<{{{{ headline }}}}{{{{#is_full}}}}F{{{{place}}}}{{{{/is_full}}}}|{{{{target}}}}>"
        );
        let template = Template::parse("t", &source).unwrap();
        for (full, expected) in [
            (true, "[Wait][Refresh][Form]<HF[Place]|[Target]>"),
            (false, "[Wait][Refresh][Form]<H|[Target]>"),
        ] {
            let compiled = template.compile(|_| "H".into(), |_| full);
            let mut out = Vec::new();
            compiled.render(&mut out, |slot, out| out.extend_from_slice(format!("[{slot:?}]").as_bytes()));
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn inline_code_is_found_and_holds_no_slots() {
        let template =
            Template::parse("t", &format!("{LEAST}<STYLE>a</style><style media=x>b</style >")).unwrap();
        assert_eq!(template.inline("t", "style").unwrap(), ["a", "b"]);
        assert!(template.inline("t", "script").unwrap().is_empty());
        let template =
            Template::parse("t", &format!("{LEAST}<script>x = '{{{{target}}}}'</script>")).unwrap();
        assert!(matches!(template.inline("t", "script"), Err(PageError::InScript { .. })));
    }

    proptest::proptest! {
        #[test]
        fn any_template_is_taken_or_refused(source in "(\\{\\{|\\}\\}|#|/|wait|form|refresh|is_full|\n|<script>|é| ){0,12}") {
            if let Ok(template) = Template::parse("t", &source) {
                let _ = template.inline("t", "script");
                let _ = template.compile(|_| String::new(), |_| true);
            }
        }
    }
}
