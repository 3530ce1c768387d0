//! Where experiments come from: those of this project, embedded in the program, and files of one's own.

use std::path::Path;

use tidegate_settings::tree::Source;
use tidegate_settings::{Found, Mistake, place};

use super::formula::Names;
use super::read::{self, Draft, Placed};
use super::{Experiment, Run, ScenarioText, findings, play};
use crate::outcome::Way;
use crate::scenario::{Arrivals, Mistakes, Scenario};
use crate::tally::{served_key, times_key};
use crate::testbed;

const MAX_FILE_BYTES: u64 = 1 << 20;

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../experiments/", $name, ".toml")))),*]
    };
}

/// Name and text of the project's own, in the order in which they are listed and played. A test compares the
/// list with the folder.
#[rustfmt::skip]
pub const EMBEDDED: &[(&str, &str)] = embedded![
    "webq-fig2", "webq-fig3", "webq-fig4", "webq-fig5", "webq-fig6", "webq-fig7", "webq-fig8", "webq-fig9",
    "webq-fig10", "webq-fig11", "webq-sim-vs-real", "webq-fig12", "webq-vi-a", "masth-fig1",
    "masth-fig1-sim", "wac-fig6-7", "wac-fig6-7-real", "scheduler-shares", "million-sim",
    "hundred-thousand-real", "estimator-tournament", "estimator-drawn", "estimator-disturbed",
    "porter-fig1", "porter-fig3-4", "voigt-fig3", "voigt-fig5-6", "voigt-table2", "syn-flood",
];

/// The project's own experiment of that name.
///
/// # Errors
/// Mistakes in its file, which a test has excluded; `None` if there is no such experiment.
pub fn embedded(name: &str) -> Option<Result<Experiment, Mistakes>> {
    let (name, text) = EMBEDDED.iter().find(|(known, _)| *known == name)?;
    Some(parse(text, name, Path::new(""), &|other| {
        let (_, text) = EMBEDDED.iter().find(|(known, _)| *known == other)?;
        Some((*text).to_owned())
    }))
}

/// The experiment in a file. One whose runs it takes is looked for beside it.
pub fn load(path: &Path) -> Result<Experiment, Mistakes> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let text = read_file(path).map_err(|got| {
        let found = read::found(None, "", "a readable file", got);
        Mistakes(placed(vec![found], &path.display().to_string(), ""))
    })?;
    let dir = path.parent().unwrap_or(Path::new(""));
    parse(&text, &name, dir, &|other| read_file(&dir.join(format!("{other}.toml"))).ok())
}

fn read_file(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MAX_FILE_BYTES {
        return Err(format!("{size} bytes, more than {MAX_FILE_BYTES}"));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

/// Reads an experiment's text. `beside` gives the text of another experiment by its name.
///
/// # Errors
/// Every mistake in it, in the scenario of each of its runs, and in the names its formulas use.
pub fn parse(
    text: &str,
    name: &str,
    dir: &Path,
    beside: &dyn Fn(&str) -> Option<String>,
) -> Result<Experiment, Mistakes> {
    let draft = read::read(text);
    let Draft { mut found, formulas, .. } = draft;
    let mut source = ScenarioText { name: name.into(), text: text.into(), dir: dir.into() };
    let mut runs = Vec::new();
    if let Some((at, other)) = &draft.runs_of {
        match beside(other).map(|text| (read::read(&text), text)) {
            Some((theirs, text)) if theirs.runs_of.is_none() && theirs.found.is_empty() => {
                runs.extend(theirs.runs.into_iter().map(|(_, run)| run));
                source = ScenarioText { name: other.clone(), text, dir: dir.into() };
            }
            _ => found.push(read::found(
                Some(*at),
                "experiment.runs_of",
                "the name of an experiment without mistakes and with runs of its own",
                format!("{other:?}"),
            )),
        }
    }
    for (at, run) in &draft.runs {
        if runs.iter().any(|other: &Run| other.name == run.name) {
            let got = format!("another {} beside the one of {}", run.name, source.name);
            found.push(read::found(Some(*at), "experiment.run", "runs of different names", got));
        }
        runs.push(run.clone());
    }
    check_formulas(&formulas, &runs, &source, &mut found);
    // A formula that cannot be read might have used any of them.
    let is_read = found.is_empty();
    for (at, run) in draft.runs.iter().filter(|(_, run)| is_read && !uses(&formulas, &run.name)) {
        found.push(read::found(
            Some(*at),
            &format!("experiment.run.{}", run.name),
            "a run that a quantity or a plot uses",
            "one that none does",
        ));
    }
    let mistakes = placed(found, name, text);
    if !mistakes.is_empty() {
        return Err(Mistakes(mistakes));
    }
    let experiment = Experiment {
        name: name.into(),
        paper: draft.paper,
        figure: draft.figure,
        about: draft.about,
        ways: draft.ways,
        on_testbed: testbed::is_described(&source.text),
        source,
        runs,
        quantities: draft.quantities,
        plots: draft.plots,
        expectations: draft.expectations,
        tournament: draft.tournament,
    };
    check_scenarios(&experiment)?;
    Ok(experiment)
}

fn uses(formulas: &[Placed], run: &str) -> bool {
    formulas.iter().any(|placed| placed.formula.runs().contains(&run))
}

fn check_formulas(formulas: &[Placed], runs: &[Run], source: &ScenarioText, found: &mut Vec<Found>) {
    let runs: Vec<(String, bool)> = runs.iter().map(|run| (run.name.clone(), run.sweep.is_some())).collect();
    let (mut keys, mut columns) = (play::keys(), play::columns());
    // One that has mistakes is complained of later.
    if testbed::is_described(&source.text) {
        keys = source.testbed(&[]).map(|testbed| testbed::keys(&testbed)).unwrap_or_default();
        columns.clear();
    } else if let Ok(scenario) = Scenario::parse(&source.text, &source.name, &source.dir, &[]) {
        keys.extend(scenario.visitors.iter().map(|kind| served_key(&kind.name)));
        if !scenario.types().types.is_empty() {
            keys.extend(scenario.tally().outcome("", Way::Real, 0, None).summary.into_keys());
            keys.extend(findings::keys(&scenario));
            columns.extend(scenario.types().types.iter().map(|(name, _)| times_key(name)));
        }
    }
    let names = Names { runs: &runs, keys: &as_strs(&keys), columns: &as_strs(&columns) };
    for Placed { at, key, formula, kind } in formulas {
        match formula.kind(&names) {
            Ok(got) if got == *kind => {}
            Ok(got) => found.push(read::found(Some(*at), key, kind.to_string(), format!("{got}: {formula}"))),
            Err(mistake) => {
                let got = format!("{} in {formula}", mistake.got);
                found.push(read::found(Some(*at), key, mistake.expected, got));
            }
        }
    }
}

fn as_strs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Every run must make a scenario, and one over real processes must have an end, as must those of a
/// tournament.
fn check_scenarios(experiment: &Experiment) -> Result<(), Mistakes> {
    for setting in experiment.tournament.iter().flat_map(|tournament| &tournament.scenarios) {
        let scenario = setting.scenario(&experiment.source)?;
        let what = [
            ("deadline", "a deadline", scenario.deadline.is_none()),
            ("gate", "a [gate], whose estimator the tournament sets", scenario.gate.is_none()),
            ("arrivals", "phases of arrivals", !matches!(scenario.arrivals, Arrivals::Phases { .. })),
        ];
        let mut missing = what.into_iter().filter(|(.., is_missing)| *is_missing);
        if let Some((key, expected, _)) = missing.next() {
            let found = read::found(None, key, expected, format!("none in scenario {}", setting.name));
            return Err(Mistakes(placed(vec![found], &experiment.source.name, &experiment.source.text)));
        }
    }
    if experiment.on_testbed {
        return check_testbeds(experiment);
    }
    for run in &experiment.runs {
        let ways = run.way.as_ref().map_or(experiment.ways.as_slice(), std::slice::from_ref);
        for value in run.values() {
            let scenario = experiment.scenario(run, value)?;
            if ways.contains(&Way::Real) && scenario.deadline.is_none() {
                let found = read::found(None, "deadline", "a deadline, since a run is real", "none");
                return Err(Mistakes(placed(vec![found], &experiment.source.name, &experiment.source.text)));
            }
        }
    }
    Ok(())
}

/// Every run must make a testbed, which has no virtual time and whose gate is a part of it.
fn check_testbeds(experiment: &Experiment) -> Result<(), Mistakes> {
    let is_sim = experiment.ways.contains(&Way::Sim);
    let mut wrong = is_sim.then_some(("experiment.ways", "[\"real\"] with a testbed", "\"sim\" too"));
    for run in &experiment.runs {
        if run.way == Some(Way::Sim) {
            wrong = Some(("experiment.run", "real runs with a testbed", "a simulated one"));
        }
        if !run.gate {
            wrong = Some(("experiment.run", "`testbed.server.acceptor` with a testbed", "`gate = false`"));
        }
        for value in run.values() {
            experiment.testbed(run, value)?;
        }
    }
    let Some((key, expected, got)) = wrong else { return Ok(()) };
    let found = read::found(None, key, expected, got);
    Err(Mistakes(placed(vec![found], &experiment.source.name, &experiment.source.text)))
}

fn placed(found: Vec<Found>, name: &str, text: &str) -> Vec<Mistake> {
    let name = if name.ends_with(".toml") { name.to_owned() } else { format!("{name}.toml") };
    place(found, &[Source { name, text: text.into() }], &[])
}
