//! `tidegate experiment`: the papers' figures, played again.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args as ClapArgs, Subcommand, ValueEnum, value_parser};
use tidegate_lab::experiment::expect::breaches;
use tidegate_lab::experiment::play::Player;
use tidegate_lab::experiment::report::Report;
use tidegate_lab::experiment::{Experiment, catalog, output, seeds};
use tidegate_lab::load::on_interrupt;
use tidegate_lab::outcome::Way;

use crate::parse::MAX_SEED;
use crate::results::{directory, say};

const ALL: &str = "all";
/// Most threads: more than there are cores only get into each other's way.
const MAX_THREADS: i64 = 256;

/// `tidegate experiment`
#[derive(ClapArgs, Debug)]
pub struct ExperimentOptions {
    /// What to do.
    #[command(subcommand)]
    command: ExperimentCommand,
}

#[derive(Subcommand, Debug)]
enum ExperimentCommand {
    /// Say which experiments there are.
    List {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Play experiments and lay the results beside the paper's.
    Run(RunOptions),
}

#[derive(ClapArgs, Debug)]
struct RunOptions {
    /// Names from `experiment list`, files of one's own (FILE.toml), or `all`.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Only over real processes, or only simulated.
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Same seed, same crowds [default: the scenario's].
    #[arg(long, value_parser = value_parser!(u64).range(..=MAX_SEED))]
    seed: Option<u64>,
    /// The seeds of tournaments [default: the file's].
    #[arg(long, value_name = "A..B", conflicts_with = "seed", value_parser = seeds)]
    seeds: Option<RangeInclusive<u64>>,
    /// Threads for tournaments; they do not change what comes out [default: one per core].
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=MAX_THREADS))]
    threads: Option<u16>,
    /// Write tables, series, plots and a page there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Compare the results with the bounds in the files ([experiment.expect]); exit with 1 if one does not
    /// hold.
    #[arg(long)]
    check: bool,
    /// Print one JSON object, not a table.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(long)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    Real,
    Sim,
}

impl Mode {
    fn way(self) -> Way {
        match self {
            Self::Real => Way::Real,
            Self::Sim => Way::Sim,
        }
    }
}

pub fn experiment(options: &ExperimentOptions) -> ExitCode {
    match &options.command {
        ExperimentCommand::List { json } => list(*json),
        ExperimentCommand::Run(options) => run(options),
    }
}

type Entry = (Experiment, Way);

fn everything() -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for (name, _) in catalog::EMBEDDED {
        let experiment = find(name)?;
        entries.extend(experiment.ways.clone().into_iter().map(|way| (experiment.clone(), way)));
    }
    Ok(entries)
}

fn find(name: &str) -> Result<Experiment, String> {
    let looks_like_a_file = name.ends_with(".toml");
    let found = match catalog::embedded(name) {
        Some(found) => found,
        None if looks_like_a_file => catalog::load(Path::new(name)),
        None => {
            return Err(format!(
                "expected a name from `tidegate experiment list`, a file NAME.toml or all; got {name:?}"
            ));
        }
    };
    found.map_err(|mistakes| mistakes.to_string())
}

/// What the names and the mode ask for. A plain name is the experiment's first way; `NAME-sim` is the other.
fn select(names: &[String], mode: Option<Mode>) -> Result<Vec<Entry>, String> {
    let mut chosen: Vec<Entry> = Vec::new();
    for name in names {
        let candidates = match name.as_str() {
            ALL => everything()?,
            name => one(name, mode)?,
        };
        for (experiment, way) in candidates {
            let wanted = mode.is_none_or(|mode| mode.way() == way);
            let new = !chosen.iter().any(|(e, w)| e.name == experiment.name && *w == way);
            if wanted && new {
                chosen.push((experiment, way));
            }
        }
    }
    if chosen.is_empty() {
        return Err("nothing of what was named can be played in that mode".into());
    }
    Ok(chosen)
}

fn one(name: &str, mode: Option<Mode>) -> Result<Vec<Entry>, String> {
    if let Some(entry) = everything()?.into_iter().find(|(e, way)| e.name != name && e.name_as(*way) == name)
    {
        return Ok(vec![entry]);
    }
    let experiment = find(name)?;
    let way = match mode {
        None => experiment.ways.first().copied(),
        Some(mode) => experiment.ways.iter().copied().find(|way| *way == mode.way()),
    };
    let way = way.ok_or_else(|| {
        let ways: Vec<&str> = experiment.ways.iter().map(|way| way.name()).collect();
        format!("{name} can be played in mode {} only", ways.join(", "))
    })?;
    Ok(vec![(experiment, way)])
}

fn list(json: bool) -> ExitCode {
    let entries = match everything() {
        Ok(entries) => entries,
        Err(why) => return fail(&why),
    };
    if json {
        let one = |(e, way): &Entry| {
            serde_json::json!({
                "name": e.name_as(*way), "paper": e.paper, "figure": e.figure, "mode": way.name(),
                "about": e.about,
            })
        };
        let all = serde_json::json!({ "experiments": entries.iter().map(one).collect::<Vec<_>>() });
        return said(say(format_args!("{all}\n")), ExitCode::SUCCESS);
    }
    let line =
        |(e, way): &Entry| format!("{:24}  {:4}  {}, {}\n", e.name_as(*way), way.name(), e.paper, e.figure);
    said(say(entries.iter().map(line).collect::<String>()), ExitCode::SUCCESS)
}

fn run(options: &RunOptions) -> ExitCode {
    let entries = match select(&options.names, options.mode) {
        Ok(entries) => entries,
        Err(why) => return fail(&why),
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return fail(&format!("this program cannot find itself: {error}")),
    };
    if let Some(Err(why)) = options.out.as_deref().map(directory) {
        return fail(&format!("--out: {why}"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // The run under way is broken off, its processes are ended and what has been measured is printed.
    if let Err(error) = on_interrupt(move |_| flag.store(true, Ordering::Relaxed)) {
        return fail(&format!("cannot watch for signals: {error}"));
    }
    let quiet = options.quiet;
    let mut tell = |line: &str| {
        if !quiet {
            eprintln!("{line}");
        }
    };
    let mut player = Player::new(program, options.seed, Arc::clone(&stop), &mut tell);
    player.seeds.clone_from(&options.seeds);
    player.threads = options.threads.map_or(player.threads, usize::from);
    player.plays_all = options.names.iter().any(|name| name == ALL);
    let mut reports: Vec<Report> = Vec::new();
    let mut written = Ok(());
    for (experiment, way) in &entries {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        reports.push(player.play(experiment, *way));
        // What cannot be written any more is printed all the same.
        written = options.out.as_ref().map_or(Ok(()), |dir| {
            output::write(&reports, dir).map_err(|error| format!("the results cannot be written: {error}"))
        });
    }
    let printed = match options.json {
        true => say(format_args!("{}\n", output::json(&reports))),
        false => say(format_args!("{}\n", output::table(&reports))),
    };
    let whole = reports.len() == entries.len() && reports.iter().all(|report| report.missing().is_empty());
    let holds = !options.check || check(&entries, &reports);
    said(printed.and(written), if whole && holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether every bound holds; names those that do not.
fn check(entries: &[Entry], reports: &[Report]) -> bool {
    let played = entries.iter().zip(reports);
    let broken: Vec<_> = played.flat_map(|((experiment, _), report)| breaches(experiment, report)).collect();
    broken.iter().for_each(|breach| eprintln!("tidegate: {breach}"));
    broken.is_empty()
}

/// The exit code, if what was to be said could be.
fn said(done: Result<(), String>, code: ExitCode) -> ExitCode {
    done.map_or_else(|why| fail(&why), |()| code)
}

fn fail(why: &str) -> ExitCode {
    eprintln!("tidegate: {why}");
    ExitCode::from(2)
}
