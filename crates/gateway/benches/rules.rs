//! One tick of 100 rules, in processor time: levels, figures and time in every condition.
//! `cargo bench -p tidegate-gateway --bench rules`.

use std::hint::black_box;
use std::time::Duration;

use tidegate_core::measure::{Shard, Snapshot};
use tidegate_core::units::{ClassId, Timestamp};
use tidegate_gateway::config::congestion_plan::Plan;
use tidegate_gateway::control::congestion::readings::Readings;
use tidegate_gateway::control::congestion::{Congestion, Measured, Publish};
use tidegate_gateway::shared::Drain;
use tidegate_gateway::shared::policies::PublishedPolicies;
use tidegate_settings::Settings;

const TICKS: usize = 2_000;

/// Time that this thread has had: others on the machine do not count.
fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call gets a pointer to a whole `timespec` that lives until it returns, and keeps none.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// `rules` rules over `detectors` detectors; most conditions are looked at to their end.
fn text(detectors: usize, rules: usize) -> String {
    let mut text = "[origin]\nreplicas = [\"app:80\"]\n".to_owned();
    let kinds = ["request-rate", "connections", "response-time", "connection-rate"];
    for i in 0..detectors {
        let kind = kinds[i % kinds.len()];
        text += &format!("[[detector]]\nname = \"d{i}\"\nkind = \"{kind}\"\norange = 1e6\nred = 1e7\n");
    }
    for i in 0..rules {
        let (a, b) = (i % detectors, (i * 7 + 3) % detectors);
        text += &format!(
            "[[rule]]\nname = \"r{i}\"\nwhen = '(levels.d{a} == \"red\" || figures.d{b} > {i} + 2e6) && time.hour < 25'\n\
             until = 'levels.d{a} == \"green\" && figures.d{b} < 1e6 && figures.queued < 10'\n"
        );
    }
    text
}

fn main() {
    for (detectors, rules) in [(1, 1), (20, 100), (100, 100), (256, 1000)] {
        let settings = Settings::parse(&text(detectors, rules), "bench").expect("a configuration");
        let began = now();
        let plan = std::sync::Arc::new(Plan::new(&settings, &["default"]).expect("a plan"));
        let compiled = now() - began;
        let mut congestion = Congestion::new(plan.clone());
        let (shard, readings) = (Shard::new(2), Readings::default());
        let (enforcement, wake) = (PublishedPolicies::default(), tokio::sync::watch::Sender::new(Drain::No));
        let publish = Publish { enforcement: &enforcement, wake: &wake };
        let mut at = Timestamp::from_secs(1_800_000_000);
        let mut times: Vec<Duration> = (0..TICKS)
            .map(|_| {
                (0..10).for_each(|_| shard.arrived(ClassId(0)));
                at = at + Duration::from_millis(100);
                let snapshot = Snapshot::take([&shard], at);
                let measured =
                    Measured { snapshot: &snapshot, connections: 5, sessions: None, readings: &readings };
                let began = now();
                congestion.tick(black_box(&plan), &measured, &publish, at);
                now() - began
            })
            .collect();
        times.sort_unstable();
        println!(
            "{detectors:4} detectors {rules:5} rules: tick median {:?}, 99 % {:?}; compiled in {compiled:?}",
            times[TICKS / 2],
            times[TICKS * 99 / 100],
        );
    }
}
