//! `tidegate run`: settings from file and flags, then the gate until a signal.

use std::process::ExitCode;

use tidegate_gateway::base::log;
use tidegate_gateway::server::{Server, Source};
use tidegate_settings::{Override, Settings};

use crate::args::RunOptions;
use crate::{signals, status_line};

/// Runs the gate until SIGTERM or SIGINT.
pub fn run(options: &RunOptions) -> ExitCode {
    let source = Source { file: options.config.clone(), overrides: overrides(options) };
    let settings = match source.read() {
        Ok(settings) => settings,
        Err(mistakes) => {
            for mistake in &mistakes {
                eprintln!("{mistake}\n");
            }
            return ExitCode::from(2);
        }
    };
    let log = match log::init(&settings.log, None) {
        Ok(log) => log,
        Err(e) => {
            eprintln!("tidegate: {e}");
            return ExitCode::from(2);
        }
    };
    let capacity = settings.explain_capacity();
    if settings.lets_everybody_in() {
        tracing::warn!(
            "nobody will ever wait: capacity.estimator is \"fixed\" and there is no capacity.rate; give one, \
             set it while running with PUT /v1/capacity, or choose an estimator that discovers it"
        );
    }
    let replicas = settings.origin.replicas.join(", ");
    let server = match Server::start(settings, source) {
        Ok(server) => server,
        Err(e) => {
            eprintln!("tidegate: {e}");
            return ExitCode::FAILURE;
        }
    };
    server.control().store().steer_log(log);
    tracing::info!(http = %server.http(), admin = %server.admin(), origin = %replicas, "ready");
    tracing::info!("capacity: {capacity}");
    let signals = match signals::watch(server.control().clone()) {
        Ok(signals) => signals,
        Err(e) => {
            eprintln!("tidegate: cannot watch for signals: {e}");
            return ExitCode::FAILURE;
        }
    };
    let line = (!options.quiet).then(|| status_line::start(server.control().clone())).flatten();
    server.join();
    if let Some(line) = line {
        line.stop();
    }
    drop(signals);
    tracing::info!("stopped");
    ExitCode::SUCCESS
}

/// The short flags are overrides like any other: they win over the file and go through the same checks.
fn overrides(options: &RunOptions) -> Vec<Override> {
    let mut set = Vec::new();
    if let Some(origin) = &options.origin {
        set.extend(Settings::origin_overrides(origin, None, None));
    }
    if let Some(capacity) = options.capacity {
        set.push(Override::option("--capacity", "capacity.rate", &capacity.to_string()));
    }
    for (flag, key, addr) in
        [("--listen", "listen.http", options.listen), ("--admin", "listen.admin", options.admin)]
    {
        set.extend(addr.map(|addr| Override::option(flag, key, &addr.to_string())));
    }
    set.extend(options.set.iter().map(|assignment| Override::set(assignment)));
    set
}
