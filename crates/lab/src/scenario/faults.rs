//! `[[fault]]`: what goes wrong, and when.

use std::time::Duration;

use tidegate_settings::kind::{Choice, Count, Named, Number};

use super::kinds::{MOMENT, SPAN_OR_FOREVER};
use super::section::Section;
use super::{Fault, FaultKind, GateSpec, OriginSpec};

const MAX_FAULTS: usize = 10_000;

#[derive(Clone, Copy, PartialEq)]
enum Name {
    Crash,
    Slow,
    Drift,
    NoFeedback,
    Restart,
}

impl Named for Name {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("crash", Self::Crash),
        ("slow", Self::Slow),
        ("drift", Self::Drift),
        ("no-feedback", Self::NoFeedback),
        ("restart", Self::Restart),
    ];
}

pub(super) fn read(root: &mut Section<'_, '_>, origin: &OriginSpec, gate: Option<&GateSpec>) -> Vec<Fault> {
    let items = root.items("fault", MAX_FAULTS);
    let mut faults: Vec<Fault> =
        items.iter().map(|item| fault(&mut root.out.item(item), origin, gate)).collect();
    faults.sort_by_key(|fault| fault.at);
    faults
}

fn fault(section: &mut Section<'_, '_>, origin: &OriginSpec, gate: Option<&GateSpec>) -> Fault {
    let at = section.need("at", &MOMENT, Duration::ZERO);
    let lasts = section.take("for", &SPAN_OR_FOREVER, Duration::MAX);
    let name = section.need("kind", &Choice, Name::Restart);
    let replica = section.take("replica", &Count(0..=u64::from(u32::MAX)), 0u32);
    let factor = section.maybe("factor", &Number(0.001..=1e6));
    let seconds = section.maybe("seconds", &Number(-86_400.0..=86_400.0));
    if section.has("kind") {
        applies(section, name);
        needs_gate(section, name, gate);
    }
    let replicas = origin.most_replicas();
    if matches!(name, Name::Crash | Name::Slow) && replica >= replicas {
        let expected = format!("a replica from 0 to {}", replicas - 1);
        section.conflict("replica", expected, replica.to_string());
    }
    let what = match name {
        Name::Crash => FaultKind::Crash { replica },
        Name::Slow => FaultKind::Slow { replica, factor: factor.unwrap_or(1.0) },
        Name::Drift => FaultKind::Drift { seconds: seconds.unwrap_or(0.0) },
        Name::NoFeedback => FaultKind::NoFeedback,
        Name::Restart => FaultKind::Restart,
    };
    section.finish();
    Fault { at, lasts, what }
}

/// Keys that the kind needs, and keys that say nothing for it.
fn applies(section: &mut Section<'_, '_>, name: Name) {
    let written = Name::NAMES.iter().find(|(_, kind)| *kind == name).map_or("", |(text, _)| text);
    for (key, kinds, needed) in [
        ("replica", &[Name::Crash, Name::Slow][..], false),
        ("factor", &[Name::Slow][..], true),
        ("seconds", &[Name::Drift][..], true),
    ] {
        let right = kinds.contains(&name);
        if section.has(key) && !right {
            let expected = format!("no `{key}` for kind \"{written}\"");
            section.conflict(key, expected, "one that has no effect");
        } else if !section.has(key) && right && needed {
            section.conflict(key, format!("a number (kind \"{written}\" needs it)"), "nothing");
        }
    }
}

/// Faults of a gate need one; those between its halves need two halves.
fn needs_gate(section: &mut Section<'_, '_>, name: Name, gate: Option<&GateSpec>) {
    let split = gate.is_some_and(|gate| gate.split);
    match name {
        Name::Restart if gate.is_none() => section.conflict("kind", "a [gate] that can restart", "no [gate]"),
        Name::Drift | Name::NoFeedback if !split => {
            section.conflict("kind", "a gate in two halves (`gate.split = true`)", "none");
        }
        _ => {}
    }
}
