//! `tidegate check` and `tidegate config default`.

use std::path::Path;
use std::process::ExitCode;

use tidegate_gateway::live::Live;
use tidegate_gateway::settings::Settings;

/// Says everything that is wrong with `file`; 0 if nothing is.
pub fn check(file: &Path) -> ExitCode {
    match Settings::load(file) {
        Ok(settings) => {
            let keys = settings.room.keys.clone();
            // A ring without keys gets one at the start; the rest is compiled as `run` would.
            let key = format!("1:{}", "00".repeat(32));
            if let Err(e) =
                Live::new(settings, if keys.is_empty() { std::slice::from_ref(&key) } else { &keys })
            {
                eprintln!("{}: {e}", file.display());
                return ExitCode::from(2);
            }
            println!("{}: ok", file.display());
            ExitCode::SUCCESS
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
    print!("{}", Settings::print_default());
    ExitCode::SUCCESS
}
