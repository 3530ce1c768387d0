//! The work that open sessions will ask for, before they ask for it.
//!
//! A visitor who is let in comes back: after the first page comes the next one. Work that arrives shows this
//! only when it is too late, because the visitors who were let in meanwhile come back as well. So the
//! visitors themselves are counted, each the less the longer it has been idle:
//!
//! ```text
//! n    =  sum over open sessions of exp(-idle / g)      1 for a session with a request under way
//! g       mean time between the end of a request and the next request of its session, over 1,000 of them
//! c    =  work of returning visitors / time integral of n, over a minute
//! c n     work per second that open sessions will ask for
//! s       work of first requests over the work of all, over five minutes: the share of the capacity that is
//!         left to newcomers in the long run
//! ```
//!
//! The measured `c` makes up for what the exponential gets wrong: visitors who never return, and thinking
//! times of another distribution. `n` comes from a scan of all entries, 4,096 a tick; sessions that began
//! since the scan did count as 1.

use crate::decaying::{DecayingRatio, keep};
use crate::units::Timestamp;

use super::entry::Entry;

/// Memory of the mean gap, in gaps.
const GAP_MEMORY: f64 = 1_000.0;
/// Memory of the work of an active session, in seconds.
const WORK_MEMORY_S: f64 = 60.0;
/// Memory of the newcomers' share of the work, in seconds: longer than most sessions.
const SHARE_MEMORY_S: f64 = 300.0;
/// Gaps before which nothing is known.
const LEAST_GAPS: f64 = 20.0;
/// Least mean gap, in seconds: a page and its parts are one visit.
const LEAST_GAP_S: f64 = 1.0;

#[derive(Default, Debug)]
pub(super) struct Forecast {
    /// Seconds between requests, over requests.
    gap: DecayingRatio,
    /// Work of returning visitors over active sessions times seconds.
    work: DecayingRatio,
    /// Work of first requests over all work.
    share: DecayingRatio,
    /// `None`: too little is known.
    pub(super) expected: Option<ExpectedSessions>,
}

/// What open sessions will ask for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ExpectedSessions {
    /// Cost units per second.
    pub per_s: f64,
    /// Share of all work that newcomers' first requests are in the long run.
    pub newcomers_share: f64,
}

/// What happened since the last tick.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ForecastSample {
    pub(super) dt_s: f64,
    /// Requests of idle sessions, and the seconds for which those had been idle.
    pub(super) returns: f64,
    pub(super) gaps_s: f64,
    /// Work of requests that began a session, and of all others, in cost units.
    pub(super) first_work: f64,
    pub(super) work: f64,
    /// Active sessions (`n`).
    pub(super) active: f64,
}

impl Forecast {
    /// The mean gap, in seconds.
    pub(super) fn gap_s(&self) -> f64 {
        self.gap.get().unwrap_or(LEAST_GAP_S).max(LEAST_GAP_S)
    }

    pub(super) fn tick(&mut self, seen: &ForecastSample) {
        self.gap.decay_and_add(GAP_MEMORY / (GAP_MEMORY + seen.returns), seen.gaps_s, seen.returns);
        self.work.decay_and_add(keep(seen.dt_s, WORK_MEMORY_S), seen.work, seen.active * seen.dt_s);
        let all_work = seen.first_work + seen.work;
        self.share.decay_and_add(keep(seen.dt_s, SHARE_MEMORY_S), seen.first_work, all_work);
        let is_known = self.gap.over >= LEAST_GAPS;
        self.expected = self.work.get().zip(self.share.get()).filter(|_| is_known).map(|(work, share)| {
            ExpectedSessions { per_s: work * seen.active, newcomers_share: share.clamp(0.0, 1.0) }
        });
    }
}

/// How much a session counts.
pub(super) fn activity(entry: &Entry, gap_s: f64, now: Timestamp) -> f64 {
    (-entry.idle(now).as_secs_f64() / gap_s).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tick of a tenth of a second with `active` sessions, of which three in ten return each second after
    /// three seconds, and `begun` new ones.
    fn tick(forecast: &mut Forecast, active: f64, begun: f64) {
        let returns = 0.03 * active;
        forecast.tick(&ForecastSample {
            dt_s: 0.1,
            returns,
            gaps_s: 3.0 * returns,
            first_work: begun,
            work: returns,
            active,
        });
    }

    #[test]
    fn nothing_is_expected_before_visitors_have_returned() {
        let mut forecast = Forecast::default();
        tick(&mut forecast, 100.0, 10.0);
        assert_eq!(forecast.expected, None, "three returns");
        (0..10).for_each(|_| tick(&mut forecast, 100.0, 10.0));
        assert!(forecast.expected.is_some());
    }

    #[test]
    fn visitors_who_were_let_in_are_expected_back_before_they_come() {
        let mut forecast = Forecast::default();
        (0..600).for_each(|_| tick(&mut forecast, 100.0, 1.0));
        let before = forecast.expected.expect("known");
        assert!((before.per_s - 30.0).abs() < 1e-6, "{before:?}");
        assert!((before.newcomers_share - 0.25).abs() < 1e-6, "{before:?}");
        // Two hundred more come in a tick, and none of them has returned.
        let work = 3.0;
        forecast.tick(&ForecastSample { dt_s: 0.1, work, active: 300.0, ..ForecastSample::default() });
        let after = forecast.expected.expect("known");
        assert!((85.0..90.5).contains(&after.per_s), "{after:?}");
        assert!((forecast.gap_s() - 3.0).abs() < 1e-6);
    }
}
