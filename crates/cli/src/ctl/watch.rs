//! `tidegate ctl watch`: prints a line a second from the gate's event stream.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args as ClapArgs;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use super::client::Client;
use super::{Failure, Form, show};

const DEFAULT: [&str; 9] = [
    "offered_per_s",
    "admitted_per_s",
    "goodput_per_s",
    "response_ms.p99",
    "capacity.rate",
    "capacity.max_in_flight",
    "gate.in_flight",
    "gate.queued",
    "room.waiting",
];
/// Lines after which the names of the columns are printed again.
const HEAD_EVERY: usize = 20;
/// Time before a broken connection is made again, as in the stream's own `retry`.
const RETRY: Duration = Duration::from_secs(1);
/// Longest line of a stream; the state of a gate with hundreds of classes is shorter.
const MAX_LINE_BYTES: usize = 1 << 20;

/// `tidegate ctl watch`
#[derive(ClapArgs, Debug)]
pub struct WatchOptions {
    /// Figures of `tidegate ctl state`, e.g. `room.waiting`, `classes.search.offered_per_s`.
    #[arg(value_name = "METRIC")]
    metrics: Vec<String>,
    /// Seconds between two lines.
    #[arg(long, default_value_t = 1, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    every: u32,
    /// Stop after this many lines.
    #[arg(long, value_name = "N")]
    count: Option<usize>,
}

/// Watches until the gate drains, or for as many lines as wanted. A broken connection is made again.
pub(super) async fn watch(client: &Client, wanted: &WatchOptions, form: Form) -> Result<(), Failure> {
    let metrics: Vec<&str> = match wanted.metrics.is_empty() {
        true => DEFAULT.to_vec(),
        false => wanted.metrics.iter().map(String::as_str).collect(),
    };
    let (path, mut printed) = (format!("/v1/events?every={}", wanted.every), 0);
    loop {
        let mut events = Lines { body: client.open("GET", &path, None).await?.into_body(), rest: Vec::new() };
        let mut name = String::new();
        while let Some(line) = events.next().await {
            match line.split_once(": ").unwrap_or((&line, "")) {
                ("event", "end") => return Ok(()),
                ("event", kind) => kind.clone_into(&mut name),
                ("data", data) if name == "state" => {
                    if form == Form::Json {
                        show::say(data);
                    } else {
                        let state: Value = serde_json::from_str(data)
                            .map_err(|e| client.lost(&format!("that is not a gate's answer ({e})")))?;
                        print(&metrics, &state, printed)?;
                    }
                    printed += 1;
                    if wanted.count.is_some_and(|count| printed >= count) {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Prints line number `printed`, after the names of the columns where they are due.
fn print(metrics: &[&str], state: &Value, printed: usize) -> Result<(), Failure> {
    let figures: HashMap<String, Value> = show::flat(state).into_iter().collect();
    let width = |metric: &&str| metric.len().max(8);
    if printed.is_multiple_of(HEAD_EVERY) {
        if let Some(unknown) = metrics.iter().find(|metric| !figures.contains_key(**metric)) {
            let names = figures.keys().map(String::as_str);
            let hint = tidegate_settings::did_you_mean(unknown, names).unwrap_or_default();
            return Err(Failure::Usage(format!(
                "expected figures that `tidegate ctl state` lists; got \"{unknown}\". {hint}"
            )));
        }
        let head: Vec<String> = metrics.iter().map(|metric| format!("{metric:>0$}", width(metric))).collect();
        show::say(&format!("{:8}  {}", "", head.join("  ")));
    }
    let cells = metrics.iter().map(|metric| {
        let value = figures.get(*metric).map_or_else(|| "–".into(), show::plain);
        format!("{value:>0$}", width(metric))
    });
    let time = show::time(&state["at_ms"]);
    let time = time.split(' ').next_back().unwrap_or_default();
    show::say(&format!("{time}  {}", cells.collect::<Vec<_>>().join("  ")));
    Ok(())
}

struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Lines {
    /// The next line; `None` at the end of the stream, or if the connection broke.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.rest.len() > MAX_LINE_BYTES {
                return None;
            }
            if let Ok(data) = self.body.frame().await?.ok()?.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}
