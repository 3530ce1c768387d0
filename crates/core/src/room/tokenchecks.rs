//! Tokengen's half of the two-process form: the tokenchecks that report here, and the origin's state by them.
//!
//! **Several tokenchecks** may report to one tokengen, each with a number of its own. Their gates count as
//! one: queues and requests in flight are added up, and each has an equal part of the in-flight limit, which
//! is right behind a balancer that sends all of them as much. A sample has the number of requests that one of
//! them had at the origin; all together had as many times more. Rejected: parts by demand. They would have to
//! be leased, since a tokencheck that is given less must know before another is given more.

use std::time::Duration;

use super::origin_load::ORIGIN_GONE;
use super::report::{Feedback, MAX_REPORTED_SAMPLES, gather};
use crate::capacity::Sample;
use crate::gate::Totals;
use crate::session::{ExpectedSessions, SessionPace};
use crate::sync::{AtomicBool, Ordering};
use crate::units::{Cost, Rate, Timestamp};

/// Most work booked from reports, as time at capacity: what comes from a wire is not trusted without bound.
pub(super) const MAX_BOOKED: Duration = Duration::from_secs(3_600);
/// A tokencheck that has not reported for so long is not counted any more: three reports and a little.
const SILENT: Duration = Duration::from_secs(2);
/// Tokenchecks kept apart. The gates of further ones are not counted.
const MAX_TOKENCHECKS: usize = 64;

/// What a tokengen knows of the origin.
#[derive(Clone, Debug)]
pub enum RemoteOrigin {
    /// This process forwards by itself, as far as it knows.
    Here,
    /// Tokencheck's gate, or all of them as one, and what ended there since the last call. `age`: time since
    /// the report that is the oldest of their last ones.
    Heard { gate: Box<Totals>, samples: Vec<Sample>, age: Duration },
    /// No report has come for so long.
    Silent(Duration),
}

/// What requests read of the link.
#[derive(Default)]
pub(super) struct LinkState {
    /// A tokencheck reports what it admits, so visitors that are sent on do not count as admitted here.
    has_tokencheck: AtomicBool,
    /// This process sends visitors on to a tokencheck.
    sends_on: AtomicBool,
}

impl LinkState {
    pub(super) fn has_tokencheck(&self) -> bool {
        self.has_tokencheck.load(Ordering::Relaxed)
    }

    pub(super) fn set_has_tokencheck(&self) {
        self.has_tokencheck.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_sends_on(&self) {
        if !self.sends_on.load(Ordering::Relaxed) {
            self.sends_on.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the origin is behind a tokencheck.
    fn is_remote(&self) -> bool {
        self.has_tokencheck() || self.sends_on.load(Ordering::Relaxed)
    }
}

/// One tokencheck, as of its last report.
#[derive(Clone, Copy, Debug)]
struct Tokencheck {
    from: u64,
    reported_at: Timestamp,
    gate: Totals,
    is_origin_gone: bool,
    sessions: Option<SessionPace>,
    expected: Option<ExpectedSessions>,
}

/// What the tokenchecks have reported. Times are by this process's clock.
#[derive(Default, Debug)]
pub(super) struct Tokenchecks {
    members: Vec<Tokencheck>,
    /// Since they were last taken.
    samples: Vec<Sample>,
    /// Work queued at all of them.
    pub(super) queued: Cost,
    /// Work that all of them have forwarded, each since its first report, and what of it was entering.
    forwarded: Cost,
    forwarded_entering: Cost,
    pub(super) last_report: Option<Timestamp>,
    /// The last report that had a gate.
    last_gate: Option<Timestamp>,
    /// A gate was reported since the last tick.
    has_news: bool,
    /// Since when reports are missed.
    silent_since: Option<Timestamp>,
    max_in_flight: Option<u32>,
    pub(super) is_estimate_initial: bool,
}

impl Tokenchecks {
    pub(super) fn take_report(&mut self, report: &Feedback, now: Timestamp) {
        self.last_report = Some(now);
        if let Some(gate) = report.gate {
            self.take_gate(gate, report, now);
        }
        let queued = if self.members.len() > 1 { self.gate().queued_cost } else { report.queued };
        self.queued = queued.min(ORIGIN_GONE);
    }

    fn take_gate(&mut self, gate: Totals, report: &Feedback, now: Timestamp) {
        self.last_gate = Some(now);
        self.has_news = true;
        self.members.retain(|member| now.since(member.reported_at) <= SILENT || member.from == report.from);
        let Feedback { from, is_origin_gone, sessions, expected, .. } = *report;
        let new = Tokencheck { from, reported_at: now, gate, is_origin_gone, sessions, expected };
        let is_full = self.members.len() == MAX_TOKENCHECKS;
        match self.members.iter_mut().find(|member| member.from == from) {
            Some(known) => {
                // A process that was started anew counts from nothing.
                let more = |of: fn(&Totals) -> Cost| {
                    of(&gate).saturating_sub(of(&known.gate)).min(Rate::MAX.over(MAX_BOOKED))
                };
                self.forwarded += more(|gate| gate.forwarded_cost);
                self.forwarded_entering += more(|gate| gate.forwarded_entering);
                *known = new;
            }
            None if is_full => {}
            None => self.members.push(new),
        }
        let members = self.count();
        for sample in report.samples.iter().take(MAX_REPORTED_SAMPLES) {
            let age = report.at.since(sample.ended);
            let in_flight = sample.in_flight.saturating_mul(members);
            gather(&mut self.samples, &Sample { ended: now.saturating_sub(age), in_flight, ..*sample });
        }
    }

    /// The number of tokenchecks, at least one.
    fn count(&self) -> u32 {
        self.members.len().max(1) as u32
    }

    fn gate(&self) -> Totals {
        let (forwarded_cost, forwarded_entering) = (self.forwarded, self.forwarded_entering);
        let mut sum = Totals { limit: Some(0), forwarded_cost, forwarded_entering, ..Totals::default() };
        for Tokencheck { gate, .. } in &self.members {
            sum.queued = sum.queued.saturating_add(gate.queued);
            sum.queued_cost += gate.queued_cost;
            sum.entering_cost += gate.entering_cost;
            sum.in_flight = sum.in_flight.saturating_add(gate.in_flight);
            sum.limit = sum.limit.zip(gate.limit).map(|(a, b)| a.saturating_add(b));
            sum.max_queue = sum.max_queue.saturating_add(gate.max_queue);
            sum.max_queue_wait = sum.max_queue_wait.max(gate.max_queue_wait);
        }
        sum
    }

    /// The gates, if there was a report of one since the last call.
    pub(super) fn take_news(&mut self) -> Option<Totals> {
        std::mem::take(&mut self.has_news).then(|| self.gate())
    }

    /// Their session slots as one; `None`: one of them at least admits sessions as fast as they come.
    pub(super) fn sessions(&self) -> Option<SessionPace> {
        let (first, more) = self.members.split_first()?;
        more.iter().try_fold(first.sessions?, |sum, member| {
            let SessionPace { free, per_s, next_s } = member.sessions?;
            let free = sum.free.zip(free).map(|(a, b)| a.saturating_add(b));
            Some(SessionPace { free, per_s: sum.per_s + per_s, next_s: sum.next_s.min(next_s) })
        })
    }

    /// What the sessions of all of them will ask for; `None`: one of them at least does not know.
    pub(super) fn expected(&self) -> Option<ExpectedSessions> {
        let (first, more) = self.members.split_first()?;
        more.iter().try_fold(first.expected?, |sum, member| Some(sum.and(&member.expected?)))
    }

    /// Whether there was a report lately; an older one no longer counts.
    pub(super) fn has_recent_report(&self, now: Timestamp) -> bool {
        self.last_report.is_some_and(|at| now.since(at) <= SILENT)
    }

    /// Whether none of them has a replica to send requests to.
    pub(super) fn is_origin_gone(&self) -> bool {
        !self.members.is_empty() && self.members.iter().all(|member| member.is_origin_gone)
    }

    pub(super) fn set_limit(&mut self, max_in_flight: Option<u32>, is_measured: bool) {
        (self.max_in_flight, self.is_estimate_initial) = (max_in_flight, !is_measured);
    }

    pub(super) fn limit_of_each(&self) -> Option<u32> {
        self.max_in_flight.map(|limit| limit.div_ceil(self.count()).max(1).min(limit))
    }

    pub(super) fn origin(&mut self, link: &LinkState, now: Timestamp) -> RemoteOrigin {
        match self.last_gate {
            None if !link.is_remote() => RemoteOrigin::Here,
            Some(at) if now.since(at) <= SILENT => {
                let mut samples = std::mem::take(&mut self.samples);
                samples.sort_by_key(|sample| sample.ended);
                let oldest = self.members.iter().map(|member| member.reported_at).min();
                let age = now.since(oldest.unwrap_or(at));
                RemoteOrigin::Heard { gate: Box::new(self.gate()), samples, age }
            }
            last => {
                // Of a version that does not report its gate, or not there yet.
                let since = *self.silent_since.get_or_insert(last.unwrap_or(now));
                RemoteOrigin::Silent(now.since(last.unwrap_or(since)).max(Duration::from_millis(1)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn report(from: u64, queued: u64, limit: Option<u32>) -> Feedback {
        let queued_cost = Cost::from_hundredths(queued);
        let entering_cost = Cost::from_hundredths(queued / 2);
        let gate = Totals { queued: 1, queued_cost, entering_cost, limit, in_flight: 2, ..Totals::default() };
        Feedback { from, gate: Some(gate), queued: queued_cost, ..Feedback::default() }
    }

    #[test]
    fn gates_count_as_one_and_share_the_limit() {
        let mut tokenchecks = Tokenchecks::default();
        tokenchecks.set_limit(Some(20), true);
        for from in 0..3 {
            tokenchecks.take_report(&report(from, 100, Some(7)), START);
        }
        let gate = tokenchecks.take_news().expect("news");
        assert_eq!((gate.queued, gate.in_flight, gate.limit), (3, 6, Some(21)));
        assert_eq!((tokenchecks.take_news(), tokenchecks.limit_of_each()), (None, Some(7)));
        assert_eq!(tokenchecks.queued, Cost::from_hundredths(300));
        assert_eq!(gate.entering_cost, Cost::from_hundredths(150));
        // One without a limit; the others fall silent.
        tokenchecks.take_report(&report(2, 50, None), START + 2 * SILENT);
        assert_eq!(tokenchecks.take_news().map(|gate| (gate.in_flight, gate.limit)), Some((2, None)));
        assert_eq!(tokenchecks.limit_of_each(), Some(20));
    }

    #[test]
    fn forwarded_work_goes_on_over_a_restart_of_a_tokencheck() {
        let mut tokenchecks = Tokenchecks::default();
        let mut forwarded = |hundredths| {
            let mut report = report(1, 0, None);
            let gate = report.gate.as_mut().expect("a gate");
            gate.forwarded_cost = Cost::from_hundredths(hundredths);
            gate.forwarded_entering = Cost::from_hundredths(hundredths / 10);
            tokenchecks.take_report(&report, START);
            let Totals { forwarded_cost, forwarded_entering, .. } = tokenchecks.gate();
            (forwarded_cost.hundredths(), forwarded_entering.hundredths())
        };
        assert_eq!([900, 1_000, 0, 30].map(&mut forwarded), [(0, 0), (100, 10), (100, 10), (130, 13)]);
        let most = Rate::MAX.over(MAX_BOOKED).hundredths();
        assert_eq!(forwarded(u64::MAX), (130 + most, 13 + most), "bounded");
    }

    #[test]
    fn the_number_of_tokenchecks_kept_is_bounded() {
        let mut tokenchecks = Tokenchecks::default();
        for from in 0..2 * MAX_TOKENCHECKS as u64 {
            tokenchecks.take_report(&report(from, 0, None), START);
        }
        assert_eq!(tokenchecks.members.len(), MAX_TOKENCHECKS);
    }

    #[test]
    fn session_slots_are_added_up_unless_one_has_no_bound() {
        let mut tokenchecks = Tokenchecks::default();
        let mut sessions = |from, sessions| {
            tokenchecks.take_report(&Feedback { sessions, ..report(from, 0, None) }, START);
            tokenchecks.sessions()
        };
        let pace = |free, per_s, next_s| Some(SessionPace { free: Some(free), per_s, next_s });
        assert_eq!(sessions(1, pace(3, 0.5, 2.0)), pace(3, 0.5, 2.0));
        assert_eq!(sessions(2, pace(4, 1.0, 9.0)), pace(7, 1.5, 2.0));
        assert_eq!(sessions(2, None), None);
    }

    #[test]
    fn what_sessions_will_ask_for_is_added_up_once_all_know() {
        let mut tokenchecks = Tokenchecks::default();
        let mut expected = |from, expected| {
            tokenchecks.take_report(&Feedback { expected, ..report(from, 0, None) }, START);
            tokenchecks.expected()
        };
        let one = |per_s, each_per_s, newcomers_share, first| {
            Some(ExpectedSessions { per_s, each_per_s, newcomers_share, first, first_page_ratio: 1.0 })
        };
        assert_eq!(expected(1, one(30.0, 0.25, 0.125, 1.0)), one(30.0, 0.25, 0.125, 1.0));
        assert_eq!(expected(2, None), None);
        // 120 sessions there, 20 here.
        assert_eq!(expected(2, one(10.0, 0.5, 0.25, 2.0)), one(40.0, 40.0 / 140.0, 0.15625, 1.25));
    }

    #[test]
    fn silence_is_noticed_also_before_the_first_report() {
        let (mut tokenchecks, link) = (Tokenchecks::default(), LinkState::default());
        assert!(matches!(tokenchecks.origin(&link, START), RemoteOrigin::Here));
        link.set_sends_on();
        assert!(matches!(tokenchecks.origin(&link, START), RemoteOrigin::Silent(_)));
        let later = START + Duration::from_secs(5);
        let RemoteOrigin::Silent(silence) = tokenchecks.origin(&link, later) else { panic!("silent") };
        assert_eq!(silence, Duration::from_secs(5));
        tokenchecks.take_report(&report(1, 0, None), later);
        let heard = tokenchecks.origin(&link, later + SILENT);
        assert!(matches!(heard, RemoteOrigin::Heard { age, .. } if age == SILENT), "{heard:?}");
        assert!(tokenchecks.has_recent_report(later + SILENT));
        assert!(!tokenchecks.has_recent_report(later + 2 * SILENT));
    }
}
