//! The model against its own laws.

use super::*;

#[test]
fn contention_follows_the_formula() {
    for (present, expected) in [(0, 1.0), (1, 1.0), (10, 1.0), (20, 1.01), (30, 1.04), (138, 2.6384)] {
        let factor = contention_factor(0.01, 10, present);
        assert!((factor - expected).abs() < 1e-12, "n = {present}: {factor}");
    }
    assert_eq!(contention_factor(0.0, 10, 10_000), 1.0);
}

#[test]
fn ten_at_once_end_together_and_the_next_ten_one_service_later() {
    let spec = OriginSpec::pool(10, Duration::from_micros(33_300), 128, 0.0);
    let mut model = Model::new(&spec, 1);
    for id in 0..20 {
        model.submit(id, 0, 0).expect("room");
    }
    let mut ends = Vec::new();
    // Looked at once, late: the instants are the model's, not the observer's.
    model.advance(1_000_000, &mut |done| ends.push((done.id, done.at_us)));
    let expected: Vec<_> = (0..20).map(|id| (id, 33_300 * (id / 10 + 1))).collect();
    assert_eq!(ends, expected);
    assert_eq!(model.stages()[0].total_busy_us(), 20 * 33_300);
}
