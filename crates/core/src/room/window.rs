//! The hand's pace where an estimator governs by the in-flight limit: a short queue is kept at the gate.
//!
//! The limit decides what the origin does; the room's part is that the gate never runs dry while people wait, and that
//! they wait here, not there. The capacity is no help in that: believed too low it would never be put to the test, too
//! high it would flood the queue. What counts is the queue itself, and what has been called and is on its way to it:
//!
//! ```text
//! z  = k F                                   work per second that keeps the queue as it is
//! u  = (z - A + (Q* - Q + (z - A) T - P) / 1 s) / show-up ratio       promises passed per second, 0 <= u <= 4 max(F, outflow)
//! P' = u * show-up ratio - P / T             called and not yet here
//! F' = (D - F) / 1 s                         while the origin is at its limit; else towards max(D, F, outflow)
//! k' = k r                                   r = 0.05/s * clamp((Q* - Q) / Q*, -3, 1), or 0.3/s while the origin could take more
//! Q* = 0.1 s F + sqrt(F v) + v / 2           at most a quarter of the queue's places
//! ```
//!
//! * `Q` work in the gate's queue, `D` work per second that left it for the origin, `A` of it past the schedule.
//! * `T` 0.5 s: who is called comes within a second or so (a page asks, a connection is made).
//! * `v` an average visitor: of the `n = F` called in the second that the loop takes to react, `sqrt(n)` more or fewer come.
//! * `k` takes in what the show-up ratio does not know yet: between 1/2 and 4.
//!
//! Without `P` the loop is an integrator behind a delay of up to a second, and must be slow (gain 0.4/s) not to swing. With it
//! the gain margin at 1/s is 6 for a delay of a second and 1.4 for two, so that pages which come late do no harm.
//!
//! Rejected: pacing at a multiple of the capacity (dry or full as soon as it is wrong); a base stock, which calls one
//! visitor for each that leaves (unstable as soon as visitors take longer than `T`); an integral over the queue alone
//! (14 s to notice that the capacity was believed at half, since an empty queue says so little).

use crate::units::Rate;

/// Part of the queue aimed at that is for two ticks' unevenness, in seconds of work.
const TARGET_S: f64 = 0.1;
/// Over which the number of those called varies like a Poisson number, in seconds.
const REACTION_S: f64 = 1.0;
/// Mean time from being called to being here, in seconds.
const ON_THE_WAY_S: f64 = 0.5;
/// After which those come again who are asked to, in seconds.
const AGAIN_S: f64 = 1.0;
/// Time in which a wrong queue is set right, in seconds.
const SETTLE_S: f64 = 1.0;
/// Memory of the work per second that leaves the queue, in seconds.
const FLOW_MEMORY_S: f64 = 1.0;
/// How fast the correction follows the queue, per second; and while the origin could take more.
const CORRECTION: f64 = 0.05;
const CORRECTION_STARVED: f64 = 0.3;
/// How far it may go: half, where far more come than are known to; four times, where a quarter of them do.
const CORRECTION_RANGE: std::ops::RangeInclusive<f64> = 0.5..=4.0;
/// Most work called per second, as a multiple of what is known to be possible.
const MAX_PACE: f64 = 4.0;

/// What is known of the gate at an instant, in cost units.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Seen {
    /// Work in the queue.
    pub(super) queued: f64,
    /// Work that left it for the origin since it was last looked at.
    pub(super) forwarded: f64,
    /// The seconds in which it did.
    pub(super) over_s: f64,
    /// The origin could have taken more: less than the limit in flight.
    pub(super) is_starved: bool,
}

/// What the law goes by at a tick, besides its own state. Rates in cost units per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Going {
    /// Where to start from.
    pub(super) outflow: f64,
    /// What comes past the schedule.
    pub(super) aside: f64,
    /// An average visitor, in cost units.
    pub(super) grain: f64,
    /// Most work the queue may hold.
    pub(super) most_queued: f64,
    /// Share of the promised work that comes.
    pub(super) show_up: f64,
}

/// The state of the law.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// `F`.
    flow: f64,
    /// `k`.
    correction: f64,
    /// `Q`, reckoned on from when it was last seen.
    queued: f64,
    /// `P`.
    coming: f64,
    /// Nobody is called: the queue is too long, which says nothing of `k`.
    has_stopped: bool,
    /// Some of those called were asked to come again: it is not for want of calling if the origin could take more.
    is_crowded: bool,
    /// Fewer are called than this law would have: the queue says nothing of it.
    is_overruled: bool,
}

impl Window {
    pub(super) fn new() -> Self {
        Self {
            flow: 0.0,
            correction: 1.0,
            queued: 0.0,
            coming: 0.0,
            has_stopped: false,
            is_crowded: false,
            is_overruled: false,
        }
    }

    /// Nobody waits, or another law governs: nothing is known for the next crowd.
    pub(super) fn rest(&mut self, outflow: Rate) {
        self.flow = outflow.get();
        self.correction = 1.0;
    }

    /// Lets `dt_s` pass: who was called comes, and the origin takes.
    pub(super) fn pass(&mut self, dt_s: f64) {
        let stay = (-dt_s / ON_THE_WAY_S).exp();
        let came = self.coming * (1.0 - stay);
        self.coming -= came;
        self.queued = (self.queued + came - self.flow * dt_s).max(0.0);
    }

    /// The gate has been looked at.
    pub(super) fn see(&mut self, seen: &Seen, going: &Going) {
        self.queued = seen.queued;
        if seen.over_s <= 0.0 {
            if self.flow == 0.0 {
                // The first look of all: a crowd that is there before it.
                self.flow = going.outflow;
            }
            return;
        }
        let left = seen.forwarded / seen.over_s;
        let goal = if seen.is_starved { left.max(self.flow).max(going.outflow) } else { left };
        self.flow += (goal - self.flow) * (1.0 - (-seen.over_s / FLOW_MEMORY_S).exp());
        let rate = if self.is_overruled {
            0.0
        } else if seen.is_starved && !self.is_crowded {
            CORRECTION_STARVED
        } else if self.has_stopped {
            0.0
        } else {
            let target = target(self.flow, going.grain, going.most_queued);
            CORRECTION * ((target - self.queued) / target).clamp(-3.0, 1.0)
        };
        let (least, most) = (*CORRECTION_RANGE.start(), *CORRECTION_RANGE.end());
        self.correction = (self.correction * (rate * seen.over_s).exp()).clamp(least, most);
    }

    /// Promised work to call per second.
    pub(super) fn pace(&mut self, going: &Going) -> f64 {
        let own = (self.correction * self.flow - going.aside).max(0.0);
        let missing = target(self.flow, going.grain, going.most_queued) - self.queued;
        let pace = own + (missing + own * ON_THE_WAY_S - self.coming) / SETTLE_S;
        let most = MAX_PACE * self.flow.max(going.outflow);
        self.has_stopped = pace <= 0.0;
        pace.min(most).max(0.0) / going.show_up
    }

    /// So much came, and was asked to come again in a second: it is on its way once more, for longer than `T`.
    pub(super) fn sent_away(&mut self, work: f64) {
        self.coming += work * AGAIN_S / ON_THE_WAY_S;
        self.is_crowded = work > 0.0;
    }

    /// Places of sessions decide who is called, or not.
    pub(super) fn go_by_places(&mut self, overruled: bool) {
        self.is_overruled = overruled;
    }

    /// So much of the promised work has been called.
    pub(super) fn called(&mut self, work: f64, going: &Going) {
        self.coming += work * going.show_up;
    }
}

/// Queue aimed at, in cost units, of a gate that passes `flow` a second.
pub(crate) fn target(flow: f64, grain: f64, most_queued: f64) -> f64 {
    let wanted = TARGET_S * flow + (REACTION_S * flow * grain).sqrt() + grain / 2.0;
    // A queue of no places holds nothing: not even then divide by nothing.
    wanted.min(most_queued / 4.0).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_that_was_there_before_the_first_look_is_called_at_the_outflow() {
        let going = Going { outflow: 1_000.0, aside: 0.0, grain: 1.0, most_queued: f64::MAX, show_up: 1.0 };
        let seen = Seen { is_starved: true, ..Seen::default() };
        let mut window = Window::new();
        window.see(&seen, &going);
        assert!(window.pace(&going) >= 1_000.0);
        // Later looks go by what was seen.
        let known = window.flow;
        window.see(&seen, &Going { outflow: 9_000.0, ..going });
        assert_eq!(window.flow, known);
    }
}
