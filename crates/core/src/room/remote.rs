//! Tokengen's half of the two-process form: takes in what the tokenchecks saw, and tells them what to go by.
//!
//! **Several tokenchecks** may report to one tokengen, each with a number of its own. Their gates count as one: queues and
//! requests in flight are added up, and each may have its equal part of the in-flight limit, as a balancer that sends all of
//! them as much makes right. A sample tells how many were at the origin by way of one of them; together there were as many times
//! more. Rejected: parts by demand. They would have to be leased, since who is given less must know before another is given more.

use std::time::Duration;

use super::Room;
use super::control::Control;
use super::door::ORIGIN_GONE;
use super::report::{Feedback, MAX_REPORTED_SAMPLES, Orders, REPORT_EVERY, gather};
use crate::capacity::Sample;
use crate::gate::Totals;
use crate::ring::MAX_COST;
use crate::session::SessionPace;
use crate::sync::Ordering;
use crate::units::{Cost, Rate, Timestamp};

/// Most work booked from reports, as time at capacity: what comes from a wire is not believed without end.
const MOST_BOOKED: Duration = Duration::from_secs(3_600);
/// Slot seconds taken in from one report.
const MAX_SHOWN: usize = 4_096;
/// Who has not reported for so long is not counted any more: three reports and a little.
pub(super) const SILENT: Duration = Duration::from_secs(2);
/// Tokenchecks told apart. Further ones are taken for the last.
const MAX_SENDERS: usize = 64;

/// One tokencheck.
#[derive(Clone, Copy, Debug)]
struct Sender {
    from: u64,
    heard: Timestamp,
    gate: Totals,
    is_origin_gone: bool,
    sessions: Option<SessionPace>,
}

/// What the tokenchecks have told, until the next tick takes it.
#[derive(Clone, Default, Debug)]
pub(super) struct Link {
    senders: Vec<Sender>,
    samples: Vec<Sample>,
    /// Work that all of them have forwarded since they were heard of.
    forwarded: Cost,
    /// There was a report since the last tick.
    is_news: bool,
    /// When a report last told of a gate.
    heard: Option<Timestamp>,
    /// When the first one was missed that did.
    missed: Option<Timestamp>,
    /// The in-flight limit of all.
    pub(super) max_in_flight: Option<u32>,
    /// The capacity is a guess.
    is_guess: bool,
}

impl Link {
    /// A report, at `now` by this process's clock.
    fn hear(&mut self, feedback: &Feedback, now: Timestamp) {
        let Some(gate) = feedback.gate else { return };
        self.heard = Some(now);
        self.is_news = true;
        self.senders.retain(|sender| now.since(sender.heard) <= SILENT || sender.from == feedback.from);
        let Feedback { from, is_origin_gone, sessions, .. } = *feedback;
        let new = Sender { from, heard: now, gate, is_origin_gone, sessions };
        let last = self.senders.len() == MAX_SENDERS;
        match self.senders.iter_mut().find(|sender| sender.from == from) {
            Some(known) => {
                // A process that was started anew counts from nothing.
                let more = gate.forwarded_cost.saturating_sub(known.gate.forwarded_cost);
                self.forwarded += more.min(Rate::MAX.over(MOST_BOOKED));
                *known = new;
            }
            None if last => {}
            None => self.senders.push(new),
        }
        let share = self.senders.len().max(1) as u32;
        for sample in feedback.samples.iter().take(MAX_REPORTED_SAMPLES) {
            let age = feedback.at.since(sample.ended);
            let in_flight = sample.in_flight.saturating_mul(share);
            gather(&mut self.samples, &Sample { ended: now.saturating_sub(age), in_flight, ..*sample });
        }
    }

    /// All gates as one.
    fn gate(&self) -> Totals {
        let mut sum = Totals { limit: Some(0), forwarded_cost: self.forwarded, ..Totals::default() };
        for Sender { gate, .. } in &self.senders {
            sum.queued = sum.queued.saturating_add(gate.queued);
            sum.queued_cost += gate.queued_cost;
            sum.in_flight = sum.in_flight.saturating_add(gate.in_flight);
            sum.limit = sum.limit.zip(gate.limit).map(|(a, b)| a.saturating_add(b));
            sum.max_queue = sum.max_queue.saturating_add(gate.max_queue);
            sum.max_queue_wait = sum.max_queue_wait.max(gate.max_queue_wait);
        }
        sum
    }

    /// Their places as one; `None`: one of them at least takes in as many as come.
    fn sessions(&self) -> Option<SessionPace> {
        let (first, more) = self.senders.split_first()?;
        more.iter().try_fold(first.sessions?, |sum, sender| {
            let SessionPace { free, per_s, next_s } = sender.sessions?;
            let free = sum.free.zip(free).map(|(a, b)| a.saturating_add(b));
            Some(SessionPace { free, per_s: sum.per_s + per_s, next_s: sum.next_s.min(next_s) })
        })
    }

    /// Whether none of them has anybody to send anyone to.
    pub(super) fn is_origin_gone(&self) -> bool {
        !self.senders.is_empty() && self.senders.iter().all(|sender| sender.is_origin_gone)
    }

    /// The gates, if there is news of them.
    pub(super) fn news(&mut self) -> Option<Totals> {
        std::mem::take(&mut self.is_news).then(|| self.gate())
    }
}

/// What a tokengen knows of the origin.
#[derive(Clone, Debug)]
pub enum Reported {
    /// This process forwards by itself, as far as it knows.
    Here,
    /// Tokencheck's gate, or all of them as one, and what ended there since the last call.
    Heard(Totals, Vec<Sample>),
    /// Nothing has been heard for so long.
    Silent(Duration),
}

impl Room {
    /// This process is a tokengen: it sends visitors on, and sees nothing of the origin but what it is told.
    pub(crate) fn sends_on(&self) {
        if self.sends.load(Ordering::Relaxed) == 0 {
            self.sends.store(1, Ordering::Relaxed);
        }
    }

    /// Takes in what a tokencheck has seen and tells it what to go by. From the first report on, admitted work is
    /// what tokencheck reports, not whom this room sent on; of a report late in coming, what the origin has not done since.
    pub fn feedback(&self, feedback: &Feedback) -> Orders {
        self.remote.store(1, Ordering::Relaxed);
        let drain = self.door.drain();
        let mut control = self.control();
        control.hear();
        let now = control.last_tick;
        control.link.hear(feedback, now);
        let several = control.link.senders.len() > 1;
        let queued = if several { control.link.gate().queued_cost } else { feedback.queued };
        let queued = queued.min(ORIGIN_GONE);
        let sessions = control.link.sessions();
        self.go_by_places(&mut control, sessions);
        let booked = control.spare.book(feedback.admitted, feedback.over, REPORT_EVERY, drain);
        let orders = self.orders_of(&control);
        drop(control);
        self.door.backlog.add(booked.min(drain.over(MOST_BOOKED)), drain);
        self.door.backlog.ceil(now, MOST_BOOKED);
        self.queued_remote.store(queued.hundredths(), Ordering::Relaxed);
        for &(second, cost) in feedback.shown.iter().take(MAX_SHOWN) {
            // A second of another lap would take its cell from those of this one.
            if self.slots.covers(second) {
                self.show(second, cost.min(Cost::from_hundredths(MAX_COST)));
            }
        }
        orders
    }

    /// What tokencheck is to go by.
    pub fn orders(&self) -> Orders {
        self.orders_of(&self.control())
    }

    fn orders_of(&self, control: &Control) -> Orders {
        let link = &control.link;
        let parts = link.senders.len().max(1) as u32;
        let max_in_flight = link.max_in_flight.map(|limit| limit.div_ceil(parts).max(1).min(limit));
        Orders {
            capacity: self.capacity(),
            hand: self.door.hand.value(),
            max_in_flight,
            keeps_queue: control.course.keeps_queue,
            ceiling: control.course.ceiling,
            is_waited: self.busy(control.last_tick),
            is_measured: !link.is_guess,
        }
    }

    /// The in-flight limit that tokencheck is ordered to keep, and whether the capacity is no guess.
    pub fn order_limit(&self, max_in_flight: Option<u32>, is_measured: bool) {
        let link = &mut self.control().link;
        (link.max_in_flight, link.is_guess) = (max_in_flight, !is_measured);
    }

    /// What is known of the origin at `now`.
    pub fn reported(&self, now: Timestamp) -> Reported {
        let link = &mut self.control().link;
        match link.heard {
            None if self.remote.load(Ordering::Relaxed) == 0 && self.sends.load(Ordering::Relaxed) == 0 => {
                Reported::Here
            }
            Some(heard) if now.since(heard) <= SILENT => {
                let mut samples = std::mem::take(&mut link.samples);
                samples.sort_by_key(|sample| sample.ended);
                Reported::Heard(link.gate(), samples)
            }
            heard => {
                // Of a version that tells nothing of its gate, or not there yet.
                let since = *link.missed.get_or_insert(heard.unwrap_or(now));
                Reported::Silent(now.since(heard.unwrap_or(since)).max(Duration::from_millis(1)))
            }
        }
    }
}
