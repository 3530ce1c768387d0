//! Promises: their instants, the order in which they are kept, and that each is kept once.
//!
//! **Order** is that of the due instants. Instants are handed out in the order of arrival, and a ticket is
//! let in when the virtual clock has come to its instant; the clock never goes back. So: a promise made later
//! is for no earlier instant (a millisecond is lost to rounding), and once a ticket due at `d` has been let
//! in, no ticket due before `d` is "not yet" ever again. The exceptions of DESIGN.md do not break this: a
//! late visitor had its turn and missed it; visitors are pulled forward because the virtual clock runs ahead
//! for all alike; a burst is the part of the present second that is already due. The answer "your turn, but
//! the origin is behind" ([`SOON`]) goes to all whose turn has come, so it breaks no order.
//!
//! Where an estimator moves the capacity, what is promised may exceed the highest so far by [`STEP`], since
//! the schedule follows in steps; and the seconds that a fall leaves empty are no mistake.
//!
//! Not checked where the design says otherwise: `rise_to_newcomers` gives new room to newcomers (WebQ III-D).
//! A restart forgets the promises of its last second; order begins anew.

use std::time::Duration;

use tidegate_core::room::Wait;
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{Rate, Timestamp};

use super::numbers::NumberSet;
use super::{Finding, require};
use crate::sim::process::GateProcess;

/// The wait of a visitor whose turn has come while the origin is behind: a second.
const SOON: (u64, Duration) = (1, Duration::from_secs(1));
/// Tickets count whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);
/// The schedule is made anew for changes of the capacity above this only, where an estimator moves it.
const STEP: f64 = 0.05;
/// Greatest age of the update that tokencheck follows; after this it follows the wall clock.
const ORDERS_HOLD: Duration = Duration::from_secs(5);
/// The schedule kept here, in seconds: the longest that any room's is, two days.
const RING: usize = 1 << 18;

#[derive(Default)]
pub(super) struct Schedule {
    /// By process: the nonces let in.
    redeemed: [NumberSet; 2],
    last_due: Timestamp,
    /// The latest instant that was let in.
    let_in: Timestamp,
    /// A second, the hundredths promised for it by ticket, and whether all of it was in the future when it
    /// began to fill.
    promised: Vec<(u64, u64, bool)>,
    highest: Rate,
    capacity: Rate,
    overbook: f64,
    in_order: bool,
    is_split: bool,
    restarts: u32,
    /// A fault or a change has happened: the schedule may have gaps.
    has_gaps: bool,
}

impl Schedule {
    pub(super) fn new(processes: &[GateProcess]) -> Self {
        let in_order = processes.first().is_none_or(|h| !h.config.settings.room.rise_to_newcomers);
        let capacity = processes.first().map_or(Rate::ZERO, GateProcess::capacity);
        let (overbook, is_split) = (1.0, processes.len() == 2);
        Self { highest: capacity, capacity, overbook, in_order, is_split, ..Self::default() }
    }

    pub(super) fn disturbed(&mut self) {
        self.has_gaps = true;
    }

    /// A process has ticked: where an estimator has moved the capacity, the schedule may have gaps.
    pub(super) fn ticked(&mut self, process: usize, state: &GateProcess) {
        if process > 0 {
            return;
        }
        self.look_up_overbook(state);
        if state.capacity() != std::mem::replace(&mut self.capacity, state.capacity()) {
            self.has_gaps = true;
            self.highest = if state.capacity() > self.highest { state.capacity() } else { self.highest };
        }
    }

    pub(super) fn restarted(&mut self) {
        self.restarts += 1;
        self.redeemed = Default::default();
        self.last_due = Timestamp::default();
        self.let_in = Timestamp::default();
        self.promised.clear();
        self.has_gaps = true;
    }

    /// The latest instant that the virtual clock of `process` may have reached.
    fn virtual_clock(process: usize, processes: &[GateProcess], now_us: u64) -> Timestamp {
        let now = processes[process].now(now_us);
        let Some(room) = processes[0].admission.room() else { return now };
        let clock = room.control_update().clock;
        // Tokencheck follows the virtual clock of the last update, or its own wall clock.
        if process == 0 && !clock.follows_clock { clock.at } else { clock.at.max(now) }
    }

    pub(super) fn redeemed(
        &mut self,
        ticket: &Ticket,
        process: usize,
        processes: &[GateProcess],
        now_us: u64,
    ) -> Finding {
        if !self.redeemed[process].insert(ticket.nonce) {
            return Err(("once", format!("{ticket:?} is let in a second time")));
        }
        let here = &processes[process];
        let (now, due) = (here.now(now_us), ticket.due());
        if here.capacity() >= Rate::MAX {
            return Ok(());
        }
        let clock = Self::virtual_clock(process, processes, now_us);
        if ticket.wait.is_zero() {
            // For now by the process that made it: neither the schedule nor this process's clock matters.
            return Ok(());
        }
        require(due <= clock + here.tolerance(), "turn", || {
            let early = due.since(clock);
            format!("{ticket:?} is let in {early:?} before the virtual clock, at {now:?}")
        })?;
        self.let_in = self.let_in.max(due);
        Ok(())
    }

    pub(super) fn called_used(&self, ticket: &Ticket, process: usize) -> Finding {
        // Tokengen's own tickets for the way are used once they are made.
        let known = ticket.wait.is_zero() || self.redeemed[process].contains(&ticket.nonce);
        require(known, "once", || format!("{ticket:?} is called used, but nobody was let in with it"))
    }

    pub(super) fn gave_back(&mut self, ticket: &Ticket) {
        let process = usize::from(self.is_split);
        self.redeemed[process].remove(&ticket.nonce);
    }

    /// A visitor who holds a ticket gets "not yet".
    pub(super) fn kept(
        &self,
        ticket: &Ticket,
        wait: &Wait,
        process: usize,
        processes: &[GateProcess],
    ) -> Finding {
        if (wait.position, wait.wait) == SOON
            || ticket.wait.is_zero()
            || processes[process].capacity() == Rate::ZERO
        {
            return Ok(());
        }
        // Two processes: one may follow an older update than the other did.
        let slack = if self.is_split { ORDERS_HOLD + processes[process].tolerance() } else { Duration::ZERO };
        require(ticket.due() + slack >= self.let_in, "order", || {
            let by = self.let_in.since(ticket.due());
            format!("{ticket:?} has to wait {:?}, but one due {by:?} later was let in", wait.wait)
        })
    }

    pub(super) fn promised(
        &mut self,
        ticket: &Ticket,
        is_undisturbed: bool,
        processes: &[GateProcess],
        now_us: u64,
    ) -> Finding {
        if processes[0].config.ingress.holds(ticket.class) {
            // It may be for an instant of its class's bucket, of which the schedule knows nothing.
            return Ok(());
        }
        let due = ticket.due();
        let before = self.last_due;
        self.last_due = before.max(due);
        require(!self.in_order || due + ROUNDING >= before, "order", || {
            let by = before.since(due);
            format!("{ticket:?} is promised an instant {by:?} before one given out earlier")
        })?;
        if ticket.wait <= ROUNDING {
            // Due by the clock already, while the virtual clock is behind: its position in the schedule is an
            // earlier second's.
            return Ok(());
        }
        let now = processes[0].now(now_us);
        let begun = Self::virtual_clock(0, processes, now_us).max(now).second();
        self.highest =
            if processes[0].capacity() > self.highest { processes[0].capacity() } else { self.highest };
        let sum = self.add(due.second(), ticket.cost.hundredths(), begun < due.second());
        let one = ticket.cost.hundredths().max(largest(processes));
        let per_second = self.highest.over(Duration::from_secs(1)).hundredths() as f64;
        if sum as f64 > per_second * self.overbook + one as f64 + 1.0 {
            self.look_up_overbook(&processes[0]);
        }
        let step = if processes[0].config.settings.discovers() { 1.0 / (1.0 - STEP) } else { 1.0 };
        let limit = per_second * self.overbook * step;
        let second = due.second();
        require(sum as f64 <= limit + one as f64 + 1.0, "promises", || {
            format!("second {second} is promised {sum} hundredths, expected at most {limit} and {one}")
        })?;
        if is_undisturbed && !self.has_gaps && self.restarts == 0 {
            return self.first_fit(due.second(), begun, one, processes);
        }
        Ok(())
    }

    /// The second before must be full if it was wholly in the future when it began to fill, or was skipped as
    /// a whole.
    fn first_fit(&self, second: u64, begun: u64, one: u64, processes: &[GateProcess]) -> Finding {
        let least = processes[0].capacity().over(Duration::from_secs(1)).hundredths();
        let previous = second - 1;
        // The second that follows the present one may be filled by who entered at once.
        if previous <= begun + 1 {
            return Ok(());
        }
        let (sum, whole) = self.at(previous).unwrap_or((0, true));
        require(!whole || sum + one >= least, "first fit", || {
            format!("second {second} is given out although the one before holds {sum} of {least} hundredths")
        })
    }

    fn at(&self, second: u64) -> Option<(u64, bool)> {
        let cell = self.promised.get(second as usize % RING)?;
        (cell.0 == second).then_some((cell.1, cell.2))
    }

    fn add(&mut self, second: u64, hundredths: u64, whole: bool) -> u64 {
        if self.promised.is_empty() {
            self.promised = vec![(0, 0, false); RING];
        }
        let cell = &mut self.promised[second as usize % RING];
        if cell.0 != second {
            *cell = (second, 0, whole);
        }
        cell.1 += hundredths;
        cell.1
    }

    /// The most that was overbooked so far. It rises and falls within a second.
    fn look_up_overbook(&mut self, state: &GateProcess) {
        let most = state.config.settings.room.overbook_max.max(1.0);
        let overbook = state.admission.room().map_or(1.0, |room| room.overbook());
        self.overbook = self.overbook.max(overbook).min(most);
    }
}

/// The dearest class, in hundredths.
fn largest(processes: &[GateProcess]) -> u64 {
    processes.first().map_or(0, |process| process.dearest().hundredths())
}
