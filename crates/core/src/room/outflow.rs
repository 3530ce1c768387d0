//! How fast the schedule is worked off, now and later.
//!
//! Newcomers get what open sessions leave of the capacity, and every newcomer who is let in becomes one of
//! them. So a crowd that comes to a quiet site is let in fast at first, until so many are in that their
//! requests take their share. With `A` the capacity without other bypass traffic, `n` active sessions that
//! ask for `c` each, and `s` the newcomers' share of all work in the long run (`session/forecast.rs`):
//!
//! ```text
//! u   =  A - c n                                   work of newcomers per second
//! n'  =  u - n s c / (1 - s)                       those let in, and those who leave
//! u   =  s A + (A - c n - s A) exp(-t / T)         T = (1 - s) / c
//! W   =  s A t + (A - c n - s A) T (1 - exp(-t / T))     work let in by t
//! ```
//!
//! A newcomer brings more than its first request: what is promised is the work of first requests, so `u` and
//! `W` are divided by a first page's work over it. Where sessions ask for more than `A` nobody is let in
//! until enough have left: `(T / s) ln(c n / A)`. Where nothing is foreseen, `u` is what bypass traffic
//! leaves now.

/// Iterations of Newton's method. It converges from one side; the error after four is below a hundredth.
const STEPS: usize = 4;

/// What open sessions will ask for, as requests read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Foreseen {
    /// Cost units per second of all of them, and of each.
    pub(super) per_s: f64,
    pub(super) each_per_s: f64,
    /// Share of all work that newcomers' first requests are in the long run; 0: nothing is foreseen.
    pub(super) newcomers_share: f64,
}

/// Work of newcomers per second, over time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outflow {
    /// Seconds until the first newcomer is let in.
    closed_s: f64,
    /// Cost units per second from then on, and in the long run.
    first: f64,
    lasting: f64,
    /// `T`, in seconds.
    settle_s: f64,
}

impl Outflow {
    /// As fast as now for ever.
    pub(super) fn steady(per_s: f64) -> Self {
        Self { closed_s: 0.0, first: per_s, lasting: per_s, settle_s: 1.0 }
    }

    /// Sessions get what they ask for of `available` cost units per second, which is above zero.
    pub(super) fn foreseen(available: f64, sessions: Foreseen) -> Self {
        let Foreseen { per_s, each_per_s, newcomers_share } = sessions;
        let settle_s = (1.0 - newcomers_share) / each_per_s;
        let over = per_s / available;
        let closed_s = if over > 1.0 { settle_s / newcomers_share * over.ln() } else { 0.0 };
        let first = (available - per_s).max(0.0);
        Self { closed_s, first, lasting: newcomers_share * available, settle_s }
    }

    /// Of every `times` cost units only one is counted: a newcomer's first request, and not its first page.
    pub(super) fn over(self, times: f64) -> Self {
        Self { first: self.first / times, lasting: self.lasting / times, ..self }
    }

    /// Cost units that are let in within `wait_s` seconds.
    pub(super) fn work_within(&self, wait_s: f64) -> f64 {
        let open_s = (wait_s - self.closed_s).max(0.0);
        let settled = -(-open_s / self.settle_s).exp_m1();
        self.lasting * open_s + (self.first - self.lasting) * self.settle_s * settled
    }

    /// Seconds until so many cost units have been let in; infinite where none ever are.
    pub(super) fn time_for(&self, work: f64) -> f64 {
        if work <= 0.0 {
            return 0.0;
        }
        if self.lasting <= 0.0 {
            return f64::INFINITY;
        }
        // x + extra (1 - exp(-x)) = goal, with extra >= -1. From a start below the solution Newton's method
        // does not overshoot if extra is positive, from one above it if extra is negative.
        let goal = work / (self.lasting * self.settle_s);
        let extra = self.first / self.lasting - 1.0;
        let mut x = if extra > 0.0 {
            (goal - extra).max(goal / (1.0 + extra))
        } else {
            // Below 1 the left side is at least -extra x^2 / 3.
            let near = (-3.0 * goal / extra).sqrt();
            (goal - extra).min(if near < 1.0 { near } else { f64::MAX })
        };
        for _ in 0..STEPS {
            let rest = (-x).exp();
            x -= (x + extra * (1.0 - rest) - goal) / (1.0 + extra * rest);
        }
        self.closed_s + x * self.settle_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreseen(per_s: f64) -> Outflow {
        Outflow::foreseen(100.0, Foreseen { per_s, each_per_s: 0.25, newcomers_share: 0.125 })
    }

    #[test]
    fn a_steady_outflow_takes_as_long_as_its_rate_says() {
        let steady = Outflow::steady(40.0);
        assert!(
            (steady.time_for(100.0) - 2.5).abs() < 1e-9 && (steady.work_within(2.5) - 100.0).abs() < 1e-9
        );
        assert_eq!(steady.time_for(0.0), 0.0);
        assert_eq!(Outflow::steady(0.0).time_for(1.0), f64::INFINITY);
    }

    #[test]
    fn the_time_for_some_work_lets_in_that_work() {
        for per_s in [0.0, 30.0, 87.5, 95.0, 100.0, 180.0] {
            let outflow = foreseen(per_s);
            for work in [0.01, 1.0, 20.0, 150.0, 300.0, 5_000.0] {
                let error = outflow.work_within(outflow.time_for(work)) / work - 1.0;
                assert!(error.abs() < 0.01, "{per_s}, {work}: {error}");
            }
        }
    }

    #[test]
    fn the_law_is_that_of_the_sessions_that_come_and_go() {
        // Forward in steps of a millisecond: u = A - c n; n' = u - n s c / (1 - s).
        for per_s in [0.0, 87.5, 150.0] {
            let (mut n, mut work, step) = (per_s / 0.25, 0.0, 1e-3_f64);
            for _ in 0..20_000 {
                let u = f64::max(100.0 - 0.25 * n, 0.0);
                work += u * step;
                n += (u - n * 0.125 * 0.25 / 0.875) * step;
            }
            let told = foreseen(per_s).work_within(20.0);
            assert!((told - work).abs() < 0.5, "{per_s}: {told}, {work}");
        }
    }
}
