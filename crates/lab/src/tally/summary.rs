//! From counts to the figures of an [`Outcome`]: every division is here. What each key means:
//! `docs/figures.md`.

use std::collections::BTreeMap;

use super::{Measured, Row, Tally};
use crate::outcome::{Outcome, Second, Way};
use crate::stats::ratio;

impl Tally {
    /// The figures of the run. `partial`: why it is not whole, if it is not. A figure whose divisor is
    /// nothing (the mean of no response times) is 0.
    pub fn outcome(&self, name: &str, way: Way, seed: u64, partial: Option<String>) -> Outcome {
        let series = self.series();
        let mut outcome = Outcome {
            name: name.to_string(),
            way,
            seed,
            started_us: None,
            seconds: self.lasted.as_secs_f64(),
            partial,
            summary: self.summary(&series),
            series,
            times: self.types.iter().flat_map(|types| types.distributions()).collect(),
        };
        outcome.summarise_door();
        outcome
    }

    pub fn measured_keys() -> [&'static str; 10] {
        Measured::keys()
    }

    fn summary(&self, series: &[Second]) -> BTreeMap<String, f64> {
        let seconds = self.lasted.as_secs_f64();
        let goodput = ratio(self.served as f64, seconds);
        let mean_ms = ratio(self.sums.response_us as f64, self.served as f64) / 1000.0;
        let all_ms = (self.sums.response_us + self.sums.given_up_us) as f64 / 1000.0;
        let waits = self.wait_ms.len() as f64;
        let wait_s = self.sums.wait_us as f64 / 1e6;
        let (max_ms, max_s) = (self.sums.response_max_us as f64 / 1000.0, self.sums.wait_max_us as f64 / 1e6);
        // A histogram tells the upper end of the bucket, which may lie beyond the largest value there was.
        let ms = |q| (self.response_us.value_at_quantile(q) as f64 / 1000.0).min(max_ms);
        let s = |q| (self.wait_ms.value_at_quantile(q) as f64 / 1000.0).min(max_s);
        let most = |of: fn(&Second) -> f64| series.iter().map(of).fold(0.0, f64::max);
        let figures = [
            ("offered", self.offered as f64),
            ("done", self.done as f64),
            ("failed", self.failed as f64),
            ("no_shows", self.no_shows as f64),
            ("tired", self.tired as f64),
            ("present", self.present() as f64),
            ("told_to_wait", self.told as f64),
            ("full", self.full as f64),
            ("requests", self.requests as f64),
            ("polls", self.polls as f64),
            ("served", self.served as f64),
            ("given_up", self.given_up as f64),
            ("failed_requests", self.failures.total() as f64),
            ("served_share", ratio(self.done as f64, (self.offered - self.no_shows) as f64)),
            ("goodput_rps", goodput),
            ("goodput_while_waiting_rps", self.goodput_while_waiting().unwrap_or(goodput)),
            ("power_ratio", ratio(goodput, mean_ms / 1000.0)),
            ("response_mean_ms", mean_ms),
            ("response_or_given_up_mean_ms", ratio(all_ms, (self.served + self.given_up) as f64)),
            ("response_p50_ms", ms(0.5)),
            ("response_p90_ms", ms(0.9)),
            ("response_p99_ms", ms(0.99)),
            ("response_max_ms", max_ms),
            ("response_worst_second_ms", most(|second| second.response_mean_ms)),
            ("wait_mean_s", ratio(wait_s, waits)),
            ("wait_mean_everyone_s", ratio(wait_s, waits + self.sums.at_once as f64)),
            ("wait_p50_s", s(0.5)),
            ("wait_p99_s", s(0.99)),
            ("wait_max_s", max_s),
            ("peak_waiting", most(|second| second.waiting as f64)),
            ("peak_in_flight", most(|second| second.in_flight as f64)),
            ("lag_p99_ms", self.lag_us.value_at_quantile(0.99) as f64 / 1000.0),
            ("attacks_sent", self.attacks_sent as f64),
            ("attacks_let_in", self.attacks_let_in as f64),
            ("failures_refused", self.failures.refused as f64),
            ("failures_connect", self.failures.connect as f64),
            ("failures_broken", self.failures.broken as f64),
            ("failures_patience", self.failures.patience as f64),
            ("failures_bench", self.failures.bench as f64),
            ("seconds", seconds),
        ];
        let measured = self.measured.iter().flat_map(|measured| measured.figures(self.lasted));
        let kinds = self.kinds.figures();
        figures
            .into_iter()
            .chain(measured)
            .chain(kinds)
            .map(|(key, value)| (key.to_string(), value))
            .chain(self.types.iter().flat_map(|types| types.figures()))
            .collect()
    }

    fn series(&self) -> Vec<Second> {
        let mut last = Second::default();
        let seconds = (0..).zip(self.rows.iter()).map(|(t, row)| {
            last = second(t, row, &last);
            last.clone()
        });
        let mut seconds: Vec<Second> = seconds.collect();
        // The second under way has not been closed yet.
        if let Some((t, p99)) = self.answers.clone().p99_us()
            && let Some(second) = usize::try_from(t).ok().and_then(|t| seconds.get_mut(t))
        {
            second.origin_response_p99_ms = f64::from(p99) / 1000.0;
        }
        seconds
    }
}

/// A second's figures, given the second before: levels go on from there.
fn second(t: u64, row: &Row, before: &Second) -> Second {
    let level = |before: u64, change: i32| before.saturating_add_signed(i64::from(change));
    let answered_us = (row.response_us + row.given_up_us) as f64;
    Second {
        t,
        offered: row.offered.into(),
        requests: row.requests.into(),
        polls: row.polls.into(),
        served: row.served.into(),
        failed: row.failed.into(),
        full: row.full.into(),
        given_up: row.given_up.into(),
        waiting: level(before.waiting, row.waiting),
        in_flight: level(before.in_flight, row.in_flight),
        response_mean_ms: ratio(answered_us, f64::from(row.served + row.given_up)) / 1000.0,
        response_served_ms: ratio(row.response_us as f64, f64::from(row.served)) / 1000.0,
        response_max_ms: row.response_max_us as f64 / 1000.0,
        waits: row.waits.into(),
        wait_mean_s: ratio(row.wait_us as f64, f64::from(row.waits)) / 1e6,
        wait_max_s: row.wait_max_us as f64 / 1e6,
        told: row.told.into(),
        wait_told_s: ratio(row.told_us as f64, f64::from(row.told)) / 1e6,
        door: row.door.into(),
        door_units: row.door_units,
        origin_served: row.origin_served.into(),
        origin_present: level(before.origin_present, row.origin_present),
        origin_response_mean_ms: ratio(row.origin_us as f64, f64::from(row.origin_served)) / 1000.0,
        origin_response_p99_ms: f64::from(row.origin_p99_us) / 1000.0,
        capacity_rps: row.capacity_rps.unwrap_or(before.capacity_rps),
        limit: row.limit.map_or(before.limit, u64::from),
    }
}
