//! Learned costs of classes: found in front of an origin, shown, changed by a reload, kept over a restart.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::whole::harness::{Gate, Origin, Scripted, admin, get, reply, until};

const HEAVY: &str = "[[class]]\nname = \"heavy\"\nmatch = { path = \"/heavy\" }\n";

fn toml(cost: &str) -> String {
    format!(
        "[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nestimator = \"bottleneck\"\n[room]\nenabled = false\n\
         {HEAVY}{cost}"
    )
}

/// What `/v1/state` says of a class.
fn class(gate: &Gate, name: &str) -> Value {
    let state = gate.admin("/v1/state");
    let classes = state["classes"].as_array().expect("classes").clone();
    classes.into_iter().find(|class| class["name"] == name).expect("the class")
}

/// What a class costs: charged, configured, where it comes from, and learned.
fn cost(gate: &Gate, name: &str) -> Value {
    let class = class(gate, name);
    json!([class["cost"], class["configured_cost"], class["cost_source"], class["learned_cost"]])
}

/// Workers of a service: as many requests as there are of them are served at once, each for its time.
struct Workers {
    free: Mutex<u32>,
    changed: Condvar,
}

impl Workers {
    fn serve(&self, takes: Duration) {
        let mut free = self.changed.wait_while(self.free.lock().unwrap(), |free| *free == 0).unwrap();
        *free -= 1;
        drop(free);
        let (alone, never) = (Mutex::new(()), Condvar::new());
        let _served = never.wait_timeout_while(alone.lock().unwrap(), takes, |()| true).unwrap();
        *self.free.lock().unwrap() += 1;
        self.changed.notify_one();
    }
}

#[test]
fn a_class_that_takes_longer_at_the_origin_is_charged_more() {
    let workers = Workers { free: Mutex::new(2), changed: Condvar::new() };
    let origin = Scripted::start(move |head, _, stream| {
        workers.serve(Duration::from_millis(if head.starts_with("GET /heavy") { 40 } else { 5 }));
        reply(stream, "200 OK", "", "served");
    });
    // No more than there are workers. While more are in flight, most of a response is the wait for a worker,
    // and how soon the estimator ends that is not what this test is about.
    let toml = toml("") + "[capacity.bottleneck]\nmax_in_flight = 2\n";
    let gate = Arc::new(Gate::before(origin.address, &toml, |_| Vec::new()));
    assert_eq!(cost(&gate, "heavy"), json!([1.0, "learned", "initial", null]));
    let ended = Arc::new(AtomicBool::new(false));
    // More than are ever in flight while the knee is looked for: without a backlog nothing is learned.
    let visitors: Vec<_> = (0..48)
        .map(|i| {
            let (gate, ended) = (gate.clone(), ended.clone());
            std::thread::spawn(move || {
                let target = if i % 3 == 0 { "/heavy" } else { "/" };
                while !ended.load(Ordering::Relaxed) {
                    get(gate.http, target, "");
                }
            })
        })
        .collect();
    let charged = || format!("{} {}", class(&gate, "heavy")["cost"], class(&gate, "default")["cost"]);
    let both = until(charged, |costs| {
        let costs: Vec<f64> = costs.split(' ').filter_map(|cost| cost.parse().ok()).collect();
        costs[0] > 2.0 * costs[1]
    });
    let heavy = class(&gate, "heavy");
    let number = |key: &str| heavy[key].as_f64().unwrap_or_default();
    assert_eq!(heavy["cost_source"], "learned", "{both}");
    assert!(number("learned_cost") > 1.0 && number("learned_cost_samples") > 5.0, "{heavy}");
    assert!(number("learned_cost_error") > 0.0 && number("learned_cost_error") < 2.0, "{heavy}");
    let metrics = admin(&gate, "/metrics");
    for name in ["class_cost", "class_learned_cost", "class_learned_cost_error"] {
        assert!(metrics.contains(&format!("\ntidegate_{name}{{class=\"heavy\"}} ")), "no {name}");
    }
    ended.store(true, Ordering::Relaxed);
    visitors.into_iter().for_each(|visitor| visitor.join().expect("no visitor fails"));
}

#[test]
fn learned_costs_outlive_the_process_and_a_number_replaces_them_while_it_runs() {
    let origin = Origin::start();
    let costs = json!({"heavy": 4.5, "default": 0.5});
    let now = Gate::start(&origin, &toml("")).admin("/v1/state")["at_ms"].as_u64().expect("a time");
    let knee = json!({"in_flight": 40.0, "base_s": 0.1, "contention": 0.0, "units_per_s": 400.0, "units": 1.0,
        "dispersion": 1.0});
    let learned = json!({"version": 1, "capacity": {"at_ms": now, "origin": [origin.address.to_string()],
        "estimator": "bottleneck", "rate": 400.0, "knee": knee, "costs": costs, "numbers": {}}});
    let gate = Gate::start_from_file_with(&origin, &toml(""), |state| {
        std::fs::create_dir_all(state).unwrap();
        std::fs::write(state.join("learned.json"), learned.to_string()).unwrap();
    });
    assert_eq!(cost(&gate, "heavy"), json!([4.5, "learned", "learned", 4.5]));
    assert_eq!(cost(&gate, "default"), json!([0.5, "learned", "learned", 0.5]));
    gate.reload(&origin, &toml("cost = 3\n"));
    let shown = || cost(&gate, "heavy").to_string();
    until(shown, |cost| cost.starts_with("[3.0,3.0,\"configured\","));
    // The class `default` is the unit of numbers.
    until(|| cost(&gate, "default").to_string(), |cost| cost.starts_with("[1.0,1.0,\"configured\","));
    gate.reload(&origin, &toml("cost = \"learned\"\n"));
    until(shown, |cost| cost == "[4.5,\"learned\",\"learned\",4.5]");
}

#[test]
fn an_estimator_that_learns_no_costs_charges_one_and_says_so() {
    let origin = Origin::start();
    let toml = format!("[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nrate = 1000\n{HEAVY}");
    let gate = Gate::start(&origin, &toml);
    assert!(get(gate.http, "/heavy", "").ends_with("served"));
    assert_eq!(cost(&gate, "heavy"), json!([1.0, "learned", "initial", null]));
    let metrics = admin(&gate, "/metrics");
    assert!(metrics.contains("\ntidegate_class_cost{class=\"heavy\"} 1\n"), "{metrics}");
    assert!(!metrics.contains("tidegate_class_learned_cost{class=\"heavy\"}"), "{metrics}");
}
