//! The configuration as a whole: defaults, documentation, overrides, differences, and arbitrary input.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::capacity;
use tidegate_core::class_costs::CostSource;
use tidegate_core::units::Cost;
use tidegate_settings::{
    AUTO, AccessLog, Binding, Change, Class, ClassCost, LogFormat, Override, Role, Settings, Unit,
    estimator_names,
};

#[path = "../../../../fuzz/config.rs"]
mod fuzz;

fn repository(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

fn with_origin(text: &str) -> Settings {
    Settings::parse_with(text, "f", &[Override::set("origin.replicas=app:80")])
        .unwrap_or_else(|m| panic!("{m:?}"))
}

struct PrintedKey {
    section: String,
    name: String,
    value: String,
}

/// Every key of the printed default.
fn printed_keys() -> Vec<PrintedKey> {
    let (mut section, mut keys) = (String::new(), Vec::new());
    for line in Settings::print_default().lines().take_while(|line| !line.contains("An example of a class")) {
        let line = line.strip_prefix("# ").unwrap_or(line);
        if line.starts_with('[') && line.ends_with(']') {
            section = line.trim_matches(['[', ']']).to_owned();
        } else if let Some((key, value)) = line.split_once(" = ")
            && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        {
            keys.push(PrintedKey { section: section.clone(), name: key.to_owned(), value: value.to_owned() });
        }
    }
    keys
}

#[test]
fn the_printed_default_is_the_default() {
    let settings = with_origin(&Settings::print_default());
    let mut default = Settings::default();
    default.origin.replicas = vec!["app:80".into()];
    assert_eq!(settings, default);
    // With the example class uncommented, it is still a configuration.
    let open: String = Settings::print_default()
        .lines()
        .map(|line| {
            let bare = line.strip_prefix("# ").unwrap_or(line);
            let code = bare.starts_with("[[class")
                || bare.starts_with("name = \"s")
                || bare.starts_with("match = {");
            if code { format!("{bare}\n") } else { format!("{line}\n") }
        })
        .collect::<String>()
        .replacen("[[class]]", "", 1);
    let class = &with_origin(&open).class[0];
    assert_eq!(
        (class.name.as_str(), class.matches.path.as_slice()),
        ("search", &["/search*".to_owned()][..])
    );
}

#[test]
fn every_line_of_the_default_is_at_most_120_wide_and_every_key_documented() {
    let text = Settings::print_default();
    assert!(text.lines().all(|line| line.chars().count() <= 120));
    let keys = printed_keys();
    assert!(keys.len() >= 75, "{}", keys.len());
    let lines: Vec<_> = text.lines().collect();
    for PrintedKey { name: key, value, .. } in keys {
        let (plain, commented) = (format!("{key} = {value}"), format!("# {key} = {value}"));
        let at = lines.iter().position(|line| *line == plain || *line == commented).unwrap();
        assert!(lines[at - 1].starts_with("# "), "{key} has no comment");
    }
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let s = Settings::default();
    assert_eq!(s.role, Role::Gate);
    assert_eq!(s.listen.http.to_string(), "0.0.0.0:8080");
    assert_eq!(s.listen.admin.to_string(), "127.0.0.1:9090");
    assert_eq!(s.origin.retry_budget, 0.2);
    assert_eq!(s.origin.eject.for_, Duration::from_secs(5));
    assert_eq!(s.limits.max_uri_bytes, 8192);
    assert_eq!(s.room.burst, Duration::from_millis(200));
    assert_eq!((s.room.unit, s.room.binding, s.room.status), (Unit::Session, Binding::Cookie, 503));
    assert_eq!((s.log.format, s.log.access), (LogFormat::Text, AccessLog::Off));
    assert!(s.class.is_empty());
}

#[test]
fn the_reference_page_is_up_to_date() {
    let path = repository("docs/configuration.md");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, Settings::reference()).unwrap();
    }
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        page == Settings::reference(),
        "run this test with TIDEGATE_BLESS=1 to write docs/configuration.md anew"
    );
    for PrintedKey { section, name: key, .. } in printed_keys() {
        assert!(page.contains(&format!("| `{key}` |")), "{section}.{key}");
    }
}

#[test]
fn the_examples_are_valid() {
    let mut seen = 0;
    for file in std::fs::read_dir(repository("examples")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            let settings = Settings::load(&path);
            let shown = |m: &Vec<_>| m.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            assert!(settings.is_ok(), "{}", settings.as_ref().err().map(shown).unwrap_or_default());
            seen += 1;
        }
    }
    assert!(seen >= 5);
}

#[test]
fn match_tables_take_one_value_or_many() {
    let s = with_origin(
        "[[class]]\nname = \"api\"\ncost = 2\n[class.match]\nmethod = \"GET\"\npath = [\"/a\", \"/b/**\"]\n\
         client = [\"10.0.0.0/8\", \"::1\"]\nheader = { \"X-Api\" = [\"1\", \"2\"] }\ncookie = { sid = \"*\" }\n",
    );
    let class = &s.class[0];
    assert_eq!((class.name.as_str(), class.cost), ("api", ClassCost::Given(2.0)));
    assert_eq!(class.matches.method, ["GET"]);
    assert_eq!(class.matches.path, ["/a", "/b/**"]);
    assert_eq!(class.matches.header, [("x-api".into(), "1".into()), ("x-api".into(), "2".into())]);
    assert_eq!(class.matches.cookie, [("sid".into(), "*".into())]);
    assert_eq!(
        class.matches.client.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.0.0.0/8", "::1/128"]
    );
}

#[test]
fn values_are_accepted_in_every_form() {
    type Case = (&'static str, fn(&Settings) -> bool);
    let cases: &[Case] = &[
        ("room.max_wait=1h30m", |s| s.room.max_wait == Duration::from_secs(5400)),
        ("room.burst=1s500ms", |s| s.room.burst == Duration::from_millis(1500)),
        ("room.max_wait=\"10m\"", |s| s.room.max_wait == Duration::from_secs(600)),
        ("limits.request_timeout=0s", |s| s.limits.request_timeout.is_zero()),
        ("limits.max_body_bytes=1MiB", |s| s.limits.max_body_bytes == 1 << 20),
        ("limits.max_body_bytes=5kB", |s| s.limits.max_body_bytes == 5000),
        ("limits.max_body_bytes=77", |s| s.limits.max_body_bytes == 77),
        ("origin.retry_budget=20%", |s| s.origin.retry_budget == 0.2),
        ("origin.retry_budget=1", |s| s.origin.retry_budget == 1.0),
        ("capacity.rate=12", |s| s.capacity.rate == 12.0),
        ("capacity.rate=0.5", |s| s.capacity.rate == 0.5),
        ("capacity.floor=50", |s| s.capacity.floor == 50.0 && s.capacity.ceiling == 0.0),
        ("capacity.estimator=fixed", |s| s.capacity.estimator == "fixed"),
        ("origin.replicas=[\"a:1\", \"[::1]:2\"]", |s| s.origin.replicas == ["a:1", "[::1]:2"]),
        ("origin.health.path=/healthz", |s| s.origin.health.path == "/healthz"),
        ("origin.eject.for=1m", |s| s.origin.eject.for_ == Duration::from_secs(60)),
        ("proxy.trusted=192.0.2.1", |s| s.proxy.trusted[0].to_string() == "192.0.2.1/32"),
        ("listen.http=[::]:80", |s| s.listen.http.to_string() == "[::]:80"),
        ("room.binding=ip-prefix", |s| s.room.binding == Binding::IpPrefix),
        ("room.enabled=false", |s| !s.room.enabled),
        ("room.title=Back soon = really", |s| s.room.title == "Back soon = really"),
        ("room.state_dir=/var/lib/tidegate", |s| s.room.state_dir == Some("/var/lib/tidegate".into())),
        ("room.state_dir=", |s| s.room.state_dir.is_none()),
        ("log.level=info,tidegate=debug", |s| s.log.level == "info,tidegate=debug"),
        ("class.a.cost=2.5", |s| s.class[0].cost == ClassCost::Given(2.5)),
        ("class.a.match.path=/x", |s| s.class[0].matches.path == ["/x"]),
        ("class.a.cost=learned", |s| s.class[0].cost == ClassCost::Learned),
        ("class.0.cost=3", |s| s.class[0].cost == ClassCost::Given(3.0)),
        ("class.0={name=\"b\", cost=4}", |s| {
            (s.class[0].name.as_str(), s.class[0].cost) == ("b", ClassCost::Given(4.0))
        }),
    ];
    for (set, holds) in cases {
        let text = "[origin]\nreplicas = \"app:80\"\n[[class]]\nname = \"a\"\n";
        let settings =
            Settings::parse_with(text, "f", &[Override::set(set)]).unwrap_or_else(|m| panic!("{set}: {m:?}"));
        assert!(holds(&settings), "{set}");
    }
}

#[test]
fn a_class_without_a_cost_is_learned_and_the_default_class_is_the_unit_of_numbers() {
    use CostSource::{Configured, Learned};
    let one = Configured(Cost::ONE);
    let three = Configured(Cost::from_hundredths(300));
    for (classes, expected) in [
        ("", vec![Learned]),
        ("[[class]]\nname = \"a\"\n", vec![Learned, Learned]),
        ("[[class]]\nname = \"a\"\ncost = \"learned\"\n", vec![Learned, Learned]),
        ("[[class]]\nname = \"a\"\ncost = 3\n[[class]]\nname = \"b\"\n", vec![three, Learned, one]),
        ("[[class]]\nname = \"a\"\ncost = 3\n[[class]]\nname = \"default\"\n", vec![three, Learned]),
        ("[[class]]\nname = \"default\"\ncost = 3\n[[class]]\nname = \"b\"\n", vec![Learned, three]),
    ] {
        let found: Vec<_> = with_origin(classes).classes().iter().map(Class::cost_source).collect();
        assert_eq!(found, expected, "{classes}");
    }
}

#[test]
fn the_cost_of_a_class_is_printed_and_tuned_in_both_forms() {
    let settings = with_origin("[[class]]\nname = \"a\"\n");
    assert_eq!(settings.value_of("class.a.cost").as_deref(), Some("\"learned\""));
    assert_eq!(settings.value_of("class.default.cost").as_deref(), Some("\"learned\""));
    let (given, applied) = settings.tuned(&[("class.a.cost", "2.5")]).unwrap();
    assert_eq!((applied[0].old.as_str(), applied[0].new.as_str()), ("\"learned\"", "2.5"));
    assert_eq!(given.value_of("class.default.cost").as_deref(), Some("1.0"));
    let (again, _) = given.tuned(&[("class.a.cost", "learned")]).unwrap();
    assert_eq!(again.classes(), settings.classes());
    let changes = settings.diff(&given);
    let keys: Vec<_> = changes.iter().map(|change| (change.key.as_str(), change.restart)).collect();
    assert_eq!(keys, [("class.default.cost", false), ("class.a.cost", false)]);
}

#[test]
fn every_estimator_of_the_core_can_be_chosen_and_auto_follows_the_rate() {
    let names: Vec<_> = estimator_names().collect();
    assert_eq!(names, std::iter::once(AUTO).chain(capacity::names()).collect::<Vec<_>>());
    let discovers = capacity::names().find(|name| *name == "bottleneck").unwrap_or("fixed");
    for name in names {
        let cold = with_origin(&format!("capacity.estimator = \"{name}\""));
        let warm = with_origin(&format!("capacity = {{ estimator = \"{name}\", rate = 50 }}"));
        assert!(capacity::by_name(cold.estimator(), &cold.capacity.options()).is_ok(), "{name}");
        let expected = if name == AUTO { (discovers, "fixed") } else { (name, name) };
        assert_eq!((cold.estimator(), warm.estimator()), expected, "{name}");
        assert_eq!(warm.discovers(), !matches!(name, "auto" | "fixed"), "{name}");
    }
}

/// `section.key` of every parameter of the core's estimators, from the `Debug` output of their
/// configurations.
fn parameters_of_the_core() -> BTreeSet<String> {
    let (mut estimator, mut all) = (String::new(), BTreeSet::new());
    for line in format!("{:#?}", capacity::Options::default()).lines() {
        let indent = line.len() - line.trim_start().len();
        match (indent, line.trim_start().split_once(':')) {
            (4, Some((name, _))) => estimator = name.to_owned(),
            (8, Some((name, _))) => _ = all.insert(format!("capacity.{estimator}.{name}")),
            _ => {}
        }
    }
    all
}

#[test]
fn every_parameter_of_an_estimator_can_be_set() {
    assert_eq!(with_origin("").capacity.options(), capacity::Options::default());
    let mut keys = BTreeSet::new();
    for PrintedKey { section, name: key, value } in printed_keys() {
        if !section.starts_with("capacity.") {
            continue;
        }
        let number = value.parse::<f64>().unwrap_or(1.0);
        let close = [0.9, 0.5, 1.1].map(|factor| format!("{:?}", number * factor));
        let others = ["true", "false", "\"9s\"", "1", "2", "3", "5"].map(str::to_owned);
        let origin = Override::set("origin.replicas=app:80");
        let takes = close.iter().chain(&others).any(|other| {
            let text = format!("[{section}]\n{key} = {other}\n");
            let read = Settings::parse_with(&text, "f", std::slice::from_ref(&origin));
            read.is_ok_and(|s| s.capacity.options() != capacity::Options::default())
        });
        assert!(takes, "{section}.{key} changes nothing");
        keys.insert(format!("{section}.{key}"));
    }
    assert_eq!(keys, parameters_of_the_core());
}

#[test]
fn only_the_parameters_of_an_estimator_count_for_it() {
    let plain = with_origin("").capacity;
    let other =
        with_origin("[capacity]\nrate = 5\nfloor = 1\n[capacity.power_ratio]\nepoch = \"4s\"").capacity;
    assert!(plain.is_tuned_like(&other, "bottleneck") && plain.is_tuned_like(&other, "fixed"));
    assert!(!plain.is_tuned_like(&other, "power-ratio"));
}

#[test]
fn an_origin_is_enough_for_a_configuration() {
    for (origin, replica) in [
        ("app:81", "app:81"),
        ("http://app:81/", "app:81"),
        ("http://app", "app:80"),
        ("http://[::1]/", "[::1]:80"),
    ] {
        let s = Settings::parse_with("", "f", &[Override::origin(origin)]).unwrap();
        assert_eq!(s.origin.replicas, [replica]);
    }
    assert!(Settings::parse_with("", "f", &[Override::origin("")]).is_err());
}

#[test]
fn a_role_has_the_values_of_its_section() {
    let key = "ab".repeat(32);
    let text = format!(
        "role = \"tokencheck\"\n[tokencheck]\ngen_url = \"https://wait.example/\"\nfeedback_url = \"http://10.0.0.2:9090\"\n\
         link_token = \"0123456789abcdef\"\nnumber = 2\npeers = [\"http://10.0.0.3:9090\", \"http://10.0.0.4:9090\"]\n[origin]\nreplicas = \"a:1\"\n[room]\nkeys = \"1:{key}\"\n"
    );
    let s = Settings::parse(&text, "f").unwrap();
    let wanted = Role::TokenCheck {
        gen_url: "https://wait.example/".into(),
        feedback_url: "http://10.0.0.2:9090".into(),
        link_token: "0123456789abcdef".into(),
        peers: vec!["http://10.0.0.3:9090".into(), "http://10.0.0.4:9090".into()],
        number: 2,
    };
    assert_eq!(s.role, wanted);
    let text = format!(
        "role = \"tokengen\"\n[tokengen]\ncheck_url = \"https://c.example\"\nlink_token = \"0123456789abcdef\"\n\
         [room]\nkeys = \"1:{key}\"\n"
    );
    let wanted =
        Role::TokenGen { check_url: "https://c.example".into(), link_token: "0123456789abcdef".into() };
    assert_eq!(Settings::parse(&text, "f").unwrap().role, wanted);
}

#[test]
fn differences_tell_which_keys_need_a_restart() {
    let class = "[[class]]\nname = \"a\"\ncost = 1\n";
    let token = "listen.admin_token = \"0123456789abcdef\"\n";
    let old = with_origin(class);
    let new = with_origin(&format!(
        "{token}listen.workers = 2\nroom.max_wait = \"5m\"\n[[class]]\nname = \"a\"\ncost = 2\n[[class]]\nname = \"b\"\n"
    ));
    let changes = old.diff(&new);
    let find = |key: &str| changes.iter().find(|c| c.key == key).cloned();
    let change = |key: &str, old: &str, new: &str, restart| {
        Some(Change { key: key.into(), old: Some(old.into()), new: Some(new.into()), restart })
    };
    assert_eq!(find("listen.workers"), change("listen.workers", "0", "2", true));
    assert_eq!(find("listen.admin_token"), change("listen.admin_token", "(secret)", "(secret)", false));
    assert_eq!(find("room.max_wait"), change("room.max_wait", "\"30m\"", "\"5m\"", false));
    assert_eq!(find("class.a.cost"), change("class.a.cost", "1.0", "2.0", false));
    assert_eq!(find("class.b.cost").map(|c| (c.old, c.new)), Some((None, Some("\"learned\"".into()))));
    assert_eq!(find("class"), change("class", "[\"a\"]", "[\"a\", \"b\"]", false));
    let keys: BTreeSet<_> =
        changes.iter().map(|c| c.key.as_str()).filter(|key| !key.starts_with("class.b")).collect();
    assert_eq!(keys.len(), 5, "{keys:?}");
    assert!(old.diff(&old).is_empty());
}

/// Sections of which there may be any number.
const LISTS: [&str; 9] =
    ["certificate", "class", "tier", "lighter", "application", "detector", "rule", "syn_rule", "tcp"];

/// Values that no key takes.
const WRONG_FOR_ALL: [&str; 4] = ["1979-05-27", "[[1]]", "{ \"\" = 1 }", "99999999999999999999999"];

#[test]
fn a_value_of_a_wrong_type_is_refused_with_key_and_line() {
    for PrintedKey { section, name: key, .. } in printed_keys() {
        for wrong in WRONG_FOR_ALL {
            let (first, last) = section.split_once('.').unwrap_or((&section, ""));
            let is_item = LISTS.contains(&first);
            let item = if is_item { format!("[[{first}]]\n") } else { "\n".into() };
            let has_header = !(section.is_empty() || is_item && last.is_empty());
            let header = if has_header { format!("[{section}]") } else { String::new() };
            let text = format!("{item}\n{header}\n{key} = {wrong}\n");
            let mistakes = Settings::parse(&text, "f").expect_err(&text);
            let names_it = |got: &str| match first {
                _ if is_item => {
                    got.starts_with(&format!("{first}.#1")) && got.contains(&format!("{last}.{key}"))
                }
                "" => got.starts_with(&key),
                _ => got.starts_with(&format!("{section}.{key}")),
            };
            let found = mistakes.iter().any(|m| m.line == 4 && names_it(&m.key));
            let overflow = wrong.starts_with("999") && mistakes.iter().any(|m| m.line == 4);
            assert!(found || overflow, "{text}\n{mistakes:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_settings_or_mistakes(text in any::<String>()) {
        fuzz::config(text.as_bytes());
    }

    #[test]
    fn the_default_with_bytes_changed_is_settings_or_mistakes(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = Settings::print_default().into_bytes();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fuzz::config(&bytes);
    }

    #[test]
    fn toml_shaped_text_is_settings_or_mistakes(
        lines in prop::collection::vec("(\\[{1,2}(room|class|origin|x)\\.?(match|health)?\\]{1,2}|(name|cost|match|keys|role|x)\\.?(path)? = (\"[a-z/*:%.]{0,9}\"|-?[0-9]{1,20}|\\[\"a\", 1\\]|\\{ path = 1 \\}|nan))", 1..12),
    ) {
        fuzz::config(lines.join("\n").as_bytes());
    }

    #[test]
    fn durations_and_sizes_come_back(ms in 1_000u64..86_400_000, bytes in 256u64..(1 << 15)) {
        let mut old = Settings::default();
        old.room.max_wait = Duration::from_millis(ms);
        old.limits.max_uri_bytes = bytes as usize;
        let changes = Settings::default().diff(&old);
        let set = |c: &Change| Override::set(&format!("{}={}", c.key, c.new.clone().unwrap_or_default()));
        let sets: Vec<_> = changes.iter().map(set).collect();
        old.origin.replicas = vec!["app:80".into()];
        prop_assert_eq!(Settings::parse_with("origin.replicas = \"app:80\"", "f", &sets).ok(), Some(old));
    }
}

#[test]
fn a_rule_for_new_visitors_is_warned_of_without_sessions() {
    let rule = "[[rule]]\nname = \"r\"\nwhen = \"true\"\nvisitors = \"new\"\n";
    for (room, warns) in [("", false), ("room.unit = \"request\"", true), ("room.enabled = false", true)] {
        let all = with_origin(&format!("{room}\n{rule}")).warnings();
        assert_eq!(all.iter().any(|one| one.starts_with("rule.r.visitors: ")), warns, "{room}: {all:?}");
    }
}

#[test]
fn a_queue_too_short_for_the_room_is_warned_of() {
    for (queue, discovers, warns) in [("999ms", true, true), ("1s", true, false), ("1ms", false, false)] {
        let rate = if discovers { 0 } else { 100 };
        let settings =
            with_origin(&format!("capacity.rate = {rate}\nqueue.max_wait = \"{queue}\"")).warnings();
        assert_eq!(!settings.is_empty(), warns, "{queue} {discovers}: {settings:?}");
        assert!(settings.iter().all(|warning| warning.starts_with("queue.max_wait: 999ms")), "{settings:?}");
    }
}
