//! The crowd of the demonstration, as it was: arrivals as a Poisson process whose rate changes from phase to phase.
//!
//! Open loop: arrivals do not wait for answers, as people who do not know of each other do not. Gaps are
//! exponential; at the border of a phase the gap is drawn anew at the new rate, which a memoryless process
//! allows. A person's whole character is drawn here, so that the same seed sends the same crowd to whatever is
//! under test, and so that later decisions need no randomness. Evenly spaced arrivals were rejected: they flatter
//! whatever is tested, since independent people come in clumps.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A stretch of time with one arrival rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Visitors per second; nobody comes at 0.
    pub rate: f64,
    /// How long it lasts; `Duration::MAX`: for good.
    pub lasts: Duration,
}

/// What the people of a crowd have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temper {
    /// Mean time before somebody gives a request up; people differ evenly by half of it either way.
    pub patience: Duration,
    /// How often somebody tries again after a failure before leaving for good.
    pub retries: u8,
    /// Mean pause before trying again; people differ evenly by half of it either way.
    pub pause: Duration,
    /// Share of visitors who never come back after being told to wait (0..=1).
    pub no_shows: f64,
    /// How long somebody stays in a waiting room at most.
    pub wait_limit: Duration,
}

impl Default for Temper {
    /// Nielsen puts the limit of attention at ten seconds; with nothing but a blank page to look at, half of that. A
    /// reload follows within a second or two.
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            retries: 2,
            pause: Duration::from_secs(1),
            no_shows: 0.0,
            wait_limit: Duration::MAX,
        }
    }
}

/// One visitor to come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Person {
    /// When, counted from the start of the run.
    pub at: Duration,
    /// Time before a request is given up.
    pub patience: Duration,
    /// Pause before trying again after a failure.
    pub pause: Duration,
    /// Tries left after a failure.
    pub retries: u8,
    /// Never comes back after being told to wait.
    pub no_show: bool,
    /// Longest stay in a waiting room.
    pub wait_limit: Duration,
    /// Spreads what pages do at random moments: evenly in 0..1.
    pub jitter: f32,
}

/// The arrivals, in order of time.
#[derive(Debug)]
pub struct Crowd {
    rng: StdRng,
    temper: Temper,
    phases: std::vec::IntoIter<Phase>,
    rate: f64,
    now: Duration,
    phase_ends: Duration,
}

impl Crowd {
    /// The crowd that `seed` stands for.
    pub fn new(seed: u64, temper: Temper, phases: Vec<Phase>) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            temper,
            phases: phases.into_iter(),
            rate: 0.0,
            now: Duration::ZERO,
            phase_ends: Duration::ZERO,
        }
    }

    /// A flash crowd: `rate` visitors per second for `lasts`, then nobody.
    pub fn flash(seed: u64, temper: Temper, rate: f64, lasts: Duration) -> Self {
        Self::new(seed, temper, vec![Phase { rate, lasts }])
    }

    fn next_arrival(&mut self) -> Option<Duration> {
        loop {
            // 1 - u lies in (0, 1]: its logarithm is finite.
            let u: f64 = self.rng.random();
            let gap = Duration::try_from_secs_f64(-(1.0 - u).ln() / self.rate).unwrap_or(Duration::MAX);
            let at = self.now.saturating_add(gap);
            if at < self.phase_ends {
                self.now = at;
                return Some(at);
            }
            let phase = self.phases.next()?;
            self.now = self.phase_ends;
            self.phase_ends = self.now.saturating_add(phase.lasts);
            self.rate = phase.rate.max(0.0);
        }
    }

    /// `mean`, give or take up to half of it.
    fn about(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(self.rng.random_range(0.5..1.5))
    }
}

impl Iterator for Crowd {
    type Item = Person;

    fn next(&mut self) -> Option<Person> {
        let at = self.next_arrival()?;
        Some(Person {
            at,
            patience: self.about(self.temper.patience),
            pause: self.about(self.temper.pause),
            retries: self.temper.retries,
            // Drawn whatever the share is, so that the share changes nothing else about the crowd.
            no_show: self.rng.random::<f64>() < self.temper.no_shows,
            wait_limit: self.temper.wait_limit,
            jitter: self.rng.random(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn flash(seed: u64, temper: Temper) -> Vec<Person> {
        Crowd::flash(seed, temper, 1000.0, 4 * SECOND).collect()
    }

    #[test]
    fn same_seed_same_crowd() {
        let temper = Temper::default();
        assert_eq!(flash(7, temper), flash(7, temper));
        assert_ne!(flash(7, temper), flash(8, temper));
    }

    #[test]
    fn the_share_of_no_shows_changes_nothing_else() {
        let all = flash(7, Temper::default());
        let some = flash(7, Temper { no_shows: 0.3, ..Temper::default() });
        let missing = some.iter().filter(|p| p.no_show).count() as f64;
        assert!((missing / some.len() as f64 - 0.3).abs() < 0.03, "{missing}");
        assert!(all.iter().all(|p| !p.no_show));
        let as_shows = some.iter().map(|p| Person { no_show: false, ..*p });
        assert!(as_shows.eq(all.iter().copied()));
    }

    #[test]
    fn arrivals_follow_the_rate_of_their_phase() {
        let phases = vec![
            Phase { rate: 1000.0, lasts: 2 * SECOND },
            Phase { rate: 0.0, lasts: 3 * SECOND },
            Phase { rate: 200.0, lasts: 5 * SECOND },
        ];
        let at: Vec<_> = Crowd::new(1, Temper::default(), phases).map(|p| p.at).collect();
        assert!(at.is_sorted());
        let within = |from: u64, to: u64| {
            at.iter().filter(|t| **t >= from as u32 * SECOND && **t < to as u32 * SECOND).count() as f64
        };
        // Five standard deviations of a Poisson count.
        for (from, to, mean) in [(0, 2, 2000.0_f64), (2, 5, 0.0), (5, 10, 1000.0), (10, 100, 0.0)] {
            let count = within(from, to);
            assert!((count - mean).abs() <= 5.0 * mean.sqrt(), "{from}..{to}: {count}, expected {mean}");
        }
        // Gaps are exponential: their standard deviation is their mean (it would be 0 if they were even).
        let gaps: Vec<f64> = at[..1500].windows(2).map(|w| (w[1] - w[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((deviation / mean - 1.0).abs() < 0.15, "{deviation} / {mean}");
    }

    #[test]
    fn an_endless_crowd_goes_on() {
        let phases = vec![Phase { rate: 0.0, lasts: SECOND }, Phase { rate: 100.0, lasts: Duration::MAX }];
        let last = Crowd::new(3, Temper::default(), phases).nth(99_999).expect("endless");
        assert!((last.at.as_secs_f64() - 1001.0).abs() < 20.0, "{:?}", last.at);
    }
}
