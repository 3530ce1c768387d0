//! The figures that play fast in virtual time keep the bounds that their files state.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_lab::experiment::catalog;
use tidegate_lab::experiment::expect::breaches;
use tidegate_lab::experiment::play::Player;
use tidegate_lab::outcome::Way;

/// Plays experiments, those that share runs together, and compares them with their bounds.
#[track_caller]
fn check(names: &[&str]) {
    let mut say = |_: &str| {};
    let mut player = Player::new(PathBuf::new(), None, Arc::default(), &mut say);
    for name in names {
        let experiment =
            catalog::embedded(name).expect("known").unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let report = player.play(&experiment, Way::Sim);
        assert_eq!(report.missing(), Vec::<String>::new(), "{name}");
        let broken: Vec<String> = breaches(&experiment, &report).iter().map(ToString::to_string).collect();
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }
}

#[test]
fn the_power_ratio_peaks_where_the_paper_says() {
    check(&["webq-fig2", "webq-fig3"]);
}

#[test]
fn bursts_far_above_the_capacity_are_served_in_the_papers_times_or_better() {
    check(&["webq-fig5", "webq-fig6", "webq-fig7"]);
}

#[test]
fn classes_get_their_shares_at_ten_times_the_capacity() {
    check(&["scheduler-shares"]);
}

#[test]
fn the_capacity_is_found_from_nothing_and_again_after_a_change() {
    check(&["webq-fig8"]);
    check(&["webq-fig9"]);
    check(&["webq-fig10"]);
}

#[test]
fn the_shop_that_collapses_without_a_gate_keeps_its_goodput_behind_one() {
    check(&["masth-fig1-sim"]);
}
