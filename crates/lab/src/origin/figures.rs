//! The origin's figures as text: in node_exporter's format for scrapers of hosts, and as JSON.
//!
//! Each stage is shown as a host whose CPUs are the stage's servers: `user` is time at work, `idle` the rest.
//! So whatever computes the utilisation of real hosts does the same here: 1 − rate(idle) / rate(all), the
//! mean over the CPUs.

use std::fmt::{Display, Write};

use serde_json::{Value, json};

use super::Stats;
use super::control::Control;
use crate::model::StageStats;

const CPU: &str = "node_cpu_seconds_total";
const LOAD1: &str = "node_load1";
const LOAD1_HELP: &str = "Requests at work or in line for a server, averaged over about a second.";
/// Read twice, it gives the exact mean of the load between the two.
const LOAD: &str = "tidegate_origin_stage_load_seconds_total";
const LOAD_HELP: &str = "Seconds that requests have been at work or in line for a server.";

pub(super) fn all(control: &Control) -> String {
    let mut text = String::new();
    let stages = stages(control);
    head(&mut text, CPU, "Seconds the CPUs spent in each mode.", "counter");
    for (replica, stage) in &stages {
        let labels = format!("stage=\"{}\",replica=\"{replica}\",", escaped(&stage.name));
        cpus(&mut text, &labels, 0, stage);
    }
    head(&mut text, LOAD, LOAD_HELP, "counter");
    for (replica, stage) in &stages {
        let labels = format!("stage=\"{}\",replica=\"{replica}\"", escaped(&stage.name));
        let _ = writeln!(text, "{LOAD}{{{labels}}} {}", stage.load_us as f64 / 1e6);
    }
    let mut gauge = |name: &str, help: &str, value: fn(&StageStats) -> f64| {
        head(&mut text, name, help, "gauge");
        for (replica, stage) in &stages {
            let labels = format!("stage=\"{}\",replica=\"{replica}\"", escaped(&stage.name));
            let _ = writeln!(text, "{name}{{{labels}}} {}", value(stage));
        }
    };
    gauge(LOAD1, LOAD1_HELP, |stage| stage.load);
    gauge("tidegate_origin_stage_servers", "Servers of the stage.", |stage| stage.servers.into());
    gauge("tidegate_origin_stage_busy", "Servers at work.", |stage| stage.busy.into());
    gauge("tidegate_origin_stage_queue", "Requests in line for a server.", |stage| stage.queued.into());
    requests(&mut text, &control.stats(), control.replicas());
    text
}

/// One stage of all replicas as a host of its own; `None`: there is no such stage.
pub(super) fn host(control: &Control, name: &str) -> Option<String> {
    let stages = stages(control);
    let ours = || stages.iter().map(|(_, stage)| stage).filter(|stage| stage.name == name);
    ours().next()?;
    let mut text = String::new();
    head(&mut text, CPU, "Seconds the CPUs spent in each mode.", "counter");
    let mut first = 0;
    for stage in ours() {
        cpus(&mut text, "", first, stage);
        first += stage.busy_us.len();
    }
    let sum = |value: fn(&StageStats) -> u32| ours().map(value).sum::<u32>();
    let [running, queue] = [sum(|stage| stage.busy), sum(|stage| stage.queued)];
    gauge(&mut text, "node_procs_running", "Requests at work or in line for a server.", running + queue);
    gauge(&mut text, LOAD1, LOAD1_HELP, ours().map(|stage| stage.load).sum::<f64>());
    let load_us: u64 = ours().map(|stage| stage.load_us).sum();
    head(&mut text, LOAD, LOAD_HELP, "counter");
    let _ = writeln!(text, "{LOAD} {}", load_us as f64 / 1e6);
    gauge(&mut text, "tidegate_origin_stage_busy", "Servers at work.", running);
    gauge(&mut text, "tidegate_origin_stage_queue", "Requests in line for a server.", queue);
    Some(text)
}

pub(super) fn stage_names(control: &Control) -> Vec<String> {
    let mut names: Vec<String> = stages(control).into_iter().map(|(_, stage)| stage.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

pub(super) fn stats(control: &Control) -> Value {
    let doors = control.doors.iter().map(|door| json!({"addr": door.addr, "open": *door.open.borrow()}));
    let services = control.services.iter();
    let services = services.map(|service| json!({"stats": service.stats(), "stages": service.stages()}));
    json!({
        "total": control.stats(),
        "replicas": doors.collect::<Vec<_>>(),
        "services": services.collect::<Vec<_>>(),
    })
}

fn stages(control: &Control) -> Vec<(usize, StageStats)> {
    let services = control.services.iter().enumerate();
    services.flat_map(|(i, service)| service.stages().into_iter().map(move |stage| (i, stage))).collect()
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn gauge(text: &mut String, name: &str, help: &str, value: impl Display) {
    head(text, name, help, "gauge");
    let _ = writeln!(text, "{name} {value}");
}

/// `labels` end with a comma, if there are any. CPUs are numbered from `first`.
fn cpus(text: &mut String, labels: &str, first: usize, stage: &StageStats) {
    for (i, (busy, idle)) in stage.busy_us.iter().zip(&stage.idle_us).enumerate() {
        let cpu = first + i;
        for (mode, us) in [("idle", idle), ("user", busy)] {
            let seconds = *us as f64 / 1e6;
            let _ = writeln!(text, "{CPU}{{{labels}cpu=\"{cpu}\",mode=\"{mode}\"}} {seconds}");
        }
    }
}

fn requests(text: &mut String, stats: &Stats, replicas: usize) {
    let name = "tidegate_origin_requests_total";
    head(text, name, "Requests by how they ended.", "counter");
    for (outcome, count) in [
        ("served", stats.served),
        ("refused", stats.refused),
        ("wasted", stats.wasted),
        ("abandoned", stats.abandoned),
        ("lost", stats.lost),
        ("failed", stats.failed),
    ] {
        let _ = writeln!(text, "{name}{{outcome=\"{outcome}\"}} {count}");
    }
    gauge(text, "tidegate_origin_in_service", "Requests that hold a worker.", stats.in_service);
    gauge(text, "tidegate_origin_queue", "Requests waiting for a worker.", stats.queued);
    gauge(text, "tidegate_origin_streaming", "Requests whose answer goes on.", stats.streaming);
    gauge(text, "tidegate_origin_replicas", "Replicas in service.", replicas);
}

/// A label's value, as the exposition format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
