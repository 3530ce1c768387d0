//! Rules that must always hold, for any crowd and any faults. The simulator checks them while it runs.
//!
//! | rule | what holds | when |
//! |---|---|---|
//! | `ledger` | arrived = finished + shed + abandoned + queued + in flight, at the gate and by the oracle's count; the origin's counts balance too | after every event |
//! | `limit` | in flight at most the limit in force when it was forwarded; nobody queues while there is room | after every event |
//! | `queue order` | within a class first come, first served; between classes by priority, then by arrival | each request forwarded |
//! | `once` | a ticket admits once in a process's life, unless it was given back, and is not reported as used before | each redemption |
//! | `turn` | nobody enters before the virtual clock has come to the ticket's instant, less the tolerance | each redemption |
//! | `order` | a visitor who comes later is promised no earlier instant; nobody has to wait once a later instant was let in | each promise, each answer |
//! | `first fit` | no second is skipped that has room | each promise |
//! | `promises` | no second is promised more than limit and one visitor | each promise |
//! | `capacity` | what is let in runs ahead of the capacity by no more than the bound of [`flow`] | each entry, each second |
//! | `honest` | nobody waits longer than announced, within the bound of [`calm`] | each visitor served |
//! | `honest` | where session slots are limited: the visitors of a run wait no longer, and not far shorter, than announced, within the bounds of [`waits`] | at the end |
//! | `normal` | after the crowd the room empties | each second |
//! | `forged` | no altered ticket is accepted | each attack |
//! | `part` | a part of a page of an admitted visitor who keeps cookies is neither made to wait nor refused by the room | each part |
//! | `tier` | a service level that skips the room never waits | each decision |
//! | `policy` | a request that a rule in force refuses is refused, and no other is refused by a rule | each decision |
//! | `session` | an admitted session keeps its slot and is refused nothing for load; no slot is given out twice, and every one comes back | each request of a session |
//!
//! The oracle keeps its own accounts and reads the core's only to compare. It decides nothing, and nothing
//! depends on it.

use std::time::Duration;

use tidegate_core::admission::Position;
use tidegate_core::room::{TicketStatus, Wait};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::Cost;

use crate::model::Stats;
use crate::scenario::Scenario;
use crate::sim::process::GateProcess;
use crate::sim::trace::{STEPS_SHOWN, Trace};
use crate::visitor_events::Noted;

mod admission;
pub mod calm;
pub mod flow;
mod numbers;
mod queue;
mod schedule;
mod sessions;
mod slots;
mod violation;
mod waits;

pub(crate) use admission::Decided;
use calm::Calm;
use flow::Flow;
use queue::Queue;
use schedule::Schedule;
use sessions::Sessions;
pub use violation::Violation;

/// Violations kept: the first explains the others.
const MAX_VIOLATIONS: usize = 10;

/// A finding: the rule, and what was expected and found.
pub(crate) type Finding = Result<(), (&'static str, String)>;

fn require(holds: bool, rule: &'static str, what: impl FnOnce() -> String) -> Finding {
    if holds { Ok(()) } else { Err((rule, what())) }
}

#[derive(Clone, Copy)]
pub(crate) enum Entry {
    /// By a ticket whose turn had come.
    Ticket { ticket: Ticket, process: usize },
    /// A newcomer without a wait.
    AtOnce { cost: Cost },
    /// Bypass traffic: a class that never waits, a session's pass.
    Unasked { cost: Cost },
}

pub(crate) struct Oracle {
    is_on: bool,
    /// The gate is killed and not yet back.
    is_down: bool,
    seed: u64,
    found: Vec<(&'static str, String)>,
    violations: Vec<Violation>,
    queue: Queue,
    schedule: Schedule,
    flow: Flow,
    calm: Calm,
    sessions: Sessions,
}

impl Oracle {
    /// `seed`: of the run that is checked; `None`: nothing is checked.
    pub(crate) fn new(scenario: &Scenario, processes: &[GateProcess], seed: Option<u64>) -> Self {
        Self {
            is_on: seed.is_some(),
            is_down: false,
            seed: seed.unwrap_or_default(),
            found: Vec::new(),
            violations: Vec::new(),
            queue: Queue::new(processes.last().map(|process| process.config.gate())),
            schedule: Schedule::new(processes),
            flow: Flow::new(scenario, processes),
            calm: Calm::new(scenario),
            sessions: Sessions::new(processes),
        }
    }

    pub(crate) fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    /// Largest lead over the capacity seen, in seconds of work, and its bound.
    pub(crate) fn lead(&self) -> (f64, f64) {
        self.flow.lead()
    }

    fn expect(&mut self, finding: Finding) {
        if let Err(found) = finding {
            self.found.push(found);
        }
    }

    /// Checks a rule while the oracle is on.
    fn apply(&mut self, rule: impl FnOnce(&mut Self) -> Finding) {
        if self.is_on {
            let finding = rule(self);
            self.expect(finding);
        }
    }

    pub(crate) fn entered(&mut self, entry: Entry, processes: &[GateProcess], now_us: u64) {
        if let Entry::Ticket { ticket, process } = &entry {
            self.apply(|oracle| oracle.schedule.redeemed(ticket, *process, processes, now_us));
        }
        self.apply(|oracle| oracle.flow.entered(&entry, processes, now_us));
    }

    /// Tokengen redeemed a ticket and sends its visitor on.
    pub(crate) fn sent_on(&mut self, ticket: &Ticket, processes: &[GateProcess], now_us: u64) {
        self.apply(|oracle| oracle.schedule.redeemed(ticket, 0, processes, now_us));
    }

    pub(crate) fn called_used(&mut self, ticket: &Ticket, process: usize) {
        self.apply(|oracle| oracle.schedule.called_used(ticket, process));
    }

    pub(crate) fn gave_back(&mut self, ticket: &Ticket) {
        if self.is_on {
            self.schedule.gave_back(ticket);
            self.flow.gave_back(ticket.cost);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what is said about one answer")]
    pub(crate) fn waits(
        &mut self,
        client: u32,
        process: usize,
        ticket: &Ticket,
        wait: &Wait,
        position: Position,
        processes: &[GateProcess],
        now_us: u64,
    ) {
        self.apply(|oracle| {
            if position == Position::Kept {
                oracle.calm.news(client);
                return oracle.schedule.kept(ticket, wait, process, processes);
            }
            if ticket.wait.is_zero() {
                return require(position == Position::Replaced, "turn", || {
                    format!("{ticket:?} is promised, but the schedule has no say in a ticket for now")
                });
            }
            let is_undisturbed = oracle.calm.is_undisturbed();
            let told = oracle.calm.promised(client, wait, processes, now_us);
            oracle.expect(told);
            oracle.schedule.promised(ticket, is_undisturbed, processes, now_us)
        });
    }

    /// A part of a page got a position, for which no visitor will come back.
    pub(crate) fn part_waits(&mut self, ticket: &Ticket, processes: &[GateProcess], now_us: u64) {
        self.apply(|oracle| {
            oracle.schedule.promised(ticket, oracle.calm.is_undisturbed(), processes, now_us)
        });
    }

    pub(crate) fn looked(
        &mut self,
        client: u32,
        process: usize,
        ticket: &Ticket,
        look: &TicketStatus,
        is_usable: bool,
        processes: &[GateProcess],
    ) {
        if !is_usable {
            self.held(client);
        }
        if let TicketStatus::Wait(wait) = look {
            self.apply(|oracle| {
                oracle.calm.news(client);
                oracle.schedule.kept(ticket, wait, process, processes)
            });
        }
    }

    /// Nobody could be admitted.
    pub(crate) fn held(&mut self, client: u32) {
        if self.is_on {
            self.calm.held(client);
        }
    }

    /// The key ring accepted what an attacker showed.
    pub(crate) fn opened(&mut self, was_altered: bool) {
        if self.is_on && was_altered {
            self.found.push(("forged", "an altered ticket was accepted as authentic".into()));
        }
    }

    /// `limit`: how long the visitor waits at most.
    pub(crate) fn noted(&mut self, client: u32, kind: u32, limit: Duration, noted: &Noted) {
        self.apply(|oracle| oracle.calm.noted(client, kind, limit, noted));
    }

    pub(crate) fn left(&mut self, client: u32) {
        if self.is_on {
            self.sessions.over(client);
            self.calm.held(client);
        }
    }

    pub(crate) fn sent_to_origin(&mut self, cost: Cost) {
        if self.is_on {
            self.flow.sent(cost);
            self.calm.sent(cost);
        }
    }

    pub(crate) fn ticked(&mut self, process: usize, state: &GateProcess, now_us: u64) {
        if self.is_on {
            self.flow.ticked(process, state, now_us);
            self.schedule.ticked(process, state);
            self.calm.ticked(state, now_us);
        }
    }

    pub(crate) fn second(&mut self, now_us: u64, processes: &[GateProcess], origin: &Stats) {
        let is_calm = self.calm.is_calm(now_us);
        self.apply(|oracle| oracle.flow.second(processes, is_calm, now_us));
        self.apply(|oracle| oracle.calm.second(processes, now_us));
        self.apply(|_| books_of(origin));
    }

    pub(crate) fn disturbed(&mut self, now_us: u64) {
        self.calm.faulted(now_us);
        self.schedule.disturbed();
    }

    /// Reports from tokencheck to tokengen are lost from now on, or no longer.
    pub(crate) fn link_changed(&mut self, now_us: u64) {
        self.calm.disturbed(now_us);
        self.schedule.disturbed();
    }

    pub(crate) fn reported(&mut self, is_heard: bool) {
        self.calm.reported(is_heard);
    }

    pub(crate) fn killed(&mut self) {
        self.queue.restart();
        self.is_down = true;
    }

    pub(crate) fn restarted(&mut self, clock_jump: Duration, now_us: u64) {
        self.is_down = false;
        self.schedule.restarted();
        self.flow.restarted(now_us);
        self.sessions.restarted(clock_jump);
    }

    pub(crate) fn crowd_is_over(&mut self, now_us: u64) {
        self.calm.crowd_is_over(now_us);
    }

    #[inline]
    pub(crate) fn check(&mut self, now_us: u64, processes: &[GateProcess], requests: usize, trace: &Trace) {
        if !self.is_on {
            return;
        }
        if let Some(process) = processes.last().filter(|_| !self.is_down) {
            self.apply(|oracle| oracle.queue.check(&process.gate, requests));
        }
        if !self.found.is_empty() {
            self.write_up(now_us, trace);
        }
    }

    #[cold]
    fn write_up(&mut self, now_us: u64, trace: &Trace) {
        for (rule, what) in self.found.drain(..) {
            if self.violations.len() < MAX_VIOLATIONS {
                let steps = trace.last(STEPS_SHOWN);
                let (seed, event) = (self.seed, trace.count);
                self.violations.push(Violation { seed, at_us: now_us, event, rule, what, steps });
            }
        }
    }

    /// Whether so many rules are broken that going on explains nothing more.
    pub(crate) fn is_done(&self) -> bool {
        self.violations.len() >= MAX_VIOLATIONS
    }

    pub(crate) fn run_is_over(
        &mut self,
        now_us: u64,
        origin: &Stats,
        processes: &[GateProcess],
        at_deadline: bool,
        trace: &Trace,
    ) {
        if !self.is_on {
            return;
        }
        self.expect(books_of(origin));
        self.apply(|oracle| oracle.calm.run_is_over());
        self.apply(|_| {
            let left = origin.present();
            require(at_deadline || left == 0, "ledger", || format!("{left} requests are left at the origin"))
        });
        if let (Some(process), false) = (processes.last(), at_deadline) {
            let totals = process.gate.totals();
            let (queued, in_flight) = (totals.queued, totals.in_flight);
            self.expect(require(queued == 0 && in_flight == 0, "ledger", || {
                format!("nobody is left, but {queued} queue and {in_flight} are in flight")
            }));
        }
        self.write_up(now_us, trace);
    }
}

fn books_of(origin: &Stats) -> Finding {
    require(origin.adds_up(), "ledger", || format!("the origin's books do not add up: {origin:?}"))
}
