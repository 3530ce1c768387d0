//! The tick in virtual time: from measurements to the policies that workers see, over reloads and tuning.

use tidegate_core::measure::Shard;
use tidegate_core::policies::{Policy, PolicyDecision, PolicyRequest, TierId};
use tidegate_core::units::{ClassId, Cost};

use super::*;
use crate::config::Config;
use tidegate_settings::Settings;

pub(super) struct Bench {
    pub(super) live: Config,
    pub(super) congestion: Congestion,
    pub(super) readings: Readings,
    pub(super) enforcement: PublishedPolicies,
    wake: watch::Sender<Drain>,
    pub(super) shard: Shard,
    pub(super) connections: u64,
    pub(super) now: Timestamp,
}

fn live(text: &str) -> Config {
    let text = format!("[origin]\nreplicas = [\"app:80\"]\n{text}");
    let settings = Settings::parse(&text, "test").unwrap_or_else(|mistakes| {
        panic!("{}", mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    });
    let key = format!("1:{}", "00".repeat(32));
    Config::new(settings, &[key]).expect("a configuration")
}

impl Bench {
    pub(super) fn new(text: &str) -> Self {
        let live = live(text);
        Self {
            congestion: Congestion::new(live.plan.clone()),
            live,
            readings: Readings::default(),
            enforcement: PublishedPolicies::default(),
            wake: watch::Sender::new(Drain::No),
            shard: Shard::new(4),
            connections: 0,
            now: Timestamp::from_secs(1_800_000_000),
        }
    }

    pub(super) fn tick(&mut self) {
        self.now = self.now + Duration::from_millis(100);
        let snapshot = Snapshot::take([&self.shard], self.now);
        let measured = Measured {
            snapshot: &snapshot,
            connections: self.connections,
            sessions: None,
            readings: &self.readings,
        };
        let publish = Publish { enforcement: &self.enforcement, wake: &self.wake };
        self.congestion.tick(&self.live.plan, &measured, &publish, self.now);
    }

    pub(super) fn run(&mut self, seconds: usize) {
        (0..seconds * 10).for_each(|_| self.tick());
    }

    fn reload(&mut self, text: &str) {
        let mut new = live(text);
        new.follow(&self.live, &Snapshot::take([&self.shard], self.now), |_| true);
        new.succeed(&self.live, self.now);
        self.live = new;
        self.tick();
    }

    pub(super) fn tune(&mut self, name: &str, value: &str) {
        let (settings, _) = self.live.settings.tuned(&[(name, value)]).unwrap();
        let mut new = self.live.tuned(settings).unwrap();
        new.succeed(&self.live, self.now);
        self.live = new;
        self.tick();
    }

    /// Names of the rules in force, highest precedence first.
    fn in_force(&self) -> Vec<String> {
        let policies = self.enforcement.standing();
        let name = |policy: &tidegate_core::policies::ActivePolicy| {
            policies.record_of(policy).expect("a record").rule.to_string()
        };
        policies.set.iter().map(name).collect()
    }

    fn record(&self, rule: usize) -> Arc<PolicyRecord> {
        let policies = self.enforcement.standing();
        let policy = policies.set.iter().find(|policy| usize::from(policy.rule.0) == rule).expect("in force");
        policies.record_of(policy).expect("a record").clone()
    }
}

const CROWDED: &str = "
[[detector]]
name = \"crowd\"
kind = \"connections\"
red = 100
orange = 50
period = \"0s\"
calm = \"0s\"
[[rule]]
name = \"close\"
when = 'levels.crowd == \"red\"'
hold = \"0s\"
visitors = \"new\"
except = [\"/checkout/**\"]
";

pub(super) fn asked(path: &str) -> PolicyRequest<'_> {
    PolicyRequest {
        path,
        query: "",
        class: ClassId(0),
        cost: Cost::ONE,
        tier: TierId(0),
        visitor: 0,
        is_new_session: true,
        is_plain: true,
    }
}

#[test]
fn a_level_puts_a_rule_in_force_and_takes_it_back() {
    let mut bench = Bench::new(CROWDED);
    bench.run(2);
    assert!(bench.in_force().is_empty() && bench.enforcement.word() == 0);
    bench.connections = 120;
    bench.run(2);
    assert_eq!(bench.in_force(), ["close"]);
    let told = bench.record(0);
    assert_eq!((&*told.rule, &*told.level, &*told.figures), ("close", "red", "crowd=120"));
    let refuses = |path: &str| {
        let policies = bench.enforcement.standing();
        matches!(policies.set.decide(&asked(path), 0, bench.now, &mut |_| ()), PolicyDecision::Refuse { .. })
    };
    assert!(refuses("/") && !refuses("/checkout/pay"));
    bench.connections = 10;
    bench.run(2);
    assert!(bench.in_force().is_empty());
}

#[test]
fn the_record_of_a_rule_in_force_is_up_to_date() {
    let mut bench = Bench::new(CROWDED);
    bench.connections = 120;
    bench.run(2);
    bench.connections = 130;
    bench.run(3);
    assert_eq!(&*bench.record(0).figures, "crowd=130");
}

#[test]
fn a_signal_holds_for_its_time() {
    let mut bench = Bench::new(
        "[[detector]]\nname = \"alarm\"\nkind = \"signal\"\ntime_to_live = \"3s\"\n\
         [[rule]]\nname = \"r\"\nwhen = 'levels.alarm == \"red\"'\nhold = \"0s\"\n",
    );
    bench.run(1);
    assert!(bench.in_force().is_empty());
    bench.readings.say("alarm", 1.0, bench.now, Duration::MAX);
    bench.tick();
    assert_eq!(bench.in_force(), ["r"]);
    bench.run(2);
    assert_eq!(bench.in_force(), ["r"]);
    bench.run(1);
    assert!(bench.in_force().is_empty(), "it is unknown, and so ignored");
    // Taken back: at once, though it was to hold longer.
    bench.readings.say("alarm", 1.0, bench.now, Duration::MAX);
    bench.tick();
    bench.readings.say("alarm", 0.0, bench.now, Duration::ZERO);
    bench.tick();
    assert!(bench.in_force().is_empty());
}

#[test]
fn each_rule_says_what_an_unknown_condition_means() {
    let rule = |name: &str| {
        format!(
            "[[rule]]\nname = \"{name}\"\nwhen = 'levels.alarm == \"red\"'\nhold = \"0s\"\nunknown = \"{name}\"\n"
        )
    };
    let text = format!(
        "[[detector]]\nname = \"alarm\"\nkind = \"signal\"\ntime_to_live = \"2s\"\n{}{}{}",
        rule("ignore"),
        rule("hold"),
        rule("apply")
    );
    let mut bench = Bench::new(&text);
    bench.tick();
    assert_eq!(bench.in_force(), ["apply"]);
    bench.readings.say("alarm", 1.0, bench.now, Duration::MAX);
    bench.tick();
    assert_eq!(bench.in_force(), ["ignore", "hold", "apply"]);
    bench.run(3);
    assert_eq!(bench.in_force(), ["hold", "apply"]);
    bench.readings.say("alarm", 0.0, bench.now, Duration::MAX);
    bench.tick();
    assert!(bench.in_force().is_empty());
}

#[test]
fn a_reload_forgets_readings_of_another_figure() {
    let detector = |figure: &str, red: &str| {
        format!("[[detector]]\nname = \"db\"\nkind = \"host\"\nfigure = \"{figure}\"\nred = {red}\n")
    };
    let mut bench = Bench::new(&detector("memory", "1e12"));
    bench.readings.say("db", 1e10, bench.now, Duration::MAX);
    bench.tick();
    let level = |bench: &Bench| bench.congestion.watches[0].resource.verdict().level;
    assert_eq!(level(&bench), Level::Green);
    bench.reload(&detector("memory", "1e9"));
    bench.tick();
    assert_eq!(level(&bench), Level::Red, "the same figure by another threshold");
    bench.reload(&detector("cpu", "0.9"));
    bench.tick();
    assert_eq!(level(&bench), Level::Unknown, "no share of processors was read yet");
    bench.readings.say("db", 0.5, bench.now, Duration::MAX);
    bench.tick();
    assert_eq!(level(&bench), Level::Green);
}

#[test]
fn a_reload_ends_nothing_that_stays() {
    let mut bench = Bench::new(CROWDED);
    bench.connections = 120;
    bench.run(2);
    // Another rule before it, another detector before its: it holds, by its new number.
    let before = "[[detector]]\nname = \"new\"\nkind = \"request-rate\"\nred = 5\n\
                  [[rule]]\nname = \"first\"\nwhen = \"true\"\nthen = \"limit\"\nrate = 5\npriority = 200\n";
    bench.reload(&format!("{before}{CROWDED}"));
    assert_eq!(bench.in_force(), ["first", "close"]);
    assert_eq!(bench.record(1).rule.as_ref(), "close");
    let (_, standing) = bench.congestion.rules().nth(1).unwrap();
    assert_eq!((standing.in_force, standing.times), (true, 1));
    bench.reload("");
    assert!(bench.in_force().is_empty());
    assert_eq!((bench.congestion.rules().count(), bench.congestion.detectors().count()), (0, 0));
}

#[test]
fn a_class_is_the_same_to_rules_and_detectors_after_a_reload() {
    let class = |name: &str| format!("[[class]]\nname = \"{name}\"\nmatch = {{ path = \"/{name}\" }}\n");
    let rest = "[[rule]]\nname = \"r\"\nwhen = \"true\"\nclass = [\"search\"]\n\
                [[detector]]\nname = \"d\"\nkind = \"request-rate\"\nclass = \"search\"\nred = 5\n";
    let mut bench = Bench::new(&format!("{}{rest}", class("search")));
    let refuses_only = |bench: &Bench, name: &str| {
        let (policies, id) = (bench.enforcement.standing(), bench.live.named(name).unwrap());
        let refuses = |class| {
            let asked = PolicyRequest { class, ..asked("/") };
            matches!(policies.set.decide(&asked, 0, bench.now, &mut |_| ()), PolicyDecision::Refuse { .. })
        };
        (0..4).map(ClassId).all(|class| refuses(class) == (class == id))
    };
    let level = |bench: &mut Bench| {
        let id = bench.live.named("search").unwrap();
        for _ in 0..20 {
            bench.shard.arrived(id);
            bench.tick();
        }
        bench.congestion.detectors().next().unwrap().1.level
    };
    assert_eq!(level(&mut bench), Level::Red);
    assert!(refuses_only(&bench, "search"));
    // Another class before it, and then without it.
    bench.reload(&format!("{}{}{rest}", class("cart"), class("search")));
    assert!(refuses_only(&bench, "search"));
    assert_eq!(level(&mut bench), Level::Red);
    bench.reload(&format!("{}{rest}", class("search")));
    assert!(refuses_only(&bench, "search"));
    assert_eq!(level(&mut bench), Level::Red);
}

#[test]
fn a_detector_that_measures_the_same_keeps_its_state() {
    let mut bench =
        Bench::new("[[detector]]\nname = \"rate\"\nkind = \"request-rate\"\nred = 50\nperiod = \"10s\"\n");
    for _ in 0..200 {
        (0..10).for_each(|_| bench.shard.arrived(ClassId(0)));
        bench.tick();
    }
    let level = |bench: &Bench| bench.congestion.detectors().next().map(|(_, verdict, _)| verdict.level);
    assert_eq!(level(&bench), Some(Level::Red));
    bench.reload("[queue]\nmax_wait = \"7s\"\n[[detector]]\nname = \"rate\"\nkind = \"request-rate\"\nred = 50\nperiod = \"10s\"\n");
    assert_eq!(level(&bench), Some(Level::Red));
    bench.reload("[[detector]]\nname = \"rate\"\nkind = \"request-rate\"\nred = 60\nperiod = \"10s\"\n");
    assert_eq!(level(&bench), Some(Level::Red), "another threshold");
    // Nobody comes any more: the level lasts for `calm`, and falls by the new threshold.
    bench.tune("detector.rate.red", "90.0");
    assert_eq!(level(&bench), Some(Level::Red));
    bench.run(5);
    bench.tune("detector.rate.red", "1000.0");
    bench.run(7);
    assert_eq!(level(&bench), Some(Level::Green));
    bench.reload("[[detector]]\nname = \"rate\"\nkind = \"connection-rate\"\nred = 60\nperiod = \"10s\"\n");
    assert_eq!(level(&bench), Some(Level::Unknown), "it is another");
}

#[test]
fn rules_are_tuned_while_they_hold() {
    let mut bench = Bench::new(CROWDED);
    bench.connections = 120;
    bench.run(2);
    bench.tune("rule.close.shadow", "true");
    assert!(bench.enforcement.standing().set.iter().all(|policy| policy.is_shadow));
    assert_eq!(bench.in_force(), ["close"]);
    let standing = |bench: &Bench| *bench.congestion.rules().next().unwrap().1;
    assert_eq!(standing(&bench).times, 1, "it did not end in between");
    bench.tune("rule.close.enabled", "false");
    assert!(bench.in_force().is_empty());
    bench.tune("rule.close.enabled", "true");
    assert_eq!((bench.in_force(), standing(&bench).times), (vec!["close".to_owned()], 2));
    // Another condition that holds keeps the rule in force; one that does not ends it.
    bench.tune("rule.close.when", "'figures.crowd >= 110'");
    assert_eq!((bench.in_force(), standing(&bench).times), (vec!["close".to_owned()], 2));
    bench.tune("rule.close.when", "'figures.crowd >= 130'");
    assert!(bench.in_force().is_empty());
    for (name, value, hint) in [
        ("rule.close.visitors", "true", "a key that takes a changed file and a reload"),
        ("rule.close.enabeld", "true", "Did you mean `rule.close.enabled`?"),
        ("rule.colse.enabled", "true", "The rules are \"close\"."),
        ("rule.close.when", "'levels.cowrd == \"red\"'", "`levels.crowd`"),
        ("rule.close.until", "'figures.crowd'", "a condition, which is true or false"),
        ("detector.crowd.kind", "\"sessions\"", "a key that takes a changed file and a reload"),
        ("detector.crowd.red", "0.0", "a threshold above 0"),
    ] {
        let mistakes = bench.live.settings.tuned(&[(name, value)]).unwrap_err();
        assert!(mistakes[0].to_string().contains(hint), "{}", mistakes[0]);
    }
}

#[test]
fn a_rate_goes_on_where_it_stood() {
    let text = "[[rule]]\nname = \"slow\"\nwhen = \"true\"\nthen = \"limit\"\nrate = 0.2\n";
    let mut bench = Bench::new(text);
    bench.tick();
    let passes = |bench: &Bench| {
        let policies = bench.enforcement.standing();
        matches!(policies.set.decide(&asked("/"), 0, bench.now, &mut |_| ()), PolicyDecision::Pass)
    };
    assert!(passes(&bench) && !passes(&bench));
    bench.tune("queue.max_wait", "\"9s\"");
    assert!(!passes(&bench));
    bench.tune("rule.slow.priority", "3");
    assert!(!passes(&bench), "a change of another key fills no bucket");
    bench.tune("rule.slow.rate", "0.4");
    bench.reload(text);
    assert!(matches!(bench.enforcement.standing().set.iter().next().unwrap().policy, Policy::Limit(_)));
    assert!(!passes(&bench));
}

#[test]
fn figures_are_short() {
    for (x, text) in
        [(0.0, "0"), (0.123_456, "0.1235"), (1234.56, "1235"), (99_999.0, "100000"), (1e-9, "0.000000001")]
    {
        assert_eq!(rounded(x).to_string(), text);
    }
    assert!(rounded(f64::NAN).is_nan());
    assert!(rounded(f64::MIN_POSITIVE).is_finite() && rounded(f64::MAX).is_finite());
}

#[test]
fn a_reload_resolves_names_in_rules_again() {
    let tier =
        |name: &str, more: &str| format!("[[tier]]\nname = \"{name}\"\nclient = \"192.0.2.0/24\"\n{more}");
    let lighter = |name: &str| format!("[[lighter]]\nname = \"{name}\"\nto = \"/{name}\"\n");
    let application = |name: &str| format!("[[application]]\nname = \"{name}\"\nurl = \"http://{name}:1\"\n");
    let rules = "[[rule]]\nname = \"r\"\nwhen = \"true\"\nspare = [\"gold\"]\nurls = [\"/r\"]\n\
                 [[rule]]\nname = \"l\"\nwhen = \"true\"\nthen = \"reroute\"\nto = \"lite\"\nurls = [\"/l\"]\n\
                 [[rule]]\nname = \"a\"\nwhen = \"true\"\nthen = \"ask\"\napplication = \"fraud\"\nurls = [\"/a\"]\n";
    let seen = |bench: &Bench| {
        let (standing, s) = (bench.enforcement.standing(), &bench.live.settings);
        let decide = |path, tier| {
            standing.set.decide(&PolicyRequest { tier, ..asked(path) }, 0, bench.now, &mut |_| ())
        };
        let PolicyDecision::Reroute { route, .. } = decide("/l", TierId(0)) else { panic!("not rerouted") };
        let PolicyDecision::Ask { application, .. } = decide("/a", TierId(0)) else { panic!("not asked") };
        let passes = |name: &&str| matches!(decide("/r", s.tier_id(name).unwrap()), PolicyDecision::Pass);
        let spared: Vec<_> = s.item_names("tier").into_iter().filter(passes).map(str::to_owned).collect();
        let (to, whom) = (usize::from(route.0), usize::from(application.0));
        (s.item_names("lighter")[to].to_owned(), s.item_names("application")[whom].to_owned(), spared)
    };
    let known = |spared: &[&str]| {
        ("lite".to_owned(), "fraud".to_owned(), spared.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let one = [tier("gold", ""), lighter("lite"), application("fraud")].concat();
    let mut bench = Bench::new(&format!("{one}{rules}"));
    bench.tick();
    assert_eq!(seen(&bench), known(&["gold"]));
    // Others before them; one level is spared by all rules. In force with the reload, not with the tick after
    // it.
    let others =
        [tier("crew", "exempt = true\n"), tier("tin", ""), lighter("other"), application("other")].concat();
    let mut new = live(&format!("{others}{one}{rules}"));
    new.follow(&bench.live, &Snapshot::take([&bench.shard], bench.now), |_| true);
    new.succeed(&bench.live, bench.now);
    bench.live = new;
    let publish = Publish { enforcement: &bench.enforcement, wake: &bench.wake };
    bench.congestion.go_over(&bench.live.plan, &bench.readings, &publish, bench.now);
    assert_eq!(seen(&bench), known(&["crew", "gold"]));
    bench.tick();
    assert_eq!(seen(&bench), known(&["crew", "gold"]));
}

#[test]
fn time_is_of_the_calendar() {
    // 2026-11-22T07:08:09Z, a Sunday.
    assert_eq!(times(Timestamp::from_secs(1_795_331_289)), [7.0, 8.0, 7.0, 22.0, 11.0]);
    assert_eq!(times(Timestamp::from_micros(u64::MAX)), [0.0, 0.0, 4.0, 1.0, 1.0]);
}

#[test]
fn a_rule_may_ignore_cookies() {
    let rule = "[[rule]]\nname = \"m\"\nwhen = \"true\"\nthen = \"multicast\"\n";
    let strips = |text: &str| {
        let mut bench = Bench::new(&format!("{rule}{text}"));
        bench.tick();
        match &bench.enforcement.standing().set.iter().next().expect("in force").policy {
            Policy::Multicast { ignores_cookies, .. } => ignores_cookies
                .as_ref()
                .map(|fields| fields.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(strips(""), None);
    assert_eq!(strips("share = \"ignore-cookies\"\n").as_deref(), Some("set-cookie"));
    let more = "share = \"ignore-cookies\"\nstrip = [\"set-cookie\", \"etag\"]\n";
    assert_eq!(strips(more).as_deref(), Some("set-cookie etag"));
    for (text, key, wanted) in [
        ("then = \"refuse\"\nshare = \"ignore-cookies\"", "share", "is of then = \"multicast\""),
        ("then = \"multicast\"\nstrip = \"etag\"", "strip", "no `strip` without share = \"ignore-cookies\""),
        (
            "then = \"multicast\"\nshare = \"ignore-cookies\"\nstrip = \"content-type\"",
            "strip",
            "can still be read",
        ),
        ("then = \"multicast\"\nshare = \"ignore-cookie\"", "share", "Did you mean `ignore-cookies`?"),
    ] {
        let text = format!("origin.replicas = \"a:1\"\n[[rule]]\nname = \"m\"\nwhen = \"true\"\n{text}\n");
        let mistakes = Settings::parse(&text, "test").unwrap_err();
        let told = mistakes[0].to_string();
        assert!(told.contains(&format!("rule.m.{key}: ")) && told.contains(wanted), "{told}");
    }
}
