//! Fits whose answer is known, and points that have none.

use super::{Cubic, NoFit};

fn sampled(loads: impl IntoIterator<Item = f64>, f: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    loads.into_iter().map(|x| (x, f(x))).collect()
}

#[test]
fn a_cubic_is_found_again() {
    let f = |x: f64| 3.0 + 2.0 * x - 0.5 * x * x + 0.01 * x * x * x;
    // Far from the origin and close together: what powers of the load would not survive.
    for offset in [0.0, 1e3, 1e6] {
        let points = sampled((0..12).map(|i| offset + 2.5 * f64::from(i)), |x| f(x - offset));
        let fit = Cubic::fit(&points).expect("twelve loads");
        for (x, y) in points {
            assert!((fit.at(x) - y).abs() < 1e-8, "{x} {y} {}", fit.at(x));
        }
    }
}

#[test]
fn residuals_are_orthogonal_to_every_power_of_the_load() {
    // A zigzag, with a load twice: no cubic fits it, and the best one leaves nothing that a cubic could explain.
    let points: Vec<(f64, f64)> = [15.0, 17.2, 19.8, 40.0, 40.0, 80.0, 82.0, 106.0]
        .into_iter()
        .zip([1.0, -1.0].into_iter().cycle())
        .collect();
    let fit = Cubic::fit(&points).expect("seven loads");
    for power in 0..4 {
        let left: f64 = points.iter().map(|(x, y)| (y - fit.at(*x)) * (x / 106.0).powi(power)).sum();
        assert!(left.abs() < 1e-12, "{power}: {left}");
    }
}

#[test]
fn the_peak_is_where_it_must_be() {
    let loads = || (0..=20).map(f64::from);
    type Curve = fn(f64) -> f64;
    let cases: [(Curve, f64); 6] = [
        (|x| x, 20.0),
        (|x| -x, 0.0),
        (|x| 25.0 - (x - 5.0).powi(2), 5.0),
        // Two extremes inside: the minimum at 15 is none.
        (|x| x.powi(3) / 3.0 - 10.0 * x * x + 75.0 * x, 5.0),
        // A maximum inside, but a higher end.
        (|x| x.powi(3) / 3.0 - 7.0 * x * x + 40.0 * x, 20.0),
        (|x| 100.0 - (x - 12.5).powi(2) - 0.01 * (x - 12.5).powi(3), 12.5),
    ];
    for (i, (curve, expected)) in cases.into_iter().enumerate() {
        let fit = Cubic::fit(&sampled(loads(), curve)).expect("many loads");
        let (at, value) = fit.peak();
        assert!((at - expected).abs() < 1e-6, "case {i}: {at}");
        assert!((value - curve(expected)).abs() < 1e-6, "case {i}: {value}");
    }
    let level = Cubic::fit(&sampled(loads(), |_| 7.0)).expect("many loads");
    assert!((level.peak().1 - 7.0).abs() < 1e-9);
}

#[test]
fn outside_the_range_the_nearer_end_holds() {
    let fit = Cubic::fit(&sampled([1.0, 2.0, 3.0, 4.0], |x| x * x)).expect("four loads");
    assert_eq!(fit.range(), (1.0, 4.0));
    assert!((fit.at(-50.0) - 1.0).abs() < 1e-12);
    assert!((fit.at(1e9) - 16.0).abs() < 1e-12);
}

#[test]
fn what_cannot_be_fitted_is_refused_with_the_reason() {
    let nan = f64::NAN;
    let cases = [
        (vec![], NoFit::FewLoads(0)),
        (vec![(1.0, 1.0)], NoFit::FewLoads(1)),
        (vec![(5.0, 1.0); 40], NoFit::FewLoads(1)),
        (sampled([1.0, 2.0, 3.0], |x| x), NoFit::FewLoads(3)),
        (sampled([1.0, 2.0, 3.0, 3.0, 2.0, 1.0], |x| x), NoFit::FewLoads(3)),
        // The fourth is the third, to a millionth.
        (sampled([1.0, 2.0, 3.0, 3.000_001], |x| x), NoFit::FewLoads(3)),
        (vec![(1.0, 1.0), (2.0, nan), (3.0, 1.0), (4.0, 1.0)], NoFit::NotFinite),
        (vec![(nan, 1.0); 5], NoFit::NotFinite),
        (vec![(f64::INFINITY, 1.0), (2.0, 1.0), (3.0, 1.0), (4.0, 1.0)], NoFit::NotFinite),
        (sampled([1.0, 2.0, 3.0, 4.0], |x| if x < 2.5 { f64::MAX } else { -f64::MAX }), NoFit::NotFinite),
    ];
    for (points, expected) in cases {
        assert_eq!(Cubic::fit(&points), Err(expected), "{points:?}");
        assert!(!expected.to_string().is_empty());
    }
}
