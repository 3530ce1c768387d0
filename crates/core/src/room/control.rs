//! The room's control side: the tick that moves the hand, changes of capacity and settings.

use std::time::Duration;

use super::door::ORIGIN_GONE;
use super::remote::{Link, SILENT};
use super::seats::Calls;
use super::window::{Going, Seen, Window};
use super::{Course, NeedsNewRoom, Room, RoomConfig, SLACK_S, seconds_needed};
use crate::gate::Totals;
use crate::hand::{HandValue, Spare, advance, pace};
use crate::show_up::ShowUp;
use crate::sync::Ordering;
use crate::units::{Cost, Rate, Timestamp};

/// A second is judged for no-shows this long after the hand has passed it: pages wake up and connect.
const JUDGE_AFTER_S: u64 = 2;
/// Overbooking is changed in steps: every change leaves a seam of one second in the schedule.
const OVERBOOK_STEP: f64 = 0.02;
/// Memory of the average visitor, in seconds.
const GRAIN_MEMORY_S: f64 = 10.0;
/// Memory of the work admitted past the schedule, in seconds: sessions come and go over minutes.
const ASIDE_MEMORY_S: f64 = 10.0;

/// What only the control side knows.
pub(super) struct Control {
    pub(super) config: RoomConfig,
    pub(super) last_tick: Timestamp,
    pub(super) show_up: ShowUp,
    pub(super) overbook: f64,
    /// Sums at the last tick, and their decaying averages.
    sums: (u64, u64),
    recent: (f64, f64),
    /// The same of the work admitted past the schedule.
    aside: u64,
    recent_aside: f64,
    /// The seconds it stands for.
    aside_over_s: f64,
    /// What tokencheck has not reported yet cannot be told from spare time.
    pub(super) spare: Spare,
    /// When tokencheck last reported.
    heard: Option<Timestamp>,
    pub(super) course: Course,
    pub(super) link: Link,
    pub(super) window: Window,
    /// Work forwarded until the gate was last looked at, when that was, and what was seen there if it is news.
    forwarded: Option<(Cost, Timestamp)>,
    seen: Option<Seen>,
    /// Most work its queue may hold, in cost units.
    most_queued: f64,
    /// There is no replica to go to.
    is_origin_gone: bool,
    /// Places of sessions.
    pub(super) calls: Calls,
}

impl Control {
    pub(super) fn new(config: RoomConfig, capacity: Rate, now: Timestamp) -> Self {
        Self {
            config,
            last_tick: now,
            show_up: ShowUp::default(),
            overbook: 1.0,
            sums: (0, 0),
            recent: (0.0, 0.0),
            aside: 0,
            recent_aside: 0.0,
            aside_over_s: 0.0,
            spare: Spare::default(),
            heard: None,
            course: capacity.into(),
            link: Link::default(),
            window: Window::new(),
            forwarded: None,
            seen: None,
            most_queued: f64::MAX,
            is_origin_gone: false,
            calls: Calls::default(),
        }
    }

    /// Tokencheck has reported, by the clock of the last tick.
    pub(super) fn hear(&mut self) {
        self.heard = Some(self.last_tick);
    }
}

impl Room {
    /// The control tick, every 100 ms or so: moves the hand, learns, forgets. `queued`: admitted work that waits
    /// for the origin. Enough where the outflow governs; where a queue is kept: [`Room::tick_with`].
    pub fn tick(&self, now: Timestamp, queued: Cost) {
        let remote = Cost::from_hundredths(self.queued_remote.load(Ordering::Relaxed));
        self.door.set_queued(queued.max(remote));
        let control = &mut *self.control();
        self.step(control, now);
    }

    /// The same with the whole gate in view. With no origin to go to the schedule stands still.
    pub fn tick_with(&self, gate: &Totals, is_origin_usable: bool, now: Timestamp) {
        let control = &mut *self.control();
        // In the two-process form this one forwards nothing: what tokencheck told of its gate is in force.
        if self.remote.load(Ordering::Relaxed) == 0 {
            control.is_origin_gone = !is_origin_usable;
            self.look_at(control, gate, now);
        } else {
            // What was told too long ago is not known any more.
            let is_told = control.heard.is_some_and(|at| now.since(at) <= SILENT);
            control.is_origin_gone = is_told && control.link.is_origin_gone();
            match control.link.news() {
                Some(gate) => self.look_at(control, &gate, now),
                None => control.seen = None,
            }
            let queued = if is_told { self.queued_remote.load(Ordering::Relaxed) } else { 0 };
            self.door.set_queued(Cost::from_hundredths(queued));
        }
        if control.is_origin_gone {
            self.door.set_queued(ORIGIN_GONE);
        }
        self.step(control, now);
    }

    fn look_at(&self, control: &mut Control, gate: &Totals, now: Timestamp) {
        self.door.see(gate, now);
        control.most_queued = self.door.most_queued(gate);
        let last = control.forwarded.replace((gate.forwarded_cost, now));
        let (before, at) = last.unwrap_or((gate.forwarded_cost, now));
        control.seen = Some(Seen {
            queued: gate.backlog_cost().units(),
            forwarded: gate.forwarded_cost.saturating_sub(before).units(),
            over_s: now.since(at).as_secs_f64(),
            // Whom only their class's own limits hold would not be helped by more.
            is_starved: gate.has_room() && gate.held == 0,
        });
    }

    fn step(&self, control: &mut Control, now: Timestamp) {
        let dt_s = now.since(control.last_tick).as_secs_f64();
        let before = control.last_tick;
        control.last_tick = before.max(now);
        let drain = self.door.drain();
        if drain > Rate::ZERO {
            let forgotten_s = self.door.backlog.floor(now, self.burst(drain).as_secs_f64());
            control.spare.forgot(forgotten_s, drain);
        }
        self.learn_grain(control, dt_s);
        self.learn_aside(control, dt_s);
        control.window.pass(dt_s);
        control.window.sent_away(self.door.take_sent_away().units());
        self.learn_window(control, now);
        control.calls.pass(dt_s, self.seats.take_away());
        self.move_hand(control, before, now, dt_s);
        self.forget_floor(control, now);
        self.door.follow_hand(now, dt_s);
        self.learn_show_up(control, now, dt_s);
        self.count_called(control.course.keeps_queue, now);
        let oldest = self.door.oldest_valid(now);
        self.door.redeemed.forget_before(oldest);
        self.slots.forget_before(oldest.saturating_sub(SLACK_S / 2));
    }

    /// What the window law learns from the gate.
    fn learn_window(&self, control: &mut Control, now: Timestamp) {
        let seen = control.seen.take();
        if !self.busy(now) {
            control.window.rest(control.course.outflow);
        } else if let Some(seen) = seen.filter(|_| !control.is_origin_gone) {
            control.window.see(&seen, &self.going(control));
        }
    }

    fn going(&self, control: &Control) -> Going {
        Going {
            outflow: control.course.outflow.get(),
            aside: f64::from_bits(self.aside_per_s.load(Ordering::Relaxed)),
            grain: self.door.grain().units(),
            most_queued: control.most_queued,
            show_up: self.show_up(),
        }
    }

    fn learn_grain(&self, control: &mut Control, dt_s: f64) {
        let sums = self.door.sums();
        let keep = (-dt_s / GRAIN_MEMORY_S).exp();
        control.recent.0 = control.recent.0 * keep + sums.0.wrapping_sub(control.sums.0) as f64;
        control.recent.1 = control.recent.1 * keep + sums.1.wrapping_sub(control.sums.1) as f64;
        control.sums = sums;
        if control.recent.0 >= 1.0 {
            let grain = (control.recent.1 / control.recent.0).round() as u64;
            self.door.set_grain(Cost::from_hundredths(grain).clamp(Cost::MIN, Cost::MAX));
        }
    }

    /// A decaying sum of work over the equally decaying sum of time is a rate, from the first tick on.
    fn learn_aside(&self, control: &mut Control, dt_s: f64) {
        let aside = self.aside.load(Ordering::Relaxed);
        let new = aside.wrapping_sub(control.aside) as f64 / 100.0;
        control.aside = aside;
        let keep = (-dt_s / ASIDE_MEMORY_S).exp();
        control.recent_aside = control.recent_aside * keep + new;
        control.aside_over_s = control.aside_over_s * keep + dt_s;
        // Not over less than a second: two requests in the first tick are no rate.
        let per_s = control.recent_aside / control.aside_over_s.max(1.0);
        self.aside_per_s.store(per_s.to_bits(), Ordering::Relaxed);
    }

    fn move_hand(&self, control: &mut Control, before: Timestamp, now: Timestamp, dt_s: f64) {
        let capacity = self.door.capacity();
        let last = self.last_due();
        let until = last.max(now);
        let from = self.door.hand.at(before.min(now));
        if capacity >= Rate::MAX && !control.calls.counts() {
            self.door.hand.set(HandValue { at: from.max(now), follows_clock: true });
            return;
        }
        let pace = if control.course.keeps_queue { self.by_queue(control, now) } else { self.by_rate(now) };
        let (work, grain) = self.within_places(control, pace * 100.0 * dt_s, from);
        // Beyond the ring nothing is known: a clock that jumped is followed.
        let known = until.saturating_sub(Duration::from_secs(self.slots.seconds()));
        let (at, left) = advance(from.max(known.min(now)), until, work, |second| {
            let load = self.slots.promised(second);
            (load.cost.hundredths(), self.slots.density(second, load))
        });
        // Nor back behind where it was seen since the last tick, while it followed the clock.
        let at = at.max(self.door.hand.at(now));
        let going = self.going(control);
        control.window.called((work - left) / 100.0, &going);
        control.calls.called((work - left) / grain, self.show_up());
        self.seats.publish(&control.calls);
        self.door
            .hand
            .set(HandValue { at, follows_clock: at >= last && pace > 0.0 && capacity > Rate::ZERO });
    }

    /// Promised work to call per second where the outflow governs.
    fn by_rate(&self, now: Timestamp) -> f64 {
        let drain = self.door.drain();
        // Without what comes in past the schedule: left to the gain alone, it would stand as a backlog of a second and more.
        self.left_of(drain) * pace(self.door.backlog_s(now), self.door.grain_s()) / self.show_up()
    }

    /// The same where a queue is kept at the gate: as that law has it, but no more than at the operator's ceiling.
    fn by_queue(&self, control: &mut Control, now: Timestamp) -> f64 {
        if control.is_origin_gone || self.door.capacity() == Rate::ZERO {
            return 0.0;
        }
        let going = self.going(control);
        let pace = control.window.pace(&going);
        let ceiling = control.course.ceiling;
        if ceiling >= Rate::MAX { pace } else { pace.min(self.by_rate(now)) }
    }

    fn learn_show_up(&self, control: &mut Control, now: Timestamp, dt_s: f64) {
        let capacity = self.door.capacity();
        control.show_up.age(dt_s);
        // Not before the clock has passed it too: who comes when first told, however far the hand has run, is no absentee.
        let passed = self.door.hand.at(now).min(now).second();
        let judged = self.judged.load(Ordering::Acquire);
        // Nor before tokencheck has told who came: while its reports are lost, nobody is an absentee.
        let told = control.heard.map_or(u64::MAX, |at| at.second().saturating_sub(JUDGE_AFTER_S / 2));
        let until = passed.saturating_sub(JUDGE_AFTER_S).min(told).max(judged);
        self.judged.store(until, Ordering::Release);
        for second in judged.max(until.saturating_sub(self.slots.seconds()))..until {
            let promised = self.waits.load(second);
            let shown = self.shown.load(second).cost.min(promised.cost);
            control.show_up.record(promised.cost, shown, capacity);
        }
        let late = Cost::from_hundredths(self.shown_late.swap(0, Ordering::Relaxed));
        control.show_up.record(Cost::ZERO, late, capacity);
        self.apply_show_up(control);
    }

    pub(super) fn apply_show_up(&self, control: &mut Control) {
        let capacity = self.door.capacity();
        let ratio = control.show_up.ratio(capacity);
        self.show_up.store(ratio.to_bits(), Ordering::Relaxed);
        let told = control.show_up.ratio_told(capacity, self.door.grain());
        self.show_up_told.store(told.to_bits(), Ordering::Relaxed);
        let overbook = (1.0 / ratio).clamp(1.0, control.config.overbook_max.max(1.0));
        if (overbook / control.overbook - 1.0).abs() > OVERBOOK_STEP && capacity > Rate::ZERO {
            control.overbook = overbook;
            self.slots.set_limit_ahead(self.limit(capacity, overbook));
        }
    }

    /// Sets the capacity, which governs by itself: [`Room::set_course`].
    pub fn set_capacity(&self, rate: Rate, now: Timestamp) {
        self.set_course(&rate.into(), now);
    }

    /// What is gone by.
    pub fn course(&self) -> Course {
        self.control().course
    }

    /// What to go by from now on. A fall of the capacity moves newcomers behind everything promised (WebQ III-D: T' + 1), a
    /// rise speeds up the hand, or goes to newcomers if so configured.
    pub fn set_course(&self, course: &Course, now: Timestamp) {
        let control = &mut *self.control();
        let before = std::mem::replace(&mut control.course, *course);
        if *course == before {
            return;
        }
        if !(course.keeps_queue && before.keeps_queue) {
            // The time until now was under the old course. (A queue is kept whatever the capacity.)
            control.course = before;
            self.step(control, now);
            control.course = *course;
        }
        self.door.set_course(course, now);
        let rate = course.capacity;
        if rate == Rate::ZERO || course.keeps_queue && self.is_near(rate, control.overbook) {
            return;
        }
        self.fit_schedule(control, rate, now);
    }

    /// New settings; promises stay. What a class costs holds for visitors to come.
    pub fn reconfigure(&self, config: RoomConfig, now: Timestamp) -> Result<(), NeedsNewRoom> {
        let needed_s = seconds_needed(&config);
        if needed_s > self.slots.seconds() {
            return Err(NeedsNewRoom { needed_s, has_s: self.slots.seconds() });
        }
        let control = &mut *self.control();
        self.step(control, now);
        self.door.configure(&config);
        self.slots.set_max_wait(config.max_wait);
        self.configure(&config);
        control.config = config;
        self.apply_show_up(control);
        Ok(())
    }
}
