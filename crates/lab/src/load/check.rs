//! Values that make no sense, before anything is sent.

use crate::scenario::{Arrivals, Scenario, Shape};

/// Visitors per second: several times what one machine can send.
const MAX_RATE: f64 = 1e6;
/// Visitors of one run: waiting all at once they take 8 GiB.
const MAX_VISITORS: f64 = 50e6;
/// Threads: more than there are cores only get into each other's way.
const MAX_THREADS: usize = 256;

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{name}: expected {expected}, got {got}")]
pub struct Implausible {
    pub name: &'static str,
    pub expected: &'static str,
    pub got: f64,
}

/// Whether the bench can play this, whatever the target can take.
pub(super) fn plausible(scenario: &Scenario, threads: usize) -> Result<(), Implausible> {
    if threads > MAX_THREADS {
        return Err(Implausible { name: "threads", expected: "1 to 256", got: threads as f64 });
    }
    if let Arrivals::Phases { phases, .. } = &scenario.arrivals {
        for phase in phases {
            rate(phase.rate)?;
            if phase.lasts.is_zero() {
                return Err(Implausible { name: "for", expected: "a time above 0", got: 0.0 });
            }
        }
    }
    if let Arrivals::Closed(closed) = &scenario.arrivals {
        rate(Shape::Flat(closed.join))?;
    }
    Ok(())
}

/// The same of how many are expected to come; `None`: no end.
pub(super) fn plausible_crowd(visitors: Option<f64>) -> Result<(), Implausible> {
    let expected = "at most 50,000,000 visitors in all (rate × time)";
    match visitors.filter(|got| !(0.0..=MAX_VISITORS).contains(got)) {
        Some(got) => Err(Implausible { name: "arrivals", expected, got }),
        None => Ok(()),
    }
}

fn rate(shape: Shape) -> Result<(), Implausible> {
    let rates = match shape {
        Shape::Flat(rate) => [rate, rate],
        Shape::Ramp(from, to) => [from, to],
        Shape::Diurnal { low, high, .. } => [low, high],
    };
    let expected = "0 to 1,000,000 visitors per second";
    match rates.into_iter().find(|rate| !(0.0..=MAX_RATE).contains(rate)) {
        Some(got) => Err(Implausible { name: "rate", expected, got }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::crowd::Crowd;

    fn check(rate: f64, lasts: Duration, threads: usize) -> Result<(), Implausible> {
        let scenario = Scenario::short("http://127.0.0.1/", rate, lasts);
        plausible(&scenario, threads)?;
        let (_, crowd) = Crowd::of(&scenario).expect("somebody comes");
        plausible_crowd(crowd.size_hint_visitors())
    }

    #[test]
    fn implausible_values() {
        let second = Duration::from_secs(1);
        assert_eq!(check(600.0, 4 * second, 1), Ok(()));
        assert_eq!(check(1e6, 50 * second, 256), Ok(()));
        assert_eq!(check(1.0, Duration::MAX, 1), Ok(()), "until Ctrl-C");
        for (rate, lasts, threads, name) in [
            (1e6 + 1.0, second, 1, "rate"),
            (-1.0, second, 1, "rate"),
            (f64::NAN, second, 1, "rate"),
            (f64::INFINITY, second, 1, "rate"),
            (1e6, 51 * second, 1, "arrivals"),
            (600.0, Duration::ZERO, 1, "for"),
            (600.0, second, 257, "threads"),
        ] {
            let implausible = check(rate, lasts, threads).expect_err(name);
            assert_eq!(implausible.name, name, "{implausible}");
        }
    }
}
