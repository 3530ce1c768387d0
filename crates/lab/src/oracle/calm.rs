//! Honest waits, and the way back to normal.
//!
//! **Honest.** A visitor who follows the page, and to whom a wait `w` was announced when nothing was wrong,
//! is admitted within `w` plus a tenth plus [`SLACK`]: the tenth is the error of a show-up ratio and of a
//! loop that holds the backlog at a twentieth of a second, the slack a poll (0.3 s), a round of "come again
//! in a second", and the schedule's resolution of a second. The gate is not judged where it cannot know: once
//! a fault or a change has happened (a restart forgets the promises of its last second), while tokencheck's
//! reports are lost (waits announced after the next one hold again), when the origin has fallen behind the
//! operator's figure since the wait was announced, and in a crowd of which some are late and take their turn
//! later than scheduled. Being admitted sooner breaks no promise. Where visitors are admitted and not
//! requests, those who are in decide how much is left to the others, so the waits of a run are judged
//! together ([`super::waits`]). Where the capacity is discovered as well, waits announced in the first
//! [`SEARCH_US`] of a crowd, or with an estimate that was another one later, are not judged, unless they are
//! for one of a given number of session slots.
//!
//! Where an estimator moves the capacity, the announced wait is the work ahead at the estimated capacity.
//! Whether or not the estimate is right, nobody waits longer than until the origin has been sent that much
//! work, plus a tenth plus what it takes in [`SLACK`], and the page has asked once more. The exception is a
//! gate's queue that was long meanwhile, as it is after the limit fell: half of its length, half of what may
//! wait there as long as the operator allows, or two seconds of work. Then some visitors whose turn has come
//! are asked to come again.
//!
//! **Normal.** Every promise bounds the time at which the room is empty: twice its wait and [`TO_NORMAL`]. If
//! the room is busy later than every such instant, and nothing has been wrong for as long, it does not return
//! to normal. Where an estimator moves the capacity, the announced work replaces the time: twice as much has
//! been sent and the room is still busy, or nothing is sent for [`TO_NORMAL`] and ten times what the dearest
//! visitor takes at the capacity in force.

use std::time::Duration;

use tidegate_core::room::Wait;
use tidegate_core::units::Cost;

use super::waits::Waits;
use super::{Finding, require};
use crate::scenario::{Follow, Scenario};
use crate::sim::process::GateProcess;
use crate::visitor_events::Noted;

/// By how much a wait may exceed the announced one, beyond a tenth of it.
pub const SLACK: Duration = Duration::from_secs(3);
/// The same in the two-process form: reports are half a second old, and both processes may say "come again".
pub const SLACK_SPLIT: Duration = Duration::from_secs(5);
/// After the last promise and its wait: the grace of late visitors, an ejection's end, a health check.
pub const TO_NORMAL: Duration = Duration::from_secs(120);
/// An origin so far behind, in seconds of work that queue at the gate, has less than the operator's capacity.
/// So has one that is sent so much less than [`TAKEN`] of the capacity while every in-flight slot is taken:
/// the queue is kept short, or visitors give up.
const FALLS_BEHIND_S: f64 = 0.5;
/// Share of the capacity. By chance an origin that takes all of it is sent less for a while; a tenth less for
/// many seconds is no chance.
const TAKEN: f64 = 0.9;
/// Where the capacity is discovered: beyond this much work in it, visitors are asked to come again.
const ASKED_AGAIN_S: f64 = 2.0;
/// An estimator that has not seen the origin at its limit searches for so long once visitors wait.
const SEARCH_US: u64 = 10_000_000;
/// Greatest ratio of two estimates that count as the same.
const SAME_ESTIMATE: f64 = 1.25;
/// A disturbance no longer affects the rate at the origin after this.
const SETTLES_US: u64 = 3_000_000;

#[derive(Clone, Copy, Default)]
struct Told {
    at_us: u64,
    wait_us: u64,
    /// Disturbances before it; none for visitors who must not be judged.
    world: u32,
    /// Work sent to the origin when its turn comes, if an estimator governs; else zero.
    until: f64,
    /// Cost units per second that it was computed with.
    capacity: f64,
    /// Work sent to the origin when it last had to wait.
    last_sent: f64,
    /// It waits for the origin, and not for a session slot.
    follows_capacity: bool,
}

#[derive(Default)]
pub(super) struct Calm {
    told: Vec<Told>,
    /// By kind: whether it comes at the announced time.
    prompt: Vec<bool>,
    /// Disturbances so far, from 1.
    world: u32,
    disturbed_us: Option<u64>,
    /// A fault other than lost reports, or a change, has happened.
    faulted: bool,
    /// The last report from tokencheck to tokengen was lost.
    is_unheard: bool,
    /// The room is empty from here on; and once so much work has been sent.
    empty_by_us: u64,
    empty_by_work: f64,
    sent_us: u64,
    discovers: bool,
    /// Waits of visitors for sessions, where visitors are admitted and not requests.
    for_slots: Option<Waits>,
    crowd_is_over: bool,
    slack: Duration,
    /// Since when visitors wait, by the second.
    busy_us: Option<u64>,
    /// Cost units per second, as of the last second.
    capacity: f64,
    /// In this second the gate could have sent more.
    had_room: bool,
    /// What [`TAKEN`] of the capacity is more than was sent, since an in-flight slot was last free.
    missing: f64,
    /// Work sent to the origin, and the most of it in a second.
    sent: f64,
    sent_before: f64,
    fastest: f64,
}

impl Calm {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let settings = scenario.gate.as_ref().map(|gate| &gate.settings);
        let is_split = scenario.gate.as_ref().is_some_and(|gate| gate.split);
        let sessions = settings.filter(|s| s.counts_sessions()).map(|s| s.session.max);
        let nobody_is_late = scenario.visitors.iter().all(|kind| kind.late == 0.0);
        let prompt = scenario.visitors.iter().map(|kind| {
            kind.follow == Follow::Page && if sessions.is_some() { kind.late == 0.0 } else { nobody_is_late }
        });
        Self {
            prompt: prompt.collect(),
            world: 1,
            discovers: scenario.gate.as_ref().is_some_and(|gate| gate.settings.discovers()),
            for_slots: sessions.map(|max| Waits::new(is_split, max)),
            slack: if is_split { SLACK_SPLIT } else { SLACK },
            ..Self::default()
        }
    }

    pub(super) fn faulted(&mut self, now_us: u64) {
        self.faulted = true;
        self.disturbed(now_us);
    }

    /// While reports are lost, waits are announced without knowledge of the origin. The first report that
    /// arrives contains the lost ones: waits announced from then on hold again.
    pub(super) fn reported(&mut self, is_heard: bool) {
        if !is_heard || self.is_unheard {
            self.world += 1;
        }
        self.is_unheard = !is_heard;
    }

    pub(super) fn disturbed(&mut self, now_us: u64) {
        self.world += 1;
        self.disturbed_us = Some(now_us);
    }

    pub(super) fn is_undisturbed(&self) -> bool {
        self.disturbed_us.is_none()
    }

    /// Whether nothing has gone wrong lately.
    pub(super) fn is_calm(&self, now_us: u64) -> bool {
        self.disturbed_us.is_none_or(|at| now_us > at + SETTLES_US)
    }

    pub(super) fn crowd_is_over(&mut self, now_us: u64) {
        self.crowd_is_over = true;
        self.empty_by_us = self.empty_by_us.max(now_us);
    }

    pub(super) fn sent(&mut self, cost: Cost) {
        self.sent += cost.units();
    }

    pub(super) fn promised(
        &mut self,
        client: u32,
        wait: &Wait,
        processes: &[GateProcess],
        now_us: u64,
    ) -> Finding {
        let at = client as usize;
        if self.told.len() <= at {
            self.told.resize(at + 1, Told::default());
        }
        let wait_us = wait.wait.as_micros() as u64;
        let world = if self.is_unheard || self.is_searching(now_us) { 0 } else { self.world };
        let capacity = processes.first().map_or(0.0, |process| process.capacity().get());
        let work = wait.wait.as_secs_f64() * capacity;
        let until = if self.discovers { self.sent + 1.1 * work } else { 0.0 };
        if self.discovers {
            self.empty_by_work = self.empty_by_work.max(self.sent + 2.0 * work);
        }
        let follows_capacity = self.for_slots.as_ref().is_some_and(Waits::follow_capacity);
        let last_sent = self.sent;
        self.told[at] = Told { at_us: now_us, wait_us, world, until, capacity, last_sent, follows_capacity };
        self.empty_by_us = self.empty_by_us.max(now_us + 2 * wait_us);
        let waits = self.for_slots.as_ref().filter(|_| !self.faulted);
        waits.map_or(Ok(()), |waits| waits.told(client, wait.wait, now_us))
    }

    /// Whether the estimator may still be looking for the capacity of which sessions get a share.
    fn is_searching(&self, now_us: u64) -> bool {
        let has_begun = self.busy_us.is_none_or(|since| now_us < since + SEARCH_US);
        self.discovers && self.for_slots.as_ref().is_some_and(Waits::follow_capacity) && has_begun
    }

    /// A visitor has to go on waiting and comes when its page asks next. After a fall of an estimated
    /// capacity that may be later than first announced.
    pub(super) fn news(&mut self, client: u32) {
        if let Some(told) = self.told.get_mut(client as usize) {
            told.last_sent = self.sent;
        }
    }

    pub(super) fn held(&mut self, client: u32) {
        if let Some(told) = self.told.get_mut(client as usize) {
            told.world = 0;
        }
    }

    pub(super) fn noted(&mut self, client: u32, kind: u32, limit: Duration, noted: &Noted) -> Finding {
        // Most answers are "not yet", which need no look-up.
        if matches!(noted, Noted::Nothing) {
            return Ok(());
        }
        let Some(told) = self.told.get_mut(client as usize) else { return Ok(()) };
        let Noted::Served { entered, waited: Some(_), waited_since, .. } = noted else {
            if matches!(noted, Noted::Failed(_)) {
                // A request of the visitor failed: its wait is not judged.
                told.world = 0;
            }
            return Ok(());
        };
        let told = std::mem::take(told);
        let prompt = self.prompt.get(kind as usize).copied().unwrap_or(false);
        if self.faulted || told.world != self.world || !prompt {
            return Ok(());
        }
        let realised_us = (entered.as_micros() as u64).saturating_sub(told.at_us);
        let (realised, wait) = (Duration::from_micros(realised_us), Duration::from_micros(told.wait_us));
        if let Some(waits) = &mut self.for_slots {
            let ratio = self.capacity / told.capacity;
            if told.follows_capacity && !(1.0 / SAME_ESTIMATE..=SAME_ESTIMATE).contains(&ratio) {
                return Ok(());
            }
            let told_at = Duration::from_micros(told.at_us);
            if Waits::would_have_waited(waited_since.saturating_add(limit), told_at, wait, self.slack) {
                waits.kept(told.at_us, wait, realised, self.slack);
            }
            return Ok(());
        }
        if told.until > 0.0 {
            let fastest = self.fastest.max(self.sent - self.sent_before);
            let most = told.until + fastest * self.slack.as_secs_f64();
            let over = told.last_sent - most;
            return require(told.last_sent <= most, "honest", || {
                format!(
                    "visitor {client} was told to wait {wait:?}, and {over:.1} cost units too many had been \
                     sent to the origin when it was told to wait on"
                )
            });
        }
        let most_us = told.wait_us + told.wait_us / 10 + self.slack.as_micros() as u64;
        require(realised_us <= most_us, "honest", || {
            format!("visitor {client} was told to wait {wait:?} and waited {realised:?}")
        })
    }

    pub(super) fn run_is_over(&self) -> Finding {
        self.for_slots.as_ref().filter(|_| !self.faulted).map_or(Ok(()), Waits::over)
    }

    pub(super) fn ticked(&mut self, state: &GateProcess, now_us: u64) {
        if let (Some(waits), Some(sessions)) = (&mut self.for_slots, &state.sessions) {
            waits.ticked(sessions, &state.config.settings.session, state.now(now_us), now_us);
        }
        let queued: Cost = state.gate.totals().queued_cost;
        let gate = state.gate.totals();
        // However long the queue may be, nobody may wait in it for longer than this.
        let most_s = ASKED_AGAIN_S.min(gate.max_queue_wait.as_secs_f64() / 2.0);
        let is_long = 2 * gate.queued >= gate.max_queue || queued.units() > most_s * state.capacity().get();
        if self.discovers && self.for_slots.is_none() && state.forwards() && is_long {
            // Since a limit fell, or the queue is short, some are asked to come again though it is
            // their turn.
            self.world += 1;
        }
        self.had_room |= state.forwards() && gate.has_room();
        if !self.discovers && state.forwards() && queued.units() > FALLS_BEHIND_S * state.capacity().get() {
            self.disturbed(now_us);
        }
    }

    pub(super) fn second(&mut self, processes: &[GateProcess], now_us: u64) -> Finding {
        let Some(process) = processes.first() else { return Ok(()) };
        let now = process.now(now_us);
        self.capacity = process.capacity().get();
        self.busy_us = if process.admission.busy(now) { self.busy_us.or(Some(now_us)) } else { None };
        let sent = self.sent - std::mem::replace(&mut self.sent_before, self.sent);
        let had_room = std::mem::take(&mut self.had_room);
        self.missing = if had_room { 0.0 } else { (self.missing + TAKEN * self.capacity - sent).max(0.0) };
        if !self.discovers && self.missing > FALLS_BEHIND_S * self.capacity {
            self.disturbed(now_us);
        }
        self.fastest = self.fastest.max(sent);
        if sent > 0.0 || !process.admission.busy(now) {
            self.sent_us = now_us;
        }
        if !process.admission.busy(now) {
            return Ok(());
        }
        let bound = TO_NORMAL.as_micros() as u64;
        let is_due = if self.discovers {
            let dearest = process.dearest().units();
            let stands_us = 1e7 * dearest / process.capacity().get().max(1e-9);
            let in_time = bound as f64 * 1e-6 * self.fastest;
            self.sent > self.empty_by_work + in_time
                || (now_us - self.sent_us) as f64 > bound as f64 + stands_us
        } else {
            now_us > self.empty_by_us.max(self.disturbed_us.unwrap_or(0)) + bound
        };
        if !self.crowd_is_over || !is_due {
            return Ok(());
        }
        self.empty_by_work = self.sent;
        self.sent_us = now_us;
        self.empty_by_us = now_us;
        let state = process.admission.state(now);
        let what =
            format!("the room is busy {bound} us after the last promise should have been kept: {state:?}");
        Err(("normal", what))
    }
}
