//! What the capacity law does second by second, as it is committed: in flight at most, the capacity it
//! believes in, and what the origin served. A change of the law shows here where and how it acts otherwise.
//! `TIDEGATE_BLESS=1` writes the file anew.

use std::fmt::Write as _;
use std::path::Path;

use tidegate_lab::experiment::catalog::embedded;
use tidegate_lab::sim::{self, SimOptions};

const SEED: u64 = 101;
/// Name, experiment, scenario.
const COURSES: [(&str, &str, &str); 6] = [
    ("cold", "estimator-tournament", "steady-normal"),
    ("rise", "estimator-tournament", "step-up"),
    ("fall", "estimator-tournament", "step-down"),
    ("contention", "estimator-tournament", "contention-1"),
    ("steal", "estimator-disturbed", "steal-40"),
    ("stalls", "estimator-disturbed", "stalls"),
];

fn course(name: &str, experiment: &str, scenario: &str) -> String {
    let file = embedded(experiment).expect("an experiment").unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let tournament = file.tournament.as_ref().expect("a tournament");
    let setting = tournament.scenarios.iter().find(|setting| setting.name == scenario);
    let setting = setting.unwrap_or_else(|| panic!("{experiment} has no {scenario}"));
    let scenario = setting.scenario(&file.source).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let options = SimOptions { check: false, record: true, ..SimOptions::new(SEED) };
    let run = sim::run(&scenario, &options).expect("a scenario that can be played");
    let mut text = format!("{name}: {}\nsecond  in flight  capacity  served\n", setting.about);
    let mut believed = run.record.believed.iter().peekable();
    let mut last = None;
    for second in &run.outcome.series {
        while let Some(belief) = believed.next_if(|belief| belief.at_us < (second.t + 1) * 1_000_000) {
            last = Some(belief);
        }
        let limit = last.and_then(|belief| belief.limit).map_or("-".into(), |limit| limit.to_string());
        let capacity = last.and_then(|belief| belief.capacity).unwrap_or(0.0);
        let _ = writeln!(text, "{:6}  {limit:>9}  {capacity:8.1}  {:6}", second.t, second.served);
    }
    text
}

#[test]
fn the_law_goes_the_ways_that_are_committed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/capacity.txt");
    let courses = COURSES.map(|(name, experiment, scenario)| course(name, experiment, scenario));
    let played = courses.join("\n");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, &played).expect("the committed courses");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = played.lines().zip(committed.lines()).position(|(played, committed)| played != committed);
    let differs = differs.or((played.len() != committed.len()).then_some(0));
    assert!(
        differs.is_none(),
        "line {} of {} differs: see the difference after `TIDEGATE_BLESS=1`, and commit it with the reason",
        differs.map_or(0, |line| line + 1),
        path.display()
    );
}
