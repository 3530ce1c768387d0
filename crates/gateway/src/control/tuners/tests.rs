//! Scripts before a gate that is made up: what they may do, and where they are stopped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_core::tune::{Correlated, View};
use tidegate_core::units::Rate;

use super::*;

/// A gate of which is known what is written here.
#[derive(Default)]
struct Known {
    figures: BTreeMap<&'static str, f64>,
    tunables: BTreeMap<&'static str, &'static str>,
    is_overloaded: bool,
    /// What every figure of the history costs in time.
    slow: Duration,
    now_us: AtomicU64,
}

impl Known {
    fn tell(&self, key: &str) -> Result<Option<f64>, String> {
        self.now_us.fetch_add(self.slow.as_micros() as u64, Relaxed);
        Ok(self.figures.get(key).copied())
    }
}

impl View for Known {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now_us.load(Relaxed))
    }
    fn figure(&self, metric: &str, class: &str) -> Result<Option<f64>, String> {
        self.tell(&format!("{metric} {class}"))
    }
    fn peak(&self, metric: &str, class: &str, span: Duration) -> Result<Option<f64>, String> {
        self.tell(&format!("peak {metric} {class} {}", span.as_secs()))
    }
    fn mean(&self, metric: &str, class: &str, span: Duration) -> Result<Option<f64>, String> {
        self.tell(&format!("mean {metric} {class} {}", span.as_secs()))
    }
    fn capacity(&self) -> Option<Rate> {
        Rate::per_second(100.0)
    }
    fn is_overloaded(&self) -> bool {
        self.is_overloaded
    }
    fn correlation(&self, of_type: &str, figure: &str) -> Result<Option<Correlated>, String> {
        let known = Correlated { r: Some(0.57), p: None, is_culprit: true, share: 0.12, cost: Some(0.8) };
        match (of_type, figure) {
            ("path:/search", "db") => Ok(Some(known)),
            (_, "db") => Ok(None),
            _ => Err(format!("there is no figure {figure:?}")),
        }
    }
    fn get(&self, name: &str) -> Option<String> {
        self.tunables.get(name).map(|value| (*value).to_owned())
    }
}

fn run(text: &str) -> Result<Vec<Change>, TunerError> {
    let view: Seen = Arc::new(Known::default());
    Script::new(text).and_then(|mut script| script.tune(&view))
}

fn changes(list: &[(&str, &str)]) -> Vec<Change> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_script_reads_correlations() {
    let text = r#"
        let found = correlation("path:/search", "db");
        if correlation("path:/about", "db") == () && found.culprit && found.p == () && found.r > 0.5 {
            set("class.search.ingress.rate", 10.0 / found.cost * found.share);
        }"#;
    assert_eq!(run(text).unwrap(), changes(&[("class.search.ingress.rate", "1.5")]));
    let error = run("correlation(\"path:/search\", \"cpu\")").unwrap_err();
    assert!(error.what.contains("no figure"), "{error}");
}

const FIGURE_2B: &str = include_str!("../../../../../examples/tuners/throttle-home.rhai");

#[test]
fn masth_figure_2b_takes_at_most_ten_lines_and_throttles_only_while_overloaded() {
    assert!(FIGURE_2B.lines().count() <= 10, "{FIGURE_2B}");
    let mut script = Script::new(FIGURE_2B).unwrap();
    let mut seen = |is_overloaded, cost| {
        let figures = BTreeMap::from([("peak goodput home 86400", 50.0)]);
        let tunables = BTreeMap::from([("class.home.cost", cost)]);
        let view: Seen = Arc::new(Known { is_overloaded, figures, tunables, ..Known::default() });
        script.tune(&view).unwrap()
    };
    let on = |rate| changes(&[("class.home.ingress.rate", rate), ("class.home.ingress.limit", "\"on\"")]);
    assert_eq!(seen(true, "1.0"), on("30.0"));
    assert_eq!(seen(true, "2.5"), on("75.0"), "the rate is in cost units");
    assert_eq!(seen(false, "1.0"), changes(&[("class.home.ingress.limit", "\"off\"")]));
}

#[test]
fn a_script_reads_figures_and_tunables_and_remembers() {
    let text = r#"
        state.runs = (state.runs ?? 0) + 1;
        set("a", goodput("home") + arrivals() + mean("in_flight", "all", "15m") + capacity() + state.runs);
        set("b", get("text") + "!");
        set("b", get("whole") * 2);
        set("c", [true, response_p99("home") ?? -1]);
    "#;
    let figures =
        BTreeMap::from([("goodput home", 1.0), ("arrivals all", 2.0), ("mean in_flight all 900", 4.0)]);
    let tunables = BTreeMap::from([("text", "\"x\""), ("whole", "21")]);
    let view: Seen = Arc::new(Known { figures, tunables, ..Known::default() });
    let mut script = Script::new(text).unwrap();
    for runs in 1..4 {
        let a = format!("{:?}", 107.0 + f64::from(runs));
        let wanted = changes(&[("a", &a), ("b", "42"), ("c", "[true, -1]")]);
        assert_eq!(script.tune(&view).unwrap(), wanted);
    }
}

#[test]
fn a_failing_script_is_stopped_and_its_error_has_a_position() {
    let deep = format!("let x = {}1{};", "(".repeat(500), ")".repeat(500));
    for (text, what, at) in [
        ("let x = 1;\nloop { x += 1; }", "stopped: more than 100000 steps", true),
        ("fn f(n) { f(n + 1) }\nf(0)", "stopped: more than 16 calls", true),
        ("let a = [];\nloop { a.push(a); }", "Size of array", true),
        ("let a = [];\nloop { a.push(1); }", "Size of array", true),
        ("let s = \"x\";\nloop { s += s; }", "Length of string", true),
        ("let m = #{};\nlet n = 0;\nloop { m[`k${n}`] = n; n += 1; }", "stopped", true),
        ("let m = #{};\nlet n = 0;\nloop { m[`k${n}`] = m; n += 1; }", "too large", true),
        ("let m = #{};\nloop { m.a = m; }", "too large", true),
        ("fn f() { this.a = this; }\nlet m = #{}; m.f();", "this", true),
        ("let n = 0;\nloop { state[`k${n}`] = state; n += 1; }", "too large", true),
        ("let a = [0];\nloop { a[0] = [a, a]; }", "Size of array", true),
        ("let a = [];\na.pad(1000000000, 1);", "Size of array", true),
        ("let s = \"\";\ns.pad(1000000000, 'x');", "Length of string", true),
        ("1;\n  let x = 1 / 0;", "Division by zero", true),
        ("set(\"a\", 1);\nnonsense();", "Function not found: nonsense", true),
        ("throw \"why not\"", "why not", true),
        ("let x = ;", "", true),
        ("eval(\"1\")", "eval", true),
        ("import \"x\" as x;", "import", true),
        ("sleep(1000)", "there is no sleep", true),
        ("sleep(1000.0)", "there is no sleep", true),
        ("set(\"a\", 0.0 / 0.0)", "no tunable takes NaN", true),
        ("set(\"a\", #{})", "no tunable takes #{}", true),
        ("get(\"nothing\")", "there is no tunable \"nothing\"", true),
        ("peak(\"goodput\", \"all\", \"a while\")", "no span of time", true),
        ("state = 1;", "must remain a map", false),
        (&deep, "", true),
    ] {
        let error = run(text).expect_err(text);
        assert!(error.what.contains(what), "{text}: {error}");
        assert_eq!(error.at.is_some(), at, "{text}: {error}");
    }
    assert_eq!(run("1;\n  let x = 1 / 0;").unwrap_err().at, Some((2, 13)));
}

#[test]
fn a_run_that_takes_too_long_is_stopped() {
    let view: Seen = Arc::new(Known { slow: Duration::from_millis(60), ..Known::default() });
    let run = |times: u32| {
        let text = format!("for i in 0..{times} {{ peak(\"goodput\", \"all\", \"1y\"); }}\nset(\"a\", 1);");
        Script::new(&text.replace("1y", "1d")).and_then(|mut script| script.tune(&view))
    };
    assert_eq!(run(3), Ok(changes(&[("a", "1")])));
    let error = run(100).unwrap_err();
    assert!(error.what.contains("ran for more than"), "{error}");
}

#[test]
fn a_run_that_fails_keeps_no_changes_of_its_memory() {
    let view: Seen = Arc::new(Known::default());
    let text = "state.n = (state.n ?? 0) + 1; set(\"n\", state.n); if state.n == 2 { throw 1; }";
    let mut script = Script::new(text).unwrap();
    assert_eq!(script.tune(&view), Ok(changes(&[("n", "1")])));
    for _ in 0..2 {
        assert!(script.tune(&view).is_err(), "it is the second run again");
    }
}

#[test]
fn no_more_changes_than_a_request_may_make() {
    let set = |n| run(&format!("for i in 0..{n} {{ set(`k${{i}}`, i); set(`k${{i}}`, 0); }}"));
    assert_eq!(set(256).unwrap().len(), 256);
    assert!(set(257).is_err());
}
