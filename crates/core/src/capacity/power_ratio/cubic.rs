//! The least-squares cubic through some points: WebQ's model of power ratio over load (section IV-A: "we
//! choose a polynomial of degree 3 [...], as this function was found to work well empirically").
//!
//! ```text
//! t = (load - middle) / half the range, in [-1, 1]
//! p0 = 1,  p1 = t - a0,  p(k+1) = (t - a_k) p_k - b_k p(k-1)        a_k = <t p_k, p_k> / <p_k, p_k>
//! fit = sum of <y, p_k> / <p_k, p_k> * p_k,  k = 0..3               b_k = <p_k, p_k> / <p(k-1), p(k-1)>
//! ```
//!
//! The p_k are orthogonal over the loads that were probed (Forsythe, "Generation and use of orthogonal
//! polynomials for data-fitting with a digital computer", J. SIAM 5, 1957), so there is no system of
//! equations that could be ill conditioned. Rejected: normal equations in powers of the load, whose condition
//! number is 10^14 for loads of 15..120; in powers of t they lose half the digits where loads lie close
//! together, as those of the fine phase do.
//!
//! Limit: a cubic has one peak and no plateau. The true curve rises linearly and then falls steeply, so the
//! fit's peak lies some percent below the true one where overload was probed in depth.

const TERMS: usize = 4;
/// Loads closer than this share of the range count as one: a slope between them would be noise.
const SAME: f64 = 1e-3;

/// A cubic over a range of loads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cubic {
    lo: f64,
    hi: f64,
    /// Coefficients of 1, t, t^2, t^3.
    terms: [f64; TERMS],
}

/// Why there is no fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoFit {
    #[error("{0} different loads, a cubic needs {TERMS}")]
    FewLoads(usize),
    #[error("a point is not a finite number")]
    NotFinite,
}

impl Cubic {
    /// Fits points (load, value), in any order; loads may repeat.
    ///
    /// # Errors
    /// There are fewer than four different loads, or a number that is not finite.
    pub fn fit(points: &[(f64, f64)]) -> Result<Self, NoFit> {
        if points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
            return Err(NoFit::NotFinite);
        }
        let lo = points.iter().fold(f64::INFINITY, |least, (x, _)| least.min(*x));
        let hi = points.iter().fold(f64::NEG_INFINITY, |most, (x, _)| most.max(*x));
        let loads = different(points, (hi - lo) * SAME);
        if loads < TERMS {
            return Err(NoFit::FewLoads(loads));
        }
        let mut cubic = Self { lo, hi, terms: [0.0; TERMS] };
        cubic.terms = terms(&points.iter().map(|(x, y)| (cubic.t(*x), *y)).collect::<Vec<_>>());
        let finite = cubic.terms.iter().all(|term| term.is_finite());
        if finite { Ok(cubic) } else { Err(NoFit::NotFinite) }
    }

    /// Least and largest load fitted.
    pub fn range(&self) -> (f64, f64) {
        (self.lo, self.hi)
    }

    /// The value at a load; outside the fitted range that of the nearer end: a cubic extrapolates badly.
    pub fn at(&self, load: f64) -> f64 {
        at(&self.terms, self.t(load.clamp(self.lo, self.hi)))
    }

    /// Load and value of the maximum within the fitted range, its ends included.
    pub fn peak(&self) -> (f64, f64) {
        let [_, a, b, c] = self.terms;
        // The zeros of the derivative a + 2bt + 3ct^2, each in the form that does not subtract equal numbers.
        // A root that does not exist is not inside the range.
        let root = (b * b - 3.0 * a * c).max(0.0).sqrt();
        let q = -(b + root.copysign(b));
        let candidates = [-1.0, 1.0, q / (3.0 * c), a / q];
        let inside = candidates.into_iter().filter(|t| (-1.0..=1.0).contains(t));
        let best = inside.max_by(|s, t| at(&self.terms, *s).total_cmp(&at(&self.terms, *t)));
        let t = best.unwrap_or(-1.0);
        (self.lo + (t + 1.0) / 2.0 * (self.hi - self.lo), at(&self.terms, t))
    }

    fn t(&self, load: f64) -> f64 {
        (load - self.lo) / (self.hi - self.lo) * 2.0 - 1.0
    }
}

fn at(terms: &[f64; TERMS], t: f64) -> f64 {
    terms.iter().rev().fold(0.0, |sum, term| sum * t + term)
}

/// Number of loads that are farther apart than `same`.
fn different(points: &[(f64, f64)], same: f64) -> usize {
    let mut loads: Vec<f64> = points.iter().map(|(x, _)| *x).collect();
    loads.sort_by(f64::total_cmp);
    let mut last = f64::NEG_INFINITY;
    let mut count = 0;
    for load in loads {
        if load - last > same {
            count += 1;
            last = load;
        }
    }
    count
}

/// The fit's coefficients in powers of t, for points (t, y).
fn terms(points: &[(f64, f64)]) -> [f64; TERMS] {
    let mut fit = [0.0; TERMS];
    // p(k) and p(k-1) in powers of t, and <p(k-1), p(k-1)>.
    let mut p = [1.0, 0.0, 0.0, 0.0];
    let mut before = [0.0; TERMS];
    let mut norm_before = 0.0;
    for k in 0..TERMS {
        let (mut norm, mut along, mut shift) = (0.0, 0.0, 0.0);
        for (t, y) in points {
            let value = at(&p, *t);
            norm += value * value;
            // The residual of the lower terms: equal to y in exact arithmetic, with less rounding.
            along += (y - at(&fit, *t)) * value;
            shift += t * value * value;
        }
        for (term, of_p) in fit.iter_mut().zip(p) {
            *term += along / norm * of_p;
        }
        if k + 1 < TERMS {
            let (a, b) = (shift / norm, if k > 0 { norm / norm_before } else { 0.0 });
            let times_t = [0.0, p[0], p[1], p[2]];
            let next = std::array::from_fn(|i| times_t[i] - a * p[i] - b * before[i]);
            (before, p, norm_before) = (p, next, norm);
        }
    }
    fit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(loads: impl IntoIterator<Item = f64>, f: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        loads.into_iter().map(|x| (x, f(x))).collect()
    }

    #[test]
    fn the_fit_reproduces_a_cubic() {
        let f = |x: f64| 3.0 + 2.0 * x - 0.5 * x * x + 0.01 * x * x * x;
        // Far from zero and close together, where powers of the load would lose all digits.
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
        // A zigzag, with a load twice: no cubic fits it, and the best one leaves nothing that a cubic could
        // explain.
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
    fn the_peak_is_the_maximum_of_the_range() {
        let loads = || (0..=20).map(f64::from);
        type Curve = fn(f64) -> f64;
        let cases: [(Curve, f64); 6] = [
            (|x| x, 20.0),
            (|x| -x, 0.0),
            (|x| 25.0 - (x - 5.0).powi(2), 5.0),
            // Two extremes inside: the one at 15 is a minimum.
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
    fn points_without_a_fit_are_rejected_with_the_reason() {
        let nan = f64::NAN;
        let cases = [
            (vec![], NoFit::FewLoads(0)),
            (vec![(1.0, 1.0)], NoFit::FewLoads(1)),
            (vec![(5.0, 1.0); 40], NoFit::FewLoads(1)),
            (sampled([1.0, 2.0, 3.0], |x| x), NoFit::FewLoads(3)),
            (sampled([1.0, 2.0, 3.0, 3.0, 2.0, 1.0], |x| x), NoFit::FewLoads(3)),
            // The fourth differs from the third by a millionth.
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
}
