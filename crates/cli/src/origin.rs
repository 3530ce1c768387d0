//! `tidegate origin`: runs a service to put a gate in front of, until a signal.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args as ClapArgs, ValueEnum};
use serde_json::json;
use tidegate_gateway::base::log;
use tidegate_lab::limits::raise_open_files;
use tidegate_lab::origin::shop::{self, Shop, Size, Tiers};
use tidegate_lab::origin::{Origin, OriginConfig, OriginHandle, Service, Shopped};
use tidegate_lab::scenario::{Mistakes, OriginSpec, Scenario, ShopSpec};
use tidegate_settings::Settings;
use tokio::signal::unix::{SignalKind, signal};

use crate::parse::assignment;
use crate::results::exit;

/// `tidegate origin`
#[derive(ClapArgs, Debug)]
pub struct OriginOptions {
    /// Scenario whose `[origin]` is played [default: ten workers at 100 ms].
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<PathBuf>,
    /// Address of the first replica; the others take the next ports. Port 0: any free port for each.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    pub listen: SocketAddr,
    /// Address of the admin port, for figures and changes while it runs. Port 0: any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub admin: SocketAddr,
    /// Requests per second that all replicas serve together: sets the service time.
    #[arg(long, value_name = "PER_SECOND", conflicts_with = "service")]
    pub capacity: Option<f64>,
    /// Requests that a replica serves at once.
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// Service time of a request: a time or a distribution, e.g. `100ms` or `exponential(100ms)`.
    #[arg(long, value_name = "TIME")]
    pub service: Option<String>,
    /// Number of replicas, each on a port of its own.
    #[arg(long, value_name = "N")]
    pub replicas: Option<u32>,
    /// What a request takes.
    #[arg(long)]
    pub mode: Option<OriginMode>,
    /// Number of items in the shop: small, medium or large; the time of a search is proportional to it
    /// [default: the scenario's, or medium].
    #[arg(long, value_name = "SIZE", value_parser = str::parse::<Size>)]
    pub shop_size: Option<Size>,
    /// Directory of the shop's database [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    pub shop_dir: Option<PathBuf>,
    /// The same seed gives the same service demands [default: the scenario's].
    #[arg(long)]
    pub seed: Option<u64>,
    /// Any key of the scenario, e.g. `--set origin.backlog=1000`.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Print one JSON object with the addresses instead of a line for each.
    #[arg(long)]
    pub json: bool,
}

/// What a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OriginMode {
    /// Time: the servers sleep, so one core has room for any number.
    Sleep,
    /// CPU time: the servers spin.
    Spin,
    /// Queries: an auction over SQLite.
    Shop,
}

/// Runs the service until SIGTERM or SIGINT.
pub fn origin(options: &OriginOptions) -> ExitCode {
    if let Err(error) = log::init(&Settings::default().log, Some("warn")) {
        eprintln!("tidegate: {error}");
        return ExitCode::from(2);
    }
    let (spec, seed) = match read(options) {
        Ok(read) => read,
        Err(mistake) => {
            eprintln!("{mistake}");
            return ExitCode::from(2);
        }
    };
    // The backlog must limit an overloaded service, not the soft limit of a shell.
    raise_open_files();
    let config = OriginConfig { addr: options.listen, admin: Some(options.admin), spec, seed };
    exit(start(options, config).and_then(|origin| serve(options, origin)))
}

/// The service that file and options describe together, and the seed.
fn read(options: &OriginOptions) -> Result<(OriginSpec, u64), String> {
    let mut overrides = options.set.clone();
    let mut flag = |key: &str, value: Option<String>| {
        overrides.extend(value.map(|value| (key.into(), value)));
    };
    let in_shop = options.mode == Some(OriginMode::Shop);
    if in_shop && (options.service.is_some() || options.capacity.is_some()) {
        return Err(
            "--mode shop: expected neither --service nor --capacity; the database determines how long requests take"
                .into(),
        );
    }
    flag("seed", options.seed.map(|seed| seed.to_string()));
    flag("origin.workers", options.workers.map(|n| n.to_string()));
    flag("origin.replicas", options.replicas.map(|n| n.to_string()));
    flag("origin.service", options.service.clone());
    flag("origin.mode", options.mode.filter(|_| !in_shop).map(|mode| format!("{mode:?}").to_lowercase()));
    let mut scenario = load(options, &overrides).map_err(|mistakes| mistakes.to_string())?;
    if let Some(capacity) = options.capacity {
        if !(0.001..=1e6).contains(&capacity) {
            return Err(format!("--capacity: expected 0.001 to 1000000 requests per second; got {capacity}"));
        }
        let OriginSpec { workers, replicas, .. } = scenario.origin;
        let service_us = f64::from(workers) * f64::from(replicas) * 1e6 / capacity;
        overrides.push(("origin.service".into(), format!("{service_us}us")));
        scenario = load(options, &overrides).map_err(|mistakes| mistakes.to_string())?;
    }
    Ok((scenario.origin, scenario.seed))
}

fn load(options: &OriginOptions, overrides: &[(String, String)]) -> Result<Scenario, Mistakes> {
    match &options.scenario {
        Some(file) => Scenario::load_with(file, overrides),
        None => Scenario::parse("", "command line", Path::new(""), overrides),
    }
}

fn start(options: &OriginOptions, config: OriginConfig) -> io::Result<OriginHandle> {
    let OriginSpec { replicas, backlog, notices_leavers, shop: described, .. } = config.spec;
    let shop = match options.mode {
        Some(OriginMode::Shop) => Some(described.unwrap_or_default()),
        Some(_) => None,
        None => described,
    };
    let Some(ShopSpec { size, workers, connections }) = shop else {
        return Origin::start(config).map_err(io::Error::other);
    };
    let tiers = Tiers {
        workers: options.workers.unwrap_or(workers) as usize,
        backlog: backlog as usize,
        connections: connections as usize,
        notices_leavers,
    };
    let shop = Shop::open(options.shop_dir.as_deref(), options.shop_size.unwrap_or(size), config.seed);
    let shop = Arc::new(shop.map_err(io::Error::other)?);
    let service = |_| -> io::Result<Arc<dyn Service>> {
        let service = shop::Service::start(Arc::clone(&shop), tiers).map_err(io::Error::other)?;
        Ok(Arc::new(Shopped::new(service)))
    };
    let services = (0..replicas).map(service).collect::<io::Result<_>>()?;
    Origin::serve(&config, services).map_err(io::Error::other)
}

fn serve(options: &OriginOptions, origin: OriginHandle) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Installed before the addresses are printed: a reader of them may send a signal at once.
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        say(options, &origin)?;
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        io::Result::Ok(())
    })?;
    origin.stop();
    Ok(())
}

fn say(options: &OriginOptions, origin: &OriginHandle) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{}", json!({"addrs": origin.addrs(), "admin": origin.admin()}))?;
    } else {
        for (i, addr) in origin.addrs().iter().enumerate() {
            writeln!(out, "replica {i}: http://{addr}/")?;
        }
        if let Some(admin) = origin.admin() {
            writeln!(out, "admin: http://{admin}/stats")?;
        }
    }
    out.flush()
}
