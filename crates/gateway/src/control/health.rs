//! Active health checks: requests a path of every replica at intervals, and tells the balancer which are up.
//!
//! One task for all workers, on the control runtime. A replica goes down after `fall` failures in a row, and
//! comes up after `rise` successes in a row. Each check uses a connection of its own, so that it meets what a
//! new connection meets: a full accept queue, or a dead process behind a live load balancer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use tidegate_settings::OriginProtocol;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::upstream::balance::{Replica, Replicas};
use crate::upstream::client::Call;
use crate::upstream::http2;

/// Checks the replicas for ever; returns at once if no path is configured. To change the settings, abort it
/// and start another: the replicas' states stay, the counts in a row start over.
///
/// Times are spread by ±10 %, so that many gates do not check in step.
pub async fn run(replicas: Arc<Replicas>, health: tidegate_settings::Health, protocol: OriginProtocol) {
    if health.path.is_empty() {
        return;
    }
    let mut streaks: Vec<(u64, Streak)> = Vec::new();
    loop {
        let list = replicas.list();
        streaks.retain(|(id, _)| list.iter().any(|r| r.id() == *id));
        let mut checks = JoinSet::new();
        for replica in list.iter().cloned() {
            let health = health.clone();
            checks.spawn(async move {
                let found = check(&replica, &health, protocol).await;
                (replica, found)
            });
        }
        while let Some(done) = checks.join_next().await {
            let Ok((replica, found)) = done else { continue };
            let i = streaks.iter().position(|(id, _)| *id == replica.id()).unwrap_or_else(|| {
                streaks.push((replica.id(), Streak::default()));
                streaks.len() - 1
            });
            note(&replica, &mut streaks[i].1, found, &health);
        }
        tokio::time::sleep(jitter(health.every)).await;
    }
}

#[derive(Default)]
struct Streak {
    successes: u32,
    failures: u32,
}

impl Streak {
    /// Counts a result; the new state if it changes.
    fn count(&mut self, ok: bool, up: bool, rise: u32, fall: u32) -> Option<bool> {
        if ok {
            self.failures = 0;
            self.successes = self.successes.saturating_add(1);
            (!up && self.successes >= rise).then_some(true)
        } else {
            self.successes = 0;
            self.failures = self.failures.saturating_add(1);
            (up && self.failures >= fall).then_some(false)
        }
    }
}

fn note(
    replica: &Replica,
    streak: &mut Streak,
    found: Result<(), String>,
    health: &tidegate_settings::Health,
) {
    let change = streak.count(found.is_ok(), replica.is_healthy(), health.rise, health.fall);
    let Some(up) = change else { return };
    replica.set_healthy(up);
    match found {
        Ok(()) => tracing::info!(replica = replica.authority(), "replica is up"),
        Err(why) => tracing::warn!(replica = replica.authority(), "replica is down: {why}"),
    }
}

/// Whether the replica answers 2xx or 3xx in time, or what it did instead.
async fn check(
    replica: &Arc<Replica>,
    health: &tidegate_settings::Health,
    protocol: OriginProtocol,
) -> Result<(), String> {
    let request = Request::get(format!("http://{}{}", replica.target().address(), health.path))
        .header(header::USER_AGENT, concat!("tidegate/", env!("CARGO_PKG_VERSION"), " health check"))
        .body(Bytes::new());
    let request = request.map_err(|e| e.to_string())?;
    let is_asked = match protocol {
        OriginProtocol::Http1 => false,
        OriginProtocol::Http2 => true,
        OriginProtocol::Auto => replica.target().is_tls(),
    };
    let by_http2 = if is_asked {
        let probe = timeout(health.timeout, http2::probe(replica, request.clone().map(drop), health.timeout));
        let probed = probe.await.map_err(|_| format!("no answer within {:?}", health.timeout))?;
        probed.map_err(|e| e.to_string())?
    } else {
        None
    };
    let status = match by_http2 {
        Some(status) => status,
        None => {
            let (replica, timeout) = (Some(replica), health.timeout);
            let call = Call { request, replica, tls: None, timeout, max_body: None };
            call.send().await.map_err(|e| e.to_string())?.status()
        }
    };
    if status.is_success() || status.is_redirection() { Ok(()) } else { Err(format!("it answered {status}")) }
}

fn jitter(every: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    every.mul_f64(0.9 + 0.2 * f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_and_falls_after_so_many_in_a_row() {
        let cases: &[(&str, &str)] = &[
            // results, states after each; starts up, rise 2, fall 3
            ("ff.ff.fff", "uuuuuuuud"),
            ("fff.f..f", "uudddduu"),
            (".........", "uuuuuuuuu"),
        ];
        for (results, expected) in cases {
            let (mut up, mut streak) = (true, Streak::default());
            let got: String = results
                .chars()
                .map(|c| {
                    up = streak.count(c == '.', up, 2, 3).unwrap_or(up);
                    if up { 'u' } else { 'd' }
                })
                .collect();
            assert_eq!(got, *expected, "{results}");
        }
    }

    #[test]
    fn jitter_stays_within_a_tenth() {
        for _ in 0..1000 {
            let d = jitter(Duration::from_secs(10));
            assert!((9.0..=11.0).contains(&d.as_secs_f64()), "{d:?}");
        }
    }
}
