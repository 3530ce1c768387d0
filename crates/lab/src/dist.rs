//! Distributions of times, as a scenario writes them: `"100ms"`, `"exponential(2s)"`, `"never"`.
//!
//! | written | drawn |
//! |---|---|
//! | `100ms` | always that (deterministic) |
//! | `uniform(1s, 3s)` | evenly between |
//! | `exponential(2s)` | mean 2 s: memoryless, as calls on a switchboard |
//! | `exponential(7s, max 70s)` | the same, with 70 s for whatever is longer: TPC-W's think times |
//! | `normal(100ms, 20ms)` | mean and standard deviation, cut at zero |
//! | `lognormal(100ms, 0.5)` | median and shape sigma: the long tail of human and of database times |
//! | `lognormal(100ms, cv 1.5)` | mean and coefficient of variation |
//! | `bimodal(10ms, 500ms, 0.1)` | the one, or the other with that probability: a cache and its misses |
//! | `never` | longer than any run |
//!
//! Randomness comes in as an argument; the formulas are `rand_distr`'s.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};

/// Longest time drawn or written: a year. What is beyond counts as that; [`Dist::Never`] is beyond.
pub const MAX_TIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// A distribution of times. Parameters are in seconds, finite and not negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dist {
    Fixed(f64),
    /// Evenly between two times.
    Uniform(f64, f64),
    /// By its mean.
    Exponential(f64),
    /// By its mean before what is longer than a bound was cut to that.
    ExponentialUpTo(f64, f64),
    /// By mean and standard deviation; draws below zero count as zero.
    Normal(f64, f64),
    /// By median and the standard deviation of the logarithm (no unit).
    LogNormal(f64, f64),
    Bimodal {
        short: f64,
        long: f64,
        /// How often it is `long`, from 0 to 1.
        share: f64,
    },
    /// `Duration::MAX`.
    Never,
}

impl Dist {
    pub fn fixed(time: Duration) -> Self {
        if time == Duration::MAX { Self::Never } else { Self::Fixed(time.as_secs_f64()) }
    }

    /// Log-normal, by its mean in seconds and its coefficient of variation (standard deviation over mean, no
    /// unit).
    pub fn lognormal(mean: f64, cv: f64) -> Self {
        // Mean m·exp(σ²/2), variance (exp(σ²) − 1)·mean².
        let variance = (cv * cv).ln_1p();
        Self::LogNormal(mean * (-variance / 2.0).exp(), variance.sqrt())
    }

    pub fn sample(&self, rng: &mut impl Rng) -> Duration {
        let seconds = match *self {
            Self::Fixed(time) => time,
            Self::Uniform(low, high) => low + (high - low) * rng.random::<f64>(),
            Self::Exponential(mean) => mean * drawn(Exp1, rng),
            Self::ExponentialUpTo(mean, most) => most.min(mean * drawn(Exp1, rng)),
            Self::Normal(mean, sd) => mean + sd * drawn(StandardNormal, rng),
            Self::LogNormal(median, sigma) => median * (sigma * drawn(StandardNormal, rng)).exp(),
            Self::Bimodal { short, long, share } => {
                if rng.random::<f64>() < share {
                    long
                } else {
                    short
                }
            }
            Self::Never => return Duration::MAX,
        };
        Duration::from_secs_f64(seconds.clamp(0.0, MAX_TIME.as_secs_f64()))
    }

    /// The mean; of `normal` without the cut at zero. `Duration::MAX` for `never`.
    pub fn mean(&self) -> Duration {
        let seconds = match *self {
            Self::Fixed(time) | Self::Exponential(time) | Self::Normal(time, _) => time,
            Self::Uniform(low, high) => (low + high) / 2.0,
            // The integral of exp(−t / mean) up to the bound.
            Self::ExponentialUpTo(mean, most) if mean > 0.0 => -mean * (-most / mean).exp_m1(),
            Self::ExponentialUpTo(..) => 0.0,
            Self::LogNormal(median, sigma) => median * (sigma * sigma / 2.0).exp(),
            Self::Bimodal { short, long, share } => short + (long - short) * share,
            Self::Never => return Duration::MAX,
        };
        Duration::from_secs_f64(seconds.clamp(0.0, MAX_TIME.as_secs_f64()))
    }
}

fn drawn(law: impl Distribution<f64>, rng: &mut impl Rng) -> f64 {
    law.sample(rng)
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a time such as 100ms, uniform(1s, 3s), exponential(2s), exponential(7s, max 70s), normal(100ms, 20ms), \
     lognormal(100ms, 0.5), lognormal(100ms, cv 1.5), bimodal(10ms, 500ms, 0.1) or never; got {0:?}"
)]
pub struct NotADist(pub String);

impl FromStr for Dist {
    type Err = NotADist;

    fn from_str(text: &str) -> Result<Self, NotADist> {
        parse(text.trim()).ok_or_else(|| NotADist(text.into()))
    }
}

fn parse(text: &str) -> Option<Dist> {
    if text == "never" {
        return Some(Dist::Never);
    }
    let Some((name, rest)) = text.split_once('(') else { return seconds(text).map(Dist::Fixed) };
    let arguments: Vec<&str> = rest.strip_suffix(')')?.split(',').map(str::trim).collect();
    match (name.trim(), arguments.as_slice()) {
        ("uniform", [low, high]) => {
            let (low, high) = (seconds(low)?, seconds(high)?);
            (low <= high).then_some(Dist::Uniform(low, high))
        }
        ("exponential", [mean]) => seconds(mean).map(Dist::Exponential),
        ("exponential", [mean, most]) => {
            Some(Dist::ExponentialUpTo(seconds(mean)?, seconds(most.strip_prefix("max ")?)?))
        }
        ("normal", [mean, sd]) => Some(Dist::Normal(seconds(mean)?, seconds(sd)?)),
        ("lognormal", [mean, shape]) if shape.starts_with("cv") => {
            let cv: f64 = shape.strip_prefix("cv")?.trim().parse().ok()?;
            // As for sigma: beyond, it is a slip.
            (0.0..=100.0).contains(&cv).then_some(Dist::lognormal(seconds(mean)?, cv))
        }
        ("bimodal", [short, long, share]) => {
            let share: f64 = share.parse().ok()?;
            let (short, long) = (seconds(short)?, seconds(long)?);
            (0.0..=1.0).contains(&share).then_some(Dist::Bimodal { short, long, share })
        }
        ("lognormal", [median, sigma]) => {
            let sigma: f64 = sigma.parse().ok()?;
            // Beyond 5 the mean is 270,000 medians: a slip, not a model.
            (0.0..=5.0).contains(&sigma).then_some(Dist::LogNormal(seconds(median)?, sigma))
        }
        _ => None,
    }
}

/// A time with its unit (us, ms, s, m, h, d), several of them (`1h30m`), or 0; up to [`MAX_TIME`].
pub fn seconds(text: &str) -> Option<f64> {
    let mut rest = text.trim();
    if rest.parse::<f64>().is_ok_and(|number| number == 0.0) {
        return Some(0.0);
    }
    let mut total = 0.0;
    loop {
        let unit_at = rest.find(|c: char| c.is_ascii_alphabetic() || c == 'µ')?;
        let (number, unit) = rest.split_at(unit_at);
        let unit_ends = unit.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(unit.len());
        let (unit, more) = unit.split_at(unit_ends);
        let number: f64 = number.trim().parse().ok().filter(|number| *number >= 0.0)?;
        total += number * factor(unit)?;
        rest = more.trim_start();
        if rest.is_empty() {
            return (0.0..=MAX_TIME.as_secs_f64()).contains(&total).then_some(total);
        }
    }
}

fn factor(unit: &str) -> Option<f64> {
    Some(match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    })
}

impl fmt::Display for Dist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fixed(time) => write!(f, "{time}s"),
            Self::Uniform(low, high) => write!(f, "uniform({low}s, {high}s)"),
            Self::Exponential(mean) => write!(f, "exponential({mean}s)"),
            Self::ExponentialUpTo(mean, most) => write!(f, "exponential({mean}s, max {most}s)"),
            Self::Normal(mean, sd) => write!(f, "normal({mean}s, {sd}s)"),
            Self::LogNormal(median, sigma) => write!(f, "lognormal({median}s, {sigma})"),
            Self::Bimodal { short, long, share } => write!(f, "bimodal({short}s, {long}s, {share})"),
            Self::Never => write!(f, "never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn written_and_read() {
        for (text, expected) in [
            ("100ms", Some(Dist::Fixed(0.1))),
            ("0", Some(Dist::Fixed(0.0))),
            (" 1.5 m ", Some(Dist::Fixed(90.0))),
            ("1h30m", Some(Dist::Fixed(5400.0))),
            ("1h 30m 0.5s", Some(Dist::Fixed(5400.5))),
            ("1h30", None),
            ("1h-30m", None),
            ("1e3s", None),
            ("250us", Some(Dist::Fixed(0.00025))),
            ("never", Some(Dist::Never)),
            ("uniform(1s,3s)", Some(Dist::Uniform(1.0, 3.0))),
            ("exponential( 2s )", Some(Dist::Exponential(2.0))),
            ("exponential(7s, max 70s)", Some(Dist::ExponentialUpTo(7.0, 70.0))),
            ("exponential(7s, 70s)", None),
            ("exponential(7s, max)", None),
            ("normal(100ms, 20ms)", Some(Dist::Normal(0.1, 0.02))),
            ("lognormal(100ms, 0.5)", Some(Dist::LogNormal(0.1, 0.5))),
            ("lognormal(2s, cv 0)", Some(Dist::LogNormal(2.0, 0.0))),
            ("bimodal(10ms, 500ms, 0.1)", Some(Dist::Bimodal { short: 0.01, long: 0.5, share: 0.1 })),
            ("bimodal(10ms, 500ms, 1.1)", None),
            ("bimodal(10ms, 500ms)", None),
            ("lognormal(1s, cv)", None),
            ("lognormal(1s, cv -1)", None),
            ("lognormal(1s, cv 101)", None),
            ("5", None),
            ("-1s", None),
            ("nan s", None),
            ("inf s", None),
            ("1e300d", None),
            ("uniform(3s, 1s)", None),
            ("uniform(1s)", None),
            ("exponential(2s", None),
            ("poisson(2s)", None),
            ("lognormal(1s, 9)", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Dist>().ok(), expected, "{text:?}");
            if let Some(dist) = expected {
                assert_eq!(dist.to_string().parse::<Dist>(), Ok(dist), "{text:?}");
            }
        }
    }

    #[test]
    fn draws_have_the_mean_they_say() {
        let mut rng = StdRng::seed_from_u64(1);
        for text in [
            "100ms",
            "uniform(1s, 3s)",
            "exponential(2s)",
            "exponential(2s, max 1s)",
            "normal(100ms, 20ms)",
            "lognormal(1s, 0.5)",
            "lognormal(1s, cv 1.5)",
            "bimodal(10ms, 500ms, 0.1)",
        ] {
            let dist: Dist = text.parse().expect(text);
            let n = 100_000;
            let sum: f64 = (0..n).map(|_| dist.sample(&mut rng).as_secs_f64()).sum();
            let (mean, said) = (sum / f64::from(n), dist.mean().as_secs_f64());
            assert!((mean / said - 1.0).abs() < 0.02, "{text}: {mean}, said {said}");
        }
        let cv: Dist = "lognormal(1s, cv 1.5)".parse().expect("a distribution");
        assert!((cv.mean().as_secs_f64() - 1.0).abs() < 1e-9);
        let squares: f64 = (0..400_000).map(|_| (cv.sample(&mut rng).as_secs_f64() - 1.0).powi(2)).sum();
        assert!(((squares / 400_000.0).sqrt() / 1.5 - 1.0).abs() < 0.1, "its cv: {squares}");
        assert_eq!(Dist::Never.sample(&mut rng), Duration::MAX);
        assert!(Dist::Normal(0.001, 1.0).sample(&mut rng) <= MAX_TIME);
    }
}
