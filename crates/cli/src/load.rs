//! `tidegate load`: sends a crowd to a service and reports what the visitors experienced.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args as ClapArgs, value_parser};
use tidegate_lab::client::Connections;
use tidegate_lab::crowd::Crowd;
use tidegate_lab::load::{self, LoadOptions, Stop};
use tidegate_lab::outcome::Outcome;
use tidegate_lab::progress::Progress;
use tidegate_lab::scenario::Scenario;
use tidegate_lab::{html, report};

use crate::parse::{MAX_SEED, assignment};
use crate::results::{directory, fail, say, writable, write};

/// Exit code of a run that ended before its time. Its figures are printed too.
const PARTIAL: u8 = 3;

/// The scenario of a run without one; the options are written into it.
const ONE_PHASE: &str = "[[arrivals.phase]]\n[[visitor]]\n";

/// `tidegate load`
#[derive(ClapArgs, Debug)]
pub struct LoadArgs {
    /// The target (`http://HOST[:PORT]/PATH`, with --rate and --for), or a scenario that describes visitors
    /// and target.
    #[arg(value_name = "URL|SCENARIO")]
    pub what: String,
    /// The target, instead of the scenario's.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Visitors per second, at random times; replaces the arrivals of a scenario.
    #[arg(long, value_name = "PER_SECOND", requires = "lasts", allow_negative_numbers = true)]
    pub rate: Option<f64>,
    /// How long they come, e.g. `4s` or `10m`.
    #[arg(long = "for", value_name = "TIME", id = "lasts", requires = "rate")]
    pub lasts: Option<String>,
    /// Threads that send; the crowd does not depend on it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// The same seed gives the same crowd [default: the scenario's, or 1].
    #[arg(long, value_parser = value_parser!(u64).range(..=MAX_SEED))]
    pub seed: Option<u64>,
    /// Any key of the scenario, e.g. `--set visitor.0.patience=2s`.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// A new connection for every request, instead of connections that are kept open and shared.
    #[arg(long)]
    pub fresh_connections: bool,
    /// Print all figures as one JSON object; no table, no progress.
    #[arg(long)]
    pub json: bool,
    /// Where to write the figures per second: FILE.csv, FILE.json, or a directory for both and the page.
    #[arg(long, value_name = "FILE|DIR")]
    pub out: Option<PathBuf>,
    /// Where to write a page with all figures as curves.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// No progress.
    #[arg(long)]
    pub quiet: bool,
}

/// Plays the crowd. The exit code is 0 if the run is whole, 3 if it ended early and its figures are partial,
/// 1 if there are no figures.
pub fn load(args: &LoadArgs) -> ExitCode {
    match play(args) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(why)) => {
            eprintln!("tidegate: the figures are partial: {why}");
            ExitCode::from(PARTIAL)
        }
        Err(error) => fail(error),
    }
}

/// Returns why the run is not whole, if it is not.
fn play(args: &LoadArgs) -> Result<Option<String>, String> {
    let scenario = scenario(args)?;
    let out = args.out.as_deref().map(Out::new).transpose()?;
    args.html.as_deref().map(writable).transpose().map_err(|e| format!("--html: {e}"))?;
    let options = LoadOptions {
        url: args.url.clone(),
        threads: args.threads,
        connections: if args.fresh_connections { Connections::Fresh } else { Connections::Keep },
        stop: Stop::on_interrupt().map_err(|e| format!("no handler for Ctrl-C: {e}"))?,
    };
    let mut progress = Progress::new(args.json || args.quiet, &scenario.name, visitors(&scenario)?);
    let played = load::run(&scenario, &options, |tally, now| progress.show(tally, now));
    progress.finish();
    let outcome = played.map_err(|e| e.to_string())?.outcome(&scenario);
    // If the results cannot be written to one place, they are still written to the others.
    let printed = match args.json {
        true => say(format_args!("{}\n", serde_json::json!(outcome))),
        false => say(format_args!("{}\n", report::table(&[&outcome]))),
    };
    let written = out.map_or(Ok(()), |out| out.write(&outcome));
    let drawn = args.html.as_ref().map_or(Ok(()), |file| write(file, &html::page(&[&outcome])));
    printed.and(written).and(drawn)?;
    Ok(outcome.partial)
}

/// How many visitors to expect; 0: any number.
fn visitors(scenario: &Scenario) -> Result<u64, String> {
    let (_, crowd) = Crowd::of(scenario).map_err(|e| e.to_string())?;
    tell_skipped(&crowd);
    Ok(crowd.size_hint_visitors().map_or(0, |expected| expected.round() as u64))
}

/// Reports lines of a log that cannot be played: figures of a part of the log must not pass for those of the
/// whole.
pub fn tell_skipped(crowd: &Crowd) {
    if let Some(skipped) = crowd.skipped().filter(|skipped| skipped.lines > 0) {
        eprintln!("tidegate: the log has requests that cannot be played: {skipped}");
    }
}

fn scenario(args: &LoadArgs) -> Result<Scenario, String> {
    let mut overrides = Vec::new();
    let mut key = |key: &str, value: &str| overrides.push((key.to_owned(), value.to_owned()));
    let is_url = args.what.contains("://");
    if is_url {
        let (Some(rate), Some(lasts)) = (args.rate, &args.lasts) else {
            return Err("expected --rate and --for with a URL, e.g. --rate 600 --for 4s".into());
        };
        if args.url.is_some() {
            return Err(
                "--url: expected a scenario whose target it replaces; got a URL as the target already".into(),
            );
        }
        key("target.url", &args.what);
        key("arrivals.phase.0.rate", &rate.to_string());
        key("arrivals.phase.0.for", lasts);
        if let Some(path) = path(&args.what) {
            key("visitor.0.path", path);
        }
    }
    if let Some(seed) = args.seed {
        key("seed", &seed.to_string());
    }
    args.set.iter().for_each(|(name, value)| key(name, value));
    if is_url {
        return Scenario::parse(ONE_PHASE, "load", Path::new(""), &overrides).map_err(|e| e.to_string());
    }
    if let Some(url) = args.url.as_deref().filter(|url| path(url).is_some()) {
        return Err(format!(
            "--url: expected http://HOST[:PORT], got {url}: the scenario says which paths the visitors ask for"
        ));
    }
    let mut scenario =
        Scenario::load_with(Path::new(&args.what), &overrides).map_err(|mistakes| mistakes.to_string())?;
    if let (Some(rate), Some(lasts)) = (args.rate, &args.lasts) {
        let rate = ("arrivals.phase.0.rate".to_owned(), rate.to_string());
        let arrivals = [rate, ("arrivals.phase.0.for".to_owned(), lasts.clone())];
        let flat = Scenario::parse(ONE_PHASE, "load", Path::new(""), &arrivals);
        scenario.arrivals = flat.map_err(|mistakes| mistakes.to_string())?.arrivals;
    }
    Ok(scenario)
}

/// Path and query of a URL; `None` for the front page.
fn path(url: &str) -> Option<&str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find(['/', '?']).map(|at| &rest[at..]).filter(|path| *path != "/")
}

/// Where the figures per second are written.
enum Out<'a> {
    Csv(&'a Path),
    Json(&'a Path),
    Directory(&'a Path),
}

impl<'a> Out<'a> {
    /// Tried before the run: a mistake here must not cost the figures of an hour.
    fn new(path: &'a Path) -> Result<Self, String> {
        let wrong = |e| format!("--out: {e}");
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => writable(path).map(|()| Self::Csv(path)).map_err(wrong),
            Some("json") => writable(path).map(|()| Self::Json(path)).map_err(wrong),
            Some(_) if !path.is_dir() => {
                Err(format!("--out: expected FILE.csv, FILE.json or a directory, got {}", path.display()))
            }
            _ => directory(path).map(|()| Self::Directory(path)).map_err(wrong),
        }
    }

    fn write(&self, outcome: &Outcome) -> Result<(), String> {
        let json = || serde_json::json!(outcome).to_string();
        match self {
            Self::Csv(file) => write(file, &outcome.csv()),
            Self::Json(file) => write(file, &json()),
            Self::Directory(dir) => {
                let file = |ending| dir.join(format!("{}.{ending}", outcome.name));
                write(&file("csv"), &outcome.csv())?;
                write(&file("json"), &json())?;
                write(&file("html"), &html::page(&[outcome]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_urls() {
        for (url, expected) in [
            ("http://a", None),
            ("http://a:1/", None),
            ("http://a/b?c", Some("/b?c")),
            ("http://a?c", Some("?c")),
        ] {
            assert_eq!(path(url), expected, "{url}");
        }
    }
}
