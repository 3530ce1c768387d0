//! Confirmation of a suspect: hold its requests to a share for some seconds, and see whether the figure falls
//! and rises again (beyond the paper, which finds correlations only).
//!
//! ```text
//! before (known already, or waited for) ─► held ─► after ─► verdict
//!                                          └ settles ┘ first: these intervals do not count
//! ```
//!
//! **The test.** Welch's t on the figures of the intervals: is the mean while it is held below that before,
//! and below that after? Both: confirmed. Not below that before: not confirmed. Below that before only: the
//! figure fell and did not rise again, so that something else may have changed; inconclusive, as with
//! intervals too few.

use super::student;

/// Intervals after a change that do not count: the figure follows the requests.
const SETTLE: usize = 2;
/// Fewest intervals with a known figure in each phase.
const MIN_KNOWN: usize = 5;

/// Where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Before,
    /// The suspect is held to its share.
    Held,
    After,
    Done,
}

impl Phase {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Held => "held",
            Self::After => "after",
            Self::Done => "done",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Confirmed,
    NotConfirmed,
    Inconclusive,
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::NotConfirmed => "not confirmed",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// A confirmation under way, or ended.
#[derive(Clone, Debug)]
pub struct Confirmation {
    /// Intervals that count in each phase.
    intervals: usize,
    alpha: f64,
    phase: Phase,
    /// Intervals of the present phase so far, those in which the figure settles among them.
    passed: usize,
    before: Vec<f64>,
    held: Vec<f64>,
    after: Vec<f64>,
}

impl Confirmation {
    /// `intervals` count in each phase, at least [`MIN_KNOWN`]; `recent` are the last figures, NaN where not
    /// known. If enough of them are, the suspect is held at once.
    pub fn new(intervals: usize, alpha: f64, recent: &[f64]) -> Self {
        let intervals = intervals.max(MIN_KNOWN);
        let last = &recent[recent.len().saturating_sub(intervals)..];
        let before: Vec<f64> = last.iter().copied().filter(|figure| figure.is_finite()).collect();
        let is_enough = before.len() >= MIN_KNOWN;
        Self {
            intervals,
            alpha,
            phase: if is_enough { Phase::Held } else { Phase::Before },
            passed: 0,
            before: if is_enough { before } else { Vec::new() },
            held: Vec::new(),
            after: Vec::new(),
        }
    }

    /// Takes in an interval that has ended, and returns the phase of the next.
    pub fn interval(&mut self, figure: Option<f64>) -> Phase {
        self.passed += 1;
        let (settles, seen) = match self.phase {
            Phase::Before => (0, &mut self.before),
            Phase::Held => (SETTLE, &mut self.held),
            Phase::After => (SETTLE, &mut self.after),
            Phase::Done => return Phase::Done,
        };
        if self.passed > settles {
            seen.extend(figure.filter(|figure| figure.is_finite()));
        }
        if self.passed >= settles + self.intervals {
            self.passed = 0;
            self.phase = match self.phase {
                Phase::Before => Phase::Held,
                Phase::Held => Phase::After,
                Phase::After | Phase::Done => Phase::Done,
            };
        }
        self.phase
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Intervals until it is done.
    pub fn left(&self) -> usize {
        let whole = |phase| match phase {
            Phase::Before => self.intervals,
            Phase::Held | Phase::After => SETTLE + self.intervals,
            Phase::Done => 0,
        };
        let phases = [Phase::Before, Phase::Held, Phase::After];
        let from = phases.iter().position(|phase| *phase == self.phase).unwrap_or(phases.len());
        phases[from..].iter().map(|phase| whole(*phase)).sum::<usize>() - self.passed
    }

    /// Intervals for which the suspect is held.
    pub fn held_for(&self) -> usize {
        SETTLE + self.intervals
    }

    /// The mean of the figure before, while it is held, and after; `None`: not known yet.
    pub fn means(&self) -> [Option<f64>; 3] {
        [&self.before, &self.held, &self.after].map(|seen| Some(mean(seen)).filter(|mean| mean.is_finite()))
    }

    /// `None`: it is not done.
    pub fn verdict(&self) -> Option<Verdict> {
        if self.phase != Phase::Done {
            return None;
        }
        if [&self.before, &self.held, &self.after].iter().any(|seen| seen.len() < MIN_KNOWN) {
            return Some(Verdict::Inconclusive);
        }
        let is_below = |other: &[f64]| p_below(&self.held, other) <= self.alpha;
        Some(match (is_below(&self.before), is_below(&self.after)) {
            (true, true) => Verdict::Confirmed,
            (false, _) => Verdict::NotConfirmed,
            (true, false) => Verdict::Inconclusive,
        })
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The probability of a mean of `low` so far below that of `high` if both came from one source, one-sided
/// (Welch, 1947). The degrees of freedom are rounded down, to the safe side.
fn p_below(low: &[f64], high: &[f64]) -> f64 {
    // The mean's square of the standard error.
    let error = |values: &[f64]| {
        let (mean, n) = (mean(values), values.len() as f64);
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0) / n
    };
    let (low_error, high_error) = (error(low), error(high));
    let sum = low_error + high_error;
    let part = |error: f64, values: &[f64]| error * error / (values.len() as f64 - 1.0);
    let freedom = sum * sum / (part(low_error, low) + part(high_error, high));
    let freedom = if freedom.is_finite() { freedom.floor() as usize } else { low.len() + high.len() - 2 };
    let difference = mean(high) - mean(low);
    let two_sided = student::p_of_ratio(difference, sum.sqrt(), freedom);
    if difference > 0.0 { two_sided / 2.0 } else { 1.0 - two_sided / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a figure that depends on the phase; returns the phases of the intervals and the verdict.
    fn play(recent: &[f64], figure: impl Fn(Phase) -> Option<f64>) -> (Vec<Phase>, Option<Verdict>) {
        let mut confirmation = Confirmation::new(6, 0.05, recent);
        let (mut phases, whole) = (Vec::new(), confirmation.left());
        while confirmation.phase() != Phase::Done {
            assert_eq!((confirmation.left(), confirmation.verdict()), (whole - phases.len(), None));
            phases.push(confirmation.phase());
            let wobble = 0.01 * (phases.len() % 3) as f64;
            confirmation.interval(figure(confirmation.phase()).map(|figure| figure + wobble));
        }
        (phases, confirmation.verdict())
    }

    fn phases(before: usize, held: usize, after: usize) -> Vec<Phase> {
        let of = |phase, count| std::iter::repeat_n(phase, count);
        of(Phase::Before, before).chain(of(Phase::Held, held)).chain(of(Phase::After, after)).collect()
    }

    #[test]
    fn a_figure_that_falls_and_rises_again_confirms_the_suspect() {
        let falls = |phase| Some(if phase == Phase::Held { 0.5 } else { 0.95 });
        assert_eq!(play(&[], falls), (phases(6, 8, 8), Some(Verdict::Confirmed)));
        // What is known already is not waited for.
        let recent = [0.1, 0.94, f64::NAN, 0.95, 0.96, 0.95, 0.94];
        assert_eq!(play(&recent, falls), (phases(0, 8, 8), Some(Verdict::Confirmed)));
    }

    #[test]
    fn a_figure_that_does_not_fall_and_one_that_does_not_rise_again() {
        let verdict = |figure: fn(Phase) -> f64| play(&[], |phase| Some(figure(phase))).1;
        assert_eq!(verdict(|_| 0.95), Some(Verdict::NotConfirmed));
        assert_eq!(
            verdict(|phase| if phase == Phase::Before { 0.5 } else { 0.95 }),
            Some(Verdict::NotConfirmed)
        );
        assert_eq!(
            verdict(|phase| if phase == Phase::Before { 0.95 } else { 0.5 }),
            Some(Verdict::Inconclusive)
        );
        let silent = |phase| if phase == Phase::After { None } else { Some(0.95) };
        assert_eq!(play(&[], silent).1, Some(Verdict::Inconclusive), "not known afterwards");
    }

    #[test]
    fn what_settles_does_not_count() {
        let mut confirmation = Confirmation::new(5, 0.05, &[1.0; 5]);
        for figure in [1.0, 0.9, 0.5, 0.5, 0.5, 0.5, 0.5] {
            confirmation.interval(Some(figure));
        }
        assert_eq!(
            (confirmation.phase(), confirmation.means()),
            (Phase::After, [Some(1.0), Some(0.5), None])
        );
    }

    #[test]
    fn the_test_is_students() {
        // t = -2.5 with 8 degrees of freedom; p by numerical integration of the density.
        let (low, high) = ([1.0, 2.0, 3.0, 4.0, 5.0], [3.5, 4.5, 5.5, 6.5, 7.5]);
        let p = p_below(&low, &high);
        assert!((p - 0.018_471_018_9).abs() < 1e-9, "{p}");
        assert!((p_below(&high, &low) - (1.0 - p)).abs() < 1e-12);
        assert_eq!((p_below(&[1.0; 5], &[2.0; 5]), p_below(&[1.0; 5], &[1.0; 5])), (0.0, 0.5));
    }
}
