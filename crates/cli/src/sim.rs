//! `tidegate sim`: plays a scenario in virtual time.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, value_parser};
use serde_json::{Value, json};
use tidegate_gateway::base::clock::Clock;
use tidegate_lab::crowd::Crowd;
use tidegate_lab::html;
use tidegate_lab::report;
use tidegate_lab::scenario::{Arrivals, Scenario};
use tidegate_lab::sim::chance::{describe, perturb};
use tidegate_lab::sim::{SimOptions, SimRun, SweepReport, run, sweep};

use crate::load::tell_skipped;
use crate::parse::{MAX_SEED, assignment};
use crate::results::{directory, fail, say, writable, write};

/// `tidegate sim`
#[derive(ClapArgs, Debug)]
pub struct SimArgs {
    /// The scenario.
    #[arg(value_name = "SCENARIO.toml")]
    pub file: PathBuf,
    /// Replaces the scenario's seed.
    #[arg(long, value_name = "N", conflicts_with = "seeds", value_parser = value_parser!(u64).range(..=MAX_SEED))]
    pub seed: Option<u64>,
    /// Plays every seed from A to B and reports those that break a rule.
    #[arg(long, value_name = "A..B")]
    pub seeds: Option<String>,
    /// Threads for --seeds [default: one per core].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Lets each seed draw faults and vary crowd, origin and visitors.
    #[arg(long)]
    pub faults: bool,
    /// Prints the last N steps.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "seeds")]
    pub trace: usize,
    /// Prints one JSON object. The same scenario and seed give the same bytes.
    #[arg(long)]
    pub json: bool,
    /// Adds the time it took to the JSON object: `wall_s` and `events_per_s`.
    #[arg(long)]
    pub timing: bool,
    /// Writes outcome.json and series.csv there.
    #[arg(long, value_name = "DIR", conflicts_with = "seeds")]
    pub out: Option<PathBuf>,
    /// Writes a report with plots.
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    pub html: Option<PathBuf>,
    /// Any key of the scenario, e.g. `--set gate.capacity.rate=80`.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
}

/// Exit code for a run that breaks a rule. A scenario that cannot be played has another.
const BROKEN: u8 = 3;

/// Most threads: more threads than cores only slow each other down.
const MAX_THREADS: usize = 256;

pub fn sim(args: &SimArgs) -> ExitCode {
    play(args).unwrap_or_else(fail)
}

fn play(args: &SimArgs) -> Result<ExitCode, String> {
    let scenario = Scenario::load_with(&args.file, &args.set).map_err(|mistakes| mistakes.to_string())?;
    if matches!(scenario.arrivals, Arrivals::Replay { .. }) {
        tell_skipped(&Crowd::of(&scenario).map_err(|e| e.to_string())?.1);
    }
    match &args.seeds {
        Some(seeds) => play_many(args, &scenario, range(seeds)?),
        None => play_one(args, &scenario),
    }
}

/// `A..B` with both included. `A..=B` means the same, and `A` alone is one seed.
fn range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let number = |s: &str| s.trim_start_matches('=').trim().parse::<u64>().ok();
    match (number(from), number(to)) {
        (Some(from), Some(to)) if from <= to && to <= MAX_SEED => Ok(from..=to),
        _ => Err(format!(
            "--seeds: expected A..B with A at most B, such as 1..1000, up to {MAX_SEED}, got `{text}`"
        )),
    }
}

fn play_one(args: &SimArgs, scenario: &Scenario) -> Result<ExitCode, String> {
    let seed = args.seed.unwrap_or(scenario.seed);
    let drawn = if args.faults { perturb(scenario, seed) } else { scenario.clone() };
    let options = SimOptions { trace: args.trace, ..SimOptions::new(seed) };
    args.out.as_deref().map(directory).transpose().map_err(|e| format!("--out: {e}"))?;
    args.html.as_deref().map(writable).transpose().map_err(|e| format!("--html: {e}"))?;
    let clock = Clock::new();
    let began = clock.now();
    let ended = run(&drawn, &options).map_err(|e| e.to_string())?;
    let wall_s = clock.now().since(began).as_secs_f64();
    write_files(args, &ended)?;
    for step in &ended.steps {
        say(format_args!("{step}\n"))?;
    }
    if args.json {
        let mut object = serde_json::to_value(&ended.outcome).map_err(|e| e.to_string())?;
        object["digest"] = json!(format!("{:016x}", ended.digest));
        let violations = ended.violations.iter();
        let violations = violations.map(|v| json!({"at_us": v.at_us, "rule": v.rule, "what": v.what}));
        object["violations"] = violations.collect();
        say_json(args, object, ended.events, wall_s)?;
    } else {
        say(table(&ended))?;
    }
    if args.faults {
        eprintln!("seed {seed} drew: {}", describe(&drawn));
    }
    ended.violations.iter().for_each(|violation| eprint!("{violation}"));
    let speed = ended.events as f64 / wall_s / 1e6;
    eprintln!("{} events in {wall_s:.2} s: {speed:.2} million a second", ended.events);
    Ok(if ended.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) })
}

fn play_many(args: &SimArgs, scenario: &Scenario, seeds: RangeInclusive<u64>) -> Result<ExitCode, String> {
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(format!("--threads: expected 1 to {MAX_THREADS}, got {threads}"));
    }
    let clock = Clock::new();
    let began = clock.now();
    let report = sweep(scenario, seeds.clone(), threads, args.faults).map_err(|e| e.to_string())?;
    let wall_s = clock.now().since(began).as_secs_f64();
    let broken: Vec<u64> = report.broken().map(|(seed, _)| *seed).collect();
    if args.json {
        let object = json!({
            "name": scenario.name, "seeds": [seeds.start(), seeds.end()], "faults": args.faults, "events": report.events,
            "digest": format!("{:016x}", report.digest), "broken": broken, "rules": rules(&report),
        });
        say_json(args, object, report.events, wall_s)?;
    } else {
        let (runs, count) = (report.runs.len(), broken.len());
        say(format_args!(
            "{runs} seeds, {} events, {count} seeds broke a rule: {broken:?}\n",
            report.events
        ))?;
    }
    for (seed, run) in report.broken().take(3) {
        if args.faults {
            eprintln!("seed {seed} drew: {}", describe(&perturb(scenario, *seed)));
        }
        run.violations.iter().take(1).for_each(|violation| eprint!("{violation}"));
    }
    eprintln!(
        "{wall_s:.1} s on {threads} threads: {:.2} million events a second",
        report.events as f64 / wall_s / 1e6
    );
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) })
}

fn say_json(args: &SimArgs, mut object: Value, events: u64, wall_s: f64) -> Result<(), String> {
    if args.timing {
        object["wall_s"] = json!(wall_s);
        object["events_per_s"] = json!(events as f64 / wall_s);
    }
    say(format_args!("{object}\n"))
}

/// How many seeds broke each rule.
fn rules(report: &SweepReport) -> Value {
    let mut count = std::collections::BTreeMap::<&str, u64>::new();
    for (_, run) in report.broken() {
        let mut rules: Vec<_> = run.violations.iter().map(|violation| violation.rule).collect();
        rules.sort_unstable();
        rules.dedup();
        rules.into_iter().for_each(|rule| *count.entry(rule).or_default() += 1);
    }
    json!(count)
}

/// The figures as `load` shows them, and those that only a simulation has.
fn table(run: &SimRun) -> String {
    let (seed, events, violations) = (run.outcome.seed, run.events, run.violations.len());
    let figures = report::table(&[&run.outcome]);
    format!("{figures}\n  In virtual time, seed {seed}: {events} events, {violations} violations.\n")
}

fn write_files(args: &SimArgs, ended: &SimRun) -> Result<(), String> {
    if let Some(dir) = &args.out {
        let text = serde_json::to_string(&ended.outcome).map_err(|e| e.to_string())?;
        write(&dir.join("outcome.json"), &text)?;
        write(&dir.join("series.csv"), &ended.outcome.csv())?;
    }
    args.html.as_ref().map_or(Ok(()), |file| write(file, &html::page(&[&ended.outcome])))
}
