//! `tidegate run`: reads the settings from file and options and runs the gate until a signal.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use tidegate_gateway::base::log;
use tidegate_gateway::server::{Server, Source};
use tidegate_settings::Override;
use tidegate_settings::kind::toml_string;

use crate::results::fail;
use crate::signals::Reloads;
use crate::status_line;

/// `tidegate run`
#[derive(ClapArgs, Debug)]
pub struct RunOptions {
    /// Configuration file.
    #[arg(long, short, value_name = "FILE", required_unless_present = "origin")]
    pub config: Option<PathBuf>,
    /// The service to protect, HOST:PORT; enough to run without a file.
    #[arg(long, value_name = "HOST:PORT")]
    pub origin: Option<String>,
    /// Host name of the service: the gate listens at ports 443 and 80, and gets a certificate from Let's
    /// Encrypt, whose terms you accept with this option. May be repeated.
    #[arg(long, value_name = "HOST")]
    pub domain: Vec<String>,
    /// What the service can take, in requests per second; discovered if not given.
    #[arg(long, value_name = "PER_SECOND")]
    pub capacity: Option<f64>,
    /// Address for visitors [default: 0.0.0.0:8080].
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Address of the admin API [default: 127.0.0.1:9090].
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
    /// Any key of the configuration, e.g. `--set room.max_wait=10m`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// No live status line.
    #[arg(long)]
    pub quiet: bool,
}

/// Runs the gate until SIGTERM or SIGINT.
pub fn run(options: &RunOptions) -> ExitCode {
    let reloads = match Reloads::hold() {
        Ok(reloads) => reloads,
        Err(e) => return fail(format_args!("cannot watch for signals: {e}")),
    };
    let source = Source { file: options.config.clone(), overrides: overrides(options) };
    let settings = match source.read() {
        Ok(settings) => settings,
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| eprintln!("{mistake}\n"));
            return ExitCode::from(2);
        }
    };
    let log = match log::init(&settings.log, None) {
        Ok(log) => log,
        Err(e) => {
            fail(e);
            return ExitCode::from(2);
        }
    };
    let capacity = settings.explain_capacity();
    if settings.lets_everybody_in() {
        tracing::warn!(
            "nobody will ever wait: capacity.rate is the largest number; set another in the file or with \
             PUT /v1/capacity, or choose an estimator that discovers the capacity"
        );
    }
    let http = settings.listen.http.clone();
    let replicas = settings.origin.replicas.join(", ");
    let server = match Server::start(settings, source) {
        Ok(server) => server,
        Err(e) => return fail(e),
    };
    server.control().store().steer_log(log);
    let https = server.https().map(tracing::field::display);
    let http = http.ip().map_or_else(|| http.to_string(), |_| server.http().to_string());
    tracing::info!(http, https, admin = %server.admin(), origin = %replicas, "ready");
    tracing::info!("capacity: {capacity}");
    let signals = match reloads.watch(server.control().clone()) {
        Ok(signals) => signals,
        Err(e) => return fail(format_args!("cannot watch for signals: {e}")),
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

/// The short options are overrides like `--set`: they replace values of the file and are checked in the same
/// way.
fn overrides(options: &RunOptions) -> Vec<Override> {
    let mut set: Vec<_> = options.origin.iter().map(|origin| Override::origin(origin)).collect();
    if !options.domain.is_empty() {
        let names: Vec<_> = options.domain.iter().map(|name| toml_string(name)).collect();
        let keys = [
            ("acme.domains", format!("[{}]", names.join(", "))),
            ("listen.http", "0.0.0.0:80".into()),
            ("listen.https", "0.0.0.0:443".into()),
            ("listen.redirect_https", "true".into()),
        ];
        set.extend(keys.map(|(key, value)| Override::option("--domain", key, &value)));
    }
    let short = [
        ("--capacity", "capacity.rate", options.capacity.map(|rate| rate.to_string())),
        ("--listen", "listen.http", options.listen.clone()),
        ("--admin", "listen.admin", options.admin.map(|addr| addr.to_string())),
    ];
    for (flag, key, value) in short {
        set.extend(value.map(|value| Override::option(flag, key, &value)));
    }
    set.extend(options.set.iter().map(|assignment| Override::set(assignment)));
    set
}
