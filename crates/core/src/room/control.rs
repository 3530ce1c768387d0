//! The room's control side: the tick, which moves the virtual clock and publishes what requests read.
//!
//! One thread ticks, others may report or reconfigure, all under the room's one lock, which no request takes.

use std::time::Duration;

use super::Room;
use super::bypass::BypassMeter;
use super::judging::Judging;
use super::mean_cost::MeanCostMeter;
use super::origin_load::ORIGIN_GONE;
use super::queue_pacer::{IN_TRANSIT_S, PacingInputs, QueuePacer};
use super::report::{ControlUpdate, Feedback};
use super::schedule::Density;
use super::session_pacing::SessionPacer;
use super::settings::{RoomConfig, SLACK_S};
use super::show_up::{ShowUp, ShowUps};
use super::spare_time::SpareTime;
use super::tokenchecks::{MAX_BOOKED, Tokenchecks};
use super::types::RoomTargets;
use crate::decaying::DecayingRatio;
use crate::gate::Totals;
use crate::mutants::{self, Mutant};
use crate::origin_flow::Sent;
use crate::session::{ExpectedSessions, SessionPace};
use crate::units::{Cost, Rate, Timestamp};
use crate::virtual_clock::{Advance, VirtualTime, pace};

/// Until so long before tokencheck's last report it is known who came.
const REPORTED_AFTER_S: u64 = 1;

/// The capacity is searched for where more than this multiple of it is let in: a cruise asks for up to 1.3.
const SEARCHING: f64 = 1.5;

/// What only the control side knows. Methods that take the room are called with its lock held.
pub(super) struct RoomControl {
    last_tick: Timestamp,
    pub(super) targets: RoomTargets,
    pub(super) density: Density,
    pub(super) show_ups: ShowUps,
    mean_cost: MeanCostMeter,
    pub(super) bypass: BypassMeter,
    /// Idle time of the virtual backlog. Work that tokencheck has not reported yet looks like it.
    spare: SpareTime,
    queue_pacer: QueuePacer,
    /// Most work the gate's queue may hold, in cost units.
    max_queued: f64,
    is_origin_gone: bool,
    /// The capacity when tokencheck last reported.
    reported_capacity: Rate,
    session_pacer: SessionPacer,
    judging: Judging,
    pub(super) tokenchecks: Tokenchecks,
}

/// What session slots leave to admit, in hundredths.
#[derive(Clone, Copy)]
struct SessionLimit {
    work: f64,
    /// Mean over the visitors who wait.
    mean_cost: f64,
}

impl RoomControl {
    pub(super) fn new(config: &RoomConfig, capacity: Rate, now: Timestamp) -> Self {
        Self {
            last_tick: now,
            targets: capacity.into(),
            density: Density::new(config),
            show_ups: ShowUps::default(),
            mean_cost: MeanCostMeter::default(),
            bypass: BypassMeter::default(),
            spare: SpareTime::default(),
            queue_pacer: QueuePacer::new(),
            max_queued: f64::MAX,
            is_origin_gone: false,
            reported_capacity: Rate::ZERO,
            session_pacer: SessionPacer::default(),
            judging: Judging::default(),
            tokenchecks: Tokenchecks::default(),
        }
    }

    /// The tick, with the gate; in the two-process form, with the tokenchecks' gates.
    pub(super) fn tick(&mut self, room: &Room, gate: &Totals, is_origin_usable: bool, now: Timestamp) {
        let load = &room.tickets.load;
        let news = if room.link.has_tokencheck() {
            let is_known = self.tokenchecks.has_recent_report(now);
            self.is_origin_gone = is_known && self.tokenchecks.is_origin_gone();
            let news = self.tokenchecks.take_news().map(|gate| (gate, load.observe(&gate, now)));
            load.set_queued(if is_known { self.tokenchecks.queued } else { Cost::ZERO });
            self.discount_sessions(load.capacity(), is_known);
            news
        } else {
            self.is_origin_gone = !is_origin_usable;
            Some((*gate, load.observe(gate, now)))
        };
        if self.is_origin_gone {
            load.set_queued(ORIGIN_GONE);
        }
        self.step(room, news.as_ref(), now);
    }

    /// While no reports come, sessions are expected to ask for less, by as much as the assumed capacity fell.
    fn discount_sessions(&mut self, capacity: Rate, is_known: bool) {
        if is_known {
            self.reported_capacity = capacity;
        }
        let reported = self.reported_capacity;
        self.bypass.silence_discount =
            if capacity < reported { capacity.get() / reported.get() } else { 1.0 };
    }

    /// The tick, without more of the gate than the work that waits there.
    pub(super) fn tick_queued(&mut self, room: &Room, queued: Cost, now: Timestamp) {
        room.tickets.load.set_queued(queued.max(self.tokenchecks.queued));
        self.step(room, None, now);
    }

    /// What a tick does once the gate was observed, if it was: the gate, and what it has sent.
    pub(super) fn step(&mut self, room: &Room, news: Option<&(Totals, Sent)>, now: Timestamp) {
        let (tickets, load) = (&room.tickets, &room.tickets.load);
        let dt_s = now.since(self.last_tick).as_secs_f64();
        let last_tick = self.last_tick;
        self.last_tick = last_tick.max(now);
        let ceiling = load.ceiling();
        if ceiling > Rate::ZERO {
            let burst_s = room.settings.burst(ceiling).as_secs_f64();
            self.spare.forgotten(load.backlog.forget_spare(now, burst_s), ceiling);
        }
        self.max_queued = news.map_or(self.max_queued, |(gate, _)| load.queue_bound(gate));
        self.mean_cost.tick(&load.mean_cost, dt_s);
        self.bypass.tick(&room.bypass, dt_s);
        self.follow_newcomers(room, now);
        self.update_queue_pacer(room, news, now, dt_s);
        self.session_pacer.pass(dt_s, room.session_slots.take_unserved());
        self.advance_clock(room, last_tick, now, dt_s);
        let (clock_at, capacity) = (tickets.clock.at(now), load.capacity());
        if capacity > Rate::ZERO {
            room.schedule.forget_floor(self.density.limit(capacity), clock_at, now);
        }
        tickets.lateness.follow(clock_at, now, dt_s);
        room.attendance.presence.tick(clock_at + tickets.lateness.tolerance.load(), now);
        self.judge_no_shows(room, now, dt_s);
        if load.has_queue() {
            room.attendance.in_transit.store(self.queue_pacer.asked_again());
        } else {
            let slot = room.schedule.slots.work_of(clock_at.second());
            room.attendance.update_in_transit(clock_at, slot);
        }
        let oldest = tickets.forget_old(now);
        room.schedule.slots.forget_before(oldest.saturating_sub(SLACK_S / 2));
    }

    fn update_queue_pacer(&mut self, room: &Room, news: Option<&(Totals, Sent)>, now: Timestamp, dt_s: f64) {
        self.queue_pacer.pass(dt_s);
        self.queue_pacer.deferred(room.tickets.deferred.take().units());
        let is_waited = room.busy(now);
        if let Some((gate, sent)) = news {
            if self.bypass.expected.is_some() {
                self.queue_pacer.see_queue(gate);
            }
            if is_waited && !self.is_origin_gone {
                let inputs = self.pacing_inputs(room);
                self.queue_pacer.observe(gate, sent, &inputs);
            }
        }
        if !is_waited {
            self.queue_pacer.reset(room.bypass.entering_of(self.outflow()));
        }
    }

    /// Visitors in transit.
    pub(super) fn coming(&self, room: &Room) -> u32 {
        // The cast saturates.
        (self.queue_pacer.in_transit() / room.tickets.load.mean_cost().units()) as u32
    }

    /// The rate to start from. While the capacity is searched for, the outflow is a multiple of it, and a
    /// queue that grows too long ends the attempt. Visitors of sessions come back after that.
    fn outflow(&self) -> Rate {
        let RoomTargets { outflow, capacity, .. } = self.targets;
        if self.bypass.expected.is_some() && capacity < outflow { capacity } else { outflow }
    }

    /// Visitors who were admitted and are not here yet count as the sessions that they will begin: pages may
    /// ask seconds after their turn.
    fn pacing_inputs(&self, room: &Room) -> PacingInputs {
        let in_transit = self.queue_pacer.in_transit();
        let coming = |expected: &ExpectedSessions| expected.growth_per_s(in_transit, IN_TRANSIT_S);
        let coming_per_s = self.bypass.expected.as_ref().map_or(0.0, coming);
        let first_page_ratio = room.bypass.first_page_ratio();
        PacingInputs {
            outflow: room.bypass.entering_of(self.outflow()),
            bypass: room.bypass.ordinary_per_s() + coming_per_s / first_page_ratio,
            sessions: room.bypass.of_sessions_per_s(),
            first_page_ratio,
            is_searching: self.targets.outflow.get() > SEARCHING * self.targets.capacity.get(),
            mean_cost: room.tickets.load.mean_cost().units(),
            max_queued: self.max_queued,
            show_up: room.attendance.show_up.load(),
        }
    }

    /// Moves the virtual clock over as much promised work as may be admitted in `dt_s`.
    fn advance_clock(&mut self, room: &Room, last_tick: Timestamp, now: Timestamp, dt_s: f64) {
        let (clock, capacity) = (&room.tickets.clock, room.tickets.load.capacity());
        let from = clock.at(last_tick.min(now));
        if capacity >= Rate::MAX && !self.session_pacer.is_counted() {
            clock.set(VirtualTime { at: from.max(now), follows_clock: true });
            return;
        }
        let pace = self.pace(room, now);
        let last_due = room.schedule.last_due();
        let (wanted, show_up) = (pace * 100.0 * dt_s, room.attendance.show_up.load());
        let sessions = self.session_pacer.max_visitors(show_up).map(|visitors| {
            let mean_cost = room.attendance.mean_cost_waiting(from, last_due);
            SessionLimit { work: visitors * mean_cost, mean_cost }
        });
        let is_limited = sessions.is_some_and(|sessions| sessions.work < wanted);
        self.queue_pacer.is_overruled |= is_limited;
        room.session_slots.set_limiting(is_limited);
        let work = sessions.map_or(wanted, |sessions| wanted.min(sessions.work));
        // Beyond the ring nothing is known: a wall clock that jumped is followed.
        let until = last_due.max(now);
        let known = until.saturating_sub(Duration::from_secs(room.schedule.slots.seconds()));
        let Advance { at, left } = room.schedule.advance(from.max(known.min(now)), until, work);
        // Not behind where requests have seen it since the last tick while it followed the wall clock.
        let at = at.max(clock.at(now));
        let inputs = self.pacing_inputs(room);
        self.queue_pacer.admitted((work - left) / 100.0, &inputs);
        if let Some(SessionLimit { mean_cost, .. }) = sessions {
            self.session_pacer.admitted((work - left) / mean_cost, show_up);
        }
        room.session_slots.publish(&self.session_pacer);
        clock.set(VirtualTime { at, follows_clock: at >= last_due && pace > 0.0 && capacity > Rate::ZERO });
    }

    /// Promised work to admit per second: what the gate's queue needs, and at most what the ceiling allows.
    fn pace(&mut self, room: &Room, now: Timestamp) -> f64 {
        let load = &room.tickets.load;
        if self.is_origin_gone || load.capacity() == Rate::ZERO {
            return 0.0;
        }
        let most = ceiling_pace(room, now);
        if most.is_finite() && !load.has_queue() {
            self.queue_pacer.is_overruled = true;
            return most;
        }
        let inputs = self.pacing_inputs(room);
        let pace = self.queue_pacer.pace(&inputs);
        self.queue_pacer.is_overruled = most < pace;
        pace.min(most)
    }

    fn judge_no_shows(&mut self, room: &Room, now: Timestamp, dt_s: f64) {
        self.show_ups.pass(dt_s);
        let passed = self.judging.until(room.tickets.clock.at(now), now, room.bypass.is_foreseen());
        // Not before tokencheck has reported who came: lost reports are no no-shows.
        let last_report = self.tokenchecks.last_report;
        let reported = last_report.map_or(u64::MAX, |at| at.second().saturating_sub(REPORTED_AFTER_S));
        let capacity = self.density.of_newcomers(room.tickets.load.capacity());
        room.attendance.judge(passed.min(reported), &mut self.show_ups, capacity);
        self.publish_show_up(room);
    }

    fn publish_show_up(&mut self, room: &Room) {
        let load = &room.tickets.load;
        let capacity = self.density.of_newcomers(load.capacity());
        room.attendance.publish(&self.show_ups, capacity, load.mean_cost());
        room.schedule.overbook(&mut self.density, room.attendance.show_up.load(), load.capacity());
    }

    pub(super) fn set_targets(&mut self, room: &Room, targets: &RoomTargets, now: Timestamp) {
        let before = self.targets;
        if *targets == before {
            return;
        }
        let is_ceiling_new = targets.ceiling != before.ceiling;
        if is_ceiling_new {
            // The old one applies until now.
            self.step(room, None, now);
        }
        self.targets = *targets;
        room.tickets.load.set_targets(targets, now);
        let capacity = targets.capacity;
        if capacity > Rate::ZERO && (is_ceiling_new || !room.schedule.is_near(&self.density, capacity)) {
            self.fit_schedule(room, now);
        }
    }

    /// Makes the schedule anew where newcomers get another part of the capacity than it was made for. While
    /// nobody waits a second holds all of the capacity, so that a burst the origin can take enters at once.
    fn follow_newcomers(&mut self, room: &Room, now: Timestamp) {
        let capacity = room.tickets.load.capacity();
        let is_waited = room.busy(now);
        self.density.newcomers_part = if is_waited { room.bypass.newcomers_part(capacity) } else { 1.0 };
        if capacity > Rate::ZERO && !room.schedule.is_near(&self.density, capacity) {
            self.fit_schedule(room, now);
        }
    }

    fn fit_schedule(&self, room: &Room, now: Timestamp) {
        let clock_at = room.tickets.clock.at(now);
        room.schedule.fit(&self.density, room.tickets.load.capacity(), clock_at, now);
    }

    pub(super) fn set_session_pace(&mut self, room: &Room, pace: Option<SessionPace>) {
        self.session_pacer.set_pace(pace);
        let is_counted = self.session_pacer.is_counted();
        let changes = is_counted != room.session_slots.are_counted();
        room.tickets.set_keeps_order(is_counted);
        room.session_slots.publish(&self.session_pacer);
        self.density.is_order_only = is_counted;
        let capacity = room.tickets.load.capacity();
        if !changes || capacity == Rate::ZERO {
            return;
        }
        let now = self.last_tick;
        // The work of those who wait for an origin, over many seconds, must not be scaled.
        let all_due_now = room.schedule.last_due() <= now + Duration::from_secs(1);
        if is_counted && all_due_now && capacity >= Rate::MAX {
            room.schedule.become_order(self.density.limit(capacity), room.tickets.clock.at(now));
        } else {
            self.fit_schedule(room, now);
        }
    }

    /// New settings, which the parts of the room have already.
    pub(super) fn configure(&mut self, room: &Room, config: &RoomConfig) {
        self.density.configure(config);
        self.publish_show_up(room);
    }

    pub(super) fn restore(&mut self, room: &Room, show_up: DecayingRatio) {
        if let Some(show_up) = ShowUp::restore(show_up) {
            // Nobody has been heard of yet: all who wait are silent.
            self.show_ups = ShowUps { of_all: show_up, of_silent: show_up };
        }
        self.publish_show_up(room);
    }

    pub(super) fn take_report(&mut self, room: &Room, report: &Feedback) -> ControlUpdate {
        let now = self.last_tick;
        self.tokenchecks.take_report(report, now);
        let sessions = self.tokenchecks.sessions();
        self.set_session_pace(room, sessions);
        self.bypass.expected = self.tokenchecks.expected();
        let (backlog, ceiling) = (&room.tickets.load.backlog, room.tickets.load.ceiling());
        let booked = self.spare.book(report.admitted, report.over, ceiling);
        backlog.add(booked.min(ceiling.over(MAX_BOOKED)), ceiling);
        backlog.bound(now, MAX_BOOKED);
        self.update(room)
    }

    pub(super) fn update(&self, room: &Room) -> ControlUpdate {
        ControlUpdate {
            capacity: room.capacity(),
            clock: room.tickets.clock.value(),
            max_in_flight: self.tokenchecks.limit_of_each(),
            ceiling: self.targets.ceiling,
            is_waited: room.busy(self.last_tick),
            is_measured: !self.tokenchecks.is_estimate_initial,
        }
    }
}

/// Promised work per second that the ceiling allows. Bypass traffic is subtracted: left to the gain alone, it
/// would become a backlog of a second and more.
fn ceiling_pace(room: &Room, now: Timestamp) -> f64 {
    let load = &room.tickets.load;
    if load.ceiling() >= Rate::MAX {
        return f64::INFINITY;
    }
    if mutants::is(Mutant::ClockRunsAhead) {
        return load.ceiling().get() * 1.3 / room.attendance.show_up.load();
    }
    let left = room.bypass.left_of(load.ceiling());
    left * pace(load.backlog_s(now), load.mean_cost_s()) / room.attendance.show_up.load()
}
