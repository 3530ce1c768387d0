//! What survives the wire, and what does not.

use super::*;

fn old(admitted: u64, over_ms: Value) -> Value {
    json!({ "admitted": admitted, "over_ms": over_ms, "queued": 0, "shown": [] })
}

fn sample(in_flight: u32, age_ms: u64) -> Sample {
    Sample {
        class: ClassId(3),
        cost: Cost::from_hundredths(250),
        count: 7,
        ended: REPORTED_AT.saturating_sub(Duration::from_millis(age_ms)),
        response: Duration::from_micros(123_456),
        lingered: Duration::ZERO,
        in_flight,
        ok: true,
        backlog: false,
    }
}

const EXPECTED: ExpectedSessions = ExpectedSessions {
    per_s: 30.0,
    each_per_s: 0.25,
    newcomers_share: 0.125,
    first: 1.5,
    first_page_ratio: 6.0,
};

fn gate() -> Totals {
    Totals {
        queued: 2,
        queued_cost: Cost::ZERO,
        in_flight: 9,
        limit: Some(12),
        forwarded_cost: Cost::from_hundredths(4_200),
        forwarded_entering: Cost::from_hundredths(350),
        max_queue: 100,
        max_queue_wait: Duration::from_secs(30),
        ..Totals::default()
    }
}

#[test]
fn reports_survive_the_wire_and_a_lost_exchange() {
    let over = Duration::from_millis(500);
    let first = Feedback {
        at: REPORTED_AT,
        admitted: Cost::ONE,
        over,
        queued: Cost::ONE,
        shown: vec![(5, Cost::ONE), (6, Cost::ONE)],
        samples: vec![sample(4, 700), sample(5, 600)],
        ..Feedback::default()
    };
    let gate = gate();
    let second = Feedback {
        from: 77,
        at: REPORTED_AT,
        admitted: Cost::ONE,
        over: 3 * over,
        queued: Cost::ZERO,
        shown: vec![(6, Cost::ONE)],
        gate: Some(gate),
        is_origin_gone: true,
        samples: vec![Sample { lingered: Duration::from_millis(250), ..sample(5, 100) }],
        sessions: Some(SessionPace { free: Some(3), per_s: 0.5, next_s: 2.5 }),
        expected: Some(EXPECTED),
    };
    let mut unsent = Feedback::default();
    unsent.merge(first);
    unsent.merge(second);
    let two = Cost::ONE + Cost::ONE;
    // Seven that lingered for a quarter of a second, seven that did not.
    let together = Sample { count: 14, lingered: Duration::from_millis(125), ..sample(5, 100) };
    let sum = Feedback {
        from: 77,
        at: REPORTED_AT,
        admitted: two,
        over: 4 * over,
        queued: Cost::ZERO,
        shown: vec![(5, Cost::ONE), (6, two)],
        gate: Some(gate),
        is_origin_gone: true,
        samples: vec![sample(4, 700), together],
        sessions: Some(SessionPace { free: Some(3), per_s: 0.5, next_s: 2.5 }),
        expected: Some(EXPECTED),
    };
    assert_eq!(unsent, sum);
    let wire = json!({
        "admitted": 200, "over_ms": 2_000, "queued": 0, "shown": [[5, 100], [6, 200]],
        "from": 77, "origin_gone": true,
        "gate": {
            "queued": 2, "in_flight": 9, "limit": 12, "forwarded": 4_200, "max_queue": 100,
            "entering": 0, "forwarded_entering": 350, "max_queue_wait_ms": 30_000,
        },
        "samples": [[3, 250, 7, 700_000, 123_456, 4, 1, 0], [3, 250, 14, 100_000, 123_456, 5, 1, 0]],
        "lingered": [[1, 125_000]],
        "sessions": { "free": 3, "per_s": 0.5, "next_s": 2.5 },
        "expected": { "per_s": 30.0, "each_per_s": 0.25, "newcomers_share": 0.125, "first": 1.5,
                      "first_page_ratio": 6.0 },
    });
    assert_eq!(write(&sum), wire);
    assert_eq!(parse(&wire), Some(sum));
}

#[test]
fn to_a_tokencheck_that_does_not_tell_requests_of_sessions_apart_none_is_of_one() {
    let mut report = old(1, json!(500));
    report["queued"] = json!(300);
    report["gate"] = json!({
        "queued": 3, "in_flight": 9, "limit": 12, "forwarded": 4_200, "max_queue": 100,
        "max_queue_wait_ms": 30_000,
    });
    let gate = parse(&report).and_then(|report| report.gate).expect("a gate");
    assert_eq!(gate.entering_cost, Cost::from_hundredths(300));
    assert_eq!(gate.forwarded_entering, Cost::from_hundredths(4_200));
    report["gate"]["entering"] = json!(-1);
    assert_eq!(parse(&report), None);
}

#[test]
fn a_malformed_report_is_refused() {
    let with = |name: &str, value: Value| {
        let mut report = old(1, json!(500));
        report[name] = value;
        report
    };
    assert!(parse(&old(1, json!(500))).is_some());
    for bad in [
        json!({}),
        json!({ "admitted": -1, "queued": 0, "shown": [] }),
        json!([1]),
        json!("x"),
        with("from", json!("x")),
        with("gate", json!({})),
        with("origin_gone", json!(1)),
        with("samples", json!({})),
        with("samples", json!([[1, 2, 3]])),
        with("samples", json!([[300, 1, 1, 1, 1, 1, 1, 1]])),
        with("samples", json!([[1, 1, 1, -1, 1, 1, 1, 1]])),
        with("samples", json!([[1, 1, u64::MAX, 1, 1, 1, 1, 1]])),
        with("lingered", json!(7)),
        with("lingered", json!([[0]])),
        with("lingered", json!([[0, -1]])),
        with("sessions", json!(7)),
        with("sessions", json!({ "free": 1 })),
        with("sessions", json!({ "free": -1, "per_s": 1.0 })),
        with("sessions", json!({ "free": null, "per_s": -1.0 })),
        with("sessions", json!({ "free": null, "per_s": 1.0, "next_s": -1.0 })),
        with("expected", json!({ "per_s": 1.0 })),
        with("expected", json!({ "per_s": 1.0, "each_per_s": 0.0, "newcomers_share": 0.5, "first": 1.0 })),
        with("expected", json!({ "per_s": 1.0, "each_per_s": 1.0, "newcomers_share": 1.0, "first": 1.0 })),
        with(
            "expected",
            json!({ "per_s": 1.0, "each_per_s": 1.0, "newcomers_share": 0.5, "first": 1.0,
                    "first_page_ratio": 0.5 }),
        ),
        with("expected", json!({ "per_s": -1.0, "each_per_s": 1.0, "newcomers_share": 0.5, "first": 1.0 })),
    ] {
        assert_eq!(parse(&bad), None, "{bad}");
    }
    let many = with("samples", json!(vec![[1, 1, 1, 1, 1, 1, 1, 1]; 5_000]));
    assert_eq!(parse(&many).map(|report| report.samples.len()), Some(MAX_REPORTED_SAMPLES));
}

#[test]
fn the_lingered_field_is_optional_and_bounded() {
    let lingered = |rows: Option<Value>| {
        let mut report = old(1, json!(500));
        report["samples"] = json!([[1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]]);
        if let Some(rows) = rows {
            report["lingered"] = rows;
        }
        parse(&report).map(|report| report.samples.iter().map(|s| s.lingered).collect::<Vec<_>>())
    };
    let none = Duration::ZERO;
    assert_eq!(lingered(None), Some(vec![none, none]), "an old sender");
    assert_eq!(lingered(Some(json!([[1, 250_000]]))), Some(vec![none, Duration::from_millis(250)]));
    assert_eq!(lingered(Some(json!([[1, u64::MAX]]))), Some(vec![none, MAX_OVER]));
    assert_eq!(lingered(Some(json!([[2, 5]]))), Some(vec![none, none]), "of nobody");
}

#[test]
fn the_time_a_report_covers_is_bounded_and_may_be_missing() {
    let over = |wire: &Value| parse(wire).map(|feedback| feedback.over);
    let older = json!({ "admitted": 1, "queued": 0, "shown": [] });
    assert_eq!(over(&older), Some(REPORT_EVERY), "an old sender");
    assert_eq!(parse(&older).and_then(|report| report.gate), None);
    assert_eq!(over(&old(1, json!(0))), Some(Duration::ZERO));
    assert_eq!(over(&old(1, json!(u64::MAX))), Some(MAX_OVER));
    for bad in [json!(-1), json!(0.5), json!("500"), json!(null)] {
        assert_eq!(over(&old(1, bad.clone())), None, "{bad}");
    }
    let endless = Feedback { over: Duration::MAX, ..Feedback::default() };
    let mut unsent = endless.clone();
    unsent.merge(endless);
    assert_eq!(over(&write(&unsent)), Some(MAX_OVER));
}

#[test]
fn control_updates_survive_the_wire_and_those_of_an_old_tokengen_are_understood() {
    let clock = VirtualTime { at: Timestamp::from_secs(5), follows_clock: true };
    let capacity = Rate::per_second(12.5).unwrap_or_default();
    for (max_in_flight, is_so) in [(None, false), (Some(1), true), (Some(u32::MAX), false)] {
        let (is_waited, is_measured) = (is_so, !is_so);
        for ceiling in [capacity, Rate::MAX] {
            let update = ControlUpdate { capacity, clock, max_in_flight, ceiling, is_waited, is_measured };
            assert_eq!(read_update(&json!(write_update(&update, std::iter::empty()))), Some(update));
        }
    }
    let older = json!({ "capacity": 12.5, "hand_us": 5_000_000, "follows_clock": true });
    let known = ControlUpdate {
        capacity,
        clock,
        max_in_flight: None,
        ceiling: capacity,
        is_waited: false,
        is_measured: true,
    };
    assert_eq!(read_update(&older), Some(known));
    for (keeps_queue, ceiling) in [(false, capacity), (true, Rate::MAX)] {
        let mut update = older.clone();
        (update["keeps_queue"], update["ceiling"]) = (json!(keeps_queue), json!(Rate::MAX.get()));
        assert_eq!(read_update(&update), Some(ControlUpdate { ceiling, ..known }), "{update}");
    }
    assert_eq!(read_costs(&older), Some(Vec::new()), "an older tokengen learns no costs");
    for (name, bad) in [
        ("capacity", json!("x")),
        ("capacity", json!(-1.0)),
        ("ceiling", json!("x")),
        ("ceiling", json!(-1.0)),
        ("max_in_flight", json!(-1)),
        ("keeps_queue", json!(1)),
        ("waited", json!(1)),
        ("measured", json!("no")),
    ] {
        let mut update = older.clone();
        update[name] = bad;
        assert_eq!(read_update(&update), None, "{update}");
    }
}

#[test]
fn what_tokengen_charges_survives_the_wire() {
    let clock = VirtualTime { at: Timestamp::from_secs(5), follows_clock: true };
    let update = ControlUpdate {
        capacity: Rate::MAX,
        clock,
        max_in_flight: None,
        ceiling: Rate::MAX,
        is_waited: false,
        is_measured: false,
    };
    let costs = vec![(ClassTag(0), Cost::ONE), (ClassTag(255), Cost::from_hundredths(523))];
    let sent = json!(write_update(&update, costs.iter().copied()));
    assert_eq!(sent["costs"], json!([[0, 100], [255, 523]]));
    assert_eq!((read_update(&sent), read_costs(&sent)), (Some(update), Some(costs)));
    for bad in [json!(1), json!([1]), json!([[0]]), json!([[256, 1]]), json!([[0, -1]]), json!([[0, 1.5]])] {
        let mut update = sent.clone();
        update["costs"] = bad;
        assert_eq!(read_costs(&update), None, "{update}");
    }
}
