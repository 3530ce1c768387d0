//! Formulas against figures worked out by hand.

use super::*;

/// A run of three seconds, and a sweep over three loads.
struct ByHand;

impl Source for ByHand {
    fn key(&self, run: &str, key: &str) -> Option<Value> {
        match (run, key) {
            ("with", "served_share") => Some(Value::Number(0.5)),
            ("steps", "goodput_rps") => Some(Value::Curve(vec![(10.0, 10.0), (20.0, 20.0), (30.0, 21.0)])),
            ("steps", "response_mean_ms") => Some(Value::Curve(vec![(10.0, 2.0), (20.0, 3.0), (30.0, 42.0)])),
            _ => None,
        }
    }

    fn column(&self, run: &str, column: &str) -> Option<Vec<(f64, f64)>> {
        let values = match (run, column) {
            ("with", "door") => [4.0, 9.0, 5.0],
            ("with", "served") => [0.0, 3.0, 5.0],
            _ => return None,
        };
        Some((0..).map(f64::from).zip(values).collect())
    }
}

fn runs() -> Vec<(String, bool)> {
    vec![("with".into(), false), ("steps".into(), true)]
}

fn checked(text: &str) -> Result<(Formula, Kind), Mistake> {
    let runs = runs();
    let names = Names {
        runs: &runs,
        keys: &["served_share", "goodput_rps", "response_mean_ms"],
        columns: &["t", "door", "served"],
    };
    let formula = Formula::parse(text)?;
    let kind = formula.kind(&names)?;
    Ok((formula, kind))
}

#[test]
fn numbers_follow_from_the_runs() {
    for (text, expected) in [
        ("1 + 2 * 3 - 8 / 4", 5.0),
        ("(1 + 2) * 3", 9.0),
        ("20_000 / 2", 10_000.0),
        ("2 - 1 - 1", 0.0),
        ("with.served_share", 0.5),
        ("with.served_share*4", 2.0),
        ("max(with[door])", 9.0),
        ("min( with[ door ] )", 4.0),
        ("mean(with[door])", 6.0),
        ("sum(with[door])", 18.0),
        ("argmax(with[door])", 1.0),
        ("max(within(with[door], 2, 9))", 5.0),
        ("max(within(with[door], 0, 1))", 4.0),
        ("argmax(steps.goodput_rps / steps.response_mean_ms)", 20.0),
        ("upto(steps.goodput_rps / place(steps.goodput_rps), 0.99)", 20.0),
        ("max(steps.goodput_rps * 2 - 1)", 41.0),
        ("max(100 - steps.goodput_rps)", 90.0),
        ("greater(1 - 3, sum(with[door]))", 18.0),
        ("greater(2, 0 - 2)", 2.0),
        ("settled(with[door], 5, 0)", 2.0),
        ("settled(with[door], 7, 0.3)", 1.0),
        ("settled(with[door], 7, 0.5)", 0.0),
        ("settled(within(with[door], 1, 3), 7, 0.5)", 1.0),
        ("argmax(shift(with[door], 0 - 5))", -4.0),
        ("max(smooth(with[door], 2))", 7.0),
        ("max(smooth(with[door], 1))", 9.0),
        ("sum(higher(with[door], with[served] + 1))", 19.0),
        ("sum(higher(with[door], within(with[served], 2, 3)))", 5.0),
        // In the first second nothing was served: 4/0 is no value, and hides none.
        ("max(with[door] / with[served])", 3.0),
    ] {
        let (formula, kind) = checked(text).unwrap_or_else(|mistake| panic!("{text}: {mistake}"));
        assert_eq!((kind, formula.evaluate(&ByHand)), (Kind::Number, Value::Number(expected)), "{text}");
    }
}

#[test]
fn curves_keep_their_x_values() {
    let (formula, kind) = checked("steps.goodput_rps / steps.response_mean_ms").expect("formula");
    assert_eq!(kind, Kind::Curve);
    assert_eq!(formula.evaluate(&ByHand).curve(), vec![(10.0, 5.0), (20.0, 20.0 / 3.0), (30.0, 0.5)]);
    let (formula, _) = checked("within(with[door], 1, 3) + with[served]").expect("formula");
    assert_eq!(formula.evaluate(&ByHand).curve(), vec![(1.0, 12.0), (2.0, 10.0)]);
    let (formula, kind) = checked("smooth(with[door], 2)").expect("formula");
    assert_eq!(
        (kind, formula.evaluate(&ByHand).curve()),
        (Kind::Curve, vec![(0.0, 4.0), (1.0, 6.5), (2.0, 7.0)])
    );
    // Without width: the point itself. Wider than the curve: the mean of all points.
    let (formula, _) = checked("smooth(with[door], 0)").expect("formula");
    assert_eq!(formula.evaluate(&ByHand).curve(), vec![(0.0, 4.0), (1.0, 9.0), (2.0, 5.0)]);
    let (formula, _) = checked("smooth(with[door], 99)").expect("formula");
    assert_eq!(formula.evaluate(&ByHand).curve(), vec![(0.0, 4.0), (1.0, 6.5), (2.0, 6.0)]);
}

#[test]
fn a_missing_value_is_not_a_number() {
    struct Nothing;
    impl Source for Nothing {
        fn key(&self, _: &str, _: &str) -> Option<Value> {
            None
        }
        fn column(&self, _: &str, _: &str) -> Option<Vec<(f64, f64)>> {
            None
        }
    }
    for text in [
        "with.served_share",
        "sum(with[door])",
        "mean(with[door])",
        "argmax(steps.goodput_rps)",
        "upto(with[door], 1)",
        "settled(with[door], 1, 0.5)",
        "greater(1, with.served_share)",
        "max(smooth(with[door], 5))",
    ] {
        let (formula, _) = checked(text).expect(text);
        assert_eq!(formula.evaluate(&Nothing).number(), None, "{text}");
    }
}

#[test]
fn mistakes_have_a_position_and_an_expectation() {
    for (text, expected, got) in [
        ("", "a number, RUN.KEY", "the end at character 1"),
        ("1 +", "a number, RUN.KEY", "the end at character 4"),
        ("max(with[door]", ", or )", "the end"),
        ("(1, 2)", ")", "\", 2)\""),
        ("with", "with.KEY, with[COLUMN] or with(...)", "the end"),
        ("with.", "a key of the run's summary", "the end"),
        ("with[]", "a column of the run's series", "\"]\""),
        ("median(with[door])", "one of the functions max, min", "\"median(with[door])\""),
        ("1 2", "an operator or the end", "\"2\" at character 3"),
        ("1.2.3", "a number", "\"1.2.3\""),
        ("without.served_share", "a run of this experiment (with, steps)", "\"without\""),
        ("with.goodput_rp", "Did you mean `goodput_rps`?", "\"goodput_rp\""),
        ("with[nothing_like_it]", "There are t, door, served.", "\"nothing_like_it\""),
        ("steps[door]", "steps is a sweep", "steps[door]"),
        ("max(with.served_share)", "a curve in max(...)", "a number"),
        ("max(with[door], 1)", "max(...) with 1 arguments", "2"),
        ("within(with[door], 1, with[door])", "a number in within(...)", "a curve"),
        (&"(".repeat(99), "at most 32 brackets within each other", "("),
        (&format!("1{}", "+1".repeat(100_000)), "at most 1000 bytes", "200001"),
    ] {
        let mistake = checked(text).expect_err(text);
        assert!(mistake.expected.contains(expected), "{text}: {mistake}");
        assert!(mistake.got.contains(got), "{text}: {mistake}");
    }
}

#[test]
fn a_formula_names_the_runs_it_needs() {
    let formula =
        Formula::parse("max(with[door]) / steps.goodput_rps + with.served_share * 2").expect("formula");
    assert_eq!(formula.runs(), ["with", "steps"]);
}
