//! `[arrivals]`: phases with a shape of rate and a mix of visitors, a closed loop, or a log to replay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_settings::did_you_mean;
use tidegate_settings::kind::{Choice, Count, Number, either};
use tidegate_settings::tree::{Entry, Value, quoted};

use super::kinds::{FileName, SPAN, SPAN_OR_FOREVER};
use super::section::{Item, Key, Section};
use super::{Arrivals, Kind, Phase, Process, Shape, closed};

/// Highest rate: ten times what the simulator plays in a second, and far beyond what a machine can send.
const MAX_RATE: f64 = 1e7;
const RATE: Number = Number(0.0..=MAX_RATE);
/// Longest list of phases: nobody writes more by hand, and a program had better use a log.
const MAX_PHASES: usize = 10_000;
pub(super) fn read(root: &mut Section<'_, '_>, dir: &Path, visitors: &[Kind]) -> Arrivals {
    let Some(mut section) = root.inside("arrivals") else { return nobody() };
    let closed = closed::read(&mut section);
    let replay: Option<PathBuf> = section.maybe("replay", &FileName);
    let speed = section.take("speed", &Number(0.001..=1000.0), 1.0);
    let process = section.take("process", &Choice, Process::Poisson);
    let repeat = section.take("repeat", &Count(1..=1_000_000), 1u32);
    let items = section.items("phase", MAX_PHASES);
    let phases: Vec<Phase> = items.iter().map(|item| phase(&mut section.out.item(item), visitors)).collect();
    if replay.is_some() {
        for other in ["phase", "process", "repeat"] {
            if section.has(other) {
                section.conflict(other, "no such key beside `replay`", "one that has no effect");
            }
        }
    } else if closed.is_none() {
        if section.has("speed") {
            section.conflict("speed", "`replay` with it", "a speed that has no effect");
        }
        check(&mut section, &items, &phases, repeat);
    }
    section.finish();
    match (closed, replay) {
        (Some(closed), _) => Arrivals::Closed(closed),
        (None, Some(log)) => Arrivals::Replay { log: dir.join(log), speed },
        (None, None) => Arrivals::Phases { process, phases, repeat },
    }
}

/// A scenario without arrivals describes a service alone. `Crowd::of` refuses it.
fn nobody() -> Arrivals {
    let phase = Phase { rate: Shape::Flat(0.0), lasts: Duration::from_secs(1), mix: Vec::new() };
    Arrivals::Phases { process: Process::Poisson, phases: vec![phase], repeat: 1 }
}

fn check(section: &mut Section<'_, '_>, items: &[Item<'_>], phases: &[Phase], repeat: u32) {
    if phases.is_empty() && section.has("phase") {
        section.conflict("phase", "at least one phase", "none: nobody would come");
    } else if phases.is_empty() {
        let (at, key) = (section.at(), section.path.clone());
        let expected = "[[arrivals.phase]], [arrivals.closed] or `replay`";
        section.out.mistake(at, &key, expected, "neither: nobody would come");
    }
    for (i, (item, phase)) in items.iter().zip(phases).enumerate() {
        let endless = phase.lasts == Duration::MAX;
        let mut refuse = |expected: &str| {
            let key = format!("{}.for", item.path);
            let at = item.table.get("for").map_or(item.at, |entry| entry.node.at);
            section.out.mistake(at, &key, expected, "\"forever\"");
        };
        if endless && i + 1 < phases.len() {
            refuse("a time: only the last phase may last forever");
        } else if endless && repeat > 1 {
            refuse("a time: what never ends cannot be repeated");
        } else if endless && matches!(phase.rate, Shape::Ramp(..)) {
            refuse("a time: a ramp has an end");
        }
    }
}

fn phase(section: &mut Section<'_, '_>, visitors: &[Kind]) -> Phase {
    let flat = section.maybe("rate", &RATE).map(Shape::Flat);
    let ramp = ramp(section);
    let diurnal = diurnal(section);
    let lasts = section.need("for", &SPAN_OR_FOREVER, Duration::from_secs(1));
    let mix = mix(section, visitors);
    let given: Vec<&str> = ["rate", "ramp", "diurnal"].into_iter().filter(|key| section.has(key)).collect();
    if given.len() != 1 {
        let got = match given.len() {
            0 => "none".to_owned(),
            _ => given.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(" and "),
        };
        section.conflict("rate", "one of `rate`, `ramp` and `diurnal`", got);
    }
    section.finish();
    Phase { rate: flat.or(ramp).or(diurnal).unwrap_or(Shape::Flat(1.0)), lasts, mix }
}

fn ramp(section: &mut Section<'_, '_>) -> Option<Shape> {
    let expected = format!("two rates per second like [0, 600] (from 0 to {MAX_RATE})");
    let entry = section.entry("ramp", Key { default: None, expected: expected.clone() })?;
    let key = section.key("ramp");
    match &entry.node.value {
        Value::List(ends) if ends.len() == 2 => {
            let from = section.out.value(&ends[0], &key, &RATE)?;
            let to = section.out.value(&ends[1], &key, &RATE)?;
            Some(Shape::Ramp(from, to))
        }
        _ => {
            section.out.wrong(&entry.node, &key, expected, None);
            None
        }
    }
}

fn diurnal(section: &mut Section<'_, '_>) -> Option<Shape> {
    let mut day = section.inside("diurnal")?;
    let low = day.need("low", &RATE, 0.0);
    let high = day.need("high", &RATE, MAX_RATE);
    let period = day.need("period", &SPAN, Duration::from_secs(1));
    if low > high {
        day.conflict("low", "at most `high`", format!("{low} above {high}"));
    }
    day.finish();
    Some(Shape::Diurnal { low, high, period })
}

fn mix(section: &mut Section<'_, '_>, visitors: &[Kind]) -> Vec<f64> {
    let key = Key { default: None, expected: "a table of visitors' names and shares".into() };
    let Some(entry) = section.entry("mix", key) else { return Vec::new() };
    let key = section.key("mix");
    let Value::Table(table) = &entry.node.value else {
        let expected = "a table of visitors' names and shares, like { browse = 0.8, search = 0.2 }";
        section.out.wrong(&entry.node, &key, expected, None);
        return Vec::new();
    };
    let mut mix = vec![0.0; visitors.len()];
    let mistakes = section.out.found.len();
    for share in &table.entries {
        let key = format!("{key}.{}", share.name);
        match visitors.iter().position(|kind| kind.name == share.name) {
            Some(index) => {
                mix[index] = section.out.value(&share.node, &key, &Number(0.0..=1e6)).unwrap_or(1.0)
            }
            None => stranger(section, share, &key, visitors),
        }
    }
    if mistakes == section.out.found.len() && mix.iter().all(|share| *share == 0.0) {
        section.out.mistake(entry.node.at, &key, "a share above 0 for some visitor", "none");
    }
    mix
}

fn stranger(section: &mut Section<'_, '_>, share: &Entry, key: &str, visitors: &[Kind]) {
    let names = || visitors.iter().map(|kind| kind.name.as_str());
    let shown = either(names().take(10).map(|name| format!("\"{name}\"")));
    let (hint, got) = (did_you_mean(&share.name, names()), quoted(&share.name));
    section.out.hinted(share.at, key, format!("the name of a [[visitor]]: {shown}"), got, hint);
}
