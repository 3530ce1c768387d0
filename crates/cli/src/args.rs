//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

/// Largest seed of a scenario, whose integers are TOML's.
pub const MAX_SEED: u64 = i64::MAX as u64;

/// A key of a scenario and its value, as `--set` has them.
///
/// # Errors
/// There is no `=`.
pub fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.trim().into(), value.trim().into()))
}

/// An overload-control gateway: lets through as many visitors as your service can take, and gives everyone else
/// an honest, enforced place in a waiting room.
#[derive(Parser, Debug)]
#[command(version, about, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Put the gate in front of a service.
    Run(RunOptions),
    /// Say everything that is wrong with a configuration file.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Print configurations.
    Config {
        /// Which.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Look at a running gate, and change what it goes by.
    Ctl(crate::ctl::CtlOptions),
    /// Say why a running gate refused a request.
    Explain(crate::ctl::ExplainOptions),
    /// Show a service collapse, and the same service behind the gate.
    Demo(DemoOptions),
    /// Send a crowd to a service, or to the gate in front of it, and say what it met with.
    Load(crate::load::LoadArgs),
    /// Play a service: a model of workers, stages and replicas, or a real shop over SQLite.
    Origin(crate::origin::OriginOptions),
    /// Play a scenario in virtual time, on the gate's own decisions.
    Sim(crate::sim::SimArgs),
    /// Play the papers' figures again and lay the results beside theirs.
    Experiment(crate::experiment::ExperimentOptions),
}

/// Which configuration to print.
#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    /// Every key with its meaning and default.
    Default,
}

/// `tidegate run`
#[derive(ClapArgs, Debug)]
pub struct RunOptions {
    /// Configuration file.
    #[arg(long, short, value_name = "FILE", required_unless_present = "origin")]
    pub config: Option<PathBuf>,
    /// The service to protect, HOST:PORT; enough to run without a file.
    #[arg(long, value_name = "HOST:PORT")]
    pub origin: Option<String>,
    /// What the service can take, in requests per second; found out if not given.
    #[arg(long, value_name = "PER_SECOND")]
    pub capacity: Option<f64>,
    /// Address for visitors [default: 0.0.0.0:8080].
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
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

/// `tidegate demo`
#[derive(ClapArgs, Debug)]
pub struct DemoOptions {
    /// The crowd, as a multiple of the service's capacity.
    #[arg(long, default_value_t = 10.0, value_name = "N")]
    pub factor: f64,
    /// What the service can take, in requests per second.
    #[arg(long, default_value_t = 100.0, value_name = "PER_SECOND")]
    pub capacity: f64,
    /// For how many seconds the crowd comes.
    #[arg(long, default_value_t = 4.0, value_name = "SECONDS")]
    pub crowd: f64,
    /// Share of visitors who never come back after being told to wait.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub no_shows: f64,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Keep service, gate and a modest crowd running for a browser.
    #[arg(long)]
    pub serve: bool,
    /// Same seed, same crowd.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
