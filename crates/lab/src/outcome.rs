//! The figures of a run as they are kept, compared and drawn: a summary and a row per second, for JSON and
//! CSV.
//!
//! `load` and `sim` give the same figures under the same keys; what each means is said in `docs/figures.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::stats::ratio;

#[cfg(test)]
mod tests;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    Real,
    Sim,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the scenario, or of this side of a comparison.
    pub name: String,
    pub way: Way,
    pub seed: u64,
    /// When it began, in microseconds since 1970; `None` in virtual time.
    pub started_us: Option<u64>,
    /// How long it took, in seconds, to the last thing that happened.
    pub seconds: f64,
    /// Why the run is not whole, if it is not.
    pub partial: Option<String>,
    /// Figures by key; the unit is the key's last part.
    pub summary: BTreeMap<String, f64>,
    /// Second by second, from the start, without gaps.
    pub series: Vec<Second>,
    /// How the response times of each type of request are distributed, by the key of a curve: percent of the
    /// requests served, and the time in milliseconds that so many did not exceed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub times: BTreeMap<String, Vec<(f64, f64)>>,
}

/// Declares [`Second`], and the columns of its CSV in the order of its fields.
macro_rules! second {
    ($($(#[$meta:meta])* $field:ident: $type:ty,)*) => {
        /// One second of a run. Means of nothing are 0; the counts beside them say if there was anything.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Second {
            $($(#[$meta])* pub $field: $type,)*
        }

        /// The name of each column, and its value in a second. Counts are exact up to 2^53.
        pub(crate) const COLUMNS: &[(&str, fn(&Second) -> f64)] =
            &[$((stringify!($field), |second| second.$field as f64)),*];
    };
}

second! {
    t: u64,
    offered: u64,
    requests: u64,
    /// Those for the status document.
    polls: u64,
    served: u64,
    failed: u64,
    /// Answers that said the room is full.
    full: u64,
    given_up: u64,
    waiting: u64,
    in_flight: u64,
    /// Mean time of the requests served or given up in this second, from the intended send, in milliseconds.
    response_mean_ms: f64,
    /// The same, of the requests served only.
    response_served_ms: f64,
    /// Longest among those served or given up, in milliseconds.
    response_max_ms: f64,
    /// Visitors who came in this second and were served, over whom waits are averaged.
    waits: u64,
    /// Their mean wait as it turned out, in seconds; 0 counts for who was let in at once.
    wait_mean_s: f64,
    wait_max_s: f64,
    /// Visitors who came in this second and got an announced wait.
    told: u64,
    /// The mean of their first announced waits, in seconds.
    wait_told_s: f64,
    /// Requests that reached the origin.
    door: u64,
    /// What these cost, in the gate's units. 0 where it is unknown: over sockets, the origin does not know.
    door_units: f64,
    /// Requests that the origin finished.
    origin_served: u64,
    origin_present: u64,
    /// Mean time that the origin took for what it served, from being sent to the answer (its head, where it
    /// goes on), in milliseconds.
    origin_response_mean_ms: f64,
    /// The 99th percentile of the same, in milliseconds.
    origin_response_p99_ms: f64,
    /// The gate's estimate of the capacity at the second's end, in cost units per second; 0: unknown.
    capacity_rps: f64,
    /// Requests that the gate let the origin work on at once, at the second's end; 0: no limit.
    limit: u64,
}

/// A gate's own figures at some instant of a real run, and its measurements by then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GateSecond {
    pub t: u64,
    /// Its estimate of the capacity, in cost units per second; 0: unknown.
    pub capacity_rps: f64,
    /// Requests it let the origin work on at once; 0: no limit.
    pub limit: u64,
    /// Mean time the origin took for what it served since the time before, in milliseconds.
    pub response_mean_ms: f64,
    /// The 99th percentile of the same, in milliseconds.
    pub response_p99_ms: f64,
}

/// The origin's requests of one second; in a real run it reports them itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DoorSecond {
    pub t: u64,
    pub door: u64,
    pub served: u64,
    pub present: u64,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Sim => "sim",
        }
    }
}

impl Outcome {
    /// A figure of the summary; 0 if there is none of that name.
    pub fn figure(&self, key: &str) -> f64 {
        self.summary.get(key).copied().unwrap_or(0.0)
    }

    /// Takes over what the origin saw, whatever was there before.
    pub fn set_door(&mut self, seconds: impl IntoIterator<Item = DoorSecond>) {
        for DoorSecond { t, door, served, present } in seconds {
            while self.series.len() as u64 <= t {
                let t = self.series.len() as u64;
                self.series.push(Second { t, ..Second::default() });
            }
            let second = &mut self.series[t as usize];
            (second.door, second.origin_served, second.origin_present) = (door, served, present);
        }
        self.summarise_door();
    }

    /// Takes over the gate's figures, in order of time. A second without any has the levels of the one
    /// before.
    pub fn set_gate(&mut self, told: &[GateSecond]) {
        let (mut told, mut last) = (told.iter().peekable(), GateSecond::default());
        for second in &mut self.series {
            (second.origin_response_mean_ms, second.origin_response_p99_ms) = (0.0, 0.0);
            while let Some(now) = told.next_if(|told| told.t <= second.t) {
                last = *now;
            }
            (second.capacity_rps, second.limit) = (last.capacity_rps, last.limit);
            if last.t == second.t {
                second.origin_response_mean_ms = last.response_mean_ms;
                second.origin_response_p99_ms = last.response_p99_ms;
            }
        }
    }

    /// The figures of the origin's side, from the series.
    pub(crate) fn summarise_door(&mut self) {
        let total: u64 = self.series.iter().map(|second| second.door).sum();
        let most = self.series.iter().map(|second| second.door).max().unwrap_or(0);
        let mean = ratio(total as f64, self.seconds);
        self.summary.insert("door_rps_max".into(), most as f64);
        self.summary.insert("door_rps_mean".into(), mean);
    }

    /// The series as CSV: a line of names, a line per second, as RFC 4180 has it but for plain line feeds.
    pub fn csv(&self) -> String {
        let mut out = COLUMNS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",");
        for second in &self.series {
            for (i, (_, value)) in COLUMNS.iter().enumerate() {
                // The shortest number that reads back as the same. Writing to a String cannot fail.
                let _ = write!(out, "{}{}", if i > 0 { ',' } else { '\n' }, value(second));
            }
        }
        out.push('\n');
        out
    }
}
