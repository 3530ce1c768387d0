//! Student's t distribution: how likely a correlation is by chance.
//!
//! With ν degrees of freedom, t = r √(ν / (1 - r²)) and x = ν / (ν + t²) = 1 - r², the two-sided p is the
//! regularised incomplete beta function
//!
//! ```text
//! p = I_x(ν/2, 1/2)        I_x(a, b) = 1 - I_(1-x)(b, a)
//! ```
//!
//! computed by its continued fraction (DLMF 8.17.22) with Lentz's algorithm, on the side where that converges
//! quickly. As b is always 1/2, the beta function needs no general gamma function.
//!
//! A crate would bring all of its special functions for this one. The suite compares with SciPy.

/// Rounds of the continued fraction. It needs about √ν of them: this is enough for a year of seconds.
const MAX_ROUNDS: u32 = 20_000;

/// p of a correlation of `n` pairs, two-sided.
pub(super) fn p_of_correlation(r: f64, n: usize) -> f64 {
    // 1 - r² by factors, since r² near one has lost its digits.
    two_sided((1.0 - r) * (1.0 + r), r * r, n.saturating_sub(2))
}

/// p of an estimate that is expected to be zero, by its standard deviation. Two-sided.
pub(super) fn p_of_ratio(estimate: f64, deviation: f64, freedom: usize) -> f64 {
    if estimate == 0.0 {
        return 1.0;
    }
    let (freedom_part, t_part) = (freedom as f64 * deviation * deviation, estimate * estimate);
    let sum = freedom_part + t_part;
    two_sided(freedom_part / sum, t_part / sum, freedom)
}

/// The t that is exceeded, to either side, with probability `p`.
pub(super) fn critical(p: f64, freedom: usize) -> f64 {
    let (mut below, mut above) = (0.0, 1.0);
    while p_of_ratio(above, 1.0, freedom) > p && above < 1e6 {
        above *= 2.0;
    }
    // Halved until no number lies between.
    for _ in 0..64 {
        let middle = 0.5 * (below + above);
        if p_of_ratio(middle, 1.0, freedom) > p { below = middle } else { above = middle }
    }
    above
}

/// I_x(ν/2, 1/2). `y` is 1 - x, which the caller knows more precisely.
fn two_sided(x: f64, y: f64, freedom: usize) -> f64 {
    let a = freedom as f64 / 2.0;
    if freedom == 0 || y <= 0.0 {
        return 1.0;
    }
    if x <= 0.0 {
        return 0.0;
    }
    let front = (a * x.ln() + 0.5 * y.ln() - ln_beta_half(a)).exp();
    let p = if x < (a + 1.0) / (a + 2.5) {
        front * continued_fraction(x, a, 0.5) / a
    } else {
        1.0 - front * continued_fraction(y, 0.5, a) / 0.5
    };
    p.clamp(0.0, 1.0)
}

/// ln B(a, 1/2) = ln Γ(1/2) - ln (Γ(a + 1/2) / Γ(a)).
fn ln_beta_half(a: f64) -> f64 {
    // Γ(a + 1/2) / Γ(a) = a / (a + 1/2) × the same of a + 1, up to where the series has all digits.
    let (mut a, mut factor) = (a, 1.0);
    while a < 20.0 {
        factor *= a / (a + 0.5);
        a += 1.0;
    }
    let by_square = 1.0 / (a * a);
    let series = [31.0 / -18432.0, 17.0 / 14336.0, -1.0 / 640.0, 1.0 / 192.0, -1.0 / 8.0]
        .iter()
        .fold(0.0, |sum, coefficient| sum * by_square + coefficient);
    0.5 * std::f64::consts::PI.ln() - (factor.ln() + 0.5 * a.ln() + series / a)
}

/// The continued fraction of the incomplete beta function.
fn continued_fraction(x: f64, a: f64, b: f64) -> f64 {
    // Lentz's algorithm replaces a denominator of zero by this.
    const TINY: f64 = 1e-300;
    let away_from_zero = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for round in 1..=MAX_ROUNDS {
        let m = f64::from(round);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for coefficient in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + coefficient * d);
            c = away_from_zero(1.0 + coefficient / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() <= f64::EPSILON {
            break;
        }
    }
    fraction
}

#[cfg(test)]
mod tests {
    use super::{critical, p_of_correlation, p_of_ratio};

    #[test]
    fn one_degree_of_freedom_is_cauchys_distribution() {
        for t in [1e-6_f64, 0.1, 1.0, 3.0, 1e6] {
            let p = 2.0 / std::f64::consts::PI * (1.0 / t).atan();
            assert!((p_of_ratio(t, 1.0, 1) / p - 1.0).abs() < 1e-12, "{t}: {} {p}", p_of_ratio(t, 1.0, 1));
        }
    }

    #[test]
    fn two_degrees_of_freedom_have_a_closed_form() {
        for t in [1e-6_f64, 0.1, 1.0, 3.0, 1e3] {
            let p = 2.0 / (2.0 + t * t + t * (2.0 + t * t).sqrt());
            assert!((p_of_ratio(t, 1.0, 2) / p - 1.0).abs() < 1e-12, "{t}: {} {p}", p_of_ratio(t, 1.0, 2));
        }
    }

    #[test]
    fn critical_values_are_those_of_the_tables() {
        for (freedom, t) in [(1, 12.706), (2, 4.303), (10, 2.228), (30, 2.042), (1000, 1.962)] {
            assert!((critical(0.05, freedom) - t).abs() < 5e-4, "{freedom}: {}", critical(0.05, freedom));
        }
    }

    #[test]
    fn the_ends_of_the_scale_are_exact() {
        assert_eq!((p_of_correlation(0.0, 100), p_of_correlation(1.0, 100)), (1.0, 0.0));
        assert_eq!(p_of_correlation(-1.0, 3), 0.0);
    }

    /// Rows of Fig. 1, which do not say how many intervals there were: about 1,500.
    #[test]
    fn the_papers_figure_1_agrees_with_itself() {
        for (p, r) in
            [(0.1747, -0.0350), (0.0926, -0.0434), (0.0034, 0.0756), (0.0953, -0.0431), (0.1206, 0.0401)]
        {
            assert!((p_of_correlation(r, 1503) - p).abs() < 5e-4, "{r}: {}", p_of_correlation(r, 1503));
        }
        assert!(p_of_correlation(0.5654, 1503) < 5e-5);
    }
}
