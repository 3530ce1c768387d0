//! Polls a gate's admin port during a real run: once a second its estimate of the capacity, its in-flight
//! limit, what it measured of the origin in the last second, and, where the scenario tells types of requests
//! apart, which of them it correlates with a bottleneck and throttles. A poll costs the gate's control thread
//! two to four small documents; a gate that does not answer is polled again a second later.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use tidegate_core::units::Timestamp;
use tidegate_gateway::base::clock::Clock;

use super::findings::Findings;
use crate::outcome::GateSecond;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// Longest wait for an answer: the run goes on meanwhile, and children are looked at in between.
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) struct GateWatch {
    /// Admin ports of the process that estimates and of the one that sends to the origin.
    admins: (SocketAddr, SocketAddr),
    due: Timestamp,
    told: Vec<(Timestamp, GateSecond)>,
    /// What is asked for findings; `None`: nothing is.
    correlation: Option<String>,
    findings: Findings,
}

impl GateWatch {
    /// `estimates` is the half that estimates, `forwards` the one that sends to the origin: the same, unless
    /// there are two.
    pub(super) fn new(estimates: SocketAddr, forwards: SocketAddr) -> Self {
        Self {
            admins: (estimates, forwards),
            due: Timestamp::default(),
            told: Vec::new(),
            correlation: None,
            findings: Findings::default(),
        }
    }

    /// Also asks which types it finds, for the figure of this detector; `None`: for the one that the gate
    /// chooses.
    pub(super) fn also_findings(self, detector: Option<&str>) -> Self {
        let figure = detector.map(|name| format!("?figure={name}")).unwrap_or_default();
        Self { correlation: Some(format!("/v1/correlation{figure}")), ..self }
    }

    pub(super) fn findings(&self) -> Option<&Findings> {
        self.correlation.as_ref().map(|_| &self.findings)
    }

    pub(super) fn listen(&mut self, clock: &Clock) {
        let now = clock.now();
        if now < self.due {
            return;
        }
        self.due = now + EVERY;
        let (estimates, forwards) = self.admins;
        if let Some(path) = &self.correlation {
            let correlation = ask(forwards, path).ok();
            let throttles = ask(forwards, "/v1/throttles").ok();
            self.findings.note(correlation, throttles.as_ref(), now.as_micros());
        }
        let (Ok(capacity), Ok(state)) = (ask(estimates, "/v1/capacity"), ask(forwards, "/v1/state")) else {
            return;
        };
        self.told.push((now, read(&capacity, &state)));
    }

    /// The gate's figures, by the seconds since `started_us` (microseconds since 1970).
    pub(super) fn seconds(&self, started_us: u64) -> Vec<GateSecond> {
        let since = |at: Timestamp| at.as_micros().checked_sub(started_us);
        let told = self.told.iter().filter_map(|(at, told)| Some((since(*at)?, told)));
        told.map(|(us, told)| GateSecond { t: us / 1_000_000, ..*told }).collect()
    }
}

/// The two documents. A missing value, or "unlimited" (`null`), counts as unknown.
pub(super) fn read(capacity: &Value, state: &Value) -> GateSecond {
    let figure = |document: &Value, pointer| document.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    GateSecond {
        t: 0,
        capacity_rps: figure(capacity, "/rate"),
        limit: capacity.pointer("/max_in_flight").and_then(Value::as_u64).unwrap_or(0),
        response_mean_ms: figure(state, "/response_ms/mean"),
        response_p99_ms: figure(state, "/response_ms/p99"),
    }
}

fn ask(admin: SocketAddr, path: &str) -> io::Result<Value> {
    serde_json::from_str(&get(admin, path, PATIENCE)?).map_err(io::Error::other)
}

/// The body of what an admin port answers with 200.
///
/// # Errors
/// It does not answer in time, or not with 200.
pub(crate) fn get(admin: SocketAddr, path: &str, patience: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {admin}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.split(' ').nth(1) != Some("200") {
        return Err(io::Error::other(format!("expected 200 from {path}, got {:?}", head.lines().next())));
    }
    Ok(body.to_owned())
}
