//! The `tidegate` binary: parses the command line and runs a subcommand.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod analyze;
mod check;
mod ctl;
mod demo;
mod doctor;
mod experiment;
mod load;
mod origin;
mod parse;
mod results;
mod run;
mod signals;
mod sim;
mod status_line;

/// An overload-control gateway: lets through as many visitors as your service can take, and gives everyone
/// else an honest, enforced turn in a waiting room.
#[derive(Parser, Debug)]
#[command(version, about, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Put the gate in front of a service.
    Run(run::RunOptions),
    /// Report every mistake in a configuration file.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Say what of the gate works on this machine, what does not, why, and what to do.
    Doctor(doctor::DoctorOptions),
    /// Print configurations.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Look at a running gate, and change its tunables.
    Ctl(ctl::CtlOptions),
    /// Explain why a running gate refused a request.
    Explain(ctl::ExplainOptions),
    /// Show a service collapse, and the same service behind the gate.
    Demo(demo::DemoOptions),
    /// Send a crowd to a service, or to the gate in front of it, and report what the visitors experienced.
    Load(load::LoadArgs),
    /// Run a service for tests: a model of workers, stages and replicas, or a real shop over SQLite.
    Origin(origin::OriginOptions),
    /// Play a scenario in virtual time, with the gate's own decisions.
    Sim(sim::SimArgs),
    /// Repeat the measurements behind the papers' figures and compare the results.
    Experiment(experiment::ExperimentOptions),
    /// Find out which kinds of requests load a bottleneck, from an access log and the host's figures.
    Analyze(analyze::AnalyzeArgs),
}

#[derive(Subcommand, Debug)]
enum ConfigCommand {
    /// Every key with its meaning and default.
    Default,
}

fn main() -> ExitCode {
    match Args::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Check { file } => check::check(&file),
        Command::Doctor(options) => doctor::doctor(&options),
        Command::Config { command: ConfigCommand::Default } => check::print_default(),
        Command::Ctl(options) => ctl::ctl(&options),
        Command::Explain(options) => ctl::explain(options),
        Command::Demo(options) => demo::demo(&options),
        Command::Load(options) => load::load(&options),
        Command::Origin(options) => origin::origin(&options),
        Command::Sim(args) => sim::sim(&args),
        Command::Experiment(options) => experiment::experiment(&options),
        Command::Analyze(args) => analyze::analyze(&args),
    }
}
