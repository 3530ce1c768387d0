//! How many requests a second of real time the model origin takes through: `cargo bench -p tidegate-lab
//! --bench model`.

use std::time::{Duration, Instant};

use tidegate_lab::dist::Dist;
use tidegate_lab::model::Model;
use tidegate_lab::scenario::{Discipline, OriginSpec, Spell, Stage};

const REQUESTS: u64 = 10_000_000;

/// Arrivals every microsecond at 80 % of what the spec can take; prints millions of requests (submitted and
/// done) a second.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn bench(name: &str, spec: &OriginSpec) {
    let mut model = Model::new(spec, 1);
    let (mut done, mut refused) = (0u64, 0u64);
    let start = Instant::now();
    for id in 0..REQUESTS {
        while let Some(due) = model.next_event().filter(|due| *due <= id) {
            model.advance(due, &mut |_| done += 1);
        }
        refused += u64::from(model.submit(id, 0, id).is_err());
    }
    let rate = REQUESTS as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("{name:44} {rate:6.1} million/s  (done {done}, refused {refused})");
}

fn main() {
    for workers in [10, 1000, 100_000] {
        let service = Duration::from_nanos(800 * u64::from(workers));
        let spec = OriginSpec::pool(workers, service, 128, 0.01);
        bench(&format!("one stage, {workers} workers, fixed"), &spec);
        let mut spec = spec;
        spec.paths[0].demand = vec![(0, Dist::Exponential(service.as_secs_f64()))];
        bench(&format!("one stage, {workers} workers, exponential"), &spec);
    }
    let mut spec = OriginSpec::pool(20, Duration::ZERO, 128, 0.01);
    spec.stages.push(Stage::new("db", 4));
    spec.paths[0].demand = vec![(0, Dist::Exponential(2e-6)), (1, Dist::Exponential(3e-6))];
    bench("two stages, 20 workers, 4 at the database", &spec);
    for servers in [10, 1000] {
        let service = 0.8e-6 * f64::from(servers);
        let mut spec = OriginSpec::pool(servers, Duration::ZERO, 128, 0.01);
        spec.workers = 100_000;
        spec.stages[0].discipline = Discipline::Sharing;
        spec.paths[0].demand = vec![(0, Dist::Exponential(service))];
        bench(&format!("{servers} shared servers, exponential"), &spec);
    }
    let mut spec = OriginSpec::pool(10, Duration::from_micros(8), 1_000_000, 0.0);
    let (every, lasts) = (Dist::Exponential(0.1), Dist::Exponential(0.001));
    spec.pause = Some(Spell { every, lasts, speed: 0.0 });
    bench("one stage, 10 workers, fixed, pauses", &spec);
}
