//! Thresholds: the band, the calm time, and adaptive thresholds.

use std::time::Duration;

use tidegate_core::detect::{AdaptiveConfig, Judge, JudgeConfig, Level, Limit};
use tidegate_core::units::Timestamp;

use super::bench::{TICK, fixed, secs};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

/// The levels (their first letters) for a course of figures, one a second.
fn course(config: &JudgeConfig, figures: &[f64]) -> String {
    let mut judge = Judge::new(config);
    let seconds = (1..).map(|s| START + Duration::from_secs(s));
    let level = |(figure, now): (&f64, Timestamp)| {
        judge.take(Some(*figure), now);
        match judge.verdict().level {
            Level::Unknown => '?',
            Level::Green => '.',
            Level::Orange => 'o',
            Level::Red => 'R',
        }
    };
    figures.iter().zip(seconds).map(level).collect()
}

#[test]
fn a_level_ends_only_below_the_band() {
    let figures = [79.0, 80.0, 75.0, 72.1, 71.9, 100.0, 91.0, 90.1, 89.9, 73.0, 71.0, 200.0, 10.0];
    assert_eq!(course(&fixed(80.0, 100.0), &figures), ".ooo.RRRoo.R.");
}

#[test]
fn a_level_ends_only_after_the_calm_time() {
    let config = JudgeConfig { calm: secs(2.0), ..fixed(80.0, 100.0) };
    // A short dip has no effect. After two seconds below, the level is the highest of those.
    assert_eq!(course(&config, &[100.0, 10.0, 10.0, 100.0, 10.0, 10.0, 10.0, 10.0]), "RRRRRR..");
    assert_eq!(course(&config, &[100.0, 10.0, 85.0, 10.0, 10.0, 10.0, 10.0]), "RRRooo.");
}

#[test]
fn without_an_orange_threshold_there_is_no_orange() {
    let limit = Limit::Fixed { orange: None, red: 100.0 };
    assert_eq!(course(&JudgeConfig { limit, ..fixed(0.0, 0.0) }, &[99.0, 100.0, 95.0, 89.0]), ".RR.");
}

fn adaptive(floor: f64, ceiling: f64) -> JudgeConfig {
    let config = AdaptiveConfig { k: 4.0, learn: secs(60.0), floor, ceiling };
    JudgeConfig { limit: Limit::Adaptive(config), hysteresis: 0.1, calm: secs(1.0) }
}

struct Learner {
    judge: Judge,
    now: Timestamp,
}

impl Learner {
    fn new(config: &JudgeConfig) -> Self {
        Self { judge: Judge::new(config), now: START }
    }

    /// Runs for `span` with a figure by tick.
    fn run(&mut self, span: Duration, figure: impl Fn(usize) -> f64) -> Level {
        for tick in 0..(span.as_micros() / TICK.as_micros()) as usize {
            self.now = self.now + TICK;
            self.judge.take(Some(figure(tick)), self.now);
        }
        self.judge.verdict().level
    }

    fn red(&self) -> f64 {
        self.judge.verdict().red.unwrap()
    }
}

/// Swings by 10 around its mean.
fn swing(mean: f64) -> impl Fn(usize) -> f64 {
    move |tick| if tick.is_multiple_of(2) { mean - 10.0 } else { mean + 10.0 }
}

#[test]
fn the_threshold_is_the_mean_and_four_deviations() {
    let mut learner = Learner::new(&adaptive(0.0, f64::INFINITY));
    assert_eq!(
        learner.run(secs(7.0), swing(100.0)),
        Level::Unknown,
        "less than an eighth of `learn` has passed"
    );
    assert_eq!(learner.run(secs(300.0), swing(100.0)), Level::Green);
    let verdict = learner.judge.verdict();
    let (orange, red) = (verdict.orange.unwrap(), verdict.red.unwrap());
    assert!((red - 140.0).abs() < 2.0 && (orange - 120.0).abs() < 2.0, "{verdict:?}");
    // It follows slow growth.
    let slowly = |tick: usize| 100.0 + tick as f64 / 600.0 + swing(0.0)(tick);
    assert_eq!(learner.run(secs(6000.0), slowly), Level::Green);
    assert!((learner.red() - 240.0).abs() < 10.0, "{}", learner.red());
}

#[test]
fn congestion_is_not_learned() {
    let mut learner = Learner::new(&adaptive(0.0, f64::INFINITY));
    learner.run(secs(300.0), swing(100.0));
    assert_eq!(learner.run(TICK, swing(500.0)), Level::Red);
    let before = learner.red();
    // For a day.
    assert_eq!(learner.run(secs(86_400.0), swing(500.0)), Level::Red);
    assert_eq!(learner.red(), before);
    assert_eq!(learner.run(secs(5.0), |_| 100.0), Level::Green);
    assert!((learner.red() - before).abs() < 5.0, "{} was {before}", learner.red());
}

#[test]
fn bounds_hold_whatever_is_learned() {
    let mut learner = Learner::new(&adaptive(60.0, 130.0));
    learner.run(secs(300.0), swing(10.0));
    assert_eq!(learner.red(), 60.0);
    // Slow growth is learned up to the ceiling, where red begins.
    let slowly = |tick: usize| 10.0 + tick as f64 / 600.0 + swing(0.0)(tick);
    assert_eq!(learner.run(secs(9000.0), slowly), Level::Red);
    assert_eq!(learner.red(), 130.0);
}

#[test]
fn a_constant_figure_may_change_by_a_twentieth() {
    let mut learner = Learner::new(&adaptive(0.0, f64::INFINITY));
    learner.run(secs(300.0), |_| 100.0);
    assert!((learner.red() - 110.0).abs() < 1e-6, "G: a tenth of the mean");
    assert_eq!(learner.run(TICK, |_| 104.0), Level::Green);
}

#[test]
fn other_thresholds_leave_the_level_and_its_timer_alone() {
    let config = JudgeConfig { calm: secs(3.0), ..fixed(80.0, 100.0) };
    let mut judge = Judge::new(&config);
    let at = |judge: &mut Judge, second: u64, figure: f64| {
        judge.take(Some(figure), START + Duration::from_secs(second));
        judge.verdict().level
    };
    assert_eq!(at(&mut judge, 1, 120.0), Level::Red);
    assert_eq!(at(&mut judge, 2, 70.0), Level::Red, "the calm time begins");
    let now = START + secs(2.0);
    judge.retune(&JudgeConfig { limit: Limit::Fixed { orange: Some(90.0), red: 200.0 }, ..config }, now);
    assert_eq!(judge.verdict().level, Level::Red);
    assert_eq!(at(&mut judge, 4, 70.0), Level::Red);
    assert_eq!(at(&mut judge, 5, 70.0), Level::Green, "the calm time goes on where it was");
    // By a lower threshold the level rises at once.
    let now = START + secs(5.5);
    judge.retune(&JudgeConfig { limit: Limit::Fixed { orange: None, red: 60.0 }, ..config }, now);
    assert_eq!(judge.verdict().level, Level::Red);
}

#[test]
fn other_parameters_of_a_learned_threshold_keep_what_was_learned() {
    let mut learner = Learner::new(&adaptive(0.0, f64::INFINITY));
    learner.run(secs(300.0), swing(100.0));
    let with = |k: f64, learn: f64, floor: f64| {
        let config = AdaptiveConfig { k, learn: secs(learn), floor, ceiling: f64::INFINITY };
        JudgeConfig { limit: Limit::Adaptive(config), ..adaptive(0.0, f64::INFINITY) }
    };
    // Half the deviations, and a warm-up that would last for over seven minutes.
    learner.judge.retune(&with(2.0, 3600.0, 0.0), learner.now);
    assert_eq!(learner.run(TICK, |_| 100.0), Level::Green);
    assert!((learner.red() - 120.0).abs() < 2.0, "{}", learner.red());
    // A new normal that came with a jump is red until the floor is above it, and is then learned.
    learner.judge.retune(&with(4.0, 60.0, 0.0), learner.now);
    assert_eq!(learner.run(secs(600.0), swing(300.0)), Level::Red);
    learner.judge.retune(&with(4.0, 60.0, 400.0), learner.now);
    assert_eq!(learner.run(secs(600.0), swing(300.0)), Level::Green);
    learner.judge.retune(&with(4.0, 60.0, 0.0), learner.now);
    assert_eq!(learner.run(secs(10.0), swing(300.0)), Level::Green);
    assert!((learner.red() - 340.0).abs() < 5.0, "{}", learner.red());
}
