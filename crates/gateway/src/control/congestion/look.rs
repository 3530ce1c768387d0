//! Reads figures from the answer of a source: this host's `/proc`, Prometheus's text form, or JSON. Counters
//! need two answers.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use tidegate_core::units::Timestamp;

use crate::history::host::{Host, HostUse};
use tidegate_settings::Detector;
use tidegate_settings::exposition::Pattern;

const CPU: &str = "node_cpu_seconds_total";

pub struct Looker {
    figures: Vec<(String, Figure)>,
    host: Host,
}

enum Figure {
    Cpu(Last),
    Memory,
    Load,
    Metric(Pattern, Last),
    Pointer(String),
}

/// Two counters and when they were read.
#[derive(Default)]
struct Last(Option<(f64, f64, Timestamp)>);

impl Last {
    /// The growth of `part` as a share of the growth of `all`.
    fn share(&mut self, part: f64, all: f64, now: Timestamp) -> Option<f64> {
        let (part_before, all_before, _) = self.0.replace((part, all, now))?;
        (all > all_before).then(|| ((part - part_before) / (all - all_before)).clamp(0.0, 1.0))
    }

    /// A counter's growth per second; `None` if it was reset.
    fn per_second(&mut self, count: f64, now: Timestamp) -> Option<f64> {
        let (before, _, at) = self.0.replace((count, 0.0, now))?;
        let span = now.since(at);
        (count >= before && span > Duration::ZERO).then(|| (count - before) / span.as_secs_f64())
    }
}

/// By detector: a value, or why there is none. `None`: the figure needs a second answer.
pub type Found = Vec<(String, Option<Result<f64, String>>)>;

impl Looker {
    pub fn new(detectors: &[Detector]) -> Self {
        let figures = detectors.iter().map(|detector| (detector.name.clone(), Figure::of(&detector.figure)));
        Self { figures: figures.collect(), host: Host::default() }
    }

    pub fn local(&mut self, now: Timestamp) -> Found {
        let HostUse { cpu, memory } = self.host.read();
        let load = fs::read_to_string("/proc/loadavg").ok().and_then(|text| load(&text));
        let known = |x: f32| Some(f64::from(x)).filter(|x| !x.is_nan());
        let figures = self.figures.iter_mut().map(|(name, figure)| {
            let value = match figure {
                // The first value would cover the time since the host started.
                Figure::Cpu(last) => match (last.0.replace((0.0, 0.0, now)), known(cpu)) {
                    (None, None) => None,
                    (_, cpu) => Some(cpu.ok_or("/proc/stat does not say")),
                },
                Figure::Memory => Some(known(memory).ok_or("/proc/meminfo does not say")),
                Figure::Load => Some(load.ok_or("/proc/loadavg does not say")),
                Figure::Metric(..) | Figure::Pointer(_) => Some(Err("this host has no such figure")),
            };
            (name.clone(), value.map(|value| value.map_err(str::to_owned)))
        });
        figures.collect()
    }

    pub fn read(&mut self, answer: &[u8], now: Timestamp) -> Found {
        let text = String::from_utf8_lossy(answer);
        let wants_json = self.figures.iter().any(|(_, figure)| matches!(figure, Figure::Pointer(_)));
        let json: Option<Result<Value, _>> = wants_json.then(|| serde_json::from_slice(answer));
        let figures = self.figures.iter_mut().map(|(name, figure)| {
            let value = match (figure, &json) {
                (Figure::Pointer(pointer), Some(Ok(json))) => Some(of_json(json, pointer)),
                (Figure::Pointer(_), _) => Some(Err("the answer is not JSON".into())),
                (figure, _) => figure.of_text(&text, now),
            };
            (name.clone(), value)
        });
        figures.collect()
    }
}

impl Figure {
    fn of(text: &str) -> Self {
        match text {
            "" | "cpu" => Self::Cpu(Last::default()),
            "memory" => Self::Memory,
            "load" => Self::Load,
            pointer if pointer.starts_with('/') => Self::Pointer(pointer.into()),
            // The settings check has already rejected invalid patterns.
            metric => Self::Metric(Pattern::parse(metric).unwrap_or(Pattern::of("")), Last::default()),
        }
    }

    fn of_text(&mut self, text: &str, now: Timestamp) -> Option<Result<f64, String>> {
        let need = |pattern: &Pattern| pattern.sum(text).ok_or_else(|| format!("there is no {pattern}"));
        let of = |name: &str| need(&Pattern::of(name));
        let mode = |mode: &str| Pattern::with(CPU, "mode", mode);
        match self {
            Self::Cpu(last) => {
                let idle = need(&mode("idle")).map(|idle| idle + mode("iowait").sum(text).unwrap_or(0.0));
                match (idle, of(CPU)) {
                    (Ok(idle), Ok(all)) => last.share(all - idle, all, now).map(Ok),
                    (Err(why), _) | (_, Err(why)) => Some(Err(why)),
                }
            }
            Self::Memory => Some(of("node_memory_MemTotal_bytes").and_then(|all| {
                let available = of("node_memory_MemAvailable_bytes")?;
                Ok(1.0 - available / all)
            })),
            Self::Load => Some(of("node_load1").map(|load| load / mode("idle").count(text).max(1) as f64)),
            Self::Metric(pattern, last) if pattern.is_counter() => match need(pattern) {
                Ok(count) => last.per_second(count, now).map(Ok),
                Err(why) => Some(Err(why)),
            },
            Self::Metric(pattern, _) => Some(need(pattern)),
            Self::Pointer(_) => Some(Err("the answer is not JSON".into())),
        }
    }
}

fn of_json(json: &Value, pointer: &str) -> Result<f64, String> {
    let value = json.pointer(pointer).ok_or_else(|| format!("there is no {pointer}"))?;
    as_figure(value).ok_or_else(|| format!("{pointer} is neither a number nor true, false or a level"))
}

/// A number; true and false as 1 and 0; the name of a level as the default threshold of a signal.
pub fn as_figure(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Bool(is) => Some(f64::from(u8::from(*is))),
        Value::String(text) => [("green", 0.0), ("orange", 0.5), ("red", 1.0)]
            .into_iter()
            .find(|(name, _)| name == text)
            .map(|(_, figure)| figure),
        _ => None,
    }
}

/// The first number of `/proc/loadavg`, per processor.
fn load(text: &str) -> Option<f64> {
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Some(load / processors as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detector(name: &str, figure: &str) -> Detector {
        Detector { name: name.into(), figure: figure.into(), ..Detector::default() }
    }

    fn at(s: u64) -> Timestamp {
        Timestamp::from_secs(1_800_000_000 + s)
    }

    fn exporter(idle: f64, user: f64, requests: u64) -> String {
        format!(
            "node_cpu_seconds_total{{cpu=\"0\",mode=\"idle\"}} {idle}\nnode_cpu_seconds_total{{cpu=\"1\",mode=\"idle\"}} 0\n\
             node_cpu_seconds_total{{cpu=\"0\",mode=\"iowait\"}} 5\nnode_cpu_seconds_total{{cpu=\"0\",mode=\"user\"}} {user}\n\
             node_load1 3\nnode_memory_MemTotal_bytes 1000\nnode_memory_MemAvailable_bytes 250\nshop_requests_total {requests}\n"
        )
    }

    fn values(found: Found) -> Vec<Option<Result<f64, String>>> {
        found.into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn figures_are_read_from_an_exporter() {
        let figures = ["cpu", "memory", "load", "shop_requests_total", "node_load1", "shop_other"];
        let mut looker = Looker::new(&figures.map(|figure| detector(figure, figure)));
        let first = values(looker.read(exporter(10.0, 20.0, 500).as_bytes(), at(0)));
        let nothing = Some(Err("there is no shop_other".to_owned()));
        assert_eq!(first[..2], [None, Some(Ok(0.75))]);
        assert_eq!(first[2..], [Some(Ok(1.5)), None, Some(Ok(3.0)), nothing.clone()]);
        let second = values(looker.read(exporter(11.0, 23.0, 700).as_bytes(), at(4)));
        assert_eq!(second[..1], [Some(Ok(0.75))], "3 of 4 s were busy");
        assert_eq!(second[3..], [Some(Ok(50.0)), Some(Ok(3.0)), nothing]);
        // The exporter was restarted: a counter that was reset gives no figure.
        let third = values(looker.read(exporter(1.0, 1.0, 3).as_bytes(), at(8)));
        assert_eq!((&third[0], &third[3]), (&None, &None));
    }

    #[test]
    fn figures_are_read_from_json_by_pointer() {
        let pointers = ["/load/cpu", "/ok", "/state", "/name", "/none", "/load"];
        let mut looker = Looker::new(&pointers.map(|pointer| detector("x", pointer)));
        let json = br#"{"load": {"cpu": 0.25}, "ok": true, "state": "orange", "name": "shop"}"#;
        let found = values(looker.read(json, at(0)));
        assert_eq!(found[..3], [Some(Ok(0.25)), Some(Ok(1.0)), Some(Ok(0.5))]);
        assert!(found[3..].iter().all(|value| matches!(value, Some(Err(_)))), "{found:?}");
        for broken in [&b""[..], b"{", b"\xff", b"node_load1 1"] {
            assert!(values(looker.read(broken, at(0))).iter().all(|value| matches!(value, Some(Err(_)))));
        }
    }

    #[test]
    fn figures_are_read_from_this_host() {
        let mut looker =
            Looker::new(&["cpu", "memory", "load", "else"].map(|figure| detector(figure, figure)));
        let found = values(looker.local(at(0)));
        assert!(found[0].is_none(), "the first value would cover the time since the start");
        for value in &found[1..3] {
            assert!(matches!(value, Some(Ok(x)) if *x >= 0.0), "{found:?}");
        }
        assert!(matches!(found[3], Some(Err(_))));
        assert_eq!(load("3.0 1 1 1/2 3").map(|load| load > 0.0), Some(true));
        assert_eq!(load(""), None);
    }
}
