//! `[origin]`: what the service can take, and how that changes while running.

use std::time::Duration;

use tidegate_settings::did_you_mean;
use tidegate_settings::kind::{Choice, Count, Flag, Number, PATH_GLOB, Portion, Size, either};
use tidegate_settings::tree::{Entry, Value, quoted};

use tidegate_core::units::MAX_CLASSES;

use super::kinds::{Drawn, MOMENT, NAME};
use super::section::{Key, Section};
use super::shop;
use super::{Change, Discipline, Errors, Mode, OriginSpec, PathSpec, Spell, Stage};
use crate::dist::Dist;
use crate::model::Paths;

/// Most workers of a replica, servers of a stage: each is some hundred bytes.
const MAX_WORKERS: u64 = 1_000_000;
/// Most replicas: each is a port.
const MAX_REPLICAS: u64 = 1000;
/// Most stages: each is a host in the figures.
const MAX_STAGES: usize = 64;
/// Most kinds of URLs: the classifier's bound, less one for what matches everything.
const MAX_PATHS: usize = MAX_CLASSES - 2;
const MAX_CHANGES: usize = 10_000;
const EVERYTHING: [&str; 2] = ["**", "/**"];

/// Shortest mean time from one spell to the next: below, it is a slower server.
const SHORTEST_EVERY: Duration = Duration::from_millis(1);

const WORK: Drawn = Drawn { never: false };
const BODY: Size = Size { bounds: 0..=1 << 30, zero: false };

/// The service; the default one if there is no `[origin]`.
pub(super) fn read(root: &mut Section<'_, '_>) -> OriginSpec {
    let usual = OriginSpec::default();
    let Some(mut section) = root.inside("origin") else { return usual };
    let workers = section.take("workers", &Count(1..=MAX_WORKERS), usual.workers);
    let mode = section.take("mode", &Choice, usual.mode);
    let stages = stages(&mut section, workers, mode);
    let paths = paths(&mut section, &stages, mode);
    // Threads that burn CPU time contend by themselves.
    let contention = if mode == Mode::Spin { 0.0 } else { usual.contention };
    let spec = OriginSpec {
        workers,
        backlog: section.take("backlog", &Count(0..=10_000_000), usual.backlog),
        contention: section.take("contention", &Number(0.0..=1000.0), contention),
        replicas: section.take("replicas", &Count(1..=MAX_REPLICAS), usual.replicas),
        mode,
        stages,
        paths,
        notices_leavers: section.take("notices_leavers", &Flag, usual.notices_leavers),
        pause: spell(&mut section, "pause", mode, |_| 0.0),
        neighbour: spell(&mut section, "neighbour", mode, |inside| {
            inside.need("speed", &Number(0.001..=1.0), 1.0)
        }),
        changes: changes(&mut section, mode),
        shop: shop::read(&mut section),
    };
    section.finish();
    spec
}

/// What mode `spin` cannot do: there, threads burn CPU time, and nobody holds them up or answers in their
/// place.
fn only_slept(section: &mut Section<'_, '_>, mode: Mode, keys: &[&str]) {
    for key in keys {
        if mode == Mode::Spin && section.has(key) {
            section.conflict(key, format!("mode \"sleep\" with `{key}`"), "mode \"spin\"");
        }
    }
}

/// `[stall]`: stalls of the whole machine.
pub(super) fn stall(root: &mut Section<'_, '_>) -> Option<Spell> {
    spell(root, "stall", Mode::Sleep, |_| 0.0)
}

fn spell(
    section: &mut Section<'_, '_>,
    name: &'static str,
    mode: Mode,
    speed: impl Fn(&mut Section<'_, '_>) -> f64,
) -> Option<Spell> {
    only_slept(section, mode, &[name]);
    let mut inside = section.inside(name)?;
    let every = inside.need("every", &WORK, Dist::Fixed(1.0));
    let lasts = inside.need("lasts", &WORK, Dist::Fixed(0.0));
    if every.mean() < SHORTEST_EVERY {
        inside.conflict("every", "a time of 1 ms or more in the mean", format!("\"{every}\""));
    } else if inside.has("every") && lasts.mean() >= every.mean() {
        let expected = "a time shorter than `every` in the mean";
        inside.conflict("lasts", expected, format!("\"{lasts}\" every \"{every}\""));
    }
    let spell = Spell { every, lasts, speed: speed(&mut inside) };
    inside.finish();
    Some(spell)
}

fn stages(section: &mut Section<'_, '_>, workers: u32, mode: Mode) -> Vec<Stage> {
    let items = section.items("stage", MAX_STAGES);
    let mut stages: Vec<Stage> = Vec::with_capacity(items.len());
    for item in &items {
        let mut inside = section.out.item(item);
        let stage = Stage {
            name: inside.need("name", &NAME, String::new()),
            servers: inside.maybe("servers", &Count(1..=MAX_WORKERS)).unwrap_or(workers),
            discipline: inside.take("discipline", &Choice, Discipline::Fifo),
        };
        if stage.discipline == Discipline::Sharing {
            only_slept(&mut inside, mode, &["discipline"]);
        }
        if !stage.name.is_empty() && stages.iter().any(|earlier| earlier.name == stage.name) {
            inside.conflict("name", "names that differ", format!("\"{}\" again", stage.name));
        }
        inside.finish();
        stages.push(stage);
    }
    if stages.is_empty() {
        stages.push(Stage::new("app", workers));
    }
    stages
}

/// Work by URL. `service` is what all URLs ask that no path names, of the first stage.
fn paths(section: &mut Section<'_, '_>, stages: &[Stage], mode: Mode) -> Vec<PathSpec> {
    let service = section.take("service", &WORK, Dist::Fixed(0.1));
    let usual = PathSpec::default();
    let items = section.items("path", MAX_PATHS);
    let mut paths: Vec<PathSpec> = Vec::with_capacity(items.len() + 1);
    for item in &items {
        let mut inside = section.out.item(item);
        if paths.last().is_some_and(|path| EVERYTHING.contains(&path.path.as_str())) {
            let expected = "nothing after a path that matches everything";
            inside.conflict("path", expected, "a path that is never reached");
        }
        let path = PathSpec {
            path: inside.need("path", &PATH_GLOB, "/".into()),
            demand: demand(&mut inside, stages),
            body_bytes: inside.take("body_bytes", &BODY, usual.body_bytes),
            stream: inside.maybe("stream", &WORK),
            errors: errors(&mut inside),
        };
        only_slept(&mut inside, mode, &["stream", "errors"]);
        if let Err(error) = Paths::compile(std::slice::from_ref(&path)) {
            inside.conflict("path", "a glob that can be compiled", error.to_string());
        }
        inside.finish();
        paths.push(path);
    }
    if !paths.last().is_some_and(|path| EVERYTHING.contains(&path.path.as_str())) {
        paths.push(PathSpec { demand: vec![(0, service)], ..usual });
    } else if section.has("service") {
        let expected = "`service` or a path that matches everything";
        section.conflict("service", expected, "both: `service` would have no effect");
    }
    paths
}

/// Requests that fail at once. How they do may be said although none does at first: a change may bring
/// errors.
fn errors(section: &mut Section<'_, '_>) -> Errors {
    let usual = Errors::default();
    let status = section.take("error_status", &Count(500..=599), u32::from(usual.status));
    Errors {
        share: section.take("errors", &Portion, usual.share),
        demand: section.take("error_demand", &WORK, usual.demand),
        status: u16::try_from(status).unwrap_or(usual.status),
    }
}

/// Stages and the work there, in the order in which they are written: the parser sorts names.
fn demand(section: &mut Section<'_, '_>, stages: &[Stage]) -> Vec<(usize, Dist)> {
    let expected = "a table of stages and times, like { app = \"5ms\", db = \"exponential(40ms)\" }";
    let Some(entry) = section.entry("demand", Key { default: None, expected: expected.into() }) else {
        let at = section.at();
        let key = section.key("demand");
        section.out.mistake(at, &key, expected, "nothing");
        return Vec::new();
    };
    let key = section.key("demand");
    let Value::Table(table) = &entry.node.value else {
        section.out.wrong(&entry.node, &key, expected, None);
        return Vec::new();
    };
    let mut written: Vec<&Entry> = table.entries.iter().collect();
    written.sort_by_key(|entry| entry.at);
    let mut demand = Vec::with_capacity(written.len());
    for work in written {
        let key = format!("{key}.{}", work.name);
        let dist = section.out.value(&work.node, &key, &WORK);
        match stages.iter().position(|stage| stage.name == work.name) {
            Some(stage) => demand.extend(dist.map(|dist| (stage, dist))),
            None => {
                let names = || stages.iter().map(|stage| stage.name.as_str());
                let shown = either(names().map(|name| format!("\"{name}\"")));
                let hint = did_you_mean(&work.name, names());
                let got = quoted(&work.name);
                section.out.hinted(work.at, &key, format!("the name of a stage: {shown}"), got, hint);
            }
        }
    }
    demand
}

fn changes(section: &mut Section<'_, '_>, mode: Mode) -> Vec<Change> {
    let items = section.items("change", MAX_CHANGES);
    let mut changes: Vec<Change> = Vec::with_capacity(items.len());
    for item in &items {
        let mut inside = section.out.item(item);
        let change = Change {
            at: inside.need("at", &MOMENT, Duration::ZERO),
            replicas: inside.maybe("replicas", &Count(0..=MAX_REPLICAS)),
            workers: inside.maybe("workers", &Count(1..=MAX_WORKERS)),
            speed: inside.maybe("speed", &Number(0.001..=1000.0)),
            errors: inside.maybe("errors", &Portion),
        };
        if !["replicas", "workers", "speed", "errors"].iter().any(|key| inside.has(key)) {
            let expected = "`replicas`, `workers`, `speed` or `errors` beside it";
            inside.conflict("at", expected, "a change of nothing");
        }
        only_slept(&mut inside, mode, &["errors"]);
        inside.finish();
        changes.push(change);
    }
    changes.sort_by_key(|change| change.at);
    changes
}
