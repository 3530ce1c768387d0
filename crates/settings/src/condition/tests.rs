//! Conditions: what may be written, its meaning, and the messages about mistakes.

use super::*;

const DETECTORS: [&str; 3] = ["cpu", "db", "queued_jobs"];

fn compile(text: &str) -> Result<Condition, Wrong> {
    Condition::compile(text, &DETECTORS)
}

/// `cpu` is red at 0.97, `db` unknown, `queued_jobs` green at 3; the gate queues 50 requests; it is a Sunday,
/// 07:08.
fn facts() -> Facts {
    let mut figures = vec![None; GateFigure::ALL.len()];
    figures[GateFigure::named("queued").unwrap().0] = Some(50.0);
    Facts {
        levels: vec![Level::Red, Level::Unknown, Level::Green],
        detectors: vec![Some(0.97), None, Some(3.0)],
        figures,
        times: [7.0, 8.0, 7.0, 22.0, 11.0],
    }
}

fn truth(text: &str) -> Truth {
    let condition = compile(text).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
    Evaluator::default().with(&facts(), |holds| holds(&condition))
}

#[test]
fn conditions_have_the_meaning_of_cel() {
    for (text, wanted) in [
        ("true", true),
        ("levels.cpu == \"red\"", true),
        ("levels.cpu == 'orange'", false),
        ("levels.cpu != \"green\"", true),
        ("levels.cpu >= \"orange\" && levels.queued_jobs < \"orange\"", true),
        ("\"red\" == levels.cpu", true),
        ("levels.cpu == levels.queued_jobs", false),
        ("levels.cpu in [\"orange\", \"red\"]", true),
        ("figures.queued_jobs in [1, 2, 3]", true),
        ("figures.cpu > 0.9", true),
        ("figures.queued > 49", true),
        ("figures.queued >= 50u && figures.queued == 50.0", true),
        ("(figures.queued + 10) / 2 - 5 * figures.queued_jobs == 15", true),
        ("-figures.queued < -1", true),
        ("figures.cpu > 0.9 ? figures.queued > 100 : true", false),
        ("(figures.cpu > 0.9 ? 1 : 2) == 1", true),
        ("time.hour >= 7 && time.hour < 20 && time.weekday == 7 && time.minute == 8", true),
        ("time.day == 22 && time.month == 11", true),
        ("!(levels.cpu == \"red\")", false),
        ("has(levels.cpu) && !has(levels.db)", true),
        ("has(figures.cpu) && !has(figures.db) && !has(figures.waiting) && has(time.hour)", true),
        ("1 < 2 == true", true),
    ] {
        assert_eq!(truth(text), Truth::from(wanted), "{text}");
    }
}

#[test]
fn an_unknown_value_makes_the_condition_unknown_unless_the_rest_decides() {
    for (text, wanted) in [
        ("levels.db == \"red\"", Truth::Unknown),
        ("levels.db != \"red\"", Truth::Unknown),
        ("!(levels.db == \"red\")", Truth::Unknown),
        ("levels.db in [\"red\"]", Truth::Unknown),
        ("figures.db > 1", Truth::Unknown),
        ("figures.waiting > 1", Truth::Unknown),
        ("levels.db == \"red\" || levels.cpu == \"red\"", Truth::True),
        ("levels.cpu == \"red\" || levels.db == \"red\"", Truth::True),
        ("levels.db == \"red\" || levels.cpu == \"green\"", Truth::Unknown),
        ("levels.cpu == \"green\" || levels.db == \"red\"", Truth::Unknown),
        ("levels.db == \"red\" && levels.cpu == \"green\"", Truth::False),
        ("levels.cpu == \"green\" && levels.db == \"red\"", Truth::False),
        ("levels.db == \"red\" && levels.cpu == \"red\"", Truth::Unknown),
        ("figures.db > 1 ? true : true", Truth::Unknown),
        // NaN counts as unknown.
        ("0 / 0 > 1", Truth::Unknown),
        ("1 / 0 > 1", Truth::True),
        ("has(levels.db) && levels.db == \"red\"", Truth::False),
    ] {
        assert_eq!(truth(text), wanted, "{text}");
    }
}

#[test]
fn a_mistake_in_a_condition_is_explained() {
    for (text, got, hint) in [
        ("levels.cpo == \"red\"", "`levels.cpo`", "Did you mean `cpu`?"),
        ("figures.qeued > 1", "`figures.qeued`", "Did you mean `queued`?"),
        ("time.huor > 1", "`time.huor`", "Did you mean `hour`?"),
        ("level.cpu == \"red\"", "the name `level`", "Did you mean `levels`?"),
        ("cpu == \"red\"", "the name `cpu`", "Write `levels.cpu` or `figures.cpu`."),
        ("queued > 1", "the name `queued`", "Write `figures.queued`."),
        ("levels.cpu == red", "the name `red`", "Write \"red\" in quotes."),
        ("levels.cpu == \"rde\"", "\"rde\"", "Did you mean `red`?"),
        (
            "levels.cpu == \"unknown\"",
            "\"unknown\"",
            "Write `!has(levels.NAME)` to ask whether it is unknown.",
        ),
        ("levels.cpu", "a level", ""),
        ("levels.cpu && true", "a level", "Compare it: `== \"red\"`."),
        ("figures.cpu", "a number", ""),
        ("1 && true", "a number", ""),
        ("levels.cpu > 1", "a level and a number", ""),
        ("figures.cpu == \"red\"", "a number and the text \"red\"", ""),
        ("true < false", "true or false and true or false", ""),
        ("figures.cpu + \"1\" > 1", "the text \"1\"", ""),
        ("figures.cpu % 2 == 0", "`%`", ""),
        ("figures.cpu.x > 1", "`.x` of something else", ""),
        ("levels[\"cpu\"] == \"red\"", "`[ ]`", ""),
        ("[1, 2].exists(x, x > 1)", "one", ""),
        ("[1] == [1]", "one", ""),
        ("{1: 2} == {1: 2}", "something else", ""),
        ("size(\"a\") > 1", "`size`", ""),
        ("\"a\".contains(\"b\")", "`.contains()`", ""),
        ("null == null", "another constant", ""),
        ("levels.cpu in levels.db", "none", ""),
        ("true ? \"red\" : \"green\"", "the text \"red\"", ""),
    ] {
        let wrong = compile(text).err().unwrap_or_else(|| panic!("{text} is none"));
        assert_eq!((wrong.got.as_str(), wrong.hint.unwrap_or_default().as_str()), (got, hint), "{text}");
        assert!(!wrong.expected.is_empty());
    }
    // The message of the parser.
    for text in ["", "levels.cpu = \"red\"", "(true", "true &&", "levels.", "\u{0}", "true true", "'"] {
        assert!(compile(text).unwrap_err().expected.starts_with("a condition in CEL"), "{text}");
    }
    assert_eq!(compile("levels.cpu = \"red\"").unwrap_err().hint.as_deref(), Some("Write == to compare."));
}

#[test]
fn a_condition_lists_the_detectors_and_figures_it_uses() {
    let condition = compile("levels.db == \"red\" && figures.cpu > 1 && figures.queued > 1").unwrap();
    assert_eq!(condition.detectors, [1, 0]);
    assert_eq!(
        condition.figures.iter().map(|at| GateFigure::ALL[*at].name()).collect::<Vec<_>>(),
        ["queued"]
    );
}

#[test]
fn a_long_or_deep_condition_does_not_overflow_the_stack() {
    // On a stack as small as the control thread's.
    let deep = |open: &str, close: &str, n: usize| format!("{}true{}", open.repeat(n), close.repeat(n));
    let check = move || {
        assert!(compile(&format!("1 < {}", ["1"; 3_000].join("+"))).unwrap_err().got.contains("operators"));
        for text in [
            deep("(", ")", 100),
            deep("!", "", 120),
            deep("!(", ")", 60),
            format!("1 < {}", ["1"; 100].join("+")),
            format!("1 < {}", "-".repeat(120) + "1"),
            ["true"; 100].join(" && "),
            ["true"; 60].join(" || "),
            format!("{}true", "true ? true : ".repeat(40)),
        ] {
            // Some are refused as too deep.
            if let Ok(condition) = compile(&text) {
                let truth = Evaluator::default().with(&facts(), |holds| holds(&condition));
                assert!(truth != Truth::Unknown, "{text}");
            }
        }
        assert_eq!(truth(&["levels.cpu == \"red\""; 30].join(" && ")), Truth::True);
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(check).unwrap().join().unwrap();
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

    /// Any text is a condition or a mistake, and every condition can be evaluated.
    #[test]
    fn no_text_panics(text in "(levels|figures|time|\\.cpu|\\.db|==|<|&&|\\|\\||!|\\(|\\)|\"red\"| |1|0\\.5|\\+|\\?|:|has|,|\\[|\\]|in|x|'|\\\\){0,14}") {
        if let Ok(condition) = compile(&text) {
            Evaluator::default().with(&facts(), |holds| holds(&condition));
        }
    }
}
