//! `tidegate check` and `tidegate config default`.

use std::path::Path;
use std::process::ExitCode;

use tidegate_gateway::config::Config;
use tidegate_settings::Settings;

use crate::results::say;

/// Says everything that is wrong with `file`; 0 if nothing is.
pub fn check(file: &Path) -> ExitCode {
    match Settings::load(file) {
        Ok(settings) => {
            let (keys, capacity) = (settings.room.keys.clone(), settings.explain_capacity());
            let warnings = settings.warnings();
            // A ring without keys gets one at the start; the rest is compiled as `run` would.
            let key = format!("1:{}", "00".repeat(32));
            if let Err(e) =
                Config::new(settings, if keys.is_empty() { std::slice::from_ref(&key) } else { &keys })
            {
                eprintln!("{}: {e}", file.display());
                return ExitCode::from(2);
            }
            for warning in warnings {
                eprintln!("{}: warning: {warning}", file.display());
            }
            said(say(format_args!("{}: ok\ncapacity: {capacity}\n", file.display())))
        }
        Err(mistakes) => {
            for mistake in &mistakes {
                eprintln!("{mistake}\n");
            }
            let n = mistakes.len();
            eprintln!("{}: {n} mistake{}", file.display(), if n == 1 { "" } else { "s" });
            ExitCode::from(2)
        }
    }
}

/// Prints every key with its meaning and default.
pub fn print_default() -> ExitCode {
    said(say(Settings::print_default()))
}

fn said(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tidegate: {why}");
            ExitCode::FAILURE
        }
    }
}
