//! The least-squares cubic through some points: WebQ's model of power ratio over load (section IV-A: "we choose a
//! polynomial of degree 3 [...], as this function was found to work well empirically").
//!
//! ```text
//! t = (load - middle) / half the range, in [-1, 1]
//! p0 = 1,  p1 = t - a0,  p(k+1) = (t - a_k) p_k - b_k p(k-1)        a_k = <t p_k, p_k> / <p_k, p_k>
//! fit = sum of <y, p_k> / <p_k, p_k> * p_k,  k = 0..3               b_k = <p_k, p_k> / <p(k-1), p(k-1)>
//! ```
//!
//! The p_k are orthogonal over the very loads that were probed (Forsythe, "Generation and use of orthogonal polynomials
//! for data-fitting with a digital computer", J. SIAM 5, 1957), so there is no system to solve and none to be ill
//! conditioned. Rejected: normal equations in powers of the load, whose condition number is 10^14 for loads of 15..120;
//! in powers of t they would do, but lose half the digits where loads lie close together, as the fine phase's do.
//!
//! What it cannot do: a cubic has one peak and no plateau. The true curve rises linearly and falls off a cliff, so that the
//! fit's peak lies some percent below the curve's where the overload was seen in depth.

use std::fmt;

#[cfg(test)]
mod tests;

/// Coefficients of a cubic.
const TERMS: usize = 4;
/// Loads closer than this share of the range are the same: between them, there is no slope to be seen but noise.
const SAME: f64 = 1e-3;

/// A cubic over a range of loads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cubic {
    lo: f64,
    hi: f64,
    /// Of 1, t, t^2, t^3.
    terms: [f64; TERMS],
}

/// Why there is no fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoFit {
    /// So many loads that differ; a cubic needs four.
    FewLoads(usize),
    /// A point, or the result, is not a finite number.
    NotFinite,
}

impl fmt::Display for NoFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewLoads(n) => write!(f, "{n} different loads, a cubic needs {TERMS}"),
            Self::NotFinite => f.write_str("a point is not a finite number"),
        }
    }
}

impl Cubic {
    /// Fits points (load, value), in any order; loads may repeat.
    ///
    /// # Errors
    /// What the points lack.
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

    /// Its value at a load; outside the fitted range that of the nearer end, since a cubic extrapolates wildly.
    pub fn at(&self, load: f64) -> f64 {
        at(&self.terms, self.t(load.clamp(self.lo, self.hi)))
    }

    /// Load and value of the largest value within the fitted range, its ends included.
    pub fn peak(&self) -> (f64, f64) {
        let [_, a, b, c] = self.terms;
        // Where the derivative a + 2bt + 3ct^2 is zero. Of the two forms of each root the one is taken that does not
        // subtract equals; an end of the range stands in for a root that is none.
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

/// Loads that are farther apart than `same`.
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
            // What the lower terms leave: the same in exact arithmetic, and less rounding than with y itself.
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
