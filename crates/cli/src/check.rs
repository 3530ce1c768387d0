//! `tidegate check` and `tidegate config default`.

use std::path::Path;
use std::process::ExitCode;

use tidegate_gateway::base::clock::Clock;
use tidegate_gateway::config::Config;
use tidegate_settings::Settings;

use crate::results::{exit, say};

pub fn check(file: &Path) -> ExitCode {
    let name = file.display();
    let settings = match Settings::load_valid(file, Clock::new().now().as_millis() / 1000) {
        Ok(settings) => settings,
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| eprintln!("{mistake}\n"));
            let plural = if mistakes.len() == 1 { "" } else { "s" };
            eprintln!("{name}: {} mistake{plural}", mistakes.len());
            return ExitCode::from(2);
        }
    };
    let (mut keys, capacity) = (settings.room.keys.clone(), settings.explain_capacity());
    let warnings = settings.warnings();
    if keys.is_empty() {
        // `run` would make a key; the rest is compiled as `run` does.
        keys.push(format!("1:{}", "00".repeat(32)));
    }
    if let Err(e) = Config::new(settings, &keys) {
        eprintln!("{name}: {e}");
        return ExitCode::from(2);
    }
    warnings.iter().for_each(|warning| eprintln!("{name}: warning: {warning}"));
    exit(say(format_args!("{name}: ok\ncapacity: {capacity}\n")))
}

pub fn print_default() -> ExitCode {
    exit(say(Settings::print_default()))
}
