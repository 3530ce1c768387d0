//! The demonstration's figures, for programs (JSON) and for people (a table and one sentence).

use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::terminal_table;
use super::units::{count, millis, per_second, percent, seconds};
use crate::origin::Stats;
use crate::tally::Tally;

#[cfg(test)]
#[path = "demo_tests.rs"]
mod tests;

/// Lateness of the bench, at the 99th percentile, beyond which the report warns: a tenth of the default
/// service time.
const LATE_MS: f64 = 10.0;

/// Median and tail, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Millis {
    pub p50: f64,
    /// Ninety-nine of a hundred are below.
    pub p99: f64,
}

/// Median and longest, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    pub p50: f64,
    pub max: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Side {
    pub offered: u64,
    pub served: u64,
    /// Visitors who left without it although they wanted it.
    pub failed: u64,
    /// Visitors who did not come back after they had to wait.
    pub no_shows: u64,
    /// Requests sent, retries and status polls included.
    pub requests: u64,
    /// Requests among them that were refused, broken or given up.
    pub failed_requests: u64,
    /// Failures of the test bench itself (out of sockets) among them: if not 0, the run says little.
    pub bench_failures: u64,
    /// How late the bench sent its requests. A few milliseconds are the timer's; more means a machine too
    /// busy for the demonstration. Part of the response time.
    pub lag_ms: Millis,
    /// Requests that the origin worked on for nothing: their visitors had left.
    pub wasted: u64,
    /// Visitors served per second; over which time is said at [`Side::direct`] and [`Gated`].
    pub goodput_rps: f64,
    /// Of the requests that were served, from the intended send to the last byte.
    pub response_ms: Millis,
}

impl Side {
    fn new(tally: &Tally, origin: &Stats, goodput_rps: f64) -> Self {
        let millis = |us: &Histogram<u64>| {
            let ms = |q| us.value_at_quantile(q) as f64 / 1000.0;
            Millis { p50: ms(0.5), p99: ms(0.99) }
        };
        Self {
            offered: tally.offered,
            served: tally.served,
            failed: tally.failed + tally.tired,
            no_shows: tally.no_shows,
            requests: tally.requests,
            failed_requests: tally.failures.total(),
            bench_failures: tally.failures.bench,
            lag_ms: millis(&tally.lag_us),
            wasted: origin.wasted,
            goodput_rps,
            response_ms: millis(&tally.response_us),
        }
    }

    /// Straight at the origin. Goodput: visitors served within their patience, over the time from the start
    /// of the crowd until the origin had nothing left to do (`busy`).
    pub fn direct(tally: &Tally, origin: &Stats, busy: Duration) -> Self {
        Self::new(tally, origin, tally.served as f64 / busy.as_secs_f64().max(f64::MIN_POSITIVE))
    }
}

/// Through the gate. Goodput is [`Tally::goodput_while_waiting`]; if nobody had to wait, served over the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gated {
    #[serde(flatten)]
    pub side: Side,
    pub waited: u64,
    /// How long those of them who were served had waited, from arrival to entry.
    pub wait_s: Waits,
}

impl Gated {
    /// From the figures of a run and of the origin behind the gate.
    pub fn new(tally: &Tally, origin: &Stats) -> Self {
        let whole = tally.served as f64 / tally.lasted.as_secs_f64().max(f64::MIN_POSITIVE);
        let seconds = |ms: u64| ms as f64 / 1000.0;
        Self {
            side: Side::new(tally, origin, tally.goodput_while_waiting().unwrap_or(whole)),
            waited: tally.told,
            wait_s: Waits {
                p50: seconds(tally.wait_ms.value_at_quantile(0.5)),
                max: seconds(tally.wait_ms.max()),
            },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateEstimate {
    pub capacity_rps: f64,
    /// Requests at once; `None`: no limit.
    pub in_flight: Option<u32>,
    /// It is sure enough to stop looking.
    pub is_settled: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Found {
    /// Requests per second that it went by when last looked at with anybody there.
    pub capacity_rps: f64,
    /// Requests at once that it let the origin work on then; `None`: no limit.
    pub in_flight: Option<u32>,
    /// From the start of the crowd until it first was sure enough to stop looking; `None`: it never was.
    pub settled_s: Option<f64>,
}

impl Found {
    /// The gate as it is at `now`, counted from the start of the crowd. With nobody there it does not learn.
    pub fn look(&mut self, estimate: &GateEstimate, is_anybody_there: bool, now: Duration) {
        if !is_anybody_there {
            return;
        }
        (self.capacity_rps, self.in_flight) = (estimate.capacity_rps, estimate.in_flight);
        if estimate.is_settled && self.settled_s.is_none() {
            self.settled_s = Some(now.as_secs_f64());
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DemoReport {
    /// The origin's capacity, in requests per second: its workers over its service time.
    pub capacity_rps: f64,
    /// Visitors per second while the crowd came.
    pub offered_rps: f64,
    pub crowd_s: f64,
    pub found: Found,
    /// Response time of the idle origin (median of a few requests, before any crowd).
    pub unloaded_ms: f64,
    pub direct: Side,
    pub gated: Gated,
}

impl DemoReport {
    /// Share of the capacity that did good, straight at the origin and through the gate.
    fn shares(&self) -> (f64, f64) {
        (self.direct.goodput_rps / self.capacity_rps, self.gated.side.goodput_rps / self.capacity_rps)
    }

    pub fn table(&self) -> String {
        let (direct, gated) = (&self.direct, &self.gated.side);
        let shares = self.shares();
        let mut rows = vec![
            ("offered visitors", count(direct.offered), count(gated.offered)),
            ("served", count(direct.served), count(gated.served)),
            ("failed", count(direct.failed), count(gated.failed)),
        ];
        if gated.no_shows > 0 {
            rows.push(("did not come back", "-".into(), count(gated.no_shows)));
        }
        rows.extend([
            ("failed requests", count(direct.failed_requests), count(gated.failed_requests)),
            ("work wasted on the gone", count(direct.wasted), count(gated.wasted)),
            ("goodput", per_second(direct.goodput_rps), per_second(gated.goodput_rps)),
            ("  of the capacity", percent(shares.0), percent(shares.1)),
            ("response time p50", millis(direct.response_ms.p50), millis(gated.response_ms.p50)),
            ("response time p99", millis(direct.response_ms.p99), millis(gated.response_ms.p99)),
            ("told to wait", "-".into(), count(self.gated.waited)),
            ("wait p50", "-".into(), seconds(self.gated.wait_s.p50)),
            ("wait max", "-".into(), seconds(self.gated.wait_s.max)),
            ("capacity found", "-".into(), per_second(self.found.capacity_rps)),
        ]);
        let mut out = format!(
            "\n  The same flash crowd twice: {} visitors in {} ({} a second)\n  at a service that can take {} \
             a second and answers in {} when idle.\n\n",
            count(direct.offered),
            seconds(self.crowd_s),
            count(self.offered_rps.round() as u64),
            count(self.capacity_rps.round() as u64),
            millis(self.unloaded_ms),
        );
        let head = ["", "directly", "through the gate"].map(str::to_owned).to_vec();
        let rows = rows.into_iter().map(|(name, left, right)| vec![name.to_owned(), left, right]).collect();
        let _ = write!(out, "{}\n\n{}\n", terminal_table(head, rows), wrap(&self.conclusion(), 76));
        out
    }

    pub fn conclusion(&self) -> String {
        let (direct, gated) = (&self.direct, &self.gated.side);
        let shares = self.shares();
        let alone = format!(
            "Alone, the service did {} of what it can do and {} of {} visitors left without an answer",
            percent(shares.0),
            count(direct.failed),
            count(direct.offered),
        );
        let slower = gated.response_ms.p99 / self.unloaded_ms.max(f64::MIN_POSITIVE);
        let with = match gated.failed {
            0 => "everybody who came back was served".to_string(),
            n => format!("{} of {} visitors still failed", count(n), count(gated.offered)),
        };
        let requests = match gated.failed_requests {
            0 => "no request failed".to_string(),
            n => format!("{} requests failed", count(n)),
        };
        let mut text = format!(
            "{alone}; behind the gate it ran at {}, {requests}, {with}, and p99 was {slower:.1} times the idle \
             response time, at the price of a wait of {} at the median.",
            percent(shares.1),
            seconds(self.gated.wait_s.p50),
        );
        text.push_str(&self.discovery());
        let lag = direct.lag_ms.p99.max(gated.lag_ms.p99);
        if lag > LATE_MS {
            let _ = write!(
                text,
                " This machine was too busy for exact figures: the bench itself was {} late at p99.",
                millis(lag),
            );
        }
        if direct.bench_failures + gated.bench_failures > 0 {
            text.push_str(
                " The test bench itself ran out of sockets: raise the limit of open files and repeat.",
            );
        }
        text
    }

    fn discovery(&self) -> String {
        let Found { capacity_rps, in_flight, settled_s } = self.found;
        let found = format!("{} requests a second", count(capacity_rps.round() as u64));
        let at_once = in_flight.map_or_else(String::new, |n| format!(", {} at once", count(n.into())));
        let truth = count(self.capacity_rps.round() as u64);
        match settled_s {
            Some(s) => format!(
                " Nobody told the gate what the service can take: it had settled after {} and in the end let {found}{at_once} \
                 through; the truth is {truth}.",
                seconds(s),
            ),
            None => format!(
                " Nobody told the gate what the service can take, and it was still looking at the end, at {found}{at_once}; \
                 the truth is {truth}.",
            ),
        }
    }
}

/// Breaks `text` between words, with the table's margin.
fn wrap(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("never empty");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_string());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
