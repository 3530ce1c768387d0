//! A run over real processes on loopback: a model origin or a real shop, a gate in front of it if the
//! scenario has one, and a load generator, each started from this very program. Afterwards what the origin
//! saw is laid beside what the visitors did.
//!
//! Both report when they began, by the wall clock. The seconds of the two do not begin at the same instant:
//! an origin's second is put beside the second of the load in which it ends, so that nothing is lost at the
//! beginning, and shows up to a second late. Requests that reach the origin in one of its own seconds is
//! exact.
//!
//! The origin's admin port is not known beforehand. A detector of the gate whose source begins with
//! `http://origin/` is given that port: `http://origin/metrics/db` are the figures of the stage `db`.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use tidegate_gateway::base::clock::Clock;

use super::gate_watch::{self, GateWatch};
use crate::child::{Child, Place, pause};
use crate::outcome::{DoorSecond, Outcome};
use crate::scenario::{GateSpec, Scenario};
use crate::scratch::Scratch;

/// Time for a process to be ready; only a broken one needs it all.
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// Time beyond the scenario's deadline for a load generator to end by itself.
const LOAD_PATIENCE: Duration = Duration::from_secs(60);
/// Stands for the origin's admin port in the sources of detectors.
const ORIGIN_ADMIN: &str = "http://origin/";
/// A file system in memory, on Linux.
const MEMORY: &str = "/dev/shm";
/// Longest wait for one answer of the origin's admin port.
const ADMIN_PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Order<'a> {
    pub program: &'a Path,
    pub scenario: &'a Scenario,
    pub text: &'a str,
    pub set: &'a [(String, String)],
    /// Set from outside when everything shall end.
    pub stop: &'a AtomicBool,
    pub clock: &'a Clock,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("{what}: {error}")]
    System { what: String, error: io::Error },
    #[error("{0}")]
    Process(String),
    #[error("interrupted")]
    Stopped,
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Trouble {
    let what = what.into();
    move |error| Trouble::System { what, error }
}

/// Plays it. An outcome whose processes did not all live to the end is marked as partial.
///
/// # Errors
/// See [`Trouble`]: there is no outcome at all.
pub(super) fn play(order: &Order) -> Result<Outcome, Trouble> {
    let scratch =
        Scratch::new("experiment").map_err(|(_, error)| system("a directory for the run")(error))?;
    let dir = scratch.path();
    let file = dir.join("scenario.toml");
    std::fs::write(&file, order.text).map_err(system("the scenario file"))?;
    let (process, origin) = start_origin(order, &file, dir)?;
    let mut others = Others(vec![process]);
    let mut target =
        *origin.addrs.first().ok_or_else(|| Trouble::Process("the origin has no replica".into()))?;
    let mut listener = None;
    if let Some(gate) = &order.scenario.gate {
        let (http, watch) = start_gate(order, gate, &origin, dir, &mut others.0)?;
        target = http;
        let has_types = !order.scenario.types().types.is_empty();
        let detector = gate.settings.detector.first().map(|detector| detector.name.as_str());
        listener = Some(if has_types { watch.also_findings(detector) } else { watch });
    }
    let mut arguments = words(&["load"]);
    arguments.push(file.into());
    arguments.extend(words(&["--json", "--quiet", "--url", &format!("http://{target}/")]));
    arguments.extend(settings(order));
    let mut load = start(order, "load", &arguments, dir)?;
    let trouble = watch(order, &mut load, &mut others.0, &mut listener);
    let mut outcome: Outcome = serde_json::from_str(&load.output()).map_err(|error| {
        let why = trouble.clone().unwrap_or_else(|| load.ending());
        Trouble::Process(format!("the load generator left no outcome ({error}); {why}"))
    })?;
    outcome.partial = trouble.or(outcome.partial);
    if let (Some(listener), Some(started_us)) = (listener, outcome.started_us) {
        outcome.set_gate(&listener.seconds(started_us));
        let findings = listener.findings();
        outcome.summary.extend(findings.iter().flat_map(|f| f.figures(order.scenario, started_us)));
    }
    match series(origin.admin) {
        Ok(series) => merge(&mut outcome, &series),
        Err(error) => {
            outcome.partial.get_or_insert(format!("the origin did not tell what it saw: {error}"));
        }
    }
    Ok(outcome)
}

/// The processes beside the load generator, in the order in which they were started. They end in reverse: a
/// gate would report an origin that vanishes.
struct Others(Vec<Child>);

impl Drop for Others {
    fn drop(&mut self) {
        while let Some(child) = self.0.pop() {
            drop(child);
        }
    }
}

/// Waits for the load generator; says why it was ended early, if it was: asked to stop, or another did not
/// live until then.
fn watch(
    order: &Order,
    load: &mut Child,
    others: &mut [Child],
    listener: &mut Option<GateWatch>,
) -> Option<String> {
    let lasts = order.scenario.deadline.unwrap_or_default() + LOAD_PATIENCE;
    let deadline = order.clock.now() + lasts;
    let mut trouble = None;
    loop {
        if load.ended().is_some() {
            return trouble;
        }
        let died = others.iter_mut().find_map(|child| child.ended().map(|_| child.ending()));
        let late = order.clock.now() >= deadline;
        let why = died.or_else(|| late.then(|| format!("load did not end within {} s", lasts.as_secs())));
        let why = why.or_else(|| order.stop.load(Ordering::Relaxed).then(|| Trouble::Stopped.to_string()));
        if let Some(why) = why.filter(|_| trouble.is_none()) {
            trouble = Some(why);
            // Its results so far are kept: it prints them before it ends.
            load.stop(order.clock);
        }
        if let Some(listener) = listener {
            listener.listen(order.clock);
        }
        pause();
    }
}

fn start_origin(order: &Order, file: &Path, dir: &Path) -> Result<(Child, OriginReady), Trouble> {
    let mut arguments = words(&["origin"]);
    arguments.push(file.into());
    arguments.extend(words(&["--json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]));
    arguments.extend(settings(order));
    // The database of a shop: the system may let its writers wait for seconds while it writes to a busy disk.
    let memory = Some(Path::new(MEMORY)).filter(|path| order.scenario.origin.shop.is_some() && path.is_dir());
    let place = Place { dir, temporary: memory, namespace: None };
    let mut child =
        Child::start(order.program, "origin", &arguments, &place).map_err(system("starting origin"))?;
    let ready = wait_ready(order, &mut child, |child| {
        child.output().lines().find_map(|line| serde_json::from_str(line).ok())
    })?;
    Ok((child, ready))
}

#[derive(Deserialize)]
struct OriginReady {
    addrs: Vec<SocketAddr>,
    admin: SocketAddr,
}

/// Starts the gate, in one or two processes. Returns where visitors go, and what watches it.
fn start_gate(
    order: &Order,
    gate: &GateSpec,
    origin: &OriginReady,
    dir: &Path,
    others: &mut Vec<Child>,
) -> Result<(SocketAddr, GateWatch), Trouble> {
    if let Some(scripts) = gate.settings.tuners.dir.as_deref().filter(|scripts| !scripts.is_dir()) {
        let got = scripts.display();
        return Err(Trouble::Process(format!(
            "gate.tuners.dir: expected a directory of scripts, from where experiments are run; got {got}"
        )));
    }
    let file = dir.join("gate.toml");
    std::fs::write(&file, &gate.text).map_err(system("the gate's configuration"))?;
    let common = |name: &str, listen: SocketAddr, admin: SocketAddr| {
        let mut arguments = words(&["run", "--quiet", "--config"]);
        arguments.push(file.clone().into());
        arguments.extend(words(&["--listen", &listen.to_string(), "--admin", &admin.to_string()]));
        let replicas: Vec<_> = origin.addrs.iter().map(SocketAddr::to_string).collect();
        for detector in &gate.settings.detector {
            if let Some(path) = detector.source.strip_prefix(ORIGIN_ADMIN) {
                let (key, source) = (&detector.name, format!("\"http://{}/{path}\"", origin.admin));
                arguments.extend(set(&format!("detector.{key}.source"), &source));
            }
        }
        arguments.extend(set("origin.replicas", &format!("{replicas:?}")));
        // A path may hold anything but a single quote and a line break, of which ours has neither.
        arguments.extend(set("room.state_dir", &format!("'{}'", dir.join(name).display())));
        arguments.extend(set("log.format", "\"json\""));
        arguments
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut begin = |name: &str, arguments: &[OsString]| {
        let mut child = start(order, name, arguments, dir)?;
        let ready = wait_ready(order, &mut child, |child| {
            child.log().lines().find_map(|line| serde_json::from_str::<GateReady>(line).ok())
        })?;
        others.push(child);
        Ok(ready)
    };
    if !gate.split {
        let GateReady { http, admin } = begin("gate", &common("gate", any, any))?;
        return Ok((http, GateWatch::new(admin, admin)));
    }
    let [generator, generator_admin, check] =
        free_addresses().map_err(system("free ports for the gate's halves"))?;
    let key = set("room.keys", &format!("[\"1:{:064x}\"]", order.clock.now().as_micros()));
    let mut arguments = common("tokengen", generator, generator_admin);
    arguments.extend(key.clone());
    arguments.extend(set("role", "\"tokengen\""));
    arguments.extend(set("tokengen.check_url", &format!("\"http://{check}\"")));
    begin("tokengen", &arguments)?;
    let mut arguments = common("tokencheck", check, any);
    arguments.extend(key);
    arguments.extend(set("role", "\"tokencheck\""));
    arguments.extend(set("tokencheck.gen_url", &format!("\"http://{generator}\"")));
    arguments.extend(set("tokencheck.feedback_url", &format!("\"http://{generator_admin}\"")));
    let ready = begin("tokencheck", &arguments)?;
    Ok((generator, GateWatch::new(generator_admin, ready.admin)))
}

#[derive(Deserialize)]
struct GateReady {
    http: SocketAddr,
    admin: SocketAddr,
}

/// Addresses that nobody listens on. Each half must know the other's before either has started, so the system
/// cannot choose them at the start.
fn free_addresses() -> io::Result<[SocketAddr; 3]> {
    let bind = || std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)));
    // Held all at once, so that they differ.
    let listeners = [bind()?, bind()?, bind()?];
    let [a, b, c] = &listeners;
    Ok([a.local_addr()?, b.local_addr()?, c.local_addr()?])
}

fn start(order: &Order, name: &str, arguments: &[OsString], dir: &Path) -> Result<Child, Trouble> {
    let place = Place { dir, temporary: None, namespace: None };
    Child::start(order.program, name, arguments, &place).map_err(system(format!("starting {name}")))
}

fn wait_ready<T>(order: &Order, child: &mut Child, look: impl Fn(&Child) -> Option<T>) -> Result<T, Trouble> {
    let deadline = order.clock.now() + READY_PATIENCE;
    loop {
        if let Some(ready) = look(child) {
            return Ok(ready);
        }
        if child.ended().is_some() {
            return Err(Trouble::Process(child.ending()));
        }
        if order.stop.load(Ordering::Relaxed) {
            return Err(Trouble::Stopped);
        }
        if order.clock.now() >= deadline {
            let seconds = READY_PATIENCE.as_secs();
            return Err(Trouble::Process(format!("{} was not ready within {seconds} s", child.name)));
        }
        pause();
    }
}

fn settings(order: &Order) -> impl Iterator<Item = OsString> {
    order.set.iter().flat_map(|(key, value)| set(key, value))
}

fn set(key: &str, value: &str) -> [OsString; 2] {
    ["--set".into(), format!("{key}={value}").into()]
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

#[derive(Debug, Deserialize, PartialEq)]
pub(super) struct OriginSeries {
    started_us: u64,
    seconds: Vec<OriginSecond>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
struct OriginSecond {
    t: u64,
    arrived: u64,
    served: u64,
    present: u64,
}

fn series(admin: SocketAddr) -> io::Result<OriginSeries> {
    serde_json::from_str(&gate_watch::get(admin, "/series", ADMIN_PATIENCE)?).map_err(io::Error::other)
}

/// Joins the origin's requests with the visitors' figures. Those before the visitors came are left out; that
/// is nothing.
pub(super) fn merge(outcome: &mut Outcome, origin: &OriginSeries) {
    let Some(load_us) = outcome.started_us else { return };
    let ahead_us = i128::from(origin.started_us) - i128::from(load_us);
    let door = origin.seconds.iter().filter_map(|second| {
        let last_us = ahead_us + i128::from(second.t + 1) * 1_000_000 - 1;
        let t = u64::try_from(last_us.div_euclid(1_000_000)).ok()?;
        let OriginSecond { arrived, served, present, .. } = *second;
        Some(DoorSecond { t, door: arrived, served, present })
    });
    // The origin lives a little longer than the load: its idle seconds afterwards are no part of the run.
    let last = outcome.series.len() as u64;
    outcome.set_door(door.filter(|second| second.t < last || second.door + second.present > 0));
}
