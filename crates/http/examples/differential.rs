//! The long differential run, of each of the three subjects, or of one (`--only requests`):
//! `cargo run --release -p tidegate-http --example differential -- --executions N`. `--hyper N`: every N-th
//! with hyper too. `--seed N`: other messages.

#[path = "../tests/differential/mod.rs"]
mod differential;

use differential::{Subject, run};

fn main() {
    let (mut executions, mut hyper, mut seed, mut only) = (1_000_000, 16, 1, None::<String>);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().unwrap_or_else(|| panic!("{name}: a value"));
        let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("{name}: a number, not {value}"));
        match name.as_str() {
            "--executions" => executions = number(),
            "--hyper" => hyper = number(),
            "--seed" => seed = number(),
            "--only" => only = Some(value),
            _ => panic!("no option {name}: --executions, --hyper, --seed, --only"),
        }
    }
    let all =
        [("requests", Subject::Requests), ("responses", Subject::Responses), ("contents", Subject::Contents)];
    for (name, subject) in all {
        if only.as_ref().is_none_or(|only| only == name) {
            print!("{name}: {}", run(subject, executions, hyper, seed));
        }
    }
}
