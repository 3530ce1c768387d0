//! `[[visitor]]`: kinds of people, what they do and how patient they are.

use std::collections::HashSet;

use tidegate_settings::kind::{Choice, Count, Flag, METHOD, Number, Portion};

use super::kinds::{Drawn, FORM, NAME, TARGET};
use super::section::Section;
use super::{Kind, Step};

/// Most kinds: each is a line in the reports.
const MAX_KINDS: usize = 256;
/// Most steps: a visitor counts them in one byte.
const MAX_STEPS: usize = 255;

/// The kinds; the default one if there is none.
pub(super) fn read(root: &mut Section<'_, '_>) -> Vec<Kind> {
    let items = root.items("visitor", MAX_KINDS);
    let mut names = HashSet::new();
    let mut kinds = Vec::with_capacity(items.len());
    for item in &items {
        let kind = kind(&mut root.out.item(item));
        if !names.insert(kind.name.clone()) {
            let at = item.table.get("name").map_or(item.at, |entry| entry.node.at);
            let got = format!("\"{}\" again", kind.name);
            root.out.mistake(at, &format!("{}.name", item.path), "names that differ", got);
        }
        kinds.push(kind);
    }
    if kinds.is_empty() {
        kinds.push(Kind::default());
    } else if kinds.iter().all(|kind| kind.weight == 0.0) {
        root.conflict("visitor", "a weight above 0 for some visitor", "none: nobody would come");
    }
    kinds
}

fn kind(section: &mut Section<'_, '_>) -> Kind {
    let usual = Kind::default();
    let path = section.maybe("path", &TARGET);
    let kind = Kind {
        name: section.take("name", &NAME, usual.name),
        weight: section.take("weight", &Number(0.0..=1e6), usual.weight),
        steps: steps(section, path),
        patience: section.take("patience", &Drawn { never: true }, usual.patience),
        wait_limit: section.take("wait_limit", &Drawn { never: true }, usual.wait_limit),
        retries: section.take("retries", &Count(0..=255), usual.retries),
        pause: section.take("pause", &Drawn { never: false }, usual.pause),
        no_show: section.take("no_show", &Portion, usual.no_show),
        early: section.take("early", &Portion, usual.early),
        late: section.take("late", &Portion, usual.late),
        late_by: section.take("late_by", &Drawn { never: false }, usual.late_by),
        follow: section.take("follow", &Choice, usual.follow),
        cookies: section.take("cookies", &Flag, usual.cookies),
        browser: section.take("browser", &Flag, usual.browser),
        tamper: section.take("tamper", &Portion, usual.tamper),
        replay: section.take("replay", &Portion, usual.replay),
        tier: section.maybe("tier", &NAME).unwrap_or_default(),
        until: None,
        sessions: None,
    };
    section.finish();
    kind
}

/// The steps of a session; `path` is short for one.
fn steps(section: &mut Section<'_, '_>, path: Option<String>) -> Vec<Step> {
    let items = section.items("step", MAX_STEPS);
    if !items.is_empty() && section.has("path") {
        section.conflict("path", "`path` or [[visitor.step]]", "both");
    }
    let mut steps: Vec<Step> = items.iter().map(|item| step(&mut section.out.item(item))).collect();
    if steps.is_empty() {
        if section.has("step") {
            section.conflict("step", "at least one step", "none");
        }
        steps.push(Step { path: path.unwrap_or_else(|| Step::default().path), ..Step::default() });
    }
    let weights = || steps.iter().filter_map(|step| step.weight);
    match weights().count() {
        0 => {}
        some if some < steps.len() => {
            section.conflict(
                "step",
                "a weight in every step or in none",
                format!("{some} of {}", steps.len()),
            );
        }
        _ if weights().sum::<f64>() == 0.0 => {
            section.conflict("step", "a weight above 0 in some step", "none")
        }
        _ => {}
    }
    steps
}

fn step(section: &mut Section<'_, '_>) -> Step {
    let form = section.maybe("form", &FORM);
    let method = if form.is_some() { "POST".into() } else { Step::default().method };
    let method = section.take("method", &METHOD, method);
    if form.is_some() && matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE") {
        section.conflict("method", "a method that sends a form, such as \"POST\"", format!("\"{method}\""));
    }
    if method == "CONNECT" {
        section.conflict("method", "a method that asks for a path", "\"CONNECT\"");
    }
    let usual = Step::default();
    let step = Step {
        method,
        path: section.take("path", &TARGET, usual.path),
        form,
        think: section.take("think", &Drawn { never: false }, usual.think),
        weight: section.maybe("weight", &Number(0.0..=1e6)),
        parts: section.take("parts", &Count(0..=255), usual.parts),
        part: section.take("part", &TARGET, usual.part),
        of_type: section.maybe("type", &NAME).unwrap_or_default(),
        costly: section.take("costly", &Flag, usual.costly),
    };
    if step.costly && step.of_type.is_empty() {
        section.conflict("costly", "`type` with it", "a mark of no type");
    }
    section.finish();
    step
}
