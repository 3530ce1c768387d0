//! Rules that follow a level (`share = "level"`), in virtual time: detectors, rules and the visitors they
//! meet.

use tidegate_core::policies::{PolicyDecision, PolicyRequest, visitor_number};
use tidegate_core::units::ClassId;

use super::tests::{Bench, asked};
use super::*;

/// Visitors a tick at three times what the service can take, which is 1,000 a second. There are many, so that
/// chance moves little.
const CROWD: u64 = 300;

/// A crowd before a service: each visitor comes once.
struct Crowd {
    bench: Bench,
    visitors: u64,
    /// By tick: how many passed, and the share of the rule.
    seen: Vec<(u64, f64)>,
}

impl Crowd {
    fn new(detector: &str) -> Self {
        let rule =
            "[[rule]]\nname = \"part\"\nwhen = 'levels.d == \"red\"'\nshare = \"level\"\nhold = \"0s\"\n";
        let bench = Bench::new(&format!("[[detector]]\nname = \"d\"\n{detector}\n{rule}"));
        Self { bench, visitors: 0, seen: Vec::new() }
    }

    /// A tenth of a second in which so many visitors come; how many of them pass.
    fn come(&mut self, visitors: u64) -> u64 {
        let policies = self.bench.enforcement.standing();
        let now = self.bench.now;
        let passes = |number: &u64| {
            let asked = PolicyRequest { visitor: visitor_number(u128::from(*number)), ..asked("/") };
            matches!(policies.set.decide(&asked, 0, now, &mut |_| ()), PolicyDecision::Pass)
        };
        let passed = (self.visitors..self.visitors + visitors).filter(passes).count() as u64;
        self.visitors += visitors;
        (0..visitors).for_each(|_| self.bench.shard.arrived(ClassId(0)));
        passed
    }

    fn end_tick(&mut self, passed: u64) {
        self.bench.tick();
        self.seen.push((passed, self.rule().share));
    }

    fn rule(&self) -> RuleState {
        *self.bench.congestion.rules().next().expect("a rule").1
    }

    /// Visitors per second that passed in the last so many seconds, and by how much the share has moved.
    fn last(&self, seconds: usize) -> (f64, f64) {
        let last = &self.seen[self.seen.len() - 10 * seconds..];
        let passed: u64 = last.iter().map(|(passed, _)| passed).sum();
        let shares = || last.iter().map(|(_, share)| *share);
        let swing = shares().fold(0.0, f64::max) - shares().fold(1.0, f64::min);
        (passed as f64 / seconds as f64, swing)
    }

    /// How often the share has turned round after it had moved by a twentieth.
    fn turns(&self) -> usize {
        let (mut turns, mut rises, mut extreme) = (0, true, 0.0_f64);
        for (_, share) in &self.seen {
            match rises {
                true if *share < extreme - 0.05 => (turns, rises, extreme) = (turns + 1, false, *share),
                false if *share > extreme + 0.05 => (turns, rises, extreme) = (turns + 1, true, *share),
                true => extreme = extreme.max(*share),
                false => extreme = extreme.min(*share),
            }
        }
        turns
    }

    fn assert_is_steady(&self, seconds: usize, least: f64, most: f64) {
        let (rate, swing) = self.last(seconds);
        assert!((least..=most).contains(&rate), "{rate} a second passed");
        assert!(swing < 0.06, "the share moved by {swing}");
        assert!(self.turns() <= 1, "it turned {} times", self.turns());
        assert_eq!(self.rule().times, 1, "the rule went on and off");
    }
}

#[test]
fn of_a_rate_the_part_beyond_the_threshold_is_refused() {
    let mut crowd = Crowd::new("kind = \"request-rate\"\nred = 1000");
    for _ in 0..300 {
        let passed = crowd.come(CROWD);
        crowd.end_tick(passed);
    }
    crowd.assert_is_steady(20, 950.0, 1_050.0);
    // Twice as many: at once a larger part.
    for _ in 0..200 {
        let passed = crowd.come(2 * CROWD);
        crowd.end_tick(passed);
    }
    crowd.assert_is_steady(10, 950.0, 1_050.0);
    // Without a crowd nobody is refused, and the rule is over.
    for _ in 0..200 {
        let passed = crowd.come(5);
        crowd.end_tick(passed);
    }
    assert_eq!(crowd.last(5), (50.0, 0.0));
    assert!(!crowd.rule().in_force && crowd.rule().share == 0.0);
}

#[test]
fn a_processor_comes_to_rest_on_the_threshold() {
    // It is read every two seconds, and shows no more than that it is busy all the time.
    let mut crowd = Crowd::new("kind = \"host\"\nred = 0.9");
    let mut since_read = 0;
    for tick in 1..=6_000_u64 {
        let passed = crowd.come(if tick <= 100 { 5 } else { CROWD });
        since_read += passed;
        if tick.is_multiple_of(20) {
            let busy = (since_read as f64 / 2.0 * 0.0009).min(1.0);
            crowd.bench.readings.say("d", busy, crowd.bench.now, Duration::MAX);
            since_read = 0;
        }
        crowd.end_tick(passed);
    }
    crowd.assert_is_steady(100, 950.0, 1_050.0);
    // A third fewer come: the level falls, and the rule stays for those who are still too many.
    for tick in 1..=3_000_u64 {
        let passed = crowd.come(CROWD * 2 / 3);
        since_read += passed;
        if tick.is_multiple_of(20) {
            let busy = (since_read as f64 / 2.0 * 0.0009).min(1.0);
            crowd.bench.readings.say("d", busy, crowd.bench.now, Duration::MAX);
            since_read = 0;
        }
        crowd.end_tick(passed);
    }
    let (rate, swing) = crowd.last(100);
    assert!((950.0..=1_050.0).contains(&rate) && swing < 0.06, "{rate} a second, moved by {swing}");
    assert_eq!((crowd.rule().times, crowd.turns()), (1, 1));
}

#[test]
fn connections_that_last_are_kept_to_the_threshold() {
    // A connection lasts for thirty seconds, and 30,000 are the most.
    let mut crowd = Crowd::new("kind = \"connections\"\nred = 30000\ncalm = \"30s\"");
    let mut open = 0.0;
    let mut most: f64 = 0.0;
    for tick in 1..=12_000 {
        let passed = crowd.come(if tick <= 100 { 5 } else { CROWD });
        open += passed as f64 - open / 300.0;
        most = most.max(open);
        crowd.bench.connections = open as u64;
        crowd.end_tick(passed);
    }
    crowd.assert_is_steady(200, 950.0, 1_050.0);
    assert!(most < 60_000.0 && (29_000.0..=31_000.0).contains(&open), "{open} open, {most} at most");
}

#[test]
fn what_is_unknown_or_in_shadow_moves_no_share() {
    let mut crowd = Crowd::new("kind = \"host\"\nred = 0.5\ntime_to_live = \"3s\"");
    let say = |crowd: &Crowd, x: f64| crowd.bench.readings.say("d", x, crowd.bench.now, Duration::MAX);
    say(&crowd, 1.0);
    crowd.end_tick(0);
    let first = crowd.rule().share;
    assert!((0.45..=0.55).contains(&first), "half of what is twice too much: {first}");
    // Its source is silent: the rule ends, as its condition is unknown, and the share stays as it was.
    (0..40).for_each(|_| crowd.end_tick(0));
    let before = crowd.rule();
    assert!(!before.in_force && before.heard.excess.is_none(), "{before:?}");
    (0..600).for_each(|_| crowd.end_tick(0));
    assert_eq!(crowd.rule().share, before.share);
    // In shadow nobody is refused, so a figure that does not fall says nothing of the share.
    crowd.bench.tune("rule.part.shadow", "true");
    for _ in 0..600 {
        say(&crowd, 1.0);
        crowd.end_tick(0);
    }
    let shadow = crowd.rule().share;
    assert!(shadow <= before.share + 0.01, "{shadow}, was {}", before.share);
    crowd.bench.tune("rule.part.shadow", "false");
    for _ in 0..600 {
        say(&crowd, 1.0);
        crowd.end_tick(0);
    }
    assert!(crowd.rule().share > 0.9 && crowd.rule().share <= 0.99, "{}", crowd.rule().share);
}

#[test]
fn a_rule_that_follows_a_level_names_a_detector() {
    let detector = "[[detector]]\nname = \"d\"\nkind = \"connections\"\nred = 10\n\
                    [[detector]]\nname = \"slow\"\nkind = \"response-time\"\nred = 10\n";
    for (rule, wanted) in [
        ("when = \"true\"", "rule.r.when: expected a condition that names a detector"),
        ("when = 'figures.queued > 3'", "rule.r.when: expected a condition that names a detector"),
        (
            "when = 'levels.d == \"red\"'\naction = \"stop\"",
            "rule.r.action: expected an action that refuses requests",
        ),
    ] {
        let text = format!(
            "origin.replicas = \"a:1\"\n{detector}[[rule]]\nname = \"r\"\nshare = \"level\"\n{rule}\n"
        );
        let mistakes = tidegate_settings::Settings::parse(&text, "test").unwrap_err();
        assert!(mistakes[0].to_string().contains(wanted), "{}", mistakes[0]);
    }
    // Tuned, it is checked as in the file.
    let mut bench = Bench::new(&format!("{detector}[[rule]]\nname = \"r\"\nwhen = \"true\"\n"));
    let mistakes = bench.live.settings.tuned(&[("rule.r.share", "\"level\"")]).unwrap_err();
    assert!(mistakes[0].to_string().contains("names a detector"), "{}", mistakes[0]);
    bench.tune("rule.r.when", "'figures.d >= 10'");
    bench.tune("rule.r.share", "\"level\"");
    bench.connections = 40;
    bench.run(20);
    let share = bench.congestion.rules().next().expect("a rule").1.share;
    assert!(share > 0.7, "{share}");
}
