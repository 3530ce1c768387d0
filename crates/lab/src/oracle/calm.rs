//! Honest waits, and the way back to normal.
//!
//! **Honest.** A visitor who goes by the page, told to wait `w` when nothing was wrong, is in within `w` plus a tenth plus
//! [`SLACK`]: the tenth is the error of a show-up ratio and of a loop that holds the backlog at a twentieth of a second, the
//! slack a poll (0.3 s), a round of "come again in a second", and the second's grain of the schedule. It is not held against
//! the gate where it cannot know: once a fault or a change has happened (a restart forgets the promises of its last second), while
//! tokencheck's reports are lost (what is told after the next one holds again), when the origin has fallen behind what the operator said of it since the wait was
//! told, and in a crowd of which some are late, who take their turn later than the schedule had it. Being let in sooner breaks no
//! promise.
//!
//! **Normal.** Every promise made says when the room will be empty: after twice its wait and [`TO_NORMAL`]. If the room is
//! busy later than every such instant, and nothing has been wrong for as long, it does not come back.

use std::time::Duration;

use tidegate_core::room::Wait;
use tidegate_core::units::Cost;

use super::Finding;
use crate::acts::{End, Noted};
use crate::scenario::{Follow, Scenario};
use crate::sim::half::Half;

/// What a wait may turn out longer than told, beyond a tenth of it.
pub const SLACK: Duration = Duration::from_secs(3);
/// The same where tokengen and tokencheck are two: reports are half a second old, and both may say "come again".
pub const SLACK_SPLIT: Duration = Duration::from_secs(5);
/// After the last promise and its wait: the grace of late visitors, an ejection's end, a health check.
pub const TO_NORMAL: Duration = Duration::from_secs(120);
/// An origin so far behind, in seconds of work that queue at the gate, is not what the operator said it is.
const FALLS_BEHIND_S: f64 = 0.5;
/// What has gone wrong is over for the origin's door after this.
const SETTLES_US: u64 = 3_000_000;

#[derive(Clone, Copy, Default)]
struct Told {
    at_us: u64,
    wait_us: u64,
    /// How many disturbances there had been; of who must not be judged: none.
    world: u32,
}

pub(super) struct Calm {
    /// By visitor's number.
    told: Vec<Told>,
    /// By kind: whether it comes when told.
    prompt: Vec<bool>,
    /// Disturbances so far, from 1.
    world: u32,
    disturbed_us: Option<u64>,
    /// A fault other than lost reports, or a change, has happened.
    faulted: bool,
    /// The last report from tokencheck to tokengen was lost.
    is_unheard: bool,
    /// The room is empty from here on.
    empty_by_us: u64,
    crowd_is_over: bool,
    slack: Duration,
}

impl Calm {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let nobody_is_late = scenario.visitors.iter().all(|kind| kind.late == 0.0);
        let prompt = scenario.visitors.iter().map(|kind| nobody_is_late && kind.follow == Follow::Page);
        Self {
            told: Vec::new(),
            prompt: prompt.collect(),
            world: 1,
            disturbed_us: None,
            faulted: false,
            is_unheard: false,
            empty_by_us: 0,
            crowd_is_over: false,
            slack: if scenario.gate.as_ref().is_some_and(|gate| gate.split) { SLACK_SPLIT } else { SLACK },
        }
    }

    /// A fault begins or ends, or the origin changes.
    pub(super) fn faulted(&mut self, now_us: u64) {
        self.faulted = true;
        self.disturbed(now_us);
    }

    /// Reports are lost from now on, or no longer.
    pub(super) fn link_changed(&mut self, now_us: u64) {
        self.disturbed(now_us);
    }

    /// While reports are lost waits are told without knowing. The first that arrives tells all that the lost ones would have:
    /// from then on what is told holds again.
    pub(super) fn reported(&mut self, is_heard: bool) {
        if !is_heard || self.is_unheard {
            self.world += 1;
        }
        self.is_unheard = !is_heard;
    }

    fn disturbed(&mut self, now_us: u64) {
        self.world += 1;
        self.disturbed_us = Some(now_us);
    }

    /// Whether nothing has gone wrong so far.
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

    pub(super) fn promised(&mut self, guest: u32, wait: &Wait, now_us: u64) {
        let at = guest as usize;
        if self.told.len() <= at {
            self.told.resize(at + 1, Told::default());
        }
        let wait_us = wait.wait.as_micros() as u64;
        let world = if self.is_unheard { 0 } else { self.world };
        self.told[at] = Told { at_us: now_us, wait_us, world };
        self.empty_by_us = self.empty_by_us.max(now_us + 2 * wait_us);
    }

    /// The gate had nowhere to send anybody.
    pub(super) fn held(&mut self, guest: u32) {
        if let Some(told) = self.told.get_mut(guest as usize) {
            told.world = 0;
        }
    }

    pub(super) fn left(&mut self, guest: u32, _end: End, _holds_ticket: bool) {
        self.held(guest);
    }

    pub(super) fn noted(&mut self, guest: u32, kind: u32, noted: &Noted, _now: Duration) -> Finding {
        // Most answers are "not yet": not worth a look into memory.
        if matches!(noted, Noted::Nothing) {
            return Ok(());
        }
        let Some(told) = self.told.get_mut(guest as usize) else { return Ok(()) };
        let Noted::Served { entered, waited: Some(_), .. } = noted else {
            if matches!(noted, Noted::Failed(_)) {
                // A request of its own failed: what follows is its own affair.
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
        let most_us = told.wait_us + told.wait_us / 10 + self.slack.as_micros() as u64;
        if realised_us <= most_us {
            return Ok(());
        }
        let (realised, wait) = (Duration::from_micros(realised_us), Duration::from_micros(told.wait_us));
        Err(("honest", format!("visitor {guest} was told to wait {wait:?} and waited {realised:?}")))
    }

    pub(super) fn ticked(&mut self, state: &Half, now_us: u64) {
        let queued: Cost = state.gate.totals().queued_cost;
        if state.forwards() && queued.units() > FALLS_BEHIND_S * state.capacity().get() {
            self.disturbed(now_us);
        }
    }

    pub(super) fn second(&mut self, halves: &[Half], now_us: u64) -> Finding {
        let Some(half) = halves.first() else { return Ok(()) };
        let now = half.now(now_us);
        if !half.desk.busy(now) {
            return Ok(());
        }
        let bound = TO_NORMAL.as_micros() as u64;
        let since = self.empty_by_us.max(self.disturbed_us.unwrap_or(0));
        if !self.crowd_is_over || now_us <= since + bound {
            return Ok(());
        }
        self.empty_by_us = now_us;
        Err((
            "normal",
            format!(
                "the room is busy {bound} us after the last promise should have been kept: {:?}",
                half.desk.state(now)
            ),
        ))
    }
}
