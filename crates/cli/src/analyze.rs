//! `tidegate analyze`: which types of requests load a bottleneck, from an access log and figures of a host.

use std::cell::RefCell;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::tz::TimeZone;
use tidegate_analyze::analysis::{Request, SECOND_US, analyse};
use tidegate_analyze::log::Format;
use tidegate_analyze::types::By;
use tidegate_analyze::{html, input, report};
use tidegate_core::correlate::Settings;

use crate::results::{exit, say, writable, write};

/// `tidegate analyze`
#[derive(ClapArgs, Debug)]
pub struct AnalyzeArgs {
    /// Access logs: common, combined or JSON; plain, gzip or zstd; `-` is standard input.
    #[arg(value_name = "ACCESS.log", required = true)]
    pub logs: Vec<PathBuf>,
    /// Figures of the host that may be the bottleneck: CSV, `sadf -d`, `sadf -j`, `sar`, or a range query of
    /// Prometheus in JSON. May be repeated.
    #[arg(long, value_name = "FILE", required = true)]
    pub figures: Vec<PathBuf>,
    /// The bottleneck's figure, e.g. `%busy` [default: the one that is near its maximum most of the time].
    #[arg(long, value_name = "NAME")]
    pub figure: Option<String>,
    /// The logs' format [default: found by their first lines].
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// What requests are told apart by.
    #[arg(long, value_name = "WHAT", default_value = "path")]
    pub by: ByWhat,
    /// Length of an interval, e.g. `10s` or `5m` [default: 1s, or the time between two figures if that is
    /// more].
    #[arg(long, value_name = "SPAN", value_parser = span_us)]
    pub interval: Option<i64>,
    /// Time zone of figures that name none, as `sar` prints them: `local`, `UTC`, `+02:00` or
    /// `Europe/Berlin`.
    #[arg(long, value_name = "ZONE", default_value = "local", value_parser = zone)]
    pub figures_timezone: TimeZone,
    /// Time zone of times in JSON logs that name none.
    #[arg(long, value_name = "ZONE", default_value = "UTC", value_parser = zone)]
    pub log_timezone: TimeZone,
    /// Takes back the difference between the clocks of log and figures that is found. Without it, the
    /// difference is only reported.
    #[arg(long)]
    pub align: bool,
    /// Looks for a difference of the clocks of up to so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = value_parser!(u32).range(0..=3600))]
    pub align_within: u32,
    /// Longest time by which the figure may follow the requests, in intervals.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u8).range(0..=60))]
    pub max_lag: u8,
    /// Level of significance.
    #[arg(long, value_name = "P", default_value_t = 0.05, value_parser = alpha)]
    pub alpha: f64,
    /// Prints one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Writes a report with plots.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    Common,
    Combined,
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ByWhat {
    /// Paths, in which numbers, UUIDs and hashes are folded.
    Path,
    /// Classes, which Tidegate's own JSON log names.
    Class,
}

/// A log of this size is read in a second or two: a bar would only flicker.
const BAR_FROM_BYTES: u64 = 64 << 20;

pub fn analyze(args: &AnalyzeArgs) -> ExitCode {
    exit(run(args))
}

fn run(args: &AnalyzeArgs) -> Result<(), String> {
    if let Some(file) = &args.html {
        writable(file).map_err(|e| format!("--html: {e}"))?;
    }
    if args.logs.iter().chain(&args.figures).filter(|path| path.as_os_str() == "-").count() > 1 {
        return Err("standard input (`-`) can be read once only".into());
    }
    let request = Request {
        logs: args.logs.clone(),
        log_format: args.log_format.map(|format| match format {
            LogFormat::Common | LogFormat::Combined => Format::Combined,
            LogFormat::Json => Format::Json,
        }),
        log_zone: args.log_timezone.clone(),
        figures: args.figures.clone(),
        figures_zone: args.figures_timezone.clone(),
        interval_us: args.interval,
        figure: args.figure.clone(),
        by: match args.by {
            ByWhat::Path => By::Path,
            ByWhat::Class => By::Class,
        },
        shift_within_s: args.align_within,
        apply_shift: args.align,
        settings: Settings { alpha: args.alpha, max_lag: args.max_lag.into(), ..Settings::default() },
    };
    let bar = RefCell::new(bar(args));
    let on_read = |bytes: u64| {
        if let Some(bar) = bar.borrow_mut().as_mut() {
            bar.inc(bytes);
        }
    };
    let found = analyse(&request, &on_read);
    if let Some(bar) = bar.borrow().as_ref() {
        bar.finish_and_clear();
    }
    let found = found?;
    if let Some(file) = &args.html {
        write(file, &html::page(&found))?;
    }
    if args.json { say(format_args!("{}\n", report::json(&found))) } else { say(report::text(&found)) }
}

/// Bytes read of all, on a terminal, where there is much to read.
fn bar(args: &AnalyzeArgs) -> Option<ProgressBar> {
    let total: u64 = args.logs.iter().map(|path| input::size(path)).sum();
    if total < BAR_FROM_BYTES || !std::io::stderr().is_terminal() {
        return None;
    }
    let style =
        ProgressStyle::with_template("  {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    Some(ProgressBar::new(total).with_style(style.progress_chars("━━╌")))
}

fn alpha(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|alpha| *alpha > 0.0 && *alpha < 1.0);
    number.ok_or_else(|| "expected a number between 0 and 1, such as 0.05".into())
}

fn zone(text: &str) -> Result<TimeZone, String> {
    match text {
        "local" => Ok(TimeZone::system()),
        "UTC" | "Z" => Ok(TimeZone::UTC),
        name => tidegate_analyze::zone(name).ok_or_else(|| {
            "expected local, UTC, an offset such as +02:00, or a zone such as Europe/Berlin".into()
        }),
    }
}

/// A number with `s`, `m` or `h`; microseconds.
fn span_us(text: &str) -> Result<i64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        _ => None,
    };
    let seconds =
        digits.parse::<i64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    let seconds = seconds.filter(|seconds| (1..=86_400).contains(seconds));
    seconds.map(|s| s * SECOND_US).ok_or_else(|| "expected a span of 1s to 24h, such as 10s or 5m".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_options() {
        assert_eq!(
            (span_us("10s"), span_us("5m"), span_us("24h")),
            (Ok(10_000_000), Ok(300_000_000), Ok(86_400_000_000))
        );
        for wrong in ["", "10", "0s", "25h", "-1s", "1d", "s", "9223372036854775807h"] {
            assert!(span_us(wrong).is_err(), "{wrong}");
        }
        assert!(alpha("0").is_err() && alpha("x").is_err() && alpha("NaN").is_err());
        assert!(zone("+02:00").is_ok() && zone("Europe/Berlin").is_ok() && zone("local").is_ok());
        assert!(zone("Atlantis/Centre").is_err() && zone("+99").is_err());
    }
}
