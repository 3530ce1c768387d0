//! The work that open sessions will ask for, before they ask for it.
//!
//! A visitor who is let in comes back: after the first page comes the next one. Work that arrives shows this
//! only when it is too late, because the visitors who were let in meanwhile come back as well. So the
//! visitors themselves are counted, each the less the longer it has been idle:
//!
//! ```text
//! n    =  sum over open sessions of exp(-idle / g)      1 for a session with a request under way
//! g       mean pause: time from the end of a request to the next request of its session, over 1,000 that
//!         took a second or longer
//! w       work of a first page: what a visitor asks for in its first four seconds, parts included
//! c    =  later work / time integral of n, over a minute
//! c n     work per second that open sessions will ask for
//! s       d / (d + later work), over five minutes: the share of the capacity that is left to the first pages
//!         of newcomers in the long run
//! d       work of first pages, less w for each by which n has grown: of those who have left again
//! ```
//!
//! A shorter time than a second is that of the parts of a page, and says nothing of how long a visitor reads:
//! with it in the mean, visitors who read would count as gone. The parts of the first page are no return
//! either. They come at once and whether or not the visitor stays: counted as later work, a crowd of whom
//! each reads one page looks as if all of them came back for ever (at a real service of pages with six parts,
//! waits of half a minute were announced as a quarter of an hour). So a newcomer is expected with its whole
//! first page: where a page is seven times its first request, a seventh of the capacity that is left goes to
//! first requests.
//!
//! The measured `c` makes up for what the exponential gets wrong: visitors who never return, and thinking
//! times of another distribution. Without `d` a crowd that was just let in would look as if nobody came back.
//! `n` comes from a scan of the table, 4,096 entries a tick; sessions that began since the scan did
//! count as 1. Where `g` changes, `n` is another number for the same sessions, so what was learned by the
//! former one is converted.

use std::time::Duration;

use crate::capacity::Trust;
use crate::decaying::{DecayingRatio, keep};
use crate::units::Timestamp;

use super::entry::Entry;

/// Memory of the mean pause, in pauses.
const PAUSE_MEMORY: f64 = 1_000.0;
/// Memory of the work of an active session, in seconds.
const WORK_MEMORY_S: f64 = 60.0;
/// Memory of the newcomers' share of the work, in seconds: longer than most sessions.
const SHARE_MEMORY_S: f64 = 300.0;
/// Requests of idle sessions from which on something is known.
const LEAST_RETURNS: f64 = 11.0;
/// Weight of what is to be checked: that of fifteen pauses where a thousand were learned.
const CHECKED_WEIGHT: f64 = 0.015;
/// Limits of the share: a thousand requests of a visitor, or hardly more than one.
const SHARE_RANGE: std::ops::RangeInclusive<f64> = 0.001..=0.99;
/// Limits of a first page's work over its first request's.
const RATIO_RANGE: std::ops::RangeInclusive<f64> = 1.0..=1_000.0;
/// Least work of an active session: a request a day.
const LEAST_WORK_PER_S: f64 = 1e-5;
/// Least pause: a page and its parts are one visit.
pub(super) const LEAST_PAUSE: Duration = Duration::from_secs(1);
/// A visitor's first page and its parts are asked for within this, also where a request takes a second.
pub(super) const FIRST_PAGE: Duration = Duration::from_secs(4);

#[derive(Default, Debug)]
pub(super) struct Forecast {
    /// Requests of idle sessions so far.
    returns: f64,
    /// Seconds of pauses, over pauses.
    pause: DecayingRatio,
    /// Work of returning visitors over active sessions times seconds.
    work: DecayingRatio,
    /// Work of first pages of visitors who have left again over that and all later work.
    share: DecayingRatio,
    /// Work of first requests over sessions begun.
    first: DecayingRatio,
    /// Work of first pages over that of their first requests.
    first_page: DecayingRatio,
    /// Active sessions before.
    active: f64,
    /// `None`: too little is known.
    pub(super) expected: Option<ExpectedSessions>,
}

/// What open sessions will ask for.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct ExpectedSessions {
    /// Cost units per second of all of them (`c n`), and of each that is active (`c`).
    pub per_s: f64,
    pub each_per_s: f64,
    /// Share of all work that newcomers' first pages are in the long run.
    pub newcomers_share: f64,
    /// Cost units of a first request, and how many times that a first page is.
    pub first: f64,
    pub first_page_ratio: f64,
}

impl ExpectedSessions {
    /// Mean time that a session is active, in seconds.
    pub(super) fn life_s(&self) -> f64 {
        (1.0 - self.newcomers_share) / (self.each_per_s * self.newcomers_share)
    }

    /// By how many cost units per second sessions will ask for more than now, once newcomers have made first
    /// requests of so much work, within `within_s`. Meanwhile others leave.
    pub(crate) fn growth_per_s(&self, first_work: f64, within_s: f64) -> f64 {
        let coming = if self.first > 0.0 { first_work / self.first } else { 0.0 };
        let leaving = self.per_s / self.each_per_s * within_s / self.life_s();
        (coming - leaving).max(0.0) * self.each_per_s
    }

    /// Whether the figures are possible ones.
    pub fn is_sound(&self) -> bool {
        let Self { per_s, each_per_s, newcomers_share, first, first_page_ratio } = *self;
        per_s >= 0.0
            && each_per_s >= LEAST_WORK_PER_S
            && SHARE_RANGE.contains(&newcomers_share)
            && (0.0..=f64::MAX).contains(&first)
            && RATIO_RANGE.contains(&first_page_ratio)
    }

    /// The sessions of two processes together.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let per_s = self.per_s + other.per_s;
        let active = |of: &Self| of.per_s / of.each_per_s;
        let part = if per_s > 0.0 { self.per_s / per_s } else { 0.5 };
        let mean = |mine: f64, theirs: f64| part * mine + (1.0 - part) * theirs;
        let both = active(self) + active(other);
        Self {
            per_s,
            each_per_s: if both > 0.0 { per_s / both } else { mean(self.each_per_s, other.each_per_s) },
            newcomers_share: mean(self.newcomers_share, other.newcomers_share),
            first: mean(self.first, other.first),
            first_page_ratio: mean(self.first_page_ratio, other.first_page_ratio),
        }
    }
}

/// What happened since the last tick.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ForecastSample {
    pub(super) dt_s: f64,
    /// Requests of idle sessions, those of them after a pause, and the seconds of these pauses.
    pub(super) returns: f64,
    pub(super) pauses: f64,
    pub(super) pauses_s: f64,
    /// Sessions that began, and those of an earlier process.
    pub(super) begun: f64,
    pub(super) readmitted: f64,
    /// Work of first pages, of their first requests, and of all later requests, in cost units.
    pub(super) first_page_work: f64,
    pub(super) first_work: f64,
    pub(super) work: f64,
    /// Active sessions (`n`), and what they are over what they would be with the mean pause of before.
    pub(super) active: f64,
    pub(super) remeasured: f64,
}

impl Forecast {
    /// Everything that is learned; `None`: nothing is known yet.
    pub(super) fn learned(&self) -> Option<[DecayingRatio; 5]> {
        self.is_known().then_some([self.pause, self.work, self.share, self.first, self.first_page])
    }

    /// To be checked, the values count for as little as a forecast needs, so that the first visitors outweigh
    /// them.
    pub(super) fn resume(&mut self, learned: [DecayingRatio; 5], trust: Trust) {
        let is_sound = |of: &DecayingRatio| of.sum.is_finite() && of.over.is_finite() && of.over >= 0.0;
        // An older process did not tell first pages from their first requests.
        let [pause, work, share, first, first_page] = learned;
        if !learned.iter().all(is_sound) || [work, share, first].iter().any(|of| of.over <= 0.0) {
            return;
        }
        self.returns = LEAST_RETURNS;
        (self.pause, self.work, self.share) = (pause, work, share);
        (self.first, self.first_page) = (first, first_page);
        if trust == Trust::Checked {
            let all =
                [&mut self.pause, &mut self.work, &mut self.share, &mut self.first, &mut self.first_page];
            all.into_iter().for_each(|learned| learned.decay(CHECKED_WEIGHT));
        }
    }

    fn is_known(&self) -> bool {
        self.returns >= LEAST_RETURNS
    }

    /// The mean pause, in seconds.
    pub(super) fn pause_s(&self) -> f64 {
        self.pause.get().unwrap_or(LEAST_PAUSE.as_secs_f64())
    }

    pub(super) fn tick(&mut self, seen: &ForecastSample) {
        self.returns += seen.returns;
        self.active *= seen.remeasured;
        self.work.over *= seen.remeasured;
        let kept = PAUSE_MEMORY / (PAUSE_MEMORY + seen.pauses);
        self.pause.decay_and_add(kept, seen.pauses_s, seen.pauses);
        self.work.decay_and_add(keep(seen.dt_s, WORK_MEMORY_S), seen.work, seen.active * seen.dt_s);
        let kept = keep(seen.dt_s, SHARE_MEMORY_S);
        self.first.decay_and_add(kept, seen.first_work, seen.begun);
        self.first_page.decay_and_add(keep(seen.dt_s, WORK_MEMORY_S), seen.first_page_work, seen.first_work);
        let first_page = self.first_page.get().unwrap_or(1.0);
        let first_page_ratio = first_page.clamp(*RATIO_RANGE.start(), *RATIO_RANGE.end());
        let growth = seen.active - std::mem::replace(&mut self.active, seen.active);
        let page = self.first.get().unwrap_or(0.0) * first_page_ratio;
        let left = (seen.begun + seen.readmitted - growth) * page;
        self.share.decay_and_add(kept, left, left + seen.work);
        let known = self.work.get().zip(self.share.get()).filter(|_| self.is_known());
        self.expected = known.map(|(work, share)| {
            let newcomers_share = share.clamp(*SHARE_RANGE.start(), *SHARE_RANGE.end());
            let each_per_s = work.max(LEAST_WORK_PER_S);
            let (per_s, first) = (each_per_s * seen.active, self.first.get().unwrap_or(1.0));
            ExpectedSessions { per_s, each_per_s, newcomers_share, first, first_page_ratio }
        });
    }
}

/// How much a session counts.
pub(super) fn activity(entry: &Entry, pause_s: f64, now: Timestamp) -> f64 {
    keep(entry.idle(now).as_secs_f64(), pause_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tick of a tenth of a second with `active` sessions, of which three in ten return each second after
    /// three seconds, and `begun` new ones.
    fn sample(active: f64, begun: f64) -> ForecastSample {
        let returns = 0.03 * active;
        ForecastSample {
            dt_s: 0.1,
            returns,
            pauses: returns,
            pauses_s: 3.0 * returns,
            begun,
            readmitted: 0.0,
            first_page_work: begun,
            first_work: begun,
            work: returns,
            active,
            remeasured: 1.0,
        }
    }

    /// A minute in which one begins and one leaves a tick.
    fn steady() -> Forecast {
        let mut forecast = Forecast { active: 100.0, ..Forecast::default() };
        (0..600).for_each(|_| forecast.tick(&sample(100.0, 1.0)));
        forecast
    }

    #[test]
    fn nothing_is_expected_before_visitors_have_returned() {
        let mut forecast = Forecast::default();
        forecast.tick(&sample(100.0, 100.0));
        assert_eq!(forecast.expected, None, "three returns");
        (0..10).for_each(|_| forecast.tick(&sample(100.0, 1.0)));
        assert!(forecast.expected.is_some());
    }

    #[test]
    fn visitors_who_were_let_in_are_expected_back_before_they_come() {
        let mut forecast = steady();
        let before = forecast.expected.expect("known");
        assert!((before.per_s - 30.0).abs() < 1e-6, "{before:?}");
        assert!((before.newcomers_share - 0.25).abs() < 1e-6, "{before:?}");
        assert!((before.life_s() - 10.0).abs() < 1e-6, "a hundred sessions, ten leave a second");
        // Two hundred more come in a tick, and none of them has returned.
        let nobody = ForecastSample { returns: 0.0, pauses: 0.0, pauses_s: 0.0, ..sample(300.0, 201.0) };
        forecast.tick(&ForecastSample { work: 3.0, ..nobody });
        let after = forecast.expected.expect("known");
        assert!((85.0..90.5).contains(&after.per_s), "{after:?}");
        assert!((after.newcomers_share - 0.25).abs() < 0.001, "a crowd shows nothing yet: {after:?}");
        assert!((forecast.pause_s() - 3.0).abs() < 1e-6);
    }

    #[test]
    fn parts_of_pages_are_known_to_return_and_are_no_pauses() {
        let mut forecast = Forecast { active: 100.0, ..Forecast::default() };
        (0..20).for_each(|_| {
            forecast.tick(&ForecastSample { pauses: 0.0, pauses_s: 0.0, ..sample(100.0, 1.0) })
        });
        assert!(forecast.expected.is_some() && forecast.pause_s() == 1.0, "{forecast:?}");
        let learned = forecast.learned().expect("known");
        let mut resumed = Forecast::default();
        resumed.resume(learned, Trust::Trusted);
        assert_eq!(resumed.learned(), Some(learned));
        forecast.tick(&ForecastSample { returns: 3.0, pauses: 1.0, pauses_s: 4.0, ..sample(100.0, 1.0) });
        assert_eq!(forecast.pause_s(), 4.0);
    }

    #[test]
    fn parts_of_the_first_page_come_with_the_newcomer_and_are_no_return() {
        let mut forecast = Forecast { active: 100.0, ..Forecast::default() };
        let with_parts = ForecastSample { first_page_work: 7.0, ..sample(100.0, 1.0) };
        (0..600).for_each(|_| forecast.tick(&with_parts));
        let steady = forecast.expected.expect("known");
        assert!(steady.first == 1.0 && (steady.first_page_ratio - 7.0).abs() < 1e-6, "{steady:?}");
        assert!((steady.per_s - 30.0).abs() < 1e-6 && (steady.newcomers_share - 0.7).abs() < 1e-6);
        // A crowd: its parts come at once, and nobody has left or returned yet.
        let crowd = ForecastSample { first_page_work: 1_400.0, ..sample(300.0, 200.0) };
        forecast.tick(&ForecastSample { returns: 3.0, work: 3.0, ..crowd });
        let after = forecast.expected.expect("known");
        assert!((after.newcomers_share - 0.7).abs() < 0.001, "{after:?}");
        assert!((85.0..95.0).contains(&after.per_s), "{after:?}");
        let learned = forecast.learned().expect("known");
        let mut resumed = Forecast::default();
        resumed.resume(learned, Trust::Trusted);
        assert_eq!(resumed.learned(), Some(learned));
        let mut older = learned;
        older[4] = DecayingRatio::default();
        resumed.resume(older, Trust::Trusted);
        resumed.tick(&ForecastSample { dt_s: 0.1, remeasured: 1.0, ..ForecastSample::default() });
        assert_eq!(resumed.expected.expect("known").first_page_ratio, 1.0, "an older process");
    }

    #[test]
    fn what_sessions_ask_for_is_the_same_with_another_mean_pause() {
        let mut forecast = steady();
        let before = forecast.expected.expect("known");
        let of_four_hundred = ForecastSample { active: 400.0, ..sample(100.0, 1.0) };
        forecast.tick(&ForecastSample { remeasured: 4.0, ..of_four_hundred });
        forecast.tick(&of_four_hundred);
        let after = forecast.expected.expect("known");
        assert!((after.per_s - before.per_s).abs() < 0.1, "{before:?}, {after:?}");
        assert!((after.newcomers_share - before.newcomers_share).abs() < 0.01, "{before:?}, {after:?}");
    }

    #[test]
    fn sessions_of_an_earlier_process_are_no_newcomers() {
        let mut forecast = steady();
        forecast.tick(&ForecastSample { readmitted: 50.0, ..sample(150.0, 1.0) });
        let after = forecast.expected.expect("known");
        assert!((after.newcomers_share - 0.25).abs() < 0.001, "{after:?}");
    }

    #[test]
    fn what_was_learned_is_resumed_and_what_is_to_be_checked_is_soon_outweighed() {
        let learned = steady().learned().expect("known");
        let resumed = |trust| {
            let mut forecast = Forecast::default();
            forecast.resume(learned, trust);
            forecast.tick(&ForecastSample { dt_s: 0.1, remeasured: 1.0, ..ForecastSample::default() });
            let before = forecast.expected.expect("known");
            assert!((before.newcomers_share - 0.25).abs() < 0.01, "{before:?}");
            // Visitors of another kind, who come back ten times as fast.
            (0..50).for_each(|_| forecast.tick(&ForecastSample { work: 30.0, ..sample(100.0, 1.0) }));
            forecast.expected.expect("known").each_per_s
        };
        let (trusted, checked) = (resumed(Trust::Trusted), resumed(Trust::Checked));
        assert!(trusted < 1.0 && checked > 1.5, "{trusted}, {checked}");
        let mut forecast = Forecast::default();
        forecast.resume([DecayingRatio { sum: f64::NAN, over: 1e3 }; 5], Trust::Trusted);
        assert_eq!(forecast.learned(), None);
    }
}
