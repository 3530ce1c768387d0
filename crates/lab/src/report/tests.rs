//! The table is set straight and warns where it must.

use super::*;
use crate::tally::tests::gated;

#[test]
fn the_table_is_set_straight() {
    let outcome = gated().outcome("with gate", Way::Real, 1, None);
    let mut other = gated().outcome("a name that is far too long for a column", Way::Sim, 1, None);
    other.summary.insert("offered".into(), 1_234_567.0);
    let table = table(&[&outcome, &other]);
    let rule = table.lines().position(|line| line.contains('─')).expect("a rule");
    let width = table.lines().nth(rule).map(|line| line.chars().count()).expect("a rule");
    let rows: Vec<&str> = table.lines().skip(rule + 1).filter(|line| line.starts_with("    ")).collect();
    assert!(rows.len() > 15 && rows.iter().all(|row| row.chars().count() == width), "{table}");
    assert!(rows.iter().any(|row| row.contains("came ") && row.ends_with(" 1,234,567")), "{table}");
    assert!(table.lines().all(|line| line.trim_end() == line), "{table}");
    assert!(table.contains("a name that is far too l\n"), "{table}");
}

#[test]
fn figures_without_content_are_not_shown() {
    let mut tally = crate::tally::Tally::default();
    tally.arrived(std::time::Duration::ZERO);
    let quiet = table(&[&tally.outcome("quiet", Way::Sim, 1, None)]);
    for absent in ["wait", "attacks", "door", "bench", "given", "status"] {
        assert!(!quiet.contains(absent), "{absent}: {quiet}");
    }
    assert!(quiet.contains("still there at the end") && quiet.contains("share served"), "{quiet}");
}

#[test]
fn warnings_name_what_makes_figures_doubtful() {
    let mut outcome = gated().outcome("flash", Way::Real, 1, None);
    assert!(warnings(&outcome).is_empty());
    outcome.partial = Some("the target died".into());
    for (key, value) in [("lag_p99_ms", 31.0), ("failures_bench", 1200.0), ("attacks_let_in", 2.0)] {
        outcome.summary.insert(key.into(), value);
    }
    let table = table(&[&outcome]);
    for part in ["partial: the target died.", "31 ms late", "1,200 times", "2 altered or used tickets"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    outcome.way = Way::Sim;
    assert!(!warnings(&outcome).concat().contains("late"), "virtual time is never late");
}
