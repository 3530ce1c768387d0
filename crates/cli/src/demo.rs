//! `tidegate demo`: the demonstration of the lab, with the gate that `tidegate run` starts.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use tidegate_core::capacity::Phase;
use tidegate_gateway::server::{Server, Source};
use tidegate_lab::demo::{self, DemoOptions as LabOptions, GateEstimate, Gatekeeper, RunningGate};
use tidegate_lab::scratch::Scratch;
use tidegate_settings::Settings;

use crate::results::exit;

/// `tidegate demo`
#[derive(ClapArgs, Debug)]
pub struct DemoOptions {
    /// The crowd, as a multiple of the service's capacity.
    #[arg(long, default_value_t = 10.0, value_name = "N")]
    pub factor: f64,
    /// What the service can take, in requests per second.
    #[arg(long, default_value_t = 100.0, value_name = "PER_SECOND")]
    pub capacity: f64,
    /// How long the crowd comes, in seconds.
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
    /// The same seed gives the same crowd.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

pub fn demo(options: &DemoOptions) -> ExitCode {
    let lab = LabOptions {
        factor: options.factor,
        capacity: options.capacity,
        crowd_secs: options.crowd,
        no_shows: options.no_shows,
        json: options.json,
        serve: options.serve,
        seed: options.seed,
    };
    exit(demo::demo(lab, &RealGate).map(|_| ()))
}

/// Starts gates on loopback, with their state in a directory of their own.
struct RealGate;

impl Gatekeeper for RealGate {
    fn start(&self, origin: SocketAddr) -> io::Result<RunningGate> {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let state = Scratch::new("demo").map_err(|(_, error)| error)?;
        let mut settings = Settings::default();
        settings.origin.replicas = vec![origin.to_string()];
        settings.listen.http = loopback.into();
        settings.listen.admin = loopback;
        settings.room.state_dir = Some(state.path().to_owned());
        let server = Server::start(settings, Source::default()).map_err(io::Error::other)?;
        let (addr, admin) = (server.http(), server.admin());
        let control = server.control().clone();
        let estimate = Box::new(move || {
            let capacity = control.capacity();
            GateEstimate {
                capacity_rps: capacity.tunables().capacity.get(),
                in_flight: capacity.tunables().max_in_flight,
                is_settled: matches!(capacity.estimate().phase, Phase::Settled | Phase::Configured),
            }
        });
        let stop = Box::new(move || {
            server.stop();
            drop(state);
        });
        Ok(RunningGate { addr, admin, estimate, stop })
    }
}
