//! The `tidegate` binary: reads the command line and hands over.

use std::process::ExitCode;

use clap::Parser;

mod args;
mod check;
mod ctl;
mod demo;
mod experiment;
mod load;
mod origin;
mod results;
mod run;
mod signals;
mod sim;
mod status_line;

use args::{Args, Command, ConfigCommand};

fn main() -> ExitCode {
    match Args::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Check { file } => check::check(&file),
        Command::Config { command: ConfigCommand::Default } => check::print_default(),
        Command::Ctl(options) => ctl::ctl(&options),
        Command::Explain(options) => ctl::explain(options),
        Command::Demo(options) => demo::demo(&options),
        Command::Load(options) => load::load(&options),
        Command::Origin(options) => origin::origin(&options),
        Command::Sim(args) => sim::sim(&args),
        Command::Experiment(options) => experiment::experiment(&options),
    }
}
