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
